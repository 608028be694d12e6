//! Resampling by gathering: maps each pixel back to the source, in the arithmetic of `fused`.

use super::colour::apply_points;
use super::windows::window;
use super::{channel, clamped, held, held_signed, packed, read, saturated, signed, word, write};
use cubecl::prelude::*;

/// Units of a cube: a tile of 16 x 16 pixels.
pub(crate) const TILE: u32 = 16;

/// How an image is resampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum ResampleMethod {
    /// Each component of a JPEG by itself, along its rows and columns.
    Apart,
    /// Pixels, along rows and columns.
    Upright,
    /// Pixels, by a window for each.
    Turned,
}

impl ResampleMethod {
    /// All of them, in their order.
    pub const ALL: [Self; 3] = [Self::Apart, Self::Upright, Self::Turned];
}

/// A source begins with its kind. For pixels (0 among the pixels, 4 among the words) there follow their
/// place, width and height. For a JPEG's components (1 grey, 2 YCbCr, 3 RGB): the first pixel's column and
/// row in the scaled image, an unused word, and nine words for each component: the place of its plane, bytes
/// per row, samples per row, rows, the first sample's column and row, pixels per sample across and down, and
/// the kind of upsampling (0 repeated, 1 across, 2 down, 3 both).
///
/// A program has: the number and place of fills, the number and place of point operations; an upright one
/// then has the places of each channel's tables across and down, among the pixels ([`windows`](super::windows)); a turned
/// one has the places of both axes, its rows, and the place of each row's first column inside. Other places count from the
/// program's first word. A fill is its colour, and two words per row: the columns inside of it.
///
/// `records` has five words for each image, which `CUBE_POS_Z` indexes: width, height, the place of the
/// result among the pixels, the place of the program, the place of the source.
///
/// Each [`ResampleMethod`] is a kernel of its own: a unit has the registers of the path that it takes, and not of the
/// one that needs most.
#[cube(launch)]
pub(crate) fn resample(
    words: &[u32],
    planes: &[u8],
    hues: &[u8],
    pixels: &mut [u32],
    records: u32,
    zero: u32,
    #[comptime] method: ResampleMethod,
) {
    let record = records + 5 * CUBE_POS_Z;
    let width = word(words, record);
    let height = word(words, record + 1);
    let u = ABSOLUTE_POS_X;
    let v = ABSOLUTE_POS_Y;
    if u < width && v < height {
        let program = word(words, record + 3);
        let source = word(words, record + 4);
        let mut pixel = 0u32;
        // The first fill, from the last step's on, that this pixel is outside of.
        let frames = word(words, program);
        let table = program + word(words, program + 1);
        let mut filled = 0u32;
        for frame in 0..frames {
            let at = table + frame * (1 + 2 * height);
            let outside = u < word(words, at + 1 + 2 * v) || u >= word(words, at + 2 + 2 * v);
            if filled == 0 && outside {
                pixel = word(words, at);
                filled = 1u32;
            }
        }
        if filled == 0 {
            if comptime!(method == ResampleMethod::Apart) {
                pixel = upright_apart(words, planes, pixels, program, source, u, v);
            } else if comptime!(method == ResampleMethod::Upright) {
                pixel = upright(words, planes, pixels, program, source, u, v);
            } else {
                pixel = turned(words, planes, pixels, program, source, u, v);
            }
        }
        let count = word(words, program + 2);
        let points = program + word(words, program + 3);
        pixel = apply_points(words, hues, points, count, pixel, zero);
        write(pixels, word(words, record + 2) + v * width + u, pixel);
    }
}

/// A sample of a channel whose description begins at `plane`, clamped to the plane.
#[cube]
fn sample(words: &[u32], planes: &[u8], plane: u32, x: i32, y: i32) -> i32 {
    let x = clamped(x, 0, signed(words, plane + 2) - 1);
    let y = clamped(y, 0, signed(words, plane + 3) - 1);
    let at = word(words, plane) + u32::reinterpret(y) * word(words, plane + 1) + u32::reinterpret(x);
    i32::cast_from(read(planes, at))
}

/// A channel at pixel (`x`, `y`) of the scaled image, as libjpeg upsamples it.
#[cube]
fn upsampled(words: &[u32], planes: &[u8], plane: u32, x: u32, y: u32) -> i32 {
    let u = i32::reinterpret(x / word(words, plane + 6)) - signed(words, plane + 4);
    let v = i32::reinterpret(y / word(words, plane + 7)) - signed(words, plane + 5);
    let kind = word(words, plane + 8);
    let odd_x = i32::reinterpret(x % 2);
    let odd_y = i32::reinterpret(y % 2);
    let far_u = u + 2 * odd_x - 1;
    let far_v = v + 2 * odd_y - 1;
    let near = sample(words, planes, plane, u, v);
    let mut value = near;
    if kind == 1 {
        value = (3 * near + sample(words, planes, plane, far_u, v) + 1 + odd_x) >> 2;
    } else if kind == 2 {
        value = (3 * near + sample(words, planes, plane, u, far_v) + 1 + odd_y) >> 2;
    } else if kind == 3 {
        let here = 3 * near + sample(words, planes, plane, u, far_v);
        let beside = 3 * sample(words, planes, plane, far_u, v) + sample(words, planes, plane, far_u, far_v);
        value = (3 * here + beside + 8 - odd_x) >> 4;
    }
    value
}

