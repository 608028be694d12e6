//! Blur, sharpening and dilation: operations that read a pixel's neighbours.
//!
//! `records` has nine words for each image, which `CUBE_POS_Z` indexes: width, height, the place of its
//! pixels, the place of the result, the place of the point operations, their number, the place of the weights
//! (for a dilation the radius, for sharpening the factor's bits), their number, and the place of three floats per pixel for the intermediate
//! result of a blur.

use super::colour::{apply_points, blend};
use super::{channel, float, held, packed, rounded, word, write};
use cubecl::prelude::*;

/// The pixel at `at - radius`, mirrored at the borders.
#[cube]
fn mirrored(at: u32, radius: u32, size: u32) -> u32 {
    let mut place = at - radius;
    if at < radius {
        place = radius - at;
    }
    if place >= size {
        place = 2 * (size - 1) - place;
    }
    min(place, size - 1)
}

/// Applies a record's point operations to a result pixel and writes it.
#[cube]
fn finish(words: &[u32], hues: &[u8], pixels: &mut [u32], record: u32, at: u32, pixel: u32, zero: u32) {
    let points = word(words, record + 4);
    let pixel = apply_points(words, hues, points, word(words, record + 5), pixel, zero);
    write(pixels, word(words, record + 3) + at, pixel);
}

/// Sums along rows.
#[cube(launch)]
pub(crate) fn blur_across(words: &[u32], pixels: &mut [u32], records: u32, zero: u32) {
    let record = records + 9 * CUBE_POS_Z;
    let width = word(words, record);
    let u = ABSOLUTE_POS_X;
    let v = ABSOLUTE_POS_Y;
    if u < width && v < word(words, record + 1) {
        let row = word(words, record + 2) + v * width;
        let weights = word(words, record + 6);
        let count = word(words, record + 7);
        let mut red = 0.0f32;
        let mut green = 0.0f32;
        let mut blue = 0.0f32;
        for k in 0..count {
            let pixel = held(pixels, row + mirrored(u + k, count / 2, width));
            let weight = float(words, weights + k);
            red += rounded(weight * f32::cast_from(channel(pixel, 0u32)), zero);
            green += rounded(weight * f32::cast_from(channel(pixel, 1u32)), zero);
            blue += rounded(weight * f32::cast_from(channel(pixel, 2u32)), zero);
        }
        let at = word(words, record + 8) + 3 * (v * width + u);
        write(pixels, at, u32::reinterpret(red));
        write(pixels, at + 1, u32::reinterpret(green));
        write(pixels, at + 2, u32::reinterpret(blue));
    }
}

/// Rounds to the nearest integer, ties to even.
#[cube]
fn nearest_even(value: f32) -> i32 {
    let below = i32::cast_from(value);
    let rest = value - f32::cast_from(below);
    let mut nearest = below;
    if rest > 0.5 || (rest == 0.5 && below & 1 == 1) {
        nearest = below + 1;
    }
    min(nearest, 255)
}

/// Sums of these down columns.
#[cube(launch)]
pub(crate) fn blur_down(words: &[u32], hues: &[u8], pixels: &mut [u32], records: u32, zero: u32) {
    let record = records + 9 * CUBE_POS_Z;
    let width = word(words, record);
    let height = word(words, record + 1);
    let u = ABSOLUTE_POS_X;
    let v = ABSOLUTE_POS_Y;
    if u < width && v < height {
        let sums = word(words, record + 8);
        let weights = word(words, record + 6);
        let count = word(words, record + 7);
        let mut red = 0.0f32;
        let mut green = 0.0f32;
        let mut blue = 0.0f32;
        for k in 0..count {
            let at = sums + 3 * (mirrored(v + k, count / 2, height) * width + u);
            let weight = float(words, weights + k);
            red += rounded(weight * f32::reinterpret(held(pixels, at)), zero);
            green += rounded(weight * f32::reinterpret(held(pixels, at + 1)), zero);
            blue += rounded(weight * f32::reinterpret(held(pixels, at + 2)), zero);
        }
        let pixel = packed(nearest_even(red), nearest_even(green), nearest_even(blue));
        finish(words, hues, pixels, record, v * width + u, pixel, zero);
    }
}

/// The maximum over a square; positions outside the image are ignored.
#[cube(launch)]
pub(crate) fn dilate(words: &[u32], hues: &[u8], pixels: &mut [u32], records: u32, zero: u32) {
    let record = records + 9 * CUBE_POS_Z;
    let width = word(words, record);
    let height = word(words, record + 1);
    let u = ABSOLUTE_POS_X;
    let v = ABSOLUTE_POS_Y;
    if u < width && v < height {
        let first = word(words, record + 2);
        let radius = word(words, record + 6);
        let left = max(u, radius) - radius;
        let top = max(v, radius) - radius;
        let right = min(u + radius + 1, width);
        let bottom = min(v + radius + 1, height);
        let mut red = 0i32;
        let mut green = 0i32;
        let mut blue = 0i32;
        for y in top..bottom {
            for x in left..right {
                let pixel = held(pixels, first + y * width + x);
                red = max(red, channel(pixel, 0u32));
                green = max(green, channel(pixel, 1u32));
                blue = max(blue, channel(pixel, 2u32));
            }
        }
        let pixel = packed(red, green, blue);
        finish(words, hues, pixels, record, v * width + u, pixel, zero);
    }
}

/// Blends the smoothed image with the image; pixels at its edge stay.
#[cube(launch)]
pub(crate) fn sharpen(words: &[u32], hues: &[u8], pixels: &mut [u32], records: u32, zero: u32) {
    let record = records + 9 * CUBE_POS_Z;
    let width = word(words, record);
    let height = word(words, record + 1);
    let u = ABSOLUTE_POS_X;
    let v = ABSOLUTE_POS_Y;
    if u < width && v < height {
        let first = word(words, record + 2);
        let at = v * width + u;
        let mut pixel = held(pixels, first + at);
        if u > 0 && v > 0 && u + 1 < width && v + 1 < height {
            let factor = float(words, record + 6);
            let mut red = 4 * channel(pixel, 0u32);
            let mut green = 4 * channel(pixel, 1u32);
            let mut blue = 4 * channel(pixel, 2u32);
            for y in v - 1..v + 2 {
                for x in u - 1..u + 2 {
                    let near = held(pixels, first + y * width + x);
                    red += channel(near, 0u32);
                    green += channel(near, 1u32);
                    blue += channel(near, 2u32);
                }
            }
            pixel = packed(
                blend((2 * red + 13) / 26, channel(pixel, 0u32), factor, zero),
                blend((2 * green + 13) / 26, channel(pixel, 1u32), factor, zero),
                blend((2 * blue + 13) / 26, channel(pixel, 2u32), factor, zero),
            );
        }
        finish(words, hues, pixels, record, at, pixel, zero);
    }
}
