//! Weighted sums of source pixels: the contract, the portable kernel, and the one for AVX2.
//!
//! A result pixel is `sum_j wy[j] * sum_i wx[i] * source[y + j][x + i]` in fixed point. Rows are summed first, with
//! 15-bit weights on bytes scaled by 64, each product rounded; then columns, with 14-bit weights, in 32 bits. Both
//! kernels do exactly this, so the result does not depend on the machine.

use crate::filter::{filter, support};
use crate::op::Interpolation;
use crate::step::Affine;
use std::ops::Range;

/// Positions between two pixels for which weights are kept.
const PHASES: usize = 256;

/// Pixels of four bytes, and the columns and rows that may be read.
pub(super) struct Image<'a> {
    pub data: &'a [u8],
    pub stride: usize,
    pub x: (i64, i64),
    pub y: (i64, i64),
}

/// Fixed-point weights along one axis.
pub(super) struct Taps {
    /// For each entry `wide` weights of 14 fractional bits.
    columns: Vec<i16>,
    /// For each entry `wide` weights of 15 fractional bits.
    rows: Vec<i16>,
    /// First pixel of each entry, where entries are positions; empty where they are phases.
    starts: Vec<i32>,
    /// Weights that may differ from 0.
    taps: usize,
    /// `taps`, rounded up to whole groups of four pixels.
    wide: usize,
    /// Distance from a point to the beginning of its window.
    reach: f64,
}

impl Taps {
    /// Weights for every output position `u` of an upright axis, whose centre lies at `slope * (u + 0.5) + start`.
    /// What would lie outside `bounds` is left out and the rest normalised, as Pillow does it.
    pub fn along(
        interpolation: Interpolation,
        slope: f64,
        start: f64,
        count: u32,
        (low, high): (i64, i64),
    ) -> Taps {
        let scale = slope.abs();
        let support = support(interpolation, scale);
        let taps = ((2.0 * support).ceil() as usize + 1).min((high - low) as usize);
        let mut all = Taps::with(taps, count as usize, support);
        let mut weights = vec![0.0; taps];
        for u in 0..count {
            let center = slope * (f64::from(u) + 0.5) + start;
            weights.fill(0.0);
            let first = if interpolation == Interpolation::Nearest {
                weights[0] = 1.0;
                (center.floor() as i64).clamp(low, high - 1)
            } else {
                let first = ((center - support + 0.5).floor() as i64).clamp(low, high - 1);
                let end = ((center + support + 0.5).floor() as i64).clamp(first + 1, high).min(first + taps as i64);
                // Near the far edge the window moves back, so that it can be read whole.
                let begin = first.min(high - taps as i64);
                for x in first..end {
                    let weight = filter(interpolation, (x as f64 - center + 0.5) / scale.max(1.0));
                    weights[(x - begin) as usize] = weight;
                }
                begin
            };
            all.push(&weights);
            all.starts.push(first as i32);
        }
        all
    }

    /// Weights for every phase, for points anywhere; the window of a point begins at `ceil(point - reach)`.
    pub fn phases(interpolation: Interpolation, scale: f64) -> Taps {
        let support = support(interpolation, scale);
        let taps = (2.0 * support).ceil() as usize;
        let mut all = Taps::with(taps, PHASES + 1, support);
        let mut weights = vec![0.0; taps];
        for phase in 0..=PHASES {
            let first = 1.0 - phase as f64 / PHASES as f64 - support;
            for (i, weight) in weights.iter_mut().enumerate() {
                *weight = match interpolation {
                    Interpolation::Nearest => 1.0,
                    _ => filter(interpolation, (first + i as f64) / scale.max(1.0)),
                };
            }
            all.push(&weights);
        }
        all
    }

    fn with(taps: usize, entries: usize, support: f64) -> Taps {
        let wide = taps.next_multiple_of(4);
        let (columns, rows) = (Vec::with_capacity(wide * entries), Vec::with_capacity(wide * entries));
        Taps { columns, rows, starts: Vec::new(), taps, wide, reach: support + 0.5 }
    }

