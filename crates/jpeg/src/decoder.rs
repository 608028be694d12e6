//! The decoder: one thread's buffers, and the way an image takes through them.

use crate::Error;
use crate::bits::{Leftover, Unstuffed};
use crate::blocks::Blocks;
use crate::coded::{self, Coded, CodedSegment};
use crate::coefficients::Coefficients;
use crate::frame::{Coding, Frame};
use crate::header::{Head, Header};
use crate::input::Input;
use crate::kernels::Isa;
use crate::packed::{self, Packed, PackedGroups, Packer};
use crate::pixels::{Layout, Partial, Pixels};
use crate::planar;
use crate::planes::CoefficientPlanes;
use crate::readers;
use crate::region::Region;
use crate::scale::Scale;
use crate::scan::Scan;
use crate::segments::DQT;
use crate::sequential;
use crate::strips::{Output, Strips};
use crate::tables::Tables;
use crate::transcode::{self, TranscodeOptions};
use std::ops::Range;

/// The most pixels an image may have: twice Pillow's warning level, where Pillow refuses a file as a decompression bomb.
pub const MAX_PIXELS: u64 = 178_956_970;

/// One thread's decoder with its buffers.
#[derive(Debug)]
pub struct Decoder {
    tables: Tables,
    unstuffed: Unstuffed,
    strips: Strips,
    planes: CoefficientPlanes,
    segments: Vec<CodedSegment>,
    packed: packed::Reader,
    isa: Isa,
}

impl Default for Decoder {
    fn default() -> Decoder {
        Decoder::new()
    }
}

impl Decoder {
    /// A decoder with empty buffers.
    pub fn new() -> Decoder {
        Decoder::with(Isa::detect())
    }

    /// A decoder that uses no instructions beyond what every processor of its kind has. It gives the same
    /// pixels.
    pub fn portable() -> Decoder {
        Decoder::with(Isa::Portable)
    }

    /// A decoder that uses these instructions.
    pub(crate) fn with(isa: Isa) -> Decoder {
        let (tables, strips) = (Tables::new(), Strips::new(isa));
        Decoder {
            tables,
            unstuffed: Unstuffed::default(),
            strips,
            planes: CoefficientPlanes::new(isa),
            segments: Vec::new(),
            packed: packed::Reader::default(),
            isa,
        }
    }

