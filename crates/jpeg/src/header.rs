//! The markers before the first scan: everything about an image that costs no decoding.

use crate::{Error, Region};

/// How the coefficients are coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// Baseline sequential (SOF0).
    Baseline,
    /// Extended sequential, Huffman (SOF1).
    Extended,
    /// Progressive, Huffman (SOF2).
    Progressive,
}

/// What the components mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColorModel {
    /// One component of luminance.
    Grey,
    /// Luminance and two of chrominance: nearly every colour JPEG.
    YCbCr,
    /// Red, green and blue as they are.
    Rgb,
    /// Four inks. Files by Adobe store them inverted.
    Cmyk,
    /// CMYK whose first three components were turned into YCbCr.
    Ycck,
}

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
    /// An Adobe marker is there: four-component files then store inverted inks.
    pub adobe: bool,
    /// Where the first scan's header begins, in bytes.
    pub(crate) scan: usize,
}

/// The frame header's facts, before the colour model is decided.
struct Frame {
    width: u32,
    height: u32,
    coding: Coding,
    ids: Vec<u8>,
    sampling: Vec<(u8, u8)>,
}

impl Header {
    /// Reads the markers up to the first scan.
    ///
    /// # Errors
    /// [`Error`] where the bytes are no JPEG, end early, contradict the format, or are of an unsupported kind.
    pub fn parse(bytes: &[u8]) -> Result<Header, Error> {
        if !bytes.starts_with(&[0xFF, 0xD8]) {
            return Err(Error::NotJpeg);
        }
        let (mut frame, mut orientation, mut restart_interval) = (None, 1, 0);
        let (mut adobe, mut jfif) = (None, false);
        let mut at = 2;
        loop {
            let marker = next_marker(bytes, &mut at)?;
            if matches!(marker, 0x01 | 0xD0..=0xD7) {
                continue; // markers without a segment
            }
            if marker == 0xD9 {
                return Err(Error::Corrupt("the image ends before its first scan".into()));
            }
            let start = at;
            let body = segment(bytes, &mut at)?;
            match marker {
                0xC0..=0xC2 => {
                    if frame.is_some() {
                        return Err(Error::Corrupt("two frame headers".into()));
                    }
                    frame = Some(parse_frame(marker, body)?);
                }
                0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF => {
                    return Err(Error::Unsupported(coding_name(marker).into()));
                }
                0xDD if body.len() >= 2 => restart_interval = u16::from_be_bytes([body[0], body[1]]),
                0xE0 if body.starts_with(b"JFIF\0") => jfif = true,
                0xE1 if body.starts_with(b"Exif\0\0") => {
                    orientation = exif_orientation(&body[6..]).unwrap_or(orientation);
                }
                0xEE if body.len() >= 12 && body.starts_with(b"Adobe") => adobe = Some(body[11]),
                0xDA => {
                    let frame = frame.ok_or_else(|| Error::Corrupt("a scan before the frame header".into()))?;
                    let color = color_model(&frame, adobe, jfif)?;
                    return Ok(Header {
                        width: frame.width,
                        height: frame.height,
                        coding: frame.coding,
                        color,
                        sampling: frame.sampling,
                        orientation,
                        restart_interval,
                        adobe: adobe.is_some(),
                        scan: start,
                    });
                }
                _ => {}
            }
        }
    }

    /// The region that is the whole image.
    pub fn full(&self) -> Region {
        Region { x: 0, y: 0, width: self.width, height: self.height }
    }
}

/// Moves past the next marker and returns its code.
fn next_marker(bytes: &[u8], at: &mut usize) -> Result<u8, Error> {
    // Encoders may pad before a marker, and some leave stray bytes; like libjpeg, look for the next FF.
    while let Some(&byte) = bytes.get(*at) {
        *at += 1;
        if byte == 0xFF {
            while bytes.get(*at) == Some(&0xFF) {
                *at += 1;
            }
            match bytes.get(*at) {
                Some(0) => *at += 1,
                Some(&code) => {
                    *at += 1;
                    return Ok(code);
                }
                None => break,
            }
        }
    }
    Err(Error::Truncated("before the first scan"))
}

/// The body of the segment at `at`, moving past it.
fn segment<'a>(bytes: &'a [u8], at: &mut usize) -> Result<&'a [u8], Error> {
    let short = Error::Truncated("inside a marker segment");
    let length = match bytes.get(*at..*at + 2) {
        Some(pair) => usize::from(u16::from_be_bytes([pair[0], pair[1]])),
        None => return Err(short),
    };
    if length < 2 {
        return Err(Error::Corrupt(format!("a marker segment of length {length}")));
    }
    let body = bytes.get(*at + 2..*at + length).ok_or(short)?;
    *at += length;
    Ok(body)
}

