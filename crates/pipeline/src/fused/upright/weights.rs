//! The weights of upright resampling: what each result column, or row, takes of which samples.
//!
//! Weights are found on the finest grid of the image ([`Windows`]), as Pillow finds them: a filter as wide as the
//! image shrinks, cut off at the bounds and normalised. A channel that is coarser had been interpolated to that grid
//! if the image had been decoded to pixels; instead, the weight of each fine place goes to the samples it would have
//! been interpolated from.
//!
//! Bilinear weights are found in whole numbers ([`Triangle`]), which a GPU computes alike.

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

impl Line {
    /// The same in places that span `unit` pixels.
    fn in_places(self, unit: u32) -> Line {
        let (size, whole) = (f64::from(unit), i64::from(unit));
        let (low, high) = self.bounds;
        Line {
            slope: self.slope / size,
            start: self.start / size,
            count: self.count,
            bounds: (low.div_euclid(whole), (high + whole - 1).div_euclid(whole)),
        }
    }
}

/// The bilinear filter along an axis, in whole numbers.
///
/// The centre of position `u` is `c = (slope * (2 u + 1) + 2 start + 2^24) >> 25`, in units of 2^-16 of a place. The
/// run begins with place `(c - support + 2^15) >> 16` and ends before place `(c + support + 2^15) >> 16`, cut off at the
/// bounds; place `p` weighs `max(0, support - |2^16 p + 2^15 - c|)`. If all weigh nothing, the first one weighs 1.
///
/// Weights and their sums are below 2^31. So a weight of 15 bits, which is a quotient of two of them, is at least
/// 2^-31 away from the middle of two whole numbers, or there, and a quotient of doubles is rounded as the exact one is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Triangle {
    /// 2^-40 of a place.
    pub slope: i64,
    /// 2^-40 of a place.
    pub start: i64,
    /// 2^-16 of a place.
    pub support: i32,
    /// Positions.
    pub count: u32,
    /// Places that may be read.
    pub bounds: (i32, i32),
    /// The most places of a run.
    pub taps: usize,
}

impl Triangle {
    /// The most places on either side: the square of it is a sum of weights.
    const MOST: f64 = 64.0;
    /// Centres are nearer to place 0 than this, so that they fit 64 bits.
    const FAR: f64 = (1 << 20) as f64;

    /// `None` if the numbers would not fit; `line` is in places.
    fn new(line: Line) -> Option<Triangle> {
        let Line {
            slope,
            start,
            count,
            bounds: (low, high),
        } = line;
        let support = support(Interpolation::Bilinear, slope.abs());
        let end = start + slope * f64::from(count);
        let fits = support <= Triangle::MOST
            && start.abs().max(end.abs()) < Triangle::FAR
            && (0..high).contains(&low)
            && high < Triangle::FAR as i64;
        fits.then(|| Triangle {
            slope: (slope * (1u64 << 40) as f64).round() as i64,
            start: (start * (1u64 << 40) as f64).round() as i64,
            support: (support * f64::from(1 << 16)).round() as i32,
            count,
            bounds: (low as i32, high as i32),
            taps: taps(support),
        })
    }

    /// The run of a position, and the distance of its first place from the centre.
    fn run(&self, position: u32) -> (i64, usize, i32) {
        let (support, (low, high)) = (i64::from(self.support), self.bounds);
        let twice = self.slope * (2 * i64::from(position) + 1) + 2 * self.start;
        let center = (twice + (1 << 24)) >> 25;
        let first = ((center - support + (1 << 15)) >> 16).clamp(low.into(), i64::from(high) - 1);
        let end = ((center + support + (1 << 15)) >> 16)
            .clamp(first + 1, high.into())
            .min(first + self.taps as i64);
        // Weights are 0 from `support` on.
        let distance = ((first << 16) + (1 << 15) - center).clamp(-(1 << 30), 1 << 30);
        (first, (end - first) as usize, distance as i32)
    }
}

/// The most places of a run, of a filter this wide on either side.
fn taps(support: f64) -> usize {
    (2.0 * support).ceil() as usize + 1
}

/// Places of the finest grid.
struct Run {
    first: i64,
    count: usize,
    /// Of the weights.
    sum: f64,
}

