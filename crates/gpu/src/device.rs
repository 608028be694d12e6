//! Which devices there are, and why the rest cannot be used.
//!
//! Drivers are looked for before CubeCL touches them: libraries by opening them, devices by asking. A broken driver can
//! end the process that asks it, so a program that must not end asks in a process of its own
//! (`stokehold devices --json` is one).

use crate::GpuError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// What kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// NVIDIA's, through NVRTC.
    Cuda,
    /// Any driver of Vulkan, through SPIR-V.
    Vulkan,
}

impl Backend {
    /// All there are.
    pub const ALL: [Backend; 2] = [Backend::Cuda, Backend::Vulkan];

    /// Whether this build has it.
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

/// A device that can be asked for: `cuda:0`, `vulkan:1`; without a number the first one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeviceName {
    /// Its backend.
    pub backend: Backend,
    /// Its place among those that [`devices`] lists for the backend.
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

/// One line of what [`devices`] finds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// What it is asked for by.
    pub name: DeviceName,
    /// What its driver calls it.
    pub description: String,
    /// Whether it computes on the CPU, as Mesa's lavapipe does.
    pub is_cpu: bool,
}

/// What there is of one backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Devices {
    /// Which one.
    pub backend: Backend,
    /// The devices that can be used.
    pub usable: Vec<Device>,
    /// Why there are none.
    pub problem: Option<String>,
}

/// What there is of every backend. A broken driver may end the process.
pub fn devices() -> Vec<Devices> {
    Backend::ALL.into_iter().map(devices_of).collect()
}

/// What there is of one backend. A broken driver may end the process.
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