/// A pixel of the source.
#[cube]
fn source_pixel(words: &[u32], planes: &[u8], pixels: &mut [u32], source: u32, x: u32, y: u32) -> u32 {
    let kind = word(words, source);
    let mut pixel = 0u32;
    if kind == 0 || kind == 4 {
        let wide = word(words, source + 2);
        let x = min(x, wide - 1);
        let y = min(y, word(words, source + 3) - 1);
        let at = word(words, source + 1) + y * wide + x;
        if kind == 0 {
            pixel = held(pixels, at);
        }
        if kind == 4 {
            pixel = word(words, at);
        }
    }
    if kind > 0 && kind < 4 {
        pixel = pixel_of_planes(words, planes, source, x, y);
    }
    pixel
}

/// A pixel of a JPEG's components, computed as libjpeg does.
#[cube]
fn pixel_of_planes(words: &[u32], planes: &[u8], source: u32, x: u32, y: u32) -> u32 {
    let kind = word(words, source);
    let x = x + word(words, source + 2);
    let y = y + word(words, source + 3);
    // A loop, and not three copies of its body, whose addresses would take three times as many registers.
    let mut components = 3u32;
    if kind == 1 {
        components = 1u32;
    }
    let mut pixel = 0u32;
    for c in 0..components {
        let value = upsampled(words, planes, source + 4 + 9 * c, x, y);
        pixel |= u32::reinterpret(value) << (8 * c);
    }
    if kind == 1 {
        pixel *= 0x10101u32;
    } else if kind == 2 {
        let luma = channel(pixel, 0u32);
        let cb = channel(pixel, 1u32) - 128;
        let cr = channel(pixel, 2u32) - 128;
        let red = luma + ((91881 * cr + 32768) >> 16);
        let green = luma + ((32768 - 22554 * cb - 46802 * cr) >> 16);
        let blue = luma + ((116130 * cb + 32768) >> 16);
        pixel = packed(
            clamped(red, 0, 255),
            clamped(green, 0, 255),
            clamped(blue, 0, 255),
        );
    }
    pixel
}

/// Converts a value times 64 to a byte.
#[cube]
fn byte(value: i32) -> i32 {
    clamped(saturated(value + 32) >> 6, 0, 255)
}

/// A value times a weight of 15 bits.
#[cube]
fn product(value: i32, weight: i32) -> i32 {
    (value * weight + 16384) >> 15
}

/// The weighted sums of a row's pixels, rounded to 64ths of a byte.
#[derive(CubeType)]
struct RowSums {
    red: i32,
    green: i32,
    blue: i32,
}

/// The sums over `taps` pixels from (`x`, `y`) on, whose weights begin at `weights`: those of an `upright`
/// program lie among the pixels, those of a turned one among the words.
#[cube]
fn row_sums(
    words: &[u32],
    planes: &[u8],
    pixels: &mut [u32],
    source: u32,
    x: u32,
    y: u32,
    weights: u32,
    taps: u32,
    #[comptime] upright: bool,
) -> RowSums {
    let mut red = 64i32;
    let mut green = 64i32;
    let mut blue = 64i32;
    for i in 0..taps {
        let weight = if comptime!(upright) {
            held_signed(pixels, weights + i)
        } else {
            signed(words, weights + i)
        };
        let pixel = source_pixel(words, planes, pixels, source, x + i, y);
        red += weight * channel(pixel, 0u32);
        green += weight * channel(pixel, 1u32);
        blue += weight * channel(pixel, 2u32);
    }
    RowSums {
        red: red >> 7,
        green: green >> 7,
        blue: blue >> 7,
    }
}

/// Along rows and columns of pixels.
#[cube]
fn upright(
    words: &[u32],
    planes: &[u8],
    pixels: &mut [u32],
    program: u32,
    source: u32,
    u: u32,
    v: u32,
) -> u32 {
    let across = window(pixels, word(words, program + 4), u);
    let down = window(pixels, word(words, program + 7), v);
    let mut red = 0i32;
    let mut green = 0i32;
    let mut blue = 0i32;
    for j in 0..down.taps {
        let y = down.start + j;
        let row = row_sums(
            words,
            planes,
            pixels,
            source,
            across.start,
            y,
            across.weights,
            across.taps,
            true,
        );
        let weight = held_signed(pixels, down.weights + j);
        red = saturated(red + product(saturated(row.red), weight));
        green = saturated(green + product(saturated(row.green), weight));
        blue = saturated(blue + product(saturated(row.blue), weight));
    }
    packed(byte(red), byte(green), byte(blue))
}

