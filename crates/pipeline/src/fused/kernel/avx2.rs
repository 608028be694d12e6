//! The kernels for AVX2.

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
