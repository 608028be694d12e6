//! A run of geometry as one resampling.
//!
//! Every step maps points of its output to points of its input; the product of the maps takes a pixel of the result
//! straight to the source. Around that point the source is weighted once, with a filter as wide as the whole run
//! shrinks the image. What a rotation or a border leaves outside the image is decided per step, as `per-op` decides
//! it: a pixel whose point leaves the frame of a step gets that step's fill colour. In one output row the points of
//! a frame are an interval, so this costs a test of both ends per row and frame, not one per pixel.

use super::device::{DeviceWork, Resample, ResampleMap};
use super::explain::Resampling;
use super::source::{Bounds, Planes, Rgbx, Sides, Source};
use super::turned::{self, Turned};
use super::upright::{self, Line, Upright};
use crate::mask::Mask;
use crate::op::{Filter, PaddingMode};
use crate::step::{Affine, Step};
use stokehold_jpeg::{Region, Scale};

/// The most pixels of the source by which an affine step may move a place from one pixel to the next. One step alone stays
/// below it; times a side of [`MOST_SIDE`](crate::draw::MOST_SIDE) it leaves the positions of [`turned`] room for resizes behind it.
const MOST_SLOPE: f64 = 4096.0;

/// A run of geometric steps.
pub(super) struct Warp {
    pub width: u32,
    pub height: u32,
    /// From points of the result to points of the source.
    map: Affine,
    frames: Vec<Frame>,
    source: (u32, u32),
    /// The filter; none while only exact steps were met.
    interpolation: Option<Filter>,
    /// Source columns and rows that the filter may read, at least one of each.
    bounds: Bounds,
}

/// The image that a step saw: outside it, the step's fill colour shows.
struct Frame {
    /// From points of the result to points of that image.
    map: Affine,
    size: (f64, f64),
    fill: [u8; 3],
    /// One over how far a column moves x and y.
    inverse: [f64; 2],
}

/// Buffers that are reused from image to image.
#[derive(Default)]
pub(super) struct Buffers {
    /// Channels of a source that came as pixels.
    planes: Vec<u8>,
    upright: upright::Buffers,
    turned: turned::Buffers,
}

impl Warp {
    /// Whether a step is geometry that composes.
    pub fn takes(step: &Step) -> bool {
        match step {
            Step::HorizontalFlip
            | Step::VerticalFlip
            | Step::Rotate(_)
            | Step::Affine(_)
            | Step::Crop { .. }
            | Step::Resize { .. } => true,
            Step::Pad { mode, .. } => *mode == PaddingMode::Constant,
            _ => false,
        }
    }

    /// The warp that changes nothing about an image of `width` x `height`.
    pub fn new(width: u32, height: u32) -> Warp {
        let bounds = Bounds {
            x: (0, i64::from(width)),
            y: (0, i64::from(height)),
        };
        Warp {
            width,
            height,
            map: Affine::IDENTITY,
            frames: Vec::new(),
            source: (width, height),
            interpolation: None,
            bounds,
        }
    }

    /// Whether a step that [`Warp::takes`] composes with those before it: affine steps that shrink the image again and again
    /// would leave the range of positions. A nearest resize takes the right one of two pixels that are equally near, and of a mirrored
    /// image this is the left one of the source: such a resize begins a run of its own.
    pub fn has_room_for(&self, step: &Step) -> bool {
        let transform = match step {
            Step::Affine(transform) => transform,
            Step::Resize {
                interpolation: Filter::Nearest,
                ..
            } => return self.filter() != Filter::Nearest || !self.is_flipped_or_turned(),
            _ => return true,
        };
        let m = transform.map(self.width, self.height).then(&self.map).0;
        [m[0], m[1], m[3], m[4]]
            .iter()
            .all(|slope| slope.abs() <= MOST_SLOPE)
    }

