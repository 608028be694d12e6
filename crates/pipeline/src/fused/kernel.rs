//! Weighted sums of source pixels: the contract, the portable kernel, and the one for AVX2.
//!
//! A result pixel is `sum_i wx[i] * sum_j wy[j] * source[y + j][x + i]` in fixed point. Rows are summed first, with
//! 15-bit weights on bytes scaled by 64, each product rounded; then columns, with 14-bit weights, in 32 bits. Every
//! kernel does exactly this, so the result does not depend on the machine.
//!
//! An upright map shares the sums over rows among all pixels of a result row ([`upright`]); a turned one has a window
//! of its own for every pixel ([`turned`]).

use crate::filter::{filter, support};
use crate::op::Interpolation;
use crate::step::Affine;
use std::ops::Range;

/// Positions between two pixels for which weights are kept.
const PHASES: usize = 128;

/// Pixels of four bytes, and the columns and rows that may be read.
pub(super) struct Image<'a> {
    pub data: &'a [u8],
    pub stride: usize,
    pub x: (i64, i64),
    pub y: (i64, i64),
}

/// Along which axis weights are summed, and so how many fractional bits they have.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Axis {
    /// 14 bits, summed in 32-bit integers.
    Columns,
    /// 15 bits, each product rounded.
    Rows,
}

/// Fixed-point weights along one axis.
pub(super) struct Taps {
    /// For each entry `wide` weights; those after `taps` are 0.
    weights: Vec<i16>,
    /// First pixel of each entry, where entries are positions; empty where they are phases.
    starts: Vec<i32>,
    /// Weights that may differ from 0.
    taps: usize,
    /// `taps`, rounded up to whole groups of four pixels.
    wide: usize,
    /// Distance from a point to the beginning of its window.
    reach: f64,
    axis: Axis,
}

impl Taps {
    /// Weights for every output position `u` of an upright axis, whose centre lies at `slope * (u + 0.5) + start`.
    /// What would lie outside `bounds` is left out and the rest normalised, as Pillow does it.
    pub fn along(
        axis: Axis,
        interpolation: Interpolation,
        (slope, start): (f64, f64),
        count: u32,
        (low, high): (i64, i64),
    ) -> Taps {
        let scale = slope.abs();
        let support = support(interpolation, scale);
        let nearest = interpolation == Interpolation::Nearest;
        let taps = if nearest {
            1
        } else {
            ((2.0 * support).ceil() as usize + 1).min((high - low) as usize)
        };
        let mut all = Taps::with(axis, taps, count as usize, support);
        let mut weights = vec![0.0; taps];
        for u in 0..count {
            let center = slope * (f64::from(u) + 0.5) + start;
            if nearest {
                all.starts
                    .push((center.floor() as i64).clamp(low, high - 1) as i32);
                all.push(&[1.0]);
                continue;
            }
            weights.fill(0.0);
            let first = ((center - support + 0.5).floor() as i64).clamp(low, high - 1);
            let end = ((center + support + 0.5).floor() as i64)
                .clamp(first + 1, high)
                .min(first + taps as i64);
            // Near the far edge the window moves back, so that it can be read whole.
            let begin = first.min(high - taps as i64);
            for x in first..end {
                weights[(x - begin) as usize] =
                    filter(interpolation, (x as f64 - center + 0.5) / scale.max(1.0));
            }
            all.starts.push(begin as i32);
            all.push(&weights);
        }
        all
    }

    /// Weights for every phase, for points anywhere; the window of a point begins at `ceil(point - reach)`.
    pub fn phases(axis: Axis, interpolation: Interpolation, scale: f64) -> Taps {
        let support = support(interpolation, scale);
        let taps = (2.0 * support).ceil() as usize;
        let mut all = Taps::with(axis, taps, PHASES + 1, support);
        let mut weights = vec![1.0; taps];
        for phase in 0..=PHASES {
            if interpolation != Interpolation::Nearest {
                let first = 1.0 - phase as f64 / PHASES as f64 - support;
                for (i, weight) in weights.iter_mut().enumerate() {
                    *weight = filter(interpolation, (first + i as f64) / scale.max(1.0));
                }
            }
            all.push(&weights);
        }
        all
    }

    fn with(axis: Axis, taps: usize, entries: usize, support: f64) -> Taps {
        let wide = taps.next_multiple_of(4);
        let weights = Vec::with_capacity(wide * entries);
        Taps {
            weights,
            starts: Vec::new(),
            taps,
            wide,
            reach: support + 0.5,
            axis,
        }
    }

    /// Adds an entry, normalised to integers that sum to one, so that a flat image stays flat. 1.0 in 15 bits is
    /// 32767, which the rounding of the products makes exact for bytes.
    fn push(&mut self, weights: &[f64]) {
        let one = if self.axis == Axis::Columns {
            1 << 14
        } else {
            1 << 15
        };
        let begin = self.weights.len();
        let factor = f64::from(one) / weights.iter().sum::<f64>();
        let (mut left, mut largest) = (one, (begin, i32::MIN));
        for weight in weights {
            let scaled = weight * factor;
            let value = (scaled + 0.5f64.copysign(scaled)) as i32;
            left -= value;
            if value > largest.1 {
                largest = (self.weights.len(), value);
            }
            self.weights.push(value.min(i32::from(i16::MAX)) as i16);
        }
        self.weights[largest.0] = (largest.1 + left).min(i32::from(i16::MAX)) as i16;
        self.weights.resize(begin + self.wide, 0);
    }

