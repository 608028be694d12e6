//! Two blocks at once, each in its half of the registers. See [`crate::kernels::reduced`] for the arithmetic.

use super::idct::{load, madd};
use crate::block::Block;
use crate::kernels::idct::Steps;
use crate::kernels::reduced::{EVEN, ODD0, ODD2};
use std::arch::x86_64::*;

/// # Safety
/// The processor has AVX2, and 4 rows of 4 bytes, `stride` apart, lie within `samples` from both places in
/// `at`.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn to_four(
    blocks: [&Block; 2],
    steps: &Steps,
    samples: &mut [u8],
    stride: usize,
    at: [usize; 2],
) {
    let row = |i| load(blocks, steps, i);
    // Nothing looks at row 4.
    let [x0, x1, x2, x3, x5, x6, x7] = [row(0), row(1), row(2), row(3), row(5), row(6), row(7)];
    let zero = _mm256_setzero_si256();
    let low = |a, b| _mm256_unpacklo_epi16(a, b);
    let high = |a, b| _mm256_unpackhi_epi16(a, b);
    let left = four::<12>([low(zero, x0), low(x2, x6), low(x7, x5), low(x3, x1)]);
    let right = four::<12>([high(zero, x0), high(x2, x6), high(x7, x5), high(x3, x1)]);
    // Four rows of eight columns, in the order of the pairs that the second pass takes.
    let pairs = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        -1, -1, 0, 1, 4, 5, 12, 13, 14, 15, 10, 11, 6, 7, 2, 3,
    ));
    let rows: [__m256i; 4] =
        std::array::from_fn(|i| _mm256_shuffle_epi8(_mm256_packs_epi32(left[i], right[i]), pairs));
    let columns = four::<19>(transpose(rows));
    let words = [
        _mm256_packs_epi32(columns[0], columns[1]),
        _mm256_packs_epi32(columns[2], columns[3]),
    ];
    let bytes = _mm256_xor_si256(_mm256_packs_epi16(words[0], words[1]), _mm256_set1_epi8(-128));
    let across = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
    ));
    let bytes = _mm256_shuffle_epi8(bytes, across);
    let halves = [
        _mm256_castsi256_si128(bytes),
        _mm256_extracti128_si256::<1>(bytes),
    ];
    for (half, at) in halves.into_iter().zip(at) {
        let rows = [
            _mm_cvtsi128_si32(half),
            _mm_extract_epi32::<1>(half),
            _mm_extract_epi32::<2>(half),
            _mm_extract_epi32::<3>(half),
        ];
        for (i, row) in rows.into_iter().enumerate() {
            // SAFETY: row i of both blocks lies within the samples, as the caller promises.
            unsafe {
                samples
                    .as_mut_ptr()
                    .add(at + i * stride)
                    .cast::<i32>()
                    .write_unaligned(row)
            };
        }
    }
}

/// One pass from eight values to four in 32 bits: of x0 in the upper 16 bits, and of the pairs (x2, x6), (x7,
/// x5) and (x3, x1).
#[inline]
#[target_feature(enable = "avx2")]
fn four<const SHIFT: i32>([x0, x26, x75, x31]: [__m256i; 4]) -> [__m256i; 4] {
    let add = |a, b| _mm256_add_epi32(a, b);
    let sub = |a, b| _mm256_sub_epi32(a, b);
    let first = add(_mm256_srai_epi32::<2>(x0), _mm256_set1_epi32(1 << (SHIFT - 1)));
    let even = madd(x26, EVEN[0], EVEN[1]);
    let (even0, even2) = (add(first, even), sub(first, even));
    let odd0 = add(madd(x75, ODD0[0], ODD0[1]), madd(x31, ODD0[2], ODD0[3]));
    let odd2 = add(madd(x75, ODD2[0], ODD2[1]), madd(x31, ODD2[2], ODD2[3]));
    [
        add(even0, odd2),
        add(even2, odd0),
        sub(even2, odd0),
        sub(even0, odd2),
    ]
    .map(|value| _mm256_srai_epi32::<SHIFT>(value))
}

/// Transposes four by four values of 32 bits in both halves.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(r: [__m256i; 4]) -> [__m256i; 4] {
    let a = [
        _mm256_unpacklo_epi32(r[0], r[1]),
        _mm256_unpackhi_epi32(r[0], r[1]),
        _mm256_unpacklo_epi32(r[2], r[3]),
        _mm256_unpackhi_epi32(r[2], r[3]),
    ];
    [
        _mm256_unpacklo_epi64(a[0], a[2]),
        _mm256_unpackhi_epi64(a[0], a[2]),
        _mm256_unpacklo_epi64(a[1], a[3]),
        _mm256_unpackhi_epi64(a[1], a[3]),
    ]
}