    /// Appends a step that [`Warp::takes`].
    pub fn push(&mut self, step: &Step) {
        let (w, h) = (f64::from(self.width), f64::from(self.height));
        let mut fill = None;
        let map = match step {
            Step::HorizontalFlip => Affine([-1.0, 0.0, w, 0.0, 1.0, 0.0]),
            Step::VerticalFlip => Affine([1.0, 0.0, 0.0, 0.0, -1.0, h]),
            Step::Crop { left, top, .. } => Affine([1.0, 0.0, f64::from(*left), 0.0, 1.0, f64::from(*top)]),
            Step::Pad {
                sides: [left, top, ..],
                fill: color,
                ..
            } => {
                fill = Some(color.rgb());
                Affine([1.0, 0.0, -f64::from(*left), 0.0, 1.0, -f64::from(*top)])
            }
            Step::Resize {
                width,
                height,
                interpolation,
            } => {
                self.resize_bounds();
                if (*width, *height) != (self.width, self.height) {
                    self.interpolate(*interpolation);
                }
                Affine([w / f64::from(*width), 0.0, 0.0, 0.0, h / f64::from(*height), 0.0])
            }
            Step::Rotate(rotate) => {
                let quarter = rotate.angle.rem_euclid(90.0) == 0.0;
                if !quarter {
                    self.interpolate(rotate.interpolation);
                }
                fill = Some(rotate.fill.rgb());
                rotate.map(self.width, self.height).0
            }
            Step::Affine(transform) => {
                if !transform.is_exact() {
                    self.interpolate(transform.interpolation);
                }
                fill = Some(transform.fill.rgb());
                transform.map(self.width, self.height)
            }
            _ => Affine::IDENTITY,
        };
        for frame in &mut self.frames {
            frame.set_map(map.then(&frame.map));
        }
        if let Some(fill) = fill {
            let mut frame = Frame {
                map,
                size: (w, h),
                fill,
                inverse: [0.0; 2],
            };
            frame.set_map(map);
            self.frames.push(frame);
        }
        self.map = map.then(&self.map);
        (self.width, self.height) = step.size_after(self.width, self.height);
    }

    /// The best filter of the run wins: a run of nearest steps alone stays nearest.
    fn interpolate(&mut self, interpolation: impl Into<Filter>) {
        let interpolation = interpolation.into();
        let rank = |filter: Filter| match filter {
            Filter::Nearest => 0,
            Filter::Box => 1,
            Filter::Bilinear => 2,
            Filter::Hamming => 3,
            Filter::Bicubic => 4,
            Filter::Lanczos => 5,
        };
        self.interpolation = match self.interpolation {
            Some(present) if rank(present) >= rank(interpolation) => Some(present),
            _ => Some(interpolation),
        };
    }

    /// A resize reads nothing outside the image it sees; while the map is upright, that image is a rectangle of the
    /// source. Of an image that is nothing but border one pixel of the source remains; every result is a frame's fill then.
    fn resize_bounds(&mut self) {
        if !self.is_upright() {
            return;
        }
        let (x0, y0) = self.map.apply(0.0, 0.0);
        let (x1, y1) = self.map.apply(f64::from(self.width), f64::from(self.height));
        let clip = |(low, high): (i64, i64), a: f64, b: f64| {
            // A place a hair next to a pixel's edge is the edge.
            let (from, to) = ((a.min(b) + 1e-6).floor() as i64, (a.max(b) - 1e-6).ceil() as i64);
            let from = low.max(from).min(high - 1);
            (from, high.min(to).max(from + 1))
        };
        self.bounds = Bounds {
            x: clip(self.bounds.x, x0, x1),
            y: clip(self.bounds.y, y0, y1),
        };
    }

    /// How many source pixels one result pixel spans along x and y.
    fn scales(&self) -> (f64, f64) {
        let m = self.map.0;
        (m[0].hypot(m[1]), m[3].hypot(m[4]))
    }

    /// The filter of the resampling: exact steps need none.
    fn filter(&self) -> Filter {
        self.interpolation.unwrap_or(Filter::Nearest)
    }

    /// The rectangle of the source that the warp reads; never empty.
    pub fn region(&self) -> Region {
        let (w, h) = (f64::from(self.width), f64::from(self.height));
        let corners = [(0.0, 0.0), (w, 0.0), (0.0, h), (w, h)].map(|(x, y)| self.map.apply(x, y));
        let (scale_x, scale_y) = self.scales();
        let side = |values: [f64; 4], scale: f64, size: u32| {
            let margin = self.filter().support(scale) + 1.0;
            let last = f64::from(size - 1);
            let low = (values.iter().copied().fold(f64::MAX, f64::min) - margin)
                .floor()
                .clamp(0.0, last);
            let high = (values.iter().copied().fold(f64::MIN, f64::max) + margin)
                .ceil()
                .clamp(low + 1.0, last + 1.0);
            (low as u32, (high - low) as u32)
        };
        let (x, width) = side(corners.map(|c| c.0), scale_x, self.source.0);
        let (y, height) = side(corners.map(|c| c.1), scale_y, self.source.1);
        Region { x, y, width, height }
    }

    /// Whether the result is resampled along the source's own rows and columns, so that channels of any resolution
    /// can be its source. Exact steps need pixels, for what they promise is that pixels stay as they are.
    pub fn wants_planes(&self) -> bool {
        self.is_upright() && self.interpolation.is_some()
    }

