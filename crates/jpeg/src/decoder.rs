//! Pixels of a region, through zune-jpeg.

use crate::{ColorModel, Error, Header};
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// A rectangle of the full-size image, in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// First column.
    pub x: u32,
    /// First row.
    pub y: u32,
    /// Columns, at least 1.
    pub width: u32,
    /// Rows, at least 1.
    pub height: u32,
}

/// By how much the image shrinks while it is decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Every pixel.
    Full,
    /// Half the width and height.
    Half,
    /// A quarter of the width and height.
    Quarter,
    /// An eighth of the width and height.
    Eighth,
}

impl Scale {
    /// Full-size pixels along one side of a scaled pixel: 1, 2, 4 or 8.
    pub fn factor(self) -> u32 {
        1 << (self as u32)
    }
}

/// How a pixel lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Three bytes: red, green, blue.
    Rgb,
    /// Four bytes: red, green, blue and one without meaning, so that a pixel is one 32-bit word.
    Rgbx,
}

impl Layout {
    /// Bytes of one pixel.
    pub fn bytes(self) -> usize {
        match self {
            Layout::Rgb => 3,
            Layout::Rgbx => 4,
        }
    }
}

/// Decoded rows of a region, borrowed from the [`Decoder`] that made them.
#[derive(Debug, Clone, Copy)]
pub struct Pixels<'a> {
    /// From the first pixel of the region to the last one.
    pub data: &'a [u8],
    /// Bytes from one row's beginning to the next one's.
    pub stride: usize,
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// How a pixel lies in memory.
    pub layout: Layout,
}

impl<'a> Pixels<'a> {
    /// Row `y`, counted from the region's top.
    ///
    /// # Panics
    /// Where `y` is not below the height.
    pub fn row(&self, y: u32) -> &'a [u8] {
        let start = y as usize * self.stride;
        &self.data[start..start + self.width as usize * self.layout.bytes()]
    }
}

/// One thread's decoder with its buffers.
#[derive(Debug, Default)]
pub struct Decoder {
    full: Vec<u8>,
    scaled: Vec<u8>,
}

impl Decoder {
    /// A decoder with empty buffers.
    pub fn new() -> Decoder {
        Decoder::default()
    }

    /// Decodes the pixels of `region` at `scale`.
    ///
    /// A scaled image of a region has `ceil(side / factor)` pixels a side; a last pixel that reaches over the edge
    /// averages what is inside. CMYK and YCCK become RGB as `PIL.Image.convert("RGB")` does it.
    ///
    /// # Errors
    /// [`Error`] where the bytes are broken or unsupported, or the region does not lie within the image.
    pub fn decode(&mut self, bytes: &[u8], region: Region, scale: Scale, layout: Layout) -> Result<Pixels<'_>, Error> {
        let header = Header::parse(bytes)?;
        let inside = |from: u32, size: u32, limit: u32| size > 0 && from.checked_add(size).is_some_and(|end| end <= limit);
        if !inside(region.x, region.width, header.width) || !inside(region.y, region.height, header.height) {
            return Err(Error::Region { region, width: header.width, height: header.height });
        }
        self.decode_full(bytes, &header, layout)?;
        let pixel = layout.bytes();
        let stride = header.width as usize * pixel;
        let first = region.y as usize * stride + region.x as usize * pixel;
        let last = first + (region.height as usize - 1) * stride + region.width as usize * pixel;
        let view =
            Pixels { data: &self.full[first..last], stride, width: region.width, height: region.height, layout };
        if scale == Scale::Full {
            return Ok(view);
        }
        Ok(average_blocks(view, scale.factor(), &mut self.scaled))
    }

    /// Decodes the whole image into `self.full`.
    fn decode_full(&mut self, bytes: &[u8], header: &Header, layout: Layout) -> Result<(), Error> {
        require_end(bytes, header)?;
        let pixel = layout.bytes();
        // YCCK goes through zune-jpeg's own conversion, which knows no other way.
        let four_inks = header.color == ColorModel::Cmyk;
        let out = match (four_inks, layout) {
            (true, _) => ColorSpace::CMYK,
            (false, Layout::Rgb) => ColorSpace::RGB,
            (false, Layout::Rgbx) => ColorSpace::RGBA,
        };
        let options = DecoderOptions::default()
            .set_strict_mode(true)
            .set_max_width(usize::from(u16::MAX))
            .set_max_height(usize::from(u16::MAX))
            .jpeg_set_out_colorspace(out);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
        let corrupt = |error| Error::Corrupt(format!("{error:?}"));
        decoder.decode_headers().map_err(corrupt)?;
        let count = header.width as usize * header.height as usize;
        let size = decoder.output_buffer_size().unwrap_or(0);
        if decoder.dimensions() != Some((header.width as usize, header.height as usize)) || size < count * pixel {
            return Err(Error::Corrupt("two frame headers that disagree".into()));
        }
        self.full.resize(size, 0);
        decoder.decode_into(&mut self.full).map_err(corrupt)?;
        if four_inks {
            inks_to_rgb(&mut self.full, count, header.adobe, pixel);
        }
        Ok(())
    }
}

