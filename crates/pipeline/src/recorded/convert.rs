//! Pixels in another form: as floats, grey or spread, in one colour, cut from an image.

use crate::image::RgbImage;
use crate::per_op;

/// Writes red, green and blue of pixels of four bytes to three planes of floats, as torchvision does: divided by 255, then
/// less `mean` and divided by `std` of the channel.
///
/// # Panics
/// Where `out` has not three floats for every pixel.
pub fn to_floats(pixels: &[[u8; 4]], normalize: Option<([f32; 3], [f32; 3])>, out: &mut [f32]) {
    assert_eq!(out.len(), 3 * pixels.len());
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        #[target_feature(enable = "avx2")]
        fn wide(pixels: &[[u8; 4]], normalize: Option<([f32; 3], [f32; 3])>, out: &mut [f32]) {
            planes(pixels, normalize, out);
        }
        // SAFETY: the processor has AVX2.
        return unsafe { wide(pixels, normalize, out) };
    }
    planes(pixels, normalize, out);
}

/// Writes levels of grey as floats, as [`to_floats`] writes colours.
///
/// # Panics
/// Where `out` has not a float for every level.
pub fn grey_to_floats(levels: &[u8], normalize: Option<(f32, f32)>, out: &mut [f32]) {
    assert_eq!(out.len(), levels.len());
    let (mean, std) = normalize.unwrap_or((0.0, 1.0));
    for (to, &level) in out.iter_mut().zip(levels) {
        *to = (f32::from(level) / 255.0 - mean) / std;
    }
}

#[inline(always)]
fn planes(pixels: &[[u8; 4]], normalize: Option<([f32; 3], [f32; 3])>, out: &mut [f32]) {
    for (c, plane) in out.chunks_exact_mut(pixels.len().max(1)).enumerate() {
        let level = |pixel: &[u8; 4]| ((u32::from_le_bytes(*pixel) >> (8 * c)) & 255) as f32 / 255.0;
        let plane = plane.iter_mut().zip(pixels);
        match normalize {
            Some((mean, std)) => plane.for_each(|(to, pixel)| *to = (level(pixel) - mean[c]) / std[c]),
            None => plane.for_each(|(to, pixel)| *to = level(pixel)),
        }
    }
}

/// Converts pixels to grey, as Pillow does.
pub(super) fn to_grey(pixels: &[[u8; 4]], out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        #[target_feature(enable = "avx2")]
        fn wide(pixels: &[[u8; 4]], out: &mut [u8]) {
            luminances(pixels, out);
        }
        // SAFETY: the processor has AVX2.
        return unsafe { wide(pixels, out) };
    }
    luminances(pixels, out);
}

#[inline(always)]
fn luminances(pixels: &[[u8; 4]], out: &mut [u8]) {
    out.iter_mut()
        .zip(pixels)
        .for_each(|(to, pixel)| *to = per_op::luminance(pixel));
}

/// Converts grey to pixels of `N` equal bytes.
pub(super) fn spread<const N: usize>(levels: &[u8], out: &mut [u8]) {
    let out = out.as_chunks_mut::<N>().0;
    out.iter_mut()
        .zip(levels)
        .for_each(|(to, &level)| *to = [level; N]);
}

/// Gives all pixels one colour. Grey takes its first level.
pub(super) fn paint(out: &mut [u8], pixel: usize, [r, g, b]: [u8; 3]) {
    match pixel {
        1 => out.fill(r),
        3 => out.as_chunks_mut().0.fill([r, g, b]),
        _ => out.as_chunks_mut().0.fill([r, g, b, 0]),
    }
}

/// Writes the rectangle of an image that begins at (x, y) to `out`, whose size says how high it is.
pub(super) fn cut(image: &RgbImage, (x, y): (u32, u32), width: u32, pixel: usize, out: &mut [u8]) {
    let rows = out.chunks_exact_mut(width as usize * pixel);
    for (to, y) in rows.zip(y as usize..) {
        let from = &image.row(y)[x as usize..][..width as usize];
        if pixel == 3 {
            to.copy_from_slice(from.as_flattened());
            continue;
        }
        for (to, &[r, g, b]) in to.as_chunks_mut::<4>().0.iter_mut().zip(from) {
            *to = [r, g, b, 0];
        }
    }
}
