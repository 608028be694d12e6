//! A pipeline as data: presets, files, and the check that it makes batches.

use crate::error::PipelineError;
use crate::head::Behind;
use crate::op::*;
use crate::sample::SampleType;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A list of operations.
///
/// In TOML every operation is a table of the array `op`:
///
/// ```
/// let pipeline = stokehold_pipeline::Pipeline::from_toml(r#"
///     [[op]]
///     type = "RandomResizedCrop"
///     size = 224
///     [[op]]
///     type = "RandomHorizontalFlip"
///     [[op]]
///     type = "ToFloat"
/// "#)?;
/// assert_eq!(pipeline.check()?, (224, 224));
/// # Ok::<(), stokehold_pipeline::PipelineError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pipeline {
    /// The operations in order.
    #[serde(rename = "op")]
    pub ops: Vec<Op>,
    /// Set where the images have some of them behind them ([`Pipeline::after`]). No part of a file: it is a property of images.
    #[serde(skip)]
    pub(crate) behind: Option<Behind>,
    /// The size that all images have, where that is known ([`Pipeline::of_images`]). No part of a file either.
    #[serde(skip)]
    pub(crate) images: Option<(u32, u32)>,
}

impl Pipeline {
    /// A pipeline of these operations.
    pub fn new(ops: Vec<Op>) -> Pipeline {
        Pipeline {
            ops,
            behind: None,
            images: None,
        }
    }

    /// This pipeline for images that all have one size, width and height in pixels. Where the size of its output depends on that of
    /// its input, an image of another size is [`ImageError::OtherSize`](crate::ImageError::OtherSize).
    ///
    /// ```
    /// use stokehold_pipeline::{Pipeline, PipelineError, op::Op};
    ///
    /// let pipeline = Pipeline::new(vec![Op::ToFloat]);
    /// assert!(matches!(pipeline.check(), Err(PipelineError::SizeOfImages)));
    /// assert_eq!(pipeline.of_images(32, 24).check()?, (32, 24));
    /// # Ok::<(), PipelineError>(())
    /// ```
    #[must_use]
    pub fn of_images(self, width: u32, height: u32) -> Pipeline {
        Pipeline {
            images: Some((width, height)),
            ..self
        }
    }

    /// The names that [`Pipeline::preset`] knows.
    pub const PRESETS: [&str; 4] = ["imagenet-train", "imagenet-eval", "published", "caltech"];

    /// A preset by name, at its published size: `imagenet-train` (224), `imagenet-eval` (256, 224), `published`
    /// (load 1, 224), `caltech`.
    ///
    /// # Errors
    /// [`PipelineError::UnknownPreset`].
    pub fn preset(name: &str) -> Result<Pipeline, PipelineError> {
        match name {
            "imagenet-train" => Ok(Pipeline::imagenet_train(224)),
            "imagenet-eval" => Ok(Pipeline::imagenet_eval(256, 224)),
            "published" => Ok(Pipeline::published(1, 224)),
            "caltech" => Ok(Pipeline::caltech()),
            other => Err(PipelineError::UnknownPreset(other.into())),
        }
    }

    /// The pipeline with a name given by a user: a file ([`Pipeline::load`]) if the name has an extension,
    /// else a preset.
    ///
    /// # Errors
    /// The errors of [`Pipeline::load`] and [`Pipeline::preset`].
    pub fn named(name: &str) -> Result<Pipeline, PipelineError> {
        match Path::new(name).extension() {
            Some(_) => Pipeline::load(Path::new(name)),
            None => Pipeline::preset(name),
        }
    }

    /// The same with the other one's `Normalize` in the place of its own, or without one.
    #[must_use]
    pub fn normalised_as(mut self, other: &Pipeline) -> Pipeline {
        let is_normalize = |op: &&Op| matches!(op, Op::Normalize(_));
        let normalize = other.ops.iter().find(is_normalize);
        self.ops = self
            .ops
            .iter()
            .filter_map(|op| if is_normalize(&op) { normalize } else { Some(op) })
            .cloned()
            .collect();
        self
    }

    /// The usual ImageNet training recipe: random resized crop, horizontal flip, normalise.
    pub fn imagenet_train(size: u32) -> Pipeline {
        let mut ops = vec![
            Op::RandomResizedCrop(RandomResizedCrop::new(size)),
            Op::RandomHorizontalFlip(RandomFlip::default()),
        ];
        ops.extend(to_normalised());
        Pipeline::new(ops)
    }