    fn push(&mut self, weights: &[f64]) {
        quantise(weights, 1 << 14, self.wide, &mut self.columns);
        quantise(weights, 1 << 15, self.wide, &mut self.rows);
    }

    /// The window of a point: its first pixel, and the entry of its weights.
    fn window(&self, point: f64) -> (i32, u32) {
        let position = point - self.reach;
        let floor = position.floor();
        (floor as i32 + 1, ((position - floor) * PHASES as f64).round() as u32)
    }
}

/// Normalises to integers that sum to `one`, so that a flat image stays flat. 1.0 in 15 bits is 32767, which the
/// rounding of the products makes exact for bytes.
fn quantise(weights: &[f64], one: i32, wide: usize, into: &mut Vec<i16>) {
    let begin = into.len();
    let sum: f64 = weights.iter().sum();
    let mut left = one;
    let mut largest = begin;
    for weight in weights {
        let value = (weight / sum * f64::from(one)).round() as i32;
        left -= value;
        if value.min(i32::from(i16::MAX)) > i32::from(*into.get(largest).unwrap_or(&i16::MIN)) {
            largest = into.len();
        }
        into.push(value.min(i32::from(i16::MAX)) as i16);
    }
    into[largest] = (i32::from(into[largest]) + left).min(i32::from(i16::MAX)) as i16;
    into.resize(begin + wide, 0);
}

/// Where each pixel of one result row reads.
#[derive(Default)]
pub(super) struct RowTaps {
    pixels: Vec<Window>,
}

/// First column and row of a window, and the entries of its weights.
#[derive(Clone, Copy)]
struct Window {
    x: i32,
    y: i32,
    column: u32,
    row: u32,
}

impl RowTaps {
    /// Result row `v` of an upright map.
    pub fn upright(&mut self, columns: &Taps, rows: &Taps, range: Range<usize>, v: usize) {
        self.pixels.clear();
        let (y, row) = (rows.starts[v], v as u32);
        self.pixels.extend(range.map(|u| Window { x: columns.starts[u], y, column: u as u32, row }));
    }

    /// Result row `v` of any map.
    pub fn turned(&mut self, columns: &Taps, rows: &Taps, map: &Affine, range: Range<usize>, v: usize) {
        self.pixels.clear();
        self.pixels.extend(range.map(|u| {
            let (x, y) = map.apply(u as f64 + 0.5, v as f64 + 0.5);
            let ((x, column), (y, row)) = (columns.window(x), rows.window(y));
            Window { x, y, column, row }
        }));
    }
}

/// Computes one result row: four bytes for each window of `taps`.
pub(super) fn resample(image: &Image<'_>, columns: &Taps, rows: &Taps, taps: &RowTaps, out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        return unsafe { avx2::resample(image, columns, rows, taps, out) };
    }
    for (window, out) in taps.pixels.iter().zip(out.as_chunks_mut().0) {
        *out = pixel(image, columns, rows, window);
    }
}

