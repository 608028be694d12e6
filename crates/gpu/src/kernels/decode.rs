//! From packed coefficients to blocks, and from blocks to planes of samples.
//!
//! A component's record has nine words: the place of its blocks' heads among the words, the number of blocks,
//! its first block, the place of its 64 quantisation steps, blocks per row, the place of its plane, the
//! plane's bytes per row, samples per side of a block, the place of its values among the words. `CUBE_POS_Y`
//! indexes components.

use super::{clamped, read, saturated, signed, word, wrapped, write};
use cubecl::prelude::*;

/// Words of a record.
pub(crate) const RECORD: u32 = 9;
/// Blocks of a cube of [`unpack`]: 64 units each.
pub(crate) const UNPACKED: u32 = 4;
/// Blocks of a cube of [`transform`].
pub(crate) const TRANSFORMED: u32 = 64;

/// Writes every coefficient, including zeros, to its place. A head is three words: the mask of nonzero
/// coefficients, in rows, low half first, and the index of the block's first value among the component's
/// values, of which a word holds two.
#[cube(launch)]
pub(crate) fn unpack(words: &[u32], coefficients: &mut [i16], table: u32) {
    let record = table + RECORD * CUBE_POS_Y;
    let block = UNPACKED * CUBE_POS_X + UNIT_POS / 64;
    let k = UNIT_POS % 64;
    if block < word(words, record + 1) {
        let head = word(words, record) + 3 * block;
        let low = word(words, head);
        let high = word(words, head + 1);
        let within = k % 32;
        let below = (1u32 << within) - 1u32;
        let mut half = low;
        let mut rank = (low & below).count_ones();
        if k >= 32 {
            half = high;
            rank = low.count_ones() + (high & below).count_ones();
        }
        let mut value = i16::new(0);
        if (half >> within) & 1u32 == 1u32 {
            let place = word(words, head + 2) + rank;
            let pair = signed(words, word(words, record + 8) + place / 2);
            value = i16::cast_from(wrapped(pair >> i32::reinterpret(16 * (place % 2))));
        }
        let at = 64 * (word(words, record + 2) + block) + k;
        write(coefficients, at, value);
    }
}

/// Dequantises and transforms blocks, in the arithmetic of crate jpeg's kernels `idct` and `reduced`, one
/// block per unit. A block with only its first coefficient takes a shortcut, which wraps where the full
/// transform saturates.
#[cube(launch)]
pub(crate) fn transform(words: &[u32], coefficients: &[i16], planes: &mut [u8], table: u32) {
    let record = table + RECORD * CUBE_POS_Y;
    let block = TRANSFORMED * CUBE_POS_X + UNIT_POS;
    if block < word(words, record + 1) {
        let first = 64 * (word(words, record + 2) + block);
        let steps = word(words, record + 3);
        let mut values = Array::<i32>::new(64usize);
        let mut finer = 0i32;
        #[unroll]
        for i in 0..64u32 {
            let coefficient = i32::cast_from(read(coefficients, first + i));
            if comptime!(i > 0) {
                finer |= coefficient;
            }
            values[i as usize] = wrapped(coefficient * signed(words, steps + i));
        }
        let wide = word(words, record + 4);
        let stride = word(words, record + 6);
        let side = word(words, record + 7);
        let at = word(words, record + 5) + (block / wide) * side * stride + (block % wide) * side;
        if finer == 0 || side == 1 {
            let sample = (wrapped(4 * values[0]) + 16) >> 5;
            let sample = u8::cast_from(clamped(sample, -128, 127) + 128);
            for y in 0..side {
                for x in 0..side {
                    write(planes, at + y * stride + x, sample);
                }
            }
        } else if side == 8 {
            samples(&mut values, planes, at, stride, 8u32);
        } else if side == 4 {
            samples(&mut values, planes, at, stride, 4u32);
        } else {
            samples(&mut values, planes, at, stride, 2u32);
        }
    }
}

