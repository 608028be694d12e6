//! The segments of a file, one marker after the other.

use crate::Error;

pub(crate) const SOI: u8 = 0xD8;
pub(crate) const EOI: u8 = 0xD9;
pub(crate) const SOS: u8 = 0xDA;
pub(crate) const DQT: u8 = 0xDB;
pub(crate) const DRI: u8 = 0xDD;
pub(crate) const DHT: u8 = 0xC4;
pub(crate) const RST0: u8 = 0xD0;
pub(crate) const RST7: u8 = 0xD7;

/// One marker and what its segment holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    /// The marker's second byte.
    pub marker: u8,
    /// What follows the length; empty for markers without a segment.
    pub body: &'a [u8],
    /// Where the body begins in the file.
    pub at: usize,
}

/// Walks over the segments of `bytes`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segments<'a> {
    bytes: &'a [u8],
    /// The first byte not yet walked over.
    pub at: usize,
}

impl<'a> Segments<'a> {
    /// From the start-of-image marker.
    pub fn new(bytes: &'a [u8]) -> Result<Segments<'a>, Error> {
        match bytes.starts_with(&[0xFF, SOI]) {
            true => Ok(Segments { bytes, at: 2 }),
            false => Err(Error::NotJpeg),
        }
    }

    /// From byte `at` of the file.
    pub fn resume(bytes: &'a [u8], at: usize) -> Segments<'a> {
        Segments { bytes, at }
    }

    /// The next segment. Markers that stand alone are skipped, except for the end of the image.
    pub fn next(&mut self) -> Result<Segment<'a>, Error> {
        loop {
            match self.marker()? {
                0x01 | RST0..=RST7 | SOI => {}
                EOI => {
                    return Ok(Segment {
                        marker: EOI,
                        body: &[],
                        at: self.at,
                    });
                }
                marker => return self.body(marker),
            }
        }
    }

    /// Moves past the next marker. Encoders may pad before one and some leave stray bytes: like libjpeg, look for the
    /// next FF that is followed by a code.
    fn marker(&mut self) -> Result<u8, Error> {
        while let Some(&byte) = self.bytes.get(self.at) {
            self.at += 1;
            if byte == 0xFF {
                while self.bytes.get(self.at) == Some(&0xFF) {
                    self.at += 1;
                }
                match self.bytes.get(self.at) {
                    Some(0) => self.at += 1,
                    Some(&code) => {
                        self.at += 1;
                        return Ok(code);
                    }
                    None => break,
                }
            }
        }
        Err(Error::Truncated("before the end of the image"))
    }

    fn body(&mut self, marker: u8) -> Result<Segment<'a>, Error> {
        let short = Error::Truncated("inside a marker segment");
        let Some(&[high, low]) = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk()) else {
            return Err(short);
        };
        let length = usize::from(u16::from_be_bytes([high, low]));
        if length < 2 {
            return Err(Error::corrupt(
                self.at,
                format!("a marker segment of length {length}"),
            ));
        }
        let at = self.at + 2;
        let body = self.bytes.get(at..self.at + length).ok_or(short)?;
        self.at += length;
        Ok(Segment { marker, body, at })
    }
}
