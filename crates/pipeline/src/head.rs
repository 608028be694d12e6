//! The head of a pipeline: the operations at its beginning that make the same of an image in every epoch.
//!
//! They can be performed once, when the data set is prepared, instead of in every epoch:
//!
//! ```
//! use stokehold_pipeline::Pipeline;
//!
//! let pipeline = Pipeline::caltech(); // Resize, RandomCrop, ToFloat
//! let head = pipeline.head();
//! assert_eq!(head.moves.len(), 1);
//! assert_eq!(head.stays[0].reason, "it draws anew for every sample and epoch");
//!
//! let rest = pipeline.after(head.moves)?;
//! assert_eq!(rest.check()?, pipeline.check()?);
//! # Ok::<(), stokehold_pipeline::PipelineError>(())
//! ```
//!
//! What remains keeps its draws: an operation is addressed by its place in the whole pipeline.

use crate::decode::{self, DecodeOptions, probe};
use crate::op::Op;
use crate::pipeline::size_after_all;
use crate::{DrawKey, ImageError, Pipeline, PipelineError, RgbImage, Step, per_op};
use stokehold_jpeg::Decoder;

/// A pipeline in two parts.
#[derive(Debug, Clone, PartialEq)]
pub struct Head<'a> {
    /// The operations that can be performed once.
    pub moves: &'a [Op],
    /// Those that cannot.
    pub stays: Vec<Stays<'a>>,
}

/// An operation that is performed in every epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct Stays<'a> {
    /// The operation.
    pub op: &'a Op,
    /// Why, in words.
    pub reason: String,
}

/// What of a pipeline the images have behind them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Behind {
    /// Operations, from the first on.
    pub ops: usize,
    /// Width and height of the output, if [`Pipeline::check`] knows it of the whole pipeline.
    pub output: Option<(u32, u32)>,
}

impl Pipeline {
    /// The longest head whose operations draw nothing and make images of bytes, and why the others stay.
    pub fn head(&self) -> Head<'_> {
        let moves = self.ops.iter().take_while(|op| op.is_same_every_time()).count();
        let (moves, rest) = self.ops.split_at(moves);
        let first = rest.first().map_or("", Op::name);
        let stays = rest.iter().map(|op| Stays {
            op,
            reason: match op {
                Op::ToFloat => "it makes floats, and files hold bytes".into(),
                Op::Normalize(_) => "it works on floats, and files hold bytes".into(),
                op if op.is_same_every_time() => format!("it comes after {first}, which stays"),
                _ => "it draws anew for every sample and epoch".into(),
            },
        });
        Head {
            moves,
            stays: stays.collect(),
        }
    }

    /// This pipeline for images that `performed` was performed on: it leaves those operations out, and the others draw what
    /// they draw in the whole pipeline.
    ///
    /// # Errors
    /// The pipeline does not begin with these operations; it is not valid.
    pub fn after(&self, performed: &[Op]) -> Result<Pipeline, PipelineError> {
        let output = self.check_before_images()?;
        if let Some(at) = (0..performed.len()).find(|&at| self.ops.get(at) != Some(&performed[at])) {
            let text = |op: &Op| serde_json::to_string(op).unwrap_or_else(|_| op.name().to_owned());
            let there = self.ops.get(at).map_or("nothing".to_owned(), text);
            return Err(PipelineError::OtherHead {
                number: at + 1,
                performed: text(&performed[at]),
                there,
            });
        }
        let ops = performed.len();
        Ok(Pipeline {
            behind: (ops > 0).then_some(Behind { ops, output }),
            ..self.clone()
        })
    }

    /// How many operations the images have behind them.
    pub(crate) fn ops_behind(&self) -> usize {
        self.behind.map_or(0, |behind| behind.ops)
    }

    /// The operations that are left to do.
    pub(crate) fn ops_ahead(&self) -> &[Op] {
        &self.ops[self.ops_behind().min(self.ops.len())..]
    }

    /// Checks that steps lead to the size of the output. Operations make it so; where some of them were performed elsewhere, or the
    /// size is that of the first image, the image may be another.
    pub(crate) fn check_steps(&self, steps: &[Step], width: u32, height: u32) -> Result<(), ImageError> {
        let (w, h) = Step::size_after_all(steps, width, height);
        let Some(output) = self.behind.and_then(|behind| behind.output) else {
            let of_first = |first| Some((first, size_after_all(self.ops_ahead(), Some(first))?));
            return match self.images.and_then(of_first) {
                Some((first, output)) if output != (w, h) => Err(ImageError::OtherSize {
                    image: (width, height),
                    first,
                    becomes: (w, h),
                    output,
                }),
                _ => Ok(()),
            };
        };
        if (w, h) == output {
            return Ok(());
        }
        Err(ImageError::DoesNotFit(format!(
            "the image of {width}x{height} pixels becomes one of {w}x{h}, and a batch holds {}x{}: it was not prepared \
             with the head of this pipeline",
            output.0, output.1
        )))
    }
}

/// Decodes an image and performs operations of a [`Head`] on it, one after the other. `None` where they leave the image as it
/// is.
///
/// # Errors
/// The bytes are broken, or the image does not fit the operations.
pub fn bake(ops: &[Op], bytes: &[u8], options: &DecodeOptions) -> Result<Option<RgbImage>, ImageError> {
    let info = probe(bytes)?;
    let pipeline = Pipeline::new(ops.to_vec());
    // Nothing in a head looks at what it draws.
    let key = DrawKey {
        seed: 0,
        epoch: 0,
        sample: 0,
    };
    let steps = decode::steps(&info, options, &pipeline, key)?;
    if steps.iter().all(|step| step.keeps((info.width, info.height))) {
        return Ok(None);
    }
    let image = decode::decode_stored(bytes.into(), &info, &mut Decoder::new())?;
    Ok(Some(
        steps.iter().fold(image, |image, step| per_op::apply(step, image)),
    ))
}

impl Op {
    /// Whether it makes the same of an image every time, and bytes of bytes.
    fn is_same_every_time(&self) -> bool {
        let certain = |p: f64| p <= 0.0 || p >= 1.0;
        let one = |[low, high]: [f64; 2]| low == high;
        match self {
            Op::Resize(_) | Op::CenterCrop(_) | Op::Pad(_) | Op::Grayscale | Op::Dilation(_) => true,
            Op::RandomHorizontalFlip(o) | Op::RandomVerticalFlip(o) => certain(o.p),
            Op::RandomGrayscale(o) => certain(o.p),
            Op::RandomInvert(o) | Op::RandomAutocontrast(o) | Op::RandomEqualize(o) => certain(o.p),
            Op::RandomPosterize(o) => certain(o.p),
            Op::RandomSolarize(o) => certain(o.p),
            Op::RandomAdjustSharpness(o) => certain(o.p),
            Op::RandomZoomOut(o) => o.p <= 0.0,
            Op::RandomRotation(o) => one(o.range()),
            Op::GaussianBlur(o) => one(o.sigma_range()),
            Op::Repeat(o) => o.ops.iter().all(Op::is_same_every_time),
            _ => false,
        }
    }
}

impl Step {
    /// Whether it leaves an image of this size as it is.
    fn keeps(&self, size: (u32, u32)) -> bool {
        match *self {
            Step::Resize { width, height, .. } | Step::Crop { width, height, .. } => (width, height) == size,
            _ => false,
        }
    }
}
