//! A batch on the device: laid out, launched, waited for, read.

use crate::GpuError;
use crate::client::Gpu;
use crate::coefficients::{Coefficients, Faults};
use crate::kernels::emit;
use crate::launch::MOST_COUNTED;
use crate::layout::Layout;
use crate::prepare::Prepared;
use crate::queue::{Buffer, queued};
use crate::words::Words;
use cubecl::prelude::*;
use cubecl::server::ServerError;
use std::collections::BTreeMap;
use std::time::Duration;
use stokehold_pipeline::{ImageError, Pipeline, SampleType};

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
    gpu: Gpu,
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

impl Gpu {
    /// Waits for a batch of this device and copies its numbers to the host, as bytes in native order.
    ///
    /// # Errors
    /// [`GpuError::Device`] if the device failed.
    pub fn read_batch(&self, batch: &DeviceBatch) -> Result<Vec<u8>, GpuError> {
        let bytes = self.read(&batch.numbers);
        let mut bytes = bytes.map_err(|reason| self.failed(reason))?;
        bytes.truncate(batch.bytes() as usize);
        Ok(bytes)
    }
}

impl DeviceBatch {
    /// The device that has it.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The bytes of its numbers.
    pub(crate) fn bytes(&self) -> u64 {
        (self.shape.iter().product::<usize>() * self.sample_type.bytes()) as u64
    }

    /// The memory of the numbers, without gaps, to make a tensor of it.
    pub fn into_handle(self) -> cubecl::server::Handle {
        self.numbers.handle
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
        let size = pipeline.check()?;
        pipeline.check_output(sample_type)?;
        pipeline.check_on_device()?;
        Ok(Self::of_size(gpu, size, sample_type, budget))
    }

    /// As [`Batcher::new`], for a pipeline that has been checked.
    pub(crate) fn of_size(
        gpu: Gpu,
        (width, height): (u32, u32),
        sample_type: SampleType,
        budget: u64,
    ) -> Batcher {
        Batcher {
            gpu,
            sample_type,
            width,
            height,
            budget,
        }
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
        self.lay_out_within(samples, self.budget)
    }

    fn lay_out_within<S: AsRef<Prepared>>(&self, samples: &[S], budget: u64) -> Result<LaidOut, GpuError> {
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
        let (mut before, mut alone) = (0, 0);
        for (index, sample) in samples.iter().enumerate() {
            layout.add(index, sample.as_ref());
            let need = layout.bytes() - before;
            before += need;
            alone += usize::from(need + self.sample_bytes() > budget);
            if need > largest.1 {
                largest = (index, need);
            }
        }
        let need = layout.bytes() + out;
        if need > budget {
            return Err(GpuError::Budget {
                images: samples.len(),
                need: mib(need),
                budget: mib(budget),
                largest: largest.0,
                largest_need: mib(largest.1),
                alone,
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
    /// [`DeviceBatch::bad`]. Coefficients take more memory than symbols, so this second batch may exceed the budget.
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
        let (mut batch, undecoded) = self.wait_for(self.launch(self.lay_out_within(&kept, u64::MAX)?)?)?;
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
            gpu: self.gpu.clone(),
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

    /// Bytes of the device's batches that their consumers have let go of and are not done with, if they are more than a batch may
    /// take. Only batches that were lent are counted; Burn waits for what it uses.
    pub(crate) fn too_much_leaving(&self) -> Option<u64> {
        #[cfg(feature = "cuda")]
        if self.gpu.name().backend == crate::Backend::Cuda {
            return Some(crate::lend::leaving_bytes(self.gpu.name().index))
                .filter(|bytes| *bytes > self.budget);
        }
        None
    }

    /// Warns that the loader continues although this many bytes of released batches are still in use.
    pub(crate) fn warn_of_leaving(&self, bytes: u64, patience: Duration) {
        #[cfg(feature = "cuda")]
        crate::lend::warn(self.gpu.name().index, "leaving".to_owned(), |device| {
            format!(
                "cuda:{device}: {} MiB of batches that their consumer let go of are still in use by its stream after {} s; the loader \
                 continues beyond its memory budget; wait for the stream now and then, or raise the budget",
                mib(bytes),
                patience.as_secs()
            )
        });
        #[cfg(not(feature = "cuda"))]
        let _ = (bytes, patience);
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
            axes,
            stages,
            emits,
            ..
        } = layout;
        let gpu = &self.gpu;
        let records = words.records(&components);
        words.records(&coded_components);
        let scans_at = scans.place(&mut words);
        let groups_at = groups.place(&mut words);
        let axes = axes.place(&mut words);
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
        gpu.find_windows(&words, &axes, &pixels)?;
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

fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}
