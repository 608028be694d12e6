//! Operations on single pixels, in Pillow's arithmetic, and contrast.

// A kernel has neither `checked_div` nor closures.
#![allow(clippy::manual_checked_ops)]

use super::{channel, float, held, packed, read, rounded, word, write};
use cubecl::prelude::*;
use stokehold_pipeline::{HueTables, stretched_below};

/// Units of a cube that sums over an image.
pub(crate) const SUMMING: u32 = 256;

/// Cubes of a launch over the pixels of an image, at most; each continues where the others end. Vulkan promises 65,535.
pub(crate) const MOST_CUBES: u32 = 1 << 15;

/// Parts of an image whose levels are counted by themselves.
pub(crate) const COUNTING: u32 = 64;

/// Words of an image's histograms: three channels of 256 levels for each part, and three tables.
pub(crate) const COUNTS: u32 = 768 * (COUNTING + 1);

/// Where the saturations are in [`colours`], after the hues.
const SATURATION: i32 = 6 << 16;

/// Where [`stretched_below`] is in them.
const STRETCHED: u32 = (6 + 1) << 16;

/// The tables that all kernels of colour read.
pub(crate) fn colours() -> Vec<u8> {
    let HueTables { hue, saturation } = HueTables::new();
    let places = (hue.len() as i32, (hue.len() + saturation.len()) as u32);
    assert_eq!(places, (SATURATION, STRETCHED));
    [hue, saturation, stretched_below()].concat()
}

/// Applies point operations, two words each: 0 for brightness, 1 for saturation, 2 for hue, 3 for grey, 4 for a table of levels, 5
/// for another order of the channels; then the factor's bits, the shift, the distance from this word to the table (four
/// levels a word), or the channels, a byte each.
#[cube]
pub(crate) fn apply_points(
    words: &[u32],
    hues: &[u8],
    points: u32,
    count: u32,
    pixel: u32,
    zero: u32,
) -> u32 {
    let mut red = channel(pixel, 0u32);
    let mut green = channel(pixel, 1u32);
    let mut blue = channel(pixel, 2u32);
    for i in 0..count {
        let kind = word(words, points + 2 * i);
        let at = points + 2 * i + 1;
        if kind == 2 {
            let shifted = shifted_hue(hues, red, green, blue, word(words, at));
            red = channel(shifted, 0u32);
            green = channel(shifted, 1u32);
            blue = channel(shifted, 2u32);
        } else if kind == 4 {
            let table = at + word(words, at);
            red = looked_up(words, table, red);
            green = looked_up(words, table, green);
            blue = looked_up(words, table, blue);
        } else if kind == 5 {
            let all = packed(red, green, blue);
            let order = word(words, at);
            red = i32::reinterpret((all >> (8 * (order & 3))) & 255);
            green = i32::reinterpret((all >> (8 * ((order >> 8) & 3))) & 255);
            blue = i32::reinterpret((all >> (8 * ((order >> 16) & 3))) & 255);
        } else if kind == 3 {
            let grey = luminance(red, green, blue);
            red = grey;
            green = grey;
            blue = grey;
        } else {
            let mut from = 0i32;
            if kind == 1 {
                from = luminance(red, green, blue);
            }
            let factor = float(words, at);
            red = blend(from, red, factor, zero);
            green = blend(from, green, factor, zero);
            blue = blend(from, blue, factor, zero);
        }
    }
    packed(red, green, blue)
}

/// A level's entry in a table with four of them in a word.
#[cube]
fn looked_up(words: &[u32], table: u32, level: i32) -> i32 {
    let level = u32::reinterpret(level);
    i32::reinterpret((word(words, table + level / 4) >> (8 * (level & 3))) & 255)
}

/// ITU-R 601-2 luma.
#[cube]
fn luminance(red: i32, green: i32, blue: i32) -> i32 {
    (red * 19595 + green * 38470 + blue * 7471 + 32768) >> 16
}

/// `from + factor * (to - from)`, clipped and truncated.
#[cube]
pub(super) fn blend(from: i32, to: i32, factor: f32, zero: u32) -> i32 {
    let scaled = rounded(factor * f32::cast_from(to - from), zero);
    let value: f32 = f32::cast_from(from) + scaled;
    i32::cast_from(max(min(value, f32::new(255.0)), f32::new(0.0)))
}

