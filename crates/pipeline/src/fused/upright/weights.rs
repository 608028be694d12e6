//! The weights of upright resampling: what each result column, or row, takes of which samples.
//!
//! Weights are found on the finest grid of the image ([`Windows`]), as Pillow finds them: a filter as wide as the
//! image shrinks, cut off at the bounds and normalised. A channel that is coarser had been interpolated to that grid
//! if the image had been decoded to pixels; instead, the weight of each fine place goes to the samples it would have
//! been interpolated from.

use super::kernel::BLOCK;
use crate::filter::{filter, quantize, support};
use crate::fused::isa::Isa;
use crate::fused::source::Side;
use crate::op::Interpolation;

/// An axis of the result: the centre of position `u` lies at `slope * (u + 0.5) + start` of the image, in pixels.
#[derive(Debug, Clone, Copy)]
pub(in crate::fused) struct Line {
    pub slope: f64,
    pub start: f64,
    /// Positions.
    pub count: u32,
    /// Pixels that may be read.
    pub bounds: (i64, i64),
}

/// For each position of an axis a run of places of the finest grid and their weights, which sum to one.
#[derive(Default)]
pub(super) struct Windows {
    /// Pixels a place spans.
    unit: u32,
    /// The first place of each position's run, and how many there are.
    runs: Vec<(i64, usize)>,
    /// `taps` for each position.
    weights: Vec<f64>,
    /// The most places of a run.
    taps: usize,
}

impl Windows {
    /// Finds the windows of an axis on a grid whose places span `unit` pixels.
    pub fn along(&mut self, interpolation: Interpolation, line: Line, unit: u32) {
        let size = f64::from(unit);
        let (slope, start) = (line.slope / size, line.start / size);
        let (low, high) = (
            line.bounds.0.div_euclid(unit.into()),
            (line.bounds.1 + i64::from(unit) - 1).div_euclid(unit.into()),
        );
        let scale = slope.abs();
        let nearest = interpolation == Interpolation::Nearest;
        let support = support(interpolation, scale);
        let step = 1.0 / scale.max(1.0);
        self.unit = unit;
        self.taps = if nearest {
            1
        } else {
            (2.0 * support).ceil() as usize + 1
        };
        self.runs.clear();
        self.weights.clear();
        self.weights.resize(self.taps * line.count as usize, 0.0);
        if nearest {
            // Step by step from the left edge, as `per-op` and Pillow find them, for a place between two pixels is decided by rounding.
            let left = if slope < 0.0 {
                start + slope * f64::from(line.count)
            } else {
                start
            };
            let edge = left.round();
            let (edge, mut place) = if (left - edge).abs() < 1e-6 {
                (edge, 0.5 * scale)
            } else {
                (0.0, left + 0.5 * scale)
            };
            for _ in 0..line.count {
                let pixel = place.floor() as i64 + edge as i64;
                self.runs.push((pixel.clamp(low, high - 1), 1));
                place += scale;
            }
            if slope < 0.0 {
                self.runs.reverse();
            }
            self.weights.fill(1.0);
            return;
        }
        for (u, weights) in (0..line.count).zip(self.weights.chunks_exact_mut(self.taps)) {
            let center = slope * (f64::from(u) + 0.5) + start;
            let first = floor(center - support + 0.5).clamp(low, high - 1);
            let end = floor(center + support + 0.5)
                .clamp(first + 1, high)
                .min(first + self.taps as i64);
            let weights = &mut weights[..(end - first) as usize];
            let (mut sum, mut i) = (0.0, 0.0);
            for weight in weights.iter_mut() {
                *weight = filter(interpolation, (first as f64 - center + 0.5 + i) * step);
                sum += *weight;
                i += 1.0;
            }
            if sum == 0.0 {
                weights[0] = 1.0; // the point lies a filter's width and more outside the bounds
                sum = 1.0;
            }
            weights.iter_mut().for_each(|weight| *weight /= sum);
            self.runs.push((first, weights.len()));
        }
    }

