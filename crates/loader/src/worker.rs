//! One worker thread: a list of samples in, a batch out.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender};
use stokehold_pipeline::{DrawKey, Runner};
use stokehold_storage::SampleBytes;

use crate::loader::Shared;
use crate::random::mix;
use crate::{BadImage, BadImagePolicy, LoaderError, Span, Stage};

/// The samples of one batch, to be prepared.
pub(crate) struct Job {
    pub batch: u64,
    pub samples: Vec<usize>,
}

/// A batch as a worker hands it over.
pub(crate) struct Done {
    pub batch: u64,
    pub outcome: Result<Prepared, LoaderError>,
}

/// The content of a batch; it may be empty where every image was skipped.
#[derive(Default)]
pub(crate) struct Prepared {
    pub images: Vec<f32>,
    pub labels: Vec<u32>,
    pub samples: Vec<u64>,
    pub bad: Vec<BadImage>,
    pub spans: Vec<Span>,
}

/// What a worker thread has to itself.
pub(crate) struct Worker {
    pub number: usize,
    pub epoch: u64,
    pub shared: Arc<Shared>,
    pub stop: Arc<AtomicBool>,
    pub runner: Runner,
    /// The bytes of the image at hand; kept, so that reading allocates only for a larger file than before.
    pub bytes: SampleBytes,
}

impl Worker {
    /// Prepares batches until there are no more jobs, the consumer stops, or something fails.
    pub(crate) fn work(mut self, jobs: &Receiver<Job>, done: &Sender<Done>) {
        for Job { batch, samples } in jobs {
            // The state that a panic may leave half-changed is this worker's own and ends with it.
            let outcome = match catch_unwind(AssertUnwindSafe(|| self.prepare(&samples))) {
                Ok(Ok(Some(prepared))) => Ok(prepared),
                Ok(Ok(None)) => return,
                Ok(Err(error)) => Err(error),
                Err(panic) => Err(LoaderError::WorkerPanicked {
                    message: panic_message(&*panic),
                }),
            };
            let failed = outcome.is_err();
            if done.send(Done { batch, outcome }).is_err() || failed {
                return;
            }
        }
    }

    /// Prepares one batch; `None` where the consumer has stopped meanwhile.
    fn prepare(&mut self, samples: &[usize]) -> Result<Option<Prepared>, LoaderError> {
        let start = Instant::now();
        let size = self.runner.output_len();
        let mut batch = Prepared {
            images: vec![0.0; samples.len() * size],
            ..Prepared::default()
        };
        for &sample in samples {
            if self.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            // The next free place: skipped images leave no gap.
            let filled = batch.samples.len() * size;
            let place = &mut batch.images[filled..filled + size];
            let taken = match self.image(sample, place, &mut batch.spans) {
                Ok(()) => Some(sample),
                Err(bad) => self.instead_of(bad, place, &mut batch.bad, &mut batch.spans)?,
            };
            if let Some(sample) = taken {
                batch.labels.push(self.shared.source.class(sample));
                batch.samples.push(sample as u64);
            }
        }
        batch.images.truncate(batch.samples.len() * size);
        batch.spans.push(Span {
            worker: self.number,
            stage: Stage::Batch,
            start,
            duration: start.elapsed(),
        });
        Ok(Some(batch))
    }

    /// Reads and processes one image into `place`.
    fn image(&mut self, sample: usize, place: &mut [f32], spans: &mut Vec<Span>) -> Result<(), BadImage> {
        let source = &self.shared.source;
        let bad = |reason: String| BadImage {
            sample: sample as u64,
            name: source.name(sample),
            reason,
        };
        let mut span = |stage, start, duration| {
            spans.push(Span {
                worker: self.number,
                stage,
                start,
                duration,
            });
            start + duration
        };
        let start = Instant::now();
        source
            .read(sample, &mut self.bytes)
            .map_err(|error| bad(error.to_string()))?;
        let read = span(Stage::Read, start, start.elapsed());
        let key = DrawKey {
            seed: self.shared.options.seed,
            epoch: self.epoch,
            sample: sample as u64,
        };
        let times = self
            .runner
            .run(self.bytes.file(), key, place)
            .map_err(|error| bad(error.to_string()))?;
        let decoded = span(Stage::Decode, read, times.decode);
        span(Stage::Augment, decoded, times.augment);
        Ok(())
    }

    /// Deals with a bad image by the policy; the sample that is in `place` instead, if one is.
    fn instead_of(
        &mut self,
        bad: BadImage,
        place: &mut [f32],
        found: &mut Vec<BadImage>,
        spans: &mut Vec<Span>,
    ) -> Result<Option<usize>, LoaderError> {
        match self.shared.options.bad_images {
            BadImagePolicy::Error => Err(LoaderError::BadImage(bad)),
            BadImagePolicy::Skip => {
                found.push(bad);
                Ok(None)
            }
            BadImagePolicy::Substitute => {
                found.push(bad.clone());
                self.substitute(bad, place, found, spans)
            }
        }
    }

    /// Another image of the same class: from a drawn one on, the first that is good.
    fn substitute(
        &mut self,
        bad: BadImage,
        place: &mut [f32],
        found: &mut Vec<BadImage>,
        spans: &mut Vec<Span>,
    ) -> Result<Option<usize>, LoaderError> {
        let shared = Arc::clone(&self.shared);
        let limit = shared.options.bad_image_limit;
        let class = &shared.by_class[shared.source.class(bad.sample as usize) as usize];
        let draw = mix(mix(mix(shared.options.seed) ^ self.epoch) ^ bad.sample);
        let first = (draw % class.len() as u64) as usize;
        let others = class[first..]
            .iter()
            .chain(&class[..first])
            .filter(|&&other| other as u64 != bad.sample);
        for (tries, &other) in others.enumerate() {
            // The consumer would stop at the limit too, but only after this search through the class.
            if tries >= limit || self.stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            match self.image(other, place, spans) {
                Ok(()) => return Ok(Some(other)),
                Err(also_bad) => found.push(also_bad),
            }
        }
        Err(LoaderError::NoSubstitute(bad))
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
        .to_owned()
}
