//! Options of the executor `gpu`, for all commands that have it.

use clap::Args as ClapArgs;
use stokehold_base::size::parse_size;
use stokehold_gpu::Decode;
use stokehold_train::GpuOptions;

use crate::failure::Usage;

/// The options next to `--executor gpu`, and next to the trial `gpu` of `compare`.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub struct GpuArgs {
    /// For the executor gpu: where the symbols of JPEGs and packed images are decoded, hybrid (in loader threads) or device.
    #[arg(long, value_name = "WAY", default_value_t = Decode::Hybrid)]
    gpu_decode: Decode,
    /// For the executor gpu: device memory for batches, such as 2GiB [default: an eighth of a CUDA device's, half of a Vulkan
    /// device's largest buffer, at least 1GiB].
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    gpu_memory_budget: Option<u64>,
}

impl GpuArgs {
    /// The same for the trainer.
    pub fn options(&self) -> GpuOptions {
        GpuOptions {
            decode: self.gpu_decode,
            budget: self.gpu_memory_budget,
        }
    }
}

/// Refuses options of the executor `gpu` where it is not used: the figures of another one would be taken for its own.
///
/// # Errors
/// [`Usage`] if there are such options.
pub fn check(options: GpuOptions, is_used: bool) -> Result<(), Usage> {
    match is_used || options == GpuOptions::default() {
        true => Ok(()),
        false => Err(Usage(
            "--gpu-decode and --gpu-memory-budget are of the executor gpu, which is not used here; choose it (in compare the trial gpu), or \
             leave them out".to_owned(),
        )),
    }
}
