//! Batches by their numbers, in any order, for any number of loaders: what a server of batches makes.
//!
//! The threads belong to a pool and not to an epoch. As in an epoch, all of them fill the batch that waits longest, and each
//! goes to the next one when no place is left; so a batch is ready as soon as this many threads can make it, and few batches
//! are in memory at a time.

use std::collections::VecDeque;
use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use crate::order::Order;
use crate::shared::Shared;
use crate::worker::{Flight, Worker};
use crate::{Batch, LoaderError, MAX_WORKERS, Workers};

/// An epoch of a loader whose batches are made by their numbers.
///
/// It keeps the epoch's order, and so costs 8 bytes a sample, or 12 where the sampler repeats samples.
pub struct NumberedEpoch {
    shared: Arc<Shared>,
    order: Order,
    epoch: u64,
    batches: u64,
}

impl NumberedEpoch {
    pub(crate) fn new(shared: Arc<Shared>, epoch: u64) -> Self {
        Self {
            order: shared.order(epoch),
            batches: shared.layout().yields(),
            shared,
            epoch,
        }
    }

    /// The number of its batches; where they have [`Parts`](crate::Parts), of the parts that the loader yields.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// The samples of a batch, each with how often the epoch had it before. A batch is made of them, except that bad images are
    /// left out or replaced by the policy. Empty for a number beyond the epoch.
    pub fn samples(&self, batch: u64) -> Vec<(u64, u32)> {
        if batch >= self.batches {
            return Vec::new();
        }
        let places = self.order.places(batch).into_iter();
        places.map(|place| (place.sample as u64, place.again)).collect()
    }
}

/// What takes a batch once it is made.
type Taker = Box<dyn FnOnce(Result<Batch, LoaderError>) + Send>;

/// Threads that make batches by their numbers, for any loaders of this process.
///
/// Dropping it ends its threads and waits for them: for the longest of the reads and decodes in progress. Batches that are
/// not made by then are not, and what would have taken them is dropped.
pub struct WorkerPool {
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    open: Mutex<VecDeque<Arc<Job>>>,
    added: Condvar,
    stop: Arc<AtomicBool>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Whether there may be more threads than at the start.
    grows: bool,
}

struct Job {
    shared: Arc<Shared>,
    epoch: u64,
    flight: Flight,
    taker: Mutex<Option<Taker>>,
}

impl WorkerPool {
    /// Starts the threads, at most [`MAX_WORKERS`]. With [`Workers::Auto`] it is one for each core, and while batches wait, as many
    /// more as the reads of their loader ask for ([`Costs`](crate::Costs)).
    ///
    /// # Errors
    /// They are too many, or the system refuses a thread.
    pub fn start(workers: Workers) -> Result<Self, LoaderError> {
        if workers.resolve() > MAX_WORKERS {
            let reason = format!("{workers} workers: must be 1 to {MAX_WORKERS}");
            return Err(LoaderError::Options { reason });
        }
        let queue = Arc::new(Queue {
            grows: workers == Workers::Auto,
            ..Queue::default()
        });
        // Dropped on an error, it ends the threads that were started.
        let pool = Self { queue };
        pool.queue.grow(workers.resolve()).map_err(LoaderError::Spawn)?;
        Ok(pool)
    }

    /// The number of its threads now.
    pub fn workers(&self) -> usize {
        self.queue.threads().len()
    }

    /// Makes the batch of a number, equal to that of the ordinary epoch, and gives it to `taker` on one of the threads. Batches
    /// are begun in the order of the calls. The caller bounds how many are asked for at a time, and so the memory.
    ///
    /// # Errors
    /// There is no batch of this number.
    pub fn make(
        &self,
        epoch: &NumberedEpoch,
        batch: u64,
        taker: impl FnOnce(Result<Batch, LoaderError>) + Send + 'static,
    ) -> Result<(), LoaderError> {
        if batch >= epoch.batches {
            let reason = format!("batch {batch}: the epoch has {}, counted from 0", epoch.batches);
            return Err(LoaderError::Options { reason });
        }
        let source = &epoch.shared.source;
        if source.reach() > 0 {
            for sample in epoch.order.batch(batch) {
                source.expect(sample);
            }
        }
        let places = epoch.order.places(batch);
        if places.is_empty() {
            taker(Ok(Batch::empty(&epoch.shared)));
            return Ok(());
        }
        let job = Job {
            shared: Arc::clone(&epoch.shared),
            epoch: epoch.epoch,
            flight: Flight::new(batch, places, Vec::new(), epoch.shared.image_size()),
            taker: Mutex::new(Some(Box::new(taker))),
        };
        self.queue.open().push_back(Arc::new(job));
        self.queue.added.notify_all();
        Ok(())
    }
}

