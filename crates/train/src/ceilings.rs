//! What the loader could deliver and the trainer could take, each alone.
//!
//! A run is as fast as the slower of the two, or slower still where both share the cores of one CPU. The two
//! numbers say which one to work on, and what that can gain at most.

use std::time::{Duration, Instant};

use stokehold_loader::{Batch, Loader, LoaderError};
use stokehold_profile::percentile;

use crate::TrainError;
use crate::config::TrainConfig;
use crate::learner::Learner;

/// Neither measurement begins another batch after this time.
const LIMIT: Duration = Duration::from_secs(10);

/// Images per second that the loader delivers when nothing is trained, over at least `batches` batches from the
/// beginning of `epoch` on, and the first of the batches. `None` for an epoch without a batch.
///
/// The time runs from before the first worker starts to the arrival of the last batch, over as many epochs as that
/// takes; what the workers prefetch beyond the last batch does not count.
pub(crate) fn of_loader(
    loader: &Loader,
    epoch: u64,
    batches: usize,
) -> Result<Option<(f64, Batch)>, LoaderError> {
    let begin = Instant::now();
    let (mut first, mut arrived, mut images) = (None, 0, 0);
    for epoch in epoch.. {
        let before = arrived;
        for batch in loader.epoch(epoch) {
            let batch = batch?;
            arrived += 1;
            images += batch.labels.len();
            first.get_or_insert(batch);
            if arrived >= batches || begin.elapsed() > LIMIT {
                let rate = images as f64 / begin.elapsed().as_secs_f64();
                return Ok(first.map(|first| (rate, first)));
            }
        }
        if arrived == before {
            break;
        }
    }
    Ok(None)
}

/// Images per second that the trainer takes when the same batch is always at hand: by the median of at most `steps`
/// steps, at least one. What it learns meanwhile is lost with the learner.
pub(crate) fn of_trainer(
    mut learner: Learner,
    config: &TrainConfig,
    batch: &Batch,
    steps: usize,
) -> Result<f64, TrainError> {
    let begin = Instant::now();
    let mut seconds = Vec::new();
    while seconds.is_empty() || (seconds.len() < steps && begin.elapsed() < LIMIT) {
        let images = batch.images.clone().into_images().into_f32();
        let (smoothing, clip_norm) = (config.label_smoothing, config.clip_norm);
        let start = Instant::now();
        // A learning rate of 0 keeps the numbers finite however long this goes on, and costs the same.
        (learner, _) = learner.step(smoothing, clip_norm, images, batch.shape, &batch.labels, 0.0)?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    let median = percentile(&seconds, 50.0).unwrap_or(f64::INFINITY);
    Ok(batch.labels.len() as f64 / median.max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use stokehold_loader::{LoaderOptions, Workers};
    use stokehold_pipeline::Pipeline;
    use stokehold_storage::{ImageFolder, SlowSource};

    /// With few batches an epoch they arrive bunched; still the rate is no more than the reads allow.
    #[test]
    fn the_loaders_rate_is_possible_however_few_batches_there_are() {
        let dir = tempfile::tempdir().unwrap();
        let bytes = include_bytes!("../../../hostile/small.jpg");
        for i in 0..6 {
            std::fs::write(dir.path().join(format!("{i}.jpg")), bytes).unwrap();
        }
        let source = SlowSource::new(
            ImageFolder::unlabelled(dir.path()).unwrap(),
            Duration::from_millis(5),
        );
        let options = LoaderOptions {
            batch_size: 2,
            workers: "2".parse::<Workers>().unwrap(),
            ..LoaderOptions::default()
        };
        let loader = Loader::new(Arc::new(source), Pipeline::imagenet_train(32), options).unwrap();
        let (rate, first) = of_loader(&loader, 0, 8).unwrap().unwrap();
        assert!(
            rate <= 400.0,
            "{rate} images/s from 2 workers that wait 5 ms an image"
        );
        assert_eq!(first.shape, [2, 3, 32, 32]);
    }
}
