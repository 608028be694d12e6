//! Which executor performs a run, where the run may choose.
//!
//! Both are timed at what the run will do: training steps on its own first batches, with the waiting for them, so that what the
//! executor `gpu` takes from the network's time on the device counts. Their images are the same to the bit, so the choice changes
//! the time of a run and nothing else.

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
use crate::model::ResNet;
use crate::optim::Optimizer;
use crate::{TrainError, device};

/// Steps of each that are not timed: kernels are compiled, threads started and memory is touched.
const WARM_UP: usize = 3;
/// Steps of each that are timed, and for how long at most another one is begun.
const STEPS: usize = 20;
const LIMIT: Duration = Duration::from_secs(10);

/// What performs a run's pipelines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The executor.
    pub executor: AnyExecutor,
    /// Why, where it was for the run to choose.
    pub why: Option<String>,
}

/// What the configuration names, or what is faster here.
///
/// # Errors
/// What keeps a run from making its first steps.
pub(crate) fn choose(
    config: &TrainConfig,
    images: &Images,
    classes: usize,
    device: &Device,
) -> Result<Chosen, TrainError> {
    let fused = AnyExecutor::Cpu(Executor::Fused);
    let because = |executor, why: String| Chosen {
        executor,
        why: Some(why),
    };
    match config.executor {
        ExecutorChoice::Of(executor) => return Ok(Chosen { executor, why: None }),
        ExecutorChoice::Auto => {}
    }
    if device::kind(&device::name(device)) == "cpu" {
        return Ok(because(fused, "the run trains on the CPU".into()));
    }
    let mut learner = Learner {
        model: ResNet::new(config.arch, classes, config.seed, &device.clone().autodiff()),
        optimizer: Optimizer::new(config.optimizer)?,
        device: device.clone(),
    };
    let mut rates = [0.0; 2];
    for (rate, executor) in rates.iter_mut().zip([AnyExecutor::Gpu, fused]) {
        let maker = match Maker::open(executor, config.gpu, device) {
            Ok(maker) => maker,
            Err(TrainError::Gpu(error)) => return Ok(because(fused, format!("gpu cannot be used: {error}"))),
            Err(error) => return Err(error),
        };
        let feed = feed(config, images.clone(), true, &maker)?;
        (learner, *rate) = images_per_second(config, &feed, learner)?;
    }
    Ok(fastest(rates))
}

/// The faster of `gpu` and `fused`.
fn fastest([gpu, fused]: [f64; 2]) -> Chosen {
    let executor = match gpu > fused {
        true => AnyExecutor::Gpu,
        false => AnyExecutor::Cpu(Executor::Fused),
    };
    let why = format!("in its first steps, gpu trained {gpu:.1} images/s and fused {fused:.1}");
    Chosen {
        executor,
        why: Some(why),
    }
}

/// Images trained on in a second, batches waited for.
fn images_per_second(
    config: &TrainConfig,
    feed: &Feed,
    mut learner: Learner,
) -> Result<(Learner, f64), TrainError> {
    let (mut begin, mut steps, mut images) = (Instant::now(), 0, 0);
    // Short epochs are repeated; one without a batch is an error of the feed.
    for epoch in 0.. {
        for batch in feed.epoch(epoch) {
            let batch = batch?;
            images += batch.labels.len();
            let (smoothing, clip_norm) = (config.label_smoothing, config.clip_norm);
            let input = batch.images.into_input();
            // A learning rate of 0 keeps the numbers finite, and costs the same.
            (learner, _) = learner.step(smoothing, clip_norm, input, batch.shape, &batch.labels, 0.0)?;
            steps += 1;
            if steps == WARM_UP {
                (begin, images) = (Instant::now(), 0);
            }
            if steps >= WARM_UP + STEPS || (steps > WARM_UP && begin.elapsed() > LIMIT) {
                return Ok((learner, images as f64 / begin.elapsed().as_secs_f64()));
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