    /// Gives each position's weights over the samples of a channel to `take`: the first sample, counted from those
    /// that are there, and exactly [`Windows::taps_on`] weights.
    pub fn fold(&self, side: Side, mut take: impl FnMut(usize, &[f64])) {
        let taps = self.taps_on(side);
        let ratio = i64::from(side.pixels / self.unit);
        let (origin, last) = (i64::from(side.first), i64::from(side.count) - 1);
        let mut folded = [0.0; MOST_ON_STACK];
        let mut large = vec![0.0; if taps > MOST_ON_STACK { taps } else { 0 }];
        let folded = if large.is_empty() {
            &mut folded[..taps]
        } else {
            &mut large[..]
        };
        for (&(first, count), weights) in self.runs.iter().zip(self.weights.chunks_exact(self.taps)) {
            // Near the far end the window moves back, so that it can be read whole.
            let most = (last + 1 - taps as i64).max(0);
            let at = |place: i64| place.clamp(0, last);
            let begin = match ratio {
                1 => first - origin,
                2 => (first - 1).div_euclid(2) - origin,
                _ => first.div_euclid(ratio) - origin,
            }
            .clamp(0, most);
            // Behind a run its weights are 0, so they are those of the window where the run begins with it and ends within.
            if ratio == 1 && begin == first - origin && count <= taps {
                take(begin as usize, &weights[..taps]);
                continue;
            }
            folded.fill(0.0);
            for (place, &weight) in (first..).zip(&weights[..count]) {
                match ratio {
                    1 => folded[(at(place - origin) - begin) as usize] += weight,
                    2 => {
                        // libjpeg's "fancy" upsampling: three quarters of the nearer sample, one of the next.
                        let near = place.div_euclid(2);
                        let far = if place % 2 == 0 { near - 1 } else { near + 1 };
                        folded[(at(near - origin) - begin) as usize] += 0.75 * weight;
                        folded[(at(far - origin) - begin) as usize] += 0.25 * weight;
                    }
                    _ => folded[(at(place.div_euclid(ratio) - origin) - begin) as usize] += weight,
                }
            }
            take(begin as usize, folded);
        }
    }

    /// Weights a position has over the samples of a channel.
    pub fn taps_on(&self, side: Side) -> usize {
        let taps = match (side.pixels / self.unit) as usize {
            1 => self.taps,
            2 => self.taps / 2 + 2,
            ratio => (self.taps - 1) / ratio + 2,
        };
        taps.min(side.count as usize)
    }
}

/// The whole number below. `f64::floor` is a call of the C library where processors without SSE 4.1 are served too.
fn floor(x: f64) -> i64 {
    let whole = x as i64;
    whole - i64::from(whole as f64 > x)
}

/// Windows of at most this many samples need no allocation.
const MOST_ON_STACK: usize = 64;

/// Weights along a row: 13 bits.
#[derive(Default)]
pub(super) struct Columns {
    /// Where each position's window begins; whole blocks.
    pub starts: Vec<u32>,
    /// Groups of four samples a window.
    pub groups: usize,
    /// For each block and group, the weights of [`BLOCK`] positions, four each. Behind a window's end they are 0.
    pub weights: Vec<[i16; 4 * BLOCK]>,
    /// How many bytes of a row kernels read at most.
    pub reach: usize,
    /// The starts for a kernel that shuffles.
    #[cfg(target_arch = "x86_64")]
    pub near: super::kernel::Near,
    /// The same for kernels with wider vectors.
    #[cfg(target_arch = "x86_64")]
    pub wide: super::kernel::Wide,
}

impl Columns {
    /// Takes the weights of a channel that lies like `side`, for `padded` positions, whole blocks.
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
    pub fn set(&mut self, windows: &Windows, side: Side, padded: usize, isa: Isa) {
        let groups = windows.taps_on(side).div_ceil(4);
        self.groups = groups;
        self.starts.clear();
        self.weights.clear();
        self.weights.resize(padded / BLOCK * groups, [0; 4 * BLOCK]);
        let (starts, all) = (&mut self.starts, &mut self.weights);
        windows.fold(side, |start, weights| {
            let (block, lane) = (starts.len() / BLOCK, starts.len() % BLOCK);
            quantize(weights, 1 << 13, |i, weight| {
                all[block * groups + i / 4][4 * lane + i % 4] = weight;
            });
            starts.push(start as u32);
        });
        // What lies behind the last position weighs nothing.
        let last = self.starts.last().copied().unwrap_or(0);
        self.starts.resize(padded, last);
        let furthest = self.starts.iter().max().copied().unwrap_or(0) as usize;
        self.reach = furthest + 4 * groups;
        #[cfg(target_arch = "x86_64")]
        if isa != Isa::Portable {
            self.near.set(&self.starts, groups);
            self.reach = self.reach.max(self.near.reach());
        }
        #[cfg(target_arch = "x86_64")]
        if isa == Isa::Avx512 {
            self.wide.set(&self.starts, &self.weights, groups);
            self.reach = self.reach.max(self.wide.reach());
        }
    }
}

/// Weights down the columns: 15 bits, 1.0 being 32767.
#[derive(Default)]
pub(super) struct Rows {
    starts: Vec<u32>,
    weights: Vec<i16>,
    /// Weights a position.
    pub taps: usize,
}

impl Rows {
    pub fn set(&mut self, windows: &Windows, side: Side) {
        self.taps = windows.taps_on(side);
        self.starts.clear();
        self.weights.clear();
        let Rows {
            starts,
            weights: all,
            taps,
        } = self;
        windows.fold(side, |start, weights| {
            let begin = all.len();
            all.resize(begin + *taps, 0);
            quantize(weights, 1 << 15, |i, weight| all[begin + i] = weight);
            starts.push(start as u32);
        });
    }

    /// The first row of position `v` and its weights.
    pub fn of(&self, v: usize) -> (usize, &[i16]) {
        (
            self.starts[v] as usize,
            &self.weights[v * self.taps..][..self.taps],
        )
    }
}
