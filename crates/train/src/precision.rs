//! Training with numbers of fewer bits, as `torch.amp` does it.
//!
//! Weights, gradients and the optimiser's state stay f32 ("master weights"). In a step the images are cast to the smaller
//! type; convolutions and the linear layer cast their weights to the type of what they are given; batch normalisation
//! computes in f32, and its statistics are f32; the logits are cast back, so that the loss is f32. A gradient passes each
//! cast in the other direction. Validation, predictions and moving averages are in f32.
//!
//! bf16 has the range of f32. f16 does not: small gradients become 0. So the loss is multiplied by a [`LossScale`] before the
//! gradients are computed, and they are divided by it afterwards.

use std::fmt;
use std::str::FromStr;

use burn::tensor::{Device, FloatDType};
use serde::{Deserialize, Serialize};

use crate::TrainError;

/// The type of the numbers that a training step computes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// 32 bits.
    #[default]
    F32,
    /// 16 bits, 8 of them for the exponent, as in f32.
    Bf16,
    /// 16 bits, 5 of them for the exponent; the loss is scaled.
    F16,
}

impl Precision {
    /// Every precision.
    pub const ALL: [Precision; 3] = [Precision::F32, Precision::Bf16, Precision::F16];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
        }
    }

    pub(crate) fn dtype(self) -> FloatDType {
        match self {
            Self::F32 => FloatDType::F32,
            Self::Bf16 => FloatDType::BF16,
            Self::F16 => FloatDType::F16,
        }
    }

    /// # Errors
    /// The device does not compute with such numbers. The CPU would convert every number of f16, which takes four times as long
    /// as f32.
    pub(crate) fn check(self, device: &Device) -> Result<(), TrainError> {
        let name = crate::device::name(device);
        let problem = if self == Self::F16 && crate::device::kind(&name) == "cpu" {
            "f16 is not for the CPU; choose f32 or bf16 there, or a GPU".to_owned()
        } else if device.supports_dtype(self.dtype()) {
            return Ok(());
        } else {
            format!("the device {name} does not compute in {self}; choose f32, or another device")
        };
        Err(TrainError::Config {
            field: "precision",
            problem,
        })
    }
}

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An unknown name of a precision.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no precision '{0}': choose one of f32, bf16, f16")]
pub struct UnknownPrecision(pub String);

impl FromStr for Precision {
    type Err = UnknownPrecision;

    fn from_str(name: &str) -> Result<Self, UnknownPrecision> {
        let known = Self::ALL.into_iter().find(|precision| precision.name() == name);
        known.ok_or_else(|| UnknownPrecision(name.to_owned()))
    }
}

/// The factor of an f16 run's loss: that of `torch.amp.GradScaler` with its defaults. It begins at 65536, is halved after every
/// step whose gradients are not finite, which changes no weight, and doubled after 2000 steps in a row that were.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossScale {
    /// The factor.
    pub factor: f64,
    /// Steps in a row with finite gradients.
    pub steps: u64,
}

impl LossScale {
    const GROWS_AFTER: u64 = 2000;

    /// The scale after a step.
    #[must_use]
    pub fn after(self, finite: bool) -> Self {
        match (finite, self.steps + 1) {
            (false, _) => Self {
                factor: self.factor * 0.5,
                steps: 0,
            },
            (true, Self::GROWS_AFTER) => Self {
                factor: self.factor * 2.0,
                steps: 0,
            },
            (true, steps) => Self { steps, ..self },
        }
    }
}

impl Default for LossScale {
    fn default() -> Self {
        Self {
            factor: 65536.0,
            steps: 0,
        }
    }
}
