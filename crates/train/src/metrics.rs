//! Top-1 and top-k accuracy of images, and the confusion matrix of pixels, counted on the host.

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::device::{self, DeviceError};

/// Counts how often the label is the top guess, and how often it is among the first `k`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Accuracy {
    k: usize,
    seen: usize,
    first: usize,
    among: usize,
}

impl Accuracy {
    /// With zero samples. `k` is 1 or more; if `k` is at least the number of classes, every sample counts as
    /// right.
    pub fn new(k: usize) -> Self {
        Self {
            k,
            seen: 0,
            first: 0,
            among: 0,
        }
    }

    /// Counts a batch: logits `[N, C]` and `N` labels.
    ///
    /// Among equal logits the lower class comes first. A sample with a NaN among its logits counts as wrong.
    ///
    /// # Errors
    /// If the device fails to return the logits.
    pub fn add(&mut self, logits: Tensor<2>, labels: &[u32]) -> Result<(), DeviceError> {
        let [_, classes] = logits.dims();
        let logits = device::read(logits)?;
        for (row, &label) in logits.chunks_exact(classes).zip(labels) {
            let rank = rank(row, label as usize);
            self.seen += 1;
            self.first += usize::from(rank == Some(0));
            self.among += usize::from(rank.is_some_and(|rank| rank < self.k));
        }
        Ok(())
    }

    /// Adds another one's samples, counted with the same k.
    pub(crate) fn add_all(&mut self, other: &Self) {
        self.seen += other.seen;
        self.first += other.first;
        self.among += other.among;
    }

    /// Samples counted.
    pub fn seen(&self) -> usize {
        self.seen
    }

    /// Share of samples whose label has the highest logit, 0 to 1; 0 without samples.
    pub fn top1(&self) -> f64 {
        self.first as f64 / self.seen.max(1) as f64
    }

    /// Share of samples whose label is among the `k` highest logits.
    pub fn topk(&self) -> f64 {
        self.among as f64 / self.seen.max(1) as f64
    }

    /// The `k` of top-k.
    pub fn k(&self) -> usize {
        self.k
    }
}

/// The number of classes that rank before the label; `None` if a logit is NaN.
pub(crate) fn rank(row: &[f32], label: usize) -> Option<usize> {
    let own = *row.get(label)?;
    if row.iter().any(|x| x.is_nan()) {
        return None;
    }
    Some(
        row.iter()
            .enumerate()
            .filter(|&(class, &x)| x > own || (x == own && class < label))
            .count(),
    )
}

/// How often pixels of each class were predicted to be of each class, as the `ConfusionMatrix` of torchvision's
/// `references/segmentation`. Pixels without a class do not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confusion {
    classes: usize,
    /// Row by row: a row for each class, a column for each predicted class.
    pixels: Vec<u64>,
}

impl Confusion {
    /// Without a pixel.
    pub fn new(classes: usize) -> Self {
        Self {
            classes,
            pixels: vec![0; classes * classes],
        }
    }

    /// Counts pixels by their class, 255 ([`stokehold_storage::IGNORE`]) where there is none, and the predicted one. A number that is no class
    /// does not count.
    pub fn add(&mut self, truth: &[u8], predicted: &[u8]) {
        for (&class, &predicted) in truth.iter().zip(predicted) {
            let (class, predicted) = (usize::from(class), usize::from(predicted));
            if class.max(predicted) < self.classes {
                self.pixels[class * self.classes + predicted] += 1;
            }
        }
    }

    /// Adds another one's pixels, of the same classes.
    pub(crate) fn add_all(&mut self, other: &Self) {
        for (own, other) in self.pixels.iter_mut().zip(&other.pixels) {
            *own += other;
        }
    }

    /// Pixels of a class that were predicted to be of a class.
    pub fn pixels(&self, class: usize, predicted: usize) -> u64 {
        self.pixels[class * self.classes + predicted]
    }

    /// Pixels of a class.
    pub fn of_class(&self, class: usize) -> u64 {
        (0..self.classes)
            .map(|predicted| self.pixels(class, predicted))
            .sum()
    }

    /// Pixels that were predicted to be of a class.
    pub fn predicted(&self, predicted: usize) -> u64 {
        (0..self.classes).map(|class| self.pixels(class, predicted)).sum()
    }

    /// Share of the pixels whose class was predicted, 0 to 1; 0 without pixels.
    pub fn pixel_accuracy(&self) -> f64 {
        let right: u64 = (0..self.classes).map(|class| self.pixels(class, class)).sum();
        right as f64 / self.pixels.iter().sum::<u64>().max(1) as f64
    }

    /// Intersection over union of a class: the pixels that are of it and were predicted to be, of those that are one or the
    /// other; 0 to 1. `None` if there are none (NaN in torchvision's).
    pub fn iou(&self, class: usize) -> Option<f64> {
        let right = self.pixels(class, class);
        let union = self.of_class(class) + self.predicted(class) - right;
        (union > 0).then(|| right as f64 / union as f64)
    }

    /// Mean of [`Confusion::iou`] over the classes that have one; 0 without pixels.
    pub fn mean_iou(&self) -> f64 {
        let ious: Vec<f64> = (0..self.classes).filter_map(|class| self.iou(class)).collect();
        ious.iter().sum::<f64>() / ious.len().max(1) as f64
    }
}

/// The class with the highest of the logits `[N, C, H, W]`, of every pixel; C is at most 255.
///
/// # Errors
/// If the device fails to return them.
pub(crate) fn most_probable(logits: Tensor<4>) -> Result<Vec<u8>, DeviceError> {
    let classes = logits.argmax(1).float();
    Ok(device::read(classes)?
        .into_iter()
        .map(|class| class as u8)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn::tensor::Device;

    fn accuracy(k: usize, logits: [[f32; 3]; 4], labels: [u32; 4]) -> Accuracy {
        let mut accuracy = Accuracy::new(k);
        accuracy
            .add(Tensor::from_data(logits, &Device::flex()), &labels)
            .unwrap();
        accuracy
    }

    #[test]
    fn counts_first_and_first_k_guesses() {
        let logits = [[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [0.0, 5.0, 1.0]];
        let counted = accuracy(2, logits, [0, 1, 2, 1]);
        assert_eq!((counted.top1(), counted.topk(), counted.seen()), (0.5, 0.75, 4));
    }

    #[test]
    fn a_constant_model_gets_no_credit_from_ties() {
        let counted = accuracy(2, [[1.0; 3]; 4], [0, 1, 2, 2]);
        assert_eq!((counted.top1(), counted.topk()), (0.25, 0.5));
    }

    #[test]
    fn a_diverged_model_is_never_right() {
        let counted = accuracy(3, [[f32::NAN, 0.0, 1.0]; 4], [0, 1, 2, 2]);
        assert_eq!((counted.top1(), counted.topk()), (0.0, 0.0));
    }
}