/// Shifts the hue in HSV; `hues` are the bytes of [`colours`].
#[cube]
fn shifted_hue(hues: &[u8], red: i32, green: i32, blue: i32, shift: u32) -> u32 {
    let most = max(max(red, green), blue);
    let least = min(min(red, green), blue);
    let middle = red + green + blue - most - least;
    let range = most - least;
    let mut order = 0i32;
    if red == most {
        if green < blue {
            order = 1;
        }
    } else if green == most {
        order = 2;
        if red < blue {
            order = 3;
        }
    } else {
        order = 4;
        if red < green {
            order = 5;
        }
    }
    let mut hue = 0u32;
    if range > 0 {
        let at = (order * 256 + range) * 256 + most - middle;
        hue = u32::cast_from(read(hues, u32::reinterpret(at)));
    }
    let at = SATURATION + 256 * most + range;
    let s = u32::cast_from(read(hues, u32::reinterpret(at)));
    let v = u32::reinterpret(most);
    let h = (hue + shift) & 255;
    let mut pixel = packed(most, most, most);
    if s > 0 {
        let k = 2 * h % 85;
        let p = i32::reinterpret((2 * v * (255 - s) + 255) / 510);
        let q = i32::reinterpret((2 * v * (21675 - s * k) + 21675) / 43350);
        let t = i32::reinterpret((2 * v * (21675 - s * (85 - k)) + 21675) / 43350);
        let sector = 2 * h / 85 % 6;
        if sector == 0 {
            pixel = packed(most, t, p);
        } else if sector == 1 {
            pixel = packed(q, most, p);
        } else if sector == 2 {
            pixel = packed(p, most, t);
        } else if sector == 3 {
            pixel = packed(p, q, most);
        } else if sector == 4 {
            pixel = packed(t, p, most);
        } else {
            pixel = packed(most, p, q);
        }
    }
    pixel
}

/// Sums of luminance: each of 256 units sums every 256th pixel. `records` has three words for each image,
/// which `CUBE_POS_X` indexes: the place of its pixels, their number, and the place of the mean among the
/// pixels, with 256 words after it for the sums.
#[cube(launch)]
pub(crate) fn sums(words: &[u32], pixels: &mut [u32], records: u32) {
    let record = records + 3 * CUBE_POS_X;
    let first = word(words, record);
    let count = word(words, record + 1);
    let mut sum = 0u32;
    let mut at = UNIT_POS;
    while at < count {
        let pixel = held(pixels, first + at);
        sum += u32::reinterpret(luminance(
            channel(pixel, 0u32),
            channel(pixel, 1u32),
            channel(pixel, 2u32),
        ));
        at += 256u32;
    }
    write(pixels, word(words, record + 2) + 1 + UNIT_POS, sum);
}

/// The mean luminance of each of `images` images, rounded, from its sums; records are those of [`sums`].
#[cube(launch)]
pub(crate) fn mean(words: &[u32], pixels: &mut [u32], records: u32, images: u32) {
    if ABSOLUTE_POS_X < images {
        let record = records + 3 * ABSOLUTE_POS_X;
        let count = word(words, record + 1);
        let at = word(words, record + 2);
        let mut total = 0u32;
        for i in 1..257u32 {
            total += held(pixels, at + i);
        }
        // Round half up without doubling the total, which needs all its bits.
        let rest = total % count;
        let mut mean = total / count;
        if rest >= count - rest {
            mean += 1;
        }
        write(pixels, at, mean);
    }
}

/// Blends with the mean. `records` has seven words for each image, which `CUBE_POS_Y` indexes: the place of
/// its pixels, their number, the place of the mean, the factor's bits, the place of the result, the place of
/// the point operations, their number.
#[cube(launch)]
pub(crate) fn contrast(words: &[u32], hues: &[u8], pixels: &mut [u32], records: u32, zero: u32) {
    let record = records + 7 * CUBE_POS_Y;
    let mut at = CUBE_POS_X * 256 + UNIT_POS;
    while at < word(words, record + 1) {
        let pixel = held(pixels, word(words, record) + at);
        let mean = i32::reinterpret(held(pixels, word(words, record + 2)) & 255);
        let factor = float(words, record + 3);
        let blended = packed(
            blend(mean, channel(pixel, 0u32), factor, zero),
            blend(mean, channel(pixel, 1u32), factor, zero),
            blend(mean, channel(pixel, 2u32), factor, zero),
        );
        let points = word(words, record + 5);
        let count = word(words, record + 6);
        let done = apply_points(words, hues, points, count, blended, zero);
        write(pixels, word(words, record + 4) + at, done);
        at += CUBE_COUNT_X * 256;
    }
}

