//! What can go wrong between a batch and a device.

use crate::Backend;
use stokehold_pipeline::PipelineError;

/// Why a device cannot be used, or did not make a batch.
#[derive(Debug, thiserror::Error)]
pub enum GpuError {
    /// The backend cannot be used here.
    #[error("{backend}: {reason}")]
    Unavailable {
        /// Which one.
        backend: Backend,
        /// Why, and what to do.
        reason: String,
    },
    /// No device has this name.
    #[error("no device is called '{0}'; there are cuda, cuda:INDEX, vulkan and vulkan:INDEX")]
    UnknownDevice(String),
    /// The pipeline makes no batches.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// A loader's batch is none of prepared samples.
    #[error("the samples were not prepared for a device: the loader's workers have to prepare by ForGpu")]
    NotPrepared,
    /// A batch needs more memory than it may have.
    #[error(
        "a batch of {images} images needs {need} MiB on the device and may have {budget} MiB (the largest is image \
         {largest} of the batch, {largest_need} MiB); raise the budget or make the batches smaller"
    )]
    Budget {
        /// Images in the batch.
        images: usize,
        /// What all of it takes, in MiB.
        need: u64,
        /// The budget in MiB.
        budget: u64,
        /// The place of the image that takes the most.
        largest: usize,
        /// What that takes, in MiB.
        largest_need: u64,
    },
    /// The device reported an error.
    #[error("{device}: {reason}")]
    Device {
        /// Its name.
        device: String,
        /// What it said.
        reason: String,
    },
}
