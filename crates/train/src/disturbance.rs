//! Measures how much loading slows a training step down: a step while the loader loads, against the same step
//! alone.
//!
//! Taking a batch makes the loader start the next one. So a pair of steps is: take a batch, make a step while
//! the workers load (as in training), wait until they have finished, make the same step again. The ratio is
//! taken within each pair, because the machine was then equally busy for both.

use std::thread;
use std::time::{Duration, Instant};

use burn::tensor::Device;
use serde::Serialize;
use stokehold_base::stats::percentile;
use stokehold_loader::{Loader, LoaderError, Stage};

use crate::TrainError;
use crate::device;
use crate::learner::{At, Learner, Objective};
use crate::model::{Arch, Network};
use crate::optim::{Optimizer, OptimizerConfig};

/// How often to check whether the workers are done.
const POLL: Duration = Duration::from_millis(1);

/// Steps next to a loader and alone.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Disturbance {
    /// The device that computed.
    pub device: String,
    /// Seconds of each step while the loader loaded.
    pub beside: Vec<f64>,
    /// Seconds of the same steps alone.
    pub alone: Vec<f64>,
    /// Median over the pairs of next to / alone: 1 is no slowdown.
    pub slowdown: f64,
    /// The smallest and the largest ratio.
    pub spread: [f64; 2],
    /// Mean time that the workers spend on one batch, in seconds, all workers together.
    pub load_seconds: f64,
}

/// Makes `pairs` pairs of steps of `arch` with the loader's batches on its device; `classes` is above every label.
///
/// # Errors
/// The loader fails, or never loads a batch while another is trained on: then its epochs need more batches
/// than it prefetches. The device does not exist, or fails.
pub fn disturbance(
    loader: &Loader,
    arch: Arch,
    classes: usize,
    plain: &Device,
    pairs: usize,
) -> Result<Disturbance, TrainError> {
    let mut learner = Learner {
        model: Network::new(arch, classes, 0, &plain.clone().autodiff()),
        optimizer: Optimizer::new(OptimizerConfig::SGD)?,
        ema: None,
        device: plain.clone(),
    };
    let (mut beside, mut alone) = (Vec::with_capacity(pairs), Vec::with_capacity(pairs));
    let (mut worked, mut loaded, mut warm) = (Duration::ZERO, 0u32, false);
    for epoch in 0.. {
        let before = loaded;
        let mut batches = loader.epoch(epoch);
        while batches.loading() > 0 {
            thread::sleep(POLL);
        }
        while let Some(batch) = batches.next().transpose()? {
            if batches.in_flight() < loader.prefetch() {
                break; // The epoch ends, and nothing is loaded any more.
            }
            let stages = batch.spans.iter().filter(|span| span.stage != Stage::Batch);
            worked += stages.map(|span| span.duration).sum();
            loaded += 1;
            for seconds in [&mut beside, &mut alone] {
                let same = batch.clone();
                let start = Instant::now();
                // A learning rate of 0 keeps the numbers finite however many steps there are, and costs the
                // same.
                (learner, _) = learner.step(&Objective::default(), same, At::default())?;
                if warm {
                    seconds.push(start.elapsed().as_secs_f64());
                }
                while batches.loading() > 0 {
                    thread::sleep(POLL);
                }
            }
            warm = true;
            if alone.len() >= pairs {
                break;
            }
        }
        if alone.len() >= pairs {
            break;
        }
        if loaded == before {
            return Err(TrainError::Loader(LoaderError::Options {
                reason: format!(
                    "{} batches an epoch, and {} are prefetched: nothing is left to load beside a step; use more \
                     images or a smaller batch size",
                    loader.batches_per_epoch(),
                    loader.prefetch()
                ),
            }));
        }
    }
    let ratios: Vec<f64> = beside
        .iter()
        .zip(&alone)
        .map(|(beside, alone)| beside / alone)
        .collect();
    let of = |p| percentile(&ratios, p).unwrap_or(f64::NAN);
    Ok(Disturbance {
        device: device::name(plain),
        slowdown: of(50.0),
        spread: [of(0.0), of(100.0)],
        load_seconds: worked.as_secs_f64() / f64::from(loaded.max(1)),
        beside,
        alone,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DeviceChoice;
    use std::sync::Arc;
    use stokehold_loader::{LoaderOptions, Workers};
    use stokehold_pipeline::Pipeline;
    use stokehold_storage::{ImageFolder, SlowSource};

    fn loader(images: usize, dir: &std::path::Path) -> Loader {
        let bytes = include_bytes!("../../../hostile/small.jpg");
        for i in 0..images {
            std::fs::write(dir.join(format!("{i}.jpg")), bytes).unwrap();
        }
        let source = SlowSource::new(ImageFolder::unlabelled(dir).unwrap(), Duration::from_millis(3));
        let options = LoaderOptions {
            batch_size: 2,
            workers: "1".parse::<Workers>().unwrap(),
            ..LoaderOptions::default()
        };
        Loader::new(Arc::new(source), Pipeline::imagenet_train(32), options).unwrap()
    }

    /// Seven batches an epoch leave five pairs in it, so eight pairs take a second epoch.
    #[test]
    fn steps_come_in_pairs_with_a_batch_loaded_beside_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let device = device::open(DeviceChoice::Cpu).unwrap();
        let loader = loader(14, dir.path());
        let found = disturbance(&loader, Arch::Resnet18, 3, &device, 8).unwrap();
        assert_eq!((found.beside.len(), found.alone.len()), (8, 8));
        assert!(found.spread[0] <= found.slowdown && found.slowdown <= found.spread[1]);
        // Two reads of 3 ms in every batch.
        assert!(found.load_seconds >= 0.006, "{found:?}");
    }

    #[test]
    fn too_few_batches_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let device = device::open(DeviceChoice::Cpu).unwrap();
        let loader = loader(4, dir.path());
        let error = disturbance(&loader, Arch::Resnet18, 3, &device, 1).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("2 batches an epoch, and 2 are prefetched"),
            "{error}"
        );
    }
}
