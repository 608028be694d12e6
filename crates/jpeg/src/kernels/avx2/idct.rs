//! Two blocks at once: the lower half of a register holds a row of the first block, the upper half the same
//! row of the second. See [`crate::kernels::idct`] for the arithmetic.

use crate::block::Block;
use crate::kernels::idct::Steps;
use std::arch::x86_64::*;

/// # Safety
/// The processor has AVX2, and 8 rows of 8 bytes, `stride` apart, lie within `samples` from both places in
/// `at`.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn transform(
    blocks: [&Block; 2],
    steps: &Steps,
    samples: &mut [u8],
    stride: usize,
    at: [usize; 2],
) {
    let rows = std::array::from_fn(|i| load(blocks, steps, i));
    // The first pass works on columns, the second on rows: after it the block lies on its side.
    let columns = pass::<18>(transpose(pass::<11>(rows)));
    let bytes: [__m256i; 4] = std::array::from_fn(|i| {
        let packed = _mm256_packs_epi16(columns[2 * i], columns[2 * i + 1]);
        _mm256_xor_si256(packed, _mm256_set1_epi8(-128))
    });
    for (i, rows) in transpose_bytes(bytes).into_iter().enumerate() {
        let halves = [_mm256_castsi256_si128(rows), _mm256_extracti128_si256::<1>(rows)];
        for (half, at) in halves.into_iter().zip(at) {
            // SAFETY: rows 2i and 2i + 1 of both blocks lie within the samples, as the caller promises.
            unsafe {
                let to = samples.as_mut_ptr().add(at + 2 * i * stride);
                _mm_storel_epi64(to.cast(), half);
                _mm_storeh_pd(to.add(stride).cast(), _mm_castsi128_pd(half));
            }
        }
    }
}

/// Row `i` of both blocks, dequantised.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load(blocks: [&Block; 2], steps: &Steps, i: usize) -> __m256i {
    let row = |values: &[i16]| {
        let values: &[i16; 8] = values[8 * i..].first_chunk().expect("a block has eight rows");
        // SAFETY: eight values of 16 bits are 128 bits, and the load asks for no alignment.
        unsafe { _mm_loadu_si128(values.as_ptr().cast()) }
    };
    let both = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(row(&blocks[0].0)), row(&blocks[1].0));
    _mm256_mullo_epi16(both, _mm256_broadcastsi128_si256(row(&steps.0)))
}

/// `a * c0 + b * c1` in 32 bits for interleaved `a` and `b`.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn madd(ab: __m256i, c0: i32, c1: i32) -> __m256i {
    _mm256_madd_epi16(ab, _mm256_set1_epi32(c1 << 16 | (c0 & 0xFFFF)))
}

/// One pass over eight rows, lane by lane.
#[inline]
#[target_feature(enable = "avx2")]
fn pass<const SHIFT: i32>(x: [__m256i; 8]) -> [__m256i; 8] {
    let low = |a, b| _mm256_unpacklo_epi16(a, b);
    let high = |a, b| _mm256_unpackhi_epi16(a, b);
    let zero = _mm256_setzero_si256();
    let (sum, difference) = (_mm256_add_epi16(x[0], x[4]), _mm256_sub_epi16(x[0], x[4]));
    let (z3, z4) = (_mm256_add_epi16(x[7], x[3]), _mm256_add_epi16(x[5], x[1]));
    let lows = half::<SHIFT>(
        [low(zero, sum), low(zero, difference), low(x[2], x[6])],
        [low(z3, z4), low(x[7], x[1]), low(x[5], x[3])],
    );
    let highs = half::<SHIFT>(
        [high(zero, sum), high(zero, difference), high(x[2], x[6])],
        [high(z3, z4), high(x[7], x[1]), high(x[5], x[3])],
    );
    std::array::from_fn(|i| _mm256_packs_epi32(lows[i], highs[i]))
}

