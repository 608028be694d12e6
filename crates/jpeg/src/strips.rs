//! From strips of samples to rows of pixels, as soon as an MCU row is complete; or to planes of samples.

use crate::blocks::{Blocks, ComponentBlocks};
use crate::grid::{Grid, Upsampling};
use crate::header::Head;
use crate::inks;
use crate::kernels::upsample::{self, Rows};
use crate::kernels::{Isa, color, padded};
use crate::pixels::{Layout, Pixels};
use crate::planar::{Plane, Planes};
use crate::region::{Needed, Region, needed_mcus};
use crate::scale::Scale;
use crate::transform::Strip;
use crate::{ColorModel, Error};

/// Bytes behind the last pixel that kernels may touch.
const SLACK: usize = 32 * 4 + 16;

/// What is made of the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    Pixels(Layout),
    Planes,
    Blocks,
}

/// One component on its way to pixels.
#[derive(Debug)]
struct Lane {
    strip: Strip,
    /// The row in work at the image's resolution, where the component does not have it.
    row: Vec<u8>,
}

/// The strips of all components and the pixels made of them.
#[derive(Debug)]
pub(crate) struct Strips {
    lanes: [Lane; 4],
    count: usize,
    output: Output,
    color: ColorModel,
    /// What is wanted of the scaled image, and by how much that is smaller.
    region: Region,
    factor: usize,
    /// The scaled image's height, the pixel rows of an MCU row, and the image's MCU rows.
    height: usize,
    mcu_height: usize,
    mcu_rows: usize,
    /// The first MCU row that holds any of the region.
    first_mcu_row: usize,
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
            row: Vec::new(),
        };
        Strips {
            lanes: std::array::from_fn(|_| lane()),
            count: 0,
            output: Output::Planes,
            color: ColorModel::Grey,
            region: Region {
                x: 0,
                y: 0,
                width: 0,
                height: 0,
            },
            factor: 1,
            height: 0,
            mcu_height: 0,
            mcu_rows: 0,
            first_mcu_row: 0,
            y: 0,
            out: Vec::new(),
            isa,
        }
    }

    /// Begins an image of which `region`, in full-size pixels, is wanted.
    pub fn begin(
        &mut self,
        head: &Head<'_>,
        region: &Region,
        scale: Scale,
        output: Output,
    ) -> Result<(), Error> {
        let frame = &head.frame;
        let components = frame.components();
        let region = region.scaled(scale);
        let mut grids = [Grid::default(); 4];
        let mut needed: [Needed; 4] = std::array::from_fn(|_| Needed::default());
        for (i, component) in components.iter().enumerate() {
            grids[i] = Grid::of(component, frame, scale)?;
            needed[i] = Needed::of(&region, &grids[i]);
        }
        let (_, mcu_rows) = needed_mcus(frame, &needed[..components.len()]);
        for (i, lane) in self.lanes.iter_mut().enumerate().take(components.len()) {
            let (component, grid, needed) = (&components[i], &grids[i], needed[i].clone());
            match output {
                Output::Planes => lane.strip.begin_whole(component, grid, needed, mcu_rows.len()),
                Output::Blocks => lane.strip.begin_blocks(component, grid, needed, mcu_rows.start),
                Output::Pixels(_) => {
                    lane.strip.begin(component, grid, needed);
                    let room = grid.across * padded(region.width as usize / grid.across + 2) + 64;
                    if lane.row.len() < room {
                        lane.row.resize(room, 0);
                    }
                }
            }
        }
        if let Output::Pixels(layout) = output {
            let size = region.height as usize * region.width as usize * layout.bytes() + SLACK;
            if self.out.len() < size {
                self.out.resize(size, 0);
            }
        }
        (self.count, self.output, self.color) = (components.len(), output, head.color);
        (self.region, self.factor) = (region, scale.factor() as usize);
        self.height = frame.height.div_ceil(self.factor);
        (self.mcu_height, self.mcu_rows) = (scale.side() * frame.v_max, frame.mcus_high);
        (self.first_mcu_row, self.y) = (mcu_rows.start, region.y as usize);
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
        let Output::Pixels(layout) = self.output else {
            return lanes.iter_mut().for_each(|lane| lane.strip.move_down());
        };
        lanes.iter_mut().for_each(|lane| lane.strip.complete());
        // Whether the last row looks at the next MCU row.
        let waits = lanes
            .iter()
            .any(|lane| lane.strip.grid().upsampling.reach().1 > 0);
        let end = match mcu_row + 1 == self.mcu_rows {
            true => self.height,
            false => (mcu_row + 1) * self.mcu_height - usize::from(waits),
        };
        for y in self.y..end.min(self.region.rows().end) {
            self.make_row(y, mcu_row, layout);
            self.y = y + 1;
        }
        self.lanes[..self.count]
            .iter_mut()
            .for_each(|lane| lane.strip.keep_last_row());
    }

    /// Makes row `y` of the scaled image from the samples of MCU row `mcu_row` and the row above it.
    fn make_row(&mut self, y: usize, mcu_row: usize, layout: Layout) {
        let columns = self.region.columns();
        let lanes = &mut self.lanes[..self.count];
        for lane in lanes.iter_mut() {
            lane.upsample(self.isa, y, mcu_row, columns.start, columns.len());
        }
        let row = |i: usize| lanes[i].at_full_width(y, mcu_row, columns.start);
        let pixel = layout.bytes();
        let out = &mut self.out[(y - self.region.y as usize) * columns.len() * pixel..];
        let width = columns.len();
        match self.color {
            ColorModel::Grey => color::grey(row(0), width, layout, out),
            ColorModel::YCbCr => color::ycc(self.isa, [row(0), row(1), row(2)], width, layout, out),
            ColorModel::Rgb => color::rgb([row(0), row(1), row(2)], width, layout, out),
            ColorModel::Cmyk => inks::cmyk([row(0), row(1), row(2), row(3)], width, layout, out),
            ColorModel::Ycck => inks::ycck([row(0), row(1), row(2), row(3)], width, layout, out),
        }
    }

    /// The pixels of the region down to the last row that was made: all, once all its MCU rows are complete.
    pub fn pixels(&self, layout: Layout) -> Pixels<'_> {
        let (width, height) = (self.region.width, self.y as u32 - self.region.y);
        let stride = width as usize * layout.bytes();
        Pixels {
            data: &self.out[..height as usize * stride],
            stride,
            width,
            height,
            layout,
            with_slack: &self.out[..height as usize * stride + SLACK],
        }
    }

    /// The samples of the region, once all its MCU rows are complete.
    pub fn planes(&self) -> Planes<'_> {
        let mut planes = [Plane::default(); 4];
        for (plane, lane) in planes.iter_mut().zip(&self.lanes[..self.count]) {
            *plane = lane.strip.plane(self.first_mcu_row, self.factor);
        }
        Planes {
            color: self.color,
            planes,
            count: self.count,
        }
    }

    /// The blocks of the region, once all its MCU rows are complete.
    pub fn blocks(&self) -> Blocks<'_> {
        let component = |i: usize| -> ComponentBlocks<'_> { self.lanes[i].strip.blocks(self.factor) };
        Blocks {
            color: self.color,
            components: std::array::from_fn(component),
            count: self.count,
        }
    }
}

