//! The CPU's part of a sample: from the bytes of a file to the device's input.

use crate::Decode;
use crate::entropy::Scan;
use crate::kernels::gather::ResampleMethod;
use crate::packed::{DeviceTables, Groups};
use crate::words::{Program, program};
use std::mem;
use std::sync::Arc;
use stokehold_jpeg::{ColorModel, Decoder, Input, PlaneLayout, Upsampling, is_packed};
use stokehold_pipeline::{
    DecodeOptions, DecodedPixels, DevicePlan, DeviceSource, DeviceStage, DeviceWork, DrawKey, Erased,
    ImageError, LevelTable, Pipeline, PipelineError, Preparation, Prepare, PreparedSample, ResampleMap,
};

/// The most pixels whose luminance a device can sum in 32 bits.
const MOST_AVERAGED: u64 = u32::MAX as u64 / 255;

/// Prepares samples from files, one per thread.
pub struct Preparer {
    pipeline: Arc<Pipeline>,
    options: DecodeOptions,
    decode: Decode,
    decoder: Decoder,
    /// Those of the last packed image whose symbols the device decodes.
    tables: Option<Arc<DeviceTables>>,
}

/// A sample ready for the device: the coefficients of its blocks, or its pixels, and the plan as tables.
#[derive(Debug)]
pub struct Prepared {
    pub(crate) source: PreparedSource,
    pub(crate) stages: Vec<PreparedStage>,
    pub(crate) numbers: Box<[[f32; 256]; 3]>,
    pub(crate) erased: Vec<Erased>,
    /// For a sample whose symbols the device decodes.
    origin: Option<Box<Origin>>,
}

impl AsRef<Prepared> for Prepared {
    fn as_ref(&self) -> &Prepared {
        self
    }
}

/// What is needed to prepare a sample again, in the hybrid mode.
#[derive(Debug)]
struct Origin {
    pipeline: Arc<Pipeline>,
    options: DecodeOptions,
    bytes: Arc<[u8]>,
    key: DrawKey,
}

impl Prepared {
    /// About the number of words that it takes in a batch.
    pub(crate) fn words(&self) -> usize {
        let source = match &self.source {
            PreparedSource::Blocks(blocks) => {
                let components = blocks.components.iter();
                let packed = components.map(|c| 3 * c.heads.len() + c.values.len() + c.steps.len());
                packed.sum::<usize>() + blocks.coded.as_ref().map_or(0, CodedData::words)
            }
            PreparedSource::Pixels(pixels) => pixels.data.len() / 4,
        };
        let programs = self.stages.iter().map(|stage| stage.program.len_in_batch());
        source + programs.sum::<usize>()
    }

    /// Whether the device decodes its symbols.
    pub fn is_coded(&self) -> bool {
        self.origin.is_some()
    }

    /// Prepares a coded sample again in the hybrid mode, because the device could not decode it.
    ///
    /// # Errors
    /// [`ImageError`] if the bytes are broken.
    pub(crate) fn again(&self) -> Option<Result<Prepared, ImageError>> {
        let origin = self.origin.as_ref()?;
        let input = Input {
            bytes: &origin.bytes,
            tables: self.given_tables(),
        };
        let mut preparer = Preparer {
            pipeline: origin.pipeline.clone(),
            options: origin.options,
            decode: Decode::Hybrid,
            decoder: Decoder::new(),
            tables: None,
        };
        Some(preparer.prepare(input, origin.key))
    }

    /// The tables that were given with a packed image.
    fn given_tables(&self) -> Option<&[u8]> {
        match &self.source {
            PreparedSource::Blocks(Blocks {
                coded: Some(CodedData::Groups(groups)),
                ..
            }) => groups.tables().given.as_deref(),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) enum PreparedSource {
    Blocks(Blocks),
    Pixels(DecodedPixels),
}

/// The blocks for the needed part of a JPEG.
#[derive(Debug)]
pub(crate) struct Blocks {
    /// 1 grey, 2 YCbCr, 3 RGB.
    pub kind: u32,
    /// The first pixel's column and row in the scaled image.
    pub corner: [u32; 2],
    pub components: Vec<Component>,
    /// The coded data for the device; then components have no coefficients.
    pub coded: Option<CodedData>,
}

/// What the device decodes.
#[derive(Debug)]
pub(crate) enum CodedData {
    /// Of a JPEG.
    Scan(Scan),
    /// Of a packed image.
    Groups(Groups),
}

impl CodedData {
    /// About the number of words that it takes in a batch.
    fn words(&self) -> usize {
        match self {
            CodedData::Scan(scan) => scan.words(),
            CodedData::Groups(groups) => groups.words(),
        }
    }
}

/// The blocks of one component.
#[derive(Debug)]
pub(crate) struct Component {
    pub layout: PlaneLayout,
    /// Three words for each block: the mask of its nonzero coefficients, in rows, low half first, and the
    /// index of its first value.
    pub heads: Vec<[u32; 3]>,
    /// Two values per word.
    pub values: Vec<u32>,
    pub steps: [i16; 64],
}

#[derive(Debug)]
pub(crate) struct PreparedStage {
    pub width: u32,
    pub height: u32,
    pub kind: StageKind,
    pub points: u32,
    pub program: Program,
}

/// The kind of launch for a stage.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum StageKind {
    Resample(ResampleMethod),
    Contrast { factor: f32 },
    Levels { by: LevelTable },
    Sharpen { factor: f32 },
    Blur { across: u32, down: u32 },
    Dilate { radius: u32 },
}

impl Preparer {
    /// A preparer for a pipeline that makes batches.
    ///
    /// # Errors
    /// The errors of [`Pipeline::check`] and [`Pipeline::check_on_device`].
    pub fn new(pipeline: Arc<Pipeline>, options: DecodeOptions) -> Result<Preparer, PipelineError> {
        pipeline.check()?;
        pipeline.check_on_device()?;
        Ok(Preparer {
            pipeline,
            options,
            decode: Decode::default(),
            decoder: Decoder::new(),
            tables: None,
        })
    }

