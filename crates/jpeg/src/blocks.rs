//! Coefficients of a region, packed: what a transform elsewhere needs of a file, and nothing that is zero.

use crate::ColorModel;
use crate::grid::{Grid, Upsampling};
use crate::region::Needed;
use std::ops::Range;

/// The blocks that a region depends on, borrowed from the [`Decoder`](crate::Decoder) that read them.
#[derive(Debug, Clone, Copy)]
pub struct Blocks<'a> {
    /// What the components mean.
    pub color: ColorModel,
    pub(crate) components: [ComponentBlocks<'a>; 4],
    pub(crate) count: usize,
}

impl<'a> Blocks<'a> {
    /// The components, in their order: 1, 3 or 4.
    pub fn components(&self) -> &[ComponentBlocks<'a>] {
        &self.components[..self.count]
    }
}

/// The blocks of one component.
#[derive(Debug, Clone, Copy)]
pub struct ComponentBlocks<'a> {
    /// Where the blocks and the samples that become of them lie.
    pub layout: PlaneLayout,
    /// One for each block, row by row: `layout.blocks_wide` times `layout.blocks_high`.
    pub heads: &'a [BlockHead],
    /// The coefficients that are not zero.
    pub values: &'a [i16],
    /// The quantisation step of each coefficient, in rows (not in coding order), wrapped to 16 bits as
    /// libjpeg-turbo's vector code wraps it. Their products with coefficients wrap too.
    pub steps: [i16; 64],
}

/// Which coefficients of a block are not zero, and where they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockHead {
    /// Bit `k` stands for the coefficient of place `k` in coding order (zigzag).
    pub mask: u64,
    /// Where the block's values begin among those of its component; they stand in coding order.
    pub first: u32,
}

/// How a component's blocks become a plane of samples, and how that lies in the image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlaneLayout {
    /// Blocks a row, and rows of blocks.
    pub blocks_wide: u32,
    /// See there.
    pub blocks_high: u32,
    /// Samples along a side of a block: 8, 4, 2 or 1.
    pub side: u32,
    /// The first sample's column and row in the component's grid at the scale asked for.
    pub x: u32,
    /// See there.
    pub y: u32,
    /// Samples a row, at most `side * blocks_wide`: all that pixels of the region are made from, with what
    /// libjpeg's upsampling looks at beside them, and at most all that the component has.
    pub width: u32,
    /// Rows of samples, likewise.
    pub height: u32,
    /// Full-size pixels along a sample, across and down.
    pub pixels: (u32, u32),
    /// Pixels of the scaled image along a sample, across and down.
    pub factors: (u32, u32),
    /// How libjpeg brings the samples to the scaled image's resolution.
    pub upsampling: Upsampling,
}

impl PlaneLayout {
    pub(crate) fn of(grid: &Grid, needed: &Needed, factor: usize) -> PlaneLayout {
        let samples =
            |blocks: &Range<usize>, size: usize| grid.side * blocks.start..(grid.side * blocks.end).min(size);
        let (columns, rows) = (
            samples(&needed.columns, grid.width),
            samples(&needed.rows, grid.height),
        );
        PlaneLayout {
            blocks_wide: needed.columns.len() as u32,
            blocks_high: needed.rows.len() as u32,
            side: grid.side as u32,
            x: columns.start as u32,
            y: rows.start as u32,
            width: columns.len() as u32,
            height: rows.len() as u32,
            pixels: ((factor * grid.across) as u32, (factor * grid.down) as u32),
            factors: (grid.across as u32, grid.down as u32),
            upsampling: grid.upsampling,
        }
    }
}