    /// The usual ImageNet evaluation: shorter edge to `resize`, centre `crop`, normalise.
    pub fn imagenet_eval(resize: u32, crop: u32) -> Pipeline {
        let size = Size::Side(resize);
        let mut ops = vec![
            Op::Resize(Resize {
                size,
                interpolation: Filter::Bilinear,
                max_size: None,
            }),
            Op::CenterCrop(CenterCrop {
                size: Size::Side(crop),
            }),
        ];
        ops.extend(to_normalised());
        Pipeline::new(ops)
    }

    /// The usual training of a segmenter on pairs of images and masks: a random crop of a quarter to all of the image, of
    /// nearly the output's shape, resized to `size`, flip, normalise. torchvision's references resize by 0.5 to 2 first and
    /// crop then, which pads images that became too small.
    pub fn pairs_train(size: Size) -> Pipeline {
        let [height, width] = size.height_width().map(f64::from);
        let mut ops = vec![
            Op::RandomResizedCrop(RandomResizedCrop {
                size,
                scale: [0.25, 1.0],
                ratio: [0.75, 4.0 / 3.0].map(|ratio| ratio * width / height),
                interpolation: Filter::Bilinear,
            }),
            Op::RandomHorizontalFlip(RandomFlip::default()),
        ];
        ops.extend(to_normalised());
        Pipeline::new(ops)
    }

    /// The usual evaluation of a segmenter: the whole image, resized to `size`, which may change its shape; normalise.
    pub fn pairs_eval(size: Size) -> Pipeline {
        let [height, width] = size.height_width();
        let mut ops = vec![Op::Resize(Resize {
            size: Size::HeightWidth([height, width]),
            interpolation: Filter::Bilinear,
            max_size: None,
        })];
        ops.extend(to_normalised());
        Pipeline::new(ops)
    }

    /// The published load experiment: `load` times horizontal flip, vertical flip and rotation by up to 5 degrees on
    /// the full-size image, then random resized crop. Load 0 is [`Pipeline::imagenet_train`].
    pub fn published(load: u32, size: u32) -> Pipeline {
        if load == 0 {
            return Pipeline::imagenet_train(size);
        }
        let flip = RandomFlip::default;
        let repeated = vec![
            Op::RandomHorizontalFlip(flip()),
            Op::RandomVerticalFlip(flip()),
            Op::RandomRotation(RandomRotation::new(5.0)),
        ];
        let mut ops = vec![
            Op::Repeat(Repeat {
                times: load,
                ops: repeated,
            }),
            Op::RandomResizedCrop(RandomResizedCrop::new(size)),
        ];
        ops.extend(to_normalised());
        Pipeline::new(ops)
    }

    /// The published Caltech-256 experiment: resize to 256x256, random crop of 224, to float, no normalisation.
    pub fn caltech() -> Pipeline {
        let size = Size::HeightWidth([256, 256]);
        Pipeline::new(vec![
            Op::Resize(Resize {
                size,
                interpolation: Filter::Bilinear,
                max_size: None,
            }),
            Op::RandomCrop(RandomCrop {
                size: Size::Side(224),
                padding: None,
                pad_if_needed: false,
                fill: Fill::default(),
                padding_mode: PaddingMode::Constant,
            }),
            Op::ToFloat,
        ])
    }

    /// Reads a pipeline from TOML.
    ///
    /// # Errors
    /// [`PipelineError::Parse`] with line and column.
    pub fn from_toml(text: &str) -> Result<Pipeline, PipelineError> {
        toml::from_str(text).map_err(|e| parse_error("pipeline (TOML)", e))
    }

    /// Reads a pipeline from JSON.
    ///
    /// # Errors
    /// [`PipelineError::Parse`] with line and column.
    pub fn from_json(text: &str) -> Result<Pipeline, PipelineError> {
        serde_json::from_str(text).map_err(|e| parse_error("pipeline (JSON)", e))
    }

