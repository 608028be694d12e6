//! From coefficients to samples: per component a strip that holds the sample rows of one MCU row and the row
//! above, or the rows of the whole region.

use crate::block::{Block, ZIGZAG};
use crate::blocks::{BlockHead, ComponentBlocks, PlaneLayout};
use crate::frame::Component;
use crate::grid::Grid;
use crate::kernels::Isa;
use crate::kernels::idct::{self, Steps, Target};
use crate::kernels::reduced;
use crate::planar::Plane;
use crate::region::Needed;
use std::ops::Range;

/// Blocks that wait for their transform.
const PENDING: usize = 8;

/// Samples kept free left of a strip; the last of them repeats the image's first column.
const MARGIN: usize = 32;

/// Samples kept free right of a strip: what kernels may touch beyond a row.
const SLACK: usize = 64;

/// One component's samples of the region.
#[derive(Debug)]
pub(crate) struct Strip {
    component: Component,
    grid: Grid,
    needed: Needed,
    steps: Steps,
    pending: Box<[Block; PENDING]>,
    /// Where they go in the samples, and how many coefficients they have up to the last that is not zero.
    targets: [usize; PENDING],
    counts: [u32; PENDING],
    waiting: usize,
    /// Rows of samples: the last one of the MCU row above and those of this MCU row, or those of all MCU rows
    /// that hold any of the region.
    samples: Vec<u8>,
    stride: usize,
    /// The row where this MCU row begins.
    top: usize,
    /// Blocks that are kept as they are: where they go instead of being transformed.
    kept: Option<Kept>,
    heads: Vec<BlockHead>,
    values: Vec<i16>,
    isa: Isa,
}

/// Of a strip that keeps its blocks.
#[derive(Debug, Clone, Copy)]
struct Kept {
    /// The component's row of blocks where this MCU row begins.
    top: usize,
}

impl Strip {
    pub fn new(isa: Isa) -> Strip {
        Strip {
            component: Component::default(),
            grid: Grid::default(),
            needed: Needed::default(),
            steps: Steps([0; 64]),
            pending: Box::new([Block::ZERO; PENDING]),
            targets: [0; PENDING],
            counts: [0; PENDING],
            waiting: 0,
            samples: Vec::new(),
            stride: 0,
            top: 0,
            kept: None,
            heads: Vec::new(),
            values: Vec::new(),
            isa,
        }
    }

    /// Begins an image whose samples are taken one MCU row at a time: blocks that are `needed` of `component`
    /// come.
    pub fn begin(&mut self, component: &Component, grid: &Grid, needed: Needed) {
        self.begin_rows(component, grid, needed, 1, 1);
    }

    /// Begins an image whose samples stay until the last of some MCU rows is complete.
    pub fn begin_whole(&mut self, component: &Component, grid: &Grid, needed: Needed, mcu_rows: usize) {
        self.begin_rows(component, grid, needed, 0, mcu_rows);
    }

    /// Begins an image whose blocks are kept; the first that come are of MCU row `first_mcu_row`.
    pub fn begin_blocks(&mut self, component: &Component, grid: &Grid, needed: Needed, first_mcu_row: usize) {
        self.heads.clear();
        self.heads
            .resize(needed.columns.len() * needed.rows.len(), BlockHead::default());
        self.values.clear();
        (self.component, self.grid, self.needed) = (*component, *grid, needed);
        (self.waiting, self.kept) = (
            0,
            Some(Kept {
                top: first_mcu_row * component.v,
            }),
        );
    }

    /// Begins an image that no blocks come of.
    pub fn begin_needs(&mut self, component: &Component, grid: &Grid, needed: Needed) {
        (self.component, self.grid, self.needed) = (*component, *grid, needed);
        (self.waiting, self.kept) = (0, None);
        self.heads.clear();
        self.values.clear();
    }

    fn begin_rows(
        &mut self,
        component: &Component,
        grid: &Grid,
        needed: Needed,
        top: usize,
        mcu_rows: usize,
    ) {
        self.stride = (MARGIN + grid.side * needed.columns.len() + SLACK).next_multiple_of(32);
        let size = (top + grid.side * component.v * mcu_rows) * self.stride;
        if self.samples.len() < size {
            self.samples.resize(size, 0);
        }
        (self.component, self.grid, self.needed) = (*component, *grid, needed);
        (self.top, self.waiting, self.kept) = (top, 0, None);
    }

    /// Sets the steps that the coming blocks are quantised with.
    pub fn set_steps(&mut self, steps: &[u16; 64]) {
        self.steps = Steps(steps.map(|step| step as i16));
    }

    pub fn component(&self) -> &Component {
        &self.component
    }

    pub fn grid(&self) -> &Grid {
        &self.grid
    }

    pub fn needed(&self) -> &Needed {
        &self.needed
    }

    /// An empty block, to be filled and then given back by [`Strip::push`].
    #[inline(always)]
    pub fn block(&mut self) -> &mut Block {
        let block = &mut self.pending[self.waiting % PENDING];
        block.0[..64].fill(0);
        block
    }

    /// Takes the block last given out: `count` coefficients up to the last that is not zero, its column among
    /// all blocks of the component, its row among those of the MCU row.
    #[inline(always)]
    pub fn push(&mut self, count: u32, column: usize, row: usize) {
        if let Some(kept) = self.kept {
            return self.keep(kept, count, column, row);
        }
        if count == 1 || self.is_flat() {
            let dc = self.pending[self.waiting % PENDING].0[0];
            return self.push_flat(dc, column, row);
        }
        self.targets[self.waiting % PENDING] = self.at(column, row);
        self.counts[self.waiting % PENDING] = count;
        self.waiting += 1;
        if self.waiting == PENDING {
            self.flush();
        }
    }