    /// By how much the decoder may shrink the source beforehand: the resampling still has two pixels or more for
    /// each of its own, so that its filter decides what remains.
    pub fn decode_scale(&self) -> Scale {
        let (x, y) = self.scales();
        let shrinks = |scale: &Scale| x.min(y) >= 2.0 * f64::from(scale.factor());
        match self.interpolation {
            None | Some(Filter::Nearest) => Scale::Full,
            Some(_) => [Scale::Eighth, Scale::Quarter, Scale::Half]
                .into_iter()
                .find(shrinks)
                .unwrap_or(Scale::Full),
        }
    }

    fn is_upright(&self) -> bool {
        self.map.0[1] == 0.0 && self.map.0[3] == 0.0
    }

    /// Whether rows or columns run backwards in the source, or are turned by a quarter.
    fn is_flipped_or_turned(&self) -> bool {
        let m = self.map.0;
        (self.is_upright() && m[0].min(m[4]) < 0.0) || (m[0] == 0.0 && m[4] == 0.0)
    }

    /// What an explanation says of the warp.
    pub fn facts(&self) -> Resampling {
        let (mut row, mut mask) = (vec![0; 4 * self.width as usize], Vec::new());
        let frames: Vec<&Frame> = self.frames.iter().rev().collect();
        for v in 0..self.height {
            let (from, to) = fill_outside(&frames, v, self.width as usize, &mut row);
            mask.extend((0..self.width as usize).map(|u| (from..to).contains(&u)));
        }
        Resampling {
            width: self.width,
            height: self.height,
            map: self.map.0,
            interpolation: self.filter(),
            scales: self.scales(),
            upright: self.is_upright(),
            mask,
        }
    }

    /// The warp in numbers: of `pixels`, or of channels that lie like `sides`.
    pub fn lower(&self, pixels: &Rgbx<'_>, sides: Sides) -> DeviceWork {
        let frames = self.frames_that_cut();
        let mut rows = vec![(0, self.width); self.height as usize];
        let mut inside = Vec::with_capacity(frames.len() * rows.len());
        for frame in &frames {
            for (v, row) in rows.iter_mut().enumerate() {
                let (from, to) = frame.columns(v as f64 + 0.5, row.0 as usize, row.1 as usize);
                *row = (from as u32, to as u32);
                inside.push(*row);
            }
        }
        let map = if self.is_upright() {
            let (across, down) = self.lines();
            ResampleMap::Upright(upright::UprightTables::new(sides, self.filter(), across, down))
        } else {
            let scales = self.scales();
            ResampleMap::Turned(turned::TurnedTables::new(
                pixels,
                self.filter(),
                &self.map,
                self.bounds,
                scales,
                &rows,
            ))
        };
        DeviceWork::Resample(Box::new(Resample {
            map,
            fills: frames.iter().map(|frame| frame.fill).collect(),
            inside,
        }))
    }

    /// The last step's first. A frame that holds all four corners holds the whole result.
    fn frames_that_cut(&self) -> Vec<&Frame> {
        let frames = self.frames.iter().rev();
        frames
            .filter(|frame| !frame.holds(self.width, self.height))
            .collect()
    }

    /// The axes of an upright warp.
    fn lines(&self) -> (Line, Line) {
        let m = self.map.0;
        let line = |slope, start, count, bounds| Line {
            slope,
            start,
            count,
            bounds,
        };
        (
            line(m[0], m[2], self.width, self.bounds.x),
            line(m[4], m[5], self.height, self.bounds.y),
        )
    }

    /// Computes the result row by row. `row` holds `4 * width` bytes.
    pub fn rows(
        &self,
        source: Source<'_>,
        buffers: &mut Buffers,
        row: &mut [u8],
        mut sink: impl FnMut(usize, &mut [u8]),
    ) {
        let frames = self.frames_that_cut();
        let Buffers {
            planes,
            upright,
            turned,
        } = buffers;
        let source = match source {
            Source::Pixels(pixels) if self.is_upright() => Source::Planes(Planes::of_pixels(pixels, planes)),
            other => other,
        };
        match source {
            Source::Planes(planes) => {
                let mut upright = Upright::new(planes, self.filter(), self.lines(), upright);
                for v in 0..self.height {
                    upright.row(v as usize, row);
                    fill_outside(&frames, v, self.width as usize, row);
                    sink(v as usize, row);
                }
            }
            Source::Pixels(pixels) => {
                let turned = Turned::new(
                    pixels,
                    self.filter(),
                    &self.map,
                    self.bounds,
                    self.scales(),
                    turned,
                );
                for v in 0..self.height {
                    let (from, to) = fill_outside(&frames, v, self.width as usize, row);
                    turned.row(v as usize, from..to, &mut row[4 * from..4 * to]);
                    sink(v as usize, row);
                }
            }
        }
    }
}