    /// Reads a file: JSON if its name ends in `.json`, else TOML.
    ///
    /// # Errors
    /// [`PipelineError::Read`] and [`PipelineError::Parse`] name the file.
    pub fn load(path: &Path) -> Result<Pipeline, PipelineError> {
        let origin = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|reason| PipelineError::Read {
            path: origin.clone(),
            reason,
        })?;
        if path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json")) {
            serde_json::from_str(&text).map_err(|e| parse_error(&origin, e))
        } else {
            toml::from_str(&text).map_err(|e| parse_error(&origin, e))
        }
    }

    /// The operations with every repetition unrolled, each composition before the operations that it draws from. Draws are
    /// keyed by the index in this list.
    pub(crate) fn flat(&self) -> Vec<&Op> {
        fn unroll<'a>(ops: &'a [Op], into: &mut Vec<&'a Op>) {
            for op in ops {
                let times = match op {
                    Op::Repeat(repeat) => repeat.times(),
                    op => {
                        into.push(op);
                        1
                    }
                };
                (0..times).for_each(|_| unroll(op.nested(), into));
            }
        }
        let mut flat = Vec::new();
        unroll(&self.ops, &mut flat);
        flat
    }

    /// Checks every parameter and the order. Returns the (width, height) of every output image.
    ///
    /// # Errors
    /// [`PipelineError::Operation`] if a parameter is out of range or an operation is on the wrong side of
    /// `ToFloat`; [`PipelineError::SizeOfImages`] if there is one size of the output only where all images have one, which is
    /// not known ([`Pipeline::of_images`]); [`PipelineError::Shape`] if `ToFloat` is missing or images of one size come out in
    /// different ones.
    pub fn check(&self) -> Result<(u32, u32), PipelineError> {
        if places(&self.ops) > 10_000 {
            return Err(PipelineError::Shape(
                "the pipeline unrolls to more than 10,000 operations".into(),
            ));
        }
        let mut float = false;
        for (at, op) in self.flat().into_iter().enumerate() {
            let fail = |problem| PipelineError::Operation {
                number: at + 1,
                name: op.name(),
                problem,
            };
            op.check().map_err(fail)?;
            match (op, float) {
                (Op::ToFloat, true) => return Err(fail("the image is float already".into())),
                (Op::ToFloat, false) => float = true,
                (Op::Normalize(_) | Op::RandomErasing(_) | Op::GaussianNoise(_), false) => {
                    return Err(fail("it works on floats; put ToFloat before it".into()));
                }
                (Op::Normalize(_) | Op::RandomErasing(_) | Op::GaussianNoise(_), true) => {}
                // What they compose is checked after them.
                (Op::RandomApply(_) | Op::RandomChoice(_) | Op::RandomOrder(_), _) => {}
                (_, true) => return Err(fail("it works on bytes; put it before ToFloat".into())),
                (_, false) => {}
            }
        }
        if !float {
            return Err(PipelineError::Shape(
                "the pipeline does not end in floats; add ToFloat".into(),
            ));
        }
        let of_one_size = |images| size_after_all(self.ops_ahead(), images);
        if let Some(output) = self
            .behind
            .and_then(|behind| behind.output)
            .or(of_one_size(self.images))
        {
            return Ok(output);
        }
        // Of images of a size that no operation names.
        match self.images.is_none() && of_one_size(Some((4099, 3571))).is_some() {
            true => Err(PipelineError::SizeOfImages),
            false => Err(PipelineError::Shape(format!(
                "images come out in different sizes and make no batch; {ONE_SIZE}"
            ))),
        }
    }

    /// As [`Pipeline::check`], before the images are known: `None` if there is one size of the output only where all images have one.
    ///
    /// # Errors
    /// As [`Pipeline::check`], but for [`PipelineError::SizeOfImages`].
    pub fn check_before_images(&self) -> Result<Option<(u32, u32)>, PipelineError> {
        match self.check() {
            Err(PipelineError::SizeOfImages) => Ok(None),
            output => output.map(Some),
        }
    }

    /// Checks whether samples of this pipeline can have a type: `u8` holds the bytes before `ToFloat`, so
    /// nothing may follow.
    ///
    /// # Errors
    /// The first operation that needs floats, and what to do about it.
    pub fn check_output(&self, sample_type: SampleType) -> Result<(), PipelineError> {
        if sample_type != SampleType::U8 {
            return Ok(());
        }
        let ops = self.flat();
        let mut from_float = ops.iter().enumerate().skip_while(|(_, op)| ***op != Op::ToFloat);
        match from_float.nth(1) {
            None => Ok(()),
            Some((at, op)) => Err(PipelineError::Operation {
                number: at + 1,
                name: op.name(),
                problem: "it needs floats, and u8 samples are the bytes before ToFloat; take it out and do it where \
                          the samples are used, or choose f32, f16 or bf16"
                    .into(),
            }),
        }
    }

    /// Checks whether the mask of an image can go through the pipeline next to it.
    ///
    /// # Errors
    /// The first operation that leaves no mask, and what to do about it.
    pub fn check_masks(&self) -> Result<(), PipelineError> {
        let mixes = |(_, op): &(usize, &Op)| matches!(op, Op::AugMix(_));
        match self.flat().into_iter().enumerate().find(mixes) {
            None => Ok(()),
            Some((at, op)) => Err(PipelineError::Operation {
                number: at + 1,
                name: op.name(),
                problem: "it mixes an image with turned and moved copies of it, and classes cannot be mixed; with masks use \
                          TrivialAugmentWide or RandAugment"
                    .into(),
            }),
        }
    }

    /// Checks whether the executor `gpu` has a kernel for every operation.
    ///
    /// # Errors
    /// The first operation that it cannot perform, and what to do about it.
    pub fn check_on_device(&self) -> Result<(), PipelineError> {
        match self
            .flat()
            .into_iter()
            .enumerate()
            .find(|(_, op)| !op.is_on_device())
        {
            None => Ok(()),
            Some((at, op)) => Err(PipelineError::Operation {
                number: at + 1,
                name: op.name(),
                problem: "the executor gpu cannot perform it; use the executor fused, or take it out".into(),
            }),
        }
    }
}

