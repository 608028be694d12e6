//! The weights of upright resampling: what each result column, or row, takes of which samples.
//!
//! Weights are found on the finest grid of the image ([`Windows`]), as Pillow finds them: a filter as wide as the
//! image shrinks, cut off at the bounds; [`quantize`] divides by their sum. A channel that is coarser had been interpolated to that grid
//! if the image had been decoded to pixels; instead, the weight of each fine place goes to the samples it would have
//! been interpolated from.
//!
//! Bilinear weights are found in whole numbers ([`Triangle`]), which a GPU computes alike.

use super::kernel::BLOCK;
use crate::fused::isa::Isa;
use crate::fused::quantize::quantize;
use crate::fused::source::Side;
use crate::op::Filter;

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

/// The windows of a bilinear axis on the finest grid of an image, in whole numbers. For position `u`:
///
/// 1. The centre is `c = (slope * (2 u + 1) + 2 start + 2^24) >> 25`, in units of 2^-16 of a place.
/// 2. The run of places begins at `(c - support + 2^15) >> 16`, clamped to `low..high`, and ends before
///    `(c + support + 2^15) >> 16`, clamped so that it has at least one place, at most [`most`](Triangle::most), and none from
///    `high` on.
/// 3. Place `p` of it weighs `max(0, support - |2^16 p + 2^15 - c|)`; if all weigh 0, the first one weighs 1.
///
/// Weights sum to at most 64^2 * 2^16 = 2^28, and to 2^30 where they are fourfold (see
/// [`BilinearAxis`](super::BilinearAxis)). So `2^bits * weight / sum` lies in the middle of two whole numbers, or at least
/// 1 / (2 * 2^30) = 2^-31 away from it. A double is off by at most 2^-37 there, so it is rounded as the exact quotient is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Triangle {
    /// Places from position to position, in 2^-40.
    pub slope: i64,
    /// Where position 0 begins, in 2^-40 of a place; below 2^60 either way, and so is the end of the last position.
    pub start: i64,
    /// Half the filter's width, in 2^-16 of a place: 2^16 to 2^22.
    pub support: u32,
    /// How many positions there are.
    pub count: u32,
    /// The first place that may be read.
    pub low: u32,
    /// The end of the places that may be read, above `low` and below 2^20.
    pub high: u32,
}

impl Triangle {
    /// The widest filter, in places on either side. It bounds the sum of weights.
    const WIDEST: f64 = 64.0;
    /// Centres are nearer to place 0 than this, so that they fit 64 bits.
    const FAR: f64 = (1 << 20) as f64;

    /// The axis on a grid whose places span `unit` pixels; `None` for other filters, and where the numbers would not fit.
    pub(super) fn new(filter: Filter, line: Line, unit: u32) -> Option<Triangle> {
        let Line {
            slope,
            start,
            count,
            bounds: (low, high),
        } = line.in_places(unit);
        let support = Filter::Bilinear.support(slope.abs());
        let end = start + slope * f64::from(count);
        let fits = filter == Filter::Bilinear
            && support <= Triangle::WIDEST
            && start.abs().max(end.abs()) < Triangle::FAR
            && (0..high).contains(&low)
            && high < Triangle::FAR as i64;
        fits.then(|| Triangle {
            slope: (slope * (1u64 << 40) as f64).round() as i64,
            start: (start * (1u64 << 40) as f64).round() as i64,
            support: (support * f64::from(1 << 16)).round() as u32,
            count,
            low: low as u32,
            high: high as u32,
        })
    }

    /// The most places of a run.
    pub fn most(&self) -> u32 {
        (2 * self.support).div_ceil(1 << 16) + 1
    }

