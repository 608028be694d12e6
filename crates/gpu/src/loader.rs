//! A loader that makes its batches on a device, one ahead of the consumer.
//!
//! ```text
//!  loader's workers ──Prepared──► a thread: lay out n+2 │ wait for n+1 ──► the consumer, at work with n
//!                                           launch n+2  │
//! ```
//!
//! A separate thread turns the loader's batches into batches on the device. While the consumer has batch n,
//! n+1 is made; while n+1 waits to be taken, n+2 is laid out, and it is launched after n+1 was taken. So the
//! device has the consumer's batch and the next one, the CPU's work on a batch overlaps the device's work on
//! the batch before, and a batch that is handed over is complete: errors occur where it is made. A consumer
//! that keeps batches keeps their memory; one of another library (`lend`) that lets go of batches before its stream is done with
//! them has as many of those as half of the budget holds before the next one begins.

use crate::batch::{InWork, LaidOut};
use crate::queue::queue;
use crate::{Batcher, DeviceBatch, ForGpu, Gpu, GpuError, Prepared};
use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};
use stokehold_loader::{BadImage, Batch, Batches, Loader, LoaderError, LoaderOptions, State, sized};
use stokehold_pipeline::Pipeline;
use stokehold_storage::Source;

/// How often the waiting thread checks whether to stop.
const LOOK: Duration = Duration::from_millis(5);

/// After this long without progress of the consumer's stream the next batch is made anyway, with a warning: the consumer may
/// itself be waiting for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Iterates over a source in batches that are made on a device. Order, draws, bad images and resume are those
/// of [`Loader`](stokehold_loader::Loader), and the numbers are those of the executor `fused`, to the bit.
pub struct DeviceLoader {
    loader: Loader,
    batcher: Arc<Batcher>,
}

/// A batch whose images are on the device.
pub struct LoadedBatch {
    /// The images.
    pub images: DeviceBatch,
    /// The rest: labels, samples, bad images, the workers' spans, and the consumer's waiting time. It has no
    /// images.
    pub batch: Batch,
}

/// An iterator over the batches of one epoch. It ends after an error; in a fork of the process, its first one is
/// [`LoaderError::Forked`]. Dropping it ends its threads and waits
/// for them: for the longest of the reads, searches for a substitute, and batches on the device in progress.
pub struct DeviceBatches {
    coming: Option<Receiver<Result<(LoadedBatch, State), GpuError>>>,
    thread: Option<JoinHandle<()>>,
    /// Why the thread could not be started.
    failed: Option<GpuError>,
    /// Since when the consumer has been waiting for the next batch.
    waiting: Option<Instant>,
    state: State,
    progress: Arc<Progress>,
    /// A fork of this process has no such thread.
    process: u32,
}

/// State shared by the thread and the consumer.
#[derive(Default)]
struct Progress {
    /// Batches in work, in workers or on the device, at the thread's last check.
    loading: AtomicUsize,
    /// Batches in work or ready.
    in_flight: AtomicUsize,
    /// The batch after the last one that was passed over because it has no images.
    passed: AtomicU64,
    /// Set when the consumer wants no more batches.
    stop: AtomicBool,
    /// Bad images that no batch has reported when the thread ends.
    unreported: Mutex<Vec<BadImage>>,
}

impl DeviceLoader {
    /// Prepares to load `source` through `pipeline` on a device. Workers prepare as `way` says; preparation
    /// and executor in `options` are ignored. `budget` is device memory in bytes for two batches at a time:
    /// each may take half.
    ///
    /// # Errors
    /// The errors of [`Loader::new`].
    pub fn new(
        source: Arc<dyn Source>,
        pipeline: Pipeline,
        options: LoaderOptions,
        gpu: Gpu,
        way: ForGpu,
        budget: u64,
    ) -> Result<DeviceLoader, GpuError> {
        // The size of a batch may be that of the images.
        let of_source = sized(pipeline.clone(), &*source, options.decode)?;
        let batcher = Batcher::new(gpu, &of_source, options.sample_type, budget / 2)?;
        let options = LoaderOptions {
            preparation: Some(Arc::new(way)),
            ..options
        };
        Ok(DeviceLoader {
            loader: Loader::new(source, pipeline, options)?,
            batcher: Arc::new(batcher),
        })
    }

    /// The loader that prepares the samples: use it for the numbers of batches, workers and bad images. Its
    /// own epochs yield no images.
    pub fn loader(&self) -> &Loader {
        &self.loader
    }

    /// The maker of the batches.
    pub fn batcher(&self) -> &Arc<Batcher> {
        &self.batcher
    }

    /// Starts an epoch: its threads begin at once.
    pub fn epoch(&self, epoch: u64) -> DeviceBatches {
        self.start(self.loader.epoch(epoch), false)
    }

