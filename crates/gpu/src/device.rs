//! Lists the devices, and why others cannot be used.
//!
//! Drivers are checked before CubeCL uses them: libraries by loading them, devices by querying them. A broken
//! driver can end the process that queries it, so a program that must not end should query in a separate
//! process (`stokehold devices --json` does).

use crate::GpuError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The target of the kernels' compilation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// NVIDIA's CUDA, through NVRTC.
    Cuda,
    /// Any Vulkan driver, through SPIR-V.
    Vulkan,
}

impl Backend {
    /// All backends.
    pub const ALL: [Backend; 2] = [Backend::Cuda, Backend::Vulkan];

    /// Whether this build includes it.
    pub fn is_compiled(self) -> bool {
        match self {
            Backend::Cuda => cfg!(feature = "cuda"),
            Backend::Vulkan => cfg!(feature = "vulkan"),
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Backend::Cuda => "cuda",
            Backend::Vulkan => "vulkan",
        })
    }
}

/// The name of a device: `cuda:0`, `vulkan:1`; without a number the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeviceName {
    /// Its backend.
    pub backend: Backend,
    /// Its index among those that [`devices`] lists for the backend.
    pub index: usize,
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.backend, self.index)
    }
}

impl FromStr for DeviceName {
    type Err = GpuError;

    fn from_str(name: &str) -> Result<DeviceName, GpuError> {
        let unknown = || GpuError::UnknownDevice(name.into());
        let (backend, index) = name.split_once(':').unwrap_or((name, "0"));
        let backend = Backend::ALL.into_iter().find(|b| b.to_string() == backend);
        Ok(DeviceName {
            backend: backend.ok_or_else(unknown)?,
            index: index.parse().map_err(|_| unknown())?,
        })
    }
}

/// A device that [`devices`] has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// The name to open it by.
    pub name: DeviceName,
    /// The driver's name for it.
    pub description: String,
    /// Whether it computes on the CPU, such as Mesa's lavapipe.
    pub is_cpu: bool,
}

/// The devices of one backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Devices {
    /// The backend.
    pub backend: Backend,
    /// The devices that can be used.
    pub usable: Vec<Device>,
    /// Why there are none.
    pub problem: Option<String>,
}

/// The devices of every backend. A broken driver may end the process.
pub fn devices() -> Vec<Devices> {
    Backend::ALL.into_iter().map(devices_of).collect()
}

/// The devices of one backend. A broken driver may end the process.
pub fn devices_of(backend: Backend) -> Devices {
    let (usable, problem) = match find(backend) {
        Ok(usable) if usable.is_empty() => (usable, Some("the driver is there, but no device is".into())),
        Ok(usable) => (usable, None),
        Err(problem) => (Vec::new(), Some(problem)),
    };
    Devices {
        backend,
        usable,
        problem,
    }
}

#[cfg(not(feature = "kernels"))]
fn find(backend: Backend) -> Result<Vec<Device>, String> {
    Err(not_compiled(backend))
}

fn not_compiled(backend: Backend) -> String {
    format!("compiled without it; build with --features {backend}")
}

#[cfg(feature = "kernels")]
fn find(backend: Backend) -> Result<Vec<Device>, String> {
    if !backend.is_compiled() {
        return Err(not_compiled(backend));
    }
    crate::client::find(backend)
}
