//! The plan of a sample as numbers, for an executor on another device.
//!
//! What `fused` decides on the host (which part of the file is read, which samples a pixel is made of and what they
//! weigh, which pixels lie outside of a rotation) is decided here by the same code and handed out in tables. What is
//! left to the device is integer arithmetic that this module's types define by naming the kernels of `fused` that do
//! it, so that a device gives the bytes that `fused` gives.

use super::device::{
    DeviceStage, DeviceWork, Erased, ErasedContent, LevelTable, Lowered, Resample, ResampleMap,
};
use super::source::{Rgbx, Side, Sides};
use super::upright::UprightTables;
use super::{Pass, Plan};
use crate::decode::{self, DecodeOptions, Format, ImageInfo};
use crate::error::ImageError;
use crate::op::PaddingMode;
use crate::per_op::{self, Pointwise};
use crate::runner::is_outlier;
use crate::step::Step;
use crate::{DrawKey, Pipeline};
use stokehold_jpeg::{Decoder, Input, Layout, PlaneLayout, Region, Scale};

/// A sample's plan, before its file is decoded.
pub struct DevicePlan {
    plan: Plan,
    info: ImageInfo,
    options_steps: Vec<Step>,
}

/// What a plan is performed on.
#[derive(Debug, Clone, Copy)]
pub enum DeviceSource<'a> {
    /// The components of a JPEG.
    Planes(&'a [PlaneLayout]),
    /// Pixels: what [`DevicePlan::decode`] gives.
    Pixels,
}

/// Pixels that were decoded on the CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodedPixels {
    /// Columns.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Red, green, blue and 255, row by row.
    pub data: Vec<u8>,
}

impl DevicePlan {
    /// Draws and plans what is done to the file `bytes`.
    ///
    /// # Errors
    /// [`ImageError`] where the bytes are broken or the image does not fit the pipeline.
    pub fn new(
        bytes: &[u8],
        pipeline: &Pipeline,
        options: &DecodeOptions,
        key: DrawKey,
    ) -> Result<DevicePlan, ImageError> {
        let info = decode::probe(bytes)?;
        let steps = decode::steps(&info, options, pipeline, key)?;
        Ok(DevicePlan {
            plan: Plan::new(&steps, info.width, info.height),
            info,
            options_steps: steps,
        })
    }

    /// Whether the image is so large that a decoder's buffers are better given back after it than kept.
    pub fn is_outlier(&self) -> bool {
        is_outlier(&self.options_steps, self.info.width, self.info.height)
    }

    /// The part of the file that is read, in full-size pixels.
    pub fn region(&self) -> Region {
        self.plan.region(self.info.width, self.info.height)
    }

    /// By how much the decoder shrinks it.
    pub fn scale(&self) -> Scale {
        match self.info.format {
            Format::Jpeg => self.plan.decode_scale(),
            _ => Scale::Full,
        }
    }

    /// Whether the file is a JPEG of one or three components, so that a device can make its pixels.
    pub fn has_planes(&self) -> bool {
        self.info.has_planes()
    }

    /// Whether the first stage resamples a JPEG's components apart; else its pixels are made first.
    pub fn apart(&self) -> bool {
        self.has_planes() && self.plan.wants_planes()
    }

    /// The drawn steps.
    pub fn steps(&self) -> &[Step] {
        &self.options_steps
    }

    /// Decodes the region on the CPU.
    ///
    /// # Errors
    /// [`ImageError`] where the bytes are broken.
    pub fn decode(&self, input: Input<'_>, decoder: &mut Decoder) -> Result<DecodedPixels, ImageError> {
        let region = self.region();
        if self.info.format == Format::Jpeg {
            let pixels = decoder.decode(input, region, self.scale(), Layout::Rgbx)?;
            return Ok(DecodedPixels {
                width: pixels.width,
                height: pixels.height,
                data: pixels.data.to_vec(),
            });
        }
        let image = decode::decode_stored(input, &self.info, decoder)?;
        let mut data = Vec::with_capacity(4 * region.width as usize * region.height as usize);
        for row in image
            .pixels()
            .chunks_exact(image.width as usize)
            .skip(region.y as usize)
            .take(region.height as usize)
        {
            for p in &row[region.x as usize..][..region.width as usize] {
                data.extend_from_slice(&[p[0], p[1], p[2], 255]);
            }
        }
        Ok(DecodedPixels {
            width: region.width,
            height: region.height,
            data,
        })
    }

