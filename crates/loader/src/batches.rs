//! The batches of one epoch, in order.
//!
//! The consumer deals batches out to the workers as jobs and takes them back in whatever order they are done;
//! those that are early wait here for their turn. A job is dealt only while fewer than `prefetch` are with the
//! workers or waiting, and that alone bounds the memory: the channels can never be full, so no worker waits for
//! anything but a job.

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};
use stokehold_storage::SampleBytes;

use crate::loader::Shared;
use crate::order::Order;
use crate::worker::{Done, Job, Prepared, Worker};
use crate::{BadImage, Batch, LoaderError, State};

/// An iterator over the batches of one epoch.
///
/// After an error it is at its end. Dropping it ends its threads and waits for them: as long as the longest of the
/// reads and decodes in progress.
pub struct Batches {
    shared: Arc<Shared>,
    epoch: u64,
    order: Order,
    /// The next batch to be dealt to a worker.
    dealt: u64,
    /// The next batch to be taken by the consumer.
    taken: u64,
    end: u64,
    prefetch: u64,
    /// Done before their turn.
    early: BTreeMap<u64, Result<Prepared, LoaderError>>,
    /// Bad images of batches that were left empty, to be reported with the next one.
    bad: Vec<BadImage>,
    /// Whether this epoch has had a batch that is not empty; what came before a resume counts as one.
    any: bool,
    /// An error met before the first batch.
    failed: Option<LoaderError>,
    ended: bool,
    shape: [usize; 3],
    crew: Option<Crew>,
}

/// The worker threads and the ways to and from them.
struct Crew {
    jobs: Sender<Job>,
    done: Receiver<Done>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Batches {
    /// Starts the threads for the batches from `first` on.
    pub(crate) fn start(
        shared: Arc<Shared>,
        workers: usize,
        shape: [usize; 3],
        epoch: u64,
        first: u64,
    ) -> Self {
        let end = shared.layout().batches();
        let prefetch = match shared.options.prefetch {
            0 => 2 * workers,
            batches => batches,
        } as u64;
        let prefetch = prefetch.min(end - first);
        let mut batches = Self {
            order: shared.order(epoch),
            shared,
            epoch,
            dealt: first,
            taken: first,
            end,
            prefetch,
            early: BTreeMap::new(),
            bad: Vec::new(),
            any: first > 0,
            failed: None,
            ended: false,
            shape,
            crew: None,
        };
        // A worker beyond the prefetch would never get a job.
        match Crew::start(
            &batches.shared,
            workers.min(prefetch as usize),
            prefetch as usize,
            epoch,
        ) {
            Ok(crew) => batches.crew = Some(crew),
            Err(error) => batches.failed = Some(error),
        }
        batches.deal();
        batches
    }

    /// Where the consumer stands: after the batches yielded so far.
    pub fn state(&self) -> State {
        self.shared.state(self.epoch, self.taken)
    }

    /// Deals jobs up to the prefetch.
    fn deal(&mut self) {
        let Some(crew) = &self.crew else { return };
        while self.dealt < self.end && self.dealt - self.taken < self.prefetch {
            let job = Job {
                batch: self.dealt,
                samples: self.order.batch(self.dealt),
            };
            if crew.jobs.send(job).is_err() {
                return; // No worker is left; taking the next batch says why.
            }
            self.dealt += 1;
        }
    }

    /// Waits for the next batch in order, and deals the job that there is room for then.
    fn take(&mut self) -> Result<Prepared, LoaderError> {
        let outcome = loop {
            if let Some(outcome) = self.early.remove(&self.taken) {
                break outcome;
            }
            match self.crew.as_ref().map(|crew| crew.done.recv()) {
                Some(Ok(done)) => self.early.insert(done.batch, done.outcome),
                Some(Err(_)) | None => {
                    return Err(LoaderError::WorkerPanicked {
                        message: "it ended without a result".into(),
                    });
                }
            };
        };
        let prepared = outcome?;
        self.taken += 1;
        self.deal();
        Ok(prepared)
    }

    /// Notes the bad images of a batch that are new; more than the limit are an error.
    fn note_bad(&mut self, found: Vec<BadImage>) -> Result<(), LoaderError> {
        let limit = self.shared.options.bad_image_limit;
        let mut known = self.shared.bad();
        for bad in found {
            if known.contains_key(&bad.sample) {
                continue;
            }
            known.insert(bad.sample, bad.clone());
            if known.len() > limit {
                return Err(LoaderError::TooManyBadImages { limit, last: bad });
            }
            self.bad.push(bad);
        }
        Ok(())
    }

    /// The next batch that is not empty, `None` at the end of the epoch.
    fn next_batch(&mut self) -> Result<Option<Batch>, LoaderError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let start = Instant::now();
        while self.taken < self.end {
            let Prepared {
                images,
                labels,
                samples,
                bad,
                spans,
            } = self.take()?;
            self.note_bad(bad)?;
            if !samples.is_empty() {
                self.any = true;
                let shape = [samples.len(), 3, self.shape[1], self.shape[2]];
                let bad = mem::take(&mut self.bad);
                return Ok(Some(Batch {
                    images,
                    shape,
                    labels,
                    samples,
                    bad,
                    spans,
                    wait: start.elapsed(),
                }));
            }
        }
        if self.any {
            Ok(None)
        } else {
            Err(LoaderError::AllBad { epoch: self.epoch })
        }
    }
}

impl Iterator for Batches {
    type Item = Result<Batch, LoaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let next = self.next_batch().transpose();
        if !matches!(next, Some(Ok(_))) {
            self.ended = true;
            self.early.clear();
            self.crew = None;
        }
        next
    }
}

impl Crew {
    fn start(shared: &Arc<Shared>, workers: usize, prefetch: usize, epoch: u64) -> Result<Self, LoaderError> {
        let (jobs, from_consumer) = bounded::<Job>(prefetch);
        let (to_consumer, done) = bounded(prefetch);
        let mut crew = Self {
            jobs,
            done,
            stop: Arc::default(),
            threads: Vec::with_capacity(workers),
        };
        for number in 0..workers {
            let worker = Worker {
                number,
                epoch,
                shared: Arc::clone(shared),
                stop: Arc::clone(&crew.stop),
                runner: shared.runner()?,
                bytes: SampleBytes::new(),
            };
            let (jobs, done) = (from_consumer.clone(), to_consumer.clone());
            let thread = Builder::new()
                .name(format!("loader-{number}"))
                .spawn(move || worker.work(&jobs, &done))
                .map_err(LoaderError::Spawn)?;
            crew.threads.push(thread);
        }
        Ok(crew)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Without a sender, workers that wait for a job go home.
        self.jobs = bounded(0).0;
        for thread in self.threads.drain(..) {
            // A worker catches its panics, and one that ended otherwise has nothing more to tell.
            let _ = thread.join();
        }
    }
}
