//! The device that trains: the CPU (Burn's `flex`), or an accelerator that the program was built for.
//!
//! Burn's own constructors panic if a driver is missing, some of them in a thread of the device. So devices
//! are enumerated first, and opened only if they exist.

use std::fmt;
use std::str::FromStr;

use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};
use stokehold_gpu::{Backend, DeviceName};
use stokehold_ranks::Ranks;

use stokehold_base::as_text;

/// The values of `--device`: `auto`, `cpu`, `cuda`, `vulkan`, and with a number the names that `stokehold devices` lists, such as
/// `cuda:1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceChoice {
    /// The first CUDA or Vulkan GPU that is compiled in and present, else the CPU. A Vulkan driver that
    /// computes on the CPU, such as Mesa's lavapipe, does not count as a GPU.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// The NVIDIA GPU of this number (feature `cuda`).
    Cuda(usize),
    /// The GPU with a Vulkan driver of this number (feature `vulkan`).
    Vulkan(usize),
}

impl DeviceChoice {
    /// The name without a number.
    fn kind(self) -> &'static str {
        match self {
            DeviceChoice::Auto => "auto",
            DeviceChoice::Cpu => "cpu",
            DeviceChoice::Cuda(_) => "cuda",
            DeviceChoice::Vulkan(_) => "vulkan",
        }
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Cuda(number @ 1..) | DeviceChoice::Vulkan(number @ 1..) => {
                f.pad(&format!("{}:{number}", self.kind()))
            }
            _ => f.pad(self.kind()),
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = DeviceError;

    fn from_str(name: &str) -> Result<Self, DeviceError> {
        Ok(match (name, name.parse()) {
            ("auto", _) => Self::Auto,
            ("cpu", _) => Self::Cpu,
            (_, Ok(DeviceName { backend, index })) => match backend {
                Backend::Cuda => Self::Cuda(index),
                Backend::Vulkan => Self::Vulkan(index),
            },
            (_, Err(_)) => return Err(DeviceError::Unknown(name.to_string())),
        })
    }
}

as_text!(DeviceChoice);

/// Why there is no device, or what failed on it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is no such name.
    #[error(
        "there is no device '{0}': choose auto, cpu, cuda or vulkan, or with a number one that `stokehold devices` lists"
    )]
    Unknown(String),
    /// The program was built without it.
    #[error(
        "device {choice} is not compiled in: build with `cargo build --release --features {}`, or train on the cpu",
        choice.kind()
    )]
    NotCompiledIn {
        /// The requested device.
        choice: DeviceChoice,
    },
    /// The driver or the hardware is missing.
    #[error(
        "no device {choice} was found: `stokehold devices` lists those that there are, and says what is missing and what to \
         install; or train on the cpu"
    )]
    Absent {
        /// The requested device.
        choice: DeviceChoice,
    },
    /// A machine has more ranks than devices.
    #[error(
        "this is rank {number} of its machine, counted from 0, and the machine has {count} devices: start fewer ranks on it, or \
         train on the cpu"
    )]
    TooFew {
        /// The rank's number on its machine.
        number: usize,
        /// The devices of the machine.
        count: usize,
    },
    /// A computation failed on the device.
    #[error("the device failed: {0}")]
    Failed(String),
}

/// The plain device; call `.autodiff()` on it for training.
///
/// # Errors
/// If the requested device is not compiled in or not present. `Auto` and `Cpu` always find one.
pub fn open(choice: DeviceChoice) -> Result<Device, DeviceError> {
    match choice {
        DeviceChoice::Cpu => Ok(Device::flex()),
        DeviceChoice::Cuda(number) => cuda(number),
        DeviceChoice::Vulkan(number) => vulkan(number, true),
        DeviceChoice::Auto => Ok(cuda(0)
            .or_else(|_| vulkan(0, false))
            .unwrap_or_else(|_| Device::flex())),
    }
}

/// The plain device of a rank: on a machine with several GPUs the one of its number among the machine's ranks, whatever number
/// the choice has.
///
/// # Errors
/// As [`open`]; a machine has fewer devices than ranks.
pub(crate) fn open_for(choice: DeviceChoice, ranks: &Ranks) -> Result<Device, DeviceError> {
    if ranks.are_alone() {
        return open(choice);
    }
    let first = match choice {
        DeviceChoice::Cuda(_) => DeviceChoice::Cuda(0),
        DeviceChoice::Vulkan(_) => DeviceChoice::Vulkan(0),
        DeviceChoice::Auto | DeviceChoice::Cpu => choice,
    };
    nth(open(first)?, stokehold_ranks::local_rank().unwrap_or(0))
}

