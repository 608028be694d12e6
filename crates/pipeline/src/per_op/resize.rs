//! Pillow's resize: two passes of fixed-point weights, each rounded to bytes.

use crate::filter::{self, Weights};
use crate::image::RgbImage;
use crate::op::Interpolation;

/// Fractional bits of a weight, as Pillow's for bytes.
const PRECISION: u32 = 32 - 8 - 2;

impl RgbImage {
    /// The image in another size, as Pillow resizes it: antialiased where it shrinks, unless `interpolation` is nearest.
    /// `width` and `height` must be at least 1.
    pub fn resize(&self, width: u32, height: u32, interpolation: Interpolation) -> RgbImage {
        resize(self, width, height, interpolation)
    }
}

pub(crate) fn resize(image: &RgbImage, width: u32, height: u32, interpolation: Interpolation) -> RgbImage {
    if interpolation == Interpolation::Nearest {
        return nearest(image, width, height);
    }
    let mut image = image.clone();
    // Pillow leaves out a pass that would change nothing.
    if width != image.width {
        image = horizontal(&image, width, &filter::weights(interpolation, image.width, width));
    }
    if height != image.height {
        image = vertical(
            &image,
            height,
            &filter::weights(interpolation, image.height, height),
        );
    }
    image
}

fn nearest(image: &RgbImage, width: u32, height: u32) -> RgbImage {
    let columns = filter::weights(Interpolation::Nearest, image.width, width).starts;
    let rows = filter::weights(Interpolation::Nearest, image.height, height).starts;
    let mut data = Vec::with_capacity(3 * columns.len() * rows.len());
    for y in rows {
        let row = image.row(y);
        columns.iter().for_each(|&x| data.extend_from_slice(&row[x]));
    }
    RgbImage { width, height, data }
}

fn fixed(weights: &Weights) -> Vec<i32> {
    weights
        .values
        .iter()
        .map(|w| (w * f64::from(1 << PRECISION)).round() as i32)
        .collect()
}

fn to_byte(sum: i32) -> u8 {
    (sum >> PRECISION).clamp(0, 255) as u8
}

fn horizontal(image: &RgbImage, width: u32, weights: &Weights) -> RgbImage {
    let fixed = fixed(weights);
    let mut out = RgbImage {
        width,
        height: image.height,
        data: vec![0; 3 * width as usize * image.height as usize],
    };
    for (y, row) in out.pixels_mut().chunks_exact_mut(width as usize).enumerate() {
        let from = image.row(y);
        for ((to, weights), &start) in row
            .iter_mut()
            .zip(fixed.chunks_exact(weights.taps))
            .zip(&weights.starts)
        {
            let mut sums = [1 << (PRECISION - 1); 3];
            for (pixel, weight) in from[start..].iter().zip(weights) {
                for c in 0..3 {
                    sums[c] += i32::from(pixel[c]) * weight;
                }
            }
            *to = sums.map(to_byte);
        }
    }
    out
}

fn vertical(image: &RgbImage, height: u32, weights: &Weights) -> RgbImage {
    let fixed = fixed(weights);
    let row_len = 3 * image.width as usize;
    let mut out = RgbImage {
        width: image.width,
        height,
        data: vec![0; row_len * height as usize],
    };
    let mut sums = vec![0i32; row_len];
    for ((row, weights), &start) in out
        .data
        .chunks_exact_mut(row_len)
        .zip(fixed.chunks_exact(weights.taps))
        .zip(&weights.starts)
    {
        sums.fill(1 << (PRECISION - 1));
        for (from, weight) in image.data[start * row_len..].chunks_exact(row_len).zip(weights) {
            for (sum, &value) in sums.iter_mut().zip(from) {
                *sum += i32::from(value) * weight;
            }
        }
        for (to, &sum) in row.iter_mut().zip(&sums) {
            *to = to_byte(sum);
        }
    }
    out
}
