//! Losses with label smoothing, as PyTorch's: cross-entropy, and binary cross-entropy of every class.

use burn::tensor::{Int, Tensor, activation};
use serde::{Deserialize, Serialize};

/// The loss that a run trains with. Validation has cross-entropy always.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LossKind {
    /// [`cross_entropy`]
    #[default]
    CrossEntropy,
    /// [`binary_cross_entropy`]: every class is a question of its own, as in "ResNet strikes back" (Wightman et al., 2021).
    Bce,
}

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

/// Mean binary cross-entropy over all images and classes, of logits `[N, C]` and shares of the classes `[N, C]`; returns
/// `[1]`. As `torch.nn.functional.binary_cross_entropy_with_logits`. With a threshold, every smoothed share above it becomes
/// 1, and the others 0 (timm's `--bce-target-thresh`).
pub fn binary_cross_entropy(
    logits: Tensor<2>,
    shares: Tensor<2>,
    label_smoothing: f32,
    threshold: Option<f32>,
) -> Tensor<1> {
    let mut shares = smoothed(shares, label_smoothing);
    if let Some(threshold) = threshold {
        shares = shares.greater_elem(threshold).float();
    }
    // max(x, 0) - x t + ln(1 + exp(-|x|)), which does not overflow.
    let rest = logits.clone().abs().neg().exp().log1p();
    (logits.clone().clamp_min(0.0) - logits * shares + rest).mean()
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
