//! Decodes the bytes of a file to an image: JPEG, PNG and WebP, detected by content, never by name.
//!
//! Every file becomes RGB, as with `PIL.Image.open(..).convert("RGB")`: grey is repeated, a palette is looked
//! up, alpha is dropped, CMYK is converted. Of 16-bit channels the high byte is used.

use crate::content;
use crate::draw::check_sides;
use crate::error::ImageError;
use crate::image::RgbImage;
use crate::op::{Fill, Interpolation};
use crate::step::{Rotate, Step};
use crate::{DrawKey, Pipeline, per_op};
use serde::{Deserialize, Serialize};
use std::io::Cursor;
use stokehold_jpeg::{ColorModel, Decoder, Header, Input, Layout, Region, Scale, is_packed};

/// Options of decoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DecodeOptions {
    /// Rotate the image upright by its EXIF orientation. Off by default, as in torchvision.
    pub exif: bool,
}

/// The supported formats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JPEG.
    Jpeg,
    /// PNG; of an animation the first frame.
    Png,
    /// WebP, lossy and lossless; of an animation the first frame.
    WebP,
}

/// The meaning of a file's channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ColorMode {
    /// One channel.
    Grey,
    /// One channel and alpha.
    GreyAlpha,
    /// Red, green, blue (in a JPEG, nearly always stored as YCbCr).
    Rgb,
    /// Red, green, blue, alpha.
    Rgba,
    /// Indices into a palette.
    Palette,
    /// Four inks.
    Cmyk,
    /// Four inks, three of them stored as YCbCr.
    Ycck,
}

/// The properties of a file in its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageInfo {
    /// Columns, as stored.
    pub width: u32,
    /// Rows, as stored.
    pub height: u32,
    /// The format.
    pub format: Format,
    /// What the pixels mean.
    pub color: ColorMode,
    /// Bits per channel.
    pub bits: u8,
    /// EXIF orientation, 1..=8; 1 if the file has none.
    pub orientation: u8,
}

impl ImageInfo {
    /// Whether the file stores one or three channels that can be decoded separately.
    ///
    /// Not of a narrow one: libjpeg-turbo repeats chroma that is two samples wide or less, where it interpolates between wider
    /// rows' samples, and at a quarter of the size sixteen pixels are as few.
    pub(crate) fn has_planes(&self) -> bool {
        let colour = matches!(self.color, ColorMode::Grey | ColorMode::Rgb);
        self.format == Format::Jpeg && colour && self.width > 16
    }

    /// Width and height as a pipeline sees the image: as it is stored, or upright if the options say so.
    pub fn size(&self, options: &DecodeOptions) -> (u32, u32) {
        let upright = if options.exif { self.upright() } else { Vec::new() };
        Step::size_after_all(&upright, self.width, self.height)
    }

    /// The steps that turn the stored image upright.
    pub(crate) fn upright(&self) -> Vec<Step> {
        let turn = |angle| {
            let (interpolation, fill) = (Interpolation::Nearest, Fill::default());
            Step::Rotate(Rotate {
                angle,
                interpolation,
                expand: true,
                center: None,
                fill,
            })
        };
        match self.orientation {
            2 => vec![Step::HorizontalFlip],
            3 => vec![Step::HorizontalFlip, Step::VerticalFlip],
            4 => vec![Step::VerticalFlip],
            5 => vec![Step::HorizontalFlip, turn(90.0)],
            6 => vec![turn(270.0)],
            7 => vec![Step::VerticalFlip, turn(90.0)],
            8 => vec![turn(90.0)],
            _ => Vec::new(),
        }
    }
}

