//! Validation: one pass over the whole validation set.

use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use burn::tensor::Device;
use stokehold_loader::BadImage;

use crate::TrainError;
use crate::device;
use crate::feed::{FedBatch, Feed, FeedBatches};
use crate::learner::targets;
use crate::loss::cross_entropy;
use crate::metrics::Accuracy;
use crate::model::ResNet;
use crate::observer::{Event, Observer};
use crate::progress::Validation;
use crate::timeline::RunTimeline;

/// Validates a model on its plain device; `None` if `stop` was set meanwhile. New bad images are
/// added to `bad`.
pub(crate) fn evaluate(
    (model, device): (&ResNet, &Device),
    feed: &Feed,
    k: usize,
    bad: &mut Vec<BadImage>,
    observer: &mut dyn Observer,
    spans: &RunTimeline,
    stop: &AtomicBool,
) -> Result<Option<Validation>, TrainError> {
    let mut accuracy = Accuracy::new(k);
    let mut loss = 0.0;
    let batches = feed.loader().batches_per_epoch();
    let mut begin = Instant::now();
    let (mut coming, mut number) = (feed.epoch(0), 0);
    loop {
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let next = next_batch(&mut coming, bad, observer).map_err(|error| match error {
            TrainError::Loader(error) => TrainError::Validation(error),
            error => error,
        });
        let Some(batch) = next? else {
            break;
        };
        number += 1;
        let images = batch.images.into_input().tensor(batch.shape, device);
        let logits = model.forward(images);
        let mean = device::read(cross_entropy(logits.clone(), targets(&batch.labels, device), 0.0))?;
        // Weight by images: the last batch may be smaller.
        loss += mean.iter().map(|&mean| f64::from(mean)).sum::<f64>() * batch.labels.len() as f64;
        accuracy.add(logits, &batch.labels)?;
        spans.validated(begin, number as u64);
        begin = Instant::now();
        observer.event(Event::Validated {
            batch: number,
            batches,
        });
    }
    let images = accuracy.seen() as u64;
    Ok(Some(Validation {
        loss: loss / images.max(1) as f64,
        top1: accuracy.top1(),
        topk: accuracy.topk(),
        k,
        images,
        of: feed.images() as u64,
    }))
}

/// The next batch. Bad images found before it, or before the end of the epoch, are added to `bad`.
pub(crate) fn next_batch(
    batches: &mut FeedBatches,
    bad: &mut Vec<BadImage>,
    observer: &mut dyn Observer,
) -> Result<Option<FedBatch>, TrainError> {
    let mut next = batches.next();
    let found = match &mut next {
        Some(Ok(batch)) => mem::take(&mut batch.bad),
        Some(Err(_)) | None => batches.unreported(),
    };
    note_bad(found, bad, observer);
    next.transpose()
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
