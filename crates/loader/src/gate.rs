//! How many workers compute at once.
//!
//! With [`Workers::Auto`](crate::Workers::Auto) there are more workers than cores where reads wait. If all of
//! them computed at once, each would get its share of a core, so images that were begun together would be
//! finished together, their workers would all read again, and the cores would be idle until the first read
//! answers. As many as there are cores finish one image after the other, and the reads stay apart.

use crossbeam_channel::{Receiver, Sender, bounded};

/// Lets some workers compute at once; the others wait for their turn.
pub(crate) struct Gate {
    give: Sender<()>,
    take: Receiver<()>,
}

/// A worker's turn, which ends when this is dropped.
pub(crate) struct Turn<'a>(&'a Sender<()>);

impl Gate {
    /// Lets this many compute at once.
    pub fn new(computing: usize) -> Self {
        let (give, take) = bounded(computing);
        for _ in 0..computing {
            // There is room.
            let _ = give.send(());
        }
        Self { give, take }
    }

    /// How many compute at once.
    pub fn computing(&self) -> usize {
        self.take.capacity().unwrap_or(usize::MAX)
    }

    /// Waits for a turn. It comes: a worker with one computes one image and then gives it back.
    pub fn enter(&self) -> Turn<'_> {
        // Both ends are here, so this does not fail.
        let _ = self.take.recv();
        Turn(&self.give)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let _ = self.0.try_send(());
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn no_more_compute_than_may_and_a_panic_keeps_no_turn() {
        let (gate, now, most) = (Gate::new(3), AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for worker in 0..12 {
                let (gate, now, most) = (&gate, &now, &most);
                scope.spawn(move || {
                    for image in 0..50 {
                        let made = catch_unwind(AssertUnwindSafe(|| {
                            let _turn = gate.enter();
                            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                            thread::yield_now();
                            now.fetch_sub(1, Ordering::SeqCst);
                            assert!((worker + image) % 10 != 0, "a bad image");
                        }));
                        assert_eq!(made.is_err(), (worker + image) % 10 == 0);
                    }
                });
            }
        });
        assert!((1..=3).contains(&most.into_inner()));
        assert_eq!(gate.take.len(), 3, "every turn was given back");
    }
}
