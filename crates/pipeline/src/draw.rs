//! From operations to steps: every random number is drawn here, before a pixel is touched.
//!
//! The distributions are torchvision's (`get_params` of each transform, version 0.29), the generator is ours: a draw
//! depends on seed, epoch, sample and the operation's place in the unrolled list, and on nothing else.

use crate::error::ImageError;
use crate::op::*;
use crate::perspective::Perspective;
use crate::pipeline::places;
use crate::rng::Draws;
use crate::step::{EraseContent, Rotate, Step, Transform};
use crate::{DrawKey, Pipeline};

impl Pipeline {
    /// The steps that an image of `width` x `height` goes through.
    ///
    /// # Errors
    /// [`ImageError::DoesNotFit`] where a crop is larger than the image, or a size leaves every bound.
    pub fn draw(&self, key: DrawKey, width: u32, height: u32) -> Result<Vec<Step>, ImageError> {
        let mut steps = Steps {
            width,
            height,
            steps: Vec::new(),
        };
        let (behind, ops) = self.ops.split_at(self.ops_behind());
        draw_all(ops, key, places(behind), &mut steps)?;
        check_sides(&steps.steps, width, height)?;
        self.check_steps(&steps.steps, width, height)?;
        Ok(steps.steps)
    }
}

/// The longest side of an image that is turned, or resized with a filter: positions in it fit the fixed point of both executors'
/// kernels, and so do the weights of a filter over it. No JPEG is longer.
pub(crate) const MOST_SIDE: u32 = 1 << 16;

/// Refuses steps on images that are longer than they can be performed on, for all executors alike. Steps that are performed
/// together read the image before the first of them, so every size so far counts.
pub(crate) fn check_sides(steps: &[Step], width: u32, height: u32) -> Result<(), ImageError> {
    let (mut size, mut most) = ((width, height), width.max(height));
    for step in steps {
        let what = match step {
            Step::Rotate(_) | Step::Affine(_) | Step::Mix(_) => "turned",
            Step::Resize { interpolation, .. } if *interpolation != Filter::Nearest => "resized",
            _ => "",
        };
        if !what.is_empty() && most > MOST_SIDE {
            return Err(ImageError::DoesNotFit(format!(
                "a side of {most} pixels is too long to be {what}: at most {MOST_SIDE} are; cut the image into pieces"
            )));
        }
        size = step.size_after(size.0, size.1);
        most = most.max(size.0).max(size.1);
    }
    Ok(())
}

/// The steps so far, and the size that the image has after them.
struct Steps {
    width: u32,
    height: u32,
    steps: Vec<Step>,
}

impl Steps {
    fn push(&mut self, step: Step) -> Result<(), ImageError> {
        let before = self.height;
        (self.width, self.height) = step.size_after(self.width, self.height);
        let (w, h) = (self.width, self.height);
        // A resize with a filter may go across first, and makes an image as wide as the new one and as high as the old one.
        let goes_across =
            matches!(step, Step::Resize { interpolation, .. } if interpolation != Filter::Nearest);
        if goes_across && u64::from(w) * u64::from(before) > crate::MAX_PIXELS {
            return Err(ImageError::DoesNotFit(format!(
                "a resize to {w}x{h} would make an image of {w}x{before} pixels on the way"
            )));
        }
        if w == 0 || h == 0 || u64::from(w) * u64::from(h) > crate::MAX_PIXELS {
            return Err(ImageError::DoesNotFit(format!(
                "{step} would make an image of {w}x{h} pixels"
            )));
        }
        self.steps.push(step);
        Ok(())
    }

    /// To a drawn size; a side of less than a pixel is one, where torchvision fails.
    fn resize(&mut self, width: u32, height: u32, interpolation: Filter) -> Result<(), ImageError> {
        self.push(Step::Resize {
            width: width.max(1),
            height: height.max(1),
            interpolation,
        })
    }

    fn pad(&mut self, sides: [u32; 4], fill: Fill, mode: PaddingMode) -> Result<(), ImageError> {
        if sides == [0; 4] {
            return Ok(());
        }
        self.push(Step::Pad { sides, fill, mode })
    }
}

/// Draws operations one after the other. `at` is the place of the first in the unrolled pipeline, the result the place after
/// the last. An operation's place does not depend on what is drawn: those that are not performed keep theirs.
fn draw_all(ops: &[Op], key: DrawKey, mut at: u32, steps: &mut Steps) -> Result<u32, ImageError> {
    for op in ops {
        draw_nested(op, key, at, steps)?;
        at += op.places();
    }
    Ok(at)
}