    /// The run of a position, and the distance of its first place from the centre.
    fn run(&self, position: u32) -> (i64, usize, i32) {
        let (support, low, high) = (i64::from(self.support), i64::from(self.low), i64::from(self.high));
        let twice = self.slope * (2 * i64::from(position) + 1) + 2 * self.start;
        let center = (twice + (1 << 24)) >> 25;
        let first = ((center - support + (1 << 15)) >> 16).clamp(low, high - 1);
        let end = ((center + support + (1 << 15)) >> 16)
            .clamp(first + 1, high)
            .min(first + i64::from(self.most()));
        // Weights are 0 from `support` on.
        let distance = ((first << 16) + (1 << 15) - center).clamp(-(1 << 30), 1 << 30);
        (first, (end - first) as usize, distance as i32)
    }
}

/// The most places of a run, of a filter this wide on either side.
fn taps(support: f64) -> usize {
    (2.0 * support).ceil() as usize + 1
}

/// A window on the finest grid.
struct Run {
    first: i64,
    count: usize,
    /// The sum of its weights, which is never 0.
    sum: f64,
}

/// For each position of an axis a run of places of the finest grid, and their weights.
#[derive(Default)]
pub(super) struct Windows {
    /// Pixels a place spans.
    unit: u32,
    /// One for each position.
    runs: Vec<Run>,
    /// `taps` for each position, not normalised: [`Run::sum`] is their sum. Behind a run they are 0.
    weights: Vec<f64>,
    /// The most places of a run.
    taps: usize,
}

impl Windows {
    /// Finds the windows of a triangle on a grid whose places span `unit` pixels.
    pub fn set(&mut self, triangle: &Triangle, unit: u32) {
        self.begin(unit, triangle.most() as usize, triangle.count);
        let support = triangle.support as i32;
        for (u, weights) in (0..triangle.count).zip(self.weights.chunks_exact_mut(self.taps)) {
            let (first, count, mut distance) = triangle.run(u);
            let mut sum = 0;
            for weight in &mut weights[..count] {
                let whole = (support - distance.abs()).max(0);
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
    pub fn along(&mut self, filter: Filter, line: Line, unit: u32) {
        if let Some(triangle) = Triangle::new(filter, line, unit) {
            return self.set(&triangle, unit);
        }
        let Line {
            slope,
            start,
            bounds: (low, high),
            ..
        } = line.in_places(unit);
        let scale = slope.abs();
        let nearest = filter == Filter::Nearest;
        let support = filter.support(scale);
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
                *weight = filter.weight((first as f64 - center + 0.5 + i) * step);
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
        taps_on(self.taps, side.pixels / self.unit, side.count)
    }
}

/// Weights over the samples of a channel, each of which spans `ratio` places, for runs of at most `taps` places.
pub(super) fn taps_on(taps: usize, ratio: u32, samples: u32) -> usize {
    let taps = match ratio {
        1 => taps,
        2 => taps / 2 + 2,
        ratio => (taps - 1) / ratio as usize + 2,
    };
    taps.min(samples as usize)
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
        // What lies after the last position weighs nothing.
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

/// Windows of samples.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Taps {
    /// The first sample of each position, counted from the first that is there.
    pub starts: Vec<u32>,
    /// `taps` for each position.
    pub weights: Vec<i16>,
    /// Weights a position.
    pub taps: usize,
}

impl Taps {
    /// Takes the weights of a channel that lies like `side`, of this many bits; 1.0 is 32767 where they are 15.
    pub(super) fn set(&mut self, windows: &Windows, side: Side, bits: u32) {
        self.taps = windows.taps_on(side);
        self.starts.clear();
        self.weights.clear();
        let Taps {
            starts,
            weights: all,
            taps,
        } = self;
        windows.fold(side, |start, weights, sum| {
            let begin = all.len();
            all.resize(begin + *taps, 0);
            quantize(weights, sum, 1 << bits, |i, weight| all[begin + i] = weight);
            starts.push(start as u32);
        });
    }

    /// The first sample of position `v` and its weights.
    pub(super) fn of(&self, v: usize) -> (usize, &[i16]) {
        (
            self.starts[v] as usize,
            &self.weights[v * self.taps..][..self.taps],
        )
    }
}
