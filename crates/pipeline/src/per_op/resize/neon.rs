//! The two passes with NEON.

use std::arch::aarch64::*;

use super::weights::{PRECISION, Weights};
use super::{HALF, Rows};

/// Resizes the first `height` rows horizontally.
///
/// # Safety
/// The processor has NEON, and `from` has 16 bytes from the beginning of each group of four taps of each row on.
#[target_feature(enable = "neon")]
pub unsafe fn across<const FROM: usize, const TO: usize>(
    from: Rows<'_>,
    height: usize,
    left: u32,
    weights: &Weights,
    out: &mut [u8],
) {
    for (y, out) in out.chunks_exact_mut(weights.len() * TO).take(height).enumerate() {
        for (at, out) in out.as_chunks_mut::<TO>().0.iter_mut().enumerate() {
            let start = y * from.stride + (weights.starts[at] - left) as usize * FROM;
            let mut sums = vdupq_n_s32(HALF);
            for (group, weights) in weights.fours(at).iter().enumerate() {
                // SAFETY: the caller vouches for 16 bytes.
                let pixels = unsafe { vld1q_u8(from.data.as_ptr().add(start + 4 * FROM * group)) };
                for (pixel, weight) in levels(four_bytes_each::<FROM>(pixels)).into_iter().zip(weights) {
                    sums = vmlaq_n_s32(sums, pixel, *weight);
                }
            }
            let words = vqmovn_s32(vshrq_n_s32::<{ PRECISION as i32 }>(sums));
            let bytes = vqmovun_s16(vcombine_s16(words, words));
            let bytes = vget_lane_u32::<0>(vreinterpret_u32_u8(bytes)).to_le_bytes();
            // The fourth level has no meaning, and is 0.
            *out = std::array::from_fn(|c| if c < 3 { bytes[c] } else { 0 });
        }
    }
}

/// Spreads four pixels of `FROM` bytes to four bytes each.
#[inline]
#[target_feature(enable = "neon")]
fn four_bytes_each<const FROM: usize>(pixels: uint8x16_t) -> uint8x16_t {
    const ORDER: [u8; 16] = [0, 1, 2, 255, 3, 4, 5, 255, 6, 7, 8, 255, 9, 10, 11, 255];
    match FROM {
        // SAFETY: 16 bytes are there.
        3 => vqtbl1q_u8(pixels, unsafe { vld1q_u8(ORDER.as_ptr()) }),
        _ => pixels,
    }
}

/// Bytes as numbers of 32 bits.
#[inline]
#[target_feature(enable = "neon")]
fn levels(bytes: uint8x16_t) -> [int32x4_t; 4] {
    let (low, high) = (vmovl_u8(vget_low_u8(bytes)), vmovl_high_u8(bytes));
    [
        vmovl_u16(vget_low_u16(low)),
        vmovl_high_u16(low),
        vmovl_u16(vget_low_u16(high)),
        vmovl_high_u16(high),
    ]
    .map(|four| vreinterpretq_s32_u32(four))
}

/// Resizes one row vertically, in whole vectors. Returns how many bytes it wrote.
///
/// # Safety
/// The processor has NEON, and `lines` holds `out.len()` bytes for every weight, `stride` bytes apart.
#[target_feature(enable = "neon")]
pub unsafe fn down(lines: &[u8], stride: usize, weights: &[i32], out: &mut [u8]) -> usize {
    let blocks = out.as_chunks_mut::<16>().0;
    for (block, out) in blocks.iter_mut().enumerate() {
        let mut sums = [vdupq_n_s32(HALF); 4];
        for (tap, weight) in weights.iter().enumerate() {
            // SAFETY: the caller vouches for a row of every weight.
            let bytes = unsafe { vld1q_u8(lines.as_ptr().add(tap * stride + 16 * block)) };
            for (sum, levels) in sums.iter_mut().zip(levels(bytes)) {
                *sum = vmlaq_n_s32(*sum, levels, *weight);
            }
        }
        let [a, b, c, d] = sums.map(|sum| vqmovn_s32(vshrq_n_s32::<{ PRECISION as i32 }>(sum)));
        let bytes = vcombine_u8(vqmovun_s16(vcombine_s16(a, b)), vqmovun_s16(vcombine_s16(c, d)));
        // SAFETY: `out` has 16 bytes.
        unsafe { vst1q_u8(out.as_mut_ptr(), bytes) };
    }
    16 * blocks.len()
}
