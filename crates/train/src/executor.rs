//! The executor of a run's pipelines: the CPU, the device, or whichever is faster.

use std::sync::Arc;

use burn::tensor::Device;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use stokehold_gpu::Decode;
#[cfg(feature = "gpu")]
use stokehold_gpu::{Gpu, GpuMaker};
use stokehold_pipeline::{Executor, PipelineError};

use crate::TrainError;
#[cfg(feature = "gpu")]
use crate::device;

/// The executor of a run's pipelines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chosen {
    /// The executor.
    pub executor: Executor,
    /// The reason, if the run chose it.
    pub why: Option<String>,
}

/// Options of the executor `gpu`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GpuOptions {
    /// What decodes the symbols of JPEGs and packed images.
    pub decode: Decode,
    /// The device memory for batches, bytes; `None` for `Gpu::default_budget` of crate gpu.
    pub budget: Option<u64>,
}

/// The device of a loader with this executor, for training on `device`; `None` for an executor of the CPU.
///
/// # Errors
/// [`TrainError::NoGpu`] and [`TrainError::Gpu`] if that device cannot make images.
pub fn open_device(
    executor: Executor,
    options: GpuOptions,
    device: &Device,
) -> Result<Option<Arc<dyn stokehold_loader::Device>>, TrainError> {
    if executor != Executor::Gpu {
        return Ok(None);
    }
    #[cfg(feature = "gpu")]
    {
        let Some(cube) = device::cube(device) else {
            let reason = "it makes images on the GPU that computes, and here the CPU computes; `stokehold devices` lists \
                the GPUs that can be used (--device cuda or vulkan), and what to install for the others";
            return Err(TrainError::NoGpu(reason.into()));
        };
        let gpu = Gpu::on_device(cube)?;
        let GpuOptions { decode, budget } = options;
        let budget = budget.unwrap_or_else(|| gpu.default_budget());
        Ok(Some(Arc::new(GpuMaker { gpu, decode, budget })))
    }
    #[cfg(not(feature = "gpu"))]
    {
        let _ = (options, device);
        let reason = "this program was built without GPUs; build it with the feature cuda or vulkan";
        Err(TrainError::NoGpu(reason.into()))
    }
}

/// The executor that an option names: `None` for `auto`, which is `fused` or `gpu`, whichever trains faster, measured before the
/// first step.
///
/// # Errors
/// No executor has this name.
pub fn executor_or_auto(name: &str) -> Result<Option<Executor>, String> {
    let named = |name: &str| {
        name.parse()
            .map_err(|error: PipelineError| format!("{error}, and auto"))
    };
    Some(name).filter(|name| *name != "auto").map(named).transpose()
}

/// Writes an executor, or `auto`, to files as in text.
pub(crate) mod or_auto {
    use super::*;

    pub fn serialize<S: Serializer>(executor: &Option<Executor>, to: S) -> Result<S::Ok, S::Error> {
        match executor {
            Some(executor) => to.collect_str(executor),
            None => to.serialize_str("auto"),
        }
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Executor>, D::Error> {
        let name = String::deserialize(from)?;
        executor_or_auto(&name).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Option_(#[serde(with = "or_auto")] Option<Executor>);

    #[test]
    fn names_are_read_and_written() {
        for name in ["per-op", "fused", "gpu", "auto"] {
            let json = format!("\"{name}\"");
            let option: Option_ = serde_json::from_str(&json).unwrap();
            assert_eq!(serde_json::to_string(&option).unwrap(), json);
            assert_eq!(
                option.0.map(|executor| executor.to_string()),
                Some(name.to_owned()).filter(|name| name != "auto")
            );
        }
        let error = executor_or_auto("dali").unwrap_err();
        assert_eq!(
            error,
            "no executor is called 'dali'; there are per-op, fused and gpu, and auto"
        );
    }
}
