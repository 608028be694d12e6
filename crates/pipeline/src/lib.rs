//! Image pipelines: the operations between the bytes of an image and the batch.
//!
//! ```text
//!  Pipeline ──draw(seed, epoch, sample; image size)──► steps ──┬─ per-op: step after step on the whole image
//!  (operations: data)                    (every number known)  └─ fused: one plan, one resampling
//! ```
//!
//! A [`Pipeline`] is data: a list of operations ([`op::Op`]) with torchvision's names, parameters and
//! defaults, read from TOML or JSON or taken from a preset. Before any pixel is processed, [`Pipeline::draw`]
//! turns it into concrete [`Step`]s. Every random number is a function of (seed, epoch, sample, operation),
//! so neither the number of workers, nor a resume, nor the executor changes what a sample looks like.
//!
//! Two executors perform the steps. `per-op` does what torchvision does with PIL images, operation after
//! operation, and is the reference. `fused` composes all geometry into one affine map and one antialiased
//! resampling that reads only the source pixels it needs, and does colour and normalisation on each row while
//! it is in the cache.
//!
//! A [`Runner`] converts the bytes of a file to the numbers of a sample, f32 or a smaller [`SampleType`], in
//! one thread:
//!
//! ```no_run
//! use std::sync::Arc;
//! use stokehold_pipeline::{DecodeOptions, DrawKey, Executor, Pipeline, Runner};
//! let pipeline = Arc::new(Pipeline::imagenet_train(224));
//! let mut runner = Runner::new(pipeline, Executor::Fused, DecodeOptions::default())?;
//! let mut sample = vec![0.0; runner.output_len()]; // (3, 224, 224)
//! runner.run(&std::fs::read("photo.jpg")?, DrawKey { seed: 1, epoch: 0, sample: 0 }, &mut sample)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod augment;
mod content;
mod decode;
mod draw;
mod error;
mod filter;
mod fused;
mod head;
mod image;
mod mask;
pub mod op;
mod per_op;
mod perspective;
pub mod picture;
mod pipeline;
mod preparation;
pub mod recorded;
mod rng;
mod runner;
mod sample;
mod step;

pub use decode::{ColorMode, DecodeOptions, Format, ImageInfo, decode, is_image, probe};
pub use error::{ImageError, MaskError, PipelineError};
// What an executor on a device needs. It may change in every version.
#[doc(hidden)]
pub use fused::{
    BilinearAxis, DecodedPixels, DevicePlan, DeviceSource, DeviceStage, DeviceWork, Erased, ErasedContent,
    LevelTable, Lowered, Resample, ResampleMap, Taps, Triangle, TurnedAxis, TurnedTables, UprightAxis,
    UprightTables, stretched_below,
};
pub use fused::{Decoding, Explanation, Mcus, Performed, Resampling, explain};
pub use head::{Head, Stays, bake};
pub use image::RgbImage;
pub use mask::{Mask, MaskTable};
#[doc(hidden)]
pub use per_op::{HueTables, Pointwise};
pub use perspective::Perspective;
pub use pipeline::Pipeline;
#[doc(hidden)]
pub use preparation::{Preparation, Prepare, PreparedSample};
#[doc(hidden)]
pub use runner::run_mask;
pub use runner::{Executor, Runner, StageTimes};
pub use sample::{SampleMut, SampleType};
pub use step::{Chain, EraseContent, Mixed, Rotate, Step, Transform};
pub use stokehold_jpeg::{Input, MAX_PIXELS};

/// What the draws of a sample are a function of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DrawKey {
    /// The run's seed.
    pub seed: u64,
    /// Counted from 0.
    pub epoch: u64,
    /// The sample's place in the data set.
    pub sample: u64,
}

/// Performs steps on an image in memory with either executor: what the tests compare, and what shows a step at work.
///
/// Returns the floats (3, height, width) and that height and width. Steps without [`Step::ToFloat`] are converted
/// at their end.
///
/// # Panics
/// Where steps are not such as [`Pipeline::draw`] gives for the image's size.
pub fn perform(executor: Executor, steps: &[Step], image: &RgbImage) -> (Vec<f32>, u32, u32) {
    let (width, height) = Step::size_after_all(steps, image.width, image.height);
    let mut out = vec![0.0; 3 * width as usize * height as usize];
    perform_into(executor, steps, image, (&mut out).into());
    (out, width, height)
}

/// Performs steps on a mask with either executor, as [`perform`] does on an image.
///
/// # Panics
/// Where steps are not such as [`Pipeline::draw`] gives for the mask's size.
pub fn perform_on_mask(executor: Executor, steps: &[Step], mask: Mask) -> Mask {
    match executor {
        Executor::PerOp => steps
            .iter()
            .fold(mask, |mask, step| per_op::apply_to_mask(step, mask)),
        Executor::Fused | Executor::Gpu => fused::apply_all_to_mask(steps, mask),
    }
}

/// As [`perform`], into memory of any [`SampleType`].
///
/// # Panics
/// Where `out` has not the size that the steps lead to, or is `u8` and steps follow [`Step::ToFloat`].
pub fn perform_into(executor: Executor, steps: &[Step], image: &RgbImage, out: SampleMut<'_>) {
    let float = steps.iter().skip_while(|step| **step != Step::ToFloat);
    assert!(
        float.count() < 2 || out.sample_type() != SampleType::U8,
        "bytes of steps that end in floats"
    );
    match executor {
        Executor::PerOp => per_op::execute(steps, image.clone(), out),
        Executor::Fused | Executor::Gpu => {
            let data: Vec<u8> = image
                .pixels()
                .iter()
                .flat_map(|p| [p[0], p[1], p[2], 255])
                .collect();
            let plan = fused::Plan::new(steps, image.width, image.height);
            let source = fused::Rgbx::whole(&data, image.width, image.height);
            plan.execute(fused::Source::Pixels(source), &mut fused::Scratch::default(), out);
        }
    }
}

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
