//! Which executor performs a run, where the run may choose.
//!
//! Both are timed at what the run will do: training steps on its own first batches, with the waiting for them, so that what the
//! executor `gpu` takes from the network's time on the device counts. They take turns over the same images. What they make of
//! them is the same to the bit, so the choice changes the time of a run and nothing else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use burn::tensor::Device;
use serde::{Deserialize, Serialize};
use stokehold_pipeline::Executor;
use stokehold_storage::Images;

use crate::config::TrainConfig;
use crate::executor::{AnyExecutor, ExecutorChoice};
use crate::feed::{Feed, Maker};
use crate::fit::feed;
use crate::learner::Learner;
use crate::{TrainError, device};

/// Turns of each, one after the other; the first is not counted, in which files are read first, kernels compiled and memory is
/// touched.
const TURNS: u64 = 3;
/// Steps of a turn that are timed, after those whose batches were ready before, and for how long at most another one is begun.
const STEPS: usize = 12;
const LIMIT: Duration = Duration::from_secs(5);

const FUSED: AnyExecutor = AnyExecutor::Cpu(Executor::Fused);

/// What performs a run's pipelines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The executor.
    pub executor: AnyExecutor,
    /// Why, where it was for the run to choose.
    pub why: Option<String>,
}

/// What the configuration names, or what is faster here. When `stop` is set it is `fused`, for the steps that are not made.
///
/// # Errors
/// What keeps a run with `fused` from making its first steps.
pub(crate) fn choose(
    config: &TrainConfig,
    images: &Images,
    classes: usize,
    device: &Device,
    stop: &AtomicBool,
) -> Result<Chosen, TrainError> {
    match config.executor {
        ExecutorChoice::Of(executor) => return Ok(Chosen { executor, why: None }),
        ExecutorChoice::Auto => {}
    }
    let fused_because = |why: String| Chosen {
        executor: FUSED,
        why: Some(why),
    };
    if device::kind(&device::name(device)) == "cpu" {
        return Ok(fused_because("the run trains on the CPU".into()));
    }
    let gpu_unusable = |error| fused_because(format!("gpu cannot be used: {error}"));
    let feed_by = |executor| {
        let maker = Maker::open(executor, config.gpu, device)?;
        feed(config, images.clone(), true, &maker)
    };
    let gpu = match feed_by(AnyExecutor::Gpu) {
        Ok(gpu) => gpu,
        Err(TrainError::Gpu(error)) => return Ok(gpu_unusable(error)),
        Err(error) => return Err(error),
    };
    let fused = feed_by(FUSED)?;
    let mut learner = Learner::new(config, classes, device.clone())?;
    let mut measured = [Measured::default(); 2];
    for turn in 0..TURNS {
        for (sum, feed) in measured.iter_mut().zip([&gpu, &fused]) {
            let more;
            (learner, more) = match train(config, feed, turn, learner, stop) {
                Ok(trained) => trained,
                Err(TrainError::Gpu(error)) => return Ok(gpu_unusable(error)),
                Err(error) => return Err(error),
            };
            if turn > 0 {
                *sum = sum.and(more);
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(fused_because("the run was stopped before gpu was timed".into()));
            }
        }
    }
    Ok(fastest(measured.map(Measured::rate)))
}

/// The faster of `gpu` and `fused`.
fn fastest([gpu, fused]: [f64; 2]) -> Chosen {
    let executor = match gpu > fused {
        true => AnyExecutor::Gpu,
        false => FUSED,
    };
    let why = format!("in its first steps, gpu trained {gpu:.1} images/s and fused {fused:.1}");
    Chosen {
        executor,
        why: Some(why),
    }
}

/// What was trained on, and how long that took.
#[derive(Debug, Clone, Copy, Default)]
struct Measured {
    images: usize,
    seconds: f64,
}

impl Measured {
    fn and(self, more: Self) -> Self {
        Self {
            images: self.images + more.images,
            seconds: self.seconds + more.seconds,
        }
    }

    /// Images a second.
    fn rate(self) -> f64 {
        self.images as f64 / self.seconds.max(1e-9)
    }
}

/// Makes steps, batches waited for, from the beginning of an epoch on.
fn train(
    config: &TrainConfig,
    feed: &Feed,
    epoch: u64,
    mut learner: Learner,
    stop: &AtomicBool,
) -> Result<(Learner, Measured), TrainError> {
    // While the first of them is trained on the others are made: what is ready by then says nothing of the rate. The device is two
    // batches further.
    let ready = feed.loader().prefetch() + 3;
    let (mut begin, mut steps, mut measured) = (Instant::now(), 0, Measured::default());
    // Short epochs are repeated; one without a batch is an error of the feed.
    for epoch in epoch.. {
        for batch in feed.epoch(epoch) {
            let batch = batch?;
            let (smoothing, clip_norm) = (config.label_smoothing, config.clip_norm);
            let input = batch.images.into_input();
            // A learning rate of 0 keeps the numbers finite, and costs the same.
            (learner, _) = learner.step(smoothing, clip_norm, input, batch.shape, &batch.labels, 0.0)?;
            steps += 1;
            if steps == ready {
                begin = Instant::now();
            } else if steps > ready {
                measured.images += batch.labels.len();
            }
            let is_late = steps > ready && begin.elapsed() > LIMIT;
            if steps >= ready + STEPS || is_late || stop.load(Ordering::Relaxed) {
                measured.seconds = begin.elapsed().as_secs_f64();
                return Ok((learner, measured));
            }
        }
    }
    unreachable!("the epochs do not end")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_faster_one_is_taken_and_both_rates_are_told() {
        let chosen = fastest([812.04, 640.5]);
        assert_eq!(chosen.executor, AnyExecutor::Gpu);
        assert_eq!(
            chosen.why.as_deref(),
            Some("in its first steps, gpu trained 812.0 images/s and fused 640.5")
        );
        assert_eq!(
            fastest([100.0, 100.0]).executor,
            AnyExecutor::Cpu(Executor::Fused)
        );
    }
}