impl Lane {
    /// The strip's row that holds row `row` of all the component's samples.
    fn within(&self, row: usize, mcu_row: usize) -> usize {
        row + 1 - mcu_row * self.strip.grid().side * self.strip.component().v
    }

    /// Brings the component's row for pixel row `y` to the image's resolution, `width` pixels from `x`.
    fn upsample(&mut self, isa: Isa, y: usize, mcu_row: usize, x: usize, width: usize) {
        let Grid {
            across,
            down,
            height,
            upsampling,
            ..
        } = *self.strip.grid();
        if upsampling == Upsampling::None {
            return;
        }
        let first = x / across;
        let count = (x + width - 1) / across - first + 1;
        let (row, below) = (y / down, y % 2 == 1);
        let far = match (upsampling.reach().1, below) {
            (0, _) => row,
            (_, false) => row.saturating_sub(1),
            (_, true) => (row + 1).min(height - 1),
        };
        let near = self.strip.row(self.within(row, mcu_row), first);
        let far = self.strip.row(self.within(far, mcu_row), first);
        let (rows, out) = (Rows { near, far, count }, &mut self.row[..]);
        match upsampling {
            Upsampling::None => {}
            Upsampling::H2 => upsample::h2(isa, rows, out),
            Upsampling::V2 => upsample::v2(rows, if below { 2 } else { 1 }, out),
            Upsampling::H2V2 => upsample::h2v2(isa, rows, out),
            Upsampling::Repeat => upsample::repeat(rows, across, out),
        }
    }

    /// The component's row for pixel row `y`, from pixel `x` on.
    fn at_full_width(&self, y: usize, mcu_row: usize, x: usize) -> &[u8] {
        let grid = self.strip.grid();
        match grid.upsampling {
            Upsampling::None => &self.strip.row(self.within(y, mcu_row), x)[1..],
            _ => &self.row[x % grid.across..],
        }
    }
}