/// What to do about images that come out in different sizes.
pub(crate) const ONE_SIZE: &str =
    "end the geometry with RandomResizedCrop, CenterCrop, RandomCrop, or Resize to [height, width]";

/// How many operations a list unrolls to.
pub(crate) fn places(ops: &[Op]) -> u32 {
    ops.iter().map(Op::places).fold(0, u32::saturating_add)
}

/// The size after operations one after the other, if it is the same for every image.
pub(crate) fn size_after_all(ops: &[Op], before: Option<(u32, u32)>) -> Option<(u32, u32)> {
    ops.iter().fold(before, |size, op| op.size_after(size))
}

fn to_normalised() -> [Op; 2] {
    [Op::ToFloat, Op::Normalize(Normalize::default())]
}

fn parse_error(origin: &str, error: impl std::fmt::Display) -> PipelineError {
    PipelineError::Parse {
        origin: origin.into(),
        reason: error.to_string(),
    }
}

/// The largest side that an operation may have.
const MAX_SIDE: u32 = 16_384;
/// The most changes of one `RandAugment`; papers use up to 6.
const MAX_CHANGES: u32 = 100;
/// The most magnitudes of a change; papers use 10 and 31.
const MAX_BINS: u32 = 10_000;
/// The largest angle of a rotation in degrees: a thousand turns.
const MAX_DEGREES: f64 = 360_000.0;
/// How much an affine operation scales at most, up or down. Beyond, a pixel is all of an image.
const MAX_SCALE: f64 = 100.0;
/// The largest shear in degrees: towards 90 nothing but one line is left of an image.
const MAX_SHEAR: f64 = 80.0;
/// The largest distance of a rotation's centre from an image's corner: beyond the largest sides that can be
/// read.
const MAX_CENTER: u32 = 1_000_000;