/// Half the lanes of a pass in 32 bits. `even` holds `x0 + x4` and `x0 - x4` in the upper 16 bits, and the
/// pair (x2, x6); `odd` the pairs (x7 + x3, x5 + x1), (x7, x1) and (x5, x3).
#[inline]
#[target_feature(enable = "avx2")]
fn half<const SHIFT: i32>(even: [__m256i; 3], odd: [__m256i; 3]) -> [__m256i; 8] {
    let add = |a, b| _mm256_add_epi32(a, b);
    let sub = |a, b| _mm256_sub_epi32(a, b);
    let round = _mm256_set1_epi32(1 << (SHIFT - 1));
    let even0 = add(_mm256_srai_epi32::<3>(even[0]), round);
    let even1 = add(_mm256_srai_epi32::<3>(even[1]), round);
    let even2 = madd(even[2], 4433, 4433 - 15137);
    let even3 = madd(even[2], 4433 + 6270, 4433);
    let evens = [
        add(even0, even3),
        add(even1, even2),
        sub(even1, even2),
        sub(even0, even3),
    ];
    let (w3, w4) = (madd(odd[0], 9633 - 16069, 9633), madd(odd[0], 9633, 9633 - 3196));
    let odds = [
        add(madd(odd[1], -7373, 12299 - 7373), w4),
        add(madd(odd[2], -20995, 25172 - 20995), w3),
        add(madd(odd[2], 16819 - 20995, -20995), w4),
        add(madd(odd[1], 2446 - 7373, -7373), w3),
    ];
    std::array::from_fn(|i| {
        let value = if i < 4 {
            add(evens[i], odds[i])
        } else {
            sub(evens[7 - i], odds[7 - i])
        };
        _mm256_srai_epi32::<SHIFT>(value)
    })
}

/// Transposes both blocks of 16-bit values.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose(r: [__m256i; 8]) -> [__m256i; 8] {
    let low = |a, b| _mm256_unpacklo_epi16(a, b);
    let high = |a, b| _mm256_unpackhi_epi16(a, b);
    let a = [
        low(r[0], r[1]),
        high(r[0], r[1]),
        low(r[2], r[3]),
        high(r[2], r[3]),
        low(r[4], r[5]),
        high(r[4], r[5]),
        low(r[6], r[7]),
        high(r[6], r[7]),
    ];
    let low = |a, b| _mm256_unpacklo_epi32(a, b);
    let high = |a, b| _mm256_unpackhi_epi32(a, b);
    let b = [
        low(a[0], a[2]),
        high(a[0], a[2]),
        low(a[1], a[3]),
        high(a[1], a[3]),
        low(a[4], a[6]),
        high(a[4], a[6]),
        low(a[5], a[7]),
        high(a[5], a[7]),
    ];
    let low = |a, b| _mm256_unpacklo_epi64(a, b);
    let high = |a, b| _mm256_unpackhi_epi64(a, b);
    [
        low(b[0], b[4]),
        high(b[0], b[4]),
        low(b[1], b[5]),
        high(b[1], b[5]),
        low(b[2], b[6]),
        high(b[2], b[6]),
        low(b[3], b[7]),
        high(b[3], b[7]),
    ]
}

/// Transposes both blocks of bytes: from two columns a register and half to two rows.
#[inline]
#[target_feature(enable = "avx2")]
fn transpose_bytes(c: [__m256i; 4]) -> [__m256i; 4] {
    let four = |a, b| {
        let (even, odd) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
        (_mm256_unpacklo_epi8(even, odd), _mm256_unpackhi_epi8(even, odd))
    };
    let (left_top, left_bottom) = four(c[0], c[1]);
    let (right_top, right_bottom) = four(c[2], c[3]);
    [
        _mm256_unpacklo_epi32(left_top, right_top),
        _mm256_unpackhi_epi32(left_top, right_top),
        _mm256_unpacklo_epi32(left_bottom, right_bottom),
        _mm256_unpackhi_epi32(left_bottom, right_bottom),
    ]
}
