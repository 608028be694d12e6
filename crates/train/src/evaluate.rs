//! Validation: one pass over the whole validation set.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use stokehold_loader::{BadImage, Batch, BatchStream, Loader, LoaderError};
use stokehold_ranks::Ranks;
use stokehold_storage::IGNORE;

use crate::TrainError;
use crate::batch::tensor;
use crate::device;
use crate::learner::targets;
use crate::loss::{PixelTargets, cross_entropy, pixel_cross_entropy};
use crate::metrics::{Accuracy, Confusion, most_probable};
use crate::model::{Logits, Network};
use crate::observer::{Event, Observer};
use crate::progress::{Scores, Validation};
use crate::timeline::RunTimeline;
use crate::world;

/// Validates a model on its plain device; `None` if `stop` was set meanwhile. New bad images are
/// added to `bad`. Each rank validates its part, and all get the result of the whole.
pub(crate) fn evaluate(
    (model, device, ranks): (&Network, &Device, &Ranks),
    loader: &Loader,
    k: usize,
    bad: &mut Vec<BadImage>,
    observer: &mut dyn Observer,
    spans: &RunTimeline,
    stop: &AtomicBool,
) -> Result<Option<Validation>, TrainError> {
    let mut count = Count::new(model.classes(), k);
    let batches = loader.batches_per_epoch();
    let mut begin = Instant::now();
    let (mut coming, mut number) = (loader.epoch(0), 0);
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let stopped = || stop.load(Ordering::Relaxed);
        let next = next_batch(&mut *coming, bad, observer, &stopped).map_err(|error| match error {
            // A failing device says nothing of the images.
            TrainError::Loader(error) if !matches!(error, LoaderError::Device(_)) => {
                TrainError::Validation(error)
            }
            error => error,
        });
        let Some(batch) = next? else {
            if stopped() {
                return Ok(None);
            }
            break;
        };
        number += 1;
        // A part of a batch may be empty.
        if !batch.labels.is_empty() {
            let images = tensor(batch.pixels, batch.normalize, batch.shape, device);
            count.add(model.forward(images), &batch.labels, &batch.masks)?;
        }
        spans.validated(begin, number as u64);
        begin = Instant::now();
        observer.event(Event::Validated {
            batch: number,
            batches,
        });
    }
    let count = match ranks.are_alone() {
        true => count,
        false => Count::of_all(world::gather(ranks, &count)?),
    };
    Ok(Some(count.finish(model, loader.images() as u64)))
}

/// What is counted of a validation.
#[derive(Serialize, Deserialize)]
struct Count {
    loss: f64,
    /// What the loss is a sum over: images, or pixels that have a class.
    of: u64,
    images: u64,
    accuracy: Accuracy,
    confusion: Confusion,
}

impl Count {
    fn new(classes: usize, k: usize) -> Self {
        Self {
            loss: 0.0,
            of: 0,
            images: 0,
            accuracy: Accuracy::new(k),
            confusion: Confusion::new(classes),
        }
    }

    fn add(&mut self, logits: Logits, labels: &[u32], masks: &[u8]) -> Result<(), TrainError> {
        self.images += labels.len() as u64;
        let (mean, of) = match logits {
            Logits::Images(logits) => {
                self.accuracy.add(logits.clone(), labels)?;
                let mean = cross_entropy(logits.clone(), targets(labels, &logits.device()), 0.0);
                (mean, labels.len())
            }
            Logits::Pixels(logits) => {
                let (mean, of) = pixel_loss(logits.out.clone(), masks);
                self.confusion.add(masks, &most_probable(logits.out)?);
                (mean, of)
            }
        };
        // The last batch may be smaller, and images have different numbers of pixels with a class.
        self.loss += f64::from(device::read(mean)?[0]) * of as f64;
        self.of += of as u64;
        Ok(())
    }

    /// The counts of all ranks together; there is at least one.
    fn of_all(counts: Vec<Self>) -> Self {
        let mut counts = counts.into_iter();
        let mut all = counts.next().unwrap_or_else(|| Self::new(0, 1));
        for count in counts {
            all.loss += count.loss;
            all.of += count.of;
            all.images += count.images;
            all.accuracy.add_all(&count.accuracy);
            all.confusion.add_all(&count.confusion);
        }
        all
    }

    fn finish(self, model: &Network, of: u64) -> Validation {
        Validation {
            loss: self.loss / self.of.max(1) as f64,
            scores: match model {
                Network::Classifier(_) => Scores::Images {
                    top1: self.accuracy.top1(),
                    topk: self.accuracy.topk(),
                    k: self.accuracy.k(),
                },
                Network::Segmenter(_) => Scores::Pixels {
                    miou: self.confusion.mean_iou(),
                    pixel_accuracy: self.confusion.pixel_accuracy(),
                },
            },
            images: self.images,
            of,
        }
    }
}

/// The mean loss of the pixels that have a class, `[1]`, and their number.
pub(crate) fn pixel_loss(logits: Tensor<4>, masks: &[u8]) -> (Tensor<1>, usize) {
    let targets = PixelTargets::new(masks, logits.dims(), None, &logits.device());
    let labelled = masks.iter().filter(|&&class| class != IGNORE).count();
    (pixel_cross_entropy(logits, &targets), labelled)
}

/// How often a wait for a batch looks whether to stop: a server, or storage, may be silent for long.
const LOOK: Duration = Duration::from_millis(100);

/// The next batch; `None` at the end of the epoch, and if `stopped` says so while it waits. Bad images found before it, or before the end of the epoch, are added to `bad`.
pub(crate) fn next_batch(
    batches: &mut dyn BatchStream,
    bad: &mut Vec<BadImage>,
    observer: &mut dyn Observer,
    stopped: &dyn Fn() -> bool,
) -> Result<Option<Batch>, TrainError> {
    let mut next = loop {
        match batches.next_within(LOOK) {
            Poll::Ready(next) => break next,
            Poll::Pending if stopped() => return Ok(None),
            Poll::Pending => {}
        }
    };
    let found = match &mut next {
        Some(Ok(batch)) => mem::take(&mut batch.bad),
        Some(Err(_)) | None => batches.unreported(),
    };
    note_bad(found, bad, observer);
    Ok(next.transpose()?)
}

/// Adds the bad images that are not in the list yet, and reports them to the observer.
fn note_bad(found: Vec<BadImage>, list: &mut Vec<BadImage>, observer: &mut dyn Observer) {
    for image in found {
        if list.iter().all(|known| known.sample != image.sample) {
            observer.event(Event::BadImage(&image));
            list.push(image);
        }
    }
}
