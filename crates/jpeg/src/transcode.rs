//! From any JPEG to one whose rows can be read alone, with the same coefficients.
//!
//! Decoding needs a file from its beginning, since Huffman codes have no other place to start at. A restart
//! marker is one: it stands on a byte, and nothing before it is needed to read on. So the coefficients of the
//! whole image are read (`planes`) and written again as one sequential scan with a restart marker behind
//! every MCU row, and the places of the rows are handed out with the file. The Huffman codes are made for the
//! image (`encode`), which pays for the markers and for more: most files come out smaller than they were.
//!
//! Pixels stay what they were, bit for bit: they follow from the coefficients, the quantisation steps, the
//! sampling and the colour model, and these stay. Blocks that only fill up MCUs mean nothing and are written
//! as cheaply as can be, as in libjpeg.

use crate::block::ZIGZAG;
use crate::encode::{BitWriter, Counts, OptimalCode, Writing, symbols};
use crate::frame::Frame;
use crate::header::Head;
use crate::markers::{DHT, DQT, DRI, EOI, RST0, SOI, SOS, Segments};
use crate::planes::{Coefficients, Planes};
use crate::scan::MOST_PLACES;
use crate::{ColorModel, Error};

/// What happens to segments that carry no pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metadata {
    /// Application segments and comments before the first scan stay as they are.
    Keep,
    /// They go, except for what decides how the pixels look: the colour model, and an EXIF orientation that is
    /// not upright. A colour profile goes.
    Drop,
}

/// How [`transcode`] writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TranscodeOptions {
    /// What happens to segments that carry no pixels.
    pub metadata: Metadata,
}

/// What [`transcode`] wrote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcoded {
    /// A complete JPEG file of one sequential scan whose restart interval is one row of MCUs.
    pub bytes: Vec<u8>,
    /// Where in `bytes` the coded data of each MCU row begins; a row's data ends, restart marker included,
    /// where the next one's begins. The last entry is where the last row's data ends.
    pub rows: Vec<u32>,
}

/// Writes the image of `bytes` as one sequential scan with a restart marker behind every MCU row and Huffman
/// codes made for it. The pixels are the same, bit for bit.
///
/// The result is baseline, or extended sequential where quantisation steps need 16 bits.
///
/// # Errors
/// [`Error`] where the bytes are broken or unsupported, hold more than 178,956,970 pixels, have sampling
/// factors that one scan cannot hold (more than ten blocks an MCU), or coefficients larger than 8-bit samples
/// can give.
pub fn transcode(bytes: &[u8], options: &TranscodeOptions) -> Result<Transcoded, Error> {
    crate::Decoder::new().transcode(bytes, options)
}

/// Writes what `planes` holds of the file `bytes`.
pub(crate) fn write(
    bytes: &[u8],
    head: &Head<'_>,
    planes: &mut Planes,
    options: &TranscodeOptions,
) -> Result<Transcoded, Error> {
    let frame = &head.frame;
    let blocks: usize = frame.components().iter().map(|c| c.h * c.v).sum();
    if blocks > MOST_PLACES {
        return Err(Error::Unsupported(format!(
            "an MCU of {blocks} blocks; one scan holds at most {MOST_PLACES}"
        )));
    }
    planes.mark_nonzero(frame);
    let mut counts = [Counts::ZERO, Counts::ZERO];
    for row in 0..frame.mcus_high {
        mcu_row(frame, planes, row, |component, block, last_dc| {
            symbols(
                &block.values,
                block.nonzero,
                last_dc,
                &mut counts[table_of(head.color, component)],
            );
        });
    }
    if !counts.iter().all(Counts::codable) {
        return Err(Error::Unsupported(
            "coefficients larger than 8-bit samples can give".into(),
        ));
    }
    let codes = counts.map(|counts| Codes {
        dc: OptimalCode::of(&counts.dc),
        ac: OptimalCode::of(&counts.ac),
    });
    let mut segments = Vec::with_capacity(bytes.len() + bytes.len() / 8 + 1024);
    write_segments(&mut segments, bytes, head, planes, &codes, options)?;
    write_scan(segments, head, planes, &codes)
}

