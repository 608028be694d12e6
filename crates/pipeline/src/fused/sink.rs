//! Where rows of pixels end: as numbers in the three planes of a sample.
//!
//! To float and the first normalisation are `byte * scale + offset` per channel, in f32, and a half precision number
//! is that rounded to nearest even; `u8` takes the bytes as they are. The kernel for AVX2 does exactly what the
//! portable one does.

use half::{bf16, f16};

use crate::sample::SampleMut;

/// Writes rows of bytes (four a pixel, the fourth unused) into three planes.
pub(super) struct Sink<'a> {
    out: SampleMut<'a>,
    scale: [f32; 3],
    offset: [f32; 3],
    width: usize,
    /// Whether the processor has AVX2 and F16C.
    #[cfg(target_arch = "x86_64")]
    wide: bool,
}

impl<'a> Sink<'a> {
    /// A sink for rows of `width` pixels; `out` holds the three planes.
    pub fn new(out: SampleMut<'a>, scale: [f32; 3], offset: [f32; 3], width: u32) -> Sink<'a> {
        let width = width as usize;
        Sink {
            out,
            scale,
            offset,
            width,
            #[cfg(target_arch = "x86_64")]
            wide: is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
        }
    }

    /// Writes row `y`.
    pub fn row(&mut self, y: usize, row: &[u8]) {
        let pixels: &[[u8; 4]] = row.as_chunks().0;
        let (plane, from, to) = (self.out.len() / 3, y * self.width, (y + 1) * self.width);
        for c in 0..3 {
            let range = c * plane + from..c * plane + to;
            let level = Level {
                shift: 8 * c as u32,
                scale: self.scale[c],
                offset: self.offset[c],
            };
            #[cfg(target_arch = "x86_64")]
            if self.wide {
                // SAFETY: the processor has AVX2 and F16C.
                unsafe {
                    match &mut self.out {
                        SampleMut::F32(out) => x86::wide(pixels, level, &mut out[range]),
                        SampleMut::F16(out) => x86::halves(pixels, level, &mut out[range]),
                        SampleMut::Bf16(out) => x86::wide(pixels, level, &mut out[range]),
                        SampleMut::U8(out) => x86::wide(pixels, level, &mut out[range]),
                    }
                }
                continue;
            }
            match &mut self.out {
                SampleMut::F32(out) => write(pixels, level, &mut out[range]),
                SampleMut::F16(out) => write(pixels, level, &mut out[range]),
                SampleMut::Bf16(out) => write(pixels, level, &mut out[range]),
                SampleMut::U8(out) => write(pixels, level, &mut out[range]),
            }
        }
    }
}

/// One channel of a pixel, and what becomes of it.
#[derive(Debug, Clone, Copy)]
struct Level {
    /// Where the channel lies in the pixel's four bytes, in bits.
    shift: u32,
    scale: f32,
    offset: f32,
}

impl Level {
    #[inline(always)]
    fn byte(self, pixel: [u8; 4]) -> u8 {
        (u32::from_le_bytes(pixel) >> self.shift) as u8
    }

