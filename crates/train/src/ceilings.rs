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

/// Images per second that the loader delivers when nothing is trained, over about `batches` batches of `epoch`,
/// and the first of the batches. `None` for an epoch without a batch.
///
/// The workers begin with one batch each at the same time; so as to count neither that start nor what was
/// prefetched, the time runs from the batch that ends their first round to that which ends their last.
pub(crate) fn of_loader(
    loader: &Loader,
    epoch: u64,
    batches: usize,
) -> Result<Option<(f64, Batch)>, LoaderError> {
    let workers = loader.workers();
    let wanted = batches.max(workers).next_multiple_of(workers) + workers;
    let begin = Instant::now();
    let mut first = None;
    let mut arrived: Vec<(Instant, usize)> = Vec::new();
    for batch in loader.epoch(epoch) {
        let batch = batch?;
        arrived.push((Instant::now(), batch.labels.len()));
        first.get_or_insert(batch);
        if arrived.len() == wanted || begin.elapsed() > LIMIT {
            break;
        }
    }
    Ok(first.map(|first| (rate(begin, &arrived, workers), first)))
}

/// Images per second from the end of the first round of `workers` batches to the end of the last whole round; from
/// the beginning where there is no second round.
fn rate(begin: Instant, arrived: &[(Instant, usize)], workers: usize) -> f64 {
    let rounds = arrived.len() / workers;
    let (start, counted) = if rounds >= 2 {
        (arrived[workers - 1].0, &arrived[workers..rounds * workers])
    } else {
        (begin, arrived)
    };
    let images: usize = counted.iter().map(|(_, images)| images).sum();
    let seconds = counted
        .last()
        .map_or(0.0, |(end, _)| end.duration_since(start).as_secs_f64());
    images as f64 / seconds.max(1e-9)
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
        let images = batch.images.clone();
        let start = Instant::now();
        // A learning rate of 0 keeps the numbers finite however long this goes on, and costs the same.
        (learner, _) = learner.step(config, images, batch.shape, &batch.labels, 0.0)?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    let median = percentile(&seconds, 50.0).unwrap_or(f64::INFINITY);
    Ok(batch.labels.len() as f64 / median.max(1e-9))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_leaves_out_the_first_round_and_the_unfinished_last() {
        let begin = Instant::now();
        let at = |ms: u64| (begin + Duration::from_millis(ms), 10);
        // Two workers at 100 ms a batch after a slow start: 200 images a second.
        let arrived = [at(500), at(501), at(600), at(601), at(700), at(701), at(799)];
        assert!((rate(begin, &arrived, 2) - 200.0).abs() < 1e-6);
        // One round only: all of it counts.
        assert!((rate(begin, &arrived[..2], 2) - 20.0 / 0.501).abs() < 1e-6);
    }
}
