//! The names of the networks.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The available architectures, by torchvision's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Arch {
    /// 11.7 million parameters with 1000 classes.
    Resnet18,
    /// 21.8 million.
    Resnet34,
    /// 25.6 million.
    Resnet50,
    /// 44.5 million.
    Resnet101,
    /// 60.2 million.
    Resnet152,
    /// A segmenter for CPUs: the head of FCN on a ResNet-18 of which only the last stage is dilated, so that
    /// features are of a 16th of the image's height and width; 11.8 million parameters with 21 classes, no auxiliary head.
    #[serde(rename = "fcn-resnet18")]
    FcnResnet18,
    /// torchvision's `fcn_resnet50` with its auxiliary head (Long et al., "Fully Convolutional Networks for Semantic
    /// Segmentation", 2015): features of an 8th of the image's height and width, 35.3 million parameters with 21 classes.
    #[serde(rename = "fcn-resnet50")]
    FcnResnet50,
    /// torchvision's `deeplabv3_resnet50` with its auxiliary head (Chen et al., "Rethinking Atrous Convolution for
    /// Semantic Image Segmentation", 2017): 42.0 million parameters with 21 classes.
    #[serde(rename = "deeplabv3-resnet50")]
    Deeplabv3Resnet50,
}

impl Arch {
    /// The classifiers, smallest first.
    pub const CLASSIFIERS: [Arch; 5] = [
        Arch::Resnet18,
        Arch::Resnet34,
        Arch::Resnet50,
        Arch::Resnet101,
        Arch::Resnet152,
    ];
    /// The segmenters, smallest first.
    pub const SEGMENTERS: [Arch; 3] = [Arch::FcnResnet18, Arch::FcnResnet50, Arch::Deeplabv3Resnet50];

    /// The name on the command line and in files: torchvision's, with `-` for `_`.
    pub fn name(self) -> &'static str {
        match self {
            Arch::Resnet18 => "resnet18",
            Arch::Resnet34 => "resnet34",
            Arch::Resnet50 => "resnet50",
            Arch::Resnet101 => "resnet101",
            Arch::Resnet152 => "resnet152",
            Arch::FcnResnet18 => "fcn-resnet18",
            Arch::FcnResnet50 => "fcn-resnet50",
            Arch::Deeplabv3Resnet50 => "deeplabv3-resnet50",
        }
    }

    /// Whether it says the class of every pixel, and not of the image.
    pub fn segments(self) -> bool {
        Self::SEGMENTERS.contains(&self)
    }

    /// Blocks in each of the four stages.
    pub(super) fn blocks(self) -> [usize; 4] {
        match self {
            Arch::Resnet18 | Arch::FcnResnet18 => [2, 2, 2, 2],
            Arch::Resnet34 | Arch::Resnet50 | Arch::FcnResnet50 | Arch::Deeplabv3Resnet50 => [3, 4, 6, 3],
            Arch::Resnet101 => [3, 4, 23, 3],
            Arch::Resnet152 => [3, 8, 36, 3],
        }
    }

    /// The ratio of a block's output channels to those of its inner convolutions: 4 in bottlenecks, else 1.
    pub(super) fn expansion(self) -> usize {
        match self {
            Arch::Resnet18 | Arch::Resnet34 | Arch::FcnResnet18 => 1,
            _ => 4,
        }
    }

    /// Whether a stage, from 0, has dilation in place of its stride.
    pub(super) fn dilates(self, stage: usize) -> bool {
        match self {
            Arch::FcnResnet18 => stage == 3,
            Arch::FcnResnet50 | Arch::Deeplabv3Resnet50 => stage >= 2,
            _ => false,
        }
    }

    /// The channels after the third and the fourth stage.
    pub(super) fn features(self) -> [usize; 2] {
        [256, 512].map(|width| width * self.expansion())
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An unknown name of an architecture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no model '{0}': choose one of {known}", known = known())]
pub struct UnknownArch(pub String);

fn known() -> String {
    let all = Arch::CLASSIFIERS.into_iter().chain(Arch::SEGMENTERS);
    all.map(Arch::name).collect::<Vec<_>>().join(", ")
}

impl FromStr for Arch {
    type Err = UnknownArch;

    fn from_str(name: &str) -> Result<Self, UnknownArch> {
        Self::CLASSIFIERS
            .into_iter()
            .chain(Self::SEGMENTERS)
            .find(|arch| arch.name() == name)
            .ok_or_else(|| UnknownArch(name.to_string()))
    }
}