/// Reads a file's header, without decoding the image.
///
/// # Errors
/// [`ImageError`] if the bytes are not an image, have a broken header, or exceed Pillow's limit of pixels.
pub fn probe(bytes: &[u8]) -> Result<ImageInfo, ImageError> {
    let info = match format(bytes)? {
        Format::Jpeg => {
            let header = Header::parse(bytes)?;
            let color = match header.color {
                ColorModel::Grey => ColorMode::Grey,
                ColorModel::YCbCr | ColorModel::Rgb => ColorMode::Rgb,
                ColorModel::Cmyk => ColorMode::Cmyk,
                ColorModel::Ycck => ColorMode::Ycck,
            };
            let (width, height, orientation) = (header.width, header.height, header.orientation);
            ImageInfo {
                width,
                height,
                format: Format::Jpeg,
                color,
                bits: 8,
                orientation,
            }
        }
        Format::Png => {
            let reader = png_reader(bytes)?;
            let info = reader.info();
            let color = match info.color_type {
                png::ColorType::Grayscale => ColorMode::Grey,
                png::ColorType::GrayscaleAlpha => ColorMode::GreyAlpha,
                png::ColorType::Rgb => ColorMode::Rgb,
                png::ColorType::Rgba => ColorMode::Rgba,
                png::ColorType::Indexed => ColorMode::Palette,
            };
            let orientation = info
                .exif_metadata
                .as_deref()
                .and_then(stokehold_jpeg::exif_orientation);
            let (width, height, bits) = (info.width, info.height, info.bit_depth as u8);
            ImageInfo {
                width,
                height,
                format: Format::Png,
                color,
                bits,
                orientation: orientation.unwrap_or(1),
            }
        }
        Format::WebP => {
            let mut decoder = webp_decoder(bytes)?;
            let (width, height) = decoder.dimensions();
            let exif = decoder.exif_metadata().ok().flatten();
            let tiff = exif.as_deref().map(|e| e.strip_prefix(b"Exif\0\0").unwrap_or(e));
            let orientation = tiff.and_then(stokehold_jpeg::exif_orientation).unwrap_or(1);
            let color = if decoder.has_alpha() {
                ColorMode::Rgba
            } else {
                ColorMode::Rgb
            };
            ImageInfo {
                width,
                height,
                format: Format::WebP,
                color,
                bits: 8,
                orientation,
            }
        }
    };
    let (width, height, limit) = (info.width, info.height, crate::MAX_PIXELS);
    if u64::from(width) * u64::from(height) > limit {
        return Err(ImageError::TooLarge { width, height, limit });
    }
    Ok(info)
}

/// Decodes a whole image: the bytes of a file, or an [`Input`] that says more of a JPEG.
///
/// # Errors
/// [`ImageError`] says what is wrong with the bytes.
pub fn decode<'a>(input: impl Into<Input<'a>>, options: &DecodeOptions) -> Result<RgbImage, ImageError> {
    let input = input.into();
    let info = probe(input.bytes)?;
    let image = decode_stored(input, &info, &mut Decoder::new())?;
    let turned = if options.exif { info.upright() } else { Vec::new() };
    Ok(turned
        .iter()
        .fold(image, |image, step| per_op::apply(step, image)))
}

/// The steps for a stored image: rotating it upright if requested, then those that `pipeline` draws.
pub(crate) fn steps(
    info: &ImageInfo,
    options: &DecodeOptions,
    pipeline: &Pipeline,
    key: DrawKey,
) -> Result<Vec<Step>, ImageError> {
    let mut steps = if options.exif { info.upright() } else { Vec::new() };
    let (width, height) = Step::size_after_all(&steps, info.width, info.height);
    steps.extend(pipeline.draw(key, width, height)?);
    check_sides(&steps, info.width, info.height)?;
    Ok(steps)
}

/// Decodes a whole image in its stored orientation.
pub(crate) fn decode_stored(
    input: Input<'_>,
    info: &ImageInfo,
    jpeg: &mut Decoder,
) -> Result<RgbImage, ImageError> {
    let (width, height) = (info.width, info.height);
    let data = match info.format {
        Format::Jpeg => {
            let whole = Region {
                x: 0,
                y: 0,
                width,
                height,
            };
            jpeg.decode(input, whole, Scale::Full, Layout::Rgb)?.data.to_vec()
        }
        Format::Png => decode_png(input.bytes)?,
        Format::WebP => decode_webp(input.bytes)?,
    };
    Ok(RgbImage { width, height, data })
}

/// Whether bytes begin as those of a format that is decoded.
pub fn is_image(bytes: &[u8]) -> bool {
    format(bytes).is_ok()
}

