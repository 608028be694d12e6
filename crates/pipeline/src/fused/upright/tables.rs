//! Upright resampling in numbers, for another device.

use super::weights::{Line, Taps, Triangle, Windows, taps_on};
use crate::fused::source::Side;
use crate::fused::source::Sides;
use crate::op::Filter;

/// The weights of an upright resampling, of three channels each.
///
/// A pixel of the result is, in each channel, `sum_j down[j] * (sum_i across[i] * sample)`, in the arithmetic of
/// `fused`: `sum_i` in 32 bits, `(sum + 64) >> 7` saturated to 16 bits; then each product with a weight of 15 bits
/// as `(product + 16384) >> 15`, added with saturation to 16 bits; and of the sum, which is a value times 64, colours
/// with products of the same kind, then bytes as `(value + 32) >> 6`, saturated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UprightTables {
    /// Weights along rows, 13 bits: one entry for each resolution among the channels.
    pub across: Vec<UprightAxis>,
    /// Weights down columns, 15 bits.
    pub down: Vec<UprightAxis>,
    /// Which entry of `across` a channel uses.
    pub across_of: [usize; 3],
    /// Which entry of `down` a channel uses.
    pub down_of: [usize; 3],
}

/// The windows of an axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UprightAxis {
    /// Found on the CPU.
    Taps(Taps),
    /// To be found where they are used, which takes whole numbers of 64 bits.
    Bilinear(BilinearAxis),
}

/// The windows of a bilinear axis on the samples of a channel, before they are found. They are those of `grid`, folded: for each
/// position
///
/// 1. A sample spans `ratio` places. The window has [`taps`](BilinearAxis::taps) samples, and begins at sample
///    `first place / ratio`, for a ratio of 2 at `floor((first place - 1) / 2)`, less `origin`, clamped to `0..=samples - taps`. A
///    place gives its weight to sample `place / ratio`; for a ratio of 2, three quarters to it and one to the next one on
///    the place's side (libjpeg's interpolation). Samples are clamped to those that are there. Fourfold weights stay whole.
/// 2. A weight becomes `2^bits * weight / sum`, rounded half up. The first largest one takes up what is left of
///    `2^bits`. Weights are cut off at 32767.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BilinearAxis {
    /// On the finest grid of the image.
    pub grid: Triangle,
    /// Places that a sample spans, at least 1.
    pub ratio: u32,
    /// The first sample that is there, among all of the channel.
    pub origin: u32,
    /// Samples that are there, at least 1.
    pub samples: u32,
    /// 13 or 15.
    pub bits: u32,
}

impl BilinearAxis {
    /// Weights a position.
    pub fn taps(&self) -> u32 {
        taps_on(self.grid.most() as usize, self.ratio, self.samples) as u32
    }

    /// The windows, as `fused` finds them.
    pub fn find(&self) -> Taps {
        let side = Side {
            first: self.origin,
            count: self.samples,
            pixels: self.ratio,
        };
        let (mut windows, mut taps) = (Windows::default(), Taps::default());
        windows.set(&self.grid, 1);
        taps.set(&windows, side, self.bits);
        taps
    }
}

/// The weight that is 1 across, and down.
const ONE: [i16; 2] = [1 << 13, i16::MAX];

impl UprightTables {
    pub(in crate::fused) fn new(sides: Sides, filter: Filter, across: Line, down: Line) -> UprightTables {
        let (across, across_of) = axis(sides.map(|s| s.0), filter, across, 13);
        let (down, down_of) = axis(sides.map(|s| s.1), filter, down, 15);
        UprightTables {
            across,
            down,
            across_of,
            down_of,
        }
    }

    /// Every pixel is one sample as it is.
    pub(in crate::fused) fn places(across: Vec<u32>, down: Vec<u32>) -> UprightTables {
        let taps = |starts: Vec<u32>, one: i16| {
            UprightAxis::Taps(Taps {
                weights: vec![one; starts.len()],
                starts,
                taps: 1,
            })
        };
        UprightTables {
            across: vec![taps(across, ONE[0])],
            down: vec![taps(down, ONE[1])],
            across_of: [0; 3],
            down_of: [0; 3],
        }
    }
}

