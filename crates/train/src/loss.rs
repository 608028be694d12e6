//! Cross-entropy with label smoothing, as `torch.nn.functional.cross_entropy`.

use burn::tensor::{Int, Tensor, activation};

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
