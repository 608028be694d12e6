//! The kernel for AVX2: two rows of a window at a time.

use super::{BLOCK, Buffers, Places, Turned};
use std::arch::x86_64::*;
use std::ops::Range;

/// As [`super::row`].
#[target_feature(enable = "avx2")]
pub(super) fn row(turned: &Turned<'_>, v: usize, range: Range<usize>, out: &mut [[u8; 4]]) {
    let start = turned.start(v);
    for (u, out) in range.step_by(BLOCK).zip(out.chunks_mut(BLOCK)) {
        sum_windows(turned, &turned.find(start, u), out);
    }
}

/// As [`super::portable`], for places that [`Turned::find`] found.
#[inline]
#[target_feature(enable = "avx2")]
fn sum_windows(turned: &Turned<'_>, places: &Places, out: &mut [[u8; 4]]) {
    // Of four pixels the first two and the last two, channel by channel, as pairs of 16 bits.
    let near = _mm256_setr_epi8(
        0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1, //
        0, -1, 4, -1, 1, -1, 5, -1, 2, -1, 6, -1, 3, -1, 7, -1,
    );
    let far = _mm256_or_si256(near, _mm256_set1_epi16(8));
    let Buffers { x, y, rows, .. } = turned.buffers;
    for (i, out) in out.iter_mut().enumerate() {
        let (wx, wy) = (x.of(places.x[i]), y.of(places.y[i]));
        let mut total = _mm256_setzero_si256();
        for (rows, wy) in rows.as_chunks::<2>().0.iter().zip(wy.as_chunks::<2>().0) {
            let mut sum = _mm256_set1_epi32(64);
            for (group, wx) in wx.as_chunks::<4>().0.iter().enumerate() {
                // SAFETY: a window that was found can be read in whole groups of four pixels.
                let pixels = unsafe {
                    let from = turned.data.as_ptr().add(places.offset[i] as usize + 16 * group);
                    _mm256_loadu2_m128i(from.add(rows[1]).cast(), from.add(rows[0]).cast())
                };
                let first = _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, near), pair(wx[0], wx[1]));
                let second = _mm256_madd_epi16(_mm256_shuffle_epi8(pixels, far), pair(wx[2], wx[3]));
                sum = _mm256_add_epi32(sum, _mm256_add_epi32(first, second));
            }
            // Values fit 16 bits; their upper halves meet weights of 0.
            let weights = _mm256_set_m128i(
                _mm_set1_epi32(i32::from(wy[1] as u16)),
                _mm_set1_epi32(i32::from(wy[0] as u16)),
            );
            total = _mm256_add_epi32(total, _mm256_madd_epi16(_mm256_srai_epi32::<7>(sum), weights));
        }
        let sum = _mm_add_epi32(
            _mm256_castsi256_si128(total),
            _mm256_extracti128_si256::<1>(total),
        );
        let sum = _mm_srai_epi32::<20>(_mm_add_epi32(sum, _mm_set1_epi32(1 << 19)));
        let words = _mm_packs_epi32(sum, sum);
        *out = _mm_cvtsi128_si32(_mm_packus_epi16(words, words)).to_le_bytes();
    }
}

/// Two weights, again and again.
#[inline]
#[target_feature(enable = "avx2")]
fn pair(first: i16, second: i16) -> __m256i {
    _mm256_set1_epi32(i32::from(first as u16) | i32::from(second) << 16)
}
