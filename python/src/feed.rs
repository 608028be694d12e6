//! The loader behind the Python class, whichever executor makes its images.
//!
//! ```text
//!  executors fused, per-op ──► stokehold_loader::Loader ──ImageBuffer──────────────────────────► Memory
//!  executor gpu ─────────────► stokehold_gpu::DeviceLoader ──on CUDA: where it is───────────────► Memory
//!                                                          ──on Vulkan: copied to main memory──► Memory
//! ```
//!
//! Both have the same samples, labels, states and bad images. No library reads the memory of a Vulkan device by
//! DLPack, so a batch of one is copied.

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crossbeam_channel::Receiver;
#[cfg(feature = "cuda")]
use stokehold_gpu::Backend;
#[cfg(feature = "gpu")]
use stokehold_gpu::{Batcher, DeviceBatch, DeviceBatches, DeviceLoader, ForGpu, Gpu, LoadedBatch};
use stokehold_gpu::{Decode, DeviceName, GpuError};
use stokehold_loader::{BadImage, Batch, Batches, Loader, LoaderError, LoaderOptions, State};
use stokehold_pipeline::Pipeline;
use stokehold_storage::Source;

use crate::memory::Memory;

/// A device, and how it makes batches.
#[derive(Clone)]
pub(crate) struct OnDevice {
    pub(crate) device: DeviceName,
    pub(crate) decode: Decode,
    /// Device memory for batches, bytes; `None` for `Gpu::default_budget`.
    pub(crate) budget: Option<u64>,
}

pub(crate) enum Feed {
    Cpu(Loader),
    #[cfg(feature = "gpu")]
    Gpu(DeviceLoader),
}

/// The batches of an epoch.
pub(crate) enum FeedBatches {
    Cpu(Box<Batches>),
    #[cfg(feature = "gpu")]
    Gpu(Box<DeviceBatches>, Arc<Batcher>),
}

/// A batch for Python.
pub(crate) struct Fed {
    pub(crate) images: Memory,
    /// Labels, or the masks of images that have masks.
    pub(crate) targets: Memory,
    pub(crate) samples: Memory,
    /// Bad images that were not reported before.
    pub(crate) bad: Vec<BadImage>,
}

impl Fed {
    /// A batch with these images, or with its own.
    fn new(batch: Batch, images: Option<Memory>) -> Self {
        let integers = |numbers: Vec<u64>| numbers.into_iter().map(|number| number as i64).collect();
        Self {
            targets: match batch.masks.is_empty() {
                true => Memory::of_list(batch.labels.into_iter().map(i64::from).collect()),
                false => Memory::of_masks(&batch.masks, batch.shape),
            },
            images: images.unwrap_or_else(|| Memory::of_images(batch.images, batch.shape)),
            samples: Memory::of_list(integers(batch.samples)),
            bad: batch.bad,
        }
    }
}

impl Feed {
    pub(crate) fn on_cpu(
        source: Arc<dyn Source>,
        pipeline: Pipeline,
        options: LoaderOptions,
    ) -> Result<Self, GpuError> {
        Ok(Self::Cpu(Loader::new(source, pipeline, options)?))
    }

    #[cfg(feature = "gpu")]
    pub(crate) fn on_device(
        source: Arc<dyn Source>,
        pipeline: Pipeline,
        options: LoaderOptions,
        on: OnDevice,
    ) -> Result<Self, GpuError> {
        let gpu = Gpu::open(on.device)?;
        let budget = on.budget.unwrap_or_else(|| gpu.default_budget());
        let way = ForGpu { decode: on.decode };
        let loader = DeviceLoader::new(source, pipeline, options, gpu, way, budget)?;
        Ok(Self::Gpu(loader))
    }

    #[cfg(not(feature = "gpu"))]
    pub(crate) fn on_device(
        _: Arc<dyn Source>,
        _: Pipeline,
        _: LoaderOptions,
        on: OnDevice,
    ) -> Result<Self, GpuError> {
        let OnDevice {
            device,
            decode,
            budget,
        } = on;
        let _ = (decode, budget);
        let backend = device.backend;
        let reason = stokehold_gpu::devices_of(backend).problem.unwrap_or_default();
        Err(GpuError::Unavailable { backend, reason })
    }

    /// The loader of the samples.
    pub(crate) fn loader(&self) -> &Loader {
        match self {
            Self::Cpu(loader) => loader,
            #[cfg(feature = "gpu")]
            Self::Gpu(loader) => loader.loader(),
        }
    }

    /// An epoch whose batches come through a channel; see `Loader::given`.
    pub(crate) fn given(
        &self,
        epoch: u64,
        first: u64,
        batches: Receiver<Vec<usize>>,
    ) -> Result<FeedBatches, LoaderError> {
        Ok(match self {
            Self::Cpu(loader) => FeedBatches::Cpu(Box::new(loader.given(epoch, first, batches)?)),
            #[cfg(feature = "gpu")]
            Self::Gpu(loader) => FeedBatches::Gpu(
                Box::new(loader.given(epoch, first, batches)?),
                Arc::clone(loader.batcher()),
            ),
        })
    }

    pub(crate) fn resume(&self, state: State) -> Result<FeedBatches, LoaderError> {
        Ok(match self {
            Self::Cpu(loader) => FeedBatches::Cpu(Box::new(loader.resume(state)?)),
            #[cfg(feature = "gpu")]
            Self::Gpu(loader) => {
                FeedBatches::Gpu(Box::new(loader.resume(state)?), Arc::clone(loader.batcher()))
            }
        })
    }
}

impl FeedBatches {
    pub(crate) fn next_within(&mut self, patience: Duration) -> Poll<Option<Result<Fed, GpuError>>> {
        match self {
            Self::Cpu(batches) => batches
                .next_within(patience)
                .map(|next| next.map(|batch| Ok(Fed::new(batch?, None)))),
            #[cfg(feature = "gpu")]
            Self::Gpu(batches, batcher) => batches.next_within(patience).map(|next| {
                next.map(|loaded| {
                    let LoadedBatch { images, batch } = loaded?;
                    Ok(Fed::new(batch, Some(on_device(batcher, images)?)))
                })
            }),
        }
    }

    /// The number after the last batch of a given epoch that was passed over; see `DeviceBatches::passed`.
    pub(crate) fn passed(&self) -> u64 {
        match self {
            // It yields all.
            Self::Cpu(_) => 0,
            #[cfg(feature = "gpu")]
            Self::Gpu(batches, _) => batches.passed(),
        }
    }

    pub(crate) fn state(&self) -> State {
        match self {
            Self::Cpu(batches) => batches.state(),
            #[cfg(feature = "gpu")]
            Self::Gpu(batches, _) => batches.state(),
        }
    }

    pub(crate) fn unreported(&mut self) -> Vec<BadImage> {
        match self {
            Self::Cpu(batches) => batches.unreported(),
            #[cfg(feature = "gpu")]
            Self::Gpu(batches, _) => batches.unreported(),
        }
    }
}

/// The images of a device's batch: where they are, or copied where no one could read them there.
#[cfg(feature = "gpu")]
fn on_device(batcher: &Batcher, images: DeviceBatch) -> Result<Memory, GpuError> {
    let gpu = batcher.gpu();
    match gpu.name().backend {
        #[cfg(feature = "cuda")]
        Backend::Cuda => Ok(Memory::on_cuda(gpu.cuda_memory(images)?)),
        _ => Ok(Memory::of_bytes(
            &batcher.read(&images)?,
            images.sample_type,
            images.shape,
        )),
    }
}
