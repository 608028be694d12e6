//! From strips of samples to rows of pixels, as soon as an MCU row is complete.

use crate::frame::Component;
use crate::header::Head;
use crate::inks;
use crate::kernels::upsample::{self, Rows};
use crate::kernels::{Isa, color, padded};
use crate::pixels::{Layout, Pixels};
use crate::region::{Needed, Region};
use crate::transform::Strip;
use crate::{ColorModel, Error};

/// Bytes behind the last pixel that kernels may touch.
const SLACK: usize = 32 * 4 + 16;

/// How a component comes to the image's resolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Upsampling {
    /// It has it.
    None,
    /// Interpolated to twice the width.
    H2,
    /// Interpolated to twice the height.
    V2,
    /// Interpolated to twice both.
    H2V2,
    /// Repeated.
    Repeat,
}

impl Upsampling {
    /// libjpeg's choice (jdsample.c, jinit_upsampler).
    fn of(component: &Component, h: usize, v: usize) -> Upsampling {
        match (h, v) {
            (1, 1) => Upsampling::None,
            (2, 1) if component.width > 2 => Upsampling::H2,
            (1, 2) => Upsampling::V2,
            (2, 2) if component.width > 2 => Upsampling::H2V2,
            _ => Upsampling::Repeat,
        }
    }

    /// Whether it looks at the row above or below.
    fn looks_around(self) -> bool {
        matches!(self, Upsampling::V2 | Upsampling::H2V2)
    }
}

/// One component on its way to pixels.
#[derive(Debug)]
struct Lane {
    strip: Strip,
    upsampling: Upsampling,
    /// Pixels a sample, across and down.
    h: usize,
    v: usize,
    /// The row in work at the image's resolution, where the component does not have it.
    row: Vec<u8>,
}

/// The strips of all components and the pixels made of them.
#[derive(Debug)]
pub(crate) struct Strips {
    lanes: [Lane; 4],
    count: usize,
    region: Region,
    layout: Layout,
    color: ColorModel,
    /// The image's height, the pixel rows of an MCU row, and its MCU rows.
    height: usize,
    mcu_height: usize,
    mcu_rows: usize,
    /// The next row of pixels to be made.
    y: usize,
    /// Pixels of the region; of it only what the region takes is current.
    out: Vec<u8>,
    isa: Isa,
}

impl Strips {
    pub fn new(isa: Isa) -> Strips {
        let lane = || Lane {
            strip: Strip::new(isa),
            upsampling: Upsampling::None,
            h: 1,
            v: 1,
            row: Vec::new(),
        };
        Strips {
            lanes: std::array::from_fn(|_| lane()),
            count: 0,
            region: Region {
                x: 0,
                y: 0,
                width: 0,
                height: 0,
            },
            layout: Layout::Rgb,
            color: ColorModel::Grey,
            height: 0,
            mcu_height: 0,
            mcu_rows: 0,
            y: 0,
            out: Vec::new(),
            isa,
        }
    }

    /// Begins an image of which `region` is wanted.
    pub fn begin(&mut self, head: &Head<'_>, region: &Region, layout: Layout) -> Result<(), Error> {
        let frame = &head.frame;
        for (lane, component) in self.lanes.iter_mut().zip(frame.components()) {
            if !frame.h_max.is_multiple_of(component.h) || !frame.v_max.is_multiple_of(component.v) {
                let Component { h, v, .. } = component;
                let what = format!(
                    "a component sampled {h}x{v} among {}x{}",
                    frame.h_max, frame.v_max
                );
                return Err(Error::Unsupported(what));
            }
            (lane.h, lane.v) = (frame.h_max / component.h, frame.v_max / component.v);
            lane.upsampling = Upsampling::of(component, lane.h, lane.v);
            lane.strip.begin(component, Needed::of(region, frame, component));
            let room = lane.h * padded(region.width as usize / lane.h + 2) + 64;
            if lane.row.len() < room {
                lane.row.resize(room, 0);
            }
        }
        let size = region.height as usize * region.width as usize * layout.bytes() + SLACK;
        if self.out.len() < size {
            self.out.resize(size, 0);
        }
        self.count = frame.components().len();
        (self.region, self.layout, self.color) = (*region, layout, head.color);
        (self.height, self.mcu_height, self.mcu_rows) = (frame.height, 8 * frame.v_max, frame.mcus_high);
        self.y = region.y as usize;
        Ok(())
    }

