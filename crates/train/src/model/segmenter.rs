//! FCN and DeepLabV3 as torchvision builds them: a dilated ResNet, heads of convolutions, and their logits
//! enlarged to the image's size.
//!
//! A head is a tuple, because torchvision's is a `Sequential`: a layer's place in it is a part of its name.

use burn::module::Module;
use burn::tensor::{Device, FloatDType, Tensor, TensorData, activation, module};

use super::Arch;
use super::init::Draws;
use super::layers::{BatchNorm, Conv};
use super::noise::{Dropped, Noise};
use super::resnet::ResNet;

/// A network that says the class of every pixel.
#[derive(Module, Debug)]
pub struct Segmenter {
    backbone: ResNet,
    classifier: Head,
    /// A head on the third stage, for the loss of training only.
    aux_classifier: Option<FcnHead>,
}

#[derive(Module, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one of it, and modules have no boxes"
)]
enum Head {
    Fcn(FcnHead),
    DeepLab(DeepLabHead),
}

type FcnHead = (Conv, BatchNorm, Relu, Dropout, Conv);
type DeepLabHead = (Aspp, Conv, BatchNorm, Relu, Conv);

/// Atrous spatial pyramid pooling: what the same place says at several scales, and what the whole image says.
#[derive(Module, Debug)]
struct Aspp {
    convs: (ConvNorm, ConvNorm, ConvNorm, ConvNorm, (Mean, Conv, BatchNorm)),
    project: (Conv, BatchNorm, Relu, Dropout),
}

type ConvNorm = (Conv, BatchNorm, Relu);

/// The rates of DeepLabV3's dilated convolutions, for features of an 8th of the image's size.
const RATES: [usize; 3] = [12, 24, 36];
/// The channels within DeepLabV3's head.
const WIDTH: usize = 256;

/// The logits of a training batch: of the head, and of the auxiliary head if there is one; each `[N, classes, H, W]`.
#[derive(Debug, Clone)]
pub struct PixelLogits {
    /// Of the head.
    pub out: Tensor<4>,
    /// Of the auxiliary head.
    pub aux: Option<Tensor<4>>,
}

impl Segmenter {
    /// A model with torchvision's initialisation, as [`ResNet::new`]. Heads have PyTorch's default: uniform in
    /// `±1/sqrt(fan_in)`.
    pub(super) fn drawn(arch: Arch, classes: usize, draws: &mut Draws, device: &Device) -> Self {
        assert!(classes > 0, "a segmenter needs at least one class");
        let [third, fourth] = arch.features();
        Self {
            backbone: ResNet::backbone(arch, draws, device),
            classifier: match arch {
                Arch::Deeplabv3Resnet50 => Head::DeepLab(deeplab(fourth, classes, draws, device)),
                _ => Head::Fcn(fcn(fourth, classes, draws, device)),
            },
            aux_classifier: (arch != Arch::FcnResnet18).then(|| fcn(third, classes, draws, device)),
        }
    }

    /// `[N, 3, H, W]`, normalised, to logits `[N, classes, H, W]`; without dropout.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let [_, _, h, w] = x.dims();
        let [_, fourth] = self.backbone.features(x);
        enlarged(
            self.classifier.forward(fourth, None).cast(FloatDType::F32),
            [h, w],
        )
    }

    /// The logits of a training batch, with what the noise leaves out; with all there is if there is none.
    pub fn forward_train(&self, x: Tensor<4>, noise: Option<&Noise>) -> PixelLogits {
        let [_, _, h, w] = x.dims();
        let [third, fourth] = self.backbone.features(x);
        let dropped = |head| noise.map(|noise| noise.dropped(head));
        let aux = self.aux_classifier.as_ref();
        let f32 = |logits: Tensor<4>| logits.cast(FloatDType::F32);
        PixelLogits {
            out: enlarged(f32(self.classifier.forward(fourth, dropped(0))), [h, w]),
            aux: aux.map(|head| enlarged(f32(forward_fcn(head, third, dropped(1))), [h, w])),
        }
    }

    /// The number of classes.
    pub fn classes(&self) -> usize {
        let (Head::Fcn((.., last)) | Head::DeepLab((.., last))) = &self.classifier;
        last.weight.dims()[0]
    }

    /// Fixes everything but the heads, as [`ResNet::freeze_backbone`].
    pub fn freeze_backbone(self) -> Self {
        Self {
            backbone: self.backbone.freeze_backbone(),
            ..self
        }
    }
}

impl Head {
    fn forward(&self, x: Tensor<4>, dropped: Option<Dropped>) -> Tensor<4> {
        match self {
            Self::Fcn(head) => forward_fcn(head, x, dropped),
            Self::DeepLab((aspp, conv, norm, relu, last)) => {
                let x = aspp.forward(x, dropped);
                last.forward(relu.forward(norm.forward(conv.forward(x))))
            }
        }
    }
}

