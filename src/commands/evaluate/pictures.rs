//! Small pictures of the worst mistakes.

use std::error::Error;
use std::sync::Arc;

use jpeg_encoder::{ColorType, Encoder};
use stokehold_loader::input;
use stokehold_pipeline::op::{CenterCrop, Interpolation, Op, Resize, Size};
use stokehold_pipeline::{DecodeOptions, DrawKey, Executor, Pipeline, Runner};
use stokehold_storage::{Images, SampleBytes, Source};
use stokehold_train::infer::Evaluation;

/// Width and height of a picture, pixels.
const SIDE: u16 = 144;
/// The quality of its JPEG; about 6 kB.
const QUALITY: u8 = 80;

/// A picture of each of the worst mistakes: a JPEG of the middle of the image. `None` where the file went away since it
/// was evaluated.
pub fn of(evaluation: &Evaluation, images: &Images, exif: bool) -> Vec<Option<Vec<u8>>> {
    let samples = evaluation.worst.iter().map(|mistake| mistake.sample as usize);
    samples.map(|sample| picture(images, sample, exif).ok()).collect()
}

fn picture(images: &Images, sample: usize, exif: bool) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut bytes = SampleBytes::new();
    images.read(sample, &mut bytes)?;
    let size = Size::Side(SIDE.into());
    let pipeline = Pipeline::new(vec![
        Op::Resize(Resize {
            size,
            interpolation: Interpolation::Bilinear,
            max_size: None,
        }),
        Op::CenterCrop(CenterCrop { size }),
        Op::ToFloat,
    ]);
    let mut runner = Runner::new(Arc::new(pipeline), Executor::Fused, DecodeOptions { exif })?;
    let mut planes = vec![0u8; runner.output_len()];
    let key = DrawKey {
        seed: 0,
        epoch: 0,
        sample: sample as u64,
    };
    runner.run(input(&bytes), key, planes.as_mut_slice())?;
    let pixels = planes.len() / 3;
    let rgb: Vec<u8> = (0..3 * pixels)
        .map(|at| planes[at % 3 * pixels + at / 3])
        .collect();
    let mut jpeg = Vec::new();
    Encoder::new(&mut jpeg, QUALITY).encode(&rgb, SIDE, SIDE, ColorType::Rgb)?;
    Ok(jpeg)
}
