//! The published table of the load experiment, shown next to our rows.
//!
//! AWS, "Accelerate computer vision training using GPU preprocessing with NVIDIA DALI on Amazon SageMaker",
//! 2022: Imagenette (9,469 training images), batch 32, 8 vCPU and one V100. Its two trials do unequal work:
//! trial B flips and rotates by fixed values and crops the centre, and trial A does not shuffle.

use stokehold_train::model::Arch;

use crate::Trial;

/// Seconds per epoch of trials A and B, by network and load.
const ROWS: [(Arch, u32, f64, f64); 12] = [
    (Arch::Resnet18, 1, 41.67, 21.30),
    (Arch::Resnet18, 4, 49.95, 21.37),
    (Arch::Resnet18, 8, 61.92, 21.08),
    (Arch::Resnet18, 12, 77.82, 21.33),
    (Arch::Resnet50, 1, 72.64, 46.94),
    (Arch::Resnet50, 4, 75.21, 45.02),
    (Arch::Resnet50, 8, 81.22, 46.29),
    (Arch::Resnet50, 12, 88.89, 46.43),
    (Arch::Resnet152, 1, 166.96, 119.96),
    (Arch::Resnet152, 4, 169.68, 115.23),
    (Arch::Resnet152, 8, 169.03, 117.73),
    (Arch::Resnet152, 12, 173.18, 114.38),
];

/// By how many percent B was better in the published experiment; `None` for a trial that is not its B, DALI.
pub(crate) fn better_by(trial: Trial, model: Arch, load: u32) -> Option<f64> {
    if !matches!(trial, Trial::Dali | Trial::DaliGpu) {
        return None;
    }
    let row = ROWS.iter().find(|row| (row.0, row.1) == (model, load))?;
    Some(100.0 * (row.2 - row.3) / row.2)
}

/// What a reader has to know before comparing with these rows.
pub(crate) const NOTE: &str = "Published: AWS, 2022, DataLoader against DALI on 8 vCPU and a V100, 9,469 images. Its trials do unequal \
    work: B flips and rotates by fixed values and crops the centre, A does not shuffle.";

#[cfg(test)]
mod tests {
    use super::*;

    /// The published percentages, some of which are cut off after two digits.
    #[test]
    fn the_rows_give_the_published_percentages() {
        let published = [
            48.88, 57.21, 65.95, 72.59, 35.37, 40.14, 43.00, 47.76, 28.15, 32.08, 30.34, 33.95,
        ];
        for (row, percent) in ROWS.iter().zip(published) {
            let ours = better_by(Trial::Dali, row.0, row.1).unwrap();
            assert!((ours - percent).abs() <= 0.02, "{row:?}: {ours}");
        }
        assert_eq!(better_by(Trial::Dali, Arch::Resnet34, 1), None);
        assert_eq!(better_by(Trial::Fused, Arch::Resnet18, 1), None);
    }
}
