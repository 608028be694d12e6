//! Smaller images: averages over blocks of full-size pixels.

use crate::Pixels;

/// By how much the image shrinks while it is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Every pixel.
    Full,
    /// Half the width and height.
    Half,
    /// A quarter of the width and height.
    Quarter,
    /// An eighth of the width and height.
    Eighth,
}

impl Scale {
    /// Full-size pixels along one side of a scaled pixel: 1, 2, 4 or 8.
    pub fn factor(self) -> u32 {
        1 << (self as u32)
    }
}

/// Averages blocks of `factor` x `factor` pixels, rounding to nearest.
pub(crate) fn average_blocks<'a>(source: Pixels<'_>, factor: u32, out: &'a mut Vec<u8>) -> Pixels<'a> {
    let (width, height) = (source.width.div_ceil(factor), source.height.div_ceil(factor));
    let pixel = source.layout.bytes();
    let stride = width as usize * pixel;
    out.clear();
    out.resize(stride * height as usize, 0);
    for (v, row) in out.chunks_exact_mut(stride).enumerate() {
        let top = v as u32 * factor;
        let rows = top..(top + factor).min(source.height);
        for (u, to) in row.chunks_exact_mut(pixel).enumerate() {
            let left = u * factor as usize;
            let columns = left..(left + factor as usize).min(source.width as usize);
            let count = (rows.len() * columns.len()) as u32;
            for (c, to) in to.iter_mut().enumerate() {
                let sum: u32 = rows
                    .clone()
                    .flat_map(|y| columns.clone().map(move |x| (y, x)))
                    .map(|(y, x)| u32::from(source.data[y as usize * source.stride + x * pixel + c]))
                    .sum();
                *to = ((sum + count / 2) / count) as u8;
            }
        }
    }
    Pixels {
        data: out,
        stride,
        width,
        height,
        layout: source.layout,
    }
}
