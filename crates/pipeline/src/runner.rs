//! Converts the bytes of a file to the numbers of a batch, in one thread.

use crate::decode::{self, DecodeOptions, Format, ImageInfo};
use crate::error::{ImageError, MaskError, PipelineError};
use crate::fused::{Plan, Planes, Rgbx, Scratch, Source};
use crate::sample::{SampleMut, SampleType};
use crate::{DrawKey, Mask, MaskTable, Pipeline, Step, per_op, perform_on_mask};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stokehold_jpeg::{Decoder, Input, Layout};

/// What makes images of files: `per-op`, `fused` or `gpu` in text and in files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Executor {
    /// Every operation on the full image, as torchvision does: the reference, and trial A.
    PerOp,
    /// One plan per image: one resampling, only the pixels that it needs.
    #[default]
    Fused,
    /// As `Fused`, to the bit, by a device that makes whole batches. One image alone is made by `Fused`.
    Gpu,
}

impl std::fmt::Display for Executor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Executor::PerOp => "per-op",
            Executor::Fused => "fused",
            Executor::Gpu => "gpu",
        })
    }
}

impl std::str::FromStr for Executor {
    type Err = PipelineError;

    fn from_str(name: &str) -> Result<Executor, PipelineError> {
        match name {
            "per-op" => Ok(Executor::PerOp),
            "fused" => Ok(Executor::Fused),
            "gpu" => Ok(Executor::Gpu),
            other => Err(PipelineError::UnknownExecutor(other.into())),
        }
    }
}

/// The time of the two halves of the work.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StageTimes {
    /// From bytes to pixels.
    pub decode: Duration,
    /// From pixels to the numbers of the sample.
    pub augment: Duration,
}

/// Buffers for images of at most this many pixels are kept for the next image; those of larger images are
/// freed. Typical camera images are below this, and decoding a larger image costs far more than new memory.
const KEPT_PIXELS: u64 = 1 << 25;

/// Whether an image of this size, or an intermediate result of the steps, is so large that buffers are freed
/// after it.
pub(crate) fn is_outlier(steps: &[Step], width: u32, height: u32) -> bool {
    let (mut w, mut h) = (width, height);
    let large = |w: u32, h: u32| u64::from(w) * u64::from(h) > KEPT_PIXELS || w.max(h) > u16::MAX.into();
    large(w, h)
        || steps.iter().any(|step| {
            (w, h) = step.size_after(w, h);
            large(w, h)
        })
}

/// Runs one pipeline on image after image; use one per thread. It reuses its buffers, except those for an
/// image above 2^25 pixels.
pub struct Runner {
    pipeline: Arc<Pipeline>,
    executor: Executor,
    options: DecodeOptions,
    output_len: usize,
    /// Whether the pipeline ends with `ToFloat`, so that samples can be bytes.
    ends_in_bytes: bool,
    jpeg: Decoder,
    pixels: Vec<u8>,
    scratch: Scratch,
    /// Whether the current image leaves buffers that are not worth keeping.
    outlier: bool,
}

impl Runner {
    /// A runner for a pipeline that makes batches.
    ///
    /// # Errors
    /// The errors of [`Pipeline::check`].
    pub fn new(
        pipeline: Arc<Pipeline>,
        executor: Executor,
        options: DecodeOptions,
    ) -> Result<Runner, PipelineError> {
        let (width, height) = pipeline.check()?;
        let ends_in_bytes = pipeline.check_output(SampleType::U8).is_ok();
        let output_len = 3 * width as usize * height as usize;
        let (jpeg, pixels, scratch) = (Decoder::new(), Vec::new(), Scratch::default());
        Ok(Runner {
            pipeline,
            executor,
            options,
            output_len,
            ends_in_bytes,
            jpeg,
            pixels,
            scratch,
            outlier: false,
        })
    }

    /// Numbers of one sample: 3 * height * width.
    pub fn output_len(&self) -> usize {
        self.output_len
    }

    /// Decodes and transforms one sample into `out` (3, height, width). If the input has the positions of a
    /// JPEG's rows, those above the needed part are skipped. `out` is a slice or vector of `f32`, `f16`,
    /// `bf16`, or of `u8` if [`Pipeline::check_output`] allows it.
    ///
    /// # Errors
    /// [`ImageError`] if the bytes are broken or the image does not fit the pipeline; the contents of `out`
    /// are then unspecified.
    ///
    /// # Panics
    /// If the length of `out` is not [`Runner::output_len`], or if it is `u8` against
    /// [`Pipeline::check_output`].
    pub fn run<'a, 'b>(
        &mut self,
        input: impl Into<Input<'a>>,
        key: DrawKey,
        out: impl Into<SampleMut<'b>>,
    ) -> Result<StageTimes, ImageError> {
        self.run_freeing(input.into(), key, out.into(), None)
    }

    /// As [`Runner::run`], for an image and its mask with one draw: the mask goes through the geometry of the image, and each
    /// of its pixels takes the nearest one; `classes` (height, width) receives class numbers, [`Mask::IGNORE`] where the image
    /// does not reach.
    ///
    /// A mask has a pixel for each of its image as the pipeline sees it: for those that are stored, or with
    /// [`DecodeOptions::exif`] for those that the image's EXIF orientation shows.
    ///
    /// # Errors
    /// As [`Runner::run`]; [`ImageError::Mask`] if the mask is broken or has another size.
    ///
    /// # Panics
    /// As [`Runner::run`], or if the length of `classes` is not a third of [`Runner::output_len`].
    pub fn run_pair<'a, 'b>(
        &mut self,
        input: impl Into<Input<'a>>,
        (mask, table): (&[u8], &MaskTable),
        key: DrawKey,
        out: impl Into<SampleMut<'b>>,
        classes: &mut [u8],
    ) -> Result<StageTimes, ImageError> {
        self.run_freeing(input.into(), key, out.into(), Some((mask, table, classes)))
    }

