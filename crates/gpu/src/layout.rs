//! The memory layout of a batch: every sample's data, tables and records, among the words that are uploaded in one piece.

use crate::entropy::Scans;
use crate::kernels::windows::AXIS;
use crate::kernels::{colour, decode};
use crate::packed::GroupsOfBatch;
use crate::prepare::{
    Blocks, CodedData, Component, Prepared, PreparedSource, PreparedStage, StageKind, upsampling,
};
use crate::words::Words;
use half::{bf16, f16};
use stokehold_pipeline::{ErasedContent, SampleType};

/// The most blocks of a record of several rows: components are cut into rows of blocks, so that a launch is not as wide
/// as its largest component. One row may have more.
const BLOCKS: u32 = 512;

/// The memory layout of a batch, before any memory is taken.
#[derive(Debug, Default)]
pub(crate) struct Layout {
    pub words: Words,
    /// Records of components.
    pub components: Vec<[u32; decode::RECORD as usize]>,
    /// The same for those whose coefficients the device decodes.
    pub coded_components: Vec<[u32; decode::RECORD as usize]>,
    pub scans: Scans,
    pub groups: GroupsOfBatch,
    /// The samples that the scans and the groups belong to.
    pub coded: Vec<usize>,
    pub blocks: u64,
    pub plane_bytes: u64,
    pub pixels: u64,
    /// The axes of upright resampling, in all stages.
    pub axes: Grid<{ AXIS as usize }>,
    pub stages: Vec<Launches>,
    pub emits: Vec<[u32; 4]>,
    pub sample_type: SampleType,
    /// Tables from bytes to numbers, and their places among the words.
    pub tables: Vec<(Box<[[f32; 256]; 3]>, u32)>,
}

/// The launches for all images' stages with the same number.
#[derive(Debug, Default)]
pub(crate) struct Launches {
    /// By their [`ResampleMethod`](crate::kernels::gather::ResampleMethod).
    pub resample: [Grid<5>; 3],
    pub means: Vec<[u32; 3]>,
    pub contrast: Grid<7>,
    pub counts: Vec<[u32; 4]>,
    pub levels: Grid<6>,
    pub blur: Grid<9>,
    pub blur_down: Vec<[u32; 9]>,
    pub dilate: Grid<9>,
    pub sharpen: Grid<9>,
}

/// The records of images, and the largest image.
#[derive(Debug)]
pub(crate) struct Grid<const N: usize> {
    pub records: Vec<[u32; N]>,
    pub width: u32,
    pub height: u32,
}

impl Launches {
    /// Words of the records.
    fn words(&self) -> usize {
        let Launches {
            resample,
            means,
            contrast,
            counts,
            levels,
            blur,
            blur_down,
            dilate,
            sharpen,
        } = self;
        resample.iter().map(Grid::words).sum::<usize>()
            + means.as_flattened().len()
            + contrast.words()
            + counts.as_flattened().len()
            + levels.words()
            + blur.words()
            + blur_down.as_flattened().len()
            + dilate.words()
            + sharpen.words()
    }
}

impl<const N: usize> Default for Grid<N> {
    fn default() -> Self {
        Grid {
            records: Vec::new(),
            width: 0,
            height: 0,
        }
    }
}

impl<const N: usize> Grid<N> {
    fn words(&self) -> usize {
        self.records.as_flattened().len()
    }

    pub fn push(&mut self, record: [u32; N], width: u32, height: u32) {
        self.records.push(record);
        (self.width, self.height) = (self.width.max(width), self.height.max(height));
    }
}

impl Layout {
    /// Bytes on the device, without the batch itself.
    pub fn bytes(&self) -> u64 {
        self.pieces().into_iter().sum()
    }

