//! Where everything of a batch lies in the device's memory: words, blocks, planes, records of launches.

use cubecl::prelude::*;
use cubecl::server::ServerError;
use half::{bf16, f16};
use stokehold_pipeline::{ErasedContent, SampleType};

use crate::client::{Buffer, Gpu};
use crate::entropy::Scans;
use crate::kernels::{colour, decode, gather, surroundings};
use crate::prepare::{Blocks, Component, Prepared, PreparedSource, PreparedStage, StageKind, upsampling};
use crate::words::Words;

/// The most blocks of a record: components are cut into rows of blocks, so that a launch is not as wide as
/// its largest component.
pub(super) const BLOCKS: u32 = 512;

/// The memory layout of a batch, before any memory is taken.
#[derive(Debug, Default)]
pub(super) struct Layout {
    pub(super) words: Words,
    /// Records of components.
    pub(super) components: Vec<[u32; decode::RECORD as usize]>,
    /// The same for those whose coefficients the device decodes.
    pub(super) coded_components: Vec<[u32; decode::RECORD as usize]>,
    pub(super) scans: Scans,
    /// The samples that the scans belong to.
    pub(super) coded: Vec<usize>,
    pub(super) blocks: u64,
    pub(super) plane_bytes: u64,
    pub(super) pixels: u64,
    pub(super) stages: Vec<Launches>,
    pub(super) emits: Vec<[u32; 4]>,
    pub(super) sample_type: SampleType,
    /// Tables from bytes to numbers, and their places among the words.
    pub(super) tables: Vec<(Box<[[f32; 256]; 3]>, u32)>,
}

/// The launches for all images' stages with the same number.
#[derive(Debug, Default)]
pub(super) struct Launches {
    pub(super) resample: Grid<6>,
    pub(super) means: Vec<[u32; 3]>,
    pub(super) contrast: Grid<7>,
    pub(super) blur: Grid<9>,
    pub(super) blur_down: Vec<[u32; 9]>,
    pub(super) dilate: Grid<9>,
}

/// The records of images, and the largest image.
#[derive(Debug)]
pub(super) struct Grid<const N: usize> {
    pub(super) records: Vec<[u32; N]>,
    pub(super) width: u32,
    pub(super) height: u32,
}

impl<const N: usize> Default for Grid<N> {
    pub(super) fn default() -> Self {
        Grid {
            records: Vec::new(),
            width: 0,
            height: 0,
        }
    }
}

impl<const N: usize> Grid<N> {
    pub(super) fn push(&mut self, record: [u32; N], width: u32, height: u32) {
        self.records.push(record);
        (self.width, self.height) = (self.width.max(width), self.height.max(height));
    }
}

/// Splits records of components into ranges that fit one dimension of a launch: the start and the length of
/// each.
pub(super) fn countable(table: u32, count: u32) -> impl Iterator<Item = (u32, u32)> {
    let firsts = (0..count).step_by(MOST_COUNTED);
    firsts.map(move |first| {
        (
            table + decode::RECORD * first,
            (count - first).min(MOST_COUNTED as u32),
        )
    })
}

/// A number's bits in the batch's type. Bytes have no such form.
pub(super) fn bits(number: f32, sample_type: SampleType) -> u32 {
    match sample_type {
        SampleType::F32 | SampleType::U8 => number.to_bits(),
        SampleType::F16 => f16::from_f32(number).to_bits().into(),
        SampleType::Bf16 => bf16::from_f32(number).to_bits().into(),
    }
}

impl Layout {
    /// Bytes on the device, without the batch itself.
    pub(super) fn bytes(&self) -> u64 {
        self.pieces().into_iter().sum()
    }

    pub(super) fn pieces(&self) -> [u64; 5] {
        let records = self.components.len() + self.coded_components.len();
        let [of_scans, states] = self.scans.pieces();
        [
            4 * (self.words.0.len() + decode::RECORD as usize * records) as u64 + of_scans,
            128 * self.blocks,
            self.plane_bytes,
            4 * self.pixels,
            states,
        ]
    }

