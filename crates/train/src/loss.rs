//! Losses as PyTorch's: cross-entropy with label smoothing, and the cross-entropy of pixels.

use burn::tensor::{Device, Int, Tensor, TensorData, activation};
use stokehold_storage::IGNORE;

/// Mean cross-entropy of logits `[N, C]` and class indices `[N]`; returns `[1]`.
///
/// With smoothing `s` in `[0, 1]` the target distribution is `(1 - s)` on the label plus `s / C` on every
/// class (Szegedy et al., 2016), which gives `(1 - s) * nll + s * mean over classes of -log p`.
pub fn cross_entropy(logits: Tensor<2>, targets: Tensor<1, Int>, label_smoothing: f32) -> Tensor<1> {
    let log_p = activation::log_softmax(logits, 1);
    let nll = log_p.clone().gather(1, targets.unsqueeze_dim(1)).mean().neg();
    if label_smoothing == 0.0 {
        return nll;
    }
    nll.mul_scalar(1.0 - label_smoothing) - log_p.mean().mul_scalar(label_smoothing)
}

/// Mean cross-entropy of logits `[N, C]` and shares of the classes `[N, C]`; returns `[1]`. As
/// `torch.nn.functional.cross_entropy` with probabilities as its target.
pub fn soft_cross_entropy(logits: Tensor<2>, shares: Tensor<2>, label_smoothing: f32) -> Tensor<1> {
    let shares = smoothed(shares, label_smoothing);
    (activation::log_softmax(logits, 1) * shares)
        .sum_dim(1)
        .mean()
        .neg()
}

/// `(1 - s) x share + s / C`.
fn smoothed(shares: Tensor<2>, label_smoothing: f32) -> Tensor<2> {
    if label_smoothing == 0.0 {
        return shares;
    }
    let classes = shares.dims()[1] as f32;
    shares
        .mul_scalar(1.0 - label_smoothing)
        .add_scalar(label_smoothing / classes)
}

/// The classes of a batch's pixels and their weights, on the device.
#[derive(Debug, Clone)]
pub struct PixelTargets {
    /// `[N, 1, H, W]`; 0 where there is none.
    classes: Tensor<4, Int>,
    /// The weight of each pixel divided by the sum of all, `[N, 1, H, W]`; 0 where there is no class.
    shares: Tensor<4>,
}

impl PixelTargets {
    /// Of `N * H * W` class numbers, 255 ([`IGNORE`]) where there is none, for images of `[N, .., H, W]`. `weights` has one
    /// number, 0 or more, for each class; every class has 1 without it.
    ///
    /// # Panics
    /// If there are not as many class numbers as pixels.
    pub fn new(masks: &[u8], [n, _, h, w]: [usize; 4], weights: Option<&[f32]>, device: &Device) -> Self {
        assert_eq!(masks.len(), n * h * w, "a class number for every pixel");
        let weight = |class: u8| match (class, weights) {
            (IGNORE, _) => 0.0,
            (_, None) => 1.0,
            (class, Some(weights)) => weights.get(usize::from(class)).copied().unwrap_or(0.0),
        };
        let sum: f64 = masks.iter().map(|&class| f64::from(weight(class))).sum();
        let factor = if sum > 0.0 { 1.0 / sum } else { 0.0 };
        let shares = masks
            .iter()
            .map(|&class| (f64::from(weight(class)) * factor) as f32);
        let classes = masks
            .iter()
            .map(|&class| if class == IGNORE { 0 } else { i32::from(class) });
        let (shares, classes): (Vec<f32>, Vec<i32>) = (shares.collect(), classes.collect());
        Self {
            classes: Tensor::from_data(TensorData::new(classes, [n, 1, h, w]), device),
            shares: Tensor::from_data(TensorData::new(shares, [n, 1, h, w]), device),
        }
    }
}

/// Mean cross-entropy of the pixels of logits `[N, C, H, W]`, weighted by class; returns `[1]`. As
/// `torch.nn.CrossEntropyLoss(weight=weights, ignore_index=255)`, but for a batch without any class, or of classes of weight
/// 0 only: there PyTorch has NaN, and this is 0, so that the batch changes nothing.
pub fn pixel_cross_entropy(logits: Tensor<4>, targets: &PixelTargets) -> Tensor<1> {
    let log_p = activation::log_softmax(logits, 1).gather(1, targets.classes.clone());
    (log_p * targets.shares.clone()).sum().neg()
}