impl Op {
    /// The operation's type, as in a file.
    pub fn name(&self) -> &'static str {
        match self {
            Op::RandomHorizontalFlip(_) => "RandomHorizontalFlip",
            Op::RandomVerticalFlip(_) => "RandomVerticalFlip",
            Op::RandomRotation(_) => "RandomRotation",
            Op::RandomAffine(_) => "RandomAffine",
            Op::RandomPerspective(_) => "RandomPerspective",
            Op::RandomResizedCrop(_) => "RandomResizedCrop",
            Op::Resize(_) => "Resize",
            Op::CenterCrop(_) => "CenterCrop",
            Op::RandomCrop(_) => "RandomCrop",
            Op::RandomResize(_) => "RandomResize",
            Op::RandomShortestSize(_) => "RandomShortestSize",
            Op::ScaleJitter(_) => "ScaleJitter",
            Op::Pad(_) => "Pad",
            Op::RandomZoomOut(_) => "RandomZoomOut",
            Op::ColorJitter(_) => "ColorJitter",
            Op::RandomPhotometricDistort(_) => "RandomPhotometricDistort",
            Op::RandomChannelPermutation => "RandomChannelPermutation",
            Op::Grayscale => "Grayscale",
            Op::RandomGrayscale(_) => "RandomGrayscale",
            Op::RandomInvert(_) => "RandomInvert",
            Op::RandomPosterize(_) => "RandomPosterize",
            Op::RandomSolarize(_) => "RandomSolarize",
            Op::RandomAutocontrast(_) => "RandomAutocontrast",
            Op::RandomEqualize(_) => "RandomEqualize",
            Op::RandomAdjustSharpness(_) => "RandomAdjustSharpness",
            Op::AutoAugment(_) => "AutoAugment",
            Op::RandAugment(_) => "RandAugment",
            Op::TrivialAugmentWide(_) => "TrivialAugmentWide",
            Op::AugMix(_) => "AugMix",
            Op::GaussianBlur(_) => "GaussianBlur",
            Op::Dilation(_) => "Dilation",
            Op::RandomErasing(_) => "RandomErasing",
            Op::GaussianNoise(_) => "GaussianNoise",
            Op::ToFloat => "ToFloat",
            Op::Normalize(_) => "Normalize",
            Op::Repeat(_) => "Repeat",
            Op::RandomApply(_) => "RandomApply",
            Op::RandomChoice(_) => "RandomChoice",
            Op::RandomOrder(_) => "RandomOrder",
        }
    }

    /// The operations that this one performs.
    fn nested(&self) -> &[Op] {
        match self {
            Op::Repeat(o) => &o.ops,
            Op::RandomApply(o) => &o.ops,
            Op::RandomChoice(o) => &o.ops,
            Op::RandomOrder(o) => &o.ops,
            _ => &[],
        }
    }

    /// How many operations it unrolls to; a composition counts as one more than what it composes.
    pub(crate) fn places(&self) -> u32 {
        match self {
            Op::Repeat(o) => o.times.saturating_mul(places(&o.ops)),
            op => places(op.nested()).saturating_add(1),
        }
    }

    fn holds_to_float(&self) -> bool {
        *self == Op::ToFloat || self.nested().iter().any(Op::holds_to_float)
    }

    /// Whether the executor `gpu` has a kernel for every step that the operation can become. What it contains is asked by itself.
    fn is_on_device(&self) -> bool {
        !matches!(
            self,
            Op::RandomPerspective(_) | Op::GaussianNoise(_) | Op::AugMix(_)
        )
    }

    /// The size after the operation, if it is the same for every image.
    fn size_after(&self, before: Option<(u32, u32)>) -> Option<(u32, u32)> {
        let fixed = |size: &Size| {
            let [h, w] = size.height_width();
            Some((w, h))
        };
        match self {
            Op::RandomResizedCrop(o) => fixed(&o.size),
            Op::CenterCrop(o) => fixed(&o.size),
            Op::RandomCrop(o) => fixed(&o.size),
            Op::Resize(Resize {
                size: size @ Size::HeightWidth(_),
                ..
            }) => fixed(size),
            Op::Resize(resize) => before.map(|(w, h)| resize.target(w, h)),
            Op::Pad(pad) => before.map(|(w, h)| {
                let [l, t, r, b] = pad.padding.sides();
                (w + l + r, h + t + b)
            }),
            Op::RandomResize(_) | Op::RandomShortestSize(_) | Op::ScaleJitter(_) => None,
            Op::RandomZoomOut(o) if o.p > 0.0 && o.side_range[1] > 1.0 => None,
            Op::RandomRotation(r) if r.expand => None,
            Op::Repeat(o) => (0..o.times()).fold(before, |size, _| size_after_all(&o.ops, size)),
            Op::RandomApply(o) => before.filter(|_| size_after_all(&o.ops, before) == before),
            Op::RandomChoice(o) => {
                let mut sizes = o.ops.iter().map(|op| op.size_after(before));
                let first = sizes.next()?;
                first.filter(|_| sizes.all(|size| size == first))
            }
            Op::RandomOrder(o) => o.size_after(before),
            _ => before,
        }
    }

    fn check(&self) -> Result<(), String> {
        let probability = |p: f64| check((0.0..=1.0).contains(&p), || format!("p = {p}; allowed: 0 to 1"));
        let size = |size: &Size| {
            let ok = size
                .height_width()
                .iter()
                .all(|side| (1..=MAX_SIDE).contains(side));
            check(ok, || {
                format!(
                    "size = {:?}; allowed: 1 to {MAX_SIDE} pixels",
                    size.height_width()
                )
            })
        };
        let range = |name: &str, [low, high]: [f64; 2], from: f64, to: f64| {
            let ok = from <= low && low <= high && high <= to;
            check(ok, || {
                format!("{name} = [{low}, {high}]; allowed: low <= high within {from} to {to}")
            })
        };
        let positive = |name: &str, [low, high]: [f64; 2]| {
            let ok = 0.0 < low && low <= high && high.is_finite();
            check(ok, || {
                format!("{name} = [{low}, {high}]; allowed: 0 < low <= high")
            })
        };
        let padding = |padding: Padding| {
            let ok = padding.sides().iter().all(|&side| side <= MAX_SIDE);
            check(ok, || {
                format!("padding = {:?}; allowed: 0 to {MAX_SIDE} pixels", padding.sides())
            })
        };
        let center = |center: Option<[f64; 2]>| {
            let far = f64::from(MAX_CENTER);
            let at = center.unwrap_or_default();
            check(at.iter().all(|at| (-far..=far).contains(at)), || {
                format!("center = {at:?}; allowed: -{MAX_CENTER} to {MAX_CENTER} pixels")
            })
        };
        match self {
            Op::RandomHorizontalFlip(o) | Op::RandomVerticalFlip(o) => probability(o.p),
            Op::RandomRotation(o) => {
                range("degrees", o.range(), -MAX_DEGREES, MAX_DEGREES)?;
                center(o.center)
            }
            Op::RandomAffine(o) => {
                range("degrees", o.degrees.around_zero(), -MAX_DEGREES, MAX_DEGREES)?;
                let moves = o.translate.unwrap_or_default();
                check(moves.iter().all(|share| (0.0..=1.0).contains(share)), || {
                    format!("translate = {moves:?}; allowed: 0 to 1")
                })?;
                range("scale", o.scale, 1.0 / MAX_SCALE, MAX_SCALE)?;
                for shear in o.shear.map(Shear::ranges).unwrap_or_default() {
                    range("shear", shear, -MAX_SHEAR, MAX_SHEAR)?;
                }
                center(o.center)
            }
            Op::RandomPerspective(o) => {
                probability(o.p)?;
                check((0.0..=1.0).contains(&o.distortion_scale), || {
                    format!("distortion_scale = {}; allowed: 0 to 1", o.distortion_scale)
                })
            }
            Op::RandomResizedCrop(o) => {
                size(&o.size)?;
                positive("scale", o.scale)?;
                positive("ratio", o.ratio)
            }
            Op::Resize(o) => {
                size(&o.size)?;
                match (o.max_size, o.size) {
                    (Some(_), Size::HeightWidth(_)) => Err("max_size goes with one number as size".into()),
                    (Some(max), Size::Side(side)) if max <= side => {
                        Err(format!("max_size = {max}; allowed: above size = {side}"))
                    }
                    _ => Ok(()),
                }
            }
            Op::CenterCrop(o) => size(&o.size),
            Op::RandomCrop(o) => {
                size(&o.size)?;
                o.padding.map_or(Ok(()), padding)
            }
            Op::RandomResize(o) => check(
                (1..=MAX_SIDE).contains(&o.min_size) && (o.min_size + 1..=MAX_SIDE).contains(&o.max_size),
                || {
                    let (min, max) = (o.min_size, o.max_size);
                    format!(
                        "min_size = {min}, max_size = {max}; allowed: 1 <= min_size < max_size <= {MAX_SIDE} pixels"
                    )
                },
            ),
            Op::RandomShortestSize(o) => {
                let sides = o.min_size.all();
                let ok = !sides.is_empty() && sides.iter().all(|side| (1..=MAX_SIDE).contains(side));
                check(ok, || {
                    format!("min_size = {sides:?}; allowed: at least one of 1 to {MAX_SIDE} pixels")
                })?;
                check(
                    o.max_size.is_none_or(|most| (1..=MAX_SIDE).contains(&most)),
                    || {
                        let most = o.max_size.unwrap_or_default();
                        format!("max_size = {most}; allowed: 1 to {MAX_SIDE} pixels")
                    },
                )
            }
            Op::ScaleJitter(o) => {
                check(
                    o.target_size.iter().all(|side| (1..=MAX_SIDE).contains(side)),
                    || {
                        format!(
                            "target_size = {:?}; allowed: 1 to {MAX_SIDE} pixels",
                            o.target_size
                        )
                    },
                )?;
                range("scale_range", o.scale_range, 1.0 / MAX_SCALE, MAX_SCALE)
            }
            Op::Pad(o) => padding(o.padding),
            Op::RandomZoomOut(o) => {
                probability(o.p)?;
                range("side_range", o.side_range, 1.0, MAX_SCALE)
            }
            Op::RandomPhotometricDistort(o) => {
                probability(o.p)?;
                range("brightness", o.brightness, 0.0, 1000.0)?;
                range("contrast", o.contrast, 0.0, 1000.0)?;
                range("saturation", o.saturation, 0.0, 1000.0)?;
                range("hue", o.hue, -0.5, 0.5)
            }
            Op::ColorJitter(o) => {
                for (name, [low, high]) in [
                    ("brightness", o.brightness.factors()),
                    ("contrast", o.contrast.factors()),
                    ("saturation", o.saturation.factors()),
                ] {
                    range(name, [low, high], 0.0, 1000.0)?;
                }
                range("hue", o.hue.around_zero(), -0.5, 0.5)
            }
            Op::RandomGrayscale(o) => probability(o.p),
            Op::RandomInvert(o) | Op::RandomAutocontrast(o) | Op::RandomEqualize(o) => probability(o.p),
            Op::RandomPosterize(o) => {
                probability(o.p)?;
                check((1..=8).contains(&o.bits), || {
                    format!("bits = {}; allowed: 1 to 8", o.bits)
                })
            }
            Op::RandomSolarize(o) => {
                probability(o.p)?;
                check((0.0..=255.0).contains(&o.threshold), || {
                    format!("threshold = {}; allowed: 0 to 255", o.threshold)
                })
            }
            Op::RandomAdjustSharpness(o) => {
                probability(o.p)?;
                check((0.0..=1000.0).contains(&o.sharpness_factor), || {
                    format!("sharpness_factor = {}; allowed: 0 to 1000", o.sharpness_factor)
                })
            }
            Op::RandAugment(o) => {
                check_bins(o.num_magnitude_bins)?;
                check(o.num_ops <= MAX_CHANGES, || {
                    format!("num_ops = {}; allowed: 0 to {MAX_CHANGES}", o.num_ops)
                })?;
                check(o.magnitude < o.num_magnitude_bins, || {
                    let (magnitude, bins) = (o.magnitude, o.num_magnitude_bins);
                    format!("magnitude = {magnitude}; allowed: below num_magnitude_bins = {bins}")
                })
            }
            Op::TrivialAugmentWide(o) => check_bins(o.num_magnitude_bins),
            Op::AutoAugment(_) => Ok(()),
            Op::AugMix(o) => {
                check((1..=AugMix::BINS).contains(&o.severity), || {
                    format!("severity = {}; allowed: 1 to {}", o.severity, AugMix::BINS)
                })?;
                check((1..=MAX_CHANGES).contains(&o.mixture_width), || {
                    format!("mixture_width = {}; allowed: 1 to {MAX_CHANGES}", o.mixture_width)
                })?;
                let depths = 1..=MAX_CHANGES as i32;
                check(o.chain_depth == -1 || depths.contains(&o.chain_depth), || {
                    format!(
                        "chain_depth = {}; allowed: 1 to {MAX_CHANGES}, or -1",
                        o.chain_depth
                    )
                })?;
                check((1e-3..=1e3).contains(&o.alpha), || {
                    format!("alpha = {}; allowed: 0.001 to 1000", o.alpha)
                })
            }
            Op::GaussianBlur(o) => {
                check_kernel(o.kernel_size.width_height())?;
                positive("sigma", o.sigma_range())
            }
            Op::Dilation(o) => check_kernel([o.kernel_size; 2]),
            Op::RandomErasing(o) => {
                probability(o.p)?;
                range("scale", o.scale, 0.0, 1.0)?;
                positive("ratio", o.ratio)?;
                let ok = match o.value {
                    EraseValue::Level(level) => level.is_finite(),
                    EraseValue::Rgb(levels) => levels.iter().all(|level| level.is_finite()),
                    EraseValue::Noise(_) => true,
                };
                check(ok, || format!("value = {:?}; allowed: finite numbers", o.value))
            }
            Op::Normalize(o) => {
                let ok =
                    o.std.iter().all(|&s| s != 0.0 && s.is_finite()) && o.mean.iter().all(|m| m.is_finite());
                check(ok, || {
                    format!(
                        "mean = {:?}, std = {:?}; allowed: finite, std not 0",
                        o.mean, o.std
                    )
                })
            }
            Op::GaussianNoise(o) => {
                check((-1e3..=1e3).contains(&o.mean), || {
                    format!("mean = {}; allowed: -1000 to 1000", o.mean)
                })?;
                check((0.0..=1e3).contains(&o.sigma), || {
                    format!("sigma = {}; allowed: 0 to 1000", o.sigma)
                })
            }
            Op::RandomApply(o) => {
                probability(o.p)?;
                self.check_nested()
            }
            Op::RandomChoice(o) => {
                self.check_nested()?;
                let weights = o.weights();
                check(weights.len() == o.ops.len(), || {
                    let (weights, ops) = (weights.len(), o.ops.len());
                    format!("p has {weights} weights for {ops} operations; allowed: one for each")
                })?;
                let ok = weights.iter().all(|weight| (0.0..=1e9).contains(weight))
                    && weights.iter().any(|&w| w > 0.0);
                check(ok, || format!("p = {weights:?}; allowed: 0 to 1e9, not all 0"))
            }
            Op::RandomOrder(_) => self.check_nested(),
            Op::Grayscale | Op::RandomChannelPermutation | Op::ToFloat | Op::Repeat(_) => Ok(()),
        }
    }
}

