//! Four inks to RGB, as Pillow does it: inks are taken to be stored inverted, by Adobe's convention.

use crate::Layout;
use crate::kernels::color::{write, ycc_pixel};

/// Converts `width` pixels of CMYK.
pub(crate) fn cmyk(rows: [&[u8]; 4], width: usize, layout: Layout, out: &mut [u8]) {
    for (x, out) in out.chunks_exact_mut(layout.bytes()).take(width).enumerate() {
        write(out, mix(rows.map(|row| row[x])));
    }
}

/// Converts `width` pixels of YCCK: red, green and blue are the inverse of cyan, magenta and yellow.
pub(crate) fn ycck(rows: [&[u8]; 4], width: usize, layout: Layout, out: &mut [u8]) {
    for (x, out) in out.chunks_exact_mut(layout.bytes()).take(width).enumerate() {
        let [r, g, b] = ycc_pixel(rows[0][x], rows[1][x], rows[2][x]);
        write(out, mix([255 - r, 255 - g, 255 - b, rows[3][x]]));
    }
}

/// Stored inks to RGB: Pillow's `clip(255 - k - ink * (255 - k) / 255)` with rounding, of inks that are 255 minus what
/// is stored.
fn mix([c, m, y, k]: [u8; 4]) -> [u8; 3] {
    let light = i32::from(k);
    [c, m, y].map(|stored| {
        let product = i32::from(255 - stored) * light + 128;
        (light - ((product + (product >> 8)) >> 8)).clamp(0, 255) as u8
    })
}
