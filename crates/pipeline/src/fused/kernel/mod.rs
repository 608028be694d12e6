//! Weighted sums of source pixels: the contract, the portable kernel, and the one for AVX2.
//!
//! A result pixel is `sum_i wx[i] * sum_j wy[j] * source[y + j][x + i]` in fixed point. Rows are summed first, with
//! 15-bit weights on bytes scaled by 64, each product rounded; then columns, with 14-bit weights, in 32 bits. Every
//! kernel does exactly this, so the result does not depend on the machine.
//!
//! An upright map shares the sums over rows among all pixels of a result row ([`upright`]); a turned one has a window
//! of its own for every pixel ([`turned`]).

#[cfg(target_arch = "x86_64")]
mod avx2;
mod portable;

use super::taps::{Taps, Walk};
use crate::step::Affine;
use std::ops::Range;

/// Pixels of four bytes, and the columns and rows that may be read.
pub(super) struct Image<'a> {
    pub data: &'a [u8],
    pub stride: usize,
    pub x: (i64, i64),
    pub y: (i64, i64),
}

/// Buffers of one result row.
#[derive(Default)]
pub(super) struct RowBuffers {
    /// Source columns summed over rows, times 64: four channels a pixel.
    column_sums: Vec<i16>,
    /// Result pixels before rounding, with 20 fractional bits.
    sums: Vec<[i32; 4]>,
}

/// Where a point's window begins in the source, along both axes, and the entries of its weights.
struct Path {
    x: Walk,
    y: Walk,
    count: usize,
}

/// Result row `v` of an upright map, columns `range`: four bytes a pixel into `out`.
pub(super) fn upright(
    image: &Image<'_>,
    (columns, rows): (&Taps, &Taps),
    v: usize,
    range: Range<usize>,
    buffers: &mut RowBuffers,
    out: &mut [u8],
) {
    let starts = &columns.starts[range.clone()];
    let (Some(&first), Some(&last)) = (starts.iter().min(), starts.iter().max()) else {
        return;
    };
    let width = (last - first) as usize + columns.wide;
    // Whole groups of four pixels are read; what lies behind the last column has weight 0.
    let present = width.min((image.x.1 - i64::from(first)) as usize);
    let RowBuffers { column_sums, sums } = buffers;
    column_sums.clear();
    column_sums.resize(4 * width, 0);
    sums.resize(range.len(), [0; 4]);
    let source = &image.data[rows.starts[v] as usize * image.stride + 4 * first as usize..];
    let (row_weights, present) = (rows.of(v), &mut column_sums[..4 * present]);
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        unsafe {
            avx2::sum_rows(source, image.stride, row_weights, present);
            avx2::sum_columns(column_sums, columns, first, range, sums);
        }
        return round(sums, out);
    }
    portable::sum_rows(source, image.stride, row_weights, present);
    portable::sum_columns(column_sums, columns, first, range, sums);
    round(sums, out);
}

/// Result row `v` of any map, columns `range`: four bytes a pixel into `out`.
pub(super) fn turned(
    image: &Image<'_>,
    (columns, rows): (&Taps, &Taps),
    map: &Affine,
    v: usize,
    range: Range<usize>,
    buffers: &mut RowBuffers,
    out: &mut [u8],
) {
    let (x, y) = map.apply(range.start as f64 + 0.5, v as f64 + 0.5);
    let path = Path {
        x: Walk::new(columns, x, map.0[0]),
        y: Walk::new(rows, y, map.0[3]),
        count: range.len(),
    };
    let sums = &mut buffers.sums;
    sums.resize(path.count, [0; 4]);
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        unsafe { avx2::sum_windows(image, columns, rows, path, sums) };
        return round(sums, out);
    }
    portable::sum_windows(image, columns, rows, path, sums);
    round(sums, out);
}