fn draw_nested(op: &Op, key: DrawKey, at: u32, steps: &mut Steps) -> Result<(), ImageError> {
    let draws = &mut Draws::new(key, at);
    match op {
        Op::Repeat(o) => {
            let once = |at, _| draw_all(&o.ops, key, at, steps);
            (0..o.times()).try_fold(at, once).map(drop)
        }
        Op::RandomApply(o) if draws.chance(o.p) => draw_all(&o.ops, key, at + 1, steps).map(drop),
        Op::RandomApply(_) => Ok(()),
        Op::RandomChoice(o) => {
            let chosen = o.chosen(draws.unit());
            draw_nested(&o.ops[chosen], key, at + 1 + places(&o.ops[..chosen]), steps)
        }
        Op::RandomOrder(o) => {
            let mut order: Vec<usize> = (0..o.ops.len()).collect();
            draws.shuffle(&mut order);
            order
                .into_iter()
                .try_for_each(|i| draw_nested(&o.ops[i], key, at + 1 + places(&o.ops[..i]), steps))
        }
        op => draw_op(op, draws, steps),
    }
}

impl RandomChoice {
    /// The operation at `unit`, 0..1, of the line on which every operation takes its weight.
    fn chosen(&self, unit: f64) -> usize {
        let weights = self.weights();
        let mut left = unit * weights.iter().sum::<f64>();
        let passes = |weight: &f64| {
            left -= weight;
            left < 0.0
        };
        // The sum may be a rounding short of the whole line: the last operation that has a weight ends it.
        let last = weights.iter().rposition(|&weight| weight > 0.0);
        weights.iter().position(passes).or(last).unwrap_or(0)
    }
}