    #[inline(always)]
    // Whole words and a shift: the compiler turns this into wide arithmetic, byte gathers it does not.
    fn float(self, pixel: [u8; 4]) -> f32 {
        let value = (u32::from_le_bytes(pixel) >> self.shift) & 0xFF;
        value as i32 as f32 * self.scale + self.offset
    }
}

/// A number of a sample.
trait Number: Copy {
    fn of(pixel: [u8; 4], level: Level) -> Self;
}

impl Number for f32 {
    #[inline(always)]
    fn of(pixel: [u8; 4], level: Level) -> f32 {
        level.float(pixel)
    }
}

impl Number for f16 {
    #[inline(always)]
    fn of(pixel: [u8; 4], level: Level) -> f16 {
        f16::from_f32_const(level.float(pixel))
    }
}

impl Number for bf16 {
    // As `bf16::from_f32` without its question for NaN, which no byte becomes: so it is wide arithmetic.
    #[inline(always)]
    fn of(pixel: [u8; 4], level: Level) -> bf16 {
        let bits = level.float(pixel).to_bits();
        bf16::from_bits((bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16) as u16)
    }
}

impl Number for u8 {
    #[inline(always)]
    fn of(pixel: [u8; 4], level: Level) -> u8 {
        level.byte(pixel)
    }
}

/// The definition.
#[inline(always)]
fn write<N: Number>(pixels: &[[u8; 4]], level: Level, to: &mut [N]) {
    for (to, pixel) in to.iter_mut().zip(pixels) {
        *to = N::of(*pixel, level);
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Level, Number, f16, write};
    use std::arch::x86_64::*;

    /// As [`write`], which the compiler makes wider with these instructions.
    #[target_feature(enable = "avx2")]
    pub fn wide<N: Number>(pixels: &[[u8; 4]], level: Level, to: &mut [N]) {
        write(pixels, level, to);
    }

    /// As [`write`], eight at a time: the portable conversion to half precision is all branches.
    #[target_feature(enable = "avx2,f16c")]
    pub fn halves(pixels: &[[u8; 4]], level: Level, to: &mut [f16]) {
        let (groups, rest) = to.as_chunks_mut::<8>();
        let (eights, pixels) = pixels[..8 * groups.len() + rest.len()].as_chunks::<8>();
        let shift = _mm_cvtsi32_si128(level.shift as i32);
        let (byte, scale) = (_mm256_set1_epi32(0xFF), _mm256_set1_ps(level.scale));
        let offset = _mm256_set1_ps(level.offset);
        for (to, eight) in groups.iter_mut().zip(eights) {
            // SAFETY: `eight` is 32 bytes, and the load needs no alignment.
            let words = unsafe { _mm256_loadu_si256(eight.as_ptr().cast()) };
            let value = _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srl_epi32(words, shift), byte));
            let value = _mm256_add_ps(_mm256_mul_ps(value, scale), offset);
            let halves = _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(value);
            // SAFETY: `to` is 16 bytes, and the store needs no alignment.
            unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), halves) };
        }
        write(pixels, level, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written<N: Number>(zero: N, pixels: &[[u8; 4]], level: Level) -> Vec<N> {
        let mut out = vec![zero; pixels.len()];
        write(pixels, level, &mut out);
        out
    }

    proptest! {
        /// The kernels equal the definition, and the definition rounds as `half` does, in every row of every type.
        #[test]
        fn rows_are_rounded_once_whatever_the_processor(
            pixels in prop::collection::vec(any::<[u8; 4]>(), 1..70),
            scale in prop::array::uniform3(1e-6f32..10.0), offset in prop::array::uniform3(-4e4f32..4e4),
        ) {
            let (len, width) = (pixels.len(), pixels.len() as u32);
            let row = pixels.as_flattened();
            let mut floats = vec![0.0f32; 3 * len];
            let mut halves = vec![f16::ZERO; 3 * len];
            let mut brains = vec![bf16::ZERO; 3 * len];
            let mut bytes = vec![0u8; 3 * len];
            for out in [(&mut floats).into(), (&mut halves).into(), (&mut brains).into(), (&mut bytes).into()] {
                Sink::new(out, scale, offset, width).row(0, row);
            }
            for c in 0..3 {
                let level = Level { shift: 8 * c as u32, scale: scale[c], offset: offset[c] };
                let plane = c * len..(c + 1) * len;
                prop_assert_eq!(&floats[plane.clone()], written(0.0, &pixels, level));
                prop_assert_eq!(&halves[plane.clone()], written(f16::ZERO, &pixels, level));
                prop_assert_eq!(&brains[plane.clone()], written(bf16::ZERO, &pixels, level));
                let channel: Vec<u8> = pixels.iter().map(|pixel| pixel[c]).collect();
                prop_assert_eq!(&bytes[plane], channel);
            }
            for ((float, half), brain) in floats.iter().zip(halves).zip(brains) {
                prop_assert_eq!(half, f16::from_f32(*float));
                prop_assert_eq!(brain, bf16::from_f32(*float));
            }
        }
    }
}
