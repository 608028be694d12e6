//! A batch on the device: its memory layout, and the launches.

use crate::GpuError;
use crate::client::Gpu;
use crate::coefficients::{Coefficients, Faults};
use crate::entropy::Scans;
use crate::kernels::gather::Way;
use crate::kernels::{colour, decode, emit, gather, surroundings};
use crate::packed::GroupsOfBatch;
use crate::prepare::{
    Blocks, CodedData, Component, Prepared, PreparedSource, PreparedStage, StageKind, upsampling,
};
use crate::queue::{Buffer, queued};
use crate::words::Words;
use cubecl::prelude::*;
use cubecl::server::ServerError;
use half::{bf16, f16};
use std::collections::BTreeMap;
use stokehold_pipeline::{ErasedContent, ImageError, Pipeline, SampleType};

/// Makes batches of prepared samples on one device.
pub struct Batcher {
    gpu: Gpu,
    sample_type: SampleType,
    width: u32,
    height: u32,
    /// Bytes.
    budget: u64,
}

/// A batch on the device: (N, 3, height, width). Clones share its memory, which is not written any further.
#[derive(Debug, Clone)]
pub struct DeviceBatch {
    pub(crate) numbers: Buffer,
    /// N, 3, height, width.
    pub shape: [usize; 4],
    /// The type of the numbers.
    pub sample_type: SampleType,
    /// The number of samples whose symbols the device decoded.
    pub decoded: usize,
    /// The number of samples whose symbols the device could not decode; the CPU decoded them or found them to
    /// be broken.
    pub given_back: usize,
    /// The broken ones, which are not in the batch: their indices among the samples that it was made of, and
    /// the errors.
    pub bad: Vec<(usize, ImageError)>,
}

/// The memory layout of a batch, before anything is uploaded.
pub struct LaidOut {
    layout: Layout,
    count: usize,
    /// Bytes.
    need: u64,
}

/// The samples whose symbols the device decodes, and the buffer for its findings.
type Coded = (Vec<usize>, Buffer);

/// A batch that the device is working on.
pub struct InWork {
    numbers: Buffer,
    count: usize,
    /// Bytes.
    need: u64,
    coded: Option<Coded>,
}

impl DeviceBatch {
    /// The memory of the numbers, without gaps, to make a tensor of it.
    pub fn into_handle(self) -> cubecl::server::Handle {
        self.numbers.handle
    }
}

/// The most blocks of a record of several rows: components are cut into rows of blocks, so that a launch is not as wide
/// as its largest component. One row may have more.
const BLOCKS: u32 = 512;

/// The most records, or images, in one dimension of a launch.
const MOST_COUNTED: usize = 65535;

/// The memory layout of a batch, before any memory is taken.
#[derive(Debug, Default)]
struct Layout {
    words: Words,
    /// Records of components.
    components: Vec<[u32; decode::RECORD as usize]>,
    /// The same for those whose coefficients the device decodes.
    coded_components: Vec<[u32; decode::RECORD as usize]>,
    scans: Scans,
    groups: GroupsOfBatch,
    /// The samples that the scans and the groups belong to.
    coded: Vec<usize>,
    blocks: u64,
    plane_bytes: u64,
    pixels: u64,
    stages: Vec<Launches>,
    emits: Vec<[u32; 4]>,
    sample_type: SampleType,
    /// Tables from bytes to numbers, and their places among the words.
    tables: Vec<(Box<[[f32; 256]; 3]>, u32)>,
}

/// The launches for all images' stages with the same number.
#[derive(Debug, Default)]
struct Launches {
    /// By their [`Way`].
    resample: [Grid<5>; 3],
    means: Vec<[u32; 3]>,
    contrast: Grid<7>,
    counts: Vec<[u32; 4]>,
    levels: Grid<6>,
    blur: Grid<9>,
    blur_down: Vec<[u32; 9]>,
    dilate: Grid<9>,
    sharpen: Grid<9>,
}

/// The records of images, and the largest image.
#[derive(Debug)]
struct Grid<const N: usize> {
    records: Vec<[u32; N]>,
    width: u32,
    height: u32,
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
    fn push(&mut self, record: [u32; N], width: u32, height: u32) {
        self.records.push(record);
        (self.width, self.height) = (self.width.max(width), self.height.max(height));
    }
}

