//! The executor `per-op`: step after step on the whole image, as torchvision does it on PIL images.
//!
//! It is the oracle that the fused executor is held to, and the honest trial A of every comparison: each kernel
//! computes what Pillow computes, to the bit where Pillow works in integers, and none is slower than it must be.

mod color;
mod geometry;
mod levels;
mod mask;
mod neighbourhood;
mod reduce;
mod resize;

pub use color::{HueTables, Pointwise};
pub(crate) use color::{luminance, mean_luminance};
pub(crate) use geometry::{mapped, source_index};
pub(crate) use levels::{autocontrast, equalize, stretch};
pub(crate) use mask::apply_to_mask;
pub(crate) use neighbourhood::{gaussian, sharpen};
pub(crate) use reduce::Reduce;
pub use resize::PassOrder;
pub(crate) use resize::{Resize, Rows, Scratch, resize};

use crate::image::RgbImage;
use crate::rng::Draws;
use crate::sample::SampleMut;
use crate::step::{EraseContent, Mixed, Step};

/// Performs the steps on an image and writes the sample (3, height, width) to `out`. Bytes are written as they are
/// before the first step on floats.
///
/// # Panics
/// Where `out` does not have the size that the steps lead to; [`Runner`](crate::Runner) has checked it.
pub(crate) fn execute(steps: &[Step], mut image: RgbImage, out: SampleMut<'_>) {
    let first_float = steps
        .iter()
        .position(|step| *step == Step::ToFloat)
        .unwrap_or(steps.len());
    for step in &steps[..first_float] {
        image = apply(step, image);
    }
    if let SampleMut::U8(out) = out {
        return to_planes(&image, out, |byte| byte);
    }
    out.write_as_f32(&mut Vec::new(), |out| {
        to_planes(&image, out, |byte| f32::from(byte) / 255.0);
        for step in &steps[first_float..] {
            apply_float(step, image.width as usize, out);
        }
    });
}

/// Performs one step on bytes.
pub(crate) fn apply(step: &Step, mut image: RgbImage) -> RgbImage {
    match step {
        Step::HorizontalFlip => geometry::flip_horizontal(&mut image),
        Step::VerticalFlip => geometry::flip_vertical(&mut image),
        Step::Rotate(rotate) => return geometry::rotate(&image, rotate),
        Step::Affine(transform) => return geometry::affine(&image, transform),
        Step::Perspective(perspective) => return geometry::perspective(&image, perspective),
        Step::Crop {
            left,
            top,
            width,
            height,
        } => return geometry::crop(&image, *left, *top, *width, *height),
        Step::Pad { sides, fill, mode } => return geometry::pad(&image, *sides, fill.rgb(), *mode),
        Step::Resize {
            width,
            height,
            interpolation,
        } => {
            return resize(&image, *width, *height, *interpolation);
        }
        Step::Contrast { factor } => {
            let mean = mean_luminance(image.pixels());
            Pointwise::Contrast {
                mean,
                factor: *factor as f32,
            }
            .apply(image.pixels_mut());
        }
        Step::AutoContrast => autocontrast(image.pixels_mut()),
        Step::Equalize => equalize(image.pixels_mut()),
        Step::Sharpness { factor } => {
            let width = image.width as usize;
            sharpen(image.pixels_mut(), width, *factor as f32);
        }
        Step::GaussianBlur { kernel, sigma } => neighbourhood::gaussian_blur(&mut image, *kernel, *sigma),
        Step::Mix(mixed) => return mix(image, mixed),
        Step::Dilate { kernel } => neighbourhood::dilate(&mut image, *kernel as usize),
        step => {
            if let Some(pointwise) = Pointwise::of(step) {
                pointwise.apply(image.pixels_mut());
            }
        }
    }
    image
}

/// Mixes an image with what chains of steps make of it: a sum of 32-bit floats, the image's share first, whose fraction is cut off.
fn mix(image: RgbImage, mixed: &Mixed) -> RgbImage {
    let mut sums: Vec<f32> = image.data.iter().map(|&v| mixed.share * f32::from(v)).collect();
    for chain in &mixed.chains {
        let made = chain
            .steps
            .iter()
            .fold(image.clone(), |image, step| apply(step, image));
        for (sum, &value) in sums.iter_mut().zip(&made.data) {
            *sum += chain.share * f32::from(value);
        }
    }
    let data = sums.into_iter().map(|sum| sum as u8).collect();
    RgbImage { data, ..image }
}

/// Bytes (height, width, 3) to numbers (3, height, width).
fn to_planes<N>(image: &RgbImage, out: &mut [N], number: impl Fn(u8) -> N) {
    let plane = out.len() / 3;
    for (c, plane) in out.chunks_exact_mut(plane).enumerate() {
        for (to, pixel) in plane.iter_mut().zip(image.pixels()) {
            *to = number(pixel[c]);
        }
    }
}

/// Performs one step on floats (3, height, width).
pub(crate) fn apply_float(step: &Step, row: usize, out: &mut [f32]) {
    let plane = out.len() / 3;
    match step {
        Step::Normalize { mean, std } => {
            for (c, plane) in out.chunks_exact_mut(plane).enumerate() {
                plane.iter_mut().for_each(|v| *v = (*v - mean[c]) / std[c]);
            }
        }
        Step::Erase {
            left,
            top,
            width,
            height,
            content,
        } => {
            let (left, top) = (*left as usize, *top as usize);
            let mut draws = match content {
                EraseContent::Noise(seed) => Draws::from_seed(*seed),
                EraseContent::Rgb(_) => Draws::from_seed(0),
            };
            for (c, plane) in out.chunks_exact_mut(plane).enumerate() {
                for row in plane.chunks_exact_mut(row).skip(top).take(*height as usize) {
                    row[left..left + *width as usize].fill_with(|| match content {
                        EraseContent::Rgb(rgb) => rgb[c],
                        EraseContent::Noise(_) => draws.normal(),
                    });
                }
            }
        }
        Step::Noise {
            mean,
            sigma,
            clip,
            seed,
        } => {
            let mut draws = Draws::from_seed(*seed);
            let (mean, sigma) = (*mean as f32, *sigma as f32);
            for value in out {
                *value += mean + draws.normal() * sigma;
                if *clip {
                    *value = value.clamp(0.0, 1.0);
                }
            }
        }
        _ => {}
    }
}
