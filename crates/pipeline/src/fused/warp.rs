//! A run of geometry as one resampling.
//!
//! Every step maps points of its output to points of its input; the product of the maps takes a pixel of the result
//! straight to the source. Around that point the source is weighted once, with a filter as wide as the whole run
//! shrinks the image. What a rotation or a border leaves outside the image is decided per step, as `per-op` decides
//! it: a pixel whose point leaves the frame of a step gets that step's fill colour. In one output row the points of
//! a frame are an interval, so this costs two divisions per row and frame, not a test per pixel.

use super::kernel::{self, Axis, RowBuffers, Taps};
use crate::op::{Interpolation, PaddingMode};
use crate::step::{Affine, Step};
use stokehold_jpeg::Region;

/// A run of geometric steps.
pub(super) struct Warp {
    pub width: u32,
    pub height: u32,
    /// From points of the result to points of the source.
    map: Affine,
    frames: Vec<Frame>,
    source: (u32, u32),
    /// The filter; none while only exact steps were met.
    interpolation: Option<Interpolation>,
    /// Source columns and rows that the filter may read.
    bounds: Bounds,
}

/// The image that a step saw: outside it, the step's fill colour shows.
struct Frame {
    /// From points of the result to points of that image.
    map: Affine,
    size: (f64, f64),
    fill: [u8; 3],
}

#[derive(Clone, Copy)]
struct Bounds {
    x: (i64, i64),
    y: (i64, i64),
}

/// RGBX pixels of a region of an image.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub data: &'a [u8],
    /// Bytes from row to row.
    pub stride: usize,
    pub width: u32,
    pub height: u32,
    /// Where the region begins in the image.
    pub x: u32,
    pub y: u32,
}

impl<'a> Source<'a> {
    pub fn of(data: &'a [u8], width: u32, height: u32) -> Source<'a> {
        Source {
            data,
            stride: 4 * width as usize,
            width,
            height,
            x: 0,
            y: 0,
        }
    }

    pub fn copy_to(&self, out: &mut Vec<u8>) {
        out.clear();
        for row in self.data.chunks(self.stride).take(self.height as usize) {
            out.extend_from_slice(&row[..4 * self.width as usize]);
        }
    }
}

impl Warp {
    /// Whether a step is geometry that composes.
    pub fn takes(step: &Step) -> bool {
        match step {
            Step::HorizontalFlip
            | Step::VerticalFlip
            | Step::Rotate(_)
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
            _ => Affine::IDENTITY,
        };
        for frame in &mut self.frames {
            frame.map = map.then(&frame.map);
        }
        if let Some(fill) = fill {
            self.frames.push(Frame {
                map,
                size: (w, h),
                fill,
            });
        }
        self.map = map.then(&self.map);
        (self.width, self.height) = step.size_after(self.width, self.height);
    }

    /// The best filter of the run wins: a run of nearest steps alone stays nearest.
    fn interpolate(&mut self, interpolation: Interpolation) {
        let rank = |i: Interpolation| i as u8;
        self.interpolation = match self.interpolation {
            Some(present) if rank(present) >= rank(interpolation) => Some(present),
            _ => Some(interpolation),
        };
    }

    /// A resize reads nothing outside the image it sees; while the map is upright, that image is a rectangle of the
    /// source.
    fn resize_bounds(&mut self) {
        let m = self.map.0;
        if m[1] != 0.0 || m[3] != 0.0 {
            return;
        }
        let (x0, y0) = self.map.apply(0.0, 0.0);
        let (x1, y1) = self.map.apply(f64::from(self.width), f64::from(self.height));
        let clip = |(low, high): (i64, i64), a: f64, b: f64| {
            // A place a hair beside a pixel's edge is the edge.
            let (from, to) = ((a.min(b) + 1e-6).floor() as i64, (a.max(b) - 1e-6).ceil() as i64);
            (low.max(from), high.min(to).max(low.max(from)))
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
    fn filter(&self) -> Interpolation {
        self.interpolation.unwrap_or(Interpolation::Nearest)
    }

    /// The rectangle of the source that the warp reads; never empty.
    pub fn region(&self) -> Region {
        let (w, h) = (f64::from(self.width), f64::from(self.height));
        let corners = [(0.0, 0.0), (w, 0.0), (0.0, h), (w, h)].map(|(x, y)| self.map.apply(x, y));
        let (scale_x, scale_y) = self.scales();
        let side = |values: [f64; 4], scale: f64, size: u32| {
            let margin = crate::filter::support(self.filter(), scale) + 1.0;
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

    /// Computes the result row by row. `row` holds `4 * width` bytes.
    pub fn rows(
        &self,
        source: Source<'_>,
        buffers: &mut RowBuffers,
        row: &mut [u8],
        mut sink: impl FnMut(usize, &mut [u8]),
    ) {
        // From here on, coordinates count from the region's corner.
        let map = self.map.then(&Affine([
            1.0,
            0.0,
            -f64::from(source.x),
            0.0,
            1.0,
            -f64::from(source.y),
        ]));
        let within = |(low, high): (i64, i64), start: u32, size: u32| {
            let low = (low - i64::from(start)).clamp(0, i64::from(size) - 1);
            (low, (high - i64::from(start)).clamp(low + 1, i64::from(size)))
        };
        let x = within(self.bounds.x, source.x, source.width);
        let y = within(self.bounds.y, source.y, source.height);
        let (scale_x, scale_y) = self.scales();
        let m = map.0;
        let upright = m[1] == 0.0 && m[3] == 0.0;
        let filter = self.filter();
        let (columns, lines) = if upright {
            (
                Taps::along(Axis::Columns, filter, (m[0], m[2]), self.width, x),
                Taps::along(Axis::Rows, filter, (m[4], m[5]), self.height, y),
            )
        } else {
            (
                Taps::phases(Axis::Columns, filter, scale_x),
                Taps::phases(Axis::Rows, filter, scale_y),
            )
        };
        let image = kernel::Image {
            data: source.data,
            stride: source.stride,
            x,
            y,
        };
        // A frame that holds all four corners holds the whole result.
        let frames: Vec<&Frame> = self
            .frames
            .iter()
            .rev()
            .filter(|frame| !frame.holds(self.width, self.height))
            .collect();
        for v in 0..self.height {
            let (from, to) = fill_outside(&frames, v, self.width as usize, row);
            let (v, out) = (v as usize, &mut row[4 * from..4 * to]);
            if upright {
                kernel::upright(&image, (&columns, &lines), v, from..to, buffers, out);
            } else {
                kernel::turned(&image, (&columns, &lines), &map, v, from..to, buffers, out);
            }
            sink(v, row);
        }
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
        let (mut low, mut high) = (from as f64, to as f64);
        for (slope, start, size) in [
            (m[0], m[1] * y + m[2], self.size.0),
            (m[3], m[4] * y + m[5], self.size.1),
        ] {
            if slope == 0.0 {
                if !(0.0..size).contains(&start) {
                    return (from, from);
                }
                continue;
            }
            let (a, b) = (-start / slope, (size - start) / slope);
            low = low.max(a.min(b) - 0.5);
            high = high.min(a.max(b) - 0.5);
        }
        if low > high {
            return (from, from);
        }
        // The division may be off by a rounding; the test itself decides at both ends.
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