/// For each position of an axis a run of places of the finest grid, and their weights.
#[derive(Default)]
pub(super) struct Windows {
    /// Pixels a place spans.
    unit: u32,
    /// One for each position.
    runs: Vec<Run>,
    /// `taps` for each position; behind a run they are 0.
    weights: Vec<f64>,
    /// The most places of a run.
    taps: usize,
}

impl Windows {
    /// The windows of an axis in whole numbers, if they are found so.
    pub fn triangle(interpolation: Interpolation, line: Line, unit: u32) -> Option<Triangle> {
        match interpolation {
            Interpolation::Bilinear => Triangle::new(line.in_places(unit)),
            Interpolation::Nearest | Interpolation::Bicubic => None,
        }
    }

    /// Finds the windows of a triangle.
    pub fn set(&mut self, triangle: &Triangle, unit: u32) {
        self.begin(unit, triangle.taps, triangle.count);
        for (u, weights) in (0..triangle.count).zip(self.weights.chunks_exact_mut(triangle.taps)) {
            let (first, count, distance) = triangle.run(u);
            let (mut sum, mut distance) = (0, distance);
            for weight in &mut weights[..count] {
                let whole = (triangle.support - distance.abs()).max(0);
                *weight = f64::from(whole);
                sum += whole;
                distance += 1 << 16;
            }
            if sum == 0 {
                (weights[0], sum) = (1.0, 1);
            }
            let sum = f64::from(sum);
            self.runs.push(Run { first, count, sum });
        }
    }

    fn begin(&mut self, unit: u32, taps: usize, count: u32) {
        (self.unit, self.taps) = (unit, taps);
        self.runs.clear();
        self.weights.clear();
        self.weights.resize(taps * count as usize, 0.0);
    }

    /// Finds the windows of an axis on a grid whose places span `unit` pixels.
    pub fn along(&mut self, interpolation: Interpolation, line: Line, unit: u32) {
        if let Some(triangle) = Windows::triangle(interpolation, line, unit) {
            return self.set(&triangle, unit);
        }
        let Line {
            slope,
            start,
            bounds: (low, high),
            ..
        } = line.in_places(unit);
        let scale = slope.abs();
        let nearest = interpolation == Interpolation::Nearest;
        let support = support(interpolation, scale);
        let step = 1.0 / scale.max(1.0);
        self.begin(unit, if nearest { 1 } else { taps(support) }, line.count);
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
                self.runs.push(Run {
                    first: pixel.clamp(low, high - 1),
                    count: 1,
                    sum: 1.0,
                });
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
            let count = weights.len();
            self.runs.push(Run { first, count, sum });
        }
    }

    /// Gives each position's weights over the samples of a channel to `take`: the first sample, counted from those
    /// that are there, exactly [`Windows::taps_on`] weights, and their sum.
    pub fn fold(&self, side: Side, mut take: impl FnMut(usize, &[f64], f64)) {
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
        for (run, weights) in self.runs.iter().zip(self.weights.chunks_exact(self.taps)) {
            let &Run { first, count, sum } = run;
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
                take(begin as usize, &weights[..taps], sum);
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
            take(begin as usize, folded, sum);
        }
    }

    /// Weights a position has over the samples of a channel.
    pub fn taps_on(&self, side: Side) -> usize {
        taps_on(self.taps, side, self.unit)
    }
}

/// Weights over the samples of a channel, for runs of at most `taps` places that span `unit` pixels.
pub(super) fn taps_on(taps: usize, side: Side, unit: u32) -> usize {
    let taps = match (side.pixels / unit) as usize {
        1 => taps,
        2 => taps / 2 + 2,
        ratio => (taps - 1) / ratio + 2,
    };
    taps.min(side.count as usize)
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
        windows.fold(side, |start, weights, sum| {
            let (block, lane) = (starts.len() / BLOCK, starts.len() % BLOCK);
            quantize(weights, sum, 1 << 13, |i, weight| {
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
        windows.fold(side, |start, weights, sum| {
            let begin = all.len();
            all.resize(begin + *taps, 0);
            quantize(weights, sum, 1 << 15, |i, weight| all[begin + i] = weight);
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
