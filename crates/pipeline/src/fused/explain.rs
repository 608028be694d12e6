//! What the plan of one sample does, for people who want to know.

use super::{Pass, Plan};
use crate::decode::{DecodeOptions, Format, probe, steps};
use crate::error::ImageError;
use crate::op::Filter;
use crate::step::Step;
use crate::{DrawKey, Pipeline};
use serde::Serialize;
use std::fmt;
use std::ops::Range;
use stokehold_jpeg::{Header, Region};

/// The plan of one sample.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// Columns of the image as it is stored.
    pub width: u32,
    /// Rows of the image as it is stored.
    pub height: u32,
    /// What it is stored as.
    pub format: Format,
    /// The drawn steps, turning upright by EXIF included.
    pub steps: Vec<Step>,
    /// What is read and decoded.
    pub decoding: Decoding,
    /// What is done to the decoded part, in order.
    pub performed: Vec<Performed>,
    /// The steps on floats that are not part of writing the output.
    pub floats: Vec<Step>,
}

/// What is decoded of an image.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Decoding {
    /// First column, first row, columns and rows of the part that is needed.
    pub region: [u32; 4],
    /// By how much the decoder shrinks it: 1, 2, 4 or 8.
    pub scale: u32,
    /// Whether luminance and chroma are resampled apart, before there are colours.
    pub planes: bool,
    /// Of a JPEG, the units that it is coded in.
    pub mcus: Option<Mcus>,
}

/// The units in which a JPEG is coded, each of a fixed size in pixels.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mcus {
    /// Width and height of a unit in pixels.
    pub size: (u32, u32),
    /// Columns that are transformed.
    pub columns: Range<u32>,
    /// Rows that are transformed. Of a JPEG, rows above are only read over; rows below are not read.
    pub rows: Range<u32>,
    /// Of a packed image, the rows that are read: those of all groups that hold any that is transformed. It has no others
    /// that are read over.
    pub groups: Option<Range<u32>>,
    /// Columns of units there are.
    pub wide: u32,
    /// Rows of units there are.
    pub high: u32,
}

/// One stage and the steps that it performs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Performed {
    /// Which of [`Explanation::steps`].
    pub steps: Vec<usize>,
    /// Of a run of geometry, the resampling that it became.
    pub resampling: Option<Resampling>,
}

/// A run of geometry as one resampling.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Resampling {
    /// Columns of the result.
    pub width: u32,
    /// Rows of the result.
    pub height: u32,
    /// From points of the result to points of the image that it sees, in pixels whose centres lie at .5:
    /// `x = m[0] * u + m[1] * v + m[2]`, `y = m[3] * u + m[4] * v + m[5]`.
    pub map: [f64; 6],
    /// The filter; nearest where every pixel only moves.
    pub interpolation: Filter,
    /// Pixels of the image along a pixel of the result, across and down.
    pub scales: (f64, f64),
    /// Whether rows stay rows.
    pub upright: bool,
    /// For each pixel of the result, row by row, whether it shows the image; else it shows a fill colour.
    #[serde(skip)]
    pub mask: Vec<bool>,
}

/// Explains what the fused executor does with the image in `bytes` when it is drawn for by `key`.
///
/// # Errors
/// [`ImageError`] where the bytes are broken or the image does not fit the pipeline.
pub fn explain(
    pipeline: &Pipeline,
    bytes: &[u8],
    options: &DecodeOptions,
    key: DrawKey,
) -> Result<Explanation, ImageError> {
    let info = probe(bytes)?;
    let steps = steps(&info, options, pipeline, key)?;
    let mut stage_of = Vec::new();
    let plan = Plan::compile(&steps, info.width, info.height, |stage| stage_of.push(stage));
    let performed = plan.stages.iter().enumerate().map(|(i, stage)| Performed {
        steps: (0..stage_of.len()).filter(|&step| stage_of[step] == i).collect(),
        resampling: match stage {
            Pass::Warp(warp) => Some(warp.facts()),
            Pass::Point(_) | Pass::Whole(_) => None,
        },
    });
    let jpeg = info.format == Format::Jpeg;
    let region = match jpeg {
        true => plan.region(info.width, info.height),
        false => Region {
            x: 0,
            y: 0,
            width: info.width,
            height: info.height,
        },
    };
    let scale = plan.decode_scale();
    let mcus = match jpeg {
        true => {
            let header = Header::parse(bytes)?;
            let (columns, rows) = header.mcus(&region, scale);
            let size = header.mcu_size();
            let (wide, high) = (info.width.div_ceil(size.0), info.height.div_ceil(size.1));
            let groups = header.group_rows.map(|group| {
                let end = rows.end.div_ceil(group).saturating_mul(group);
                rows.start / group * group..end.min(high)
            });
            Some(Mcus {
                size,
                columns,
                rows,
                groups,
                wide,
                high,
            })
        }
        false => None,
    };
    Ok(Explanation {
        width: info.width,
        height: info.height,
        format: info.format,
        decoding: Decoding {
            region: [region.x, region.y, region.width, region.height],
            scale: if jpeg { scale.factor() } else { 1 },
            planes: plan.wants_planes() && info.has_planes(),
            mcus,
        },
        performed: performed.collect(),
        floats: plan.floats.clone(),
        steps,
    })
}

