//! Small pictures of images, for people who look at many.

use std::sync::Arc;

use jpeg_encoder::{ColorType, Encoder};
use stokehold_pipeline::op::{CenterCrop, Filter, Op, Resize, Size};
use stokehold_pipeline::{DecodeOptions, DrawKey, Executor, ImageError, Input, Pipeline, Runner};

/// The quality of its JPEG; about 6 kB with 144 pixels a side.
const QUALITY: u8 = 80;

/// A JPEG of `side` x `side` pixels of the middle of an image; with `exif` it is turned upright first.
///
/// A JPEG is decoded at 1/2, 1/4 or 1/8 of its size where the picture is that small.
///
/// # Errors
/// The bytes are broken, or are no image.
pub fn thumbnail(image: Input<'_>, side: u16, exif: bool) -> Result<Vec<u8>, ImageError> {
    let size = Size::Side(side.into());
    let pipeline = Pipeline::new(vec![
        Op::Resize(Resize {
            size,
            interpolation: Filter::Bilinear,
            max_size: None,
        }),
        Op::CenterCrop(CenterCrop { size }),
        Op::ToFloat,
    ]);
    let unfit = |error: &dyn std::fmt::Display| ImageError::DoesNotFit(error.to_string());
    let mut runner = Runner::new(Arc::new(pipeline), Executor::Fused, DecodeOptions { exif })
        .map_err(|error| unfit(&error))?;
    let mut planes = vec![0u8; runner.output_len()];
    // Nothing is drawn.
    let key = DrawKey {
        seed: 0,
        epoch: 0,
        sample: 0,
    };
    runner.run(image, key, planes.as_mut_slice())?;
    let pixels = planes.len() / 3;
    let rgb: Vec<u8> = (0..3 * pixels)
        .map(|at| planes[at % 3 * pixels + at / 3])
        .collect();
    let mut jpeg = Vec::new();
    Encoder::new(&mut jpeg, QUALITY)
        .encode(&rgb, side, side, ColorType::Rgb)
        .map_err(|error| unfit(&error))?;
    Ok(jpeg)
}
