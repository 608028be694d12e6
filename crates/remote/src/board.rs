//! Which batch is asked of whom: the board between an epoch's consumer and those that make its batches.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use stokehold_loader::{Batch, LoaderError};

/// The least time after which a request is made again by another connection that has nothing else to do.
pub const PATIENCE: Duration = Duration::from_millis(500);

/// What has been made, or cannot be.
type Outcome = Result<Batch, LoaderError>;

/// The board of one epoch.
pub(crate) struct Board {
    inner: Mutex<Inner>,
    /// Work may have come, or a batch, or the end.
    changed: Condvar,
}

struct Inner {
    /// Numbers that no one has taken.
    new: Range<u64>,
    /// Numbers that came back.
    back: BTreeSet<u64>,
    /// Who works on a number, since when.
    working: BTreeMap<u64, Vec<(usize, Instant)>>,
    ready: BTreeMap<u64, Outcome>,
    /// The number that the consumer takes next.
    taken: u64,
    /// How far ahead of it numbers are given out.
    window: u64,
    stopped: bool,
    /// When the latest batch came.
    last: Instant,
}

impl Board {
    pub(crate) fn new(batches: Range<u64>, window: u64) -> Self {
        Self {
            inner: Mutex::new(Inner {
                taken: batches.start,
                new: batches,
                back: BTreeSet::new(),
                working: BTreeMap::new(),
                ready: BTreeMap::new(),
                window: window.max(1),
                stopped: false,
                last: Instant::now(),
            }),
            changed: Condvar::new(),
        }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        // Code under the lock changes collections only.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next number for `who`; waits for one. `None` at the end. `usual` is how long a request of this kind takes.
    pub(crate) fn next(&self, who: usize, usual: Duration) -> Option<u64> {
        let patience = PATIENCE.max(4 * usual);
        let mut inner = self.inner();
        loop {
            if inner.stopped || (inner.new.is_empty() && inner.back.is_empty() && inner.working.is_empty()) {
                return None;
            }
            if let Some(number) = inner.choose(who, patience) {
                inner
                    .working
                    .entry(number)
                    .or_default()
                    .push((who, Instant::now()));
                return Some(number);
            }
            // Requests that take long have no event.
            let waited = self.changed.wait_timeout(inner, PATIENCE / 5);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// `who` has made a batch, or found that it cannot be made. A batch counts, before anybody can have it, unless another one has
    /// made it before.
    pub(crate) fn made(&self, who: usize, number: u64, outcome: Outcome, counted: &AtomicU64) {
        let mut inner = self.inner();
        inner.leave(who, number);
        let counts = number >= inner.taken && !inner.ready.contains_key(&number) && !inner.stopped;
        if counts {
            counted.fetch_add(u64::from(outcome.is_ok()), Ordering::Relaxed);
            inner.ready.insert(number, outcome);
            // Others that work on it are not waited for.
            inner.working.remove(&number);
            inner.back.remove(&number);
            inner.last = Instant::now();
        }
        drop(inner);
        self.changed.notify_all();
    }

    /// `who` has failed at a number, which another one may take.
    pub(crate) fn failed(&self, who: usize, number: u64) {
        let mut inner = self.inner();
        let last = inner.leave(who, number);
        if last && number >= inner.taken && !inner.ready.contains_key(&number) {
            inner.back.insert(number);
        }
        drop(inner);
        self.changed.notify_all();
    }

    /// Waits. `false` if the end came.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut inner = self.inner();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if inner.stopped || left.is_zero() {
                return !inner.stopped;
            }
            let waited = self.changed.wait_timeout(inner, left);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The batch of a number, for the consumer; waits for it until `until`. The other value is how long none has come.
    pub(crate) fn take(&self, number: u64, until: Instant) -> Result<Outcome, Duration> {
        let mut inner = self.inner();
        inner.taken = number;
        loop {
            if let Some(outcome) = inner.ready.remove(&number) {
                inner.taken = number + 1;
                drop(inner);
                self.changed.notify_all();
                return Ok(outcome);
            }
            let now = Instant::now();
            let left = until.saturating_duration_since(now);
            if left.is_zero() {
                return Err(now.saturating_duration_since(inner.last));
            }
            let waited = self.changed.wait_timeout(inner, left);
            inner = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Batches in work, and ready.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let inner = self.inner();
        (inner.working.len() + inner.back.len(), inner.ready.len())
    }

    /// Ends the work: what is being made counts no more.
    pub(crate) fn stop(&self) {
        let mut inner = self.inner();
        inner.stopped = true;
        inner.ready.clear();
        drop(inner);
        self.changed.notify_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.inner().stopped
    }
}

impl Inner {
    fn choose(&mut self, who: usize, patience: Duration) -> Option<u64> {
        if let Some(number) = self.back.pop_first() {
            return Some(number);
        }
        if self.new.start < self.new.end && self.new.start < self.taken + self.window {
            return self.new.next();
        }
        let (number, working) = self.working.first_key_value()?;
        let alone = |(worker, since): &(usize, Instant)| *worker != who && since.elapsed() > patience;
        matches!(&working[..], [one] if alone(one)).then_some(*number)
    }

    /// `who` works on a number no more. Whether no one does.
    fn leave(&mut self, who: usize, number: u64) -> bool {
        let Some(working) = self.working.get_mut(&number) else {
            return !self.back.contains(&number);
        };
        working.retain(|(worker, _)| *worker != who);
        if working.is_empty() {
            self.working.remove(&number);
        }
        !self.working.contains_key(&number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused() -> Outcome {
        Err(LoaderError::Empty)
    }

    static NOBODY: AtomicU64 = AtomicU64::new(0);

    const SOON: Duration = Duration::from_millis(20);

    #[test]
    fn numbers_are_given_out_up_to_the_window() {
        let board = Board::new(3..9, 2);
        assert_eq!([board.next(0, SOON), board.next(1, SOON)], [Some(3), Some(4)]);
        board.made(1, 4, refused(), &NOBODY);
        assert_eq!(board.counts(), (1, 1));
        board.made(0, 3, refused(), &NOBODY);
        let soon = || Instant::now() + SOON;
        assert!(board.take(3, soon()).is_ok());
        assert_eq!(board.next(0, SOON), Some(5));
        assert!(board.take(4, soon()).is_ok());
        assert!(board.take(5, soon()).is_err(), "nobody has made it");
    }

    #[test]
    fn a_number_that_failed_goes_to_another_one_and_late_batches_count_once() {
        let board = Board::new(0..2, 8);
        assert_eq!([board.next(0, SOON), board.next(1, SOON)], [Some(0), Some(1)]);
        board.failed(0, 0);
        assert_eq!(board.next(1, SOON), Some(0));
        board.made(1, 0, refused(), &NOBODY);
        board.made(0, 0, refused(), &NOBODY);
        board.failed(0, 0);
        board.made(1, 1, refused(), &NOBODY);
        assert_eq!(board.counts(), (0, 2));
        assert_eq!(board.next(2, SOON), None, "all is made");
    }

    #[test]
    fn a_request_that_takes_long_is_made_again_by_one_that_has_nothing_to_do() {
        let board = Board::new(0..1, 8);
        assert_eq!(board.next(0, SOON), Some(0));
        let begun = Instant::now();
        assert_eq!(board.next(1, SOON), Some(0));
        assert!(begun.elapsed() > PATIENCE / 2);
        board.failed(1, 0);
        assert_eq!(board.counts(), (1, 0), "the first one still works on it");
        board.made(0, 0, refused(), &NOBODY);
        assert_eq!(board.counts(), (0, 1));
    }

    #[test]
    fn the_end_wakes_all() {
        let board = Board::new(0..9, 1);
        assert_eq!(board.next(0, SOON), Some(0));
        std::thread::scope(|threads| {
            let waits = threads.spawn(|| board.next(1, Duration::from_secs(100)));
            let pauses = threads.spawn(|| board.pause(Duration::from_secs(100)));
            board.stop();
            assert_eq!(waits.join().unwrap(), None);
            assert!(!pauses.join().unwrap());
        });
        board.made(0, 0, refused(), &NOBODY);
        assert_eq!(board.counts(), (0, 0));
    }
}