    /// The sizes of its buffers: words, coefficients, planes, pixels, states of subsequences, scratch of groups, faults.
    pub fn pieces(&self) -> [u64; 7] {
        let components = self.components.len() + self.coded_components.len();
        let stages: usize = self.stages.iter().map(Launches::words).sum();
        let records = decode::RECORD as usize * components
            + self.axes.words()
            + stages
            + self.emits.as_flattened().len();
        let [of_scans, states] = self.scans.pieces();
        let [of_groups, scratch] = self.groups.pieces();
        [
            4 * (self.words.0.len() + records) as u64 + of_scans + of_groups,
            128 * self.blocks,
            self.plane_bytes,
            4 * self.pixels,
            states,
            scratch,
            4 * self.coded.len() as u64,
        ]
    }

    /// Places a sample, the `index`th of the batch.
    pub fn add(&mut self, index: usize, sample: &Prepared) {
        let mut source = match &sample.source {
            PreparedSource::Blocks(blocks) => self.blocks(index, blocks),
            PreparedSource::Pixels(pixels) => {
                let source = self.words.here();
                self.words.extend([4, source + 4, pixels.width, pixels.height]);
                let data = pixels.data.as_chunks().0.iter();
                self.words.extend(data.map(|pixel| u32::from_le_bytes(*pixel)));
                source
            }
        };
        let mut held = 0;
        for (number, stage) in sample.stages.iter().enumerate() {
            if self.stages.len() == number {
                self.stages.push(Launches::default());
            }
            held = self.stage(number, stage, source, held);
            source = self.words.here();
            self.words.extend([0, held, stage.width, stage.height]);
        }
        let numbers = self.numbers(sample);
        let bits = |&number: &f32| bits(number, self.sample_type);
        let mut rectangles = Vec::new();
        for erased in &sample.erased {
            let mut rectangle = [erased.left, erased.top, erased.width, erased.height, 0, 0, 0, 0];
            match &erased.content {
                ErasedContent::Flat(rgb) => rectangle[5..].copy_from_slice(&rgb.each_ref().map(bits)),
                ErasedContent::Each(values) => {
                    (rectangle[4], rectangle[5]) = (1, self.words.here());
                    self.words.extend(values.iter().map(bits));
                }
            }
            rectangles.extend(rectangle);
        }
        self.emits
            .push([held, numbers, self.words.here(), sample.erased.len() as u32]);
        self.words.extend(rectangles);
    }

    /// Places the blocks of a sample. Returns the place of its source description.
    fn blocks(&mut self, index: usize, blocks: &Blocks) -> u32 {
        let (mut planes, mut firsts) = (Vec::new(), Vec::new());
        for component in &blocks.components {
            firsts.push(self.blocks as u32);
            planes.push(self.component(component, blocks.coded.is_some()));
        }
        if let Some(coded) = &blocks.coded {
            let number = self.coded.len() as u32;
            match coded {
                CodedData::Scan(scan) => self.scans.push(&mut self.words, scan, &firsts, number),
                CodedData::Groups(groups) => self.groups.push(&mut self.words, groups, &firsts, number),
            }
            self.coded.push(index);
        }
        let source = self.words.here();
        self.words
            .extend([blocks.kind, 0, blocks.corner[0], blocks.corner[1]]);
        self.words.extend(planes.into_iter().flatten());
        source
    }

    /// Places the table from bytes to numbers, and returns its place. Consecutive samples usually share one.
    fn numbers(&mut self, sample: &Prepared) -> u32 {
        let before = self.tables.last().map(|table| table.0 == sample.numbers);
        if before != Some(true) {
            let here = self.words.here();
            match self.sample_type {
                SampleType::U8 => self.words.extend((0..3).flat_map(|_| 0..256)),
                other => {
                    let all = sample.numbers.iter().flatten();
                    self.words.extend(all.map(|&number| bits(number, other)));
                }
            }
            self.tables.push((sample.numbers.clone(), here));
        }
        self.tables[self.tables.len() - 1].1
    }

