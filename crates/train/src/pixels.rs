//! What a run of a segmenter needs of its data: pairs of images and masks, and the weights of their classes.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, available_parallelism};

use serde::{Deserialize, Serialize};
use stokehold_loader::{Loader, mask_table};
use stokehold_pipeline::Mask;
use stokehold_storage::{Images, Source};

use crate::TrainError;
use crate::config::TrainConfig;
use crate::model::Arch;

/// The weights of the classes in the loss of pixels.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClassWeights {
    /// All the same.
    #[default]
    Even,
    /// The pixels of the training masks that have a class, divided by the number of classes and the pixels of the class; 0
    /// for a class without pixels. As scikit-learn's `class_weight="balanced"`.
    Balanced,
    /// One for each class, 0 or more, at least one of them above 0.
    Each(Vec<f32>),
}

impl FromStr for ClassWeights {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "balanced" {
            return Ok(Self::Balanced);
        }
        let weights: Result<Vec<f32>, _> = text.split(',').map(|number| number.trim().parse()).collect();
        match weights {
            Ok(weights) if Self::are_weights(&weights) => Ok(Self::Each(weights)),
            _ => Err("give balanced, or a number of 0 or more for each class: 1,0.5,2".to_owned()),
        }
    }
}

impl fmt::Display for ClassWeights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Even => f.write_str("even"),
            Self::Balanced => f.write_str("balanced"),
            Self::Each(weights) => {
                let weights: Vec<String> = weights.iter().map(f32::to_string).collect();
                f.write_str(&weights.join(","))
            }
        }
    }
}

impl ClassWeights {
    fn are_weights(weights: &[f32]) -> bool {
        weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0)
            && weights.iter().any(|weight| *weight > 0.0)
    }

    /// Whether they can be the weights of classes.
    pub(crate) fn are_in_range(&self) -> bool {
        match self {
            Self::Even | Self::Balanced => true,
            Self::Each(weights) => Self::are_weights(weights),
        }
    }

    /// The weights of these images' classes; `None` if all are 1.
    ///
    /// # Errors
    /// There is not one for each class.
    pub(crate) fn of(&self, images: &Images, classes: usize) -> Result<Option<Vec<f32>>, TrainError> {
        match self {
            Self::Even => Ok(None),
            Self::Each(weights) if weights.len() == classes => Ok(Some(weights.clone())),
            Self::Each(weights) => Err(TrainError::Config {
                field: "class weights",
                problem: format!(
                    "there are {}, and the data have {classes} classes; give one for each, in their order",
                    weights.len()
                ),
            }),
            Self::Balanced => Ok(Some(balanced(&pixels(images, classes)))),
        }
    }
}

/// The weights of classes with this many pixels.
fn balanced(pixels: &[u64]) -> Vec<f32> {
    let all: u64 = pixels.iter().sum();
    let weight = |&of: &u64| match of {
        0 => 0.0,
        of => (all as f64 / (pixels.len() as f64 * of as f64)) as f32,
    };
    pixels.iter().map(weight).collect()
}

/// The pixels of each class in all masks that can be read; the loader names the others.
fn pixels(images: &Images, classes: usize) -> Vec<u64> {
    let Some(table) = images.pixel_classes().map(mask_table) else {
        return vec![0; classes];
    };
    let next = AtomicUsize::new(0);
    let count = || {
        let (mut pixels, mut bytes) = (vec![0; classes], Vec::new());
        loop {
            let sample = next.fetch_add(1, Ordering::Relaxed);
            if sample >= images.len() {
                return pixels;
            }
            let read = images.read_mask(sample, &mut bytes);
            let Some(mask) = read.ok().and_then(|()| Mask::decode(&bytes, &table).ok()) else {
                continue;
            };
            for class in mask.data {
                if let Some(pixels) = pixels.get_mut(usize::from(class)) {
                    *pixels += 1;
                }
            }
        }
    };
    let threads = available_parallelism().map_or(1, usize::from);
    let counted: Vec<Vec<u64>> = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(count)).collect();
        let own = count();
        let others = others.into_iter().map(|thread| {
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        [own].into_iter().chain(others).collect()
    });
    (0..classes)
        .map(|class| counted.iter().map(|of| of[class]).sum())
        .collect()
}

/// The classes of the images, or of their pixels, by number.
pub(crate) fn classes(images: &Images) -> &[String] {
    match images.pixel_classes() {
        Some(classes) => &classes.names,
        None => images.classes(),
    }
}

/// Checks that the network is for this kind of data.
///
/// # Errors
/// A classifier and pairs of images and masks, or a segmenter and images of classes.
pub(crate) fn check_kind(arch: Arch, images: &Images) -> Result<(), TrainError> {
    let (has, wants, known) = match (images.pixel_classes().is_some(), arch.segments()) {
        (true, false) => (
            "pairs of images and masks",
            "classifies images",
            &Arch::SEGMENTERS[..],
        ),
        (false, true) => (
            "images of classes and no masks",
            "segments images",
            &Arch::CLASSIFIERS[..],
        ),
        _ => return Ok(()),
    };
    let known: Vec<&str> = known.iter().map(|arch| arch.name()).collect();
    Err(TrainError::Config {
        field: "network",
        problem: format!(
            "{} has {has}, and {arch} {wants}; choose one of {}, or give other data",
            images.root().display(),
            known.join(", ")
        ),
    })
}

/// Checks that an evaluation of images has a classifier, and one of pixels a segmenter.
///
/// # Errors
/// It is the other one.
pub(crate) fn check_evaluated(arch: Arch, by_pixel: bool) -> Result<(), TrainError> {
    if arch.segments() == by_pixel {
        return Ok(());
    }
    let problem = match by_pixel {
        true => format!("{arch} classifies images; evaluate its images, not their pixels"),
        false => format!("{arch} classifies pixels; evaluate those, not images"),
    };
    Err(TrainError::Config {
        field: "network",
        problem,
    })
}

/// Checks that no batch is too small for the network.
///
/// # Errors
/// DeepLabV3 would be trained on a batch of one image.
pub(crate) fn check_batches(config: &TrainConfig, loader: &Loader) -> Result<(), TrainError> {
    if config.arch != Arch::Deeplabv3Resnet50 {
        return Ok(());
    }
    let images = loader.order(0).len();
    let problem = match (config.batch_size, images % config.batch_size) {
        (1, _) => "must be at least 2".to_owned(),
        (size, 1) if !config.drop_last => format!(
            "leaves a last batch of one image ({images} images, {size} in a batch); leave that batch out (--drop-last), or give \
             another size"
        ),
        _ => return Ok(()),
    };
    Err(TrainError::Config {
        field: "batch size",
        problem: format!(
            "{problem}: {} normalises one number of each image over the batch",
            config.arch
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn balanced_weights_make_the_sum_over_pixels_that_of_even_ones() {
        let pixels = [100, 0, 300, 50];
        let weights = balanced(&pixels);
        assert_eq!(weights, [450.0 / 400.0, 0.0, 450.0 / 1200.0, 450.0 / 200.0]);
    }

    #[test]
    fn weights_are_a_list_or_balanced() {
        assert_eq!("balanced".parse(), Ok(ClassWeights::Balanced));
        assert_eq!("1, 0.5,0".parse(), Ok(ClassWeights::Each(vec![1.0, 0.5, 0.0])));
        for wrong in ["", "1,-1", "0,0", "1,nan", "1;2"] {
            assert!(wrong.parse::<ClassWeights>().is_err(), "{wrong}");
        }
    }
}