impl Batcher {
    /// A maker of batches of `sample_type` with a memory budget in bytes.
    ///
    /// # Errors
    /// If the pipeline makes no batches, or cannot end in that type.
    pub fn new(
        gpu: Gpu,
        pipeline: &Pipeline,
        sample_type: SampleType,
        budget: u64,
    ) -> Result<Batcher, GpuError> {
        let (width, height) = pipeline.check()?;
        pipeline.check_output(sample_type)?;
        pipeline.check_on_device()?;
        Ok(Batcher {
            gpu,
            sample_type,
            width,
            height,
            budget,
        })
    }

    /// Its device.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Makes a batch: [`Batcher::lay_out`], [`Batcher::launch`] and [`Batcher::finish`] in one call.
    ///
    /// # Errors
    /// The errors of these three.
    pub fn run<S: AsRef<Prepared>>(&self, samples: &[S]) -> Result<DeviceBatch, GpuError> {
        self.finish(self.launch(self.lay_out(samples)?)?, samples)
    }

    /// Computes the memory layout of a batch, and rejects one that does not fit. Takes no device memory yet.
    ///
    /// # Errors
    /// [`GpuError::Budget`] if the batch needs more memory than it may have, [`GpuError::Piece`] if it needs more of it in one
    /// piece than the device gives, [`GpuError::TooMany`] if it has more than 65 535 images.
    pub fn lay_out<S: AsRef<Prepared>>(&self, samples: &[S]) -> Result<LaidOut, GpuError> {
        if samples.len() > MOST_COUNTED {
            return Err(GpuError::TooMany {
                images: samples.len(),
                most: MOST_COUNTED,
            });
        }
        let most: usize = samples.iter().map(|sample| sample.as_ref().words()).sum();
        let mut layout = Layout {
            sample_type: self.sample_type,
            // Codes, records and subsequences usually take less than an eighth of that; else the vector grows
            // once.
            words: Words(Vec::with_capacity(most + most / 8)),
            ..Layout::default()
        };
        let out = samples.len() as u64 * self.sample_bytes();
        let mut largest = (0, 0);
        let mut before = 0;
        for (index, sample) in samples.iter().enumerate() {
            layout.add(index, sample.as_ref());
            let need = layout.bytes() - before;
            before += need;
            if need > largest.1 {
                largest = (index, need);
            }
        }
        let need = layout.bytes() + out;
        if need > self.budget {
            return Err(GpuError::Budget {
                images: samples.len(),
                need: mib(need),
                budget: mib(self.budget),
                largest: largest.0,
                largest_need: mib(largest.1),
            });
        }
        // Each of a batch's buffers is counted in 32 bits, and is one allocation on the device.
        let most = self.gpu.largest_buffer().min(u64::from(u32::MAX));
        let piece = layout.pieces().into_iter().fold(out, u64::max);
        if piece > most {
            return Err(GpuError::Piece {
                device: self.gpu.name().to_string(),
                images: samples.len(),
                need: mib(piece),
                most: mib(most),
            });
        }
        Ok(LaidOut {
            layout,
            count: samples.len(),
            need,
        })
    }

    /// Queues the work of a batch: upload, decoding, augmenting and writing. Returns without waiting.
    ///
    /// # Errors
    /// [`GpuError::Batch`] if some of it could not be queued.
    pub fn launch(&self, laid_out: LaidOut) -> Result<InWork, GpuError> {
        let LaidOut { layout, count, need } = laid_out;
        let work = || match count {
            0 => Ok((self.gpu.empty(0, self.sample_type.bytes()), None)),
            count => self.queue(layout, count),
        };
        let (numbers, coded) =
            queued(&self.gpu.client, work).map_err(|reason| self.failed(count, need, reason))?;
        Ok(InWork {
            numbers,
            count,
            need,
            coded,
        })
    }

