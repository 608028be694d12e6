//! Fixed-point weights: for every position of an upright axis, or for every phase of a point between two pixels.

use crate::filter::{filter, support};
use crate::op::Interpolation;

/// Positions between two pixels for which weights are kept.
const PHASES: usize = 128;

/// Along which axis weights are summed, and so how many fractional bits they have.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Axis {
    /// 14 bits, summed in 32-bit integers.
    Columns,
    /// 15 bits, each product rounded.
    Rows,
}

/// Fixed-point weights along one axis.
pub(super) struct Taps {
    /// For each entry `wide` weights; those after `taps` are 0.
    weights: Vec<i16>,
    /// First pixel of each entry, where entries are positions; empty where they are phases.
    pub starts: Vec<i32>,
    /// Weights that may differ from 0.
    pub taps: usize,
    /// `taps`, rounded up to whole groups of four pixels.
    pub wide: usize,
    /// Distance from a point to the beginning of its window.
    reach: f64,
    axis: Axis,
}

impl Taps {
    /// Weights for every output position `u` of an upright axis, whose centre lies at `slope * (u + 0.5) + start`.
    /// What would lie outside `bounds` is left out and the rest normalised, as Pillow does it.
    pub fn along(
        axis: Axis,
        interpolation: Interpolation,
        (slope, start): (f64, f64),
        count: u32,
        (low, high): (i64, i64),
    ) -> Taps {
        let scale = slope.abs();
        let support = support(interpolation, scale);
        let nearest = interpolation == Interpolation::Nearest;
        let taps = if nearest {
            1
        } else {
            ((2.0 * support).ceil() as usize + 1).min((high - low) as usize)
        };
        let mut all = Taps::with(axis, taps, count as usize, support);
        let mut weights = vec![0.0; taps];
        for u in 0..count {
            let center = slope * (f64::from(u) + 0.5) + start;
            if nearest {
                all.starts
                    .push((center.floor() as i64).clamp(low, high - 1) as i32);
                all.push(&[1.0]);
                continue;
            }
            weights.fill(0.0);
            let first = ((center - support + 0.5).floor() as i64).clamp(low, high - 1);
            let end = ((center + support + 0.5).floor() as i64)
                .clamp(first + 1, high)
                .min(first + taps as i64);
            // Near the far edge the window moves back, so that it can be read whole.
            let begin = first.min(high - taps as i64);
            for x in first..end {
                weights[(x - begin) as usize] =
                    filter(interpolation, (x as f64 - center + 0.5) / scale.max(1.0));
            }
            all.starts.push(begin as i32);
            all.push(&weights);
        }
        all
    }

    /// Weights for every phase, for points anywhere; the window of a point begins at `ceil(point - reach)`.
    pub fn phases(axis: Axis, interpolation: Interpolation, scale: f64) -> Taps {
        let support = support(interpolation, scale);
        let taps = (2.0 * support).ceil() as usize;
        let mut all = Taps::with(axis, taps, PHASES + 1, support);
        let mut weights = vec![1.0; taps];
        for phase in 0..=PHASES {
            if interpolation != Interpolation::Nearest {
                let first = 1.0 - phase as f64 / PHASES as f64 - support;
                for (i, weight) in weights.iter_mut().enumerate() {
                    *weight = filter(interpolation, (first + i as f64) / scale.max(1.0));
                }
            }
            all.push(&weights);
        }
        all
    }

    fn with(axis: Axis, taps: usize, entries: usize, support: f64) -> Taps {
        let wide = taps.next_multiple_of(4);
        let weights = Vec::with_capacity(wide * entries);
        Taps {
            weights,
            starts: Vec::new(),
            taps,
            wide,
            reach: support + 0.5,
            axis,
        }
    }

    /// Adds an entry, normalised to integers that sum to one, so that a flat image stays flat. 1.0 in 15 bits is
    /// 32767, which the rounding of the products makes exact for bytes.
    fn push(&mut self, weights: &[f64]) {
        let one = if self.axis == Axis::Columns {
            1 << 14
        } else {
            1 << 15
        };
        let begin = self.weights.len();
        let factor = f64::from(one) / weights.iter().sum::<f64>();
        let (mut left, mut largest) = (one, (begin, i32::MIN));
        for weight in weights {
            let scaled = weight * factor;
            let value = (scaled + 0.5f64.copysign(scaled)) as i32;
            left -= value;
            if value > largest.1 {
                largest = (self.weights.len(), value);
            }
            self.weights.push(value.min(i32::from(i16::MAX)) as i16);
        }
        self.weights[largest.0] = (largest.1 + left).min(i32::from(i16::MAX)) as i16;
        self.weights.resize(begin + self.wide, 0);
    }

    /// An entry, padded with zeros to whole groups.
    pub fn wide_of(&self, entry: usize) -> &[i16] {
        &self.weights[entry * self.wide..(entry + 1) * self.wide]
    }

    /// An entry without its padding.
    pub fn of(&self, entry: usize) -> &[i16] {
        &self.weights[entry * self.wide..][..self.taps]
    }
}

/// A point on its way along a result row, with 32 fractional bits.
#[derive(Clone, Copy)]
pub(super) struct Walk {
    at: i64,
    step: i64,
}

impl Walk {
    pub fn new(taps: &Taps, start: f64, slope: f64) -> Walk {
        let fixed = |v: f64| (v * (1u64 << 32) as f64).round() as i64;
        Walk {
            at: fixed(start - taps.reach),
            step: fixed(slope),
        }
    }

    /// The first pixel of the window, and the phase, rounded to the nearest.
    #[inline(always)]
    pub fn next(&mut self) -> (i64, usize) {
        const SHIFT: u32 = 32 - PHASES.trailing_zeros();
        let fraction = (self.at & 0xFFFF_FFFF) as usize;
        let window = ((self.at >> 32) + 1, (fraction + (1 << (SHIFT - 1))) >> SHIFT);
        self.at += self.step;
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flat image stays flat, whatever the weights.
    #[test]
    fn weights_sum_to_one() {
        for interpolation in [
            Interpolation::Nearest,
            Interpolation::Bilinear,
            Interpolation::Bicubic,
        ] {
            for scale in [0.3, 1.0, 2.9, 17.0] {
                let columns = Taps::phases(Axis::Columns, interpolation, scale);
                let rows = Taps::phases(Axis::Rows, interpolation, scale);
                let sum = |weights: &[i16]| weights.iter().map(|&w| i32::from(w)).sum::<i32>();
                for entry in 0..=PHASES {
                    let (columns, rows) = (sum(columns.of(entry)), sum(rows.of(entry)));
                    assert_eq!(columns, 1 << 14, "{interpolation:?} {scale} {entry}");
                    assert!(
                        ((1 << 15) - 1..=1 << 15).contains(&rows),
                        "{interpolation:?} {scale} {entry}: {rows}"
                    );
                }
            }
        }
    }
}
