//! Dequantisation and the inverse cosine transform: 64 coefficients to 8 x 8 samples.
//!
//! It is libjpeg's accurate integer transform (jidctint.c: the method of Loeffler, Ligtenberg and Moschytz,
//! columns first) in the arithmetic of libjpeg-turbo's vector code: products and the sums before them wrap in
//! 16 bits, the columns' results saturate to 16 bits. For coefficients that an encoder writes that is the
//! same as exact arithmetic; for absurd ones it says what comes out.

use super::Isa;
use crate::block::Block;

/// Quantisation steps in rows, wrapped to 16 bits.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub(crate) struct Steps(pub [i16; 64]);

/// Where samples go; rows are `stride` apart.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    pub samples: &'a mut [u8],
    pub stride: usize,
}

impl Target<'_> {
    /// The same place for a shorter time.
    pub fn reborrow(&mut self) -> Target<'_> {
        Target {
            samples: self.samples,
            stride: self.stride,
        }
    }

    /// # Panics
    /// Where `side` rows of as many bytes from `at` would not fit.
    #[inline(always)]
    pub fn require(&self, side: usize, at: usize) {
        assert!(
            self.stride >= side && at + (side - 1) * self.stride + side <= self.samples.len(),
            "a block outside its strip"
        );
    }
}

/// Transforms two blocks; block `i` goes to `at[i]`.
///
/// # Panics
/// Where a block would not fit into the target.
#[inline(always)]
pub(crate) fn transform(isa: Isa, blocks: [&Block; 2], steps: &Steps, target: Target<'_>, at: [usize; 2]) {
    target.require(8, at[0]);
    target.require(8, at[1]);
    match isa {
        Isa::Portable => {
            transform_portable(blocks[0], steps, target.samples, target.stride, at[0]);
            transform_portable(blocks[1], steps, target.samples, target.stride, at[1]);
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves the instructions, and both blocks were just found to lie within the
        // target.
        Isa::Avx2(_) => unsafe {
            super::avx2::idct::transform(blocks, steps, target.samples, target.stride, at)
        },
    }
}

/// Writes a block whose only coefficient is the first one: all its samples, `side` a side, are alike.
///
/// # Panics
/// Where it would not fit into the target.
#[inline(always)]
pub(crate) fn flat(dc: i16, steps: &Steps, target: Target<'_>, side: usize, at: usize) {
    target.require(side, at);
    let column = dc.wrapping_mul(steps.0[0]).wrapping_mul(4);
    let sample = ((i32::from(column) + 16) >> 5).clamp(-128, 127) + 128;
    for row in 0..side {
        target.samples[at + row * target.stride..][..side].fill(sample as u8);
    }
}

fn transform_portable(block: &Block, steps: &Steps, samples: &mut [u8], stride: usize, at: usize) {
    let value = |y: usize, x: usize| block.0[8 * y + x].wrapping_mul(steps.0[8 * y + x]);
    // By columns first, then by rows.
    let columns: [[i16; 8]; 8] = std::array::from_fn(|x| pass::<11>(std::array::from_fn(|y| value(y, x))));
    for y in 0..8 {
        let row = pass::<18>(columns.map(|column| column[y]));
        samples[at + y * stride..][..8].copy_from_slice(&row.map(|v| (v.clamp(-128, 127) + 128) as u8));
    }
}

/// One pass over eight values, shifted right by `SHIFT` with rounding and saturated. Constants are in 1/8192.
fn pass<const SHIFT: u32>(x: [i16; 8]) -> [i16; 8] {
    let mul = |a: i16, m: i32, b: i16, n: i32| (i32::from(a) * m).wrapping_add(i32::from(b) * n);
    let round = 1 << (SHIFT - 1);
    let even0 = (i32::from(x[0].wrapping_add(x[4])) << 13).wrapping_add(round);
    let even1 = (i32::from(x[0].wrapping_sub(x[4])) << 13).wrapping_add(round);
    let even2 = mul(x[2], 4433, x[6], 4433 - 15137);
    let even3 = mul(x[2], 4433 + 6270, x[6], 4433);
    let even = [
        even0.wrapping_add(even3),
        even1.wrapping_add(even2),
        even1.wrapping_sub(even2),
        even0.wrapping_sub(even3),
    ];
    let (z3, z4) = (x[7].wrapping_add(x[3]), x[5].wrapping_add(x[1]));
    let (w3, w4) = (mul(z3, 9633 - 16069, z4, 9633), mul(z3, 9633, z4, 9633 - 3196));
    let odd = [
        mul(x[7], -7373, x[1], 12299 - 7373).wrapping_add(w4),
        mul(x[5], -20995, x[3], 25172 - 20995).wrapping_add(w3),
        mul(x[5], 16819 - 20995, x[3], -20995).wrapping_add(w4),
        mul(x[7], 2446 - 7373, x[1], -7373).wrapping_add(w3),
    ];
    let saturate = |value: i32| (value >> SHIFT).clamp(i16::MIN.into(), i16::MAX.into()) as i16;
    std::array::from_fn(|i| match i {
        0..4 => saturate(even[i].wrapping_add(odd[i])),
        _ => saturate(even[7 - i].wrapping_sub(odd[7 - i])),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::tests::{best, numbers};

    fn samples(isa: Isa, blocks: [&Block; 2], steps: &Steps) -> Vec<u8> {
        let mut samples = vec![7; 8 * 40];
        transform(
            isa,
            blocks,
            steps,
            Target {
                samples: &mut samples,
                stride: 40,
            },
            [3, 19],
        );
        samples
    }

    #[test]
    fn both_forms_agree_on_tame_and_on_wild_coefficients() {
        let mut number = numbers(1);
        for round in 0..20_000 {
            let mut block = || {
                let mut block = Block::ZERO;
                let (many, high) = (number() % 64 + 1, [8, 64, 1024, 32768][round % 4]);
                for _ in 0..many {
                    block.0[number() as usize % 64] = (number() as i64 % high) as i16;
                }
                block
            };
            let (a, b) = (block(), block());
            let steps = Steps(std::array::from_fn(|_| {
                (number() % [16, 256, 65536][round % 3]) as i16
            }));
            assert_eq!(
                samples(best(), [&a, &b], &steps),
                samples(Isa::Portable, [&a, &b], &steps),
                "round {round}"
            );
        }
    }

    #[test]
    fn a_flat_block_is_the_transform_of_its_only_coefficient() {
        let steps = Steps([3; 64]);
        for dc in -2000..2000 {
            let mut block = Block::ZERO;
            block.0[0] = dc;
            let (mut whole, mut short) = ([0; 64], [0; 64]);
            transform(
                Isa::Portable,
                [&block; 2],
                &steps,
                Target {
                    samples: &mut whole,
                    stride: 8,
                },
                [0; 2],
            );
            flat(
                dc,
                &steps,
                Target {
                    samples: &mut short,
                    stride: 8,
                },
                8,
                0,
            );
            assert_eq!(whole, short, "{dc}");
        }
    }

    #[test]
    #[should_panic(expected = "outside its strip")]
    fn a_block_that_does_not_fit_is_refused() {
        let target = Target {
            samples: &mut [0; 64],
            stride: 8,
        };
        transform(best(), [&Block::ZERO; 2], &Steps([1; 64]), target, [0, 1]);
    }
}
