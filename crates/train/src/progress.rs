//! How far a run has come: the part of a checkpoint besides the weights and the optimiser.
//!
//! It includes the sums of the current epoch and of the current logging interval, so that a resumed run
//! writes the same lines as an uninterrupted one.

use std::fmt;

use serde::{Deserialize, Serialize};
use stokehold_loader::{BadImage, State};

/// How far a run has come.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Optimiser steps made.
    pub step: u64,
    /// The next batch of the current epoch; `None` before its first batch.
    pub position: Option<State>,
    /// The finished epochs, validation included.
    pub epochs: Vec<EpochRecord>,
    /// The epoch of [`Progress::epochs`] whose model is the best; a moving average does not count.
    pub best: Option<Best>,
    /// Sums over the current epoch.
    pub epoch: Sums,
    /// Sums since the last line of the metrics.
    pub interval: Sums,
    /// Bad images seen so far, each once.
    pub bad_training: Vec<BadImage>,
    /// The same among the validation images.
    pub bad_validation: Vec<BadImage>,
}

impl Progress {
    /// Adds a finished epoch, and records whether it is the best: the one with the highest top-1 accuracy, or
    /// mean IoU of a segmenter (among equals the lower validation loss), or with the lowest training loss if there is no validation.
    pub(crate) fn finish_epoch(&mut self, record: EpochRecord) {
        let best = self
            .best
            .and_then(|best| self.epochs.iter().find(|epoch| epoch.epoch == best.epoch));
        if best.is_none_or(|best| record.better_than(best)) {
            self.best = Some(Best {
                epoch: record.epoch,
                step: record.step,
            });
        }
        self.epochs.push(record);
        self.epoch = Sums::default();
        self.position = None;
    }

    /// Sums over everything trained so far.
    pub(crate) fn total(&self) -> Sums {
        let finished = self.epochs.iter().map(|epoch| epoch.sums);
        finished.fold(self.epoch, |total, epoch| Sums {
            loss: total.loss + epoch.loss,
            images: total.images + epoch.images,
            seconds: total.seconds + epoch.seconds,
            waited: total.waited + epoch.waited,
        })
    }
}

/// Sums over a range of training steps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    /// Sum of the images' losses.
    pub loss: f64,
    /// Images trained on.
    pub images: u64,
    /// Wall time, including waits, but not checkpoints and validation, seconds.
    pub seconds: f64,
    /// Wall time in which the trainer waited for a batch, seconds.
    pub waited: f64,
}

impl Sums {
    /// Counts one step over `images` images with a mean loss of `loss`.
    pub(crate) fn add(&mut self, loss: f32, images: usize, seconds: f64, waited: f64) {
        self.loss += f64::from(loss) * images as f64;
        self.images += images as u64;
        self.seconds += seconds;
        self.waited += waited;
    }

    /// Mean loss per image; 0 without images.
    pub fn mean_loss(&self) -> f64 {
        ratio(self.loss, self.images as f64)
    }

    /// Images trained on per second of wall time; 0 without time.
    pub fn images_per_second(&self) -> f64 {
        ratio(self.images as f64, self.seconds)
    }

    /// Share of the wall time in which the trainer waited for batches, 0 to 1.
    pub fn wait_share(&self) -> f64 {
        ratio(self.waited, self.seconds)
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// A finished epoch.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EpochRecord {
    /// Its number, from 1.
    pub epoch: u64,
    /// Steps made since the start of the run.
    pub step: u64,
    /// Learning rate of its last step.
    pub lr: f64,
    /// Its training steps.
    pub sums: Sums,
    /// The validation after it; `None` without validation images.
    pub validation: Option<Validation>,
    /// The same of the moving average of the weights; `None` without one.
    pub ema: Option<Validation>,
}

impl EpochRecord {
    fn better_than(&self, other: &Self) -> bool {
        match (self.validation, other.validation) {
            (Some(own), Some(other)) => {
                let (score, other_score) = (own.scores.best_by(), other.scores.best_by());
                score > other_score || (score == other_score && own.loss < other.loss)
            }
            _ => self.sums.mean_loss() < other.sums.mean_loss(),
        }
    }
}

/// Results of the model on the whole validation set.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Validation {
    /// Mean cross-entropy per image, or per pixel that has a class, without label smoothing and weights of classes. It does
    /// not depend on the batch size.
    pub loss: f64,
    /// How often the model is right.
    #[serde(flatten)]
    pub scores: Scores,
    /// The number of images in these figures.
    pub images: u64,
    /// Images of the validation set, bad ones included.
    pub of: u64,
}

