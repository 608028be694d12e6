//! Options of the executor `gpu`, for all commands that have it.

use clap::Args as ClapArgs;
use stokehold_base::size::parse_size;
use stokehold_gpu::Decode;
use stokehold_train::GpuOptions;

/// The options beside `--executor gpu`.
#[derive(Debug, Clone, Copy, ClapArgs)]
pub struct GpuArgs {
    /// With --executor gpu, where the symbols of JPEGs and packed images are decoded: hybrid (in loader threads) or device.
    #[arg(long, value_name = "WAY", default_value_t = Decode::Hybrid)]
    gpu_decode: Decode,
    /// With --executor gpu, device memory for batches, such as 2GiB [default: an eighth of it, at least
    /// 1GiB].
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