impl Op {
    /// Checks what a composition is made of. Each operation is checked by itself, too.
    fn check_nested(&self) -> Result<(), String> {
        check(!self.nested().is_empty(), || {
            "op = []; allowed: at least one operation".into()
        })?;
        check(!self.holds_to_float(), || {
            "it holds ToFloat, and every image becomes floats at the same place; put ToFloat behind it".into()
        })
    }
}

fn check(ok: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if ok { Ok(()) } else { Err(problem()) }
}

fn check_bins(bins: u32) -> Result<(), String> {
    check((2..=MAX_BINS).contains(&bins), || {
        format!("num_magnitude_bins = {bins}; allowed: 2 to {MAX_BINS}")
    })
}

fn check_kernel(sides: [u32; 2]) -> Result<(), String> {
    let ok = sides.iter().all(|side| side % 2 == 1 && *side <= 255);
    check(ok, || {
        format!("kernel_size = {sides:?}; allowed: odd numbers from 1 to 255")
    })
}

impl Span {
    /// One number `v` means `[max(0, 1 - v), 1 + v]`.
    pub(crate) fn factors(self) -> [f64; 2] {
        match self {
            // A negative number must not turn into a legal range.
            Span::One(v) if v < 0.0 => [v, v],
            Span::One(v) => [(1.0 - v).max(0.0), 1.0 + v],
            Span::Range(range) => range,
        }
    }