    /// Waits for a batch. Of the `samples` that it was laid out from, those that the device could not decode
    /// are then prepared by the CPU, and the batch is made again; broken ones are left out: see
    /// [`DeviceBatch::bad`].
    ///
    /// # Errors
    /// [`GpuError::Batch`] if the device failed.
    pub fn finish<S: AsRef<Prepared>>(&self, work: InWork, samples: &[S]) -> Result<DeviceBatch, GpuError> {
        let (batch, undecoded) = self.wait_for(work)?;
        if undecoded.is_empty() {
            return Ok(batch);
        }
        // Free its memory for the second try.
        drop(batch);
        let (mut again, mut bad) = (BTreeMap::new(), BTreeMap::new());
        for place in undecoded {
            match samples[place].as_ref().again() {
                Some(Ok(prepared)) => drop(again.insert(place, prepared)),
                Some(Err(error)) => drop(bad.insert(place, error)),
                None => {}
            }
        }
        let kept = (0..samples.len()).filter(|place| !bad.contains_key(place));
        let kept = kept.map(|place| again.get(&place).unwrap_or_else(|| samples[place].as_ref()));
        let kept: Vec<&Prepared> = kept.collect();
        let (mut batch, undecoded) = self.wait_for(self.launch(self.lay_out(&kept)?)?)?;
        if !undecoded.is_empty() {
            return Err(self
                .gpu
                .failed("a batch failed on it twice, the second time because of other images"));
        }
        batch.given_back = again.len() + bad.len();
        batch.bad = bad.into_iter().collect();
        Ok(batch)
    }

    /// Waits for a batch. Also returns the samples that the device could not decode.
    fn wait_for(&self, work: InWork) -> Result<(DeviceBatch, Vec<usize>), GpuError> {
        let InWork {
            numbers,
            count,
            need,
            coded,
        } = work;
        let failed = |reason: String| self.failed(count, need, reason);
        if count > 0 {
            self.gpu.wait(&numbers).map_err(failed)?;
        }
        let mut batch = DeviceBatch {
            numbers,
            shape: [count, 3, self.height as usize, self.width as usize],
            sample_type: self.sample_type,
            decoded: 0,
            given_back: 0,
            bad: Vec::new(),
        };
        let Some((coded, faults)) = coded else {
            return Ok((batch, Vec::new()));
        };
        batch.decoded = coded.len();
        let faults = self.gpu.read(&faults).map_err(failed)?;
        let faults = u32::from_bytes(&faults).iter().map(|&word| Faults(word));
        let faulty = coded
            .into_iter()
            .zip(faults)
            .filter(|(_, faults)| !faults.is_none());
        Ok((batch, faulty.map(|(sample, _)| sample).collect()))
    }

    /// Waits for a batch and copies its numbers to the host, as bytes in native order.
    ///
    /// # Errors
    /// [`GpuError::Device`] if the device failed.
    pub fn read(&self, batch: &DeviceBatch) -> Result<Vec<u8>, GpuError> {
        let bytes = self.gpu.read(&batch.numbers);
        let mut bytes = bytes.map_err(|reason| self.gpu.failed(reason))?;
        bytes.truncate(batch.shape.iter().product::<usize>() * self.sample_type.bytes());
        Ok(bytes)
    }

    fn failed(&self, images: usize, need: u64, reason: String) -> GpuError {
        GpuError::Batch {
            device: self.gpu.name().to_string(),
            images,
            need: mib(need),
            reason,
        }
    }

    fn sample_bytes(&self) -> u64 {
        3 * u64::from(self.width) * u64::from(self.height) * self.sample_type.bytes() as u64
    }