/// The codes that a scan's components share.
struct Codes {
    dc: OptimalCode,
    ac: OptimalCode,
}

/// Which codes a component uses: those of chrominance are its own, as in libjpeg.
fn table_of(color: ColorModel, component: usize) -> usize {
    match color {
        ColorModel::YCbCr | ColorModel::Ycck => usize::from(matches!(component, 1 | 2)),
        ColorModel::Grey | ColorModel::Rgb | ColorModel::Cmyk => 0,
    }
}

/// Calls `each` for every block of an MCU row in the order of coding, with its component and that component's
/// last DC coefficient.
#[inline(always)]
fn mcu_row(frame: &Frame, planes: &Planes, row: usize, mut each: impl FnMut(usize, &Coefficients, &mut i32)) {
    let mut last_dc = [0; 4];
    for column in 0..frame.mcus_wide {
        for ((i, component), last_dc) in frame.components().iter().enumerate().zip(&mut last_dc) {
            for y in row * component.v..(row + 1) * component.v {
                for x in column * component.h..(column + 1) * component.h {
                    if x < component.blocks_wide && y < component.blocks_high {
                        each(i, planes.block(i, x, y), last_dc);
                    } else {
                        each(i, &Coefficients::flat(*last_dc as i16), last_dc);
                    }
                }
            }
        }
    }
}

/// Writes everything before the coded data.
fn write_segments(
    out: &mut Vec<u8>,
    bytes: &[u8],
    head: &Head<'_>,
    planes: &Planes,
    codes: &[Codes; 2],
    options: &TranscodeOptions,
) -> Result<(), Error> {
    out.extend([0xFF, SOI]);
    match options.metadata {
        Metadata::Keep => copy_metadata(out, bytes)?,
        Metadata::Drop => write_metadata(out, head),
    }
    let frame = &head.frame;
    let tables = quantisation_tables(frame, planes);
    let wide = tables.list.iter().flatten().any(|&step| step > 255);
    segment(out, DQT, &tables.body());
    let sequential = if wide { 0xC1 } else { 0xC0 };
    let mut body = vec![8];
    body.extend((frame.height as u16).to_be_bytes());
    body.extend((frame.width as u16).to_be_bytes());
    body.push(frame.components().len() as u8);
    let names = names(head, options.metadata);
    for ((component, name), table) in frame.components().iter().zip(names).zip(tables.used) {
        body.extend([name, (component.h << 4 | component.v) as u8, table]);
    }
    segment(out, sequential, &body);
    let used = (0..frame.components().len())
        .map(|i| table_of(head.color, i))
        .max()
        .unwrap_or(0);
    let mut body = Vec::new();
    for (i, codes) in (0u8..).zip(&codes[..=used]) {
        for (class, code) in [(0x00, &codes.dc), (0x10, &codes.ac)] {
            body.push(class | i);
            body.extend(code.lengths);
            body.extend(&code.symbols);
        }
    }
    segment(out, DHT, &body);
    segment(out, DRI, &(frame.mcus_wide as u16).to_be_bytes());
    let mut body = vec![frame.components().len() as u8];
    for (i, name) in names.into_iter().enumerate().take(frame.components().len()) {
        let table = table_of(head.color, i) as u8;
        body.extend([name, table << 4 | table]);
    }
    body.extend([0, 63, 0]);
    segment(out, SOS, &body);
    Ok(())
}

fn segment(out: &mut Vec<u8>, marker: u8, body: &[u8]) {
    out.extend([0xFF, marker]);
    out.extend((body.len() as u16 + 2).to_be_bytes());
    out.extend(body);
}