    /// As [`Loader::resume`].
    ///
    /// # Errors
    /// The errors of [`Loader::resume`].
    pub fn resume(&self, state: State) -> Result<DeviceBatches, LoaderError> {
        Ok(self.start(self.loader.resume(state)?, false))
    }

    /// As [`Loader::given`], but that a batch without images is not yielded: [`DeviceBatches::passed`] counts it.
    ///
    /// # Errors
    /// The errors of [`Loader::given`].
    pub fn given(
        &self,
        epoch: u64,
        first: u64,
        batches: Receiver<Vec<usize>>,
    ) -> Result<DeviceBatches, LoaderError> {
        Ok(self.start(self.loader.given(epoch, first, batches)?, true))
    }

    fn start(&self, batches: Batches, given: bool) -> DeviceBatches {
        let (to_consumer, coming) = bounded(0);
        let progress = Arc::new(Progress {
            loading: AtomicUsize::new(1),
            ..Progress::default()
        });
        let state = batches.state();
        let feeder = Feeder {
            batches,
            given,
            batcher: Arc::clone(&self.batcher),
            to_consumer,
            progress: Arc::clone(&progress),
            bad: Vec::new(),
        };
        let spawned = Builder::new()
            .name("gpu-feeder".into())
            .spawn(move || queue().executes(|| feeder.work()));
        let (thread, failed) = match spawned {
            Ok(thread) => (Some(thread), None),
            Err(error) => (None, Some(LoaderError::Spawn(error).into())),
        };
        DeviceBatches {
            coming: Some(coming),
            thread,
            failed,
            waiting: None,
            state,
            progress,
            process: process::id(),
        }
    }
}

impl DeviceBatches {
    /// As [`Batches::next_within`].
    pub fn next_within(&mut self, patience: Duration) -> Poll<Option<Result<LoadedBatch, GpuError>>> {
        self.next_by(Instant::now().checked_add(patience))
    }

    /// As [`Batches::unreported`].
    pub fn unreported(&mut self) -> Vec<BadImage> {
        let list = self.progress.unreported.lock();
        mem::take(&mut list.unwrap_or_else(PoisonError::into_inner))
    }

    /// The position of the consumer: after the batches yielded so far.
    pub fn state(&self) -> State {
        self.state.clone()
    }

    /// The number after the last batch of a given epoch that is not yielded because it has no images; 0 if there was none.
    pub fn passed(&self) -> u64 {
        self.progress.passed.load(Ordering::Acquire)
    }

    /// Batches in work or ready.
    pub fn in_flight(&self) -> usize {
        match self.is_over() {
            true => 0,
            false => self.progress.in_flight.load(Ordering::Acquire),
        }
    }

    /// Batches in work: 0 when workers and device can do nothing more before the next batch is taken.
    pub fn loading(&self) -> usize {
        match self.is_over() {
            true => 0,
            false => self.progress.loading.load(Ordering::Acquire),
        }
    }

    fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn next_by(&mut self, deadline: Option<Instant>) -> Poll<Option<Result<LoadedBatch, GpuError>>> {
        // The thread is not in a fork of the process, so nothing would come.
        if self.coming.is_some() && self.process != process::id() {
            self.let_go();
            let made_by = self.process;
            return Poll::Ready(Some(Err(LoaderError::Forked { made_by }.into())));
        }
        let Some(coming) = &self.coming else {
            return Poll::Ready(None);
        };
        let start = *self.waiting.get_or_insert_with(Instant::now);
        let received = match deadline {
            Some(deadline) => coming.recv_deadline(deadline),
            None => coming.recv().map_err(RecvTimeoutError::from),
        };
        let next = match received {
            Err(RecvTimeoutError::Timeout) => return Poll::Pending,
            Ok(Ok((mut loaded, state))) => {
                // The thread is about to begin the next batch, if it has not yet.
                let Progress {
                    loading, in_flight, ..
                } = &*self.progress;
                loading.store(1, Ordering::Release);
                in_flight.fetch_sub(1, Ordering::AcqRel);
                self.state = state;
                self.waiting = None;
                loaded.batch.wait = start.elapsed();
                return Poll::Ready(Some(Ok(loaded)));
            }
            Ok(Err(error)) => Some(Err(error)),
            Err(RecvTimeoutError::Disconnected) => self.failed.take().map(Err),
        };
        self.let_go();
        Poll::Ready(next)
    }

    /// Ends the thread. A fork has none, and the channel to it may be locked for ever, so it leaves both alone.
    fn let_go(&mut self) {
        if self.process != process::id() {
            mem::forget(self.coming.take());
            mem::forget(self.thread.take());
            return;
        }
        self.progress.stop.store(true, Ordering::Release);
        self.coming = None;
        if let Some(thread) = self.thread.take() {
            // It catches its panics and reports them as errors.
            let _ = thread.join();
        }
    }
}