fn draw_op(op: &Op, draws: &mut Draws, steps: &mut Steps) -> Result<(), ImageError> {
    let (width, height) = (steps.width, steps.height);
    match op {
        Op::RandomHorizontalFlip(o) => push_if(o.p, Step::HorizontalFlip, draws, steps),
        Op::RandomVerticalFlip(o) => push_if(o.p, Step::VerticalFlip, draws, steps),
        Op::RandomRotation(o) => {
            let [low, high] = o.range();
            let angle = draws.uniform(low, high);
            let (interpolation, expand, center, fill) = (o.interpolation, o.expand, o.center, o.fill);
            steps.push(Step::Rotate(Rotate {
                angle,
                interpolation,
                expand,
                center,
                fill,
            }))
        }
        Op::RandomAffine(o) => steps.push(Step::Affine(o.transform(draws, width, height))),
        Op::RandomPerspective(o) => perspective(o, draws, steps),
        Op::RandomResizedCrop(o) => {
            let [left, top, w, h] = resized_crop(o, draws, width, height);
            steps.push(Step::Crop {
                left,
                top,
                width: w,
                height: h,
            })?;
            let [height, width] = o.size.height_width();
            steps.push(Step::Resize {
                width,
                height,
                interpolation: o.interpolation,
            })
        }
        Op::Resize(o) => {
            let (width, height) = o.target(width, height);
            steps.push(Step::Resize {
                width,
                height,
                interpolation: o.interpolation,
            })
        }
        Op::RandomResize(o) => {
            let side = o.min_size + draws.below(o.max_size - o.min_size);
            let (width, height) = Resize::shorter_edge_to(side, None, width, height);
            steps.resize(width, height, o.interpolation)
        }
        Op::RandomShortestSize(o) => {
            let sides = o.min_size.all();
            let side = sides[draws.below(sides.len() as u32) as usize];
            let (w, h) = (f64::from(width), f64::from(height));
            let most = o
                .max_size
                .map_or(f64::INFINITY, |most| f64::from(most) / w.max(h));
            let scale = (f64::from(side) / w.min(h)).min(most);
            steps.resize((w * scale) as u32, (h * scale) as u32, o.interpolation)
        }
        Op::ScaleJitter(o) => {
            let (width, height) = scale_jitter(o, draws.unit(), width, height);
            steps.resize(width, height, o.interpolation)
        }
        Op::CenterCrop(o) => center_crop(o, steps),
        Op::RandomCrop(o) => random_crop(o, draws, steps),
        Op::Pad(o) => steps.pad(o.padding.sides(), o.fill, o.padding_mode),
        Op::RandomZoomOut(o) => zoom_out(o, draws, steps),
        Op::ColorJitter(o) => color_jitter(o, draws, steps),
        Op::RandomPhotometricDistort(o) => push_all(o.steps(draws), steps),
        Op::RandomChannelPermutation => steps.push(permuted(draws)),
        Op::Grayscale => steps.push(Step::Grayscale),
        Op::RandomGrayscale(o) => push_if(o.p, Step::Grayscale, draws, steps),
        Op::RandomInvert(o) => push_if(o.p, Step::Invert, draws, steps),
        Op::RandomPosterize(o) => push_if(o.p, Step::Posterize { bits: o.bits }, draws, steps),
        Op::RandomSolarize(o) => {
            let threshold = o.threshold;
            push_if(o.p, Step::Solarize { threshold }, draws, steps)
        }
        Op::RandomAutocontrast(o) => push_if(o.p, Step::AutoContrast, draws, steps),
        Op::RandomEqualize(o) => push_if(o.p, Step::Equalize, draws, steps),
        Op::RandomAdjustSharpness(o) => {
            let factor = o.sharpness_factor;
            push_if(o.p, Step::Sharpness { factor }, draws, steps)
        }
        Op::AutoAugment(o) => push_all(o.steps(draws, width, height), steps),
        Op::RandAugment(o) => push_all(o.steps(draws, width, height), steps),
        Op::TrivialAugmentWide(o) => push_all(o.step(draws), steps),
        Op::AugMix(o) => steps.push(o.step(draws, width, height)),
        Op::GaussianBlur(o) => {
            let [low, high] = o.sigma_range();
            let kernel = o.kernel_size.width_height();
            if kernel[0] / 2 >= width || kernel[1] / 2 >= height {
                return Err(ImageError::DoesNotFit(format!(
                    "a blur of {}x{} pixels cannot mirror an image of {width}x{height}",
                    kernel[0], kernel[1]
                )));
            }
            steps.push(Step::GaussianBlur {
                kernel,
                sigma: draws.uniform(low, high),
            })
        }
        Op::Dilation(o) => steps.push(Step::Dilate {
            kernel: o.kernel_size,
        }),
        Op::RandomErasing(o) => erasing(o, draws, steps),
        Op::ToFloat => steps.push(Step::ToFloat),
        Op::GaussianNoise(o) => steps.push(Step::Noise {
            mean: o.mean,
            sigma: o.sigma,
            clip: o.clip,
            seed: draws.bits(),
        }),
        Op::Normalize(o) => steps.push(Step::Normalize {
            mean: o.mean,
            std: o.std,
        }),
        Op::Repeat(_) | Op::RandomApply(_) | Op::RandomChoice(_) | Op::RandomOrder(_) => Ok(()), // not drawn here
    }
}

/// Adds a step with probability `p`.
fn push_if(p: f64, step: Step, draws: &mut Draws, steps: &mut Steps) -> Result<(), ImageError> {
    if draws.chance(p) { steps.push(step) } else { Ok(()) }
}

fn push_all(more: impl IntoIterator<Item = Step>, steps: &mut Steps) -> Result<(), ImageError> {
    more.into_iter().try_for_each(|step| steps.push(step))
}

impl RandomAffine {
    fn transform(&self, draws: &mut Draws, width: u32, height: u32) -> Transform {
        let mut within = |[low, high]: [f64; 2]| draws.uniform(low, high);
        let angle = within(self.degrees.around_zero());
        let [x, y] = self.translate.unwrap_or_default();
        let translate = [x * f64::from(width), y * f64::from(height)]
            .map(|most| within([-most, most]).round_ties_even() as i32);
        let scale = within(self.scale);
        let shear = self.shear.map_or([0.0; 2], |shear| shear.ranges().map(within));
        Transform {
            angle,
            translate,
            scale,
            shear,
            interpolation: self.interpolation,
            center: self.center,
            fill: self.fill,
        }
    }
}