    /// Whether a block is one sample, which only its first coefficient makes.
    #[inline(always)]
    pub fn is_flat(&self) -> bool {
        self.grid.side == 1
    }

    /// Takes a block of which only the first coefficient is not zero, or counts.
    #[inline(always)]
    pub fn push_flat(&mut self, dc: i16, column: usize, row: usize) {
        if let Some(kept) = self.kept {
            self.pending[self.waiting].0[0] = dc;
            return self.keep(kept, 1, column, row);
        }
        let at = self.at(column, row);
        let target = Target {
            samples: &mut self.samples,
            stride: self.stride,
        };
        // The side as a constant, so that the common one is a few stores.
        match self.grid.side {
            8 => idct::flat(dc, &self.steps, target, 8, at),
            side => idct::flat(dc, &self.steps, target, side, at),
        }
    }

    /// Packs the block last given out.
    fn keep(&mut self, kept: Kept, count: u32, column: usize, row: usize) {
        let count = if self.is_flat() { 1 } else { count };
        let (row, column) = (
            kept.top + row - self.needed.rows.start,
            column - self.needed.columns.start,
        );
        let (block, first) = (&self.pending[self.waiting].0, self.values.len() as u32);
        let mut mask = 0;
        for (k, &place) in ZIGZAG[..count as usize].iter().enumerate() {
            let value = block[usize::from(place)];
            if value != 0 {
                mask |= 1 << k;
                self.values.push(value);
            }
        }
        self.heads[row * self.needed.columns.len() + column] = BlockHead { mask, first };
    }

    /// What was kept, once all MCU rows are complete; `factor` full-size pixels lie along a pixel.
    pub fn blocks(&self, factor: usize) -> ComponentBlocks<'_> {
        ComponentBlocks {
            layout: PlaneLayout::of(&self.grid, &self.needed, factor),
            heads: &self.heads,
            values: &self.values,
            steps: self.steps.0,
        }
    }

    /// Where the samples of a block go.
    #[inline(always)]
    fn at(&self, column: usize, row: usize) -> usize {
        let side = self.grid.side;
        (self.top + side * row) * self.stride + MARGIN + side * (column - self.needed.columns.start)
    }

    /// Transforms what waits.
    #[inline(never)]
    fn flush(&mut self) {
        let target = Target {
            samples: &mut self.samples,
            stride: self.stride,
        };
        let (blocks, at) = (&self.pending[..self.waiting], &self.targets[..self.waiting]);
        let (counts, steps) = (&self.counts[..self.waiting], &self.steps);
        match self.grid.side {
            8 => idct::transform(self.isa, blocks, counts, steps, target, at),
            4 => reduced::to_four(self.isa, blocks, steps, target, at),
            _ => reduced::to_two(self.isa, blocks, steps, target, at),
        }
        self.waiting = 0;
    }

    /// Ends an MCU row whose samples are taken now: they are complete, with the image's edges repeated once
    /// beyond them.
    pub fn complete(&mut self) {
        self.flush();
        let first = self.grid.side * self.needed.columns.start;
        let right = self.grid.width - first; // beyond the last column
        for row in self
            .samples
            .chunks_exact_mut(self.stride)
            .skip(1)
            .take(self.grid.side * self.component.v)
        {
            if first == 0 {
                row[MARGIN - 1] = row[MARGIN];
            }
            if right <= self.grid.side * self.needed.columns.len() {
                row[MARGIN + right] = row[MARGIN + right - 1];
            }
        }
    }

    /// Keeps the MCU row's last row of samples as the row above the next MCU row.
    pub fn keep_last_row(&mut self) {
        let last = self.grid.side * self.component.v * self.stride;
        self.samples.copy_within(last..last + self.stride, 0);
    }

    /// Ends an MCU row whose samples stay: the next one comes below it.
    pub fn move_down(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.top += self.component.v;
            return;
        }
        self.flush();
        self.top += self.grid.side * self.component.v;
    }

    /// Samples of a row, from the one left of column `first` on. Row 0 is the one above the MCU row.
    pub fn row(&self, row: usize, first: usize) -> &[u8] {
        let from = MARGIN - 1 + first - self.grid.side * self.needed.columns.start;
        &self.samples[row * self.stride..][from..self.stride]
    }

    /// All needed samples, once all MCU rows from `first_mcu_row` on are complete; `factor` full-size pixels
    /// lie along a pixel.
    pub fn plane(&self, first_mcu_row: usize, factor: usize) -> Plane<'_> {
        let Grid {
            side,
            width,
            height,
            across,
            down,
            ..
        } = self.grid;
        let samples = |blocks: &Range<usize>, size: usize| side * blocks.start..(side * blocks.end).min(size);
        let (columns, rows) = (
            samples(&self.needed.columns, width),
            samples(&self.needed.rows, height),
        );
        let above = rows.start - side * self.component.v * first_mcu_row;
        Plane {
            data: &self.samples[above * self.stride + MARGIN..][..rows.len() * self.stride - MARGIN],
            stride: self.stride,
            x: columns.start as u32,
            y: rows.start as u32,
            width: columns.len() as u32,
            height: rows.len() as u32,
            pixels: ((factor * across) as u32, (factor * down) as u32),
        }
    }
}
