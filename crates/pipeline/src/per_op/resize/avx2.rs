//! The two passes with AVX2.

use std::arch::x86_64::*;

use super::weights::{PRECISION, Weights};
use super::{HALF, Rows};

/// The first `height` rows along rows, two at a time: they share the weights.
///
/// # Safety
/// The processor has AVX2, and each group of four taps of each row is the beginning of 16 bytes of `from`.
#[target_feature(enable = "avx2")]
pub unsafe fn across<const FROM: usize, const TO: usize>(
    from: Rows<'_>,
    height: usize,
    left: u32,
    weights: &Weights,
    out: &mut [u8],
) {
    let row = weights.len() * TO;
    let mut lines = out[..row * height].chunks_mut(2 * row);
    for y in (0..height).step_by(2) {
        let Some(out) = lines.next() else { return };
        let (first, second) = out.split_at_mut(row);
        let (above, below) = (y * from.stride, (y + 1) * from.stride);
        let both = !second.is_empty();
        for at in 0..weights.len() {
            let start = (weights.starts[at] - left) as usize * FROM;
            let pairs = weights.pairs(at);
            let (high, low) = (&weights.high[pairs.clone()], &weights.low[pairs]);
            let groups = weights.counts[at].div_ceil(4) as usize;
            let (high, low) = (
                &high.as_chunks::<2>().0[..groups],
                &low.as_chunks::<2>().0[..groups],
            );
            let zero = _mm256_setzero_si256();
            let (mut h, mut l) = ([zero; 2], [zero; 2]);
            for (group, (high, low)) in high.iter().zip(low).enumerate() {
                let (high, low) = (pair_of_lanes(*high), pair_of_lanes(*low));
                let place = start + 4 * FROM * group;
                let mut add = |row: usize, line: usize| {
                    // SAFETY: the caller vouches for 16 bytes.
                    let pixels = unsafe { _mm_loadu_si128(from.data.as_ptr().add(line + place).cast()) };
                    let pixels = channels::<FROM>(pixels);
                    h[row] = _mm256_add_epi32(h[row], _mm256_madd_epi16(pixels, high));
                    l[row] = _mm256_add_epi32(l[row], _mm256_madd_epi16(pixels, low));
                };
                add(0, above);
                if both {
                    add(1, below);
                }
            }
            let place = at * TO..at * TO + TO;
            first[place.clone()].copy_from_slice(&rounded(h[0], l[0])[..TO]);
            if both {
                second[place].copy_from_slice(&rounded(h[1], l[1])[..TO]);
            }
        }
    }
}

/// Four pixels as pairs of 16 bits, channel by channel: two pixels in each half.
#[inline]
#[target_feature(enable = "avx2")]
fn channels<const FROM: usize>(pixels: __m128i) -> __m256i {
    let order = match FROM {
        3 => _mm256_setr_epi8(
            0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, //
            6, -1, 9, -1, 7, -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1,
        ),
        _ => _mm256_setr_epi8(
            0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, -1, -1, -1, -1, //
            8, -1, 12, -1, 9, -1, 13, -1, 10, -1, 14, -1, -1, -1, -1, -1,
        ),
    };
    _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(pixels), order)
}

/// The first pair in each 32 bits of the lower half, the second one in the upper half.
#[inline]
#[target_feature(enable = "avx2")]
fn pair_of_lanes([first, second]: [i32; 2]) -> __m256i {
    _mm256_set_m128i(_mm_set1_epi32(second), _mm_set1_epi32(first))
}

#[inline]
#[target_feature(enable = "avx2")]
fn rounded(high: __m256i, low: __m256i) -> [u8; 4] {
    let sum = _mm256_add_epi32(_mm256_slli_epi32::<12>(high), low);
    let sum = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
    let sum = _mm_add_epi32(sum, _mm_setr_epi32(HALF, HALF, HALF, 0));
    let sum = _mm_srai_epi32::<{ PRECISION as i32 }>(sum);
    let words = _mm_packs_epi32(sum, sum);
    _mm_cvtsi128_si32(_mm_packus_epi16(words, words)).to_le_bytes()
}

/// One row along columns, in whole vectors; returns how many bytes it made.
///
/// # Safety
/// The processor has AVX2, and `lines` holds `out.len()` bytes for every weight, `stride` bytes apart.
#[target_feature(enable = "avx2")]
pub unsafe fn down(lines: &[u8], stride: usize, weights: &Weights, at: usize, out: &mut [u8]) -> usize {
    let count = weights.counts[at] as usize;
    let used = weights.pairs(at).start..weights.pairs(at).start + count.div_ceil(2);
    let (high, low) = (&weights.high[used.clone()], &weights.low[used]);
    let zero = _mm256_setzero_si256();
    let half = _mm256_set1_epi32(HALF);
    for (block, out) in out.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let (mut h, mut l) = ([zero; 4], [zero; 4]);
        for (pair, (high, low)) in high.iter().zip(low).enumerate() {
            // SAFETY: the caller vouches for row `2 * pair` and, where it counts, for the next one.
            let (a, b) = unsafe {
                let a = lines.as_ptr().add(2 * pair * stride + 32 * block);
                let b = if 2 * pair + 1 < count { a.add(stride) } else { a };
                (_mm256_loadu_si256(a.cast()), _mm256_loadu_si256(b.cast()))
            };
            let (high, low) = (_mm256_set1_epi32(*high), _mm256_set1_epi32(*low));
            let (lower, upper) = (_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b));
            let parts = [
                _mm256_unpacklo_epi8(lower, zero),
                _mm256_unpackhi_epi8(lower, zero),
                _mm256_unpacklo_epi8(upper, zero),
                _mm256_unpackhi_epi8(upper, zero),
            ];
            for i in 0..4 {
                h[i] = _mm256_add_epi32(h[i], _mm256_madd_epi16(parts[i], high));
                l[i] = _mm256_add_epi32(l[i], _mm256_madd_epi16(parts[i], low));
            }
        }
        let mut done = [zero; 4];
        for i in 0..4 {
            let sum = _mm256_add_epi32(_mm256_add_epi32(_mm256_slli_epi32::<12>(h[i]), l[i]), half);
            done[i] = _mm256_srai_epi32::<{ PRECISION as i32 }>(sum);
        }
        let (lower, upper) = (
            _mm256_packs_epi32(done[0], done[1]),
            _mm256_packs_epi32(done[2], done[3]),
        );
        // SAFETY: `out` has 32 bytes.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm256_packus_epi16(lower, upper)) };
    }
    out.len() / 32 * 32
}
