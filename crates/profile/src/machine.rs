//! The machine a run was made on.

use serde::{Deserialize, Serialize};

use crate::kernel::ProcFs;

/// What a reader of a measurement needs to know about the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The processor's name; `None` where the platform does not tell.
    pub cpu: Option<String>,
    /// Cores this process may use, after affinity and cgroup quota.
    pub cores: usize,
    /// Main memory in bytes; `None` where the platform does not tell.
    pub memory: Option<u64>,
    /// Operating system, such as `linux`.
    pub os: String,
    /// Instruction set, such as `x86_64`.
    pub arch: String,
}

impl Machine {
    /// Looks at this machine.
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