impl Iterator for DeviceBatches {
    type Item = Result<LoadedBatch, GpuError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_by(None) {
            Poll::Ready(next) => next,
            Poll::Pending => unreachable!("there is no deadline"),
        }
    }
}

impl Drop for DeviceBatches {
    fn drop(&mut self) {
        self.let_go();
    }
}

/// The thread between the loader and the consumer.
struct Feeder {
    batches: Batches,
    /// Whether batches are given one by one, so that the consumer may wait for an empty one before it gives another.
    given: bool,
    batcher: Arc<Batcher>,
    to_consumer: Sender<Result<(LoadedBatch, State), GpuError>>,
    progress: Arc<Progress>,
    /// Bad images of batches that became empty, to be reported with the next batch or at the end.
    bad: Vec<BadImage>,
}

/// A batch that the device is working on.
struct Ahead {
    work: InWork,
    ready: Ready,
}

/// The input of a batch, and the consumer's position after it.
struct Ready {
    samples: Vec<Arc<Prepared>>,
    batch: Batch,
    state: State,
}

/// Why the thread ends before the epoch does.
enum End {
    /// The consumer wants no more batches.
    Unwanted,
    Failed(GpuError),
}

impl<E: Into<GpuError>> From<E> for End {
    fn from(error: E) -> End {
        End::Failed(error.into())
    }
}

impl Feeder {
    fn work(mut self) {
        let fed = catch_unwind(AssertUnwindSafe(|| self.feed()));
        // Before the consumer sees the end.
        self.bad.append(&mut self.batches.unreported());
        let list = self.progress.unreported.lock();
        *list.unwrap_or_else(PoisonError::into_inner) = mem::take(&mut self.bad);
        let error = match fed {
            Ok(Ok(()) | Err(End::Unwanted)) => return,
            Ok(Err(End::Failed(error))) => error,
            Err(panic) => LoaderError::panicked(&*panic).into(),
        };
        // The consumer may be gone; ignore the send error.
        let _ = self.send(Err(error), 0);
    }

    fn feed(&mut self) -> Result<(), End> {
        let begin = self.batches.state();
        let mut any = begin.batch > 0;
        let mut rejected = false;
        let mut ahead: Option<Ahead> = None;
        loop {
            let mut next = self.batches.next_within(Duration::ZERO);
            // Do not hold back a finished batch for one that is not ready yet.
            while ahead.is_none() && next.is_pending() {
                if self.progress.stop.load(Ordering::Acquire) {
                    return Err(End::Unwanted);
                }
                next = self.batches.next_within(LOOK);
            }
            // Said once the batches before it are handed over.
            let mut passed = None;
            // An error of the next batch is reported after this one.
            let next = match next {
                Poll::Pending => None,
                Poll::Ready(Some(Ok(mut batch))) if self.given && batch.samples.is_empty() => {
                    self.bad.append(&mut batch.bad);
                    passed = Some(self.batches.state().batch);
                    None
                }
                Poll::Ready(next) => Some(next.map(|batch| self.begin(batch?, any || ahead.is_some()))),
            };
            if let Some(ahead) = ahead.take() {
                let after = ahead.ready.state.batch;
                match self.finish(ahead)? {
                    Some(made) => {
                        any = true;
                        let held = matches!(&next, Some(Some(Ok(_))));
                        self.send(Ok(made), usize::from(held))?;
                    }
                    None if self.given => self.progress.passed.store(after, Ordering::Release),
                    None => rejected = true,
                }
            }
            if let Some(passed) = passed {
                self.progress.passed.store(passed, Ordering::Release);
            }
            match next {
                None => {}
                Some(None) => break,
                Some(Some(next)) => {
                    let (laid_out, ready) = next?;
                    self.wait_for_consumers()?;
                    ahead = Some(Ahead {
                        work: self.batcher.launch(laid_out)?,
                        ready,
                    });
                }
            }
        }
        match rejected && !any {
            true => Err(LoaderError::AllBad { epoch: begin.epoch }.into()),
            false => Ok(()),
        }
    }

    /// Keeps the loader from taking memory without end for a consumer that queues its work faster than it is done.
    fn wait_for_consumers(&self) -> Result<(), End> {
        let (mut before, mut since) = (0, Instant::now());
        while let Some(leaving) = self.batcher.too_much_leaving() {
            if leaving != before {
                (before, since) = (leaving, Instant::now());
            }
            if since.elapsed() >= PATIENCE {
                self.batcher.warn_of_leaving(leaving, PATIENCE);
                break;
            }
            if self.progress.stop.load(Ordering::Acquire) {
                return Err(End::Unwanted);
            }
            sleep(LOOK);
        }
        Ok(())
    }

