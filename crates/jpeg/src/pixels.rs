//! What decoding gives: pixels in rows.

use crate::Error;

/// How a pixel lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Three bytes: red, green, blue.
    Rgb,
    /// Four bytes: red, green, blue and one without meaning, so that a pixel is one 32-bit word.
    Rgbx,
}

impl Layout {
    /// Bytes of one pixel.
    pub fn bytes(self) -> usize {
        match self {
            Layout::Rgb => 3,
            Layout::Rgbx => 4,
        }
    }
}

/// Decoded rows of a region, borrowed from the [`Decoder`](crate::Decoder) that made them.
#[derive(Debug, Clone, Copy)]
pub struct Pixels<'a> {
    /// From the first pixel of the region to the last one.
    pub data: &'a [u8],
    /// Bytes from one row's beginning to the next one's.
    pub stride: usize,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// How a pixel lies in memory.
    pub layout: Layout,
}

/// What there is of a region of a file that may be broken.
#[derive(Debug)]
pub struct Partial<'a> {
    /// The region's rows that were decoded before the error, from its top: all where there is none, and
    /// possibly not one. They are those of the unbroken file, except that damage which happens to be legal
    /// code goes unnoticed for a while.
    pub pixels: Pixels<'a>,
    /// Why there are no more.
    pub error: Option<Error>,
}

impl<'a> Pixels<'a> {
    /// Row `y`, counted from the region's top.
    ///
    /// # Panics
    /// Where `y` is not below the height.
    pub fn row(&self, y: u32) -> &'a [u8] {
        let start = y as usize * self.stride;
        &self.data[start..start + self.width as usize * self.layout.bytes()]
    }
}
