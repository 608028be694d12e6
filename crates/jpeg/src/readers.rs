//! What other readers make of a file's segments: libjpeg, and Pillow's reader of headers.

use crate::bits::Leftover;
use crate::segments::{DHT, DQT, DRI, EOI, RST0, RST7, SOS, Segments};
use crate::{Coding, Header};

const STRAY: &str = "bytes that belong to nothing, of which libjpeg warns";

/// Where the first scan's segment has its body. `None` if a segment before it, or between scans, is one that libjpeg refuses; the
/// decoder here skips such segments.
pub(crate) fn first_scan(bytes: &[u8], header: &Header) -> Option<usize> {
    let mut segments = Segments::resume(bytes, 2);
    let (mut first, mut several) = (None, header.coding == Coding::Progressive);
    loop {
        let segment = segments.any().ok()?;
        match segment.marker {
            // Within a scan: a byte of data, and restarts.
            0x00 if first.is_some() => {}
            0x01 | RST0..=RST7 => {}
            EOI if first.is_some() => return first,
            SOS => {
                first = first.or(Some(segment.at));
                several |= usize::from(*segment.body.first()?) != header.sampling.len();
                if !several {
                    return first;
                }
            }
            0xC0..=0xC2 | DHT | DQT..=DRI | 0xE0..=0xEF | 0xFE => {}
            _ => return None,
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