    /// One number `v` means `[-v, v]`.
    pub(crate) fn around_zero(self) -> [f64; 2] {
        match self {
            Span::One(v) => [-v, v],
            Span::Range(range) => range,
        }
    }
}

impl Repeat {
    /// How often there is something to perform.
    pub(crate) fn times(&self) -> u32 {
        if places(&self.ops) == 0 { 0 } else { self.times }
    }
}

impl RandomChoice {
    /// One weight for each operation.
    pub(crate) fn weights(&self) -> Vec<f64> {
        self.p.clone().unwrap_or_else(|| vec![1.0; self.ops.len()])
    }
}

impl RandomOrder {
    /// The size after the operations in any order.
    fn size_after(&self, before: Option<(u32, u32)>) -> Option<(u32, u32)> {
        let keep = |size| self.ops.iter().all(|op| op.size_after(size) == size);
        if keep(before) {
            return before;
        }
        // An operation that gives every image one size, which the others keep, and make none but this one before it.
        let fixed = self.ops.iter().find_map(|op| op.size_after(None));
        let only_fixed = |op: &Op| [before, fixed].contains(&op.size_after(before));
        fixed.filter(|_| keep(fixed) && self.ops.iter().all(only_fixed))
    }
}

impl RandomRotation {
    pub(crate) fn range(&self) -> [f64; 2] {
        self.degrees.around_zero()
    }
}