/// One pixel, portably. Columns and rows outside the bounds repeat the edge.
fn pixel(image: &Image<'_>, columns: &Taps, rows: &Taps, window: &Window) -> [u8; 4] {
    let wx = &columns.columns[window.column as usize * columns.wide..][..columns.taps];
    let wy = &rows.rows[window.row as usize * rows.wide..][..rows.taps];
    let mut sums = [0i32; 4];
    for (i, &wx) in (0..).zip(wx) {
        let x = (i64::from(window.x) + i).clamp(image.x.0, image.x.1 - 1) as usize;
        let mut column = [0i32; 4];
        for (j, &wy) in (0..).zip(wy) {
            let y = (i64::from(window.y) + j).clamp(image.y.0, image.y.1 - 1) as usize;
            let source = &image.data[y * image.stride + 4 * x..][..4];
            for (sum, &value) in column.iter_mut().zip(source) {
                let product = ((i32::from(value) << 6) * i32::from(wy) + (1 << 14)) >> 15;
                *sum = (*sum + product).clamp(i32::from(i16::MIN), i32::from(i16::MAX));
            }
        }
        for (sum, value) in sums.iter_mut().zip(column) {
            *sum += value * i32::from(wx);
        }
    }
    sums.map(|sum| ((sum + (1 << 19)) >> 20).clamp(0, 255) as u8)
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use super::{Image, RowTaps, Taps, Window};
    use std::arch::x86_64::*;

    /// Computes one result row.
    #[target_feature(enable = "avx2")]
    pub(super) fn resample(image: &Image<'_>, columns: &Taps, rows: &Taps, taps: &RowTaps, out: &mut [u8]) {
        for (window, out) in taps.pixels.iter().zip(out.as_chunks_mut().0) {
            *out = match readable(image, columns, rows, window) {
                // SAFETY: `readable` has checked that every byte of the window lies within `image.data`.
                Some(offset) => unsafe { pixel(image, columns, rows, window, offset) },
                None => super::pixel(image, columns, rows, window),
            };
        }
    }

    /// The offset of a window's first byte, where the window lies within the bounds and whole groups of four pixels
    /// can be loaded from all its rows.
    #[inline]
    fn readable(image: &Image<'_>, columns: &Taps, rows: &Taps, window: &Window) -> Option<usize> {
        let (x, y) = (i64::from(window.x), i64::from(window.y));
        let inside = x >= image.x.0
            && y >= image.y.0
            && x + columns.taps as i64 <= image.x.1
            && y + rows.taps as i64 <= image.y.1;
        if !inside {
            return None;
        }
        let offset = y as usize * image.stride + 4 * x as usize;
        let end = offset + (rows.taps - 1) * image.stride + 4 * columns.wide;
        (end <= image.data.len()).then_some(offset)
    }

    /// One pixel.
    ///
    /// # Safety
    /// `4 * columns.wide` bytes must be readable in `image.data` from `offset` and from the same place of the
    /// `rows.taps - 1` rows below.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn pixel(image: &Image<'_>, columns: &Taps, rows: &Taps, window: &Window, offset: usize) -> [u8; 4] {
        let wx = &columns.columns[window.column as usize * columns.wide..][..columns.wide];
        let wy = &rows.rows[window.row as usize * rows.wide..][..rows.taps];
        // Neighbouring pixels' channels side by side: r0 r1 g0 g1 b0 b1 x0 x1.
        let pairs = _mm256_setr_epi8(
            0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15, //
            0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15,
        );
        let spread = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
        let mut sums = _mm256_setzero_si256();
        for (group, wx) in wx.as_chunks::<4>().0.iter().enumerate() {
            let mut column = _mm256_setzero_si256();
            let mut at = offset + 16 * group;
            for &wy in wy {
                // SAFETY: `at + 16 <= offset + (rows.taps - 1) * stride + 4 * columns.wide`, which the caller
                // promises to be readable.
                let four = unsafe { _mm_loadu_si128(image.data.as_ptr().add(at).cast()) };
                let wide = _mm256_slli_epi16::<6>(_mm256_cvtepu8_epi16(four));
                column = _mm256_adds_epi16(column, _mm256_mulhrs_epi16(wide, _mm256_set1_epi16(wy)));
                at += image.stride;
            }
            let wx = i64::from_le_bytes(bytes(*wx));
            let weights = _mm256_permutevar8x32_epi32(_mm256_set1_epi64x(wx), spread);
            sums = _mm256_add_epi32(sums, _mm256_madd_epi16(_mm256_shuffle_epi8(column, pairs), weights));
        }
        let sum = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256::<1>(sums));
        let rounded = _mm_srai_epi32::<20>(_mm_add_epi32(sum, _mm_set1_epi32(1 << 19)));
        let narrow = _mm_packus_epi16(_mm_packs_epi32(rounded, rounded), _mm_setzero_si128());
        _mm_cvtsi128_si32(narrow).to_le_bytes()
    }

    #[inline]
    fn bytes(weights: [i16; 4]) -> [u8; 8] {
        let [a, b, c, d] = weights.map(i16::to_le_bytes);
        [a[0], a[1], b[0], b[1], c[0], c[1], d[0], d[1]]
    }
}
