//! Where a consumer stands that walks epoch after epoch.
//!
//! ```text
//!  set_epoch, resume ──► next ──begin──► running ──its end, or stop──► next = the epoch behind it
//! ```

use std::task::Poll;
use std::time::Duration;

use stokehold_loader::{BadImage, Batch, Batches, Loader, LoaderError, State};

/// The epochs of a loader, one at a time.
pub(crate) struct Epochs {
    running: Option<Batches>,
    /// Begins of iterations so far; the last one is the one that runs.
    begun: u64,
    /// Where the next iteration begins.
    next: State,
    /// Behind the last batch that was given out.
    stand: State,
    /// Whether the iteration that runs has given a batch out.
    taken: bool,
    /// Bad images behind the last batch of the iteration that came to its end.
    unreported: Vec<BadImage>,
    closed: bool,
}

/// Why there is no batch.
pub(crate) enum Stopped {
    /// Not yet.
    Pending,
    /// The iteration was ended from outside.
    Ended,
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
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether an iteration has batches left. Who takes as many as there are, and does not ask for one more, is done too.
    pub(crate) fn is_running(&self, loader: &Loader) -> bool {
        self.running.is_some() && self.stand.batch < loader.batches_per_epoch() as u64
    }

    /// Begins the next epoch, or what is left of it; the number of the iteration.
    pub(crate) fn begin(&mut self, loader: &Loader) -> Result<u64, LoaderError> {
        self.running = Some(loader.resume(self.next.clone())?);
        self.stand = self.next.clone();
        self.next = loader.start_of(self.stand.epoch + 1);
        self.taken = false;
        self.begun += 1;
        Ok(self.begun)
    }

    /// The next batch of an iteration, waited for no longer than `patience`; `None` at its end.
    pub(crate) fn next_within(
        &mut self,
        iteration: u64,
        patience: Duration,
    ) -> Result<Option<Result<Batch, LoaderError>>, Stopped> {
        if self.closed {
            return Err(Stopped::Closed);
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

    /// The bad images that no batch of the iteration that came to its end has reported; once.
    pub(crate) fn unreported(&mut self) -> Vec<BadImage> {
        std::mem::take(&mut self.unreported)
    }

    /// Ends an iteration, if it is the one that runs.
    pub(crate) fn end(&mut self, iteration: u64) {
        if self.begun == iteration {
            self.stop();
        }
    }

    /// Ends whatever iteration runs. One that has given nothing out has not been: the next begins where it began.
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

    /// Behind the last batch that was given out.
    pub(crate) fn state(&self) -> &State {
        &self.stand
    }

    /// The epoch that runs, or the one that begins next.
    pub(crate) fn epoch(&self) -> u64 {
        match self.running {
            Some(_) => self.stand.epoch,
            None => self.next.epoch,
        }
    }

    /// Has the next iteration begin an epoch. One that it would resume in its midst it still resumes.
    pub(crate) fn set_epoch(&mut self, loader: &Loader, epoch: u64) {
        if self.next.epoch != epoch {
            self.next = loader.start_of(epoch);
            self.stand = self.next.clone();
        }
    }

    /// Has the next iteration go on from a state.
    pub(crate) fn resume(&mut self, loader: &Loader, state: State) -> Result<(), LoaderError> {
        loader.check_state(&state)?;
        self.running = None;
        self.next = state.clone();
        self.stand = state;
        Ok(())
    }
}
