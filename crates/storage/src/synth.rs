//! Photograph-like images where there are none.

use std::path::{Path, PathBuf};

use crate::StorageError;

/// What to generate.
#[derive(Debug, Clone, PartialEq)]
pub struct SynthOptions {
    /// Number of images, training and validation together; at least one a class.
    pub images: usize,
    /// Number of classes, 1..=100.
    pub classes: usize,
    /// The seed of everything that is drawn.
    pub seed: u64,
    /// The share of each class's images that goes to `val/`, 0 or more and below 1.
    pub val_fraction: f64,
}
