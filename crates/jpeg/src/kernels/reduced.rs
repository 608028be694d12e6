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
pub(crate) const ODD_OF_TWO: [i32; 4] = [-5906, 6967, -10426, 29692];

/// Transforms blocks to 4 x 4 samples each; block `i` goes to `at[i]`.
///
/// # Panics
/// Where a block would not fit into the target, or there are not as many places as blocks.
pub(crate) fn to_four(isa: Isa, blocks: &[Block], steps: &Steps, target: Target<'_>, at: &[usize]) {
    assert_eq!(blocks.len(), at.len(), "a block without a place");
    at.iter().for_each(|&at| target.require(4, at));
    let (samples, stride) = (target.samples, target.stride);
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => {
            for (blocks, at) in blocks.chunks(2).zip(at.chunks(2)) {
                let last = at.len() - 1; // where it is alone, twice
                let (blocks, at) = ([&blocks[0], &blocks[last]], [at[0], at[last]]);
                // SAFETY: the token proves the instructions, and the blocks were just found to lie within the
                // target.
                unsafe { super::avx2::reduced::to_four(blocks, steps, samples, stride, at) };
            }
        }
        _ => {
            for (block, &at) in blocks.iter().zip(at) {
                to_four_portable(block, steps, samples, stride, at);
            }
        }
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

/// Transforms blocks to 2 x 2 samples each; block `i` goes to `at[i]`.
///
/// # Panics
/// Where a block would not fit into the target, or there are not as many places as blocks.
pub(crate) fn to_two(isa: Isa, blocks: &[Block], steps: &Steps, target: Target<'_>, at: &[usize]) {
    assert_eq!(blocks.len(), at.len(), "a block without a place");
    at.iter().for_each(|&at| target.require(2, at));
    let (samples, stride) = (target.samples, target.stride);
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => {
            for (blocks, at) in blocks.chunks(2).zip(at.chunks(2)) {
                let last = at.len() - 1; // where it is alone, twice
                let (blocks, at) = ([&blocks[0], &blocks[last]], [at[0], at[last]]);
                // SAFETY: the token proves the instructions, and the blocks were just found to lie within the
                // target.
                unsafe { super::avx2::reduced::to_two(blocks, steps, samples, stride, at) };
            }
        }
        _ => {
            for (block, &at) in blocks.iter().zip(at) {
                to_two_portable(block, steps, samples, stride, at);
            }
        }
    }
}

fn to_two_portable(block: &Block, steps: &Steps, samples: &mut [u8], stride: usize, at: usize) {
    let value = |y: usize, x: usize| block.0[8 * y + x].wrapping_mul(steps.0[8 * y + x]);
    let column = |x: usize| two::<13>(std::array::from_fn(|y| value(y, x)));
    let mut columns = [[0; 2]; 8];
    for x in [0, 1, 3, 5, 7] {
        columns[x] = column(x);
    }
    for y in 0..2 {
        let row = two::<20>(columns.map(|column| column[y]));
        samples[at + y * stride..][..2].copy_from_slice(&row.map(byte));
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

    type Kernel = fn(Isa, &[Block], &Steps, Target<'_>, &[usize]);
    const KERNELS: [(Kernel, usize); 2] = [(to_four, 4), (to_two, 2)];

    /// What some blocks become, side by side.
    fn samples(kernel: Kernel, isa: Isa, blocks: &[Block], steps: &Steps) -> Vec<u8> {
        let mut samples = vec![7; 4 * 60];
        let target = Target {
            samples: &mut samples,
            stride: 60,
        };
        let at: Vec<usize> = (0..blocks.len()).map(|i| 3 + 5 * i).collect();
        kernel(isa, blocks, steps, target, &at);
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
            let blocks: Vec<Block> = (0..1 + round % 8).map(|_| block()).collect();
            let steps = Steps(std::array::from_fn(|_| {
                (number() % [16, 256, 65536][round % 3]) as i16
            }));
            for (kernel, side) in KERNELS {
                let expected = samples(kernel, Isa::Portable, &blocks, &steps);
                let found = samples(kernel, best(), &blocks, &steps);
                assert_eq!(found, expected, "round {round}, to {side}");
            }
        }
    }

    #[test]
    fn a_flat_block_is_the_transform_of_its_only_coefficient() {
        let steps = Steps([3; 64]);
        for dc in -2000..2000 {
            let mut block = Block::ZERO;
            block.0[0] = dc;
            for (kernel, side) in KERNELS {
                let (mut whole, mut short) = ([0; 16], [0; 16]);
                let (samples, stride) = (&mut whole[..], 4);
                kernel(Isa::Portable, &[block], &steps, Target { samples, stride }, &[0]);
                let samples = &mut short[..];
                idct::flat(dc, &steps, Target { samples, stride }, side, 0);
                assert_eq!(whole, short, "{dc}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "outside its strip")]
    fn a_block_that_does_not_fit_is_refused() {
        let target = Target {
            samples: &mut [0; 16],
            stride: 4,
        };
        to_four(Isa::detect(), &[Block::ZERO; 2], &Steps([1; 64]), target, &[0, 1]);
    }
}
