//! The batches of a loader, made on a device one ahead of the consumer.
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
use crate::prepare::ForGpu;
use crate::queue::queue;
use crate::{Batcher, Decode, Gpu, GpuError, Prepared};
use crossbeam_channel::{Receiver, RecvTimeoutError, SendTimeoutError, Sender, bounded};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};
use stokehold_loader::{BadImage, Batch, BatchStream, Batches, Device, Loader, LoaderError, Pixels, State};
use stokehold_pipeline::{Pipeline, Preparation};

/// How often the waiting thread checks whether to stop.
const LOOK: Duration = Duration::from_millis(5);

/// After this long without progress of the consumer's stream the next batch is made anyway, with a warning: the consumer may
/// itself be waiting for it.
const PATIENCE: Duration = Duration::from_secs(10);

/// A GPU as a [`Device`] of loaders. The loader decides order, draws, bad images and resume, and the numbers equal the executor
/// `fused`'s to the bit. Batches have [`DeviceBatch`] as [`Pixels::Device`].
#[derive(Debug, Clone)]
pub struct GpuMaker {
    /// The device.
    pub gpu: Gpu,
    /// Where the symbols of files are decoded.
    pub decode: Decode,
    /// Device memory in bytes for two batches at a time: each may take half.
    pub budget: u64,
}

/// The batches of one epoch. In a fork of the process, the first error is [`LoaderError::Forked`].
struct DeviceBatches {
    coming: Option<Receiver<Result<(Batch, State), LoaderError>>>,
    thread: Option<JoinHandle<()>>,
    /// Why the thread could not be started.
    failed: Option<LoaderError>,
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

impl Device for GpuMaker {
    fn preparation(&self) -> Arc<dyn Preparation> {
        let decode = self.decode;
        Arc::new(ForGpu { decode })
    }

    fn check(&self, pipeline: &Pipeline) -> Result<(), LoaderError> {
        Ok(pipeline.check_on_device()?)
    }

    fn epoch(&self, loader: &Loader, batches: Batches, given: bool) -> Box<dyn BatchStream> {
        let [_, height, width] = loader.shape();
        let (size, sample_type) = ((width as u32, height as u32), loader.options().sample_type);
        let (to_consumer, coming) = bounded(0);
        let progress = Arc::new(Progress {
            loading: AtomicUsize::new(1),
            ..Progress::default()
        });
        let state = batches.state();
        let feeder = Feeder {
            batches,
            given,
            batcher: Batcher::of_size(self.gpu.clone(), size, sample_type, self.budget / 2),
            to_consumer,
            progress: Arc::clone(&progress),
            bad: Vec::new(),
        };
        let spawned = Builder::new()
            .name("gpu-feeder".into())
            .spawn(move || queue().executes(|| feeder.work()));
        let (thread, failed) = match spawned {
            Ok(thread) => (Some(thread), None),
            Err(error) => (None, Some(LoaderError::Spawn(error))),
        };
        Box::new(DeviceBatches {
            coming: Some(coming),
            thread,
            failed,
            waiting: None,
            state,
            progress,
            process: process::id(),
        })
    }
}

impl BatchStream for DeviceBatches {
    fn next_within(&mut self, patience: Duration) -> Poll<Option<Result<Batch, LoaderError>>> {
        self.next_by(Instant::now().checked_add(patience))
    }

    fn unreported(&mut self) -> Vec<BadImage> {
        let list = self.progress.unreported.lock();
        mem::take(&mut list.unwrap_or_else(PoisonError::into_inner))
    }

    fn state(&self) -> State {
        self.state.clone()
    }

    fn passed(&self) -> u64 {
        self.progress.passed.load(Ordering::Acquire)
    }

    fn in_flight(&self) -> usize {
        match self.is_over() {
            true => 0,
            false => self.progress.in_flight.load(Ordering::Acquire),
        }
    }

    fn loading(&self) -> usize {
        match self.is_over() {
            true => 0,
            false => self.progress.loading.load(Ordering::Acquire),
        }
    }
}

impl DeviceBatches {
    fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn next_by(&mut self, deadline: Option<Instant>) -> Poll<Option<Result<Batch, LoaderError>>> {
        // The thread is not in a fork of the process, so nothing would come.
        if self.coming.is_some() && self.process != process::id() {
            self.let_go();
            let made_by = self.process;
            return Poll::Ready(Some(Err(LoaderError::Forked { made_by })));
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
            Ok(Ok((mut batch, state))) => {
                // The thread is about to begin the next batch, if it has not yet.
                let Progress {
                    loading, in_flight, ..
                } = &*self.progress;
                loading.store(1, Ordering::Release);
                in_flight.fetch_sub(1, Ordering::AcqRel);
                self.state = state;
                self.waiting = None;
                batch.wait = start.elapsed();
                return Poll::Ready(Some(Ok(batch)));
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
    type Item = Result<Batch, LoaderError>;

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
    batcher: Batcher,
    to_consumer: Sender<Result<(Batch, State), LoaderError>>,
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
    Failed(LoaderError),
}

impl<E: Into<LoaderError>> From<E> for End {
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
            Err(panic) => LoaderError::panicked(&*panic),
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
    fn finish(&mut self, ahead: Ahead) -> Result<Option<(Batch, State)>, End> {
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
        batch.pixels = Pixels::Device(Arc::new(images));
        batch.bad.splice(..0, self.bad.drain(..));
        Ok(Some((batch, state)))
    }

    /// Hands a batch or an error over when the consumer asks for it; `held` more batches are laid out.
    fn send(&mut self, made: Result<(Batch, State), LoaderError>, held: usize) -> Result<(), End> {
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
    let samples = match &batch.pixels {
        Pixels::Prepared(samples) => &samples[..],
        Pixels::Host(_) | Pixels::Device(_) => &[],
    };
    let samples = samples.iter().map(|sample| sample.clone().downcast());
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
            matches!(first, Some(Err(LoaderError::Forked { made_by: 0 }))),
            "{:?}",
            first.map(|batch| batch.map(|_| ()))
        );
        assert!(batches.next().is_none());
    }
}
