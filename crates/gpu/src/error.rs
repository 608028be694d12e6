//! Errors of a device and of making batches.

use crate::Backend;
use stokehold_base::fault::Fault;
use stokehold_loader::LoaderError;
use stokehold_pipeline::PipelineError;

/// Why a device cannot be used, or did not make a batch.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GpuError {
    /// The backend cannot be used here.
    #[error("{backend}: {reason}")]
    Unavailable {
        /// The backend.
        backend: Backend,
        /// The reason, and what to do.
        reason: String,
    },
    /// No device has this name.
    #[error("no device is called '{0}'; there are cuda, cuda:INDEX, vulkan and vulkan:INDEX")]
    UnknownDevice(String),
    /// No decode mode has this name.
    #[error("no way to decode is called '{0}'; there are hybrid and device")]
    UnknownDecode(String),
    /// The pipeline makes no batches.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// A batch needs more memory than it may have.
    #[error(
        "a batch of {images} images needs {need} MiB on the device and may have {budget} MiB, half of the budget, because two \
         batches are made at a time (the largest is image {largest} of the batch, {largest_need} MiB); raise the budget \
         (--gpu-memory-budget) or make the batches smaller (--batch-size)"
    )]
    Budget {
        /// Images in the batch.
        images: usize,
        /// The memory that it needs, in MiB.
        need: u64,
        /// The budget of one batch in MiB.
        budget: u64,
        /// The index of the image that needs the most.
        largest: usize,
        /// The memory that it needs, in MiB.
        largest_need: u64,
        /// The number of images of which a batch of one alone would be over the budget.
        alone: usize,
    },
    /// A batch needs a buffer that is too large for the device, whatever the budget.
    #[error(
        "a batch of {images} images needs {need} MiB on the device in one piece, and {device} gives pieces of up to {most} MiB; \
         make the batches smaller (--batch-size)"
    )]
    Piece {
        /// The device's name.
        device: String,
        /// Images in the batch.
        images: usize,
        /// The largest buffer, in MiB.
        need: u64,
        /// The largest that there can be, in MiB.
        most: u64,
    },
    /// A batch has more images than a launch can count.
    #[error(
        "a batch has {images} images, and a device makes up to {most} at a time; make the batches smaller (--batch-size)"
    )]
    TooMany {
        /// Images in the batch.
        images: usize,
        /// The most that there can be.
        most: usize,
    },
    /// The device failed while making a batch.
    #[error(
        "{device}: it failed at a batch of {images} images that takes {need} MiB: {reason}; {}",
        what_to_do(reason)
    )]
    Batch {
        /// The device's name.
        device: String,
        /// Images in the batch.
        images: usize,
        /// The memory that it needs, in MiB.
        need: u64,
        /// The device's error.
        reason: String,
    },
    /// The device reported an error.
    #[error("{device}: {reason}")]
    Device {
        /// Its name.
        device: String,
        /// The device's error.
        reason: String,
    },
}

impl Fault for GpuError {
    fn is_input(&self) -> bool {
        !matches!(self, Self::Batch { .. } | Self::Device { .. })
    }
}

/// A pipeline's error is the loader's own.
impl From<GpuError> for LoaderError {
    fn from(error: GpuError) -> Self {
        match error {
            GpuError::Pipeline(error) => Self::Pipeline(error),
            error => Self::Device(Box::new(error)),
        }
    }
}

/// What helps against a device's error. What has broken a device breaks everything that the process does there afterwards.
fn what_to_do(reason: &str) -> &'static str {
    match reason.to_lowercase().contains("memory") {
        true => {
            "make the batches smaller (--batch-size), or free memory of the device that other programs use"
        }
        false => "this process cannot use the device any more: start it again, from its last checkpoint",
    }
}
