//! From the bytes of an image file to those of a sample.

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use stokehold_jpeg::{Decoder, Metadata, TranscodeOptions};
use stokehold_pipeline::op::Interpolation;
use stokehold_pipeline::{ColorMode, DecodeOptions, Format, ImageInfo, RgbImage, decode, probe};

use crate::options::Content;

/// A sample: a file that holds an image, and what is known of it.
#[derive(Debug)]
pub(crate) struct Made {
    pub file: Vec<u8>,
    pub format: Format,
    pub width: u32,
    pub height: u32,
    /// Where the MCU rows begin, and where the last one ends; empty where rows cannot be read by themselves.
    pub rows: Vec<u32>,
    /// Why a JPEG was kept as it is, where it should have been transcoded.
    pub kept: Option<String>,
}

/// Makes samples; each thread has its own.
#[derive(Default)]
pub(crate) struct Maker {
    jpeg: Decoder,
}

impl Maker {
    /// Makes the sample of a file; the error is what is wrong with the image.
    pub fn make(&mut self, file: Vec<u8>, content: Content) -> Result<Made, String> {
        let info = probe(&file).map_err(text)?;
        let metadata = match content {
            Content::Raw => {
                decodes(&file)?;
                return Ok(as_it_is(file, info));
            }
            Content::Lossless(metadata) => metadata,
            Content::Resized {
                size,
                quality,
                metadata,
            } => match size.shrink(info.width, info.height) {
                Some((width, height)) => {
                    let encoded = shrunk(&file, info, (width, height), quality)?;
                    // What it has of metadata is the orientation, which stays.
                    let made = self.transcode(&encoded, Metadata::Drop)?;
                    return Ok(Made {
                        width,
                        height,
                        ..made
                    });
                }
                None => metadata,
            },
        };
        if info.format != Format::Jpeg {
            decodes(&file)?;
            return Ok(as_it_is(file, info));
        }
        match self.transcode(&file, metadata) {
            Ok(made) => Ok(Made {
                width: info.width,
                height: info.height,
                ..made
            }),
            // What decodes is a good image all the same.
            Err(reason) => {
                decodes(&file)?;
                Ok(Made {
                    kept: Some(reason),
                    ..as_it_is(file, info)
                })
            }
        }
    }

    fn transcode(&mut self, file: &[u8], metadata: Metadata) -> Result<Made, String> {
        let transcoded = self
            .jpeg
            .transcode(file, &TranscodeOptions { metadata })
            .map_err(text)?;
        Ok(Made {
            file: transcoded.bytes,
            format: Format::Jpeg,
            width: 0,
            height: 0,
            rows: transcoded.rows,
            kept: None,
        })
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

fn decodes(file: &[u8]) -> Result<(), String> {
    decode(file, &DecodeOptions::default()).map(drop).map_err(text)
}

fn as_it_is(file: Vec<u8>, info: ImageInfo) -> Made {
    Made {
        file,
        format: info.format,
        width: info.width,
        height: info.height,
        rows: Vec::new(),
        kept: None,
    }
}

/// The image shrunk (antialiased, bicubic) as a JPEG with half the colour resolution, as most encoders' default is.
fn shrunk(file: &[u8], info: ImageInfo, (width, height): (u32, u32), quality: u8) -> Result<Vec<u8>, String> {
    let image = decode(file, &DecodeOptions::default()).map_err(text)?;
    let RgbImage { data, .. } = image.resize(width, height, Interpolation::Bicubic);
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, quality);
    encoder.set_sampling_factor(SamplingFactor::R_4_2_0);
    if info.orientation != 1 {
        encoder
            .add_exif_metadata(&orientation(info.orientation))
            .map_err(text)?;
    }
    let (Ok(width), Ok(height)) = (u16::try_from(width), u16::try_from(height)) else {
        return Err(format!(
            "{width}x{height} pixels do not fit a JPEG; shrink it more"
        ));
    };
    if matches!(info.color, ColorMode::Grey | ColorMode::GreyAlpha) {
        let grey: Vec<u8> = data.as_chunks::<3>().0.iter().map(|pixel| pixel[0]).collect();
        encoder.encode(&grey, width, height, ColorType::Luma)
    } else {
        encoder.encode(&data, width, height, ColorType::Rgb)
    }
    .map_err(text)?;
    Ok(bytes)
}

/// A TIFF structure with one entry, the orientation.
fn orientation(orientation: u8) -> Vec<u8> {
    let mut tiff = b"II*\0\x08\0\0\0\x01\0".to_vec();
    // Tag 0x0112 of one 16-bit number.
    tiff.extend([0x12, 0x01, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0]);
    // No further directory.
    tiff.extend([0; 4]);
    tiff
}
