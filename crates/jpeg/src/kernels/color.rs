//! Colour: rows of components to pixels.
//!
//! YCbCr becomes RGB as in libjpeg (jdcolor.c), with constants in 1/65536:
//! `R = Y + 1.402 Cr`, `G = Y - 0.34414 Cb - 0.71414 Cr`, `B = Y + 1.772 Cb`, with Cb and Cr around zero.

use super::{Isa, padded};
use crate::Layout;

/// Components at the image's resolution, each [`padded`] to whole steps.
pub(crate) type Row<'a> = [&'a [u8]; 3];

/// Converts `width` pixels of YCbCr. `out` may be written up to the [`padded`] width and 16 bytes more.
///
/// # Panics
/// Where a row is too short for that.
pub(crate) fn ycc(isa: Isa, row: Row<'_>, width: usize, layout: Layout, out: &mut [u8]) {
    let touched = padded(width);
    let long = row.iter().all(|row| row.len() >= touched);
    assert!(
        long && out.len() >= touched * layout.bytes() + 16,
        "a row that is too short"
    );
    match isa {
        Isa::Portable => each_pixel(row, width, layout, out, ycc_pixel),
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves the instructions, and the lengths were just found to be enough.
        Isa::Avx2(_) => unsafe {
            match layout {
                Layout::Rgb => super::avx2::color::ycc_rgb(row, width, out),
                Layout::Rgbx => super::avx2::color::ycc_rgbx(row, width, out),
            }
        },
    }
}

/// One pixel of YCbCr as RGB.
#[inline(always)]
pub(crate) fn ycc_pixel(y: u8, cb: u8, cr: u8) -> [u8; 3] {
    let (y, cb, cr) = (i32::from(y), i32::from(cb) - 128, i32::from(cr) - 128);
    let half = 1 << 15;
    let r = y + ((91881 * cr + half) >> 16);
    let g = y + ((-22554 * cb - 46802 * cr + half) >> 16);
    let b = y + ((116130 * cb + half) >> 16);
    [r, g, b].map(|v| v.clamp(0, 255) as u8)
}

/// Interleaves `width` pixels of RGB.
pub(crate) fn rgb(row: Row<'_>, width: usize, layout: Layout, out: &mut [u8]) {
    each_pixel(row, width, layout, out, |r, g, b| [r, g, b]);
}

/// Writes what `convert` makes of each pixel; a fourth byte becomes 255.
#[inline(always)]
fn each_pixel(
    row: Row<'_>,
    width: usize,
    layout: Layout,
    out: &mut [u8],
    convert: impl Fn(u8, u8, u8) -> [u8; 3],
) {
    let pixels = row[0][..width].iter().zip(&row[1][..width]).zip(&row[2][..width]);
    let pixels = pixels.map(|((&a, &b), &c)| convert(a, b, c));
    // One loop for each layout, so that compilers know how far apart pixels are.
    match layout {
        Layout::Rgb => {
            for (out, pixel) in out.chunks_exact_mut(3).zip(pixels) {
                out.copy_from_slice(&pixel);
            }
        }
        Layout::Rgbx => {
            for (out, [r, g, b]) in out.chunks_exact_mut(4).zip(pixels) {
                out.copy_from_slice(&[r, g, b, 255]);
            }
        }
    }
}

/// Repeats `width` pixels of grey.
pub(crate) fn grey(row: &[u8], width: usize, layout: Layout, out: &mut [u8]) {
    each_pixel([row; 3], width, layout, out, |v, _, _| [v; 3]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::tests::{best, numbers};

    #[test]
    fn both_forms_agree_on_every_pair_of_chroma() {
        let mut number = numbers(3);
        for layout in [Layout::Rgb, Layout::Rgbx] {
            for cb in 0..=255 {
                let y: Vec<u8> = (0..256).map(|_| number() as u8).collect();
                let (cb, cr): (Vec<u8>, Vec<u8>) = (vec![cb; 256], (0..=255).collect());
                let (mut fast, mut plain) = (vec![0; 1056], vec![0; 1056]);
                ycc(best(), [&y, &cb, &cr], 256, layout, &mut fast);
                ycc(Isa::Portable, [&y, &cb, &cr], 256, layout, &mut plain);
                assert_eq!(fast[..256 * layout.bytes()], plain[..256 * layout.bytes()]);
            }
        }
    }

    #[test]
    fn both_forms_agree_on_every_width() {
        let mut number = numbers(4);
        for width in 1..150 {
            let mut row = || -> Vec<u8> { (0..padded(width)).map(|_| number() as u8).collect() };
            let (y, cb, cr) = (row(), row(), row());
            for layout in [Layout::Rgb, Layout::Rgbx] {
                let (mut fast, mut plain) =
                    (vec![0; 4 * padded(width) + 16], vec![0; 4 * padded(width) + 16]);
                ycc(best(), [&y, &cb, &cr], width, layout, &mut fast);
                ycc(Isa::Portable, [&y, &cb, &cr], width, layout, &mut plain);
                assert_eq!(
                    fast[..width * layout.bytes()],
                    plain[..width * layout.bytes()],
                    "{width} pixels"
                );
            }
        }
    }
}
