//! The machine that a run was made on.

use serde::{Deserialize, Serialize};

use crate::kernel::ProcFs;

/// The properties of a machine that matter for a measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// The processor's name; `None` if the platform does not provide it.
    pub cpu: Option<String>,
    /// Cores this process may use, after affinity and cgroup quota.
    pub cores: usize,
    /// Main memory in bytes; `None` if the platform does not provide it.
    pub memory: Option<u64>,
    /// Operating system, such as `linux`.
    pub os: String,
    /// Instruction set, such as `x86_64`.
    pub arch: String,
}

/// The peak resident memory of this process, in bytes, as the kernel counted it, so that no peak is missed.
/// `None` if the platform does not provide it.
pub fn peak_rss() -> Option<u64> {
    ProcFs::system().peak_rss()
}

impl Machine {
    /// The properties of this machine.
    pub fn here() -> Self {
        let (cpu, memory) = ProcFs::system().machine();
        Self {
            cpu,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory,
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
        }
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_peak_stays_when_the_memory_is_gone() {
        let memory = std::hint::black_box(vec![1u8; 64 << 20]);
        drop(memory);
        assert!(
            peak_rss().is_some_and(|bytes| bytes > 64 << 20),
            "{:?}",
            peak_rss()
        );
    }
}
