//! The executor `fused`: the drawn steps become a plan that processes no pixel twice.
//!
//! ```text
//!  steps ──► Plan ──► region of the source that is needed ──► decode ──► stages ──► floats
//!
//!  a run of geometry (flips, crops, borders, rotations, resizes)  = one Warp: one affine map, one resampling
//!  colour of single pixels (brightness, saturation, hue, grey, levels by table) = on each row while it is in the cache
//!  what needs the whole image (contrast, histograms, sharpness, blur, dilation, mirrored borders) = performed where it stands
//!  a change of perspective (no affine map, so a resampling of its own)  = performed where it stands, by the code of per-op
//!  to float and the first normalisation                           = one multiplication and addition per value
//! ```
//!
//! A [`Warp`] whose map keeps rows horizontal (`upright`) is resampled along rows, then down columns, in the
//! channels in which the image is stored: for a JPEG luminance and chroma separately, each at its own
//! resolution, followed by the conversion to colour. Any other map (`turned`) gathers a window of the decoded
//! pixels for every result pixel. An image that shrinks four times or more is decoded at a smaller scale.
//!
//! Flips commute with every colour operation and every symmetric neighbourhood, so a flip after them joins
//! the warp before them. SEMANTICS.md states where the result may differ from `per-op`, and tests bound the
//! difference.

mod device;
mod explain;
mod isa;
mod lower;
mod mask;
mod quantize;
mod sink;
mod source;
mod turned;
mod upright;
mod warp;

pub use device::{
    DeviceStage, DeviceWork, Erased, ErasedContent, LevelTable, Lowered, Resample, ResampleMap,
    stretched_below,
};
pub use explain::{Decoding, Explanation, Mcus, Performed, Resampling, explain};
pub use lower::{DecodedPixels, DevicePlan, DeviceSource};
pub(crate) use mask::apply_all_to_mask;
pub(crate) use source::{Planes, Rgbx, Source};

use crate::image::RgbImage;
use crate::per_op::{self, Pointwise, mean_luminance};
use crate::sample::SampleMut;
use crate::step::Step;
use sink::Sink;
use stokehold_jpeg::{Region, Scale};
pub use turned::{TurnedAxis, TurnedTables};
pub use upright::{BilinearAxis, Taps, Triangle, UprightAxis, UprightTables};
use warp::Warp;

/// What is done to one image, compiled from its steps.
pub(crate) struct Plan {
    stages: Vec<Pass>,
    /// `value * scale + offset` per channel, from bytes.
    scale: [f32; 3],
    offset: [f32; 3],
    /// Steps on floats after the first normalisation.
    floats: Vec<Step>,
}

enum Pass {
    Warp(Warp),
    Point(Pointwise),
    Whole(Step),
}

/// Buffers that a thread reuses from image to image.
#[derive(Default)]
pub(crate) struct Scratch {
    image: Vec<u8>,
    next: Vec<u8>,
    row: Vec<u8>,
    buffers: warp::Buffers,
    floats: Vec<f32>,
}

impl Plan {
    /// Compiles the steps for an image of `width` x `height`.
    pub fn new(steps: &[Step], width: u32, height: u32) -> Plan {
        Plan::compile(steps, width, height, |_| {})
    }

    /// The same, and tells of each step before to-float in which stage it is performed.
    fn compile(steps: &[Step], width: u32, height: u32, mut placed: impl FnMut(usize)) -> Plan {
        let float = steps
            .iter()
            .position(|step| *step == Step::ToFloat)
            .unwrap_or(steps.len());
        let mut stages: Vec<Pass> = Vec::new();
        let (mut w, mut h) = (width, height);
        for step in &steps[..float] {
            placed(add(&mut stages, step, w, h));
            (w, h) = step.size_after(w, h);
        }
        let (mut scale, mut offset) = ([1.0 / 255.0; 3], [0.0; 3]);
        let mut floats = steps.get(float + 1..).unwrap_or_default();
        if let Some((Step::Normalize { mean, std }, rest)) = floats.split_first() {
            scale = std.map(|std| 1.0 / (255.0 * std));
            offset = std::array::from_fn(|c| -mean[c] / std[c]);
            floats = rest;
        }
        Plan {
            stages,
            scale,
            offset,
            floats: floats.to_vec(),
        }
    }

    /// The part of the source that the plan reads.
    pub fn region(&self, width: u32, height: u32) -> Region {
        match self.stages.first() {
            Some(Pass::Warp(warp)) => warp.region(),
            _ => Region {
                x: 0,
                y: 0,
                width,
                height,
            },
        }
    }

    /// Whether the source is to be given as [`Source::Planes`], where the image has planes.
    pub fn wants_planes(&self) -> bool {
        matches!(self.stages.first(), Some(Pass::Warp(warp)) if warp.wants_planes())
    }

    /// By how much the decoder may shrink the source beforehand.
    pub fn decode_scale(&self) -> Scale {
        match self.stages.first() {
            Some(Pass::Warp(warp)) => warp.decode_scale(),
            _ => Scale::Full,
        }
    }

    /// Performs the plan. `source` holds the pixels of [`Plan::region`]; `out` receives (3, height, width).
    pub fn execute(&self, source: Source<'_>, scratch: &mut Scratch, mut out: SampleMut<'_>) {
        if self.floats.is_empty() {
            self.write(source, scratch, out.reborrow());
            return;
        }
        // Steps on floats follow: what they make is rounded when they are done.
        let mut floats = std::mem::take(&mut scratch.floats);
        out.write_as_f32(&mut floats, |out| {
            let width = self.write(source, scratch, out.into());
            for step in &self.floats {
                per_op::apply_float(step, width as usize, out);
            }
        });
        scratch.floats = floats;
    }