/// The format, from the first bytes.
fn format(bytes: &[u8]) -> Result<Format, ImageError> {
    if bytes.is_empty() {
        return Err(ImageError::Empty);
    }
    if bytes.starts_with(&[0xFF, 0xD8]) || is_packed(bytes) {
        return Ok(Format::Jpeg);
    }
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        return Ok(Format::Png);
    }
    if bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(b"WEBP") {
        return Ok(Format::WebP);
    }
    Err(ImageError::UnknownFormat(content::described(bytes)))
}

/// A PNG's decoder. It skips texts and the colour profile: nothing here uses them, and a profile of 4 MB unpacks to 2 GB.
pub(crate) fn png_decoder(bytes: &[u8]) -> png::Decoder<Cursor<&[u8]>> {
    let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), png::Limits { bytes: 1 << 31 });
    decoder.set_ignore_iccp_chunk(true);
    decoder.set_ignore_text_chunk(true);
    decoder
}

fn png_reader(bytes: &[u8]) -> Result<png::Reader<Cursor<&[u8]>>, ImageError> {
    let broken = |e: png::DecodingError| ImageError::Png(e.to_string());
    let mut decoder = png_decoder(bytes);
    let header = decoder.read_header_info().map_err(broken)?;
    let is_wide_grey =
        (header.color_type, header.bit_depth) == (png::ColorType::Grayscale, png::BitDepth::Sixteen);
    decoder.set_transformations(match is_wide_grey {
        true => png::Transformations::IDENTITY,
        false => png::Transformations::EXPAND | png::Transformations::STRIP_16,
    });
    decoder.read_info().map_err(broken)
}

fn decode_png(bytes: &[u8]) -> Result<Vec<u8>, ImageError> {
    let mut reader = png_reader(bytes)?;
    let broken = |e: png::DecodingError| ImageError::Png(e.to_string());
    let size = reader
        .output_buffer_size()
        .ok_or_else(|| ImageError::Png("the image does not fit memory".into()))?;
    let mut data = vec![0; size];
    let frame = reader.next_frame(&mut data).map_err(broken)?;
    // Reads the part after the image data, to detect files that are cut off there.
    reader.finish().map_err(broken)?;
    data.truncate(frame.buffer_size());
    if frame.bit_depth == png::BitDepth::Sixteen {
        // Grey levels as Pillow converts them to RGB: those above 255 are clipped.
        let levels = data
            .chunks_exact(2)
            .map(|level| if level[0] > 0 { 255 } else { level[1] });
        return Ok(levels.flat_map(|level| [level; 3]).collect());
    }
    Ok(match frame.color_type {
        png::ColorType::Rgb => data,
        png::ColorType::Rgba => data.chunks_exact(4).flat_map(|p| [p[0], p[1], p[2]]).collect(),
        png::ColorType::Grayscale => data.iter().flat_map(|&v| [v; 3]).collect(),
        png::ColorType::GrayscaleAlpha => data.chunks_exact(2).flat_map(|p| [p[0]; 3]).collect(),
        png::ColorType::Indexed => return Err(ImageError::Png("a palette that was not expanded".into())),
    })
}

fn webp_decoder(bytes: &[u8]) -> Result<image_webp::WebPDecoder<Cursor<&[u8]>>, ImageError> {
    let decoder = image_webp::WebPDecoder::new(Cursor::new(bytes));
    let mut decoder = decoder.map_err(|e| ImageError::WebP(e.to_string()))?;
    // It takes as much memory as a chunk says that it has, and no chunk is longer than the file.
    decoder.set_memory_limit(bytes.len());
    Ok(decoder)
}

fn decode_webp(bytes: &[u8]) -> Result<Vec<u8>, ImageError> {
    let mut decoder = webp_decoder(bytes)?;
    let broken = |e: image_webp::DecodingError| ImageError::WebP(e.to_string());
    let size = decoder
        .output_buffer_size()
        .ok_or_else(|| ImageError::WebP("the image does not fit memory".into()))?;
    let mut data = vec![0; size];
    if decoder.is_animated() {
        decoder.read_frame(&mut data).map_err(broken)?;
    } else {
        decoder.read_image(&mut data).map_err(broken)?;
    }
    if decoder.has_alpha() {
        data = data.chunks_exact(4).flat_map(|p| [p[0], p[1], p[2]]).collect();
    }
    Ok(data)
}