    /// Columns and rows of the decoded region as pixels.
    pub fn pixels(&self) -> (u32, u32) {
        let Rgbx { width, height, .. } = self.rgbx();
        (width, height)
    }

    /// The decoded region as pixels, without them.
    fn rgbx(&self) -> Rgbx<'static> {
        let (region, factor) = (self.region(), self.scale().factor());
        let side =
            |first: u32, count: u32| (first / factor, (first + count).div_ceil(factor) - first / factor);
        let ((x, width), (y, height)) = (side(region.x, region.width), side(region.y, region.height));
        Rgbx {
            data: &[],
            stride: 0,
            width,
            height,
            x,
            y,
            pixels: factor,
        }
    }

    /// The plan in numbers.
    pub fn lower(&self, source: DeviceSource<'_>) -> Lowered {
        let mut held = self.rgbx();
        let first = match source {
            DeviceSource::Planes(layouts) if self.apart() => sides(layouts),
            _ => pixel_sides(&held),
        };
        let mut stages: Vec<DeviceStage> = Vec::new();
        let mut stage = |width, height, work| {
            stages.push(DeviceStage {
                width,
                height,
                work,
                points: Vec::new(),
            });
            stages.len() - 1
        };
        let mut points: Vec<(usize, Pointwise)> = Vec::new();
        let mut sides = first;
        let mut last = None;
        if !matches!(self.plan.stages.first(), Some(Pass::Warp(_))) {
            last = Some(stage(held.width, held.height, copy(&held)));
            (held, sides) = after(held.width, held.height);
        }
        for each in &self.plan.stages {
            let (width, height) = (held.width, held.height);
            let (width, height, work) = match each {
                Pass::Point(point) => {
                    points.extend(last.map(|last| (last, point.clone())));
                    continue;
                }
                Pass::Warp(warp) => (warp.width, warp.height, warp.lower(&held, sides)),
                Pass::Whole(Step::Contrast { factor }) => {
                    let factor = *factor as f32;
                    (width, height, DeviceWork::Contrast { factor })
                }
                Pass::Whole(Step::AutoContrast) => {
                    let by = LevelTable::Stretched;
                    (width, height, DeviceWork::Levels { by })
                }
                Pass::Whole(Step::Equalize) => {
                    let by = LevelTable::Equalized;
                    (width, height, DeviceWork::Levels { by })
                }
                Pass::Whole(Step::Sharpness { factor }) => {
                    let factor = *factor as f32;
                    (width, height, DeviceWork::Sharpen { factor })
                }
                Pass::Whole(Step::GaussianBlur { kernel, sigma }) => {
                    let [across, down] = kernel.map(|size| per_op::gaussian(size as usize, *sigma));
                    (width, height, DeviceWork::Blur { across, down })
                }
                Pass::Whole(Step::Dilate { kernel }) => {
                    (width, height, DeviceWork::Dilate { radius: kernel / 2 })
                }
                Pass::Whole(step) => {
                    let (new_width, new_height) = step.size_after(width, height);
                    (new_width, new_height, mirrored(step, width, height))
                }
            };
            last = Some(stage(width, height, work));
            (held, sides) = after(width, height);
        }
        for (stage, point) in points {
            stages[stage].points.push(point);
        }
        let (numbers, erased) = self.floats();
        Lowered {
            stages,
            numbers,
            erased,
        }
    }

    /// What becomes of bytes: the steps on floats work on each value alone, or replace it.
    fn floats(&self) -> ([[f32; 256]; 3], Vec<Erased>) {
        let Plan {
            scale,
            offset,
            floats,
            ..
        } = &self.plan;
        let mut numbers: [[f32; 256]; 3] =
            std::array::from_fn(|c| std::array::from_fn(|byte| byte as f32 * scale[c] + offset[c]));
        let mut erased: Vec<Erased> = Vec::new();
        for step in floats {
            match step {
                Step::Normalize { mean, std } => {
                    let each = |c: usize, value: &mut f32| *value = (*value - mean[c]) / std[c];
                    for (c, numbers) in numbers.iter_mut().enumerate() {
                        numbers.iter_mut().for_each(|value| each(c, value));
                    }
                    for rectangle in &mut erased {
                        match &mut rectangle.content {
                            ErasedContent::Flat(rgb) => {
                                rgb.iter_mut().enumerate().for_each(|(c, value)| each(c, value));
                            }
                            ErasedContent::Each(values) => {
                                let plane = (values.len() / 3).max(1);
                                for (c, values) in values.chunks_exact_mut(plane).enumerate() {
                                    values.iter_mut().for_each(|value| each(c, value));
                                }
                            }
                        }
                    }
                }
                Step::Erase {
                    left,
                    top,
                    width,
                    height,
                    content,
                } => erased.push(Erased {
                    left: *left,
                    top: *top,
                    width: *width,
                    height: *height,
                    content: match content {
                        crate::EraseContent::Rgb(rgb) => ErasedContent::Flat(*rgb),
                        crate::EraseContent::Noise(_) => {
                            let mut values = vec![0.0; 3 * *width as usize * *height as usize];
                            let whole = Step::Erase {
                                left: 0,
                                top: 0,
                                width: *width,
                                height: *height,
                                content: *content,
                            };
                            if !values.is_empty() {
                                per_op::apply_float(&whole, *width as usize, &mut values);
                            }
                            ErasedContent::Each(values)
                        }
                    },
                }),
                _ => {}
            }
        }
        (numbers, erased)
    }
}