/// Along rows and columns of each component's own samples, followed by the conversion to colour.
#[cube]
fn upright_apart(
    words: &[u32],
    planes: &[u8],
    pixels: &mut [u32],
    program: u32,
    source: u32,
    u: u32,
    v: u32,
) -> u32 {
    let first = component(words, planes, pixels, program, source + 4, 0u32, u, v);
    let kind = word(words, source);
    let mut pixel = packed(byte(first), byte(first), byte(first));
    if kind != 1 {
        let second = component(words, planes, pixels, program, source + 13, 1u32, u, v);
        let third = component(words, planes, pixels, program, source + 22, 2u32, u, v);
        pixel = packed(byte(first), byte(second), byte(third));
        if kind == 2 {
            let cb = saturated(second - 8192);
            let cr = saturated(third - 8192);
            let red = saturated(cr + product(cr, 13173));
            let green = saturated(product(cb, 11277) + product(cr, 23401));
            let blue = saturated(cb + product(cb, 25297));
            pixel = packed(
                byte(saturated(first + red)),
                byte(saturated(first - green)),
                byte(saturated(first + blue)),
            );
        }
    }
    pixel
}

/// A component's value times 64.
#[cube]
fn component(
    words: &[u32],
    planes: &[u8],
    pixels: &mut [u32],
    program: u32,
    plane: u32,
    #[comptime] index: u32,
    u: u32,
    v: u32,
) -> i32 {
    let across = window(pixels, word(words, program + 4 + index), u);
    let down = window(pixels, word(words, program + 7 + index), v);
    let (x, y) = (i32::reinterpret(across.start), i32::reinterpret(down.start));
    let mut value = 0i32;
    for j in 0..down.taps {
        let mut sum = 64i32;
        for i in 0..across.taps {
            let sample = sample(
                words,
                planes,
                plane,
                x + i32::reinterpret(i),
                y + i32::reinterpret(j),
            );
            sum += held_signed(pixels, across.weights + i) * sample;
        }
        let weight = held_signed(pixels, down.weights + j);
        value = saturated(value + product(saturated(sum >> 7), weight));
    }
    value
}

/// A window for each pixel. An axis has: weights per phase, lowest and highest place, slope in two words,
/// sixteen steps, two words per row with the start of its points, the weights of 128 phases.
#[cube]
fn turned(
    words: &[u32],
    planes: &[u8],
    pixels: &mut [u32],
    program: u32,
    source: u32,
    u: u32,
    v: u32,
) -> u32 {
    let across = program + word(words, program + 4);
    let down = program + word(words, program + 5);
    let rows = word(words, program + 6);
    let from = word(words, program + word(words, program + 7) + v);
    let x = place(words, across, from, u, v);
    let y = place(words, down, from, u, v);
    let taps_x = word(words, across);
    let taps_y = word(words, down);
    let weights_x = across + 21 + 2 * rows + u32::reinterpret((x >> 5) & 127) * taps_x;
    let weights_y = down + 21 + 2 * rows + u32::reinterpret((y >> 5) & 127) * taps_y;
    let x = u32::reinterpret(max((x >> 12) + 1, 0));
    let y = u32::reinterpret(max((y >> 12) + 1, 0));
    let mut red = 524288i32;
    let mut green = 524288i32;
    let mut blue = 524288i32;
    for j in 0..taps_y {
        let row = row_sums(words, planes, pixels, source, x, y + j, weights_x, taps_x, false);
        let weight = signed(words, weights_y + j);
        red += row.red * weight;
        green += row.green * weight;
        blue += row.blue * weight;
    }
    packed(
        clamped(red >> 20, 0, 255),
        clamped(green >> 20, 0, 255),
        clamped(blue >> 20, 0, 255),
    )
}

/// The position of column `u` of row `v` along an axis, with 12 fractional bits.
#[cube]
fn place(words: &[u32], axis: u32, from: u32, u: u32, v: u32) -> i32 {
    let inside = u - from;
    let first = from + inside / 16 * 16;
    let slope = long(words, axis + 3);
    let start = long(words, axis + 21 + 2 * v);
    let far = i64::new(1 << 29);
    let place = (start + i64::cast_from(first) * slope) >> i64::new(20);
    let place = i32::cast_from(max(min(place, far), i64::new(0) - far));
    let place = place + signed(words, axis + 5 + inside % 16);
    clamped(place, signed(words, axis + 1), signed(words, axis + 2))
}

#[cube]
pub(crate) fn long(words: &[u32], at: u32) -> i64 {
    (i64::cast_from(signed(words, at + 1)) << i64::new(32)) | i64::cast_from(word(words, at))
}
