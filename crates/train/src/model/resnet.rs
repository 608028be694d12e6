//! ResNet (He et al., 2015) with the stride of a bottleneck on its 3x3 convolution, as torchvision has it
//! ("v1.5").

use burn::module::Module;
use burn::tensor::ops::MaxPoolOptions;
use burn::tensor::{Device, Tensor, activation, module};

use super::Arch;
use super::init::Draws;
use super::layers::{BatchNorm, Conv, Linear};

/// A residual block: two 3x3 convolutions (basic) or 1x1, 3x3, 1x1 (bottleneck), and the shortcut around
/// them.
#[derive(Module, Debug)]
pub struct Block {
    conv1: Conv,
    bn1: BatchNorm,
    conv2: Conv,
    bn2: BatchNorm,
    conv3: Option<Conv>,
    bn3: Option<BatchNorm>,
    downsample: Option<(Conv, BatchNorm)>,
}

impl Block {
    fn new(
        arch: Arch,
        input: usize,
        width: usize,
        [stride, dilation]: [usize; 2],
        draws: &mut Draws,
        device: &Device,
    ) -> Self {
        let output = width * arch.expansion();
        let bottleneck = arch.expansion() > 1;
        let (kernel1, stride1, stride2) = if bottleneck {
            (1, 1, stride)
        } else {
            (3, stride, 1)
        };
        let around = stride != 1 || input != output;
        Self {
            // A 1x1 convolution has nothing to dilate.
            conv1: Conv::new([input, width], kernel1, stride1, draws, device).dilated(dilation),
            bn1: BatchNorm::new(width, device),
            conv2: Conv::new([width, width], 3, stride2, draws, device).dilated(dilation),
            bn2: BatchNorm::new(width, device),
            conv3: bottleneck.then(|| Conv::new([width, output], 1, 1, draws, device)),
            bn3: bottleneck.then(|| BatchNorm::new(output, device)),
            downsample: around.then(|| {
                (
                    Conv::new([input, output], 1, stride, draws, device),
                    BatchNorm::new(output, device),
                )
            }),
        }
    }

    /// `[N, C, H, W]` to `[N, C', H / stride, W / stride]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let shortcut = match &self.downsample {
            Some((conv, bn)) => bn.forward(conv.forward(x.clone())),
            None => x.clone(),
        };
        let y = activation::relu(self.bn1.forward(self.conv1.forward(x)));
        let mut y = self.bn2.forward(self.conv2.forward(y));
        if let (Some(conv3), Some(bn3)) = (&self.conv3, &self.bn3) {
            y = bn3.forward(conv3.forward(activation::relu(y)));
        }
        activation::relu(y + shortcut)
    }
}

/// A residual network for RGB images of any size from 32 x 32 up: a classifier, or the backbone of a segmenter.
///
/// `Clone` shares the running statistics of batch normalisation with the original: use [`Module::valid`] for
/// a copy of the current model.
#[derive(Module, Debug)]
pub struct ResNet {
    conv1: Conv,
    bn1: BatchNorm,
    layer1: Vec<Block>,
    layer2: Vec<Block>,
    layer3: Vec<Block>,
    layer4: Vec<Block>,
    /// None in a backbone.
    fc: Option<Linear>,
}

impl ResNet {
    /// A classifier with torchvision's initialisation, the same bits for the same `seed` on every device.
    ///
    /// Convolutions are normal with variance `2 / fan_out`, batch normalisation starts as the identity, `fc`
    /// is uniform in `±1/sqrt(features)`. Pass `device.autodiff()` for training.
    ///
    /// # Panics
    /// If `classes` is 0.
    pub fn new(arch: Arch, classes: usize, seed: u64, device: &Device) -> Self {
        Self::drawn(arch, classes, &mut Draws::new(seed), device)
    }

    pub(super) fn drawn(arch: Arch, classes: usize, draws: &mut Draws, device: &Device) -> Self {
        assert!(classes > 0, "a classifier needs at least one class");
        let backbone = Self::backbone(arch, draws, device);
        let [_, features] = arch.features();
        Self {
            fc: Some(Linear::new(features, classes, draws, device)),
            ..backbone
        }
    }

    /// The layers before the last one. Stages that the architecture dilates keep the size of their input
    /// (`replace_stride_with_dilation` of torchvision): from their second block on, the points of a 3x3 kernel are as
    /// far apart as a stride would have made them.
    pub(super) fn backbone(arch: Arch, draws: &mut Draws, device: &Device) -> Self {
        let (mut channels, mut dilation) = (64, 1);
        let mut layer = |stage: usize, draws: &mut Draws| -> Vec<Block> {
            let width = 64 << stage;
            let (stride, before) = (if stage > 0 { 2 } else { 1 }, dilation);
            let stride = match arch.dilates(stage) {
                true => {
                    dilation *= stride;
                    1
                }
                false => stride,
            };
            (0..arch.blocks()[stage])
                .map(|block| {
                    let step = if block == 0 {
                        [stride, before]
                    } else {
                        [1, dilation]
                    };
                    let made = Block::new(arch, channels, width, step, draws, device);
                    channels = width * arch.expansion();
                    made
                })
                .collect()
        };
        Self {
            conv1: Conv::new([3, 64], 7, 2, draws, device),
            bn1: BatchNorm::new(64, device),
            layer1: layer(0, draws),
            layer2: layer(1, draws),
            layer3: layer(2, draws),
            layer4: layer(3, draws),
            fc: None,
        }
    }

    /// `[N, 3, H, W]`, normalised, to logits `[N, classes]`.
    ///
    /// # Panics
    /// If it is the backbone of a segmenter.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        let [_, x] = self.features(x);
        let x = module::adaptive_avg_pool2d(x, [1, 1]).flatten::<2>(1, 3);
        self.fc
            .as_ref()
            .expect("a classifier has a last layer")
            .forward(x)
    }

    /// What the third and the fourth stage make of images.
    pub(super) fn features(&self, x: Tensor<4>) -> [Tensor<4>; 2] {
        let x = activation::relu(self.bn1.forward(self.conv1.forward(x)));
        let mut x = module::max_pool2d(
            x,
            MaxPoolOptions::new([3, 3])
                .with_stride([2, 2])
                .with_padding([1, 1]),
        );
        let through = |stage: &[Block], x| stage.iter().fold(x, |x, block| block.forward(x));
        x = through(&self.layer1, x);
        x = through(&self.layer2, x);
        let third = through(&self.layer3, x);
        let fourth = through(&self.layer4, third.clone());
        [third, fourth]
    }

    /// The number of classes; 0 of a backbone.
    pub fn classes(&self) -> usize {
        self.fc.as_ref().map_or(0, |fc| fc.bias.dims()[0])
    }

    /// Fixes everything but `fc`: no gradients, and batch normalisation uses its running statistics without
    /// updating them, also in training. The features of an image are then a constant function of it.
    pub fn freeze_backbone(self) -> Self {
        Self {
            conv1: self.conv1.freeze(),
            bn1: self.bn1.freeze(),
            layer1: self.layer1.freeze(),
            layer2: self.layer2.freeze(),
            layer3: self.layer3.freeze(),
            layer4: self.layer4.freeze(),
            fc: self.fc,
        }
    }
}