fn sides(layouts: &[PlaneLayout]) -> Sides {
    std::array::from_fn(|i| {
        let layout = layouts.get(i).or(layouts.first()).copied().unwrap_or_default();
        let side = |first, count, pixels| Side { first, count, pixels };
        (
            side(layout.x, layout.width, layout.pixels.0),
            side(layout.y, layout.height, layout.pixels.1),
        )
    })
}

fn pixel_sides(source: &Rgbx<'_>) -> Sides {
    let side = |first, count| Side {
        first,
        count,
        pixels: source.pixels,
    };
    [(side(source.x, source.width), side(source.y, source.height)); 3]
}

/// The source of a stage after another one.
fn after(width: u32, height: u32) -> (Rgbx<'static>, Sides) {
    let held = Rgbx::whole(&[], width, height);
    (held, pixel_sides(&held))
}

/// The stage that takes the pixels as they are.
fn copy(source: &Rgbx<'_>) -> DeviceWork {
    places(
        (0..source.width).map(Some).collect(),
        (0..source.height).map(Some).collect(),
    )
}

/// A border that shows the image itself.
fn mirrored(step: &Step, width: u32, height: u32) -> DeviceWork {
    let (sides, mode) = match step {
        Step::Pad { sides, mode, .. } => (*sides, *mode),
        _ => ([0; 4], PaddingMode::Constant),
    };
    let [left, top, right, bottom] = sides;
    let side = |before: u32, size: u32, behind: u32| -> Vec<Option<u32>> {
        (0..before + size + behind)
            .map(|at| per_op::source_index(i64::from(at) - i64::from(before), size, mode).map(|at| at as u32))
            .collect()
    };
    places(side(left, width, right), side(top, height, bottom))
}

fn places(across: Vec<Option<u32>>, down: Vec<Option<u32>>) -> DeviceWork {
    let line = |line: Vec<Option<u32>>| line.into_iter().map(|at| at.unwrap_or(0)).collect();
    DeviceWork::Resample(Box::new(Resample {
        map: ResampleMap::Upright(UprightTables::places(line(across), line(down))),
        fills: Vec::new(),
        inside: Vec::new(),
    }))
}