impl Mcus {
    /// Whether a unit is read.
    pub fn reads(&self, column: u32, row: u32) -> bool {
        match &self.groups {
            Some(rows) => rows.contains(&row),
            None => row + 1 < self.rows.end || (row < self.rows.end && column < self.columns.end),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation { width, height, .. } = *self;
        let groups = |mcus: &Mcus| mcus.groups.is_some();
        let packed = if self.decoding.mcus.as_ref().is_some_and(groups) {
            ", packed"
        } else {
            ""
        };
        writeln!(f, "image     {width} x {height}, {:?}{packed}", self.format)?;
        for (i, step) in self.steps.iter().enumerate() {
            let begin = if i == 0 { "drawn" } else { "" };
            writeln!(f, "{begin:<9} {:>2}. {}", i + 1, step)?;
        }
        let Decoding {
            region: [x, y, w, h],
            scale,
            planes,
            ..
        } = self.decoding;
        let share = 100.0 * (f64::from(w) * f64::from(h)) / (f64::from(width) * f64::from(height));
        let smaller = match scale {
            1 => String::new(),
            scale => format!(", decoded at 1/{scale} of its size"),
        };
        writeln!(
            f,
            "decode    columns {x}..{}, rows {y}..{}: {share:.0} % of the image{smaller}",
            x + w,
            y + h
        )?;
        if let Some(mcus) = &self.decoding.mcus {
            let all = u64::from(mcus.wide) * u64::from(mcus.high);
            let transformed = mcus.columns.len() as u64 * mcus.rows.len() as u64;
            let read = match &mcus.groups {
                Some(rows) => rows.len() as u64 * u64::from(mcus.wide),
                None => u64::from(mcus.rows.end - 1) * u64::from(mcus.wide) + u64::from(mcus.columns.end),
            };
            writeln!(
                f,
                "          {all} units of {} x {} pixels: {transformed} transformed, {} only read over, {} not read",
                mcus.size.0,
                mcus.size.1,
                read - transformed,
                all - read
            )?;
        }
        let what = if planes {
            "luminance and chroma apart, colours last"
        } else {
            "pixels"
        };
        for (i, stage) in self.performed.iter().enumerate() {
            let steps: Vec<String> = stage.steps.iter().map(|step| (step + 1).to_string()).collect();
            let begin = if i == 0 { "perform" } else { "" };
            let plural = if steps.len() == 1 { "step" } else { "steps" };
            let Some(resampling) = &stage.resampling else {
                writeln!(f, "{begin:<9} {plural} {}: as it stands", steps.join(", "))?;
                continue;
            };
            let Resampling {
                width,
                height,
                scales,
                interpolation,
                upright,
                ..
            } = resampling;
            let sources = if i == 0 { what } else { "pixels" };
            let way = if *upright {
                "along rows and columns"
            } else {
                "turned"
            };
            writeln!(
                f,
                "{begin:<9} {plural} {}: one resampling to {width} x {height}, {way}, of {sources}",
                steps.join(", "),
            )?;
            writeln!(
                f,
                "          {} filter; a pixel spans {:.2} x {:.2} of the image",
                format!("{interpolation:?}").to_lowercase(),
                scales.0,
                scales.1
            )?;
            let outside = resampling.mask.iter().filter(|&&inside| !inside).count();
            if outside > 0 {
                let share = 100.0 * outside as f64 / resampling.mask.len() as f64;
                writeln!(
                    f,
                    "          {share:.1} % lies outside the image and shows a fill colour"
                )?;
            }
        }
        let normalised = self
            .steps
            .iter()
            .any(|step| matches!(step, Step::Normalize { .. }));
        let how = if normalised {
            "to float and normalised"
        } else {
            "to float"
        };
        write!(f, "output    {how} while it is written")?;
        match self.floats.len() {
            0 => Ok(()),
            more => write!(f, ", then {more} more on floats"),
        }
    }
}
