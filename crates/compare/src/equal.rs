//! Evidence that the native trials do the same work: the same samples, nearly the same pixels, and the same learning.
//!
//! Each trial's loader makes the first batches of the first epoch, and Burn trains a small network on them. The
//! labels must be equal. The pixels are compared as a peak signal-to-noise ratio: executors resample
//! differently, so they are not equal to the bit.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};
use stokehold_loader::{Loader, LoaderOptions};
use stokehold_pipeline::{Executor, Pipeline};
use stokehold_storage::Images;
use stokehold_train::device::DeviceChoice;
use stokehold_train::model::Arch;
use stokehold_train::{GpuOptions, Steps};

use crate::CompareError;
use crate::plan::{Plan, TrainerPlan, Trial};

/// Steps of the training.
const STEPS: u64 = 8;
/// Width and height of the training's images: quick on a CPU.
const SIZE: u32 = 32;
/// Images whose pixels are compared.
const PIXELS_OF: usize = 32;
/// ImageNet's standard deviation, by channel: what undoes the normalisation.
const STD: [f32; 3] = [0.229, 0.224, 0.225];

/// A short real training of each native trial, at the highest load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EqualWork {
    /// The network.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub model: Arch,
    /// The load.
    pub load: u32,
    /// Steps made.
    pub steps: u64,
    /// The native trials, in order.
    pub trials: Vec<Trial>,
    /// The mean training loss of each.
    pub losses: Vec<f64>,
    /// Whether all were trained on the same labels in the same order.
    pub same_labels: bool,
    /// How far the pixels of the others are from the first trial's, at the plan's image size: the least and the mean
    /// peak signal-to-noise ratio of an image, dB. `None` where all pixels are equal.
    pub psnr: Option<[f64; 2]>,
}

/// Whether a plan has two native trials that make images on the CPU, and the published pipeline.
pub(crate) fn is_possible(plan: &Plan) -> bool {
    plan.pipeline.is_none() && cpu_trials(plan).count() >= 2
}

fn cpu_trials(plan: &Plan) -> impl Iterator<Item = (Trial, Executor)> {
    let executors = plan.trials.iter().map(|&trial| (trial, trial.executor()));
    executors.filter_map(|(trial, executor)| Some((trial, executor.filter(|by| *by != Executor::Gpu)?)))
}

/// Trains each native trial for some steps; `None` if stopped meanwhile.
///
/// # Errors
/// The loader or the training fails.
pub(crate) fn measure(
    plan: &Plan,
    images: &Images,
    stop: &AtomicBool,
) -> Result<Option<EqualWork>, CompareError> {
    let load = plan.loads.iter().copied().max().unwrap_or(1);
    let mut small = plan.clone();
    small.image_size = SIZE;
    small.trainer = TrainerPlan::Burn {
        device: DeviceChoice::Cpu,
        gpu: GpuOptions::default(),
    };
    let (mut losses, mut labels) = (Vec::new(), Vec::new());
    for (_, executor) in cpu_trials(plan) {
        let config = small.config(Arch::Resnet18, load, Trial::Fused, executor);
        let made = Steps::open(config, images.clone().without_masks())?.make(STEPS, stop)?;
        if stop.load(Ordering::Relaxed) {
            return Ok(None);
        }
        losses.push(made.loss.unwrap_or(f64::NAN));
        labels.push((made.labels, made.images));
    }
    let mut batches = Vec::new();
    for (_, executor) in cpu_trials(plan) {
        batches.push(first_batch(plan, images, load, executor)?);
    }
    Ok(Some(EqualWork {
        model: Arch::Resnet18,
        load,
        steps: STEPS,
        trials: cpu_trials(plan).map(|(trial, _)| trial).collect(),
        losses,
        same_labels: labels.windows(2).all(|pair| pair[0] == pair[1])
            && batches.windows(2).all(|pair| pair[0].1 == pair[1].1),
        psnr: psnr(&batches, plan.image_size),
    }))
}

/// The first batch of the first epoch: its numbers and its labels.
fn first_batch(
    plan: &Plan,
    images: &Images,
    load: u32,
    executor: Executor,
) -> Result<(Vec<f32>, Vec<u32>), CompareError> {
    let options = LoaderOptions {
        batch_size: plan.batch_size.min(PIXELS_OF),
        shuffle: true,
        seed: plan.seed,
        executor,
        ..LoaderOptions::default()
    };
    let pipeline = Pipeline::published(load, plan.image_size);
    let loader = Loader::new(Arc::new(images.clone()), pipeline, options)?;
    match loader.epoch(0).next().transpose()? {
        Some(batch) => {
            let numbers = batch.pixels.into_f32().map(|numbers| numbers.to_vec());
            Ok((numbers.unwrap_or_default(), batch.labels))
        }
        None => Ok((Vec::new(), Vec::new())),
    }
}

/// The least and the mean ratio of the images of the other batches to those of the first; `None` if all are equal.
fn psnr(batches: &[(Vec<f32>, Vec<u32>)], size: u32) -> Option<[f64; 2]> {
    let (first, rest) = batches.split_first()?;
    let plane = (size * size) as usize;
    let ratios: Vec<f64> = rest
        .iter()
        .flat_map(|other| first.0.chunks(3 * plane).zip(other.0.chunks(3 * plane)))
        .filter_map(|(one, other)| of_image(one, other, plane))
        .collect();
    let least = ratios.iter().copied().reduce(f64::min)?;
    Some([least, ratios.iter().sum::<f64>() / ratios.len() as f64])
}

/// 20 log10 (peak / root of the mean squared error), on the scale of 0 to 255; `None` if equal.
fn of_image(one: &[f32], other: &[f32], plane: usize) -> Option<f64> {
    let squares: f64 = one
        .iter()
        .zip(other)
        .enumerate()
        .map(|(number, (one, other))| {
            let std = STD[(number / plane.max(1)).min(2)];
            f64::from(255.0 * std * (one - other)).powi(2)
        })
        .sum();
    (squares > 0.0).then(|| 10.0 * (255.0f64.powi(2) / (squares / one.len() as f64)).log10())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_that_of_the_definition() {
        // Every value is off by 1 of 255: 20 log10(255) = 48.13 dB.
        let off: Vec<f32> = (0..12).map(|number| 1.0 / 255.0 / STD[number / 4]).collect();
        let both = [(vec![0.0; 12], vec![]), (off, vec![])];
        let [least, mean] = psnr(&both, 2).unwrap();
        assert!(
            (least - 48.13).abs() < 0.01 && (mean - least).abs() < 1e-9,
            "{least} {mean}"
        );
        assert_eq!(psnr(&[both[0].clone(), both[0].clone()], 2), None);
    }
}