    /// Queues a batch's work. Returns the buffer of its numbers, and what the device decodes.
    fn queue(&self, layout: Layout, count: usize) -> Result<(Buffer, Option<Coded>), ServerError> {
        let Layout {
            mut words,
            components,
            coded_components,
            scans,
            groups,
            coded,
            blocks,
            plane_bytes,
            pixels,
            stages,
            emits,
            ..
        } = layout;
        let gpu = &self.gpu;
        let records = words.records(&components);
        words.records(&coded_components);
        let scans_at = scans.place(&mut words);
        let groups_at = groups.place(&mut words);
        let stages: Vec<_> = stages.into_iter().map(|stage| stage.place(&mut words)).collect();
        let emits = words.records(&emits);
        let words = gpu.create(words.0);
        let planes = gpu.empty(plane_bytes as usize, 1);
        let mut read_there = None;
        if blocks > 0 {
            let coefficients = Coefficients {
                blocks: gpu.empty(64 * blocks as usize, 2),
                records,
                packed: components.len() as u32,
                count: (components.len() + coded_components.len()) as u32,
                most: components
                    .iter()
                    .chain(&coded_components)
                    .map(|record| record[1])
                    .max()
                    .unwrap_or(0),
            };
            if !coded.is_empty() {
                let faults = gpu.empty(coded.len(), 4);
                gpu.clear(&coefficients.blocks, &faults)?;
                if !scans.owners.is_empty() {
                    gpu.decode_scans(&scans, &words, scans_at, &coefficients.blocks, &faults)?;
                }
                if groups.count() > 0 {
                    gpu.decode_groups(&groups, &words, groups_at, &coefficients.blocks, &faults)?;
                }
                read_there = Some((coded, faults));
            }
            gpu.unpack(&words, &coefficients)?;
            gpu.transform(&words, &coefficients, &planes)?;
        }
        let pixels = gpu.empty(pixels as usize, 4);
        for stage in stages {
            stage.launch(gpu, &words, &planes, &pixels)?;
        }
        let sample = self.width * self.height;
        let out = gpu.empty(3 * count * sample as usize, self.sample_type.bytes());
        let cubes = CubeCount::Static(sample.div_ceil(256), count as u32, 1);
        let dim = CubeDim::new_1d(256);
        macro_rules! emit {
            ($number:ty) => {
                emit::emit::launch::<$number>(
                    &gpu.client,
                    cubes,
                    dim,
                    words.arg(),
                    pixels.arg(),
                    out.arg(),
                    emits,
                    self.width,
                    sample,
                )
            };
        }
        match self.sample_type {
            SampleType::F32 => emit!(u32),
            SampleType::F16 | SampleType::Bf16 => emit!(u16),
            SampleType::U8 => emit!(u8),
        }
        gpu.check(&out)?;
        Ok((out, read_there))
    }
}

impl Gpu {
    /// Unpacks blocks.
    fn unpack(&self, words: &Buffer, coefficients: &Coefficients) -> Result<(), ServerError> {
        for (table, count) in countable(coefficients.records, coefficients.packed) {
            decode::unpack::launch(
                &self.client,
                CubeCount::Static(coefficients.most.div_ceil(decode::UNPACKED), count, 1),
                CubeDim::new_1d(64 * decode::UNPACKED),
                words.arg(),
                coefficients.blocks.arg(),
                table,
            );
            self.check(&coefficients.blocks)?;
        }
        Ok(())
    }

    /// Computes the samples of all blocks.
    fn transform(
        &self,
        words: &Buffer,
        coefficients: &Coefficients,
        planes: &Buffer,
    ) -> Result<(), ServerError> {
        for (table, count) in countable(coefficients.records, coefficients.count) {
            decode::transform::launch(
                &self.client,
                CubeCount::Static(coefficients.most.div_ceil(decode::TRANSFORMED), count, 1),
                CubeDim::new_1d(decode::TRANSFORMED),
                words.arg(),
                coefficients.blocks.arg(),
                planes.arg(),
                table,
            );
            self.check(planes)?;
        }
        Ok(())
    }
}

/// Splits records of components into ranges that fit one dimension of a launch: the start and the length of
/// each.
fn countable(table: u32, count: u32) -> impl Iterator<Item = (u32, u32)> {
    let firsts = (0..count).step_by(MOST_COUNTED);
    firsts.map(move |first| {
        (
            table + decode::RECORD * first,
            (count - first).min(MOST_COUNTED as u32),
        )
    })
}

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

/// A number's bits in the batch's type. Bytes have no such form.
fn bits(number: f32, sample_type: SampleType) -> u32 {
    match sample_type {
        SampleType::F32 | SampleType::U8 => number.to_bits(),
        SampleType::F16 => f16::from_f32(number).to_bits().into(),
        SampleType::Bf16 => bf16::from_f32(number).to_bits().into(),
    }
}

impl Layout {
    /// Bytes on the device, without the batch itself.
    fn bytes(&self) -> u64 {
        self.pieces().into_iter().sum()
    }

    fn pieces(&self) -> [u64; 7] {
        let records = self.components.len() + self.coded_components.len();
        let [of_scans, states] = self.scans.pieces();
        let [of_groups, scratch] = self.groups.pieces();
        [
            4 * (self.words.0.len() + decode::RECORD as usize * records) as u64 + of_scans + of_groups,
            128 * self.blocks,
            self.plane_bytes,
            4 * self.pixels,
            states,
            scratch,
            4 * self.coded.len() as u64,
        ]
    }

