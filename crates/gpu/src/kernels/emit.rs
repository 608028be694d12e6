//! From pixels to the numbers of a batch.
//!
//! To-float, normalisation and rounding to half precision work on each byte alone, so the host makes a table
//! of the results and the device looks them up: bits of any type, exactly as on the CPU.

use super::{read, word, write};
use cubecl::prelude::*;

/// Writes three planes of each sample, which `CUBE_POS_Y` indexes. `records` has four words for each: the
/// place of its pixels, the place of its table (three times 256 numbers), the place of the erased rectangles,
/// their number. A rectangle is eight words: left, top, width, height, 1 if every pixel has its own number,
/// and then their place; else the three channels' numbers.
#[cube(launch)]
pub(crate) fn emit<N: Int>(
    words: &[u32],
    pixels: &[u32],
    out: &mut [N],
    records: u32,
    width: u32,
    count: u32,
) {
    let record = records + 4 * CUBE_POS_Y;
    let at = CUBE_POS_X * 256 + UNIT_POS;
    if at < count {
        let pixel = read(pixels, word(words, record) + at);
        let table = word(words, record + 1);
        let mut first = word(words, table + (pixel & 255));
        let mut second = word(words, table + 256 + ((pixel >> 8) & 255));
        let mut third = word(words, table + 512 + ((pixel >> 16) & 255));
        let u = at % width;
        let v = at / width;
        let erased = word(words, record + 2);
        for i in 0..word(words, record + 3) {
            let rectangle = erased + 8 * i;
            let x = u - word(words, rectangle);
            let y = v - word(words, rectangle + 1);
            let wide = word(words, rectangle + 2);
            let high = word(words, rectangle + 3);
            // Left of it and above it the differences wrap to more than any width.
            if x < wide && y < high {
                let mut at = rectangle + 5;
                let mut step = 1u32;
                if word(words, rectangle + 4) == 1 {
                    at = word(words, at) + y * wide + x;
                    step = wide * high;
                }
                first = word(words, at);
                second = word(words, at + step);
                third = word(words, at + 2 * step);
            }
        }
        let plane = CUBE_POS_Y * 3 * count + at;
        write(out, plane, N::cast_from(first));
        write(out, plane + count, N::cast_from(second));
        write(out, plane + 2 * count, N::cast_from(third));
    }
}
