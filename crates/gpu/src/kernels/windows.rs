//! The windows of upright resampling, found by the device: [`BilinearAxis`](stokehold_pipeline::BilinearAxis) has the arithmetic.

use super::gather::long;
use super::{clamped, held, signed, word, write};
use cubecl::prelude::*;

/// Words of an axis:
///
/// | word | |
/// |---:|---|
/// | 0 | the place of its table among the pixels |
/// | 1 | positions |
/// | 2 | weights a position |
/// | 3 | places that a sample spans; 0 where the CPU found the table |
/// | 4 | then the place of that table among the words: first samples, then weights |
/// | 4, 5 | else the slope, |
/// | 6, 7 | the start, |
/// | 8 | half the filter's width, |
/// | 9, 10 | the places that may be read, |
/// | 11 | the most places of a run, |
/// | 12, 13 | the first sample and the number of samples, |
/// | 14 | the bits of weights |
pub(crate) const AXIS: u32 = 15;
pub(crate) const PLACE: u32 = 0;
pub(crate) const RATIO: u32 = 3;
pub(crate) const TABLE: u32 = 4;

/// Positions a cube.
pub(crate) const POSITIONS: u32 = 64;

/// Writes the tables of axes: weights a position, positions, each one's first sample, the weights.
#[cube(launch)]
pub(crate) fn windows(words: &[u32], pixels: &mut [u32], records: u32) {
    let record = records + AXIS * CUBE_POS_Y;
    let u = ABSOLUTE_POS_X;
    let positions = word(words, record + 1);
    if u < positions {
        let table = word(words, record + PLACE);
        let taps = word(words, record + 2);
        if u == 0 {
            write(pixels, table, taps);
            write(pixels, table + 1, positions);
        }
        let start = table + 2 + u;
        let weights = table + 2 + positions + u * taps;
        if word(words, record + RATIO) == 0 {
            // Copied, so that every table is found in the same buffer.
            let from = word(words, record + TABLE);
            write(pixels, start, word(words, from + u));
            for i in 0..taps {
                let weight = word(words, from + positions + u * taps + i);
                write(pixels, weights + i, weight);
            }
        } else {
            bilinear(words, pixels, record, u, start, weights);
        }
    }
}

/// A window of a table among the pixels.
#[derive(CubeType)]
pub(crate) struct Window {
    /// The first sample.
    pub start: u32,
    /// The place of its weights.
    pub weights: u32,
    /// How many weights there are.
    pub taps: u32,
}

/// The window of a position, from a table that [`windows`] wrote.
#[cube]
pub(crate) fn window(pixels: &mut [u32], table: u32, position: u32) -> Window {
    let taps = held(pixels, table);
    Window {
        start: held(pixels, table + 2 + position),
        weights: table + 2 + held(pixels, table + 1) + position * taps,
        taps,
    }
}

/// The window of position `u`, whose first sample goes to `start`.
#[cube]
fn bilinear(words: &[u32], pixels: &mut [u32], record: u32, u: u32, start: u32, weights: u32) {
    let taps = word(words, record + 2);
    let ratio = signed(words, record + RATIO);
    let slope = long(words, record + 4);
    let from = long(words, record + 6);
    let support = signed(words, record + 8);
    let low = signed(words, record + 9);
    let high = signed(words, record + 10);
    let most = signed(words, record + 11);
    let origin = signed(words, record + 12);
    let samples = signed(words, record + 13);

    let (half, fraction) = (i64::new(1 << 15), i64::new(16));
    let twice = slope * i64::cast_from(2 * u + 1) + from + from;
    let center = (twice + i64::new(1 << 24)) >> i64::new(25);
    let reach = i64::cast_from(support);
    let first = i32::cast_from((center - reach + half) >> fraction);
    let first = clamped(first, low, high - 1);
    let end = i32::cast_from((center + reach + half) >> fraction);
    let end = min(clamped(end, first + 1, high), first + most);
    let far = i64::new(1 << 30);
    let distance = (i64::cast_from(first) << fraction) + half - center;
    let distance = i32::cast_from(max(min(distance, far), i64::new(0) - far));

    let mut begin = first / ratio;
    if ratio == 2 {
        begin = (first - 1) >> 1;
    }
    let begin = clamped(begin - origin, 0, max(samples - i32::reinterpret(taps), 0));
    write(pixels, start, u32::reinterpret(begin));

    let count = u32::reinterpret(end - first);
    let mut sum = 0i32;
    for i in 0..count {
        sum += weight_of(support, distance, i);
    }
    let mut alone = 0i32;
    if sum == 0 {
        alone = 1i32;
        sum = 1i32;
    }
    for i in 0..taps {
        write(pixels, weights + i, 0u32);
    }
    for i in 0..count {
        let mut weight = weight_of(support, distance, i);
        if i == 0 {
            weight += alone;
        }
        let place = first + i32::reinterpret(i);
        let mut near = place / ratio;
        if ratio == 2 {
            // libjpeg's "fancy" upsampling, times four.
            near = place >> 1;
            let next = clamped(near + 2 * (place & 1) - 1 - origin, 0, samples - 1) - begin;
            add(pixels, weights, taps, next, weight);
            weight *= 3;
        }
        let near = clamped(near - origin, 0, samples - 1) - begin;
        add(pixels, weights, taps, near, weight);
    }
    if ratio == 2 {
        sum *= 4;
    }
    quantize(
        pixels,
        weights,
        taps,
        u32::reinterpret(sum),
        word(words, record + 14),
    );
}

/// What place `i` of a run weighs whose first one has this distance from the centre.
#[cube]
fn weight_of(support: i32, distance: i32, i: u32) -> i32 {
    let distance = distance + i32::reinterpret(i << 16);
    max(support - max(distance, 0 - distance), 0)
}

/// Adds to the weight of a sample of a window. A sample after the window is left out, because its place belongs to the next
/// position; the host writes no record with one.
#[cube]
fn add(pixels: &mut [u32], weights: u32, taps: u32, sample: i32, weight: i32) {
    let sample = u32::reinterpret(sample);
    if sample < taps {
        let before = held(pixels, weights + sample);
        write(pixels, weights + sample, before + u32::reinterpret(weight));
    }
}

/// Makes weights that sum to `sum` ones that sum to 2 to the power of `bits`.
#[cube]
fn quantize(pixels: &mut [u32], weights: u32, taps: u32, sum: u32, bits: u32) {
    let mut left = i32::reinterpret(1u32 << bits);
    let mut largest = 0i32;
    let mut at = weights;
    for i in 0..taps {
        let weight = quotient(held(pixels, weights + i), sum, bits);
        left -= weight;
        if weight > largest {
            largest = weight;
            at = weights + i;
        }
        write(pixels, weights + i, u32::reinterpret(min(weight, 32767)));
    }
    write(pixels, at, u32::reinterpret(min(largest + left, 32767)));
}

/// A weight, at most `sum`, times 2 to the power of `bits` by `sum`, which is at most 2^30 so that twice the rest fits: bit by bit, and
/// rounded half up. No device needs a division of 64 bits for it.
#[cube]
fn quotient(weight: u32, sum: u32, bits: u32) -> i32 {
    let mut rest = weight;
    let mut value = 0u32;
    if rest >= sum {
        rest -= sum;
        value = 1u32;
    }
    for _ in 0..bits {
        rest *= 2;
        value *= 2;
        if rest >= sum {
            rest -= sum;
            value += 1;
        }
    }
    if 2 * rest >= sum {
        value += 1;
    }
    i32::reinterpret(value)
}