/// Adds 1 to a word.
#[cube]
fn one_more(pixels: &mut [u32], at: u32) {
    let count = held(pixels, at);
    write(pixels, at, count + 1);
}

/// Counts the levels of each channel: each of [`COUNTING`] units counts every 64th pixel, into words of its own. `records` has four
/// words for each image, which `CUBE_POS_X` indexes: the place of its pixels, their number, the place of [`COUNTS`] words, and how
/// [`tables`] makes the tables.
#[cube(launch)]
pub(crate) fn count(words: &[u32], pixels: &mut [u32], records: u32) {
    let record = records + 4u32 * CUBE_POS_X;
    let first = word(words, record);
    let count = word(words, record + 1);
    let own = word(words, record + 2) + 768u32 * UNIT_POS;
    for level in 0..768u32 {
        write(pixels, own + level, 0u32);
    }
    let mut at = UNIT_POS;
    while at < count {
        let pixel = held(pixels, first + at);
        one_more(pixels, own + (pixel & 255u32));
        one_more(pixels, own + 256u32 + ((pixel >> 8u32) & 255u32));
        one_more(pixels, own + 512u32 + ((pixel >> 16u32) & 255u32));
        at += 64u32;
    }
}

/// Makes the table of a channel from its counts; a unit for each channel of each of `images` images. Records are those of [`count`],
/// whose last word is 0 for stretching and 1 for equalising. `hues` has the bits of `stretched_below` after its other tables.
#[cube(launch)]
pub(crate) fn tables(words: &[u32], hues: &[u8], pixels: &mut [u32], records: u32, images: u32) {
    if ABSOLUTE_POS_X < 3u32 * images {
        let record = records + 4u32 * (ABSOLUTE_POS_X / 3u32);
        let counts = word(words, record + 2) + 256u32 * (ABSOLUTE_POS_X % 3u32);
        let table = counts + 768u32 * 64u32;
        let mut low = 256u32;
        let mut high = 0u32;
        let mut last = 0u32;
        for level in 0..256u32 {
            let mut total = 0u32;
            for part in 0..64u32 {
                total += held(pixels, counts + 768u32 * part + level);
            }
            write(pixels, counts + level, total);
            if total > 0 {
                if low == 256u32 {
                    low = level;
                }
                high = level;
                last = total;
            }
        }
        let step = (word(words, record + 1) - last) / 255u32;
        let equalizes = word(words, record + 3) == 1u32;
        let mut below = step / 2u32;
        for level in 0..256u32 {
            let mut new = level;
            if equalizes {
                if step > 0 {
                    new = min(below / step, 255u32);
                    below += held(pixels, counts + level);
                }
            } else if low < high {
                if level <= low {
                    new = 0u32;
                } else if level > high {
                    new = 255u32;
                } else {
                    let at = STRETCHED + (256u32 * low + high) * 32u32 + level / 8u32;
                    let bits = u32::cast_from(read(hues, at));
                    new = 255u32 * (level - low) / (high - low) - ((bits >> (level & 7u32)) & 1u32);
                }
            }
            write(pixels, table + level, new);
        }
    }
}

/// Looks levels up in the tables. `records` has six words for each image, which `CUBE_POS_Y` indexes: the place of its pixels, their
/// number, the place of its tables, the place of the result, the place of the point operations, their number.
#[cube(launch)]
pub(crate) fn look_up(words: &[u32], hues: &[u8], pixels: &mut [u32], records: u32, zero: u32) {
    let record = records + 6u32 * CUBE_POS_Y;
    let mut at = CUBE_POS_X * 256 + UNIT_POS;
    while at < word(words, record + 1) {
        let pixel = held(pixels, word(words, record) + at);
        let tables = word(words, record + 2);
        let red = held(pixels, tables + (pixel & 255)) & 255;
        let green = held(pixels, tables + 256 + ((pixel >> 8) & 255)) & 255;
        let blue = held(pixels, tables + 512 + ((pixel >> 16) & 255)) & 255;
        let levels = packed(
            i32::reinterpret(red),
            i32::reinterpret(green),
            i32::reinterpret(blue),
        );
        let points = word(words, record + 4);
        let done = apply_points(words, hues, points, word(words, record + 5), levels, zero);
        write(pixels, word(words, record + 3) + at, done);
        at += CUBE_COUNT_X * 256;
    }
}
