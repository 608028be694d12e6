//! The bytes of a packed image around its groups.

use crate::Error;
use crate::frame::Frame;
use std::ops::Range;

/// What packed images begin with; the last byte is the version.
pub(super) const MAGIC: [u8; 4] = *b"SKP1";
/// The bytes before the JPEG segments.
pub(super) const FIXED: usize = 12;
/// MCU rows of a group, at most.
pub(super) const MOST_ROWS: usize = 255;

/// Whether bytes begin as a packed image does, of this version or another.
pub fn is_packed(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC[..3])
}

/// The JPEG segments in `bytes`: of a packed image the ones that it holds, else all bytes.
pub(crate) fn segments(bytes: &[u8]) -> Result<&[u8], Error> {
    match is_packed(bytes) {
        true => Packed::parse(bytes).map(|packed| packed.head),
        false => Ok(bytes),
    }
}

/// A packed image's parts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packed<'a> {
    bytes: &'a [u8],
    /// The tables that it was written with.
    pub tables: u32,
    /// The JPEG's segments up to the coded data.
    pub head: &'a [u8],
}

impl<'a> Packed<'a> {
    /// Finds the parts of what begins as a packed image does.
    pub fn parse(bytes: &'a [u8]) -> Result<Packed<'a>, Error> {
        if !bytes.starts_with(&MAGIC) && bytes.len() >= MAGIC.len() {
            return Err(Error::Unsupported(format!(
                "a packed image of version {:?}; read it with a newer program",
                char::from(bytes[3])
            )));
        }
        let number = |at: usize| bytes.get(at..).and_then(|rest| rest.first_chunk());
        let (Some(&tables), Some(&length)) = (number(4), number(8)) else {
            return Err(Error::Truncated("within the beginning of a packed image"));
        };
        let head = bytes[FIXED..].get(..u32::from_le_bytes(length) as usize);
        Ok(Packed {
            bytes,
            tables: u32::from_le_bytes(tables),
            head: head.ok_or(Error::Truncated("within the segments of a packed image"))?,
        })
    }

    /// MCU rows of a group.
    pub fn group_rows(&self) -> Result<u32, Error> {
        let at = FIXED + self.head.len();
        match self.bytes.get(at) {
            Some(0) => Err(Error::corrupt(at, "groups of no rows")),
            Some(&rows) => Ok(rows.into()),
            None => Err(Error::Truncated("before a packed image's groups")),
        }
    }

    /// Reads where the groups are: of each its bytes in the file, in `places`. Returns MCU rows a group.
    pub fn groups(&self, frame: &Frame, places: &mut Vec<Range<usize>>) -> Result<usize, Error> {
        let mut at = FIXED + self.head.len();
        let cut = Error::Truncated("within the lengths of a packed image's groups");
        let rows = self.group_rows()? as usize;
        at += 1;
        places.clear();
        let mut sum = 0usize;
        for _ in 0..frame.mcus_high.div_ceil(rows) {
            let (length, next) = read_length(self.bytes, at).ok_or_else(|| cut.clone())?;
            places.push(sum..sum + length as usize);
            (sum, at) = (sum + length as usize, next);
        }
        if at + sum != self.bytes.len() {
            return Err(Error::corrupt(
                at,
                format!(
                    "{} bytes of groups where their lengths add up to {sum}",
                    self.bytes.len() - at
                ),
            ));
        }
        for place in places.iter_mut() {
            *place = place.start + at..place.end + at;
        }
        Ok(rows)
    }
}

/// Writes a length: seven bits a byte from the lowest on, the eighth bit says that more follow (LEB128).
pub(super) fn write_length(length: usize, into: &mut Vec<u8>) {
    let mut left = length;
    while left >= 0x80 {
        into.push(left as u8 | 0x80);
        left >>= 7;
    }
    into.push(left as u8);
}

/// Reads a length of at most 28 bits, and where the bytes continue.
pub(super) fn read_length(bytes: &[u8], mut at: usize) -> Option<(u32, usize)> {
    let mut length = 0;
    for shift in (0..28).step_by(7) {
        let &byte = bytes.get(at)?;
        at += 1;
        length |= u32::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return Some((length, at));
        }
    }
    None
}