    /// As [`Runner::run_on`]; afterwards the buffers of an outlier are freed.
    fn run_freeing(
        &mut self,
        input: Input<'_>,
        key: DrawKey,
        out: SampleMut<'_>,
        mask: Option<MaskOf<'_>>,
    ) -> Result<StageTimes, ImageError> {
        let done = self.run_on(input, key, out, mask);
        if std::mem::take(&mut self.outlier) {
            (self.jpeg, self.pixels, self.scratch) = (Decoder::new(), Vec::new(), Scratch::default());
        }
        done
    }

    fn run_on(
        &mut self,
        input: Input<'_>,
        key: DrawKey,
        out: SampleMut<'_>,
        mask: Option<MaskOf<'_>>,
    ) -> Result<StageTimes, ImageError> {
        assert_eq!(out.len(), self.output_len, "the output of a sample");
        assert!(
            self.ends_in_bytes || out.sample_type() != SampleType::U8,
            "bytes of a pipeline that ends in floats"
        );
        let begin = Instant::now();
        let info = decode::probe(input.bytes)?;
        let steps = decode::steps(&info, &self.options, &self.pipeline, key)?;
        self.outlier = is_outlier(&steps, info.width, info.height);
        let mut times = StageTimes {
            decode: begin.elapsed(),
            augment: Duration::ZERO,
        };
        if let Some((mask, table, classes)) = mask {
            let begin = Instant::now();
            let (mask, steps) = decode_mask(&info, &steps, (mask, table), &self.options)?;
            let decoded = begin.elapsed();
            classes.copy_from_slice(&perform_on_mask(self.executor, steps, mask).data);
            times.decode += decoded;
            times.augment += begin.elapsed() - decoded;
        }
        let of_image = self.perform(input, &info, &steps, out)?;
        times.decode += of_image.decode;
        times.augment += of_image.augment;
        Ok(times)
    }

    /// Decodes and transforms an image whose header is `info`, by steps that were drawn for it.
    fn perform(
        &mut self,
        input: Input<'_>,
        info: &ImageInfo,
        steps: &[Step],
        out: SampleMut<'_>,
    ) -> Result<StageTimes, ImageError> {
        let begin = Instant::now();
        match self.executor {
            Executor::PerOp => {
                let image = decode::decode_stored(input, info, &mut self.jpeg)?;
                let decode = begin.elapsed();
                per_op::execute(steps, image, out);
                Ok(StageTimes {
                    decode,
                    augment: begin.elapsed() - decode,
                })
            }
            Executor::Fused | Executor::Gpu => {
                let plan = Plan::new(steps, info.width, info.height);
                let region = plan.region(info.width, info.height);
                let source = if info.format == Format::Jpeg {
                    let scale = plan.decode_scale();
                    if plan.wants_planes() && info.has_planes() {
                        let planes = self.jpeg.decode_planes(input, region, scale)?;
                        Source::Planes(Planes::of(&planes))
                    } else {
                        let pixels = self.jpeg.decode(input, region, scale, Layout::Rgbx)?;
                        Source::Pixels(Rgbx::of(&pixels, region, scale))
                    }
                } else {
                    let image = decode::decode_stored(input, info, &mut self.jpeg)?;
                    self.pixels.clear();
                    image
                        .pixels()
                        .iter()
                        .for_each(|p| self.pixels.extend_from_slice(&[p[0], p[1], p[2], 255]));
                    Source::Pixels(Rgbx::whole(&self.pixels, info.width, info.height))
                };
                let decode = begin.elapsed();
                plan.execute(source, &mut self.scratch, out);
                Ok(StageTimes {
                    decode,
                    augment: begin.elapsed() - decode,
                })
            }
        }
    }
}

/// A mask's file, how it is read, and the place for the classes of its pixels.
type MaskOf<'a> = (&'a [u8], &'a MaskTable, &'a mut [u8]);

/// The mask of the image that `info` and `steps` are of, and the steps that are its own: what turns the image upright is done.
fn decode_mask<'a>(
    info: &ImageInfo,
    steps: &'a [Step],
    (mask, table): (&[u8], &MaskTable),
    options: &DecodeOptions,
) -> Result<(Mask, &'a [Step]), ImageError> {
    let upright = if options.exif { info.upright() } else { Vec::new() };
    let (image_width, image_height) = Step::size_after_all(&upright, info.width, info.height);
    let mask = Mask::decode(mask, table)?;
    let (width, height) = (mask.width, mask.height);
    if (width, height) != (image_width, image_height) {
        return Err(ImageError::Mask(MaskError::OtherSize {
            width,
            height,
            image_width,
            image_height,
            turned: !upright.is_empty(),
        }));
    }
    Ok((mask, &steps[upright.len()..]))
}

/// The classes of a mask's pixels after the steps that are drawn for the file `image`.
///
/// # Errors
/// As [`Runner::run_pair`].
#[doc(hidden)]
pub fn run_mask(
    image: &[u8],
    mask: (&[u8], &MaskTable),
    pipeline: &Pipeline,
    options: &DecodeOptions,
    key: DrawKey,
) -> Result<Mask, ImageError> {
    let info = decode::probe(image)?;
    let steps = decode::steps(&info, options, pipeline, key)?;
    let (mask, steps) = decode_mask(&info, &steps, mask, options)?;
    Ok(perform_on_mask(Executor::Fused, steps, mask))
}