    /// Decodes the pixels of `region` at `scale`.
    ///
    /// A scaled image has `ceil(side / factor)` pixels a side; a region of it is that of all pixels which
    /// hold any full-size pixel of `region`. What lies after the region is not read where the file has one
    /// scan, so that damage there goes unnoticed. CMYK and YCCK become RGB as `PIL.Image.convert("RGB")` does
    /// it.
    ///
    /// # Errors
    /// [`Error`] where the bytes are broken or unsupported, hold more than 178,956,970 pixels, or the region does not lie within
    /// the image.
    pub fn decode<'a>(
        &mut self,
        input: impl Into<Input<'a>>,
        region: Region,
        scale: Scale,
        layout: Layout,
    ) -> Result<Pixels<'_>, Error> {
        let job = self.begin(input.into(), &region, scale, Output::Pixels(layout))?;
        self.run(&job)?;
        Ok(self.strips.pixels(layout))
    }

    /// Decodes all pixels of a JPEG that every reader decodes to the same ones.
    ///
    /// # Errors
    /// Those of [`Decoder::decode`], and [`Error::Unsupported`] where libjpeg would warn.
    pub fn decode_all<'a>(
        &mut self,
        input: impl Into<Input<'a>>,
        header: &Header,
        scale: Scale,
        layout: Layout,
    ) -> Result<Pixels<'_>, Error> {
        let job = self.begin(input.into(), &header.full(), scale, Output::Pixels(layout))?;
        self.run(&job)?;
        readers::refuse_warnings(job.input.bytes, header, self.unstuffed.left)
            .map_err(|what| Error::Unsupported(what.into()))?;
        Ok(self.strips.pixels(layout))
    }

    /// Decodes as many rows of `region` as come before the bytes end or are found to be broken.
    ///
    /// A row of a file of several scans is made of all of them: of such a file there are all rows or none.
    ///
    /// # Errors
    /// Those of [`Decoder::decode`] that are found before the first block is read: in the segments before it,
    /// in the region, and where there is not even a bit for each block.
    pub fn decode_partial<'a>(
        &mut self,
        input: impl Into<Input<'a>>,
        region: Region,
        scale: Scale,
        layout: Layout,
    ) -> Result<Partial<'_>, Error> {
        let job = self.begin(input.into(), &region, scale, Output::Pixels(layout))?;
        let error = self.run(&job).err();
        Ok(Partial {
            pixels: self.strips.pixels(layout),
            error,
        })
    }

    /// Decodes the components' samples that `region` at `scale` depends on, before upsampling and colour.
    ///
    /// For resampling that wants no detour over pixels: a coarser component is as coarse as the file has it,
    /// or nearer to the image's resolution where the image is scaled.
    ///
    /// # Errors
    /// Those of [`Decoder::decode`].
    pub fn decode_planes<'a>(
        &mut self,
        input: impl Into<Input<'a>>,
        region: Region,
        scale: Scale,
    ) -> Result<planar::Planes<'_>, Error> {
        let job = self.begin(input.into(), &region, scale, Output::Planes)?;
        self.run(&job)?;
        Ok(self.strips.planes())
    }

    /// The coefficients that `region` at `scale` depends on, before any transform: those of
    /// [`Decoder::decode_planes`] that are not zero.
    ///
    /// Where a block becomes one sample, only its first coefficient is kept.
    ///
    /// # Errors
    /// Those of [`Decoder::decode`].
    pub fn decode_blocks<'a>(
        &mut self,
        input: impl Into<Input<'a>>,
        region: Region,
        scale: Scale,
    ) -> Result<Blocks<'_>, Error> {
        let job = self.begin(input.into(), &region, scale, Output::Blocks)?;
        self.run(&job)?;
        Ok(self.strips.blocks())
    }

    /// The coded data that `region` at `scale` depends on, before any symbol is read; none where the file has several
    /// scans.
    ///
    /// What only reading symbols can find out is not checked. Of what it refuses, [`Decoder::decode`] of the same region
    /// refuses everything.
    ///
    /// # Errors
    /// Those of [`Decoder::decode`] that are found without reading symbols.
    pub fn coded<'a>(
        &'a mut self,
        input: impl Into<Input<'a>>,
        region: Region,
        scale: Scale,
    ) -> Result<Option<Coded<'a>>, Error> {
        let job = self.begin(input.into(), &region, scale, Output::Needs)?;
        let Decoder {
            tables,
            unstuffed,
            strips,
            segments,
            ..
        } = self;
        match job.one_pass {
            true => coded::find(
                job.input.bytes,
                &job.head,
                &job.scan,
                tables,
                unstuffed,
                strips,
                segments,
            )
            .map(Some),
            false => Ok(None),
        }
    }

    /// The groups of a packed image that `region` at `scale` depends on, before any symbol is read; none for a JPEG.
    ///
    /// What only reading symbols can find out is not checked. Of what it refuses, [`Decoder::decode`] of the same region
    /// refuses everything.
    ///
    /// # Errors
    /// Those of [`Decoder::decode`] that are found without reading symbols.
    pub fn packed_groups<'a>(
        &'a mut self,
        input: impl Into<Input<'a>>,
        region: Region,
        scale: Scale,
    ) -> Result<Option<PackedGroups<'a>>, Error> {
        let job = self.begin(input.into(), &region, scale, Output::Needs)?;
        let Some(file) = &job.packed else {
            return Ok(None);
        };
        let found = self
            .packed
            .find(job.input, file, &job.head, &self.tables, &mut self.strips);
        found.map(Some)
    }

    /// The quantised coefficients of the whole image, before any transform.
    ///
    /// # Errors
    /// [`Error`] where the bytes are broken or unsupported, or hold more than 178,956,970 pixels.
    pub fn coefficients<'a>(&mut self, input: impl Into<Input<'a>>) -> Result<Coefficients<'_>, Error> {
        let head = self.read_coefficients(input.into())?;
        Ok(self.planes.coefficients(&head))
    }

    /// [`transcode`](crate::transcode) with the buffers of this decoder; a packed image becomes a JPEG.
    ///
    /// # Errors
    /// As there.
    pub fn transcode<'a>(
        &mut self,
        input: impl Into<Input<'a>>,
        options: &TranscodeOptions,
    ) -> Result<Vec<u8>, Error> {
        let input = input.into();
        let head = self.read_coefficients(input)?;
        let segments = packed::segments(input.bytes)?;
        transcode::write(segments, &head, &mut self.planes, options)
    }

    /// The packed form of a JPEG: its coefficients in fewer bytes, which take a third of the time to read. Every decode takes it
    /// in the place of the file; [`Decoder::transcode`] makes a JPEG of it again.
    ///
    /// # Errors
    /// [`Error`] where the bytes are broken or unsupported, hold more than 178,956,970 pixels or coefficients larger than
    /// 8-bit samples can give, or take less than a bit a block.
    pub fn pack<'a>(
        &mut self,
        input: impl Into<Input<'a>>,
        packer: &mut Packer,
        options: &TranscodeOptions,
    ) -> Result<Vec<u8>, Error> {
        let input = input.into();
        let head = self.read_coefficients(input)?;
        let segments = packed::segments(input.bytes)?;
        let coded = input.bytes.len() - head.data;
        packer.write(self.isa, segments, coded, &head, &mut self.planes, options)
    }

    fn read_coefficients<'a>(&mut self, input: Input<'a>) -> Result<Head<'a>, Error> {
        let Decoder {
            tables,
            unstuffed,
            planes,
            packed,
            isa,
            ..
        } = self;
        let opened = Opened::parse(input, tables)?;
        let head = &opened.head;
        require_few_pixels(&head.frame)?;
        require_data(input.bytes, &head.frame, 0..head.frame.height)?;
        match &opened.packed {
            Some(file) => packed.coefficients(input, file, head, tables, planes, *isa)?,
            None => planes.read(input.bytes, head, tables, unstuffed)?,
        }
        Ok(opened.head)
    }

    /// Everything before the first block: reads the segments, checks what was asked for, and prepares the
    /// strips.
    fn begin<'a>(
        &mut self,
        input: Input<'a>,
        region: &Region,
        scale: Scale,
        output: Output,
    ) -> Result<Job<'a>, Error> {
        let Opened { head, packed } = Opened::parse(input, &mut self.tables)?;
        let frame = &head.frame;
        if !region.lies_within(frame.width, frame.height) {
            let (width, height) = (frame.width as u32, frame.height as u32);
            return Err(Error::Region {
                region: *region,
                width,
                height,
            });
        }
        require_few_pixels(frame)?;
        let scan = Scan::parse(head.scan, frame)?;
        let one_pass = packed.is_none()
            && frame.coding != Coding::Progressive
            && scan.members().len() == frame.components().len();
        let rows = match one_pass {
            true => 0..region.rows().end,
            false => 0..frame.height,
        };
        require_data(input.bytes, frame, rows)?;
        self.strips.begin(&head, region, scale, output)?;
        Ok(Job {
            input,
            packed,
            head,
            scan,
            one_pass,
        })
    }

    /// Reads the blocks and makes of them what was asked for.
    fn run(&mut self, job: &Job<'_>) -> Result<(), Error> {
        let Decoder {
            tables,
            unstuffed,
            strips,
            planes,
            packed,
            isa,
            ..
        } = self;
        let Job {
            input, head, scan, ..
        } = job;
        unstuffed.left = Leftover::default();
        match (&job.packed, job.one_pass) {
            (Some(file), _) => packed.decode(*input, file, head, tables, strips, *isa),
            (None, true) => sequential::decode(input.bytes, head, scan, tables, unstuffed, strips, *isa),
            (None, false) => planes.decode(input.bytes, head, tables, unstuffed, strips),
        }
    }
}

