//! Batches for Python, wherever the loader makes them.
//!
//! ```text
//!  executors fused, per-op ──► in main memory ─────────────────────────────────► Memory
//!  executor gpu ─────────────► on CUDA: where they are ────────────────────────► Memory
//!                              on Vulkan: copied to main memory ───────────────► Memory
//! ```
//!
//! No library reads the memory of a Vulkan device by DLPack, so a batch of one is copied.

use std::sync::Arc;

#[cfg(feature = "cuda")]
use stokehold_gpu::Backend;
use stokehold_gpu::{Decode, DeviceName, GpuError};
#[cfg(feature = "gpu")]
use stokehold_gpu::{DeviceBatch, Gpu, GpuMaker};
use stokehold_loader::{BadImage, Batch, Device, LoaderError, Pixels};

use crate::memory::Memory;

/// A device, and how it makes batches.
pub(crate) struct OnDevice {
    pub(crate) device: DeviceName,
    pub(crate) decode: Decode,
    /// Device memory for batches, bytes; `None` for `Gpu::default_budget`.
    pub(crate) budget: Option<u64>,
}

impl OnDevice {
    /// Opens the device.
    #[cfg(feature = "gpu")]
    pub(crate) fn open(self) -> Result<Arc<dyn Device>, GpuError> {
        let gpu = Gpu::open(self.device)?;
        let budget = self.budget.unwrap_or_else(|| gpu.default_budget());
        Ok(Arc::new(GpuMaker {
            gpu,
            decode: self.decode,
            budget,
        }))
    }

    /// Says why there is no device.
    #[cfg(not(feature = "gpu"))]
    pub(crate) fn open(self) -> Result<Arc<dyn Device>, GpuError> {
        let _ = (self.decode, self.budget);
        let backend = self.device.backend;
        let reason = stokehold_gpu::devices_of(backend).problem.unwrap_or_default();
        Err(GpuError::Unavailable { backend, reason })
    }
}

/// Images, labels or masks, sample numbers, and the new bad images.
pub(crate) type BatchTuple = (Memory, Memory, Memory, Vec<Bad>);

/// A bad image: name and reason.
pub(crate) type Bad = (String, String);

pub(crate) fn bad(found: Vec<BadImage>) -> Vec<Bad> {
    found.into_iter().map(|bad| (bad.name, bad.reason)).collect()
}

/// A batch for Python.
pub(crate) fn parts(batch: Batch) -> Result<BatchTuple, LoaderError> {
    let images = match batch.pixels {
        Pixels::Host(images) => Memory::of_images(images, batch.shape),
        #[cfg(feature = "gpu")]
        pixels => {
            let images: &DeviceBatch = pixels.on_device().expect("a batch of crate gpu");
            on_device(images)?
        }
        #[cfg(not(feature = "gpu"))]
        _ => unreachable!("the loader has no device"),
    };
    let targets = match batch.masks.is_empty() {
        true => Memory::of_list(batch.labels.into_iter().map(i64::from).collect()),
        false => Memory::of_masks(&batch.masks, batch.shape),
    };
    let samples = batch.samples.into_iter().map(|sample| sample as i64).collect();
    Ok((images, targets, Memory::of_list(samples), bad(batch.bad)))
}

/// The images of a device's batch: where they are, or copied where no one could read them there.
#[cfg(feature = "gpu")]
fn on_device(images: &DeviceBatch) -> Result<Memory, GpuError> {
    let gpu = images.gpu();
    match gpu.name().backend {
        #[cfg(feature = "cuda")]
        Backend::Cuda => Ok(Memory::on_cuda(gpu.cuda_memory(images.clone())?)),
        _ => Ok(Memory::of_bytes(
            &gpu.read_batch(images)?,
            images.sample_type,
            images.shape,
        )),
    }
}