/// The windows of an axis on each different one of `sides`, and which of them each has.
fn axis(sides: [Side; 3], filter: Filter, line: Line, bits: u32) -> (Vec<UprightAxis>, [usize; 3]) {
    let unit = sides.iter().map(|side| side.pixels).min().unwrap_or(1);
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
    let axes = if let Some(grid) = Triangle::new(filter, line, unit) {
        let bilinear = |side: &Side| {
            UprightAxis::Bilinear(BilinearAxis {
                grid,
                ratio: side.pixels / unit,
                origin: side.first,
                samples: side.count,
                bits,
            })
        };
        different.iter().map(bilinear).collect()
    } else {
        let mut windows = Windows::default();
        windows.along(filter, line, unit);
        let found = |side: &Side| {
            let mut taps = Taps::default();
            taps.set(&windows, *side, bits);
            UprightAxis::Taps(taps)
        };
        different.iter().map(found).collect()
    };
    (axes, of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The window of a position as the documentation of [`Triangle`] and [`BilinearAxis`] describes it, in whole numbers alone.
    fn documented(axis: &BilinearAxis, position: u32) -> (u32, Vec<i16>) {
        let number = |number: u32| i128::from(number);
        let (grid, ratio, taps) = (&axis.grid, number(axis.ratio), axis.taps());
        let (slope, start, support) = (
            i128::from(grid.slope),
            i128::from(grid.start),
            number(grid.support),
        );
        let center = (slope * (2 * number(position) + 1) + 2 * start + (1 << 24)) >> 25;
        let first = ((center - support + (1 << 15)) >> 16).clamp(number(grid.low), number(grid.high) - 1);
        let end = ((center + support + (1 << 15)) >> 16)
            .clamp(first + 1, number(grid.high))
            .min(first + number(grid.most()));
        let mut weights: Vec<i128> = (first..end)
            .map(|place| (support - ((place << 16) + (1 << 15) - center).abs()).max(0))
            .collect();
        if weights.iter().all(|&weight| weight == 0) {
            weights[0] = 1;
        }
        let begin = match ratio {
            2 => (first - 1).div_euclid(2),
            ratio => first / ratio,
        };
        let (origin, samples) = (number(axis.origin), number(axis.samples));
        let begin = (begin - origin).clamp(0, samples - number(taps));
        let mut window = vec![0; taps as usize];
        let mut give = |sample: i128, weight| {
            window[((sample - origin).clamp(0, samples - 1) - begin) as usize] += weight;
        };
        for (place, weight) in (first..).zip(weights) {
            let sample = place / ratio;
            if ratio == 2 {
                give(sample, 3 * weight);
                give(if place % 2 == 0 { sample - 1 } else { sample + 1 }, weight);
            } else {
                give(sample, 4 * weight);
            }
        }
        let (one, sum) = (1i128 << axis.bits, window.iter().sum::<i128>());
        let mut whole: Vec<i128> = window
            .iter()
            .map(|weight| (2 * weight * one + sum) / (2 * sum))
            .collect();
        let left = one - whole.iter().sum::<i128>();
        let largest = (0..whole.len()).rev().max_by_key(|&i| whole[i]).unwrap_or(0);
        whole[largest] += left;
        let narrow = |weight: &i128| (*weight).min(32767) as i16;
        (begin as u32, whole.iter().map(narrow).collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Crops with every kind of chroma, shrunk and grown, mirrored, partly outside, and ones whose positions lie in the middle
        /// of places or between two: what `fused` computes with doubles is what whole numbers give.
        #[test]
        fn bilinear_axes_are_what_their_documentation_says(
            (low, places) in (0u32..500, 1u32..700),
            (scale, exact) in (0.01f64..64.0, any::<bool>()),
            (offset, mirrored) in (prop_oneof![-100.0f64..100.0, -900_000.0f64..900_000.0], any::<bool>()),
            (count, unit, sampled) in (1u32..300, 1u32..4, 1u32..5),
            bits in prop_oneof![Just(13u32), Just(15)],
        ) {
            let (scale, offset) = match exact {
                true => ((scale * 4.0).ceil() / 4.0, (offset * 2.0).round() / 2.0),
                false => (scale, offset),
            };
            let high = low + places;
            let line = Line {
                slope: f64::from(unit) * if mirrored { -scale } else { scale },
                start: f64::from(unit) * (offset + f64::from(if mirrored { high } else { low })),
                count,
                bounds: (i64::from(unit * low), i64::from(unit * high)),
            };
            let side = Side {
                first: low / sampled,
                count: high.div_ceil(sampled) - low / sampled,
                pixels: unit * sampled,
            };
            let fine = Side { first: low, count: places, pixels: unit };
            let (axes, of) = axis([fine, side, side], Filter::Bilinear, line, bits);
            for axis in &axes {
                let UprightAxis::Bilinear(axis) = axis else { panic!("{axis:?} of {line:?}") };
                let taps = axis.find();
                prop_assert_eq!(taps.starts.len(), count as usize);
                for position in 0..count {
                    let (start, weights) = documented(axis, position);
                    prop_assert_eq!(taps.starts[position as usize], start);
                    let own = &taps.weights[position as usize * taps.taps..][..taps.taps];
                    prop_assert_eq!(own, &weights[..], "{:?}, position {}", axis, position);
                }
            }
            prop_assert_eq!(of[0], 0);
            // The same that the CPU computes for itself.
            let mut windows = Windows::default();
            windows.along(Filter::Bilinear, line, unit);
            let UprightAxis::Bilinear(last) = &axes[of[2]] else { panic!("{axes:?}") };
            let mut taps = Taps::default();
            taps.set(&windows, side, bits);
            prop_assert_eq!(taps, last.find());
        }
    }

    /// Filters that are too wide for whole numbers, and positions too far away, are found in doubles.
    #[test]
    fn wide_filters_and_far_positions_are_found_in_doubles() {
        let side = Side {
            first: 0,
            count: 70_000,
            pixels: 1,
        };
        let is_found = |slope, start| {
            let line = Line {
                slope,
                start,
                count: 100,
                bounds: (0, 70_000),
            };
            let (axes, _) = axis([side; 3], Filter::Bilinear, line, 13);
            matches!(axes[0], UprightAxis::Taps(_))
        };
        assert!(!is_found(64.0, 0.0));
        assert!(is_found(64.1, 0.0));
        assert!(!is_found(1.0, 1e6));
        assert!(is_found(1.0, 1.1e6));
    }
}
