//! What is decoded: the bytes of a file, and where its rows are if that is known.
//!
//! Where every MCU row ends with a restart marker (as [`transcode`](crate::transcode) writes files), a row can
//! be read without those above it. With a [`RowIndex`] decoding begins at the region's first row, and neither
//! the rows above nor those below have to be there: the segments before the coded data and the rows of the
//! region, one behind the other, are enough.

use crate::frame::Frame;
use crate::grid::Grid;
use crate::markers::RST0;
use crate::region::{Needed, needed_mcus};
use crate::{Error, Header, Region, Scale};
use std::ops::Range;

/// Where rows of MCUs are in the bytes.
///
/// What it says is checked against the bytes: a row must begin where the segments end or behind the restart
/// marker of the row above, end with its own, and hold no other. Restart markers count to eight, so that only
/// an index that is wrong by a multiple of eight rows goes unnoticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowIndex<'a> {
    /// The row of MCUs that the first entry is about.
    pub first: u32,
    /// From `offsets[i]` to `offsets[i + 1]` the bytes hold the coded data of MCU row `first + i`, restart marker
    /// included. Behind the image's last row there is none.
    pub offsets: &'a [u32],
}

/// The bytes of a JPEG, and where its rows are if that is known.
///
/// With a row index the bytes may be the file's segments up to the coded data, followed by only those rows
/// that the region needs ([`Header::mcu_rows`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input<'a> {
    /// The file, or what is needed of it.
    pub bytes: &'a [u8],
    /// Where its rows are. The file must have one sequential scan whose restart interval is one row of MCUs.
    pub rows: Option<RowIndex<'a>>,
}

impl<'a> From<&'a [u8]> for Input<'a> {
    fn from(bytes: &'a [u8]) -> Input<'a> {
        Input { bytes, rows: None }
    }
}

impl<'a> From<&'a Vec<u8>> for Input<'a> {
    fn from(bytes: &'a Vec<u8>) -> Input<'a> {
        Input { bytes, rows: None }
    }
}

impl RowIndex<'_> {
    /// Refuses an index of a file that cannot have one.
    pub(crate) fn check(&self, frame: &Frame, one_pass: bool, restart_interval: u16) -> Result<(), Error> {
        if !one_pass {
            return Err(Error::RowIndex(
                "of a file that is not one sequential scan".into(),
            ));
        }
        match usize::from(restart_interval) == frame.mcus_wide {
            true => Ok(()),
            false => Err(Error::RowIndex(format!(
                "of a file with {restart_interval} MCUs between restart markers, and {} a row",
                frame.mcus_wide
            ))),
        }
    }

    /// Where in `bytes` the coded data of MCU row `row` is; coded data as a whole begins at byte `data`.
    pub(crate) fn find(&self, bytes: &[u8], data: usize, row: usize) -> Result<Range<usize>, Error> {
        let entry = row.checked_sub(self.first as usize);
        let entry = entry.and_then(|entry| self.offsets.get(entry..)?.first_chunk());
        let Some(&[from, to]) = entry else {
            return Err(Error::RowIndex(format!("without an entry for row {row}")));
        };
        let (from, to) = (from as usize, to as usize);
        let wrong = |what: &str| Error::RowIndex(format!("that puts row {row} at {from}..{to}, {what}"));
        if from < data || to < from || to > bytes.len() {
            return Err(wrong("which is not within the coded data"));
        }
        let above = [0xFF, RST0 + (row + 7) as u8 % 8];
        match from == data || (row > 0 && bytes[data..from].ends_with(&above)) {
            true => Ok(from..to),
            false => Err(wrong("where it does not begin")),
        }
    }
}

impl Header {
    /// The rows of MCUs that decoding `region`, which lies within the image, at `scale` reads by a
    /// [`RowIndex`]. A row is as high as eight times the largest vertical sampling factor; of a grey image,
    /// eight pixels.
    pub fn mcu_rows(&self, region: &Region, scale: Scale) -> Range<u32> {
        self.mcus(region, scale).1
    }

    /// The columns and rows of MCUs that hold any block which `region`, within the image, is made from at `scale`.
    pub fn mcus(&self, region: &Region, scale: Scale) -> (Range<u32>, Range<u32>) {
        let frame = Frame::of(self);
        let region = region.scaled(scale);
        let grids = frame.components().iter().map(|c| Grid::of(c, &frame, scale));
        let needed: Result<Vec<Needed>, Error> = grids.map(|grid| Ok(Needed::of(&region, &grid?))).collect();
        let (columns, rows) = match needed {
            Ok(needed) => needed_mcus(&frame, &needed),
            Err(_) => (0..frame.mcus_wide, 0..frame.mcus_high), // no decode comes to read them
        };
        let narrow = |range: Range<usize>| range.start as u32..range.end as u32;
        (narrow(columns), narrow(rows))
    }

    /// Width and height of an MCU in pixels: eight times the largest sampling factors; of a grey image, eight.
    pub fn mcu_size(&self) -> (u32, u32) {
        let frame = Frame::of(self);
        (8 * frame.h_max as u32, 8 * frame.v_max as u32)
    }
}
