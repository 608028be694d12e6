//! Upright resampling in numbers, for another device.

use super::weights::{Line, Windows};
use crate::filter::quantize;
use crate::fused::source::Side;
use crate::fused::source::Sides;
use crate::op::Interpolation;

/// The weights of an upright resampling, of three channels each.
///
/// A pixel of the result is, in each channel, `sum_j down[j] * (sum_i across[i] * sample)`, in the arithmetic of
/// `fused`: `sum_i` in 32 bits, `(sum + 64) >> 7` saturated to 16 bits; then each product with a weight of 15 bits
/// as `(product + 16384) >> 15`, added with saturation to 16 bits; and of the sum, which is a value times 64, colours
/// with products of the same kind, then bytes as `(value + 32) >> 6`, saturated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UprightTables {
    /// Weights along rows, 13 bits: one entry for each resolution among the channels.
    pub across: Vec<Taps>,
    /// Weights down columns, 15 bits.
    pub down: Vec<Taps>,
    /// Which entry of `across` a channel uses.
    pub across_of: [usize; 3],
    /// Which entry of `down` a channel uses.
    pub down_of: [usize; 3],
}

/// Windows of an axis.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taps {
    /// The first sample of each position, counted from the first that is there.
    pub starts: Vec<u32>,
    /// `taps` for each position.
    pub weights: Vec<i16>,
    /// Weights a position.
    pub taps: usize,
}

/// The weight that is 1 across, and down.
const ONE: [i16; 2] = [1 << 13, i16::MAX];

impl UprightTables {
    pub(in crate::fused) fn new(
        sides: Sides,
        interpolation: Interpolation,
        across: Line,
        down: Line,
    ) -> UprightTables {
        let (across, across_of) = axis(sides.map(|s| s.0), interpolation, across, 1 << 13);
        let (down, down_of) = axis(sides.map(|s| s.1), interpolation, down, 1 << 15);
        UprightTables {
            across,
            down,
            across_of,
            down_of,
        }
    }

    /// Every pixel is one sample as it is.
    pub(in crate::fused) fn places(across: Vec<u32>, down: Vec<u32>) -> UprightTables {
        let taps = |starts: Vec<u32>, one: i16| Taps {
            weights: vec![one; starts.len()],
            starts,
            taps: 1,
        };
        UprightTables {
            across: vec![taps(across, ONE[0])],
            down: vec![taps(down, ONE[1])],
            across_of: [0; 3],
            down_of: [0; 3],
        }
    }
}

fn axis(sides: [Side; 3], interpolation: Interpolation, line: Line, one: i32) -> (Vec<Taps>, [usize; 3]) {
    let unit = sides.iter().map(|side| side.pixels).min().unwrap_or(1);
    let mut windows = Windows::default();
    windows.along(interpolation, line, unit);
    let mut different: Vec<Side> = Vec::new();
    let of = sides.map(|side| {
        different
            .iter()
            .position(|other| *other == side)
            .unwrap_or_else(|| {
                different.push(side);
                different.len() - 1
            })
    });
    let taps = different.iter().map(|side| {
        let mut taps = Taps::default();
        taps.starts.reserve(line.count as usize);
        taps.weights.reserve(line.count as usize * windows.taps_on(*side));
        windows.fold(*side, |start, weights| {
            let begin = taps.weights.len();
            taps.taps = weights.len();
            taps.weights.resize(begin + weights.len(), 0);
            quantize(weights, one, |i, weight| taps.weights[begin + i] = weight);
            taps.starts.push(start as u32);
        });
        taps
    });
    (taps.collect(), of)
}
