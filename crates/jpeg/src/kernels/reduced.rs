//! Dequantisation and the inverse cosine transform of a smaller image: 64 coefficients to 4 x 4, 2 x 2 or
//! 1 x 1 samples.
//!
//! They are libjpeg's reduced transforms (jidctred.c), which leave out what would only make finer detail, in
//! the arithmetic of [`idct`](super::idct): sums wrap in 32 bits, the columns' results saturate to 16 bits.
//! A block whose only coefficient is the first one needs none of them: [`idct::flat`](super::idct::flat).

use super::Isa;
use super::idct::{Steps, Target};
use crate::block::Block;

/// Constants in 1/8192, as jidctred.c has them.
pub(crate) const EVEN: [i32; 2] = [15137, -6270]; // of x2 and x6
pub(crate) const ODD0: [i32; 4] = [-1730, 11893, -17799, 8697]; // of x7, x5, x3 and x1
pub(crate) const ODD2: [i32; 4] = [-4176, -4926, 7373, 20995];
const ODD_OF_TWO: [i32; 4] = [-5906, 6967, -10426, 29692];

/// Transforms two blocks to 4 x 4 samples each; block `i` goes to `at[i]`.
///
/// # Panics
/// Where a block would not fit into the target.
#[inline(always)]
pub(crate) fn to_four(isa: Isa, blocks: [&Block; 2], steps: &Steps, target: Target<'_>, at: [usize; 2]) {
    at.iter().for_each(|&at| target.require(4, at));
    match isa {
        Isa::Portable => {
            for (block, at) in blocks.into_iter().zip(at) {
                to_four_portable(block, steps, target.samples, target.stride, at);
            }
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves the instructions, and both blocks were just found to lie within the
        // target.
        Isa::Avx2(_) => unsafe {
            super::avx2::reduced::to_four(blocks, steps, target.samples, target.stride, at)
        },
    }
}

fn to_four_portable(block: &Block, steps: &Steps, samples: &mut [u8], stride: usize, at: usize) {
    let value = |y: usize, x: usize| block.0[8 * y + x].wrapping_mul(steps.0[8 * y + x]);
    let columns: [[i16; 4]; 8] = std::array::from_fn(|x| match x {
        4 => [0; 4], // no row looks at it
        _ => four::<12>(std::array::from_fn(|y| value(y, x))),
    });
    for y in 0..4 {
        let row = four::<19>(columns.map(|column| column[y]));
        samples[at + y * stride..][..4].copy_from_slice(&row.map(byte));
    }
}

/// Transforms a block to 2 x 2 samples.
///
/// # Panics
/// Where they would not fit into the target.
pub(crate) fn to_two(block: &Block, steps: &Steps, target: Target<'_>, at: usize) {
    target.require(2, at);
    let value = |y: usize, x: usize| block.0[8 * y + x].wrapping_mul(steps.0[8 * y + x]);
    let column = |x: usize| two::<13>(std::array::from_fn(|y| value(y, x)));
    let mut columns = [[0; 2]; 8];
    for x in [0, 1, 3, 5, 7] {
        columns[x] = column(x);
    }
    for y in 0..2 {
        let row = two::<20>(columns.map(|column| column[y]));
        target.samples[at + y * target.stride..][..2].copy_from_slice(&row.map(byte));
    }
}

/// One pass from eight values to four, shifted right by `SHIFT` with rounding and saturated.
fn four<const SHIFT: u32>(x: [i16; 8]) -> [i16; 4] {
    let sum = |values: [i16; 4], factors: [i32; 4]| dot(&values, &factors);
    let first = i32::from(x[0]) << 14;
    let even = dot(&[x[2], x[6]], &EVEN);
    let (even0, even2) = (first.wrapping_add(even), first.wrapping_sub(even));
    let odd = [x[7], x[5], x[3], x[1]];
    let (odd0, odd2) = (sum(odd, ODD0), sum(odd, ODD2));
    [
        even0.wrapping_add(odd2),
        even2.wrapping_add(odd0),
        even2.wrapping_sub(odd0),
        even0.wrapping_sub(odd2),
    ]
    .map(descale::<SHIFT>)
}

/// One pass from eight values to two.
fn two<const SHIFT: u32>(x: [i16; 8]) -> [i16; 2] {
    let first = i32::from(x[0]) << 15;
    let odd = dot(&[x[7], x[5], x[3], x[1]], &ODD_OF_TWO);
    [first.wrapping_add(odd), first.wrapping_sub(odd)].map(descale::<SHIFT>)
}

fn dot<const N: usize>(values: &[i16; N], factors: &[i32; N]) -> i32 {
    let products = values.iter().zip(factors).map(|(&v, &f)| i32::from(v) * f);
    products.fold(0, i32::wrapping_add)
}

fn descale<const SHIFT: u32>(value: i32) -> i16 {
    (value.wrapping_add(1 << (SHIFT - 1)) >> SHIFT).clamp(i16::MIN.into(), i16::MAX.into()) as i16
}

fn byte(value: i16) -> u8 {
    (value.clamp(-128, 127) + 128) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::idct;
    use crate::kernels::tests::{best, numbers};

    fn samples(isa: Isa, blocks: [&Block; 2], steps: &Steps) -> Vec<u8> {
        let mut samples = vec![7; 4 * 40];
        let (target, at) = (
            Target {
                samples: &mut samples,
                stride: 40,
            },
            [3, 19],
        );
        to_four(isa, blocks, steps, target, at);
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
            let flat = |side: usize| {
                let mut samples = [0; 16];
                let target = Target {
                    samples: &mut samples,
                    stride: 4,
                };
                idct::flat(dc, &steps, target, side, 0);
                samples
            };
            let target = |samples| Target { samples, stride: 4 };
            let (mut four, mut two) = ([0; 16], [0; 16]);
            to_four(Isa::Portable, [&block; 2], &steps, target(&mut four[..]), [0; 2]);
            to_two(&block, &steps, target(&mut two[..]), 0);
            assert_eq!((four, two), (flat(4), flat(2)), "{dc}");
        }
    }

    #[test]
    #[should_panic(expected = "outside its strip")]
    fn a_block_that_does_not_fit_is_refused() {
        let target = Target {
            samples: &mut [0; 16],
            stride: 4,
        };
        to_four(best(), [&Block::ZERO; 2], &Steps([1; 64]), target, [0, 1]);
    }
}