fn perspective(op: &RandomPerspective, draws: &mut Draws, steps: &mut Steps) -> Result<(), ImageError> {
    if !draws.chance(op.p) {
        return Ok(());
    }
    let (width, height) = (steps.width, steps.height);
    let inwards = |side: u32| (op.distortion_scale * f64::from(side / 2)) as u32;
    let (most_x, most_y) = (inwards(width), inwards(height));
    for _ in 0..10 {
        let mut corner = |right: bool, bottom: bool| {
            let x = draws.below(most_x + 1) + u32::from(right) * (width - most_x - 1);
            let y = draws.below(most_y + 1) + u32::from(bottom) * (height - most_y - 1);
            [x, y]
        };
        let corners = [
            corner(false, false),
            corner(true, false),
            corner(true, true),
            corner(false, true),
        ];
        // torchvision fails where three corners lie in a line.
        if let Some(coefficients) = Perspective::between(corners, width, height) {
            let (interpolation, fill) = (op.interpolation, op.fill);
            return steps.push(Step::Perspective(Perspective {
                coefficients,
                interpolation,
                fill,
            }));
        }
    }
    Err(ImageError::DoesNotFit(format!(
        "an image of {width}x{height} has no perspective: of ten draws each had three corners in a line; resize first, or \
         choose a smaller distortion_scale"
    )))
}

/// The size that a draw of 0..1 leads to. torchvision's scale is a tensor of 32 bits, by which it multiplies, so this rounds as it does.
fn scale_jitter(op: &ScaleJitter, draw: f64, width: u32, height: u32) -> (u32, u32) {
    let [low, high] = op.scale_range;
    let [across, down] = op.target_size.map(f64::from);
    let fits = (across / f64::from(width)).min(down / f64::from(height));
    let scale = fits as f32 * (low as f32 + draw as f32 * (high - low) as f32);
    ((width as f32 * scale) as u32, (height as f32 * scale) as u32)
}

/// Left, top, width and height of the crop.
fn resized_crop(op: &RandomResizedCrop, draws: &mut Draws, width: u32, height: u32) -> [u32; 4] {
    let (w, h) = (f64::from(width), f64::from(height));
    let [low, high] = op.ratio.map(f64::ln);
    for _ in 0..10 {
        let area = w * h * draws.uniform(op.scale[0], op.scale[1]);
        let ratio = draws.uniform(low, high).exp();
        let crop_w = (area * ratio).sqrt().round_ties_even();
        let crop_h = (area / ratio).sqrt().round_ties_even();
        if (1.0..=w).contains(&crop_w) && (1.0..=h).contains(&crop_h) {
            let (crop_w, crop_h) = (crop_w as u32, crop_h as u32);
            let top = draws.below(height - crop_h + 1);
            return [draws.below(width - crop_w + 1), top, crop_w, crop_h];
        }
    }
    // Nothing fitted: the largest centred crop whose ratio is in range.
    let [low, high] = op.ratio;
    let (crop_w, crop_h) = if w / h < low {
        (width, (w / low).round_ties_even().clamp(1.0, h) as u32)
    } else if w / h > high {
        ((h * high).round_ties_even().clamp(1.0, w) as u32, height)
    } else {
        (width, height)
    };
    [(width - crop_w) / 2, (height - crop_h) / 2, crop_w, crop_h]
}

fn center_crop(op: &CenterCrop, steps: &mut Steps) -> Result<(), ImageError> {
    let [height, width] = op.size.height_width();
    let (missing_w, missing_h) = (
        width.saturating_sub(steps.width),
        height.saturating_sub(steps.height),
    );
    let sides = [
        missing_w / 2,
        missing_h / 2,
        missing_w.div_ceil(2),
        missing_h.div_ceil(2),
    ];
    steps.pad(sides, Fill::default(), PaddingMode::Constant)?;
    let half = |difference: u32| (f64::from(difference) / 2.0).round_ties_even() as u32;
    let (left, top) = (half(steps.width - width), half(steps.height - height));
    steps.push(Step::Crop {
        left,
        top,
        width,
        height,
    })
}

fn random_crop(op: &RandomCrop, draws: &mut Draws, steps: &mut Steps) -> Result<(), ImageError> {
    let [height, width] = op.size.height_width();
    steps.pad(
        op.padding.map_or([0; 4], Padding::sides),
        op.fill,
        op.padding_mode,
    )?;
    if op.pad_if_needed {
        // torchvision pads by the whole difference on both sides.
        let missing = width.saturating_sub(steps.width);
        steps.pad([missing, 0, missing, 0], op.fill, op.padding_mode)?;
        let missing = height.saturating_sub(steps.height);
        steps.pad([0, missing, 0, missing], op.fill, op.padding_mode)?;
    }
    if width > steps.width || height > steps.height {
        return Err(ImageError::DoesNotFit(format!(
            "RandomCrop of {width}x{height} is larger than the image of {}x{}; set pad_if_needed, or resize first",
            steps.width, steps.height
        )));
    }
    let top = draws.below(steps.height - height + 1);
    let left = draws.below(steps.width - width + 1);
    steps.push(Step::Crop {
        left,
        top,
        width,
        height,
    })
}

