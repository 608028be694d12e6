//! An image in memory.

/// Red, green and blue bytes, interleaved, row by row (height, width, 3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RgbImage {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// `3 * width * height` bytes.
    pub data: Vec<u8>,
}

impl RgbImage {
    /// An image of one colour.
    pub(crate) fn filled(width: u32, height: u32, rgb: [u8; 3]) -> RgbImage {
        RgbImage {
            width,
            height,
            data: rgb.repeat(width as usize * height as usize),
        }
    }

    /// The pixels, row by row.
    pub(crate) fn pixels(&self) -> &[[u8; 3]] {
        self.data.as_chunks().0
    }

    /// The pixels, row by row.
    pub(crate) fn pixels_mut(&mut self) -> &mut [[u8; 3]] {
        self.data.as_chunks_mut().0
    }

    /// One row.
    pub(crate) fn row(&self, y: usize) -> &[[u8; 3]] {
        let width = self.width as usize;
        &self.pixels()[y * width..(y + 1) * width]
    }
}