    /// The same with another decode mode.
    pub fn with_decode(self, decode: Decode) -> Preparer {
        Preparer { decode, ..self }
    }

    /// Draws, plans and reads one sample. If the input has an index of a JPEG's rows, those above the needed
    /// part are skipped.
    ///
    /// # Errors
    /// [`ImageError`] if the bytes are broken or the image does not fit the pipeline, or the device.
    pub fn prepare<'a>(&mut self, input: impl Into<Input<'a>>, key: DrawKey) -> Result<Prepared, ImageError> {
        let input = input.into();
        let plan = DevicePlan::new(input.bytes, &self.pipeline, &self.options, key)?;
        let prepared = self.prepare_plan(input, &plan, key);
        if plan.is_outlier() {
            self.decoder = Decoder::new();
        }
        prepared
    }

    fn prepare_plan(
        &mut self,
        input: Input<'_>,
        plan: &DevicePlan,
        key: DrawKey,
    ) -> Result<Prepared, ImageError> {
        let mut origin = None;
        let (source, lowered) = if plan.has_planes() {
            let coded = match self.decode {
                Decode::Device => self.coded_source(input, plan),
                Decode::Hybrid => None,
            };
            let source = match coded {
                Some((source, bytes)) => {
                    origin = Some(Box::new(Origin {
                        pipeline: self.pipeline.clone(),
                        options: self.options,
                        bytes,
                        key,
                    }));
                    source
                }
                None => blocks_source(&mut self.decoder, input, plan)?,
            };
            let layouts: Vec<PlaneLayout> = source.components.iter().map(|c| c.layout).collect();
            (
                PreparedSource::Blocks(source),
                plan.lower(DeviceSource::Planes(&layouts)),
            )
        } else {
            let pixels = plan.decode(input, &mut self.decoder)?;
            (PreparedSource::Pixels(pixels), plan.lower(DeviceSource::Pixels))
        };
        let apart = plan.apart();
        let stages = lowered.stages.iter().enumerate();
        let stages = stages.map(|(i, stage)| prepare_stage(stage, apart && i == 0));
        Ok(Prepared {
            source,
            stages: stages.collect::<Result<_, _>>()?,
            numbers: Box::new(lowered.numbers),
            erased: lowered.erased,
            origin,
        })
    }

    /// The blocks of a sample for decoding on the device, and its bytes; `None` for a file that the device cannot
    /// decode, or a broken one, for which the hybrid mode gives the error.
    fn coded_source(&mut self, input: Input<'_>, plan: &DevicePlan) -> Option<(Blocks, Arc<[u8]>)> {
        let (region, scale) = (plan.region(), plan.scale());
        let without = |layout, steps| Component {
            layout,
            heads: Vec::new(),
            values: Vec::new(),
            steps,
        };
        let (color, components, coded, bytes): (_, Vec<Component>, _, Arc<[u8]>);
        if is_packed(input.bytes) {
            // The copy is in the cache when places in it are read.
            bytes = input.bytes.into();
            let copy = Input {
                bytes: &bytes,
                ..input
            };
            let groups = self.decoder.packed_groups(copy, region, scale).ok()??;
            let tables = DeviceTables::of(groups.tables, input.tables, self.tables.as_ref());
            self.tables = Some(tables.clone());
            let all = groups.components().iter();
            (color, components) = (groups.color, all.map(|c| without(c.layout, c.steps)).collect());
            coded = CodedData::Groups(Groups::new(&groups, bytes.clone(), tables));
        } else {
            let scan = self.decoder.coded(input, region, scale).ok()??;
            bytes = input.bytes.into();
            let all = scan.components().iter();
            (color, components) = (scan.color, all.map(|c| without(c.layout, c.steps)).collect());
            coded = CodedData::Scan(Scan::new(&scan)?);
        }
        Some((Blocks::new(color, plan, components, Some(coded)), bytes))
    }
}

