//! The kernels for AVX2.

use super::{BLOCK, Columns, PADDING, portable};
use crate::fused::source::Color;
use std::arch::x86_64::*;
use std::ops::Range;

/// Four windows that begin in turn within 16 bytes of a row: where these begin, and which of them the windows' samples are.
#[derive(Clone, Copy)]
struct Quad {
    base: u32,
    spread: [u8; 16],
}

/// How many bytes a shuffle chooses from.
const SPAN: usize = 16;

/// The starts of [`Columns`] in the form that a shuffle wants.
#[derive(Default)]
pub(in crate::fused::upright) struct Near {
    /// Four for each block; none where windows that follow each other begin too far apart.
    quads: Vec<[Quad; 4]>,
    /// How many bytes of a row are read.
    reach: usize,
}

impl Near {
    pub fn set(&mut self, starts: &[u32], groups: usize) {
        self.quads.clear();
        self.reach = 0;
        for starts in starts.as_chunks::<BLOCK>().0 {
            let mut quads = [Quad {
                base: 0,
                spread: [0; 16],
            }; 4];
            for (quad, starts) in quads.iter_mut().zip(starts.as_chunks::<4>().0) {
                // Starts rise or fall along a row.
                let (base, end) = (starts[0].min(starts[3]), starts[0].max(starts[3]));
                if (end - base) as usize + 4 > SPAN {
                    *self = Near::default();
                    return;
                }
                quad.base = base;
                for (i, spread) in quad.spread.iter_mut().enumerate() {
                    *spread = (starts[i / 4] - base) as u8 + (i % 4) as u8;
                }
                self.reach = self.reach.max(base as usize + 4 * (groups - 1) + SPAN);
            }
            self.quads.push(quads);
        }
    }

    /// How many bytes of a row [`sum_columns`] reads with these; 0 where it gathers.
    pub fn reach(&self) -> usize {
        self.reach
    }
}

/// As [`portable::sum_columns`].
///
/// A gather of eight windows takes some twenty cycles on many processors, so windows that begin near each other are
/// picked out of 16 bytes by a shuffle.
#[target_feature(enable = "avx2")]
pub(super) fn sum_columns(source: &[u8], columns: &Columns, out: &mut [i16]) {
    assert!(source.len() >= columns.reach);
    let groups = columns.groups;
    let tables = columns.weights.chunks_exact(groups);
    let out = out.as_chunks_mut::<BLOCK>().0.iter_mut();
    match columns.near.quads.is_empty() {
        true => {
            let starts = columns.starts.as_chunks::<BLOCK>().0;
            for ((out, starts), tables) in out.zip(starts).zip(tables) {
                block(tables, out, |half, group| {
                    // SAFETY: eight starts of 32 bits are 256 bits.
                    let starts = unsafe { _mm256_loadu_si256(starts.as_ptr().add(8 * half).cast()) };
                    // SAFETY: a start and the window after it, whole groups of four, end within `columns.reach`,
                    // which `source` has.
                    unsafe { _mm256_i32gather_epi32::<1>(source.as_ptr().add(4 * group).cast(), starts) }
                });
            }
        }
        false => {
            for ((out, quads), tables) in out.zip(&columns.near.quads).zip(tables) {
                block(tables, out, |half, group| {
                    let [first, second] = [&quads[2 * half], &quads[2 * half + 1]];
                    // SAFETY: 16 bytes from a base and four for each group before end within `columns.reach`, which
                    // `source` has; the spreads are 16 bytes each.
                    unsafe {
                        let near = |quad: &Quad| source.as_ptr().add(quad.base as usize + 4 * group).cast();
                        let samples = _mm256_loadu2_m128i(near(second), near(first));
                        let spread =
                            _mm256_loadu2_m128i(second.spread.as_ptr().cast(), first.spread.as_ptr().cast());
                        _mm256_shuffle_epi8(samples, spread)
                    }
                });
            }
        }
    }
}

/// The sums of a block; `samples` gives four samples of each of eight windows.
#[inline]
#[target_feature(enable = "avx2")]
fn block(tables: &[[i16; 4 * BLOCK]], out: &mut [i16; BLOCK], samples: impl Fn(usize, usize) -> __m256i) {
    let mut sums = [_mm256_set1_epi32(64); 2];
    for (group, table) in tables.iter().enumerate() {
        for half in 0..2 {
            let samples = samples(half, group);
            let zero = _mm256_setzero_si256();
            let low = _mm256_unpacklo_epi8(samples, zero); // windows 0, 1 and 4, 5
            let high = _mm256_unpackhi_epi8(samples, zero); // 2, 3 and 6, 7
            let weights = table[32 * half..].as_ptr();
            // SAFETY: half a table is 32 weights, twice 256 bits.
            let (a, b) = unsafe {
                (
                    _mm256_loadu_si256(weights.cast()),
                    _mm256_loadu_si256(weights.add(16).cast()),
                )
            };
            let low = _mm256_madd_epi16(low, _mm256_permute2x128_si256::<0x20>(a, b));
            let high = _mm256_madd_epi16(high, _mm256_permute2x128_si256::<0x31>(a, b));
            sums[half] = _mm256_add_epi32(sums[half], _mm256_hadd_epi32(low, high));
        }
    }
    let [first, second] = sums.map(|sum| _mm256_srai_epi32::<7>(sum));
    let both = _mm256_permute4x64_epi64::<0xD8>(_mm256_packs_epi32(first, second));
    // SAFETY: a block is 16 values of 16 bits.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), both) };
}

