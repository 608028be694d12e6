//! Dequantisation and the inverse cosine transform: 64 coefficients to 8 x 8 samples.
//!
//! It is libjpeg's accurate integer transform (jidctint.c: the method of Loeffler, Ligtenberg and Moschytz,
//! columns first) in the arithmetic of libjpeg-turbo's vector code: products and the sums before them wrap in
//! 16 bits, the columns' results saturate to 16 bits. For coefficients that an encoder writes that is the
//! same as exact arithmetic; for absurd ones it says what comes out.

use super::Isa;
#[cfg(target_arch = "x86_64")]
use super::avx2::idct as avx2;
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

/// Coefficients, in coding order, that lie in the first four rows and columns. Of a block that has no others
/// half the arithmetic is with zeros.
const FEW: u32 = 10;

/// Transforms blocks; block `i` goes to `at[i]`, and in coding order has no coefficient from `counts[i]` on.
///
/// # Panics
/// Where a block would not fit into the target, or there are not as many places and counts as blocks.
pub(crate) fn transform(
    isa: Isa,
    blocks: &[Block],
    counts: &[u32],
    steps: &Steps,
    target: Target<'_>,
    at: &[usize],
) {
    assert!(
        blocks.len() == at.len() && blocks.len() == counts.len(),
        "a block without a place"
    );
    at.iter().for_each(|&at| target.require(8, at));
    let (samples, stride) = (target.samples, target.stride);
    match isa {
        Isa::Portable => {
            for (block, &at) in blocks.iter().zip(at) {
                transform_portable(block, steps, samples, stride, at);
            }
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => {
            for first in (0..blocks.len()).step_by(2) {
                let pair = [first, (first + 1).min(blocks.len() - 1)]; // one that is alone goes twice
                let (two, at) = (pair.map(|i| &blocks[i]), pair.map(|i| at[i]));
                match pair.iter().all(|&i| counts[i] <= FEW) {
                    // SAFETY: the token proves the instructions, and the blocks were just found to lie within
                    // the target.
                    true => unsafe { avx2::transform_few(two, steps, samples, stride, at) },
                    // SAFETY: the same.
                    false => unsafe { avx2::transform(two, steps, samples, stride, at) },
                }
            }
        }
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
    use crate::block::ZIGZAG;
    use crate::kernels::tests::{best, numbers};

    /// What some blocks become, side by side.
    fn samples(isa: Isa, blocks: &[Block], steps: &Steps) -> Vec<u8> {
        let mut samples = vec![7; 8 * 80];
        let target = Target {
            samples: &mut samples,
            stride: 80,
        };
        let count = |block: &Block| (0..64).rev().find(|&k| block.0[usize::from(ZIGZAG[k])] != 0);
        let counts: Vec<u32> = blocks
            .iter()
            .map(|block| count(block).map_or(1, |k| k as u32 + 1))
            .collect();
        let at: Vec<usize> = (0..blocks.len()).map(|i| 3 + 9 * i).collect();
        transform(isa, blocks, &counts, steps, target, &at);
        samples
    }

    #[test]
    fn both_forms_agree_on_tame_and_on_wild_coefficients() {
        let mut number = numbers(1);
        for round in 0..40_000 {
            let end = [64, 64, 10, 11][round % 4];
            let mut block = || {
                let mut block = Block::ZERO;
                let (many, high) = (number() % 64 + 1, [8, 64, 1024, 32768][round / 4 % 4]);
                for _ in 0..many {
                    let place = usize::from(ZIGZAG[number() as usize % end]);
                    block.0[place] = (number() as i64 % high) as i16;
                }
                block
            };
            let blocks: Vec<Block> = (0..1 + round % 8).map(|_| block()).collect();
            let steps = Steps(std::array::from_fn(|_| {
                (number() % [16, 256, 65536][round % 3]) as i16
            }));
            let expected = samples(Isa::Portable, &blocks, &steps);
            assert_eq!(samples(best(), &blocks, &steps), expected, "round {round}");
        }
    }

    #[test]
    fn a_flat_block_is_the_transform_of_its_only_coefficient() {
        let steps = Steps([3; 64]);
        for dc in -2000..2000 {
            let mut block = Block::ZERO;
            block.0[0] = dc;
            let mut short = vec![7; 8 * 80];
            let target = Target {
                samples: &mut short,
                stride: 80,
            };
            flat(dc, &steps, target, 8, 3);
            assert_eq!(samples(Isa::Portable, &[block], &steps), short, "{dc}");
        }
    }

    #[test]
    #[should_panic(expected = "outside its strip")]
    fn a_block_that_does_not_fit_is_refused() {
        let target = Target {
            samples: &mut [0; 64],
            stride: 8,
        };
        let (blocks, steps) = ([Block::ZERO; 2], Steps([1; 64]));
        transform(best(), &blocks, &[1; 2], &steps, target, &[0, 1]);
    }
}
