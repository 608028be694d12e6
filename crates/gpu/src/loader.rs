//! A loader whose batches are made on a device, one ahead of who takes them.
//!
//! ```text
//!  loader's workers ──Prepared──► a thread: lay out n+2 │ wait for n+1 ──► the consumer, at work with n
//!                                           launch n+2  │
//! ```
//!
//! A thread of its own turns the loader's batches into batches on the device. While the consumer has batch n, n+1 is made;
//! while n+1 waits to be taken, n+2 is laid out, and launched when it was. So two batches are on the device at most, the
//! consumer's and the next, the CPU's part of a batch is done beside the device's part of the batch before, and a batch that is
//! handed over is whole: what fails, fails where it was made.

use crate::batch::InWork;
use crate::{Batcher, DeviceBatch, ForGpu, Gpu, GpuError, Prepared};
use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded};
use cubecl_environment::stream::StreamId;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::Poll;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use stokehold_loader::{Batch, Batches, Loader, LoaderError, LoaderOptions, State};
use stokehold_pipeline::Pipeline;
use stokehold_storage::Source;

/// How often the thread looks whether it is still wanted while it waits.
const LOOK: Duration = Duration::from_millis(5);

/// Walks a source in batches that are made on a device. Order, draws, bad images and resume are those of
/// [`Loader`](stokehold_loader::Loader), and so are the numbers: those of the executor `fused`, to the bit.
pub struct DeviceLoader {
    loader: Loader,
    batcher: Arc<Batcher>,
    queue: StreamId,
}

/// A batch whose images are on the device.
pub struct LoadedBatch {
    /// The images.
    pub images: DeviceBatch,
    /// The rest: labels, samples, bad images, what the workers did when, and how long the consumer waited. It has no images.
    pub batch: Batch,
}

/// An iterator over the batches of one epoch. After an error it is at its end. Dropping it ends its threads and waits for
/// them: as long as the longest of the reads, and of the batches on the device, in progress.
pub struct DeviceBatches {
    coming: Option<Receiver<Result<(LoadedBatch, State), GpuError>>>,
    thread: Option<JoinHandle<()>>,
    /// Why there is no thread.
    failed: Option<GpuError>,
    state: State,
    /// Since when the consumer has been waiting for the batch that it wants.
    waiting: Option<Instant>,
    progress: Arc<Progress>,
}

/// What the thread and the consumer tell each other.
#[derive(Default)]
struct Progress {
    /// Batches in work, at the workers or on the device, when the thread last looked.
    loading: AtomicUsize,
    /// Batches that are in work or ready.
    in_flight: AtomicUsize,
    /// Whether nobody wants more batches.
    stop: AtomicBool,
}

impl DeviceLoader {
    /// Prepares to load `source` through `pipeline` on a device. Workers prepare as `way` says, whatever preparation and
    /// executor `options` have. `budget` is memory of the device in bytes for the two batches that are on it at a time: each may
    /// take half.
    ///
    /// # Errors
    /// What [`Loader::new`] refuses.
    pub fn new(
        source: Arc<dyn Source>,
        pipeline: Pipeline,
        options: LoaderOptions,
        gpu: Gpu,
        way: ForGpu,
        budget: u64,
    ) -> Result<DeviceLoader, GpuError> {
        let queue = gpu.queue;
        let batcher = Batcher::new(gpu, &pipeline, options.sample_type, budget / 2)?;
        let options = LoaderOptions {
            preparation: Some(Arc::new(way)),
            ..options
        };
        Ok(DeviceLoader {
            loader: Loader::new(source, pipeline, options)?,
            batcher: Arc::new(batcher),
            queue,
        })
    }

    /// The loader that prepares the samples: for how many batches, workers and bad images there are. Its own epochs yield
    /// no images.
    pub fn loader(&self) -> &Loader {
        &self.loader
    }

    /// What makes the batches.
    pub fn batcher(&self) -> &Batcher {
        &self.batcher
    }

    /// Starts an epoch: its threads begin at once.
    pub fn epoch(&self, epoch: u64) -> DeviceBatches {
        self.start(self.loader.epoch(epoch))
    }

    /// As [`Loader::resume`].
    ///
    /// # Errors
    /// As there.
    pub fn resume(&self, state: State) -> Result<DeviceBatches, LoaderError> {
        Ok(self.start(self.loader.resume(state)?))
    }

    fn start(&self, batches: Batches) -> DeviceBatches {
        let (to_consumer, coming) = bounded(0);
        let progress = Arc::new(Progress {
            loading: AtomicUsize::new(1),
            ..Progress::default()
        });
        let state = batches.state();
        let feeder = Feeder {
            batches,
            batcher: Arc::clone(&self.batcher),
            to_consumer,
            progress: Arc::clone(&progress),
        };
        let queue = self.queue;
        let spawned = Builder::new()
            .name("gpu-feeder".into())
            .spawn(move || queue.executes(|| feeder.work()));
        let (thread, failed) = match spawned {
            Ok(thread) => (Some(thread), None),
            Err(error) => (None, Some(LoaderError::Spawn(error).into())),
        };
        DeviceBatches {
            coming: Some(coming),
            thread,
            failed,
            state,
            waiting: None,
            progress,
        }
    }
}

impl DeviceBatches {
    /// Where the consumer stands: after the batches yielded so far.
    pub fn state(&self) -> State {
        self.state.clone()
    }

    /// Batches in work or ready.
    pub fn in_flight(&self) -> usize {
        match self.is_over() {
            true => 0,
            false => self.progress.in_flight.load(Ordering::Acquire),
        }
    }

    /// Batches in work: 0 when workers and device have done all that they may do before the next batch is taken.
    pub fn loading(&self) -> usize {
        match self.is_over() {
            true => 0,
            false => self.progress.loading.load(Ordering::Acquire),
        }
    }

    fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// As [`Iterator::next`], but waits no longer than `patience`: [`Poll::Pending`] means not yet, and changes nothing.
    pub fn next_within(&mut self, patience: Duration) -> Poll<Option<Result<LoadedBatch, GpuError>>> {
        self.next_by(Instant::now().checked_add(patience))
    }

    fn next_by(&mut self, deadline: Option<Instant>) -> Poll<Option<Result<LoadedBatch, GpuError>>> {
        let Some(coming) = &self.coming else {
            return Poll::Ready(None);
        };
        let start = *self.waiting.get_or_insert_with(Instant::now);
        let came = match deadline {
            Some(deadline) => coming.recv_deadline(deadline),
            None => coming.recv().map_err(RecvTimeoutError::from),
        };
        let next = match came {
            Err(RecvTimeoutError::Timeout) => return Poll::Pending,
            Ok(Ok((mut loaded, state))) => {
                // The thread is about to begin the next one, if it has not yet.
                self.progress.loading.store(1, Ordering::Release);
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

    fn let_go(&mut self) {
        self.progress.stop.store(true, Ordering::Release);
        self.coming = None;
        if let Some(thread) = self.thread.take() {
            // It catches its panics and tells them as errors.
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
    batcher: Arc<Batcher>,
    to_consumer: Sender<Result<(LoadedBatch, State), GpuError>>,
    progress: Arc<Progress>,
}

/// A batch that the device works at, and what it was made of.
struct Ahead {
    work: InWork,
    samples: Vec<Arc<Prepared>>,
    batch: Batch,
    state: State,
}

/// Why the thread ends before the epoch does.
enum End {
    /// Nobody wants more batches.
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
        let error = match fed {
            Ok(Ok(()) | Err(End::Unwanted)) => return,
            Ok(Err(End::Failed(error))) => error,
            Err(panic) => panicked(&*panic),
        };
        // Whoever is gone is not told.
        let _ = self.send(Err(error));
    }

    fn feed(&mut self) -> Result<(), End> {
        let begin = self.batches.state();
        let mut any = begin.batch > 0;
        let mut rejected = false;
        let mut deliver = |feeder: &mut Feeder, ahead: Ahead| {
            match feeder.finish(ahead)? {
                Some(made) => {
                    any = true;
                    feeder.send(Ok(made))?;
                }
                None => rejected = true,
            }
            Ok::<(), End>(())
        };
        let mut ahead: Option<Ahead> = None;
        loop {
            let mut next = self.batches.next_within(Duration::ZERO);
            if next.is_pending()
                && let Some(ahead) = ahead.take()
            {
                deliver(self, ahead)?;
            }
            let batch = loop {
                match next {
                    Poll::Ready(batch) => break batch.transpose()?,
                    Poll::Pending if self.progress.stop.load(Ordering::Acquire) => return Err(End::Unwanted),
                    Poll::Pending => next = self.batches.next_within(LOOK),
                }
            };
            let Some(batch) = batch else { break };
            let state = self.batches.state();
            let samples = prepared(&batch);
            let laid_out = self.batcher.lay_out(&samples)?;
            if let Some(ahead) = ahead.take() {
                deliver(self, ahead)?;
            }
            let work = self.batcher.launch(laid_out);
            ahead = Some(Ahead {
                work,
                samples,
                batch,
                state,
            });
        }
        if let Some(ahead) = ahead.take() {
            deliver(self, ahead)?;
        }
        match rejected && !any {
            true => Err(LoaderError::AllBad { epoch: begin.epoch }.into()),
            false => Ok(()),
        }
    }

    /// Waits for a batch and does with its bad images what the policy says; none where nothing is left of it.
    fn finish(&mut self, ahead: Ahead) -> Result<Option<(LoadedBatch, State)>, GpuError> {
        let Ahead {
            work,
            samples,
            mut batch,
            state,
        } = ahead;
        let mut images = self.batcher.finish(work, &samples)?;
        while !images.bad.is_empty() {
            let bad = images.bad.iter().map(|(place, bad)| (*place, bad.to_string()));
            self.batches.reject(&mut batch, &bad.collect::<Vec<_>>())?;
            if batch.samples.is_empty() {
                return Ok(None);
            }
            images = self.batcher.run(&prepared(&batch))?;
        }
        batch.prepared.clear();
        Ok(Some((LoadedBatch { images, batch }, state)))
    }

    /// Hands something over, once the consumer comes for it.
    fn send(&mut self, made: Result<(LoadedBatch, State), GpuError>) -> Result<(), End> {
        let mut made = made;
        loop {
            match self.to_consumer.send_timeout(made, LOOK) {
                Ok(()) => return Ok(()),
                Err(SendTimeoutError::Disconnected(_)) => return Err(End::Unwanted),
                Err(SendTimeoutError::Timeout(back)) => made = back,
            }
            // Nothing but the workers works while this waits.
            let Progress {
                loading, in_flight, ..
            } = &*self.progress;
            in_flight.store(self.batches.in_flight() + 1, Ordering::Release);
            loading.store(self.batches.loading(), Ordering::Release);
        }
    }
}

fn prepared(batch: &Batch) -> Vec<Arc<Prepared>> {
    let samples = batch.prepared.iter().map(|sample| sample.clone().downcast());
    samples
        .map(|sample| sample.expect("workers prepare by ForGpu"))
        .collect()
}

fn panicked(panic: &(dyn Any + Send)) -> GpuError {
    let text = panic.downcast_ref::<&str>().copied();
    let message = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = message.unwrap_or("no message").to_owned();
    LoaderError::WorkerPanicked { message }.into()
}