impl Blocks {
    fn new(
        color: ColorModel,
        plan: &DevicePlan,
        components: Vec<Component>,
        coded: Option<CodedData>,
    ) -> Blocks {
        let (region, factor) = (plan.region(), plan.scale().factor());
        Blocks {
            kind: match color {
                ColorModel::Grey => 1,
                ColorModel::Rgb => 3,
                _ => 2,
            },
            corner: [region.x / factor, region.y / factor],
            components,
            coded,
        }
    }
}

/// The blocks of a sample with their coefficients.
fn blocks_source(decoder: &mut Decoder, input: Input<'_>, plan: &DevicePlan) -> Result<Blocks, ImageError> {
    let blocks = decoder.decode_blocks(input, plan.region(), plan.scale())?;
    let components = blocks.components().iter().map(|component| Component {
        layout: component.layout,
        heads: component
            .heads
            .iter()
            .map(|head| [head.mask as u32, (head.mask >> 32) as u32, head.first])
            .collect(),
        values: pairs(component.values),
        steps: component.steps,
    });
    Ok(Blocks::new(blocks.color, plan, components.collect(), None))
}

/// 16-bit numbers, two per word.
fn pairs(values: &[i16]) -> Vec<u32> {
    let (pairs, rest) = values.as_chunks();
    let pair = |&[low, high]: &[i16; 2]| u32::from(low as u16) | u32::from(high as u16) << 16;
    let last = rest.iter().map(|&value| pair(&[value, 0]));
    let mut words = Vec::with_capacity(pairs.len() + 1);
    words.extend(pairs.iter().map(pair));
    words.extend(last);
    words
}

/// Makes a loader's workers prepare samples for a device.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ForGpu {
    /// Where the symbols of files are decoded.
    pub(crate) decode: Decode,
}

impl Preparation for ForGpu {
    fn begin(
        &self,
        pipeline: &Arc<Pipeline>,
        decode: DecodeOptions,
    ) -> Result<Box<dyn Prepare>, PipelineError> {
        let preparer = Preparer::new(pipeline.clone(), decode)?;
        Ok(Box::new(preparer.with_decode(self.decode)))
    }
}

impl Prepare for Preparer {
    fn prepare(&mut self, input: Input<'_>, key: DrawKey) -> Result<PreparedSample, ImageError> {
        Ok(Arc::new(Preparer::prepare(self, input, key)?))
    }

    /// In the hybrid mode, which decodes every symbol that is needed.
    fn prepare_checked(&mut self, input: Input<'_>, key: DrawKey) -> Result<PreparedSample, ImageError> {
        let decode = mem::replace(&mut self.decode, Decode::Hybrid);
        let prepared = Preparer::prepare(self, input, key);
        self.decode = decode;
        Ok(Arc::new(prepared?))
    }
}

fn prepare_stage(stage: &DeviceStage, apart: bool) -> Result<PreparedStage, ImageError> {
    let DeviceStage {
        width,
        height,
        work,
        points,
    } = stage;
    let pixels = u64::from(*width) * u64::from(*height);
    let kind = match work {
        DeviceWork::Resample(resample) => match resample.map {
            ResampleMap::Upright(_) if apart => StageKind::Resample(ResampleMethod::Apart),
            ResampleMap::Upright(_) => StageKind::Resample(ResampleMethod::Upright),
            ResampleMap::Turned(_) => StageKind::Resample(ResampleMethod::Turned),
        },
        DeviceWork::Contrast { .. } if pixels > MOST_AVERAGED => {
            return Err(ImageError::DoesNotFit(format!(
                "ColorJitter's contrast on an image of {width}x{height} pixels: the executor gpu averages at most \
                 {MOST_AVERAGED}; crop or resize before it, or use the executor fused"
            )));
        }
        DeviceWork::Contrast { factor } => StageKind::Contrast { factor: *factor },
        DeviceWork::Levels { by } => StageKind::Levels { by: *by },
        DeviceWork::Sharpen { factor } => StageKind::Sharpen { factor: *factor },
        DeviceWork::Blur { across, down } => StageKind::Blur {
            across: across.len() as u32,
            down: down.len() as u32,
        },
        DeviceWork::Dilate { radius } => StageKind::Dilate { radius: *radius },
    };
    Ok(PreparedStage {
        width: *width,
        height: *height,
        kind,
        points: points.len() as u32,
        program: program(work, points, *height),
    })
}

/// The kernels' number for a kind of upsampling.
pub(crate) fn upsampling(kind: Upsampling) -> u32 {
    match kind {
        Upsampling::None | Upsampling::Repeat => 0,
        Upsampling::H2 => 1,
        Upsampling::V2 => 2,
        Upsampling::H2V2 => 3,
    }
}
