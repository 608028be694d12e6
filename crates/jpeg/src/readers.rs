//! What other readers make of a file's segments: libjpeg, and Pillow's reader of headers.

use crate::bits::Leftover;
use crate::segments::{DHT, DQT, DRI, EOI, RST0, RST7, SOS, Segments};
use crate::{Coding, Error, Header};

const STRAY: &str = "bytes that belong to nothing, of which libjpeg warns";

/// Refuses a file whose segments other readers may refuse: an unusual one, or any after the last scan, which libjpeg reads with all
/// errors and the decoder here does not read.
pub(crate) fn refuse_unusual(bytes: &[u8], header: &Header) -> Result<(), Error> {
    let unusual = || Error::Unsupported("segments that libjpeg may refuse".into());
    let mut segments = Segments::resume(bytes, 2);
    // Whether a scan was there, whether there may be more of them, and whether anything came after the last one.
    let (mut scanned, mut several, mut behind) = (false, header.coding == Coding::Progressive, false);
    loop {
        let segment = segments.any()?;
        match segment.marker {
            // Within a scan: a byte of data, and restarts.
            0x00 if scanned => {}
            0x01 | RST0..=RST7 => {}
            EOI if scanned && !behind => return Ok(()),
            SOS if !scanned || several => {
                let count = segment.body.first().ok_or_else(unusual)?;
                several |= usize::from(*count) != header.sampling.len();
                (scanned, behind) = (true, false);
            }
            0xC0..=0xC2 | DHT | DQT..=DRI | 0xE0..=0xEF | 0xFE if !scanned || several => behind = scanned,
            _ => return Err(unusual()),
        }
    }
}

/// Refuses what libjpeg warns of, or what readers take for different things, in a file that is decoded here without an error.
pub(crate) fn refuse_warnings(bytes: &[u8], header: &Header, left: Leftover) -> Result<(), &'static str> {
    if left.bytes {
        return Err(STRAY);
    }
    let (progressive, components) = (header.coding == Coding::Progressive, header.sampling.len());
    // Whether a scan was there, whether anything came after it, and whether its coded data come next.
    let (mut scanned, mut behind, mut coded) = (false, false, false);
    let mut segments = Segments::resume(bytes, 2);
    loop {
        if !coded && bytes.get(segments.at) != Some(&0xFF) {
            return Err(STRAY);
        }
        let segment = segments.any().map_err(|_| STRAY)?;
        let body = segment.body;
        match segment.marker {
            0x00 | RST0..=RST7 if coded => continue,
            0x00 => return Err(STRAY),
            0x01 | RST0..=RST7 => {
                coded = false;
                continue;
            }
            EOI if behind => return Err("segments after the last scan"),
            EOI => return Ok(()),
            // libjpeg reads these with all its errors.
            marker if scanned && !matches!(marker, SOS | DHT) => {
                return Err("a segment between scans or after them that is no table of codes");
            }
            0xE0 if body.len() >= 14 && body.starts_with(b"JFIF\0") && body[5] != 1 => {
                return Err("another version of JFIF, of which libjpeg warns");
            }
            0xEE if body.len() >= 12 && body.starts_with(b"Adobe") && body[11] > 1 && components == 3 => {
                return Err("an unknown Adobe transform, of which libjpeg warns");
            }
            SOS => {
                let count = usize::from(*body.first().ok_or(STRAY)?);
                if !progressive && body.get(1 + 2 * count..) != Some(&[0, 63, 0]) {
                    return Err("a scan with parameters of another coding, of which libjpeg warns");
                }
                // Where there is one scan, the decoder has found its end.
                coded = progressive || count != components;
                if !coded {
                    segments.at = left.end;
                }
                (scanned, behind) = (true, false);
                continue;
            }
            _ => {}
        }
        (behind, coded) = (scanned, false);
    }
}

impl Header {
    /// What Pillow's reader of a header has to see of one, and the segments with quantisation tables that it need not: it takes
    /// Pillow longer to read these and the Huffman tables than all the rest.
    ///
    /// None where a header is incomplete or unusual, so that Pillow had better read all of it: it has other segments than those of
    /// applications, comments, tables, restart intervals, one frame and the first scan; or a segment of an application follows tables,
    /// whose absence would shift the offsets in it.
    pub fn shortened(head: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut segments = Segments::new(head).ok()?;
        let (mut short, mut tables) = (head[..2].to_vec(), Vec::new());
        let (mut left_out, mut framed) = (false, false);
        loop {
            let begin = segments.at;
            let segment = segments.adjacent()?;
            let whole = &head[begin..segments.at];
            match segment.marker {
                0xE0..=0xEF | 0xFE if !left_out => short.extend_from_slice(whole),
                0xC0..=0xC2 if !framed => {
                    framed = true;
                    short.extend_from_slice(whole);
                }
                DQT if whole_tables(segment.body) => {
                    left_out = true;
                    tables.extend_from_slice(whole);
                }
                DHT | DRI => left_out = true,
                SOS if framed => {
                    short.extend_from_slice(whole);
                    return Some((short, tables));
                }
                _ => return None,
            }
        }
    }
}

/// Whether a segment has quantisation tables and nothing else.
fn whole_tables(mut body: &[u8]) -> bool {
    while let Some((&kind, rest)) = body.split_first() {
        let bytes = if kind >> 4 == 0 { 64 } else { 128 };
        let Some((_, after)) = rest.split_at_checked(bytes) else {
            return false;
        };
        body = after;
    }
    true
}