/// An image whose blocks are to be read.
#[derive(Debug)]
struct Job<'a> {
    input: Input<'a>,
    /// The parts of a packed image.
    packed: Option<Packed<'a>>,
    head: Head<'a>,
    /// The first scan.
    scan: Scan,
    /// Whether it is sequential and holds all components.
    one_pass: bool,
}

/// An image whose segments are read.
struct Opened<'a> {
    head: Head<'a>,
    packed: Option<Packed<'a>>,
}

impl<'a> Opened<'a> {
    /// Reads the segments before the first scan, and their tables into `tables`.
    fn parse(input: Input<'a>, tables: &mut Tables) -> Result<Opened<'a>, Error> {
        let packed = match packed::is_packed(input.bytes) {
            true => Some(Packed::parse(input.bytes)?),
            false => None,
        };
        tables.reset();
        let segments = packed.map_or(input.bytes, |packed| packed.head);
        let head = Head::parse(segments, |segment| match segment.marker {
            DQT => tables.read_quantisation(segment),
            _ => tables.read_huffman(segment),
        })?;
        if packed.is_some() {
            // Nothing but its segments says what the groups hold.
            let scan = Scan::parse(head.scan, &head.frame)?;
            let whole = scan.members().len() == head.frame.components().len();
            if !whole || head.frame.coding == Coding::Progressive {
                return Err(Error::corrupt(
                    scan.at,
                    "segments of a JPEG that cannot be packed",
                ));
            }
        }
        Ok(Opened { head, packed })
    }
}

/// Refuses images of more than [`MAX_PIXELS`].
fn require_few_pixels(frame: &Frame) -> Result<(), Error> {
    match (frame.width * frame.height) as u64 > MAX_PIXELS {
        true => Err(Error::Unsupported(format!(
            "{} x {} pixels; at most {MAX_PIXELS} are decoded",
            frame.width, frame.height
        ))),
        false => Ok(()),
    }
}

/// Refuses bytes that cannot hold one bit for each block of some rows of pixels, before anything is allocated
/// for them.
fn require_data(bytes: &[u8], frame: &Frame, rows: Range<usize>) -> Result<(), Error> {
    let blocks: usize = frame
        .components()
        .iter()
        .map(|c| c.blocks_wide * (rows.len() * c.v / frame.v_max / 8))
        .sum();
    match blocks > 8 * bytes.len() {
        true => Err(Error::Truncated("before there is a bit for each block")),
        false => Ok(()),
    }
}