/// Transforms a block into `side` rows of as many samples.
#[cube]
fn samples(values: &mut Array<i32>, planes: &mut [u8], at: u32, stride: u32, #[comptime] side: u32) {
    let mut out = Array::<i32>::new(8usize);
    #[unroll]
    for x in 0..8u32 {
        pass(&*values, x, 8u32, &mut out, side, 0i32);
        #[unroll]
        for y in 0..side {
            values[(8 * y + x) as usize] = out[y as usize];
        }
    }
    #[unroll]
    for y in 0..side {
        pass(&*values, 8 * y, 1u32, &mut out, side, 7i32);
        #[unroll]
        for x in 0..side {
            let sample = clamped(out[x as usize], -128, 127) + 128;
            write(planes, at + y * stride + x, u8::cast_from(sample));
        }
    }
}

/// One pass over eight values that leaves `side` values in `y`. Results are shifted by `more` bits beyond the
/// shift of the pass along columns.
#[cube]
fn pass(
    values: &Array<i32>,
    #[comptime] first: u32,
    #[comptime] step: u32,
    y: &mut Array<i32>,
    #[comptime] side: u32,
    #[comptime] more: i32,
) {
    let mut x = Array::<i32>::new(8usize);
    #[unroll]
    for i in 0..8u32 {
        x[i as usize] = values[(first + step * i) as usize];
    }
    if comptime!(side == 8) {
        eight(&x, y, comptime!(11 + more));
    } else if comptime!(side == 4) {
        four(&x, y, comptime!(12 + more));
    } else {
        two(&x, y, comptime!(13 + more));
    }
}

#[cube]
fn eight(x: &Array<i32>, y: &mut Array<i32>, #[comptime] shift: i32) {
    let round = comptime!(1i32 << (shift - 1));
    let even0 = (wrapped(x[0] + x[4]) << 13) + round;
    let even1 = (wrapped(x[0] - x[4]) << 13) + round;
    let even2 = x[2] * 4433 - x[6] * 10704;
    let even3 = x[2] * 10703 + x[6] * 4433;
    let a0 = even0 + even3;
    let a1 = even1 + even2;
    let a2 = even1 - even2;
    let a3 = even0 - even3;
    let z3 = wrapped(x[7] + x[3]);
    let z4 = wrapped(x[5] + x[1]);
    let w3 = z4 * 9633 - z3 * 6436;
    let w4 = z3 * 9633 + z4 * 6437;
    let b0 = x[1] * 4926 - x[7] * 7373 + w4;
    let b1 = x[3] * 4177 - x[5] * 20995 + w3;
    let b2 = w4 - x[5] * 4176 - x[3] * 20995;
    let b3 = w3 - x[7] * 4927 - x[1] * 7373;
    y[0] = saturated((a0 + b0) >> shift);
    y[1] = saturated((a1 + b1) >> shift);
    y[2] = saturated((a2 + b2) >> shift);
    y[3] = saturated((a3 + b3) >> shift);
    y[4] = saturated((a3 - b3) >> shift);
    y[5] = saturated((a2 - b2) >> shift);
    y[6] = saturated((a1 - b1) >> shift);
    y[7] = saturated((a0 - b0) >> shift);
}

#[cube]
fn four(x: &Array<i32>, y: &mut Array<i32>, #[comptime] shift: i32) {
    let round = comptime!(1i32 << (shift - 1));
    let first = (x[0] << 14) + round;
    let even = x[2] * 15137 - x[6] * 6270;
    let odd0 = x[5] * 11893 - x[7] * 1730 - x[3] * 17799 + x[1] * 8697;
    let odd2 = x[3] * 7373 - x[7] * 4176 - x[5] * 4926 + x[1] * 20995;
    y[0] = saturated((first + even + odd2) >> shift);
    y[1] = saturated((first - even + odd0) >> shift);
    y[2] = saturated((first - even - odd0) >> shift);
    y[3] = saturated((first + even - odd2) >> shift);
}

#[cube]
fn two(x: &Array<i32>, y: &mut Array<i32>, #[comptime] shift: i32) {
    let round = comptime!(1i32 << (shift - 1));
    let first = (x[0] << 15) + round;
    let odd = x[5] * 6967 - x[7] * 5906 - x[3] * 10426 + x[1] * 29692;
    y[0] = saturated((first + odd) >> shift);
    y[1] = saturated((first - odd) >> shift);
}
