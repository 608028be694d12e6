//! The kernels. Their parameters are in one buffer of 32-bit `words`: tables, programs and records, whose
//! layout [`words`](crate::words) writes; but the tables of upright resampling are written among the pixels, by [`windows`]. A unit
//! works on one coefficient, one row of a block, one position of an axis, or one pixel.
//!
//! Every index is checked here, because CubeCL's checked launches do not check slices on Vulkan: reads are
//! moved to the end of their buffer, and writes outside of their buffer are skipped. So whatever a file
//! contains, a kernel stays within its buffers; and because the host computes the counts from the header,
//! every loop ends.

pub(crate) mod colour;
pub(crate) mod decode;
pub(crate) mod emit;
pub(crate) mod gather;
pub(crate) mod surroundings;
pub(crate) mod windows;

use cubecl::prelude::*;

/// This many cubes or a few more, in dimensions of at most 32768.
pub(crate) fn cubes(count: usize) -> CubeCount {
    let wide = count.clamp(1, 1 << 15);
    CubeCount::Static(wide as u32, count.div_ceil(wide).max(1) as u32, 1)
}

/// The index of this cube among those of [`cubes`].
#[cube]
pub(crate) fn cube_number() -> u32 {
    CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X
}

/// The element of a buffer at `at`.
#[cube]
pub(crate) fn read<T: CubePrimitive>(buffer: &[T], at: u32) -> T {
    buffer[min(at as usize, buffer.len() - 1)]
}

/// The element at `at` of a buffer that is also written to.
#[cube]
pub(crate) fn held<T: CubePrimitive>(buffer: &mut [T], at: u32) -> T {
    buffer[min(at as usize, buffer.len() - 1)]
}

/// Sets the element of a buffer at `at`.
#[cube]
pub(crate) fn write<T: CubePrimitive>(buffer: &mut [T], at: u32, value: T) {
    if (at as usize) < buffer.len() {
        buffer[at as usize] = value;
    }
}

#[cube]
pub(crate) fn word(words: &[u32], at: u32) -> u32 {
    read(words, at)
}

#[cube]
pub(crate) fn signed(words: &[u32], at: u32) -> i32 {
    i32::reinterpret(read(words, at))
}

#[cube]
pub(crate) fn held_signed(words: &mut [u32], at: u32) -> i32 {
    i32::reinterpret(held(words, at))
}

#[cube]
pub(crate) fn float(words: &[u32], at: u32) -> f32 {
    f32::reinterpret(read(words, at))
}

#[cube]
pub(crate) fn clamped(value: i32, low: i32, high: i32) -> i32 {
    max(min(value, high), low)
}

/// A number of 16 bits, saturated.
#[cube]
pub(crate) fn saturated(value: i32) -> i32 {
    clamped(value, -32768, 32767)
}

/// A number of 16 bits, wrapped.
#[cube]
pub(crate) fn wrapped(value: i32) -> i32 {
    (value << 16) >> 16
}

/// A float that the compiler cannot merge with later arithmetic, because it does not know that `zero` is 0.
/// So a product is rounded before an addition, as on the CPU.
#[cube]
pub(crate) fn rounded(value: f32, zero: u32) -> f32 {
    f32::reinterpret(u32::reinterpret(value) ^ zero)
}

/// Red, green and blue in one word.
#[cube]
pub(crate) fn packed(red: i32, green: i32, blue: i32) -> u32 {
    u32::reinterpret(red | (green << 8) | (blue << 16))
}

/// One channel of a packed pixel.
#[cube]
pub(crate) fn channel(pixel: u32, #[comptime] index: u32) -> i32 {
    i32::reinterpret((pixel >> (8 * index)) & 255)
}
