//! Turned resampling in numbers, for another device.

use super::{BLOCK, ONE_ACROSS, ONE_DOWN, Phases, fixed, place};
use crate::fused::source::Bounds;
use crate::fused::source::Rgbx;
use crate::op::Filter;
use crate::step::Affine;

/// Where the windows of a turned resampling are and what they weigh.
///
/// In row `v`, whose first column inside is `f`, the window of column `u` is found in blocks of sixteen: with
/// `u0 = f + (u - f) / 16 * 16`, along each axis the place is
/// `clamp((start[v] + u0 * slope) >> 20, +-2^29) + steps[u - u0]`, clamped to `least..=most`. Its window begins at
/// sample `(place >> 12) + 1`, with the weights of phase `(place >> 5) & 127`. The sum along a row of the window is
/// `(sum + 64) >> 7`, the sum of these down the window `(sum + 2^19) >> 20`, saturated to bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnedTables {
    /// Along rows.
    pub across: TurnedAxis,
    /// Down columns.
    pub down: TurnedAxis,
}

/// One axis of [`TurnedTables`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnedAxis {
    /// `taps` weights for each of 128 phases.
    pub weights: Vec<i16>,
    /// Weights a phase.
    pub taps: usize,
    /// The least place.
    pub least: i32,
    /// The greatest place.
    pub most: i32,
    /// Where each row's points begin, with 32 fractional bits.
    pub start: Vec<i64>,
    /// How far they move with each column, with 32 fractional bits.
    pub slope: i64,
    /// How far the pixels of a block of sixteen lie from its first, with 12 fractional bits.
    pub steps: [i32; 16],
}

impl TurnedTables {
    /// `rows` are each row's columns that lie inside.
    pub(in crate::fused) fn new(
        source: &Rgbx<'_>,
        filter: Filter,
        map: &Affine,
        bounds: Bounds,
        scales: (f64, f64),
        rows: &[(u32, u32)],
    ) -> TurnedTables {
        let (map, scales, extents) = place(source, map, bounds, scales);
        let point = |v: usize| map.apply(0.5, v as f64 + 0.5);
        let axis = |scale, extent, one, slope: f64, of: fn((f64, f64)) -> f64| {
            let mut phases = Phases::default();
            phases.set(filter, scale, extent, one);
            let slope = fixed(slope);
            let weights = phases
                .weights
                .chunks_exact(phases.padded)
                .flat_map(|weights| &weights[..phases.taps]);
            TurnedAxis {
                weights: weights.copied().collect(),
                taps: phases.taps,
                least: phases.least,
                most: phases.most,
                start: (0..rows.len())
                    .map(|v| fixed(of(point(v)) + phases.shift))
                    .collect(),
                slope,
                steps: super::steps(slope),
            }
        };
        const { assert!(BLOCK == 16) };
        TurnedTables {
            across: axis(scales.0, extents.0, ONE_ACROSS, map.0[0], |p| p.0),
            down: axis(scales.1, extents.1, ONE_DOWN, map.0[3], |p| p.1),
        }
    }
}