fn fcn(input: usize, classes: usize, draws: &mut Draws, device: &Device) -> FcnHead {
    let width = input / 4;
    (
        Conv::of_head([input, width], 3, draws, device),
        BatchNorm::new(width, device),
        Relu {},
        Dropout { probability: 0.1 },
        Conv::last([width, classes], draws, device),
    )
}

fn forward_fcn(
    (conv, norm, relu, dropout, last): &FcnHead,
    x: Tensor<4>,
    dropped: Option<Dropped>,
) -> Tensor<4> {
    let x = relu.forward(norm.forward(conv.forward(x)));
    last.forward(dropout.forward(x, dropped))
}

fn deeplab(input: usize, classes: usize, draws: &mut Draws, device: &Device) -> DeepLabHead {
    (
        Aspp::new(input, draws, device),
        Conv::of_head([WIDTH, WIDTH], 3, draws, device),
        BatchNorm::new(WIDTH, device),
        Relu {},
        Conv::last([WIDTH, classes], draws, device),
    )
}

impl Aspp {
    fn new(input: usize, draws: &mut Draws, device: &Device) -> Self {
        let mut conv = |kernel, rate| -> ConvNorm {
            (
                Conv::of_head([input, WIDTH], kernel, draws, device).dilated(rate),
                BatchNorm::new(WIDTH, device),
                Relu {},
            )
        };
        let (one, [a, b, c]) = (conv(1, 1), RATES.map(|rate| conv(3, rate)));
        let pooled = Conv::of_head([input, WIDTH], 1, draws, device);
        Self {
            convs: (one, a, b, c, (Mean {}, pooled, BatchNorm::new(WIDTH, device))),
            project: (
                Conv::of_head([5 * WIDTH, WIDTH], 1, draws, device),
                BatchNorm::new(WIDTH, device),
                Relu {},
                Dropout { probability: 0.5 },
            ),
        }
    }

    fn forward(&self, x: Tensor<4>, dropped: Option<Dropped>) -> Tensor<4> {
        let [_, _, h, w] = x.dims();
        let (one, a, b, c, (mean, conv, norm)) = &self.convs;
        let [one, a, b, c] =
            [one, a, b, c].map(|(conv, norm, relu)| relu.forward(norm.forward(conv.forward(x.clone()))));
        let pooled = activation::relu(norm.forward(conv.forward(mean.forward(x))));
        let x = Tensor::cat(vec![one, a, b, c, enlarged(pooled, [h, w])], 1);
        let (conv, norm, relu, dropout) = &self.project;
        dropout.forward(relu.forward(norm.forward(conv.forward(x))), dropped)
    }
}

/// max(x, 0).
#[derive(Module, Debug)]
struct Relu {}

impl Relu {
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        activation::relu(x)
    }
}

/// Leaves out numbers in training, and divides the others by the probability of staying.
#[derive(Module, Debug)]
struct Dropout {
    probability: f64,
}

impl Dropout {
    fn forward(&self, x: Tensor<4>, dropped: Option<Dropped>) -> Tensor<4> {
        match dropped {
            Some(dropped) => {
                let factors = dropped.factors(self.probability, x.dims(), &x.device());
                let dtype = x.dtype();
                x * factors.cast(dtype)
            }
            None => x,
        }
    }
}

/// The mean of each channel, `[N, C, 1, 1]`.
#[derive(Module, Debug)]
struct Mean {}

impl Mean {
    fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        module::adaptive_avg_pool2d(x, [1, 1])
    }
}

/// `[N, C, h, w]` to another height and width, as `torch.nn.functional.interpolate(mode="bilinear",
/// align_corners=False)`.
///
/// The numbers of its sums are f32. It is a product with two matrices, because not every backend has the gradient of its interpolation.
fn enlarged(x: Tensor<4>, [height, width]: [usize; 2]) -> Tensor<4> {
    let [n, channels, h, w] = x.dims();
    let device = x.device();
    let matrix = |from, to| Tensor::<2>::from_data(TensorData::new(shares(from, to), [to, from]), &device);
    let dtype = x.dtype();
    let x = x
        .cast(FloatDType::F32)
        .reshape([n * channels * h, w])
        .matmul(matrix(w, width).transpose());
    let rows = matrix(h, height).unsqueeze::<3>();
    let x = rows.matmul(x.reshape([n * channels, h, width]));
    x.reshape([n, channels, height, width]).cast(dtype)
}

/// The shares of `from` numbers in each of `to` numbers, row by row.
fn shares(from: usize, to: usize) -> Vec<f32> {
    let mut shares = vec![0.0; to * from];
    for (place, row) in shares.chunks_exact_mut(from).enumerate() {
        let source = ((place as f64 + 0.5) * from as f64 / to as f64 - 0.5).max(0.0);
        let first = (source as usize).min(from - 1);
        let share = source - first as f64;
        row[first] += (1.0 - share) as f32;
        row[(first + 1).min(from - 1)] += share as f32;
    }
    shares
}