    fn add(&mut self, index: usize, sample: &Prepared) {
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
        let program = self.words.here();
        self.words.copy(&stage.program);
        let (width, height) = (stage.width, stage.height);
        let pixels = width * height;
        let out = self.pixels as u32;
        self.pixels += u64::from(width) * u64::from(height);
        let launches = &mut self.stages[number];
        let weights = program + 2 * stage.points;
        match stage.kind {
            StageKind::Resample(way) => {
                let record = [width, height, out, program, source];
                launches.resample[way as usize].push(record, width, height);
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

/// [`Launches`] whose records have been placed among the words.
struct Placed {
    resample: [PlacedGrid; 3],
    means: u32,
    contrast: PlacedGrid,
    counts: u32,
    levels: PlacedGrid,
    blur: PlacedGrid,
    blur_down: u32,
    dilate: PlacedGrid,
    sharpen: PlacedGrid,
}

/// The place of a [`Grid`]'s records, and the size of a launch: the largest width and height, and the number
/// of images.
struct PlacedGrid {
    records: u32,
    size: [u32; 3],
}

impl<const N: usize> Grid<N> {
    fn place(&self, words: &mut Words) -> PlacedGrid {
        PlacedGrid {
            records: words.records(&self.records),
            size: [self.width, self.height, self.records.len() as u32],
        }
    }
}

impl Launches {
    fn place(self, words: &mut Words) -> Placed {
        Placed {
            resample: self.resample.map(|grid| grid.place(words)),
            means: words.records(&self.means),
            contrast: self.contrast.place(words),
            counts: words.records(&self.counts),
            levels: self.levels.place(words),
            blur: self.blur.place(words),
            blur_down: words.records(&self.blur_down),
            dilate: self.dilate.place(words),
            sharpen: self.sharpen.place(words),
        }
    }
}

impl Placed {
    fn launch(&self, gpu: &Gpu, words: &Buffer, planes: &Buffer, pixels: &Buffer) -> Result<(), ServerError> {
        let (client, hues) = (&gpu.client, || gpu.tables.hues.arg());
        let tile = CubeDim::new_2d(gather::TILE, gather::TILE);
        let tiles = |[width, height, count]: [u32; 3]| {
            CubeCount::Static(width.div_ceil(gather::TILE), height.div_ceil(gather::TILE), count)
        };
        // A 0 that the kernels' compiler does not know to be 0.
        let zero = 0;
        // CubeCL skips a launch of size zero.
        for (way, grid) in Way::ALL.into_iter().zip(&self.resample) {
            gather::resample::launch(
                client,
                tiles(grid.size),
                tile,
                words.arg(),
                planes.arg(),
                hues(),
                pixels.arg(),
                grid.records,
                zero,
                way,
            );
            gpu.check(pixels)?;
        }
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
            CubeCount::Static(
                widest.div_ceil(colour::SUMMING).min(colour::MOST_CUBES),
                images,
                1,
            ),
            dim,
            words.arg(),
            hues(),
            pixels.arg(),
            self.contrast.records,
            zero,
        );
        gpu.check(pixels)?;
        let [widest, _, images] = self.levels.size;
        colour::count::launch(
            client,
            CubeCount::Static(images, 1, 1),
            CubeDim::new_1d(colour::COUNTING),
            words.arg(),
            pixels.arg(),
            self.counts,
        );
        gpu.check(pixels)?;
        colour::tables::launch(
            client,
            CubeCount::Static((3 * images).div_ceil(32), 1, 1),
            CubeDim::new_1d(32),
            words.arg(),
            hues(),
            pixels.arg(),
            self.counts,
            images,
        );
        gpu.check(pixels)?;
        colour::look_up::launch(
            client,
            CubeCount::Static(
                widest.div_ceil(colour::SUMMING).min(colour::MOST_CUBES),
                images,
                1,
            ),
            dim,
            words.arg(),
            hues(),
            pixels.arg(),
            self.levels.records,
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
        gpu.check(pixels)?;
        surroundings!(sharpen, self.sharpen.size, self.sharpen.records);
        gpu.check(pixels)
    }
}
