//! Chooses the executor of a run that leaves the choice open.
//!
//! It times both at the run's own work: training steps on its first batches, including the waits for them, so
//! that the time that the executor `gpu` takes from the network on the device counts. They alternate over the
//! same images. Their results are the same to the bit, so the choice changes only the speed of a run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use burn::tensor::Device;
use stokehold_loader::{Loader, LoaderError};
use stokehold_pipeline::Executor;
use stokehold_storage::Images;

use crate::config::TrainConfig;
use crate::executor::{Chosen, open_device};
use crate::learner::{At, Learner};
use crate::{TrainError, device};

/// Turns of each, in alternation. The first does not count: it reads files, compiles kernels and touches
/// memory for the first time.
const TURNS: u64 = 3;
/// The number of timed steps of a turn, after those whose batches were ready before; and the time after which
/// no further step begins.
const STEPS: usize = 12;
const LIMIT: Duration = Duration::from_secs(5);

/// The executor that the configuration names, or the faster one. If `stop` is set before the timing is
/// complete, it is `fused`.
///
/// # Errors
/// The error that keeps a run with `fused` from making its first steps.
pub(crate) fn choose(
    config: &TrainConfig,
    images: &Images,
    classes: usize,
    device: &Device,
    stop: &AtomicBool,
) -> Result<Chosen, TrainError> {
    if let Some(executor) = config.executor {
        return Ok(Chosen { executor, why: None });
    }
    let fused_because = |why: String| Chosen {
        executor: Executor::Fused,
        why: Some(why),
    };
    if !config.trainer.learns() {
        return Ok(fused_because("the accelerator is emulated".into()));
    }
    if device::kind(&device::name(device)) == "cpu" {
        return Ok(fused_because("the run trains on the CPU".into()));
    }
    let on_device = config.pipeline.check_on_device();
    if let Err(error) = on_device.and_then(|()| config.eval_pipeline.check_on_device()) {
        return Ok(fused_because(format!("gpu cannot be used: {error}")));
    }
    let gpu_unusable = |error| fused_because(format!("gpu cannot be used: {error}"));
    let loader_by = |executor| {
        let on_device = open_device(executor, config.gpu, device)?;
        let parts = stokehold_loader::Parts::WHOLE;
        config.loader(images.clone(), true, parts, (executor, on_device))
    };
    let gpu = match loader_by(Executor::Gpu) {
        Ok(gpu) => gpu,
        Err(error) if is_of_gpu(&error) => return Ok(gpu_unusable(error)),
        Err(error) => return Err(error),
    };
    let fused = loader_by(Executor::Fused)?;
    let mut learner = Learner::new(config, classes, device.clone())?;
    let mut measured = [Measured::default(); 2];
    for turn in 0..TURNS {
        for (sum, loader) in measured.iter_mut().zip([&gpu, &fused]) {
            let more;
            (learner, more) = match train(config, loader, turn, learner, stop) {
                Ok(trained) => trained,
                Err(error) if is_of_gpu(&error) => return Ok(gpu_unusable(error)),
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

/// Whether an error is the device's as a maker of images.
fn is_of_gpu(error: &TrainError) -> bool {
    matches!(
        error,
        TrainError::Gpu(_) | TrainError::Loader(LoaderError::Device(_))
    )
}

/// The faster of `gpu` and `fused`.
fn fastest([gpu, fused]: [f64; 2]) -> Chosen {
    let executor = match gpu > fused {
        true => Executor::Gpu,
        false => Executor::Fused,
    };
    let why = format!("in its first steps, gpu trained {gpu:.1} images/s and fused {fused:.1}");
    Chosen {
        executor,
        why: Some(why),
    }
}

/// The images that were trained on, and the time.
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

    /// Images per second.
    fn rate(self) -> f64 {
        self.images as f64 / self.seconds.max(1e-9)
    }
}

/// Makes training steps, including the waits for batches, from the beginning of an epoch on.
fn train(
    config: &TrainConfig,
    loader: &Loader,
    epoch: u64,
    mut learner: Learner,
    stop: &AtomicBool,
) -> Result<(Learner, Measured), TrainError> {
    // While the first batch is trained on, others are made: those that are ready by then say nothing about
    // the rate. The device is two batches further ahead.
    let ready = loader.prefetch() + 3;
    let (mut begin, mut steps, mut measured) = (Instant::now(), 0, Measured::default());
    let objective = config.objective(None);
    // Short epochs are repeated; the loader returns an error for one without a batch.
    for epoch in epoch.. {
        for batch in loader.epoch(epoch) {
            let batch = batch?;
            let images = batch.labels.len();
            // A learning rate of 0 keeps the numbers finite, and costs the same.
            (learner, _) = learner.step(&objective, batch, At::default())?;
            steps += 1;
            if steps == ready {
                begin = Instant::now();
            } else if steps > ready {
                measured.images += images;
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
        assert_eq!(chosen.executor, Executor::Gpu);
        assert_eq!(
            chosen.why.as_deref(),
            Some("in its first steps, gpu trained 812.0 images/s and fused 640.5")
        );
        assert_eq!(fastest([100.0, 100.0]).executor, Executor::Fused);
    }
}