impl GaussianBlur {
    pub(crate) fn sigma_range(&self) -> [f64; 2] {
        match self.sigma {
            Span::One(v) => [v, v],
            Span::Range(range) => range,
        }
    }
}

impl Resize {
    /// Width and height after resizing an image of `width` x `height`, as torchvision computes them.
    pub(crate) fn target(&self, width: u32, height: u32) -> (u32, u32) {
        match self.size {
            Size::HeightWidth([h, w]) => (w, h),
            Size::Side(side) => Resize::shorter_edge_to(side, self.max_size, width, height),
        }
    }

    /// Width and height where the shorter edge becomes `side`, and the longer one at most `max_size`.
    pub(crate) fn shorter_edge_to(side: u32, max_size: Option<u32>, width: u32, height: u32) -> (u32, u32) {
        let side = u64::from(side);
        let (short, long) = (u64::from(width.min(height)), u64::from(width.max(height)));
        let (mut new_short, mut new_long) = (side, side * long / short);
        if let Some(max) = max_size.map(u64::from).filter(|&max| new_long > max) {
            (new_short, new_long) = ((max * new_short / new_long).max(1), max);
        }
        let (new_short, new_long) = (new_short as u32, u32::try_from(new_long).unwrap_or(u32::MAX));
        if width <= height {
            (new_short, new_long)
        } else {
            (new_long, new_short)
        }
    }
}
