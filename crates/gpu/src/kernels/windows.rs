//! The windows of upright resampling, found by the device: see [`Triangles`](stokehold_pipeline::Triangles) for the arithmetic.

use super::gather::long;
use super::{clamped, held, signed, word, write};
use cubecl::prelude::*;

/// Words of an axis: where its table goes among the pixels, positions, weights a position, and places that a sample spans. If
/// that is 0, the table is among the words, at the next word: starts, then weights. Else there follow slope and start, two
/// words each, half the filter's width, the places that may be read, the places of a run, the first sample, the number of samples,
/// and the bits of weights.
pub(crate) const AXIS: u32 = 15;

/// Positions a cube.
pub(crate) const POSITIONS: u32 = 64;

/// Writes the tables of axes: weights a position, positions, each one's first sample, the weights.
#[cube(launch)]
pub(crate) fn windows(words: &[u32], pixels: &mut [u32], records: u32) {
    let record = records + AXIS * CUBE_POS_Y;
    let u = ABSOLUTE_POS_X;
    let positions = word(words, record + 1);
    if u < positions {
        let table = word(words, record);
        let taps = word(words, record + 2);
        if u == 0 {
            write(pixels, table, taps);
            write(pixels, table + 1, positions);
        }
        let start = table + 2 + u;
        let weights = table + 2 + positions + u * taps;
        if word(words, record + 3) == 0 {
            let found = word(words, record + 4);
            write(pixels, start, word(words, found + u));
            for i in 0..taps {
                let weight = word(words, found + positions + u * taps + i);
                write(pixels, weights + i, weight);
            }
        } else {
            triangle(words, pixels, record, u, start, weights);
        }
    }
}

/// The window of position `u`, whose first sample goes to `start`.
#[cube]
fn triangle(words: &[u32], pixels: &mut [u32], record: u32, u: u32, start: u32, weights: u32) {
    let taps = word(words, record + 2);
    let ratio = signed(words, record + 3);
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
    let wide = i64::cast_from(support);
    let first = i32::cast_from((center - wide + half) >> fraction);
    let first = clamped(first, low, high - 1);
    let end = i32::cast_from((center + wide + half) >> fraction);
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
        sum += height(support, distance, i);
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
        let mut weight = height(support, distance, i);
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
    whole(
        pixels,
        weights,
        taps,
        u32::reinterpret(sum),
        word(words, record + 14),
    );
}

/// What place `i` of a run weighs whose first one has this distance from the centre.
#[cube]
fn height(support: i32, distance: i32, i: u32) -> i32 {
    let distance = distance + i32::reinterpret(i << 16);
    max(support - max(distance, 0 - distance), 0)
}

/// Adds to the weight of a sample of a window.
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
fn whole(pixels: &mut [u32], weights: u32, taps: u32, sum: u32, bits: u32) {
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

/// A weight, at most `sum`, times 2 to the power of `bits` by `sum`, which is below 2^31: bit by bit, and rounded half up. No device
/// needs a division of 64 bits for it.
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
