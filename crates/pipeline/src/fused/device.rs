//! A plan in numbers: what a device gets to do.

use super::turned::TurnedTables;
use super::upright::UprightTables;
use crate::per_op::{self, Pointwise};

/// What a plan does to an image that is decoded, in numbers.
#[derive(Debug, Clone, PartialEq)]
pub struct Lowered {
    /// At least one, in order; the first one's source is the decoded file, the others' the pixels of the one before.
    pub stages: Vec<DeviceStage>,
    /// For each channel the number that becomes of each byte: to-float and normalisation.
    pub numbers: [[f32; 256]; 3],
    /// What covers parts of the finished numbers, in order.
    pub erased: Vec<Erased>,
}

/// One pass over all pixels.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceStage {
    /// Columns of the result.
    pub width: u32,
    /// Rows of the result.
    pub height: u32,
    /// What is done.
    pub work: DeviceWork,
    /// What is then done to each pixel; contrast is not among it.
    pub points: Vec<Pointwise>,
}

/// What a stage does.
#[derive(Debug, Clone, PartialEq)]
pub enum DeviceWork {
    /// Geometry.
    Resample(Box<Resample>),
    /// Blends with the mean luminance of the whole image.
    Contrast {
        /// At least 0.
        factor: f32,
    },
    /// Looks each level up in a table of its channel, which the histogram of the whole image decides.
    Levels {
        /// How the table is made.
        by: LevelTable,
    },
    /// Blends the smoothed image with the image.
    Sharpen {
        /// At least 0.
        factor: f32,
    },
    /// Weights across and down, of odd lengths; borders are mirrored without repeating the last pixel.
    Blur {
        /// Weights along rows.
        across: Vec<f32>,
        /// Weights along columns.
        down: Vec<f32>,
    },
    /// Maximum of a square, channel by channel.
    Dilate {
        /// Pixels to either side.
        radius: u32,
    },
}

/// How a histogram makes a table of levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LevelTable {
    /// As [`Step::AutoContrast`](crate::Step::AutoContrast) does.
    Stretched,
    /// As [`Step::Equalize`](crate::Step::Equalize) does.
    Equalized,
}

/// Where [`Step::AutoContrast`](crate::Step::AutoContrast), which computes in doubles, is below the whole number that it computes:
/// bit `level % 8` of byte `(256 * low + high) * 32 + level / 8` is 1 if the level becomes `255 * (level - low) / (high - low)`,
/// cut off, less 1. For a device without doubles.
pub fn stretched_below() -> Vec<u8> {
    let mut bits = vec![0; 256 * 256 * 32];
    for low in 0..256 {
        for high in low + 1..256 {
            let table = per_op::stretch(low, high);
            for level in low..=high {
                let whole = 255 * (level - low) / (high - low);
                debug_assert!(whole - usize::from(table[level]) <= 1);
                let below = u8::from(usize::from(table[level]) < whole);
                bits[(256 * low + high) * 32 + level / 8] |= below << (level % 8);
            }
        }
    }
    bits
}

/// A resampling and what lies outside of its source.
#[derive(Debug, Clone, PartialEq)]
pub struct Resample {
    /// Where pixels come from.
    pub map: ResampleMap,
    /// The colours of what lies outside, of the last step first.
    pub fills: Vec<[u8; 3]>,
    /// For each fill and row the columns `from..to` that are not filled. Each lies within that of the fill before.
    pub inside: Vec<(u32, u32)>,
}

/// How a resampling finds its samples.
#[derive(Debug, Clone, PartialEq)]
pub enum ResampleMap {
    /// Along rows and columns of the source.
    Upright(UprightTables),
    /// A window for each pixel, in pixels of the source.
    Turned(TurnedTables),
}

/// A rectangle of the float image.
#[derive(Debug, Clone, PartialEq)]
pub struct Erased {
    /// First column.
    pub left: u32,
    /// First row.
    pub top: u32,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// What it holds.
    pub content: ErasedContent,
}

/// What an erased rectangle holds.
#[derive(Debug, Clone, PartialEq)]
pub enum ErasedContent {
    /// One number a channel.
    Flat([f32; 3]),
    /// A number for each place, (3, height, width).
    Each(Vec<f32>),
}
