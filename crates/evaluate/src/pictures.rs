//! Small pictures of the worst mistakes.

use stokehold_loader::input;
use stokehold_prepare::thumbnail;
use stokehold_storage::{Images, SampleBytes, Source};
use stokehold_train::infer::Evaluation;

/// Width and height of a picture, pixels.
const SIDE: u16 = 144;

/// A picture of each of the worst mistakes: a JPEG of the middle of the image. `None` where the file went away since it
/// was evaluated.
pub(crate) fn of(evaluation: &Evaluation, images: &Images, exif: bool) -> Vec<Option<Vec<u8>>> {
    let samples = evaluation.worst.iter().map(|mistake| mistake.sample as usize);
    samples.map(|sample| picture(images, sample, exif)).collect()
}

fn picture(images: &Images, sample: usize, exif: bool) -> Option<Vec<u8>> {
    let mut bytes = SampleBytes::new();
    images.read(sample, &mut bytes).ok()?;
    thumbnail(input(&bytes), SIDE, exif).ok()
}