impl Warp {
    /// Resamples a mask: each pixel of the result is the pixel of `mask` that its centre lies in, or has no class where it lies
    /// outside of a frame.
    pub fn nearest(&self, mask: &Mask) -> Mask {
        let frames = self.frames_that_cut();
        let mut out = Mask::ignored(self.width, self.height);
        let index = |place: f64, (low, high): (i64, i64), size: u32| {
            (place.floor() as i64)
                .clamp(low, high - 1)
                .min(i64::from(size) - 1) as usize
        };
        let column = |x: f64| index(x, self.bounds.x, mask.width);
        // While rows stay rows, every row reads the same columns.
        let columns: Vec<usize> = match self.is_upright() {
            true => (0..self.width)
                .map(|u| column(self.map.apply(f64::from(u) + 0.5, 0.5).0))
                .collect(),
            false => Vec::new(),
        };
        for (v, row) in (0..).zip(out.data.chunks_exact_mut(self.width as usize)) {
            let y = f64::from(v) + 0.5;
            let (mut from, mut to) = (0, row.len());
            for frame in &frames {
                (from, to) = frame.columns(y, from, to);
            }
            if self.is_upright() {
                let source = mask.row(index(self.map.apply(0.5, y).1, self.bounds.y, mask.height));
                for (to, &x) in row[from..to].iter_mut().zip(&columns[from..to]) {
                    *to = source[x];
                }
                continue;
            }
            for (u, to) in (from..).zip(&mut row[from..to]) {
                let (x, y) = self.map.apply(u as f64 + 0.5, y);
                *to = mask.row(index(y, self.bounds.y, mask.height))[column(x)];
            }
        }
        out
    }
}

/// Fills what lies outside the frames, the last step's first, and returns the columns that lie inside all of them.
fn fill_outside(frames: &[&Frame], v: u32, width: usize, row: &mut [u8]) -> (usize, usize) {
    let (mut from, mut to) = (0, width);
    for frame in frames {
        let (first, last) = frame.columns(f64::from(v) + 0.5, from, to);
        let [r, g, b] = frame.fill;
        row[4 * from..4 * first].as_chunks_mut().0.fill([r, g, b, 255]);
        row[4 * last..4 * to].as_chunks_mut().0.fill([r, g, b, 255]);
        (from, to) = (first, last);
    }
    (from, to)
}

impl Frame {
    fn set_map(&mut self, map: Affine) {
        (self.map, self.inverse) = (map, [1.0 / map.0[0], 1.0 / map.0[3]]);
    }

    /// Whether the point of every result pixel lies inside the frame.
    fn holds(&self, width: u32, height: u32) -> bool {
        let (w, h) = (f64::from(width) - 0.5, f64::from(height) - 0.5);
        [(0.5, 0.5), (w, 0.5), (0.5, h), (w, h)]
            .into_iter()
            .all(|(x, y)| self.inside(x, y))
    }

    fn inside(&self, x: f64, y: f64) -> bool {
        let (x, y) = self.map.apply(x, y);
        (0.0..self.size.0).contains(&x) && (0.0..self.size.1).contains(&y)
    }

    /// The part of columns `from..to` whose centres lie inside the frame, in the row whose centre is `y`.
    fn columns(&self, y: f64, from: usize, to: usize) -> (usize, usize) {
        let m = &self.map.0;
        let inside = |u: usize| self.inside(u as f64 + 0.5, y);
        // In most rows nothing is cut off: what holds at both ends holds between them.
        if from == to || (inside(from) && inside(to - 1)) {
            return (from, to);
        }
        let (mut low, mut high) = (from as f64, to as f64);
        for (slope, inverse, start, size) in [
            (m[0], self.inverse[0], m[1] * y + m[2], self.size.0),
            (m[3], self.inverse[1], m[4] * y + m[5], self.size.1),
        ] {
            if slope == 0.0 {
                if !(0.0..size).contains(&start) {
                    return (from, from);
                }
                continue;
            }
            let (a, b) = (-start * inverse, (size - start) * inverse);
            low = low.max(a.min(b) - 0.5);
            high = high.min(a.max(b) - 0.5);
        }
        if low > high {
            return (from, from);
        }
        // The product may be off by a rounding; the test itself decides at both ends.
        let mut first = (low as usize).clamp(from, to);
        let mut last = (high as usize + 2).clamp(first, to);
        while first < last && !inside(first) {
            first += 1;
        }
        while last > first && !inside(last - 1) {
            last -= 1;
        }
        (first, last)
    }
}