fn parse_frame(marker: u8, body: &[u8]) -> Result<Frame, Error> {
    let [precision, h1, h0, w1, w0, count, components @ ..] = body else {
        return Err(Error::Corrupt("a frame header that is too short".into()));
    };
    if *precision != 8 {
        return Err(Error::Unsupported(format!("{precision} bits per sample; only 8 are decoded")));
    }
    let (width, height) = (u32::from(u16::from_be_bytes([*w1, *w0])), u32::from(u16::from_be_bytes([*h1, *h0])));
    if height == 0 {
        return Err(Error::Unsupported("a height given after the first scan (DNL)".into()));
    }
    if width == 0 {
        return Err(Error::Corrupt("a width of 0".into()));
    }
    let count = usize::from(*count);
    if !matches!(count, 1 | 3 | 4) {
        return Err(Error::Unsupported(format!("{count} colour components; 1, 3 and 4 are decoded")));
    }
    if components.len() < 3 * count {
        return Err(Error::Corrupt("a frame header that is too short".into()));
    }
    let (mut ids, mut sampling) = (Vec::new(), Vec::new());
    for c in components.chunks_exact(3).take(count) {
        let (h, v) = (c[1] >> 4, c[1] & 15);
        if !(1..=4).contains(&h) || !(1..=4).contains(&v) {
            return Err(Error::Corrupt(format!("sampling factors {h}x{v}; 1 to 4 are legal")));
        }
        ids.push(c[0]);
        sampling.push((h, v));
    }
    let coding = [Coding::Baseline, Coding::Extended, Coding::Progressive][usize::from(marker - 0xC0)];
    Ok(Frame { width, height, coding, ids, sampling })
}

/// The rules of libjpeg's default_decompress_parms: Adobe's word first, then JFIF, then the component ids.
fn color_model(frame: &Frame, adobe: Option<u8>, jfif: bool) -> Result<ColorModel, Error> {
    Ok(match (frame.ids.len(), adobe) {
        (1, _) => ColorModel::Grey,
        (3, _) if jfif => ColorModel::YCbCr,
        (3, Some(0)) => ColorModel::Rgb,
        (3, Some(_)) => ColorModel::YCbCr,
        (3, None) if frame.ids == *b"RGB" => ColorModel::Rgb,
        (3, None) => ColorModel::YCbCr,
        (4, Some(2)) => ColorModel::Ycck,
        (4, _) => ColorModel::Cmyk,
        (n, _) => return Err(Error::Unsupported(format!("{n} colour components"))),
    })
}

fn coding_name(marker: u8) -> &'static str {
    match marker {
        0xC3 => "lossless coding (SOF3)",
        0xC9..=0xCB | 0xCD..=0xCF => "arithmetic coding",
        _ => "hierarchical coding",
    }
}

/// The orientation (tag 0x0112, 1..=8) in the first image directory of an EXIF block, which begins with its TIFF
/// header; none where it says nothing legal.
pub fn exif_orientation(tiff: &[u8]) -> Option<u8> {
    let little = match tiff.get(..4)? {
        [b'I', b'I', 42, 0] => true,
        [b'M', b'M', 0, 42] => false,
        _ => return None,
    };
    let u16_at = |at: usize| {
        let pair: [u8; 2] = tiff.get(at..at.checked_add(2)?)?.try_into().ok()?;
        Some(if little { u16::from_le_bytes(pair) } else { u16::from_be_bytes(pair) })
    };
    let quad: [u8; 4] = tiff.get(4..8)?.try_into().ok()?;
    let directory = if little { u32::from_le_bytes(quad) } else { u32::from_be_bytes(quad) } as usize;
    for entry in 0..usize::from(u16_at(directory)?) {
        let at = directory.checked_add(2 + 12 * entry)?;
        if u16_at(at)? == 0x0112 {
            return u8::try_from(u16_at(at.checked_add(8)?)?).ok().filter(|o| (1..=8).contains(o));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orientation_is_read_in_both_byte_orders_and_ignored_out_of_range() {
        let big = |value: u8| [b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0".as_slice(), &[value, 0, 0]].concat();
        let little = b"II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0".as_slice();
        assert_eq!(exif_orientation(&big(8)), Some(8));
        assert_eq!(exif_orientation(little), Some(6));
        assert_eq!(exif_orientation(&big(9)), None);
        assert_eq!(exif_orientation(&little[..20]), None);
    }

    #[test]
    fn headers_that_are_not_jpegs_say_so() {
        assert_eq!(Header::parse(b""), Err(Error::NotJpeg));
        assert_eq!(Header::parse(b"\x89PNG"), Err(Error::NotJpeg));
        assert_eq!(Header::parse(b"\xFF\xD8"), Err(Error::Truncated("before the first scan")));
        assert!(matches!(Header::parse(b"\xFF\xD8\xFF\xC9\0\x02"), Err(Error::Unsupported(_))));
    }
}