    /// The strip of component `index`.
    #[inline(always)]
    pub fn strip(&mut self, index: usize) -> &mut Strip {
        &mut self.lanes[index].strip
    }

    /// What the region needs of each component.
    pub fn needed(&self) -> [Needed; 4] {
        std::array::from_fn(|i| self.lanes[i].strip.needed().clone())
    }

    /// All needed blocks of MCU row `mcu_row` were pushed: makes the pixels that they allow.
    pub fn complete(&mut self, mcu_row: usize) {
        let lanes = &mut self.lanes[..self.count];
        lanes.iter_mut().for_each(|lane| lane.strip.complete());
        let waits = usize::from(lanes.iter().any(|lane| lane.upsampling.looks_around()));
        let end = match mcu_row + 1 == self.mcu_rows {
            true => self.height,
            false => (mcu_row + 1) * self.mcu_height - waits, // the last row looks at the next MCU row
        };
        for y in self.y..end.min(self.region.rows().end) {
            self.make_row(y, mcu_row);
            self.y = y + 1;
        }
        self.lanes[..self.count]
            .iter_mut()
            .for_each(|lane| lane.strip.keep_last_row());
    }

    /// Makes row `y` of the image from the samples of MCU row `mcu_row` and the row above it.
    fn make_row(&mut self, y: usize, mcu_row: usize) {
        let columns = self.region.columns();
        let lanes = &mut self.lanes[..self.count];
        for lane in lanes.iter_mut() {
            lane.upsample(self.isa, y, mcu_row, columns.start, columns.len());
        }
        let row = |i: usize| lanes[i].at_full_width(y, mcu_row, columns.start);
        let pixel = self.layout.bytes();
        let out = &mut self.out[(y - self.region.y as usize) * columns.len() * pixel..];
        let (width, layout) = (columns.len(), self.layout);
        match self.color {
            ColorModel::Grey => color::grey(row(0), width, layout, out),
            ColorModel::YCbCr => color::ycc(self.isa, [row(0), row(1), row(2)], width, layout, out),
            ColorModel::Rgb => color::rgb([row(0), row(1), row(2)], width, layout, out),
            ColorModel::Cmyk => inks::cmyk([row(0), row(1), row(2), row(3)], width, layout, out),
            ColorModel::Ycck => inks::ycck([row(0), row(1), row(2), row(3)], width, layout, out),
        }
    }

    /// The pixels of the region, once all its MCU rows are complete.
    pub fn pixels(&self) -> Pixels<'_> {
        let Region { width, height, .. } = self.region;
        let stride = width as usize * self.layout.bytes();
        Pixels {
            data: &self.out[..height as usize * stride],
            stride,
            width,
            height,
            layout: self.layout,
        }
    }
}

impl Lane {
    /// The strip's row that holds row `row` of all the component's samples.
    fn within(&self, row: usize, mcu_row: usize) -> usize {
        row + 1 - mcu_row * 8 * self.strip.component().v
    }

    /// Brings the component's row for pixel row `y` to the image's resolution, `width` pixels from `x`.
    fn upsample(&mut self, isa: Isa, y: usize, mcu_row: usize, x: usize, width: usize) {
        if self.upsampling == Upsampling::None {
            return;
        }
        let first = x / self.h;
        let count = (x + width - 1) / self.h - first + 1;
        let (row, below) = (y / self.v, y % 2 == 1);
        let far = match (self.upsampling.looks_around(), below) {
            (false, _) => row,
            (true, false) => row.saturating_sub(1),
            (true, true) => (row + 1).min(self.strip.component().height - 1),
        };
        let near = self.strip.row(self.within(row, mcu_row), first);
        let far = self.strip.row(self.within(far, mcu_row), first);
        let (rows, out) = (Rows { near, far, count }, &mut self.row[..]);
        match self.upsampling {
            Upsampling::None => {}
            Upsampling::H2 => upsample::h2(isa, rows, out),
            Upsampling::V2 => upsample::v2(rows, if below { 2 } else { 1 }, out),
            Upsampling::H2V2 => upsample::h2v2(isa, rows, out),
            Upsampling::Repeat => upsample::repeat(rows, self.h, out),
        }
    }

    /// The component's row for pixel row `y`, from pixel `x` on.
    fn at_full_width(&self, y: usize, mcu_row: usize, x: usize) -> &[u8] {
        match self.upsampling {
            Upsampling::None => &self.strip.row(self.within(y, mcu_row), x)[1..],
            _ => &self.row[x % self.h..],
        }
    }
}
