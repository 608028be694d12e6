//! The position of a consumer that iterates epoch after epoch.
//!
//! ```text
//!  set_epoch, resume ──► next ──begin──► running ──its end, or stop──► next = the epoch behind it
//! ```

use std::collections::HashSet;
use std::task::Poll;
use std::time::Duration;

use stokehold_loader::{BadImage, BatchStream, Loader, LoaderError, State};

use crate::batch::{BatchTuple, parts};

/// The epochs of a loader, one at a time.
pub(crate) struct Epochs {
    running: Option<Box<dyn BatchStream>>,
    /// The number of iterations begun so far; the last one is the current one.
    begun: u64,
    /// Where the next iteration begins.
    next: State,
    /// The position after the last batch that was returned.
    stand: State,
    /// Whether the current iteration has returned a batch.
    taken: bool,
    /// Bad images after the last batch of the iteration that reached its end.
    unreported: Vec<BadImage>,
    closed: bool,
    /// Iterations that had batches left when another one began, and that somebody still has.
    superseded: HashSet<u64>,
}

/// Why there is no batch.
pub(crate) enum Stopped {
    /// Not ready yet.
    Pending,
    /// The iteration was ended by another call.
    Ended,
    /// Another iteration has begun since.
    Superseded,
    /// The loader was closed.
    Closed,
}

impl Epochs {
    /// Before the first epoch.
    pub(crate) fn new(loader: &Loader) -> Self {
        let start = loader.start_of(0);
        Self {
            running: None,
            begun: 0,
            next: start.clone(),
            stand: start,
            taken: false,
            unreported: Vec::new(),
            closed: false,
            superseded: HashSet::new(),
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether an iteration has batches left. A consumer that takes exactly as many as there are, without
    /// asking for one more, is done too.
    pub(crate) fn is_running(&self, loader: &Loader) -> bool {
        self.running.is_some() && self.stand.batch < loader.batches_per_epoch() as u64
    }

    /// Begins the next epoch, or the rest of it, and ends the current iteration. Returns the number of the iteration.
    pub(crate) fn begin(&mut self, loader: &Loader) -> Result<u64, LoaderError> {
        if self.is_running(loader) {
            self.superseded.insert(self.begun);
        }
        self.stop();
        self.running = Some(loader.resume(self.next.clone())?);
        self.stand = self.next.clone();
        self.next = loader.start_of(self.stand.epoch + 1);
        self.taken = false;
        self.begun += 1;
        Ok(self.begun)
    }

    /// The next batch of an iteration, waiting at most `patience`; `None` at its end.
    pub(crate) fn next_within(
        &mut self,
        iteration: u64,
        patience: Duration,
    ) -> Result<Option<Result<BatchTuple, LoaderError>>, Stopped> {
        if self.closed {
            return Err(Stopped::Closed);
        }
        if self.superseded.contains(&iteration) {
            return Err(Stopped::Superseded);
        }
        if self.begun != iteration {
            return Err(Stopped::Ended);
        }
        let Some(batches) = &mut self.running else {
            return Err(Stopped::Ended);
        };
        let Poll::Ready(next) = batches.next_within(patience) else {
            return Err(Stopped::Pending);
        };
        // A batch that cannot be handed over ends the iteration.
        let next = next.map(|batch| parts(batch?));
        if !matches!(next, Some(Ok(_))) {
            self.unreported = batches.unreported();
        }
        match &next {
            Some(Ok(_)) => {
                self.stand = batches.state();
                self.taken = true;
            }
            Some(Err(_)) => self.running = None,
            None => {
                self.running = None;
                self.stand = self.next.clone();
            }
        }
        Ok(next)
    }

    /// The bad images that no batch of the finished iteration has reported; only once.
    pub(crate) fn unreported(&mut self) -> Vec<BadImage> {
        std::mem::take(&mut self.unreported)
    }

    /// Ends an iteration, if it is the current one.
    pub(crate) fn end(&mut self, iteration: u64) {
        self.superseded.remove(&iteration);
        if self.begun == iteration {
            self.stop();
        }
    }

    /// Ends the current iteration. If it has returned nothing, the next one begins where it began.
    pub(crate) fn stop(&mut self) {
        if self.running.take().is_some() && !self.taken {
            self.next = self.stand.clone();
        }
    }

    /// Ends everything.
    pub(crate) fn close(&mut self) {
        self.running = None;
        self.closed = true;
    }

    /// The position after the last batch that was returned.
    pub(crate) fn state(&self) -> &State {
        &self.stand
    }

    /// The current epoch, or the one that begins next.
    pub(crate) fn epoch(&self) -> u64 {
        match self.running {
            Some(_) => self.stand.epoch,
            None => self.next.epoch,
        }
    }

    /// Sets the epoch of the next iteration. If the next iteration would resume that epoch in its middle, it
    /// still does.
    pub(crate) fn set_epoch(&mut self, loader: &Loader, epoch: u64) {
        if self.next.epoch != epoch {
            self.next = loader.start_of(epoch);
            self.stand = self.next.clone();
        }
    }

    /// Makes the next iteration continue from a state.
    pub(crate) fn resume(&mut self, loader: &Loader, state: State) -> Result<(), LoaderError> {
        loader.check_state(&state)?;
        self.running = None;
        self.next = state.clone();
        self.stand = state;
        Ok(())
    }
}