    /// An entry, padded with zeros to whole groups.
    fn wide_of(&self, entry: usize) -> &[i16] {
        &self.weights[entry * self.wide..(entry + 1) * self.wide]
    }

    /// An entry without its padding.
    fn of(&self, entry: usize) -> &[i16] {
        &self.weights[entry * self.wide..][..self.taps]
    }
}

/// Buffers of one result row.
#[derive(Default)]
pub(super) struct RowBuffers {
    /// Source columns summed over rows, times 64: four channels a pixel.
    column_sums: Vec<i16>,
    /// Result pixels before rounding, with 20 fractional bits.
    sums: Vec<[i32; 4]>,
}

/// A point on its way along a result row, with 32 fractional bits.
#[derive(Clone, Copy)]
struct Walk {
    at: i64,
    step: i64,
}

impl Walk {
    fn new(taps: &Taps, start: f64, slope: f64) -> Walk {
        let fixed = |v: f64| (v * (1u64 << 32) as f64).round() as i64;
        Walk {
            at: fixed(start - taps.reach),
            step: fixed(slope),
        }
    }

    /// The first pixel of the window, and the phase, rounded to the nearest.
    #[inline(always)]
    fn next(&mut self) -> (i64, usize) {
        const SHIFT: u32 = 32 - PHASES.trailing_zeros();
        let fraction = (self.at & 0xFFFF_FFFF) as usize;
        let window = ((self.at >> 32) + 1, (fraction + (1 << (SHIFT - 1))) >> SHIFT);
        self.at += self.step;
        window
    }
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

/// The kernels in plain Rust: what the others must equal.
mod portable {
    use super::{Image, Path, Range, Taps, sum_at_edge};

    /// `sum + value * 64 * weight`, rounded, saturated to 16 bits.
    pub(super) fn add_row(sum: i16, value: u8, weight: i16) -> i16 {
        let product = ((i32::from(value) << 6) * i32::from(weight) + (1 << 14)) >> 15;
        (i32::from(sum) + product).clamp(i32::from(i16::MIN), i32::from(i16::MAX)) as i16
    }

    /// Sums over rows, byte by byte: `sums[i] = sum_j weights[j] * source[j * stride + i]`.
    pub(super) fn sum_rows(source: &[u8], stride: usize, weights: &[i16], sums: &mut [i16]) {
        for (j, &weight) in weights.iter().enumerate() {
            let row = &source[j * stride..][..sums.len()];
            sums.iter_mut()
                .zip(row)
                .for_each(|(sum, &value)| *sum = add_row(*sum, value, weight));
        }
    }

    /// Sums over columns, for each result column of `range`; `column_sums` begins at source column `first`.
    pub(super) fn sum_columns(
        column_sums: &[i16],
        columns: &Taps,
        first: i32,
        range: Range<usize>,
        sums: &mut [[i32; 4]],
    ) {
        for (u, sums) in range.zip(sums) {
            let pixels = column_sums[4 * (columns.starts[u] - first) as usize..]
                .as_chunks::<4>()
                .0;
            *sums = [0; 4];
            for (pixel, &weight) in pixels.iter().zip(columns.wide_of(u)) {
                for (sum, &value) in sums.iter_mut().zip(pixel) {
                    *sum += i32::from(value) * i32::from(weight);
                }
            }
        }
    }

    /// Sums over a window of its own for each result pixel.
    pub(super) fn sum_windows(
        image: &Image<'_>,
        columns: &Taps,
        rows: &Taps,
        mut path: Path,
        sums: &mut [[i32; 4]],
    ) {
        for sums in sums {
            let ((x, column), (y, row)) = (path.x.next(), path.y.next());
            // Within the bounds no edge is repeated, so this is the sum over the window there too.
            *sums = sum_at_edge(image, x, y, columns.of(column), rows.of(row));
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Image, Path, Range, Taps, portable, sum_at_edge};
    use std::arch::x86_64::*;

    /// As [`portable::sum_rows`].
    #[target_feature(enable = "avx2")]
    pub(super) fn sum_rows(source: &[u8], stride: usize, weights: &[i16], sums: &mut [i16]) {
        let (groups, rest) = sums.as_chunks_mut::<16>();
        let whole = 16 * groups.len();
        assert!(
            source.len() >= (weights.len() - 1) * stride + whole + rest.len(),
            "rows that are there"
        );
        for (i, group) in groups.iter_mut().enumerate() {
            let mut sum = _mm256_setzero_si256();
            for (j, &weight) in weights.iter().enumerate() {
                // SAFETY: 16 bytes from `j * stride + 16 * i` end within `source`, as asserted above.
                let bytes = unsafe { _mm_loadu_si128(source.as_ptr().add(j * stride + 16 * i).cast()) };
                sum = add_row(sum, bytes, weight);
            }
            // SAFETY: `group` is 32 bytes, and the store needs no alignment.
            unsafe { _mm256_storeu_si256(group.as_mut_ptr().cast(), sum) };
        }
        portable::sum_rows(&source[whole..], stride, weights, rest);
    }

    /// `sum + bytes * 64 * weight`, rounded, saturated.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add_row(sum: __m256i, bytes: __m128i, weight: i16) -> __m256i {
        let wide = _mm256_slli_epi16::<6>(_mm256_cvtepu8_epi16(bytes));
        _mm256_adds_epi16(sum, _mm256_mulhrs_epi16(wide, _mm256_set1_epi16(weight)))
    }