/// The device of this number and of the same kind.
#[cfg(feature = "gpu")]
fn nth(first: Device, number: usize) -> Result<Device, DeviceError> {
    if number == 0 {
        return Ok(first);
    }
    let of_kind = match cube(&first) {
        #[cfg(feature = "cuda")]
        Some(burn_cubecl::CubeDevice::Cuda(_)) => burn::tensor::DeviceType::Cuda,
        #[cfg(feature = "vulkan")]
        Some(_) => burn::tensor::DeviceType::Vulkan,
        _ => return Ok(first),
    };
    let all = Device::enumerate(of_kind).into_vec();
    let count = all.len();
    // Its launcher gave this rank a device of its own, as Slurm does with --gpus-per-task: no other one can be seen.
    let given = std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default();
    if count == 1 && !given.is_empty() && !given.contains(',') {
        return Ok(first);
    }
    all.into_iter()
        .nth(number)
        .ok_or(DeviceError::TooFew { number, count })
}

/// There is one CPU, which the ranks of a machine share.
#[cfg(not(feature = "gpu"))]
fn nth(first: Device, _number: usize) -> Result<Device, DeviceError> {
    Ok(first)
}

/// The name of a device, its kind first: `Flex(..)` for the CPU, `cuda(NVIDIA H100 80GB HBM3)`.
pub fn name(device: &Device) -> String {
    #[cfg(feature = "gpu")]
    if let Some(cube) = cube(device) {
        let kind = match cube {
            #[cfg(feature = "cuda")]
            burn_cubecl::CubeDevice::Cuda(_) => "cuda",
            _ => "vulkan",
        };
        return format!("{kind}({})", cube.client().properties().identity.name);
    }
    let name = format!("{device:?}");
    name.trim_start_matches("Device<")
        .trim_end_matches('>')
        .to_owned()
}

/// The CubeCL device, for kernels; `None` for the CPU.
#[cfg(feature = "gpu")]
pub(crate) fn cube(device: &Device) -> Option<&burn_cubecl::CubeDevice> {
    use burn::backend::DispatchDevice;
    match device.as_dispatch() {
        DispatchDevice::Cube(cube) => Some(cube),
        DispatchDevice::Autodiff(inner) => match &**inner {
            DispatchDevice::Cube(cube) => Some(cube),
            _ => None,
        },
        _ => None,
    }
}

/// The kind of the device with this [`name`]: `cpu`, `cuda`, `vulkan`, ..
pub fn kind(name: &str) -> String {
    let backend = name.split('(').next().unwrap_or_default().to_lowercase();
    // Burn's backend for the CPU.
    if backend == "flex" {
        "cpu".to_owned()
    } else {
        backend
    }
}

/// The values of a tensor, row-major, on the host.
///
/// # Errors
/// If an earlier computation failed on the device; Burn's `into_data` would panic.
pub fn read<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f32>, DeviceError> {
    tensor
        .try_into_vec_as::<f32>()
        .map_err(|error| DeviceError::Failed(error.to_string()))
}

#[cfg(feature = "cuda")]
fn cuda(number: usize) -> Result<Device, DeviceError> {
    let mut all = Device::enumerate(burn::tensor::DeviceType::Cuda)
        .into_vec()
        .into_iter();
    all.nth(number).ok_or(DeviceError::Absent {
        choice: DeviceChoice::Cuda(number),
    })
}

#[cfg(not(feature = "cuda"))]
fn cuda(number: usize) -> Result<Device, DeviceError> {
    Err(DeviceError::NotCompiledIn {
        choice: DeviceChoice::Cuda(number),
    })
}

#[cfg(feature = "vulkan")]
fn vulkan(number: usize, also_of_the_cpu: bool) -> Result<Device, DeviceError> {
    let good = |device: &Device| also_of_the_cpu || !cube(device).is_some_and(stokehold_gpu::is_cpu);
    let all = Device::enumerate(burn::tensor::DeviceType::Vulkan).into_vec();
    all.into_iter()
        .filter(good)
        .nth(number)
        .ok_or(DeviceError::Absent {
            choice: DeviceChoice::Vulkan(number),
        })
}

#[cfg(not(feature = "vulkan"))]
fn vulkan(number: usize, _: bool) -> Result<Device, DeviceError> {
    Err(DeviceError::NotCompiledIn {
        choice: DeviceChoice::Vulkan(number),
    })
}
