//! The networks: ResNet-18, -34, -50, -101 and -152, and the segmenters FCN and DeepLabV3, as torchvision builds them.
//!
//! The modules are named and shaped so that a parameter's path in the module tree *is* torchvision's key
//! (`layer1.0.conv1.weight`, `backbone.layer2.0.downsample.1.running_var`, `classifier.4.bias`), and every array has
//! PyTorch's layout. So weights, optimiser state and gradients are loaded and saved by name without a table of
//! renamings.
//!
//! [`Network`] is any of them. It differs in what it says: [`Logits`] of images, or of pixels.

mod arch;
mod init;
mod layers;
mod noise;
mod resnet;
mod segmenter;
mod synced;

use burn::module::Module;
use burn::tensor::{Device, FloatDType, Tensor};

use init::Draws;

pub use arch::{Arch, UnknownArch};
pub use layers::{BatchNorm, Conv, Linear};
pub use noise::Noise;
pub use resnet::{Block, ResNet};
pub use segmenter::{PixelLogits, Segmenter};
pub(crate) use synced::synchronised;

/// The layers whose outputs are classes, by name. No other layers but normalisation have a bias.
pub(crate) const LAST_LAYERS: [&str; 3] = ["fc", "classifier.4", "aux_classifier.4"];

/// A network that can be trained.
#[derive(Module, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one of it, and modules have no boxes"
)]
pub enum Network {
    /// It says the class of an image.
    Classifier(ResNet),
    /// It says the class of every pixel.
    Segmenter(Segmenter),
}

/// What a network says of a batch.
#[derive(Debug, Clone)]
#[expect(clippy::large_enum_variant, reason = "there is one of it in a step")]
pub enum Logits {
    /// Of every image: `[N, classes]`.
    Images(Tensor<2>),
    /// Of every pixel.
    Pixels(PixelLogits),
}

impl Network {
    /// A network with the initial weights of a seed, as [`ResNet::new`].
    ///
    /// # Panics
    /// If `classes` is 0.
    pub fn new(arch: Arch, classes: usize, seed: u64, device: &Device) -> Self {
        Self::drawn(arch, classes, &mut Draws::new(seed), device)
    }

    /// The same network with weights of 0, to be loaded from a file.
    ///
    /// # Panics
    /// If `classes` is 0.
    pub fn to_be_loaded(arch: Arch, classes: usize, device: &Device) -> Self {
        Self::drawn(arch, classes, &mut Draws::zeros(), device)
    }

    fn drawn(arch: Arch, classes: usize, draws: &mut Draws, device: &Device) -> Self {
        match arch.segments() {
            true => Self::Segmenter(Segmenter::drawn(arch, classes, draws, device)),
            false => Self::Classifier(ResNet::drawn(arch, classes, draws, device)),
        }
    }

    /// `[N, 3, H, W]`, normalised, to logits, without noise; no auxiliary ones.
    pub fn forward(&self, x: Tensor<4>) -> Logits {
        match self {
            Self::Classifier(resnet) => Logits::Images(resnet.forward(x)),
            Self::Segmenter(segmenter) => Logits::Pixels(PixelLogits {
                out: segmenter.forward(x),
                aux: None,
            }),
        }
    }

    /// The logits of a training batch, in f32 whatever the numbers of the images.
    pub fn forward_train(&self, x: Tensor<4>, noise: &Noise) -> Logits {
        match self {
            Self::Classifier(resnet) => Logits::Images(resnet.forward(x).cast(FloatDType::F32)),
            Self::Segmenter(segmenter) => Logits::Pixels(segmenter.forward_train(x, Some(noise))),
        }
    }

    /// The number of classes.
    pub fn classes(&self) -> usize {
        match self {
            Self::Classifier(resnet) => resnet.classes(),
            Self::Segmenter(segmenter) => segmenter.classes(),
        }
    }

    /// Fixes everything but the layers after the backbone, as [`ResNet::freeze_backbone`].
    pub fn freeze_backbone(self) -> Self {
        match self {
            Self::Classifier(resnet) => Self::Classifier(resnet.freeze_backbone()),
            Self::Segmenter(segmenter) => Self::Segmenter(segmenter.freeze_backbone()),
        }
    }
}