/// Copies application segments and comments that stand before the first scan.
fn copy_metadata(out: &mut Vec<u8>, bytes: &[u8]) -> Result<(), Error> {
    let mut segments = Segments::new(bytes)?;
    loop {
        let found = segments.next()?;
        match found.marker {
            0xE0..=0xEF | 0xFE => segment(out, found.marker, found.body),
            SOS | EOI => return Ok(()),
            _ => {}
        }
    }
}

/// Writes the markers that the look of the pixels depends on.
fn write_metadata(out: &mut Vec<u8>, head: &Head<'_>) {
    if head.orientation != 1 {
        // A directory of one entry: tag 0x0112, one 16-bit number.
        let mut body = *b"Exif\0\0MM\0\x2A\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\0\0\0\0\0\0\0";
        body[25] = head.orientation;
        segment(out, 0xE1, &body);
    }
    // Grey and YCbCr are what a file without any marker is taken for.
    let transform = match head.color {
        ColorModel::Grey | ColorModel::YCbCr => return,
        ColorModel::Cmyk if !head.adobe => return,
        ColorModel::Rgb | ColorModel::Cmyk => 0,
        ColorModel::Ycck => 2,
    };
    segment(
        out,
        0xEE,
        &[b"Adobe\0\x64\0\0\0\0".as_slice(), &[transform]].concat(),
    );
}

/// What the components are called. Without markers a name can mean a colour, so that it stays where they do.
fn names(head: &Head<'_>, metadata: Metadata) -> [u8; 4] {
    match metadata {
        Metadata::Keep => std::array::from_fn(|i| head.frame.components().get(i).map_or(0, |c| c.id)),
        Metadata::Drop => [1, 2, 3, 4],
    }
}

/// The quantisation tables of all components, each once.
#[derive(Default)]
struct QuantisationTables {
    list: Vec<[u16; 64]>,
    /// Which of them each component uses.
    used: [u8; 4],
}

fn quantisation_tables(frame: &Frame, planes: &Planes) -> QuantisationTables {
    let mut tables = QuantisationTables::default();
    for (i, _) in frame.components().iter().enumerate() {
        let steps = planes.steps(i);
        let known = tables.list.iter().position(|table| *table == steps);
        tables.used[i] = known.unwrap_or(tables.list.len()) as u8;
        if known.is_none() {
            tables.list.push(steps);
        }
    }
    tables
}

impl QuantisationTables {
    /// The body of their segment.
    fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        for (i, steps) in (0u8..).zip(&self.list) {
            let wide = steps.iter().any(|&step| step > 255);
            body.push(u8::from(wide) << 4 | i);
            for place in ZIGZAG {
                let step = steps[usize::from(place)];
                match wide {
                    true => body.extend(step.to_be_bytes()),
                    false => body.push(step as u8),
                }
            }
        }
        body
    }
}

/// Writes the coded data and the end of the image.
fn write_scan(
    segments: Vec<u8>,
    head: &Head<'_>,
    planes: &Planes,
    codes: &[Codes; 2],
) -> Result<Transcoded, Error> {
    let too_long = || Error::Unsupported("an image of more than 4 GB".into());
    let frame = &head.frame;
    let mut rows = Vec::with_capacity(frame.mcus_high + 1);
    let mut writer = BitWriter::new(segments);
    for row in 0..frame.mcus_high {
        rows.push(u32::try_from(writer.out.len()).map_err(|_| too_long())?);
        mcu_row(frame, planes, row, |component, block, last_dc| {
            let Codes { dc, ac } = &codes[table_of(head.color, component)];
            symbols(
                &block.values,
                block.nonzero,
                last_dc,
                &mut Writing {
                    writer: &mut writer,
                    dc,
                    ac,
                },
            );
        });
        writer.finish();
        if row + 1 < frame.mcus_high {
            writer.out.extend([0xFF, RST0 + (row % 8) as u8]);
        }
    }
    let mut bytes = writer.out;
    rows.push(u32::try_from(bytes.len()).map_err(|_| too_long())?);
    bytes.extend([0xFF, EOI]);
    Ok(Transcoded { bytes, rows })
}