fn zoom_out(op: &RandomZoomOut, draws: &mut Draws, steps: &mut Steps) -> Result<(), ImageError> {
    if !draws.chance(op.p) {
        return Ok(());
    }
    let longer = draws.uniform(op.side_range[0], op.side_range[1]);
    let more = [steps.width, steps.height].map(|side| (f64::from(side) * longer) as u32 - side);
    let [left, top] = more.map(|more| (f64::from(more) * draws.unit()) as u32);
    let sides = [left, top, more[0] - left, more[1] - top];
    steps.pad(sides, op.fill, PaddingMode::Constant)
}

impl RandomPhotometricDistort {
    fn steps(&self, draws: &mut Draws) -> Vec<Step> {
        let mut drawn = |[low, high]: [f64; 2]| draws.chance(self.p).then(|| draws.uniform(low, high));
        let brightness = drawn(self.brightness).map(|factor| Step::Brightness { factor });
        let contrast = drawn(self.contrast).map(|factor| Step::Contrast { factor });
        let saturation = drawn(self.saturation).map(|factor| Step::Saturation { factor });
        let hue = drawn(self.hue).map(|shift| Step::Hue { shift });
        let (before, after) = match draws.chance(0.5) {
            true => (contrast, None),
            false => (None, contrast),
        };
        let channels = draws.chance(self.p).then(|| permuted(draws));
        [brightness, before, saturation, hue, after, channels]
            .into_iter()
            .flatten()
            .collect()
    }
}

fn permuted(draws: &mut Draws) -> Step {
    let mut channels = [0, 1, 2];
    draws.shuffle(&mut channels);
    Step::Permute { channels }
}

fn color_jitter(op: &ColorJitter, draws: &mut Draws, steps: &mut Steps) -> Result<(), ImageError> {
    let mut order = [0, 1, 2, 3];
    draws.shuffle(&mut order);
    let ranges = [
        op.brightness.factors(),
        op.contrast.factors(),
        op.saturation.factors(),
        op.hue.around_zero(),
    ];
    let neutral = [1.0, 1.0, 1.0, 0.0];
    let factors: [f64; 4] = std::array::from_fn(|i| draws.uniform(ranges[i][0], ranges[i][1]));
    for i in order {
        if ranges[i] == [neutral[i]; 2] {
            continue;
        }
        let factor = factors[i];
        steps.push(match i {
            0 => Step::Brightness { factor },
            1 => Step::Contrast { factor },
            2 => Step::Saturation { factor },
            _ => Step::Hue { shift: factor },
        })?;
    }
    Ok(())
}

fn erasing(op: &RandomErasing, draws: &mut Draws, steps: &mut Steps) -> Result<(), ImageError> {
    if !draws.chance(op.p) {
        return Ok(());
    }
    let (w, h) = (f64::from(steps.width), f64::from(steps.height));
    let [low, high] = op.ratio.map(f64::ln);
    for _ in 0..10 {
        let area = w * h * draws.uniform(op.scale[0], op.scale[1]);
        let ratio = draws.uniform(low, high).exp();
        let height = (area * ratio).sqrt().round_ties_even();
        let width = (area / ratio).sqrt().round_ties_even();
        if height >= h || width >= w {
            continue;
        }
        let (width, height) = (width as u32, height as u32);
        let top = draws.below(steps.height - height + 1);
        let left = draws.below(steps.width - width + 1);
        let content = match op.value {
            EraseValue::Level(v) => EraseContent::Rgb([v; 3]),
            EraseValue::Rgb(rgb) => EraseContent::Rgb(rgb),
            EraseValue::Noise(Noise::Random) => EraseContent::Noise(draws.bits()),
        };
        if width > 0 && height > 0 {
            return steps.push(Step::Erase {
                left,
                top,
                width,
                height,
                content,
            });
        }
        return Ok(());
    }
    Ok(())
}
