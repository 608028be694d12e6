//! Measures how fast the loader and the trainer are, each by itself, and their CPU time.
//!
//! A run is as fast as the slower of the two, or slower where both share the cores of one CPU. The two rates
//! show which one to improve, and how much that can gain at most. With the CPU times, the gain of a change
//! can be predicted (`stokehold_diagnose::advice`).

use std::thread;
use std::time::{Duration, Instant};

use cpu_time::ProcessTime;
use serde::{Deserialize, Serialize};
use stokehold_base::stats::percentile;
use stokehold_profile::Contention;

use crate::TrainError;
use crate::config::TrainConfig;
use crate::device;
use crate::learner::{At, Learner, Objective, Trainer};
use stokehold_loader::{Batch, BatchNumbers, ImageBuffer, Loader, Pixels};

/// Neither measurement starts another batch after this time.
const LIMIT: Duration = Duration::from_secs(10);
/// How often to check whether the workers are done.
const POLL: Duration = Duration::from_millis(1);

/// The speed of one half of a run by itself.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ceiling {
    /// Images per second of wall time.
    pub images_per_second: f64,
    /// CPU time of all threads per image, seconds; `None` if the platform does not provide it.
    pub cpu_seconds: Option<f64>,
    /// Time per image, summed over threads, for which other programs kept them from a core, seconds; 0 if the
    /// platform does not provide it, and for a loader, whose threads come and go.
    pub delay_seconds: f64,
}

/// Measures the loader without training, over at least `batches` batches from the beginning of `epoch` on. If
/// the loader makes its batches on the device, that is included. Also returns the first batch. `None` for an
/// epoch without a batch.
///
/// The wall time runs from before the first worker starts to the arrival of the last batch, over the number
/// of epochs that this takes; batches that the workers prefetch beyond the last one do not count. The CPU
/// time is that of all images that were loaded, prefetched ones included.
pub(crate) fn of_loader(
    loader: &Loader,
    epoch: u64,
    batches: usize,
) -> Result<Option<(Ceiling, Batch)>, TrainError> {
    let (begin, cpu) = (Instant::now(), ProcessTime::try_now().ok());
    let (mut first, mut arrived, mut images) = (None, 0, 0);
    for epoch in epoch.. {
        let before = arrived;
        let mut coming = loader.epoch(epoch);
        while let Some(batch) = coming.next().transpose()? {
            arrived += 1;
            images += batch.labels.len();
            // A part of a batch may be empty.
            if !batch.labels.is_empty() {
                first.get_or_insert(batch);
            }
            if arrived >= batches || begin.elapsed() > LIMIT {
                let images_per_second = images as f64 / begin.elapsed().as_secs_f64();
                while coming.loading() > 0 {
                    thread::sleep(POLL);
                }
                let cpu = cpu.and_then(|cpu| cpu.try_elapsed().ok());
                for _ in 0..coming.in_flight() {
                    images += coming.next().transpose()?.map_or(0, |batch| batch.labels.len());
                }
                let ceiling = Ceiling {
                    images_per_second,
                    cpu_seconds: cpu.map(|cpu| cpu.as_secs_f64() / images as f64),
                    delay_seconds: 0.0,
                };
                return Ok(first.map(|first| (ceiling, first)));
            }
        }
        if arrived == before {
            break;
        }
    }
    Ok(None)
}