    pub(super) fn add(&mut self, index: usize, sample: &Prepared) {
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
    pub(super) fn blocks(&mut self, index: usize, blocks: &Blocks) -> u32 {
        let (mut planes, mut firsts) = (Vec::new(), Vec::new());
        for component in &blocks.components {
            firsts.push(self.blocks as u32);
            planes.push(self.component(component, blocks.scan.is_some()));
        }
        if let Some(scan) = &blocks.scan {
            self.scans.push(&mut self.words, scan, &firsts);
            self.coded.push(index);
        }
        let source = self.words.here();
        self.words
            .extend([blocks.kind, 0, blocks.corner[0], blocks.corner[1]]);
        self.words.extend(planes.into_iter().flatten());
        source
    }

    /// Places the table from bytes to numbers, and returns its place. Consecutive samples usually share one.
    pub(super) fn numbers(&mut self, sample: &Prepared) -> u32 {
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
    pub(super) fn component(&mut self, component: &Component, coded: bool) -> [u32; 9] {
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
    pub(super) fn stage(&mut self, number: usize, stage: &PreparedStage, source: u32, held: u32) -> u32 {
        let program = self.words.here();
        self.words.copy(&stage.program);
        let (width, height) = (stage.width, stage.height);
        let pixels = width * height;
        let out = self.pixels as u32;
        self.pixels += u64::from(width) * u64::from(height);
        let launches = &mut self.stages[number];
        let weights = program + 2 * stage.points;
        match stage.kind {
            StageKind::Upright | StageKind::Turned => {
                let turned = u32::from(stage.kind == StageKind::Turned);
                let record = [turned, width, height, out, program, source];
                launches.resample.push(record, width, height);
            }
            StageKind::Contrast { factor } => {
                let mean = self.pixels as u32;
                self.pixels += 1 + u64::from(colour::SUMMING);
                launches.means.push([held, pixels, mean]);
                let record = [held, pixels, mean, factor.to_bits(), out, program, stage.points];
                launches.contrast.push(record, pixels, 1);
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

/// [`Launches`] whose records have been placed among the words.
pub(super) struct Placed {
    pub(super) resample: PlacedGrid,
    pub(super) means: u32,
    pub(super) contrast: PlacedGrid,
    pub(super) blur: PlacedGrid,
    pub(super) blur_down: u32,
    pub(super) dilate: PlacedGrid,
}

/// The place of a [`Grid`]'s records, and the size of a launch: the largest width and height, and the number
/// of images.
pub(super) struct PlacedGrid {
    pub(super) records: u32,
    pub(super) size: [u32; 3],
}

impl<const N: usize> Grid<N> {
    pub(super) fn place(&self, words: &mut Words) -> PlacedGrid {
        PlacedGrid {
            records: words.records(&self.records),
            size: [self.width, self.height, self.records.len() as u32],
        }
    }
}

impl Launches {
    pub(super) fn place(self, words: &mut Words) -> Placed {
        Placed {
            resample: self.resample.place(words),
            means: words.records(&self.means),
            contrast: self.contrast.place(words),
            blur: self.blur.place(words),
            blur_down: words.records(&self.blur_down),
            dilate: self.dilate.place(words),
        }
    }
}

impl Placed {
    pub(super) fn launch(
        &self,
        gpu: &Gpu,
        words: &Buffer,
        planes: &Buffer,
        pixels: &Buffer,
    ) -> Result<(), ServerError> {
        let (client, hues) = (&gpu.client, || gpu.tables.hues.arg());
        let tile = CubeDim::new_2d(gather::TILE, gather::TILE);
        let tiles = |[width, height, count]: [u32; 3]| {
            CubeCount::Static(width.div_ceil(gather::TILE), height.div_ceil(gather::TILE), count)
        };
        // A 0 that the kernels' compiler does not know to be 0.
        let zero = 0;
        // CubeCL skips a launch of size zero.
        gather::resample::launch(
            client,
            tiles(self.resample.size),
            tile,
            words.arg(),
            planes.arg(),
            hues(),
            pixels.arg(),
            self.resample.records,
            zero,
        );
        gpu.check(pixels)?;
        let [widest, _, images] = self.contrast.size;
        let dim = CubeDim::new_1d(colour::SUMMING);
        colour::sums::launch(
            client,
            CubeCount::Static(images, 1, 1),
            dim,
            words.arg(),
            pixels.arg(),
            self.means,
        );
        gpu.check(pixels)?;
        colour::mean::launch(
            client,
            CubeCount::Static(images.div_ceil(32), 1, 1),
            CubeDim::new_1d(32),
            words.arg(),
            pixels.arg(),
            self.means,
            images,
        );
        gpu.check(pixels)?;
        colour::contrast::launch(
            client,
            CubeCount::Static(widest.div_ceil(colour::SUMMING), images, 1),
            dim,
            words.arg(),
            hues(),
            pixels.arg(),
            self.contrast.records,
            zero,
        );
        gpu.check(pixels)?;
        surroundings::blur_across::launch(
            client,
            tiles(self.blur.size),
            tile,
            words.arg(),
            pixels.arg(),
            self.blur.records,
            zero,
        );
        gpu.check(pixels)?;
        macro_rules! surroundings {
            ($kernel:ident, $size:expr, $records:expr) => {
                surroundings::$kernel::launch(
                    client,
                    tiles($size),
                    tile,
                    words.arg(),
                    hues(),
                    pixels.arg(),
                    $records,
                    zero,
                )
            };
        }
        surroundings!(blur_down, self.blur.size, self.blur_down);
        gpu.check(pixels)?;
        surroundings!(dilate, self.dilate.size, self.dilate.records);
        gpu.check(pixels)
    }
}