    /// Places a component's blocks and plane, and returns its nine words of a source.
    fn component(&mut self, component: &Component, coded: bool) -> [u32; 9] {
        let layout = &component.layout;
        let heads = self.words.records(&component.heads);
        let values = self.words.here();
        self.words.copy(&component.values);
        let steps = self.words.here();
        self.words
            .extend(component.steps.map(|step| i32::from(step) as u32));
        let stride = layout.side * layout.blocks_wide;
        let plane = self.plane_bytes as u32;
        let rows = (BLOCKS / layout.blocks_wide).max(1);
        for top in (0..layout.blocks_high).step_by(rows as usize) {
            let first = top * layout.blocks_wide;
            let blocks = rows.min(layout.blocks_high - top) * layout.blocks_wide;
            let components = match coded {
                true => &mut self.coded_components,
                false => &mut self.components,
            };
            components.push([
                heads + 3 * first,
                blocks,
                self.blocks as u32 + first,
                steps,
                layout.blocks_wide,
                plane + layout.side * top * stride,
                stride,
                layout.side,
                values,
            ]);
        }
        self.blocks += u64::from(layout.blocks_wide) * u64::from(layout.blocks_high);
        self.plane_bytes += u64::from(stride) * u64::from(layout.side * layout.blocks_high);
        [
            plane,
            stride,
            layout.width,
            layout.height,
            layout.x,
            layout.y,
            layout.factors.0,
            layout.factors.1,
            upsampling(layout.upsampling),
        ]
    }

    /// Places a stage. Returns the place of its result among the pixels.
    fn stage(&mut self, number: usize, stage: &PreparedStage, source: u32, held: u32) -> u32 {
        let program = stage
            .program
            .place(&mut self.words, &mut self.axes, &mut self.pixels);
        let (width, height) = (stage.width, stage.height);
        let pixels = width * height;
        let out = self.pixels as u32;
        self.pixels += u64::from(width) * u64::from(height);
        let launches = &mut self.stages[number];
        let weights = program + 2 * stage.points;
        match stage.kind {
            StageKind::Resample(method) => {
                let record = [width, height, out, program, source];
                launches.resample[method as usize].push(record, width, height);
            }
            StageKind::Contrast { factor } => {
                let mean = self.pixels as u32;
                self.pixels += 1 + u64::from(colour::SUMMING);
                launches.means.push([held, pixels, mean]);
                let record = [held, pixels, mean, factor.to_bits(), out, program, stage.points];
                launches.contrast.push(record, pixels, 1);
            }
            StageKind::Levels { by } => {
                let counts = self.pixels as u32;
                self.pixels += u64::from(colour::COUNTS);
                launches.counts.push([held, pixels, counts, by as u32]);
                let tables = counts + 768 * colour::COUNTING;
                let record = [held, pixels, tables, out, program, stage.points];
                launches.levels.push(record, pixels, 1);
            }
            StageKind::Sharpen { factor } => {
                let factor = factor.to_bits();
                let record = [width, height, held, out, program, stage.points, factor, 0, 0];
                launches.sharpen.push(record, width, height);
            }
            StageKind::Blur { across, down } => {
                let sums = self.pixels as u32;
                self.pixels += 3 * u64::from(pixels);
                let record = |weights, count| {
                    [
                        width,
                        height,
                        held,
                        out,
                        program,
                        stage.points,
                        weights,
                        count,
                        sums,
                    ]
                };
                launches.blur.push(record(weights, across), width, height);
                launches.blur_down.push(record(weights + across, down));
            }
            StageKind::Dilate { radius } => {
                let record = [width, height, held, out, program, stage.points, radius, 0, 0];
                launches.dilate.push(record, width, height);
            }
        }
        out
    }
}

/// A number's bits in the batch's type. Bytes have no such form.
fn bits(number: f32, sample_type: SampleType) -> u32 {
    match sample_type {
        SampleType::F32 | SampleType::U8 => number.to_bits(),
        SampleType::F16 => f16::from_f32(number).to_bits().into(),
        SampleType::Bf16 => bf16::from_f32(number).to_bits().into(),
    }
}