/// Measures the trainer on one batch that is always ready: the median of at most `steps` steps, at least one.
/// The trainer is consumed, with what it learns here.
pub(crate) fn of_trainer(
    mut trainer: Trainer,
    objective: &Objective,
    batch: &Batch,
    steps: usize,
) -> Result<Ceiling, TrainError> {
    // An emulated accelerator makes up for a delay before its next deadline.
    let before = trainer.learner().and_then(|_| Contention::now());
    let begin = Instant::now();
    let (mut seconds, mut cpu_seconds) = (Vec::new(), Vec::new());
    while seconds.is_empty() || (seconds.len() < steps && begin.elapsed() < LIMIT) {
        let same = batch.clone();
        let (start, cpu) = (Instant::now(), ProcessTime::try_now().ok());
        // A learning rate of 0 keeps the numbers finite however many steps there are, and costs the same.
        (trainer, _) = trainer.step(objective, same, At::default())?;
        seconds.push(start.elapsed().as_secs_f64());
        cpu_seconds.extend(cpu.and_then(|cpu| Some(cpu.try_elapsed().ok()?.as_secs_f64())));
    }
    // Over all steps, because one step is short compared to the kernel's ticks.
    let delay = before.and_then(|before| Some(before.delay_until(Contention::now()?).as_secs_f64()));
    let images = batch.labels.len() as f64;
    let median = percentile(&seconds, 50.0).unwrap_or(f64::INFINITY);
    Ok(Ceiling {
        images_per_second: images / median.max(1e-9),
        cpu_seconds: percentile(&cpu_seconds, 50.0).map(|median| median / images),
        delay_seconds: delay.unwrap_or(0.0) / (images * seconds.len() as f64),
    })
}

/// What training an image takes with the second configuration, over what it takes with the first: of `turns` turns in alternation,
/// after one to warm up. On the CPU it is CPU time, which other programs hardly disturb, on other devices wall time. The images are
/// grey, which costs as much as any other.
///
/// Returns the median of the turns' ratios; `None` if not three quarters of the turns agree on which one takes less.
///
/// # Errors
/// The device does not exist, or fails, for example for lack of memory.
pub fn step_ratio(
    configs: [&TrainConfig; 2],
    classes: usize,
    turns: usize,
) -> Result<Option<f64>, TrainError> {
    let device = device::open(configs[0].device)?;
    let on_cpu = device::kind(&device::name(&device)) == "cpu";
    let learner = |config: &TrainConfig| Learner::new(config, classes, device.clone());
    let mut learners = [learner(configs[0])?, learner(configs[1])?].map(Some);
    let mut ratios = Vec::new();
    for turn in 0..=turns {
        let mut costs = [0.0; 2];
        for side in 0..2 {
            let (config, images) = (configs[side], configs[side].batch_size);
            let (width, height) = config.pipeline.check()?;
            let shape = [images, 3, height as usize, width as usize];
            let grey = BatchNumbers::F32(vec![0.0; shape.iter().product()]);
            let mut batch = Batch::new(Pixels::Host(ImageBuffer::from(grey)), shape);
            batch.labels = vec![0; images];
            batch.masks = vec![0; images * shape[2] * shape[3]];
            let (start, cpu) = (Instant::now(), ProcessTime::try_now().ok());
            let objective = config.objective(None);
            if let Some(learner) = learners[side].take() {
                let (learner, _) = learner.step(&objective, batch, At::default())?;
                learners[side] = Some(learner);
            }
            let cpu = cpu.filter(|_| on_cpu).and_then(|cpu| cpu.try_elapsed().ok());
            costs[side] = cpu.unwrap_or_else(|| start.elapsed()).as_secs_f64() / images as f64;
        }
        if turn > 0 {
            ratios.push(costs[1] / costs[0].max(1e-9));
        }
    }
    let less = ratios.iter().filter(|ratio| **ratio < 1.0).count();
    let agree = less.max(ratios.len() - less) * 4 >= ratios.len() * 3;
    Ok(percentile(&ratios, 50.0).filter(|_| agree))
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
        let (ceiling, first) = of_loader(&loader, 0, 8).unwrap().unwrap();
        let Ceiling {
            images_per_second: rate,
            cpu_seconds,
            ..
        } = ceiling;
        assert!(
            rate <= 400.0,
            "{rate} images/s from 2 workers that wait 5 ms an image"
        );
        // Waiting is no CPU time. Other tests of the process may run meanwhile, so this is no bound from above.
        assert!(cpu_seconds.unwrap() > 0.0);
        assert_eq!(first.shape, [2, 3, 32, 32]);
    }
}
