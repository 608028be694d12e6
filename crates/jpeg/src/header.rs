//! The markers before the first scan: everything about an image that costs no decoding.

use crate::frame::Frame;
use crate::markers::{DHT, DQT, DRI, EOI, SOS, Segment, Segments};
use crate::{Coding, ColorModel, Error, Region, exif_orientation};

/// What a JPEG says of itself before its first scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Width in pixels, at least 1.
    pub width: u32,
    /// Height in pixels, at least 1.
    pub height: u32,
    /// How the coefficients are coded.
    pub coding: Coding,
    /// What the components mean.
    pub color: ColorModel,
    /// Horizontal and vertical sampling factors (1..=4) of each component.
    pub sampling: Vec<(u8, u8)>,
    /// EXIF orientation, 1..=8; 1 (upright) where the file says nothing.
    pub orientation: u8,
    /// MCUs between restart markers; 0 for none.
    pub restart_interval: u16,
    /// An Adobe marker is there.
    pub adobe: bool,
}

impl Header {
    /// Reads the markers up to the first scan.
    ///
    /// # Errors
    /// [`Error`] where the bytes are no JPEG, end early, contradict the format, or are of an unsupported
    /// kind.
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        let head = Head::parse(bytes, |_| Ok(()))?;
        Ok(Header {
            width: head.frame.width as u32,
            height: head.frame.height as u32,
            coding: head.frame.coding,
            color: head.color,
            sampling: head.frame.components().iter().map(|c| c.sampling).collect(),
            orientation: head.orientation,
            restart_interval: head.restart_interval,
            adobe: head.adobe,
        })
    }

    /// The region that is the whole image.
    pub fn full(&self) -> Region {
        Region {
            x: 0,
            y: 0,
            width: self.width,
            height: self.height,
        }
    }
}

/// What decoding needs of the same markers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a> {
    pub frame: Frame,
    pub color: ColorModel,
    pub orientation: u8,
    pub restart_interval: u16,
    pub adobe: bool,
    /// The header of the first scan.
    pub scan: Segment<'a>,
    /// Where the first scan's coded data begins.
    pub data: usize,
}

impl<'a> Head<'a> {
    /// Reads up to the first scan and hands segments with tables to `table`.
    pub fn parse(
        bytes: &'a [u8],
        mut table: impl FnMut(Segment<'a>) -> Result<(), Error>,
    ) -> Result<Head<'a>, Error> {
        let mut segments = Segments::new(bytes)?;
        let (mut frame, mut orientation, mut restart_interval) = (None, 1, 0);
        let (mut adobe, mut jfif) = (None, false);
        loop {
            let segment = segments.next()?;
            let body = segment.body;
            match segment.marker {
                0xC0..=0xC2 => {
                    if frame.is_some() {
                        return Err(Error::corrupt(segment.at, "two frame headers"));
                    }
                    frame = Some(Frame::parse(segment)?);
                }
                0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                    return Err(Error::Unsupported(coding_name(segment.marker).into()));
                }
                DQT | DHT => table(segment)?,
                DRI => restart_interval = parse_restart_interval(segment)?,
                0xE0 if body.len() >= 14 && body.starts_with(b"JFIF\0") => jfif = true,
                0xE1 if body.starts_with(b"Exif\0\0") => {
                    orientation = exif_orientation(&body[6..]).unwrap_or(orientation);
                }
                0xEE if body.len() >= 12 && body.starts_with(b"Adobe") => adobe = Some(body[11]),
                EOI => return Err(Error::corrupt(segment.at, "the image ends before its first scan")),
                SOS => {
                    let Some(frame) = frame else {
                        return Err(Error::corrupt(segment.at, "a scan before the frame header"));
                    };
                    let color = frame.color_model(adobe, jfif);
                    let (adobe, scan, data) = (adobe.is_some(), segment, segments.at);
                    return Ok(Head {
                        frame,
                        color,
                        orientation,
                        restart_interval,
                        adobe,
                        scan,
                        data,
                    });
                }
                _ => {}
            }
        }
    }
}

/// MCUs between restart markers.
pub(crate) fn parse_restart_interval(segment: Segment<'_>) -> Result<u16, Error> {
    match segment.body {
        [high, low] => Ok(u16::from_be_bytes([*high, *low])),
        _ => Err(Error::corrupt(
            segment.at,
            "a restart interval that is not two bytes",
        )),
    }
}

fn coding_name(marker: u8) -> &'static str {
    match marker {
        0xC3 => "lossless coding (SOF3)",
        0xC9..=0xCB | 0xCD..=0xCF => "arithmetic coding",
        _ => "hierarchical coding",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_are_not_jpegs_say_so() {
        assert_eq!(Header::parse(b""), Err(Error::NotJpeg));
        assert_eq!(Header::parse(b"\x89PNG"), Err(Error::NotJpeg));
        assert_eq!(
            Header::parse(b"\xFF\xD8"),
            Err(Error::Truncated("before the end of the image"))
        );
        assert!(matches!(
            Header::parse(b"\xFF\xD8\xFF\xC9\0\x02"),
            Err(Error::Unsupported(_))
        ));
    }
}