/// How often a model is right.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Scores {
    /// Of a classifier.
    Images {
        /// Share of images whose class is the top guess, 0 to 1.
        top1: f64,
        /// Share of images whose class is among the first `k` guesses, 0 to 1.
        topk: f64,
        /// The k of `topk`, at most the number of classes.
        k: usize,
    },
    /// Of a segmenter.
    Pixels {
        /// Mean over the classes of the intersection over union, 0 to 1, as in torchvision's references. Classes that are
        /// neither there nor predicted are left out.
        miou: f64,
        /// Share of the pixels that have a class whose class is the top guess, 0 to 1.
        pixel_accuracy: f64,
    },
}

impl Scores {
    /// What makes an epoch the best one.
    fn best_by(&self) -> f64 {
        match *self {
            Self::Images { top1, .. } => top1,
            Self::Pixels { miou, .. } => miou,
        }
    }

    /// Top-1 and top-k accuracy of a classifier.
    pub fn of_images(&self) -> Option<[f64; 2]> {
        match *self {
            Self::Images { top1, topk, .. } => Some([top1, topk]),
            Self::Pixels { .. } => None,
        }
    }

    /// Mean IoU and pixel accuracy of a segmenter.
    pub fn of_pixels(&self) -> Option<[f64; 2]> {
        match *self {
            Self::Images { .. } => None,
            Self::Pixels { miou, pixel_accuracy } => Some([miou, pixel_accuracy]),
        }
    }
}

impl fmt::Display for Scores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Images { top1, topk, k } => write!(f, "top-1 {top1:.4} top-{k} {topk:.4}"),
            Self::Pixels { miou, pixel_accuracy } => {
                write!(f, "mIoU {miou:.4} pixel accuracy {pixel_accuracy:.4}")
            }
        }
    }
}

impl Validation {
    /// The number of images in the figures, in words.
    pub fn over(&self) -> String {
        let Self { images, of, .. } = self;
        match images < of {
            true => format!("over {images} of {of} images"),
            false => format!("over {images} images"),
        }
    }
}

/// The epoch with the best model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Best {
    /// The epoch, from 1.
    pub epoch: u64,
    /// Steps made until its end.
    pub step: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(epoch: u64, top1: f64, loss: f64) -> EpochRecord {
        let validation = Some(Validation {
            loss,
            scores: Scores::Images {
                top1,
                topk: 1.0,
                k: 5,
            },
            images: 10,
            of: 10,
        });
        EpochRecord {
            epoch,
            step: epoch * 10,
            lr: 0.1,
            sums: Sums::default(),
            validation,
            ema: None,
        }
    }

    #[test]
    fn the_best_epoch_has_the_highest_accuracy_then_the_lowest_loss() {
        let mut progress = Progress::default();
        for (epoch, top1, loss, best) in [
            (1, 0.5, 1.0, 1),
            (2, 0.4, 0.5, 1),
            (3, 0.5, 0.9, 3),
            (4, 0.5, 0.9, 3),
            (5, 0.6, 2.0, 5),
        ] {
            progress.finish_epoch(record(epoch, top1, loss));
            assert_eq!(
                progress.best,
                Some(Best {
                    epoch: best,
                    step: best * 10
                })
            );
        }
    }

    #[test]
    fn without_validation_the_training_loss_decides() {
        let mut progress = Progress::default();
        for (epoch, loss, best) in [(1, 2.0, 1), (2, 1.0, 2), (3, 1.5, 2)] {
            let mut sums = Sums::default();
            sums.add(loss, 4, 2.0, 0.5);
            progress.finish_epoch(EpochRecord {
                validation: None,
                sums,
                ..record(epoch, 0.0, 0.0)
            });
            assert_eq!(progress.best.unwrap().epoch, best);
        }
        let total = progress.total();
        assert_eq!(
            (total.mean_loss(), total.images_per_second(), total.wait_share()),
            (1.5, 2.0, 0.25)
        );
    }
}