/// As [`portable::mix_rows`].
#[target_feature(enable = "avx2")]
pub(super) fn mix_rows(sums: &[i16], rows: Range<usize>, weights: &[i16], out: &mut [i16]) {
    let width = out.len();
    let first = rows.start % weights.len();
    for (group, out) in out.as_chunks_mut::<PADDING>().0.iter_mut().enumerate() {
        let mut totals = [_mm256_setzero_si256(); 2];
        let mut place = first;
        for &weight in weights {
            let row: &[i16; PADDING] = sums[place * width + group * PADDING..]
                .first_chunk()
                .expect("whole rows");
            let weight = _mm256_set1_epi16(weight);
            for (half, total) in totals.iter_mut().enumerate() {
                // SAFETY: a group is 32 values of 16 bits, twice 256 bits.
                let values = unsafe { _mm256_loadu_si256(row.as_ptr().add(16 * half).cast()) };
                *total = _mm256_adds_epi16(*total, _mm256_mulhrs_epi16(values, weight));
            }
            place = if place + 1 == weights.len() { 0 } else { place + 1 };
        }
        for (half, total) in totals.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { _mm256_storeu_si256(out.as_mut_ptr().add(16 * half).cast(), total) };
        }
    }
}

/// As [`portable::rgbx`].
#[target_feature(enable = "avx2")]
pub(super) fn rgbx(color: Color, channels: [&[i16]; 3], out: &mut [u8]) {
    let (blocks, rest) = out.as_chunks_mut::<64>();
    let done = 16 * blocks.len();
    for (i, out) in blocks.iter_mut().enumerate() {
        let [first, second, third] = channels.map(|channel| {
            let values: &[i16; 16] = channel[16 * i..].first_chunk().expect("a value for each pixel");
            // SAFETY: 16 values of 16 bits are 256 bits.
            unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
        });
        let [r, g, b] = match color {
            Color::Rgb => [first, second, third],
            Color::YCbCr => to_rgb(first, second, third),
        }
        .map(|value| _mm256_srai_epi16::<6>(_mm256_adds_epi16(value, _mm256_set1_epi16(32))));
        let (rb, gx) = (
            _mm256_packus_epi16(r, b),
            _mm256_packus_epi16(g, _mm256_set1_epi16(255)),
        );
        let (rg, bx) = (_mm256_unpacklo_epi8(rb, gx), _mm256_unpackhi_epi8(rb, gx));
        let (low, high) = (_mm256_unpacklo_epi16(rg, bx), _mm256_unpackhi_epi16(rg, bx));
        // SAFETY: 16 pixels are 64 bytes.
        unsafe {
            let to = out.as_mut_ptr();
            _mm256_storeu_si256(to.cast(), _mm256_permute2x128_si256::<0x20>(low, high));
            _mm256_storeu_si256(to.add(32).cast(), _mm256_permute2x128_si256::<0x31>(low, high));
        }
    }
    portable::rgbx(color, channels.map(|channel| &channel[done..]), rest);
}

/// JFIF's matrix, as in [`portable`].
#[inline]
#[target_feature(enable = "avx2")]
fn to_rgb(y: __m256i, cb: __m256i, cr: __m256i) -> [__m256i; 3] {
    let middle = _mm256_set1_epi16(128 << 6);
    let (cb, cr) = (_mm256_subs_epi16(cb, middle), _mm256_subs_epi16(cr, middle));
    let part = |value, weight| _mm256_mulhrs_epi16(value, _mm256_set1_epi16(weight));
    let red = _mm256_adds_epi16(cr, part(cr, portable::RED));
    let green = _mm256_adds_epi16(part(cb, portable::GREEN_CB), part(cr, portable::GREEN_CR));
    let blue = _mm256_adds_epi16(cb, part(cb, portable::BLUE));
    [
        _mm256_adds_epi16(y, red),
        _mm256_subs_epi16(y, green),
        _mm256_adds_epi16(y, blue),
    ]
}
