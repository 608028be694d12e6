//! Operations that look at a pixel's surroundings.

use super::color::blend;
use crate::image::RgbImage;

/// torchvision's blur: weights `exp(-x^2 / (2 sigma^2))` normalised to 1, borders mirrored without repeating the last
/// pixel. The two axes are done one after the other in `f32`, which may differ from the 2-D sum by one level.
pub(super) fn gaussian_blur(image: &mut RgbImage, [kernel_x, kernel_y]: [u32; 2], sigma: f64) {
    let (width, height) = (image.width as usize, image.height as usize);
    let row_len = 3 * width;
    let horizontal = gaussian(kernel_x as usize, sigma);
    let vertical = gaussian(kernel_y as usize, sigma);
    let mut across = vec![0f32; row_len * height];
    for (y, to) in across.chunks_exact_mut(row_len).enumerate() {
        let from = image.row(y);
        for (x, to) in to.chunks_exact_mut(3).enumerate() {
            for (k, weight) in horizontal.iter().enumerate() {
                let pixel = from[mirrored(x + k, horizontal.len() / 2, width)];
                to.iter_mut()
                    .zip(pixel)
                    .for_each(|(to, v)| *to += weight * f32::from(v));
            }
        }
    }
    let mut sums = vec![0f32; row_len];
    for (y, to) in image.data.chunks_exact_mut(row_len).enumerate() {
        sums.fill(0.0);
        for (k, weight) in vertical.iter().enumerate() {
            let y = mirrored(y + k, vertical.len() / 2, height);
            let from = &across[y * row_len..(y + 1) * row_len];
            sums.iter_mut().zip(from).for_each(|(sum, v)| *sum += weight * v);
        }
        to.iter_mut()
            .zip(&sums)
            .for_each(|(to, sum)| *to = sum.round_ties_even() as u8);
    }
}

/// The weights of a kernel of `size`; they sum to one.
pub(crate) fn gaussian(size: usize, sigma: f64) -> Vec<f32> {
    let middle = (size as f64 - 1.0) / 2.0;
    let values: Vec<f64> = (0..size)
        .map(|i| (-0.5 * ((i as f64 - middle) / sigma).powi(2)).exp())
        .collect();
    let sum: f64 = values.iter().sum();
    values.iter().map(|v| (v / sum) as f32).collect()
}

/// The pixel at `at - radius`, mirrored at the borders; the radius is below the size.
fn mirrored(at: usize, radius: usize, size: usize) -> usize {
    let at = at.abs_diff(radius);
    if at < size { at } else { 2 * (size - 1) - at }
}

/// Maximum over a square, channel by channel; what lies outside the image does not count.
pub(super) fn dilate(image: &mut RgbImage, kernel: usize) {
    let radius = kernel / 2;
    let (width, height) = (image.width as usize, image.height as usize);
    let max = |a: [u8; 3], b: &[u8; 3]| std::array::from_fn(|c| a[c].max(b[c]));
    let mut across = vec![[0u8; 3]; width * height];
    for (y, to) in across.chunks_exact_mut(width).enumerate() {
        let from = image.row(y);
        for (x, to) in to.iter_mut().enumerate() {
            let window = &from[x.saturating_sub(radius)..(x + radius + 1).min(width)];
            *to = window.iter().fold([0; 3], max);
        }
    }
    for (y, to) in image.pixels_mut().chunks_exact_mut(width).enumerate() {
        to.fill([0; 3]);
        for row in y.saturating_sub(radius)..(y + radius + 1).min(height) {
            let from = &across[row * width..(row + 1) * width];
            to.iter_mut()
                .zip(from)
                .for_each(|(to, from)| *to = max(*to, from));
        }
    }
}

/// Pillow's sharpness: blends the smoothed image with the image. Pixels are smoothed by weights of 5 for themselves and 1 for
/// each of their eight neighbours, over 13; those at the image's edge are not smoothed. A fourth byte is left alone.
pub(crate) fn sharpen<const N: usize>(pixels: &mut [[u8; N]], width: usize, factor: f32) {
    let height = pixels.len() / width;
    if width < 3 || height < 3 {
        return;
    }
    // The row above is needed as it was: only that one and the present one have changed already.
    let (mut above, mut present) = (pixels[..width].to_vec(), pixels[width..2 * width].to_vec());
    for y in 1..height - 1 {
        let (done, below) = pixels.split_at_mut((y + 1) * width);
        let below = &below[..width];
        for (x, to) in done[y * width..].iter_mut().enumerate().take(width - 1).skip(1) {
            for c in 0..3 {
                let row = |row: &[[u8; N]]| row[x - 1..=x + 1].iter().map(|p| u32::from(p[c])).sum::<u32>();
                let sum = row(&above) + row(&present) + row(below) + 4 * u32::from(present[x][c]);
                // Pillow adds one half to the quotient and cuts the fraction off; 13 is odd, so there are no ties.
                let smooth = ((2 * sum + 13) / 26) as u8;
                to[c] = blend(smooth, present[x][c], factor);
            }
        }
        std::mem::swap(&mut above, &mut present);
        present.copy_from_slice(below);
    }
}
