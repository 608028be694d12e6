//! From the bytes of an image file to those of a sample.

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use stokehold_jpeg::{Decoder, Metadata, Packer, TranscodeOptions};
use stokehold_pipeline::op::Filter;
use stokehold_pipeline::{DecodeOptions, Format, ImageInfo, RgbImage, decode, probe};

use crate::options::{Bake, Content};
use crate::packing::Packing;

/// A sample: a file that holds an image, and what is known of it.
#[derive(Debug)]
pub(crate) struct Made {
    pub file: Vec<u8>,
    pub format: Format,
    pub width: u32,
    pub height: u32,
    /// Why a JPEG was kept as it is, where it should have been packed or transcoded.
    pub kept: Option<String>,
}

/// Makes samples; each thread has its own.
pub(crate) struct Maker {
    jpeg: Decoder,
    /// Packs JPEGs, where they are packed.
    packer: Option<Packer>,
}

impl Maker {
    /// A maker that packs JPEGs with `packing`, or transcodes them.
    pub fn new(packing: Option<&Packing>) -> Self {
        Self {
            jpeg: Decoder::new(),
            packer: packing.map(Packing::packer),
        }
    }

    /// Makes the sample of a file after the head of a pipeline; the error is what is wrong with the image.
    pub fn bake(&mut self, file: Vec<u8>, bake: &Bake) -> Result<Made, String> {
        match stokehold_pipeline::bake(&bake.ops, &file, &DecodeOptions { exif: bake.exif }).map_err(text)? {
            // Without metadata, so that nothing turns it again.
            Some(image) => self.encoded(&image, bake.quality, None),
            None => self.make(file, Content::Lossless(Metadata::Drop)),
        }
    }

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
                    let image = decode(&file, &DecodeOptions::default()).map_err(text)?;
                    let image = image.resize(width, height, Filter::Bicubic);
                    return self.encoded(&image, quality, Some(info.orientation));
                }
                None => metadata,
            },
        };
        if info.format != Format::Jpeg {
            decodes(&file)?;
            return Ok(as_it_is(file, info));
        }
        match self.rewrite(&file, metadata) {
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

    fn encoded(&mut self, image: &RgbImage, quality: u8, orientation: Option<u8>) -> Result<Made, String> {
        // What it has of metadata is the orientation, which stays.
        let made = self.rewrite(&jpeg(image, quality, orientation)?, Metadata::Drop)?;
        Ok(Made {
            width: image.width,
            height: image.height,
            ..made
        })
    }

    /// The same coefficients, packed where that makes a JPEG smaller, or else transcoded.
    fn rewrite(&mut self, file: &[u8], metadata: Metadata) -> Result<Made, String> {
        let options = TranscodeOptions { metadata };
        let made = |file| Made {
            file,
            format: Format::Jpeg,
            width: 0,
            height: 0,
            kept: None,
        };
        if let Some(packer) = &mut self.packer
            // What cannot be packed may be transcoded; of a broken file, that says what is wrong.
            && let Ok(packed) = self.jpeg.pack(file, packer, &options)
            && packed.len() < file.len()
        {
            return Ok(made(packed));
        }
        self.jpeg.transcode(file, &options).map(made).map_err(text)
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
        kept: None,
    }
}

/// The image as a JPEG with half the colour resolution, as most encoders' default is, or as a grey one.
fn jpeg(image: &RgbImage, quality: u8, orientation: Option<u8>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new(&mut bytes, quality);
    encoder.set_sampling_factor(SamplingFactor::R_4_2_0);
    if let Some(tiff) = orientation.and_then(tiff) {
        encoder.add_exif_metadata(&tiff).map_err(text)?;
    }
    let (Ok(width), Ok(height)) = (u16::try_from(image.width), u16::try_from(image.height)) else {
        return Err(format!(
            "{}x{} pixels do not fit a JPEG; shrink it more",
            image.width, image.height
        ));
    };
    match grey(image) {
        Some(grey) => encoder.encode(&grey, width, height, ColorType::Luma),
        None => encoder.encode(&image.data, width, height, ColorType::Rgb),
    }
    .map_err(text)?;
    Ok(bytes)
}

/// The levels of an image without colour.
fn grey(image: &RgbImage) -> Option<Vec<u8>> {
    let pixels = image.data.as_chunks::<3>().0;
    let is_grey = pixels.iter().all(|&[r, g, b]| r == g && g == b);
    is_grey.then(|| pixels.iter().map(|pixel| pixel[0]).collect())
}

/// A TIFF structure with one entry, the orientation; `None` for that of upright images.
fn tiff(orientation: u8) -> Option<Vec<u8>> {
    if orientation == 1 {
        return None;
    }
    let mut tiff = b"II*\0\x08\0\0\0\x01\0".to_vec();
    // Tag 0x0112 of one 16-bit number.
    tiff.extend([0x12, 0x01, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0]);
    // No further directory.
    tiff.extend([0; 4]);
    Some(tiff)
}