/// zune-jpeg fills what is missing with grey; training must not learn from that.
fn require_end(bytes: &[u8], header: &Header) -> Result<(), Error> {
    let scan = bytes.get(header.scan..).unwrap_or_default();
    match scan.windows(2).rev().any(|pair| pair == [0xFF, 0xD9]) {
        true => Ok(()),
        false => Err(Error::Truncated("before the end-of-image marker")),
    }
}

/// CMYK to RGB in place, pixel by pixel. The result is never longer than the source.
fn inks_to_rgb(buffer: &mut [u8], count: usize, inverted: bool, pixel: usize) {
    for i in 0..count {
        let ink: [u8; 4] = std::array::from_fn(|c| buffer[4 * i + c]);
        // PIL inverts Adobe's inks on reading and computes clip(255 - k - c * (255 - k) / 255) with rounding.
        let [c, m, y, k] = if inverted { ink.map(|v| 255 - v) } else { ink };
        let light = i32::from(255 - k);
        let mix = |ink: u8| {
            let product = i32::from(ink) * light + 128;
            (light - ((product + (product >> 8)) >> 8)).clamp(0, 255) as u8
        };
        for (at, value) in [mix(c), mix(m), mix(y)].into_iter().enumerate() {
            buffer[pixel * i + at] = value;
        }
    }
}

/// Averages blocks of `factor` x `factor` pixels, rounding to nearest.
fn average_blocks<'a>(source: Pixels<'_>, factor: u32, out: &'a mut Vec<u8>) -> Pixels<'a> {
    let (width, height) = (source.width.div_ceil(factor), source.height.div_ceil(factor));
    let pixel = source.layout.bytes();
    let stride = width as usize * pixel;
    out.clear();
    out.resize(stride * height as usize, 0);
    for (v, row) in out.chunks_exact_mut(stride).enumerate() {
        let top = v as u32 * factor;
        let rows = top..(top + factor).min(source.height);
        for (u, to) in row.chunks_exact_mut(pixel).enumerate() {
            let left = u * factor as usize;
            let columns = left..(left + factor as usize).min(source.width as usize);
            let count = (rows.len() * columns.len()) as u32;
            for (c, to) in to.iter_mut().enumerate() {
                let sum: u32 = rows
                    .clone()
                    .flat_map(|y| columns.clone().map(move |x| (y, x)))
                    .map(|(y, x)| u32::from(source.data[y as usize * source.stride + x * pixel + c]))
                    .sum();
                *to = ((sum + count / 2) / count) as u8;
            }
        }
    }
    Pixels { data: out, stride, width, height, layout: source.layout }
}