    /// Lays a new batch out.
    fn begin(&mut self, mut batch: Batch, any: bool) -> Result<(LaidOut, Ready), End> {
        let (laid_out, samples) = self.lay_out(&mut batch, any)?;
        let state = self.batches.state();
        Ok((
            laid_out,
            Ready {
                samples,
                batch,
                state,
            },
        ))
    }

    /// Lays a batch out, and applies the policy for bad images to those that need more than the budget by themselves. Where that
    /// holds for a whole batch and none was made before (`any`), the budget is too small and not an image too large.
    fn lay_out(&mut self, batch: &mut Batch, any: bool) -> Result<(LaidOut, Vec<Arc<Prepared>>), End> {
        loop {
            if self.progress.stop.load(Ordering::Acquire) {
                return Err(End::Unwanted);
            }
            let samples = prepared(batch);
            match self.batcher.lay_out(&samples) {
                Err(GpuError::Budget {
                    images,
                    largest,
                    largest_need,
                    budget,
                    alone,
                    ..
                }) if alone > 0 && (any || alone < images) => {
                    let reason = format!(
                        "the executor gpu needs {largest_need} MiB of device memory for it, and a batch may have {budget} MiB; give \
                         it more (--gpu-memory-budget, twice that for two batches), use the executor fused, or resize the image"
                    );
                    self.batches.reject(batch, &[(largest, reason)])?;
                }
                other => return Ok((other?, samples)),
            }
        }
    }

    /// Waits for a batch and applies the policy to its bad images; `None` if the batch became empty.
    fn finish(&mut self, ahead: Ahead) -> Result<Option<(LoadedBatch, State)>, End> {
        let Ready {
            samples,
            mut batch,
            state,
        } = ahead.ready;
        let mut images = self.batcher.finish(ahead.work, &samples)?;
        let given_back = images.given_back;
        while !images.bad.is_empty() {
            let bad = images.bad.iter().map(|(place, bad)| (*place, bad.to_string()));
            let substituted = self.batches.reject(&mut batch, &bad.collect::<Vec<_>>())?;
            if !substituted {
                break;
            }
            // Free its memory for the next one.
            drop(images);
            let (laid_out, samples) = self.lay_out(&mut batch, true)?;
            images = self.batcher.finish(self.batcher.launch(laid_out)?, &samples)?;
            images.given_back = given_back;
        }
        if batch.samples.is_empty() {
            // They are reported with the next batch, as the loader's are.
            self.bad.append(&mut batch.bad);
            return Ok(None);
        }
        batch.prepared.clear();
        batch.bad.splice(..0, self.bad.drain(..));
        Ok(Some((LoadedBatch { images, batch }, state)))
    }

    /// Hands a batch or an error over when the consumer asks for it; `held` more batches are laid out.
    fn send(&mut self, made: Result<(LoadedBatch, State), GpuError>, held: usize) -> Result<(), End> {
        let mut made = made;
        loop {
            // Only the workers work while this waits.
            let Progress {
                loading, in_flight, ..
            } = &*self.progress;
            in_flight.store(self.batches.in_flight() + 1 + held, Ordering::Release);
            loading.store(self.batches.loading(), Ordering::Release);
            match self.to_consumer.send_timeout(made, LOOK) {
                Ok(()) => return Ok(()),
                Err(SendTimeoutError::Disconnected(_)) => return Err(End::Unwanted),
                Err(SendTimeoutError::Timeout(back)) => made = back,
            }
        }
    }
}

fn prepared(batch: &Batch) -> Vec<Arc<Prepared>> {
    let samples = batch.prepared.iter().map(|sample| sample.clone().downcast());
    samples
        .map(|sample| sample.expect("workers prepare by ForGpu"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use stokehold_loader::OrderFacts;

    /// As in a fork: the sender is there and no one uses it.
    #[test]
    fn in_a_fork_the_epoch_fails_and_ends() {
        let (_sender, coming) = bounded(0);
        let mut batches = DeviceBatches {
            coming: Some(coming),
            thread: None,
            failed: None,
            waiting: None,
            state: State {
                seed: 0,
                epoch: 0,
                batch: 0,
                order: OrderFacts {
                    samples: 8,
                    classes: 0,
                    batch_size: 4,
                    world_size: 1,
                    shuffle: false,
                    drop_last: false,
                    sampler: "every".into(),
                },
            },
            progress: Arc::default(),
            process: 0,
        };
        let first = batches.next();
        assert!(
            matches!(
                first,
                Some(Err(GpuError::Loader(LoaderError::Forked { made_by: 0 })))
            ),
            "{:?}",
            first.map(|batch| batch.map(|_| ()))
        );
        assert!(batches.next().is_none());
    }
}
