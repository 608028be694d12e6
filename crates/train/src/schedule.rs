//! The learning rate as a pure function of the step: a schedule has no state to save.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

/// The learning rate after the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum ScheduleKind {
    /// Constant.
    Constant,
    /// Multiplied by `gamma` after every `every_epochs` epochs of the run (`StepLR`).
    Step {
        /// Epochs between two steps, 1 or more.
        every_epochs: u64,
        /// Factor, above 0.
        gamma: f64,
    },
    /// Falls along half a cosine to `final_factor` times the base rate at the end of the run, step by step
    /// (`CosineAnnealingLR` over the steps after the warm-up).
    Cosine {
        /// Share of the base rate that is left at the end, 0 to 1.
        final_factor: f64,
    },
}

/// A schedule with its warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct ScheduleConfig {
    /// The shape after the warm-up.
    #[serde(flatten)]
    pub kind: ScheduleKind,
    /// Epochs, or a part of one, over which the rate rises linearly to the base rate; 0 for none.
    pub warmup_epochs: f64,
}

/// Invalid numbers of a schedule.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// Negative or NaN.
    #[error("warm-up of {0} epochs: give 0 or more")]
    Warmup(f64),
    /// `every_epochs` is 0, or `gamma` is not above 0.
    #[error("a step of {gamma} every {every_epochs} epochs: give a factor above 0 and 1 epoch or more")]
    Step {
        /// As given.
        every_epochs: u64,
        /// As given.
        gamma: f64,
    },
    /// Outside 0 to 1.
    #[error("a cosine schedule that ends at {0} times the rate: give 0 to 1")]
    FinalFactor(f64),
}

impl ScheduleConfig {
    /// The base rate throughout.
    pub const CONSTANT: Self = Self {
        kind: ScheduleKind::Constant,
        warmup_epochs: 0.0,
    };

    /// Whether the rate of a step depends on how many epochs the run has.
    pub fn depends_on_epochs(&self) -> bool {
        matches!(self.kind, ScheduleKind::Cosine { .. })
    }

    /// # Errors
    /// If a number is out of its range.
    pub fn check(&self) -> Result<(), ScheduleError> {
        if !(self.warmup_epochs.is_finite() && self.warmup_epochs >= 0.0) {
            return Err(ScheduleError::Warmup(self.warmup_epochs));
        }
        match self.kind {
            ScheduleKind::Step { every_epochs, gamma }
                if every_epochs == 0 || !(gamma.is_finite() && gamma > 0.0) =>
            {
                Err(ScheduleError::Step { every_epochs, gamma })
            }
            ScheduleKind::Cosine { final_factor } if !(0.0..=1.0).contains(&final_factor) => {
                Err(ScheduleError::FinalFactor(final_factor))
            }
            _ => Ok(()),
        }
    }

    /// The rate of `step`, counted from 0 over the whole run.
    ///
    /// Over the `W` steps of warm-up the rate is multiplied by `(step + 1) / W` (Goyal et al., 2017;
    /// `LinearLR` with `start_factor` `1/W` and `total_iters` `W - 1`). The cosine begins after them, as
    /// under `SequentialLR`. Steps are counted in epochs from the start of the run, as under
    /// `ChainedScheduler`.
    pub fn lr(&self, base_lr: f64, step: u64, steps_per_epoch: u64, epochs: u64) -> f64 {
        let warmup = (self.warmup_epochs * steps_per_epoch as f64).round();
        let rise = if (step as f64) < warmup {
            (step as f64 + 1.0) / warmup
        } else {
            1.0
        };
        base_lr * rise * self.factor(step, warmup, steps_per_epoch, epochs)
    }

    fn factor(&self, step: u64, warmup: f64, steps_per_epoch: u64, epochs: u64) -> f64 {
        match self.kind {
            ScheduleKind::Constant => 1.0,
            ScheduleKind::Step { every_epochs, gamma } => {
                let epoch = step / steps_per_epoch.max(1);
                gamma.powf((epoch / every_epochs.max(1)) as f64)
            }
            ScheduleKind::Cosine { final_factor } => {
                let after = (epochs * steps_per_epoch) as f64 - warmup;
                let done = ((step as f64 - warmup) / after.max(1.0)).clamp(0.0, 1.0);
                final_factor + (1.0 - final_factor) * 0.5 * (1.0 + (PI * done).cos())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_refused_with_the_allowed_range() {
        let step = ScheduleConfig {
            kind: ScheduleKind::Step {
                every_epochs: 0,
                gamma: 0.1,
            },
            warmup_epochs: 0.0,
        };
        assert!(step.check().unwrap_err().to_string().contains("1 epoch or more"));
        let warmup = ScheduleConfig {
            kind: ScheduleKind::Constant,
            warmup_epochs: f64::NAN,
        };
        assert!(warmup.check().unwrap_err().to_string().contains("0 or more"));
        let cosine = ScheduleConfig {
            kind: ScheduleKind::Cosine { final_factor: 2.0 },
            warmup_epochs: 0.0,
        };
        assert!(cosine.check().is_err());
        assert_eq!(ScheduleConfig::CONSTANT.check(), Ok(()));
    }

    #[test]
    fn a_schedule_is_written_flat() {
        let step = ScheduleConfig {
            kind: ScheduleKind::Step {
                every_epochs: 3,
                gamma: 0.5,
            },
            warmup_epochs: 1.0,
        };
        let json = serde_json::to_string(&step).unwrap();
        assert_eq!(
            json,
            r#"{"kind":"step","every_epochs":3,"gamma":0.5,"warmup_epochs":1.0}"#
        );
        assert_eq!(serde_json::from_str::<ScheduleConfig>(&json).unwrap(), step);
    }
}