impl Drop for WorkerPool {
    fn drop(&mut self) {
        // Under the lock, so that no thread is between its look at the flag and its wait.
        let open = self.queue.open();
        self.queue.stop.store(true, Ordering::Relaxed);
        drop(open);
        self.queue.added.notify_all();
        let threads = std::mem::take(&mut *self.queue.threads());
        for thread in threads {
            // A worker catches its panics, so a failed join has nothing to report.
            let _ = thread.join();
        }
        self.queue.open().clear();
    }
}

impl Queue {
    /// The batches with places that no one has claimed, and perhaps ones without.
    fn open(&self) -> MutexGuard<'_, VecDeque<Arc<Job>>> {
        // Code under the lock only pushes and pops.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn threads(&self) -> MutexGuard<'_, Vec<JoinHandle<()>>> {
        // Code under the lock only pushes and takes.
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts threads until there are this many.
    fn grow(self: &Arc<Self>, wanted: usize) -> io::Result<()> {
        let mut threads = self.threads();
        // `stop` takes the threads under this lock, and none may start after it has.
        while threads.len() < wanted && !self.stop.load(Ordering::Relaxed) {
            let (number, queue) = (threads.len(), Arc::clone(self));
            let thread = Builder::new()
                .name(format!("batches-{number}"))
                .spawn(move || queue.work(number))?;
            threads.push(thread);
        }
        Ok(())
    }

    /// Adds the threads that this loader's reads ask for, where batches wait for one.
    fn grow_for(self: &Arc<Self>, shared: &Shared) {
        if self.grows && !self.open().is_empty() {
            // Without them it continues as it is.
            let _ = self.grow(shared.more_workers());
        }
    }

    /// The work of one thread.
    fn work(self: &Arc<Self>, number: usize) {
        let mut worker: Option<Worker> = None;
        while let Some(job) = self.next(&mut worker) {
            // One that is still there is of this loader.
            let made = match worker.take() {
                Some(worker) => Ok(worker),
                None => Worker::new(number, job.epoch, &job.shared, &self.stop),
            };
            match made {
                Ok(mut own) => {
                    own.turn_to(job.epoch);
                    match own.fill_flight(&job.flight) {
                        ControlFlow::Continue(Some(made)) => {
                            job.give(made);
                            self.grow_for(&job.shared);
                        }
                        ControlFlow::Continue(None) => {}
                        ControlFlow::Break(()) => return,
                    }
                    worker = Some(own);
                }
                Err(error) => job.give(Err(error)),
            }
            let mut open = self.open();
            if open.front().is_some_and(|front| Arc::ptr_eq(front, &job)) {
                open.pop_front();
            }
        }
    }

    /// The batch that waits longest; waits for one. `None` at the end.
    fn next(&self, worker: &mut Option<Worker>) -> Option<Arc<Job>> {
        let mut open = self.open();
        loop {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            match open.front() {
                Some(job) => {
                    let fits = |worker: &Worker| worker.is_of(&job.shared);
                    let unfitting = worker.take_if(|worker| !fits(worker));
                    let job = Arc::clone(job);
                    drop(open);
                    unfitting.into_iter().for_each(Worker::retire);
                    return Some(job);
                }
                None => {
                    // A thread that has nothing to do keeps no loader's memory.
                    if let Some(idle) = worker.take() {
                        drop(open);
                        idle.retire();
                        open = self.open();
                        continue;
                    }
                    open = self.added.wait(open).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }
}

impl Job {
    fn give(&self, made: Result<Batch, LoaderError>) {
        let taker = self.taker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(taker) = taker {
            // A panic of the consumer's code must not end the thread; its batch is lost to it alone.
            let _ = catch_unwind(AssertUnwindSafe(|| taker(made)));
        }
    }
}
