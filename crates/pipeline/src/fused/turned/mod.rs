//! Turned resampling: every pixel of the result has a window of its own in the source.
//!
//! A window begins where the filter around the pixel's point begins. How the point lies between the source's pixels
//! is one of 128 phases along each axis, whose weights are kept in tables ([`Phases`]). A point whose window would
//! reach over the bounds is moved to the nearest one whose window does not; a picture's edge stays a picture's edge,
//! at most one pixel of the result wide.

mod kernel;
mod tables;

use super::isa::Isa;
use super::source::{Bounds, Rgbx};
use crate::draw::MOST_SIDE;
use crate::fused::quantize::quantize;
use crate::op::Filter;
use crate::step::Affine;
use std::ops::Range;
pub use tables::{TurnedAxis, TurnedTables};

/// Positions between two pixels for which weights are kept.
const PHASES: usize = 1 << PHASE_BITS;
const PHASE_BITS: u32 = 7;

/// Fractional bits of a position. An image has at most [`MOST_SIDE`] columns, and a filter's half width is at most twice
/// that, so positions fit 32 bits.
const BITS: u32 = 12;

/// Fractional bits of a position while it moves along a row.
const FINE: u32 = 32;

/// Farther outside than any pixel inside is; twice as far still fits 32 bits.
const FAR: i64 = 1 << 29;

/// Pixels whose positions are found together.
const BLOCK: usize = 16;

/// Buffers that are reused from image to image.
pub(super) struct Buffers {
    isa: Isa,
    x: Phases,
    y: Phases,
    /// For each row of a window, padded to whole groups of four, how many bytes it lies after the first.
    rows: Vec<usize>,
    /// A copy of a source that ends where its last pixel does.
    copy: Vec<u8>,
    #[cfg(target_arch = "x86_64")]
    wide: kernel::Wide,
}

impl Default for Buffers {
    fn default() -> Buffers {
        Buffers {
            isa: Isa::detect(),
            x: Phases::default(),
            y: Phases::default(),
            rows: Vec::new(),
            copy: Vec::new(),
            #[cfg(target_arch = "x86_64")]
            wide: kernel::Wide::default(),
        }
    }
}

/// The weights of one axis at every phase, padded with zeros to whole groups of four.
#[derive(Default)]
struct Phases {
    weights: Vec<i16>,
    /// Weights that may differ from 0, and with the padding.
    taps: usize,
    padded: usize,
    /// From a point to the place that is counted in.
    shift: f64,
    /// The least and the greatest place, in [`BITS`] fractional bits.
    least: i32,
    most: i32,
}

impl Phases {
    /// Weights that sum to `one`, for windows within `bounds`, where a pixel of the result spans `scale` pixels.
    fn set(&mut self, filter: Filter, scale: f64, (low, high): (i64, i64), one: i32) {
        let support = filter.support(scale);
        let full = (2.0 * support).ceil() as usize;
        let taps = full.min((high - low) as usize);
        // Of a window that is wider than the bounds the middle counts: its beginning weighs next to nothing, or less.
        let skipped = ((full - taps) / 2) as f64;
        (self.taps, self.padded) = (taps, taps.next_multiple_of(4));
        self.weights.clear();
        self.weights.resize(PHASES * self.padded, 0);
        // The phase is rounded to the nearest, except where only the pixel counts.
        let half = if filter == Filter::Nearest {
            0.0
        } else {
            0.5 / PHASES as f64
        };
        self.shift = half - support - 0.5;
        self.least = (low as i32 - 1) << BITS;
        self.most = ((high as i32 - taps as i32) << BITS) - 1;
        let mut exact = vec![1.0; taps];
        for (phase, weights) in self.weights.chunks_exact_mut(self.padded).enumerate() {
            if filter != Filter::Nearest {
                let first = 1.0 - phase as f64 / PHASES as f64 - support + skipped;
                for (i, weight) in exact.iter_mut().enumerate() {
                    *weight = filter.weight((first + i as f64) / scale.max(1.0));
                }
            }
            quantize(&exact, exact.iter().sum(), one, |i, weight| weights[i] = weight);
        }
    }

    #[inline(always)]
    fn of(&self, phase: u32) -> &[i16] {
        &self.weights[phase as usize * self.padded..][..self.padded]
    }
}

/// Where a block's windows are and which weights they have.
#[derive(Default)]
struct Places {
    /// Bytes from the first pixel of the source to the window's first.
    offset: [u32; BLOCK],
    /// Phases.
    x: [u32; BLOCK],
    y: [u32; BLOCK],
}

/// Weights along rows sum to this, and those down columns to that.
const ONE_ACROSS: i32 = 1 << 13;
const ONE_DOWN: i32 = 1 << 14;

/// The least and the first too great place of an axis.
type Extent = (i64, i64);

/// Map, scales and bounds where coordinates count the source's pixels from its corner.
fn place(
    source: &Rgbx<'_>,
    map: &Affine,
    bounds: Bounds,
    scales: (f64, f64),
) -> (Affine, (f64, f64), (Extent, Extent)) {
    // Steps on longer images are refused when they are drawn.
    assert!(
        source.width.max(source.height) <= MOST_SIDE,
        "{} x {} pixels are too many to be turned",
        source.width,
        source.height
    );
    let (unit, span) = (1.0 / f64::from(source.pixels), i64::from(source.pixels));
    let corner = Affine([unit, 0.0, -f64::from(source.x), 0.0, unit, -f64::from(source.y)]);
    let map = map.then(&corner);
    let scales = (scales.0 * unit, scales.1 * unit);
    let within = |(low, high): (i64, i64), start: u32, size: u32| {
        let low = (low.div_euclid(span) - i64::from(start)).clamp(0, i64::from(size) - 1);
        let high = (high + span - 1).div_euclid(span);
        (low, (high - i64::from(start)).clamp(low + 1, i64::from(size)))
    };
    let bounds = (
        within(bounds.x, source.x, source.width),
        within(bounds.y, source.y, source.height),
    );
    (map, scales, bounds)
}

