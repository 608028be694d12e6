//! The machine that a run was made on.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::kernel::ProcFs;

/// The properties of a machine that matter for a measurement.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// The processor's name; `None` if the platform does not provide it.
    pub cpu: Option<String>,
    /// Cores this process may use, after affinity and cgroup quota; a quota is rounded down, to 1 at least.
    pub cores: usize,
    /// The cores that a cgroup's quota leaves the process, such as 0.5; `None` without a quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<f64>,
    /// Main memory in bytes; `None` if the platform does not provide it.
    pub memory: Option<u64>,
    /// Operating system, such as `linux`.
    pub os: String,
    /// Instruction set, such as `x86_64`.
    pub arch: String,
    /// The cloud's name for machines like this, such as `g5.xlarge`; `None` elsewhere than on EC2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The name of the first GPU by NVIDIA's driver, such as `NVIDIA A10G`; `None` if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
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
            quota: crate::probe::quota(Path::new("/proc"), "self"),
            memory,
            os: std::env::consts::OS.to_owned(),
            arch: std::env::consts::ARCH.to_owned(),
            instance: instance(Path::new("/sys/devices/virtual/dmi/id")),
            gpu: gpu(Path::new("/proc/driver/nvidia/gpus")),
        }
    }
}

/// The instance type that EC2's machines have as the name of their product. Those on Xen, which are older, do not have it.
fn instance(dmi: &Path) -> Option<String> {
    let line = |name| Some(fs::read_to_string(dmi.join(name)).ok()?.trim().to_owned());
    let is_ec2 = line("sys_vendor")? == "Amazon EC2";
    line("product_name").filter(|name| is_ec2 && name.contains('.'))
}

/// The model of the first GPU, in the order of their places on the bus.
fn gpu(driver: &Path) -> Option<String> {
    let mut places: Vec<_> = fs::read_dir(driver)
        .ok()?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    places.sort();
    let facts = fs::read_to_string(places.first()?.join("information")).ok()?;
    let model = facts.lines().find_map(|line| line.strip_prefix("Model:"))?;
    Some(model.trim().to_owned())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_clouds_name_and_the_gpu_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        assert_eq!((instance(folder.path()), gpu(folder.path())), (None, None));
        write("sys_vendor", "Amazon EC2\n");
        write("product_name", "g5.xlarge\n");
        assert_eq!(instance(folder.path()).as_deref(), Some("g5.xlarge"));
        write("sys_vendor", "LENOVO\n");
        assert_eq!(instance(folder.path()), None);
        write(
            "gpus/0000:00:1f.0/information",
            "Model: \t\t Tesla T4\nIRQ:   \t\t 11\n",
        );
        write(
            "gpus/0000:00:1e.0/information",
            "Model: \t\t NVIDIA A10G\nIRQ:   \t\t 10\n",
        );
        assert_eq!(gpu(&folder.path().join("gpus")).as_deref(), Some("NVIDIA A10G"));
    }

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