    /// Performs all but the steps on floats, and returns the width of what came out.
    fn write(&self, source: Source<'_>, scratch: &mut Scratch, mut out: SampleMut<'_>) -> u32 {
        let Scratch {
            image,
            next,
            row,
            buffers,
            ..
        } = scratch;
        let (mut width, mut height) = (0, 0);
        // The source, until a stage has left its result in `image`.
        let mut source = Some(source);
        if !matches!(self.stages.first(), Some(Pass::Warp(_)))
            && let Some(Source::Pixels(pixels)) = source.take()
        {
            pixels.copy_to(image);
            (width, height) = (pixels.width, pixels.height);
        }
        let mut rest = &self.stages[..];
        let mut written = false;
        while let Some((stage, after)) = rest.split_first() {
            rest = after;
            match stage {
                Pass::Point(point) => point.apply(rgbx(image)),
                Pass::Whole(step) => (width, height) = whole(step, image, width, height),
                Pass::Warp(warp) => {
                    let points = leading_points(rest);
                    rest = &rest[points.len()..];
                    let held = Source::Pixels(Rgbx::whole(image, width, height));
                    let from = source.take().unwrap_or(held);
                    (width, height) = (warp.width, warp.height);
                    row.resize(4 * width as usize, 0);
                    if rest.is_empty() {
                        let mut sink = Sink::new(out.reborrow(), self.scale, self.offset, width);
                        warp.rows(from, buffers, row, |y, row| {
                            apply_points(&points, row);
                            sink.row(y, row);
                        });
                        written = true;
                    } else {
                        next.clear();
                        warp.rows(from, buffers, row, |_, row| {
                            apply_points(&points, row);
                            next.extend_from_slice(row);
                        });
                        std::mem::swap(image, next);
                    }
                }
            }
        }
        if !written {
            let mut sink = Sink::new(out.reborrow(), self.scale, self.offset, width);
            for (y, row) in image.chunks_exact(4 * width as usize).enumerate() {
                sink.row(y, row);
            }
        }
        width
    }
}

/// Adds a step on an image of `width` x `height` to the stages, and returns the index of the one that performs it.
fn add(stages: &mut Vec<Pass>, step: &Step, width: u32, height: u32) -> usize {
    if Warp::takes(step) {
        let flip = matches!(step, Step::HorizontalFlip | Step::VerticalFlip);
        // A flip may go before what is symmetric and keeps the size: all that is no warp, but for these.
        let is_symmetric = |stage: &Pass| {
            !matches!(
                stage,
                Pass::Whole(Step::Pad { .. } | Step::Perspective(_) | Step::Mix(_))
            )
        };
        let before = match stages.iter().rposition(|stage| matches!(stage, Pass::Warp(_))) {
            Some(at) if at + 1 == stages.len() || (flip && stages[at..].iter().all(is_symmetric)) => Some(at),
            _ => None,
        };
        if let Some(at) = before
            && let Pass::Warp(warp) = &mut stages[at]
            && warp.has_room_for(step)
        {
            warp.push(step);
            return at;
        }
        let mut warp = Warp::new(width, height);
        warp.push(step);
        stages.push(Pass::Warp(warp));
    } else {
        stages.push(match Pointwise::of(step) {
            Some(point) => Pass::Point(point),
            None => Pass::Whole(step.clone()),
        });
    }
    stages.len() - 1
}

fn leading_points(stages: &[Pass]) -> Vec<Pointwise> {
    stages
        .iter()
        .map_while(|stage| match stage {
            Pass::Point(point) => Some(point.clone()),
            _ => None,
        })
        .collect()
}

fn rgbx(bytes: &mut [u8]) -> &mut [[u8; 4]] {
    bytes.as_chunks_mut().0
}

fn apply_points(points: &[Pointwise], row: &mut [u8]) {
    for point in points {
        point.apply(rgbx(row));
    }
}

/// Performs a step that needs the whole image, and returns the new size.
fn whole(step: &Step, image: &mut Vec<u8>, width: u32, height: u32) -> (u32, u32) {
    match step {
        Step::Contrast { factor } => {
            let mean = mean_luminance(rgbx(image));
            Pointwise::Contrast {
                mean,
                factor: *factor as f32,
            }
            .apply(rgbx(image));
        }
        Step::AutoContrast => per_op::autocontrast(rgbx(image)),
        Step::Equalize => per_op::equalize(rgbx(image)),
        Step::Sharpness { factor } => per_op::sharpen(rgbx(image), width as usize, *factor as f32),
        step => return rebuilt(step, image, width, height),
    }
    (width, height)
}

/// Performs a step that makes another image, and returns its size.
fn rebuilt(step: &Step, image: &mut Vec<u8>, width: u32, height: u32) -> (u32, u32) {
    let pixels: &[[u8; 4]] = image.as_chunks().0;
    let data = pixels.iter().flat_map(|p| [p[0], p[1], p[2]]).collect();
    let done = per_op::apply(step, RgbImage { width, height, data });
    image.clear();
    done.pixels()
        .iter()
        .for_each(|p| image.extend_from_slice(&[p[0], p[1], p[2], 255]));
    (done.width, done.height)
}