/// A resampling that is under way.
pub(super) struct Turned<'a> {
    /// The source. Windows anywhere within the bounds can be read in whole groups of four pixels.
    data: &'a [u8],
    stride: u32,
    map: Affine,
    /// How far x and y move from one pixel to the next, with [`FINE`] fractional bits.
    slopes: [i64; 2],
    /// How far the pixels of a block lie from the block's first, with [`BITS`] fractional bits.
    steps: [[i32; BLOCK]; 2],
    buffers: &'a Buffers,
}

impl<'a> Turned<'a> {
    /// Prepares the weights. `map` leads from points of the result to points of the image, of which `bounds` may be
    /// read; `scales` says how many pixels of the image a pixel of the result spans.
    pub fn new(
        source: Rgbx<'a>,
        filter: Filter,
        map: &Affine,
        bounds: Bounds,
        scales: (f64, f64),
        buffers: &'a mut Buffers,
    ) -> Turned<'a> {
        let (map, scales, (x, y)) = place(&source, map, bounds, scales);
        buffers.x.set(filter, scales.0, x, ONE_ACROSS);
        buffers.y.set(filter, scales.1, y, ONE_DOWN);
        buffers.rows.clear();
        // Rows that weigh nothing repeat the last one, so that they are there to be read.
        let rows = (0..buffers.y.padded).map(|j| j.min(buffers.y.taps - 1) * source.stride);
        buffers.rows.extend(rows);
        #[cfg(target_arch = "x86_64")]
        if buffers.isa == Isa::Avx512 {
            buffers.wide.set(&buffers.x, &buffers.y);
        }
        let slopes = [fixed(map.0[0]), fixed(map.0[3])];
        let steps = slopes.map(steps);
        let least = |most: i32| ((most >> BITS) + 1) as usize;
        let last = least(buffers.y.most) * source.stride + 4 * least(buffers.x.most);
        // Windows are read in whole groups of four pixels, which may reach over the end of the source.
        let end = last + buffers.rows.last().copied().unwrap_or(0) + 4 * buffers.x.padded;
        let data = match source.data.len() >= end {
            true => source.data,
            false => {
                buffers.copy.clear();
                buffers.copy.extend_from_slice(source.data);
                buffers.copy.resize(end, 0);
                &buffers.copy
            }
        };
        Turned {
            data,
            stride: source.stride as u32,
            slopes,
            steps,
            map,
            buffers,
        }
    }

    /// Columns `range` of result row `v`, four bytes a pixel.
    pub fn row(&self, v: usize, range: Range<usize>, out: &mut [u8]) {
        kernel::row(self, v, range, out.as_chunks_mut().0);
    }

    /// Where result row `v` has its points before the first column, with [`FINE`] fractional bits.
    fn start(&self, v: usize) -> [i64; 2] {
        let (x, y) = self.map.apply(0.5, v as f64 + 0.5);
        [fixed(x + self.buffers.x.shift), fixed(y + self.buffers.y.shift)]
    }

    /// Finds the windows of the block that begins in column `u` of the row that starts at `start`. Compiled with the
    /// instructions of its caller.
    #[inline(always)]
    fn find(&self, start: [i64; 2], u: usize) -> Places {
        let Buffers {
            x: across, y: down, ..
        } = self.buffers;
        let first = |axis: usize| {
            let place = (start[axis] + u as i64 * self.slopes[axis]) >> (FINE - BITS);
            place.clamp(-FAR, FAR) as i32
        };
        let (x, y) = (first(0), first(1));
        let phase = |place: i32| (place as u32 >> (BITS - PHASE_BITS)) & (PHASES as u32 - 1);
        let mut places = Places::default();
        for i in 0..BLOCK {
            let x = (x + self.steps[0][i]).clamp(across.least, across.most);
            let y = (y + self.steps[1][i]).clamp(down.least, down.most);
            places.offset[i] = ((y >> BITS) + 1) as u32 * self.stride + 4 * ((x >> BITS) + 1) as u32;
            (places.x[i], places.y[i]) = (phase(x), phase(y));
        }
        places
    }
}

/// How far the pixels of a block lie from its first, with [`BITS`] fractional bits.
fn steps(slope: i64) -> [i32; BLOCK] {
    std::array::from_fn(|i| ((i as i64 * slope) >> (FINE - BITS)).clamp(-FAR, FAR) as i32)
}

/// A position in [`FINE`] fractional bits.
fn fixed(value: f64) -> i64 {
    (value * (1i64 << FINE) as f64).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flat image stays flat, whatever the weights.
    #[test]
    fn weights_sum_to_one() {
        let mut phases = Phases::default();
        for filter in Filter::ALL {
            for scale in [0.3, 1.0, 2.9, 17.0] {
                for one in [1 << 13, 1 << 14] {
                    phases.set(filter, scale, (0, 100), one);
                    for phase in 0..PHASES as u32 {
                        let sum: i32 = phases.of(phase).iter().map(|&w| i32::from(w)).sum();
                        assert_eq!(sum, one, "{filter:?} {scale} {phase}");
                    }
                }
            }
        }
    }
}