impl Image<'_> {
    /// The bytes from a window's first pixel on, where the window lies within the bounds and whole groups of four
    /// pixels can be read from all its rows.
    #[inline(always)]
    fn window(&self, x: i64, y: i64, columns: &Taps, rows: &Taps) -> Option<&[u8]> {
        let inside = x >= self.x.0
            && y >= self.y.0
            && x + columns.taps as i64 <= self.x.1
            && y + rows.taps as i64 <= self.y.1;
        if !inside {
            return None;
        }
        let offset = y as usize * self.stride + 4 * x as usize;
        self.data
            .get(offset..offset + (rows.taps - 1) * self.stride + 4 * columns.wide)
    }
}

/// From 20 fractional bits to bytes.
fn round(sums: &[[i32; 4]], out: &mut [u8]) {
    for (to, sum) in out.iter_mut().zip(sums.as_flattened()) {
        *to = ((sum + (1 << 19)) >> 20).clamp(0, 255) as u8;
    }
}

/// A window that reaches over the bounds: the edge is repeated.
#[cold]
fn sum_at_edge(image: &Image<'_>, x: i64, y: i64, wx: &[i16], wy: &[i16]) -> [i32; 4] {
    let mut sums = [0; 4];
    for (x, &wx) in (x..).zip(wx) {
        let x = x.clamp(image.x.0, image.x.1 - 1) as usize;
        let mut column = [0i16; 4];
        for (y, &wy) in (y..).zip(wy) {
            let y = y.clamp(image.y.0, image.y.1 - 1) as usize;
            let pixel = &image.data[y * image.stride + 4 * x..][..4];
            column
                .iter_mut()
                .zip(pixel)
                .for_each(|(sum, &value)| *sum = portable::add_row(*sum, value, wy));
        }
        sums.iter_mut()
            .zip(column)
            .for_each(|(sum, value)| *sum += i32::from(value) * i32::from(wx));
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::super::taps::Axis;
    use super::*;
    use crate::op::Interpolation;

    fn image(data: &[u8]) -> Image<'_> {
        Image {
            data,
            stride: 4 * 50,
            x: (0, 50),
            y: (0, 40),
        }
    }

    fn noise() -> Vec<u8> {
        (0..4 * 50 * 40u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect()
    }

    /// The kernels for AVX2 give the bits of the portable ones, at every scale and phase, edges included.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn avx2_equals_portable() {
        if !is_x86_feature_detected!("avx2") {
            eprintln!("SKIPPED: this processor has no AVX2");
            return;
        }
        let data = noise();
        let image = image(&data);
        for interpolation in [
            Interpolation::Nearest,
            Interpolation::Bilinear,
            Interpolation::Bicubic,
        ] {
            for scale in [0.4, 1.0, 1.7, 4.3] {
                let columns = Taps::phases(Axis::Columns, interpolation, scale);
                let rows = Taps::phases(Axis::Rows, interpolation, scale);
                let path = || Path {
                    x: Walk::new(&columns, -3.0, scale * 0.9),
                    y: Walk::new(&rows, 2.0, scale * 0.31),
                    count: 60,
                };
                let (mut a, mut b) = (vec![[1; 4]; 60], vec![[2; 4]; 60]);
                portable::sum_windows(&image, &columns, &rows, path(), &mut a);
                // SAFETY: the processor has AVX2.
                unsafe { avx2::sum_windows(&image, &columns, &rows, path(), &mut b) };
                assert_eq!(a, b, "{interpolation:?} {scale}");
            }
        }
        for taps in [1, 3, 7] {
            let weights = [9000, -1200, 30000, 400, 32767, -32768, 1][..taps].to_vec();
            let (mut a, mut b) = (vec![0; 37], vec![0; 37]);
            portable::sum_rows(&data, 200, &weights, &mut a);
            // SAFETY: the processor has AVX2.
            unsafe { avx2::sum_rows(&data, 200, &weights, &mut b) };
            assert_eq!(a, b);
        }
    }
}
