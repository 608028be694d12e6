//! Regions: what of the image is wanted, and which samples and blocks that takes.

use crate::frame::Frame;
use crate::grid::Grid;
use crate::scale::Scale;
use std::ops::Range;

/// A rectangle of the full-size image, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// First column.
    pub x: u32,
    /// First row.
    pub y: u32,
    /// Columns, at least 1.
    pub width: u32,
    /// Rows, at least 1.
    pub height: u32,
}

impl Region {
    /// The pixels of the scaled image that hold any pixel of the region.
    pub(crate) fn scaled(&self, scale: Scale) -> Region {
        let factor = scale.factor();
        let side = |first: u32, count: u32| {
            let start = first / factor;
            (start, (first + count).div_ceil(factor) - start)
        };
        let ((x, width), (y, height)) = (side(self.x, self.width), side(self.y, self.height));
        Region { x, y, width, height }
    }

    /// Columns of pixels.
    pub(crate) fn columns(&self) -> Range<usize> {
        self.x as usize..self.x as usize + self.width as usize
    }

    /// Rows of pixels.
    pub(crate) fn rows(&self) -> Range<usize> {
        self.y as usize..self.y as usize + self.height as usize
    }

    /// Whether it is not empty and lies within an image of that size.
    pub(crate) fn lies_within(&self, width: usize, height: usize) -> bool {
        self.width > 0 && self.height > 0 && self.columns().end <= width && self.rows().end <= height
    }
}

/// The blocks of one component that a region needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Needed {
    pub columns: Range<usize>,
    pub rows: Range<usize>,
}

impl Needed {
    /// Blocks whose samples any pixel of `region` of the scaled image is made from, with those that
    /// upsampling looks at.
    pub fn of(region: &Region, grid: &Grid) -> Needed {
        let blocks = |pixels: Range<usize>, along: usize, reach: usize, size: usize| {
            let first = (pixels.start / along).saturating_sub(reach);
            let last = ((pixels.end - 1) / along + reach).min(size - 1);
            first / grid.side..last / grid.side + 1
        };
        let (across, down) = grid.upsampling.reach();
        Needed {
            columns: blocks(region.columns(), grid.across, across, grid.width),
            rows: blocks(region.rows(), grid.down, down, grid.height),
        }
    }
}

/// The MCUs, by column and by row, that hold any needed block.
pub(crate) fn needed_mcus(frame: &Frame, needed: &[Needed]) -> (Range<usize>, Range<usize>) {
    let mcus = |blocks: &Range<usize>, factor: usize| blocks.start / factor..blocks.end.div_ceil(factor);
    let join = |a: Range<usize>, b: Range<usize>| a.start.min(b.start)..a.end.max(b.end);
    let each = frame.components().iter().zip(needed);
    let each = each.map(|(c, needed)| (mcus(&needed.columns, c.h), mcus(&needed.rows, c.v)));
    each.reduce(|a, b| (join(a.0, b.0), join(a.1, b.1)))
        .unwrap_or_default()
}