    /// Four pixels of column sums, weighted and added to two partial sums of a pixel.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn add_columns(sums: __m256i, four: __m256i, weights: [i16; 4]) -> __m256i {
        // Neighbouring pixels' channels side by side: r0 r1 g0 g1 b0 b1 x0 x1.
        let pairs = _mm256_setr_epi8(
            0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15, //
            0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15,
        );
        let spread = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
        let [a, b, c, d] = weights.map(|weight| weight as u16 as u64);
        let weights = _mm256_set1_epi64x((a | b << 16 | c << 32 | d << 48) as i64);
        let weights = _mm256_permutevar8x32_epi32(weights, spread);
        _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_shuffle_epi8(four, pairs), weights))
    }

    /// The two partial sums together.
    #[inline]
    #[target_feature(enable = "avx2")]
    fn total(sums: __m256i, into: &mut [i32; 4]) {
        let sum = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
        // SAFETY: `into` is 16 bytes, and the store needs no alignment.
        unsafe { _mm_storeu_si128(into.as_mut_ptr().cast(), sum) };
    }

    /// As [`portable::sum_columns`].
    #[target_feature(enable = "avx2")]
    pub(super) fn sum_columns(
        column_sums: &[i16],
        columns: &Taps,
        first: i32,
        range: Range<usize>,
        sums: &mut [[i32; 4]],
    ) {
        for (u, into) in range.zip(sums) {
            let at = 4 * (columns.starts[u] - first) as usize;
            let groups = column_sums[at..at + 4 * columns.wide].as_chunks::<16>().0;
            let mut sums = _mm256_setzero_si256();
            for (group, weights) in groups.iter().zip(columns.wide_of(u).as_chunks::<4>().0) {
                // SAFETY: `group` is 32 bytes, and the load needs no alignment.
                let four = unsafe { _mm256_loadu_si256(group.as_ptr().cast()) };
                sums = add_columns(sums, four, *weights);
            }
            total(sums, into);
        }
    }

    /// As [`portable::sum_windows`].
    #[target_feature(enable = "avx2")]
    pub(super) fn sum_windows(
        image: &Image<'_>,
        columns: &Taps,
        rows: &Taps,
        mut path: Path,
        sums: &mut [[i32; 4]],
    ) {
        for into in sums {
            let ((x, column), (y, row)) = (path.x.next(), path.y.next());
            let (wx, wy) = (columns.wide_of(column), rows.of(row));
            let Some(window) = image.window(x, y, columns, rows) else {
                *into = sum_at_edge(image, x, y, columns.of(column), wy);
                continue;
            };
            let mut sums = _mm256_setzero_si256();
            for (group, weights) in wx.as_chunks::<4>().0.iter().enumerate() {
                let mut four = _mm256_setzero_si256();
                let mut at = 16 * group;
                for &weight in wy {
                    // SAFETY: a window holds `4 * columns.wide` bytes of each of its `wy.len()` rows, and `at + 16`
                    // is at most that from the beginning of such a row.
                    let bytes = unsafe { _mm_loadu_si128(window.as_ptr().add(at).cast()) };
                    four = add_row(four, bytes, weight);
                    at += image.stride;
                }
                sums = add_columns(sums, four, *weights);
            }
            total(sums, into);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// A flat image stays flat, whatever the weights.
    #[test]
    fn weights_sum_to_one() {
        for interpolation in [
            Interpolation::Nearest,
            Interpolation::Bilinear,
            Interpolation::Bicubic,
        ] {
            for scale in [0.3, 1.0, 2.9, 17.0] {
                let columns = Taps::phases(Axis::Columns, interpolation, scale);
                let rows = Taps::phases(Axis::Rows, interpolation, scale);
                let sum = |weights: &[i16]| weights.iter().map(|&w| i32::from(w)).sum::<i32>();
                for entry in 0..=PHASES {
                    let (columns, rows) = (sum(columns.of(entry)), sum(rows.of(entry)));
                    assert_eq!(columns, 1 << 14, "{interpolation:?} {scale} {entry}");
                    assert!(
                        ((1 << 15) - 1..=1 << 15).contains(&rows),
                        "{interpolation:?} {scale} {entry}: {rows}"
                    );
                }
            }
        }
    }
}
