//! The cores and GPUs of the machine that a job may use.

use std::fs;
use std::path::Path;

use crate::JobError;

/// The environment variable that tells CUDA which devices it may use.
pub(crate) const VISIBLE_GPUS: &str = "CUDA_VISIBLE_DEVICES";

/// Cores and GPUs of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The cores' numbers.
    pub cores: Vec<usize>,
    /// The GPUs, as `CUDA_VISIBLE_DEVICES` names them.
    pub gpus: Vec<String>,
}

impl Place {
    /// The cores that this thread may use, and the GPUs that `CUDA_VISIBLE_DEVICES` names, or without that
    /// variable all NVIDIA devices.
    pub fn here() -> Self {
        let gpus = match std::env::var(VISIBLE_GPUS) {
            Ok(named) => named_gpus(&named),
            Err(_) => devices(),
        };
        Self { cores: cores(), gpus }
    }

    /// The i-th of n shares: contiguous, and disjoint where there are enough cores or GPUs for all; else
    /// shares overlap.
    #[must_use]
    pub fn share(&self, i: usize, n: usize) -> Self {
        Self {
            cores: share(&self.cores, i, n),
            gpus: share(&self.gpus, i, n),
        }
    }

    /// Restricts this thread, and the processes that it starts from now on, to these cores.
    pub(crate) fn take(&self) -> Result<(), JobError> {
        if self.cores == cores() {
            return Ok(());
        }
        let mut set = rustix::thread::CpuSet::new();
        for core in &self.cores {
            set.set(*core);
        }
        rustix::thread::sched_setaffinity(None, &set)
            .map_err(|error| JobError::io(Path::new("the cores of a job"))(error.into()))
    }
}

fn share<T: Clone>(all: &[T], i: usize, n: usize) -> Vec<T> {
    match all.len() {
        0 => Vec::new(),
        len if len < n => vec![all[i % len].clone()],
        len => all[len * i / n..len * (i + 1) / n].to_vec(),
    }
}

fn cores() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None);
    let cores: Vec<usize> = set
        .map(|set| {
            (0..rustix::thread::CpuSet::MAX_CPU)
                .filter(|core| set.is_set(*core))
                .collect()
        })
        .unwrap_or_default();
    if cores.is_empty() { vec![0] } else { cores }
}

/// Names up to the first invalid one, as CUDA reads them.
fn named_gpus(named: &str) -> Vec<String> {
    let names = named.split(',').map(str::trim);
    let gpus = names.take_while(|name| !name.is_empty() && *name != "-1");
    gpus.map(str::to_owned).collect()
}

fn devices() -> Vec<String> {
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let mut gpus: Vec<usize> = entries
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("nvidia")?.parse().ok())
        .collect();
    gpus.sort_unstable();
    gpus.iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_disjoint_where_there_is_enough() {
        for (len, n) in [(8, 2), (7, 3), (2, 2), (64, 5)] {
            let all: Vec<usize> = (0..len).collect();
            let shares: Vec<usize> = (0..n).flat_map(|i| share(&all, i, n)).collect();
            assert_eq!(shares, all);
            assert!((0..n).all(|i| !share(&all, i, n).is_empty()));
        }
        assert_eq!((share(&[4, 5], 2, 3), share(&[4, 5], 1, 3)), (vec![4], vec![5]));
        assert!(share::<usize>(&[], 0, 2).is_empty());
    }

    #[test]
    fn gpus_are_named_as_cuda_reads_them() {
        assert_eq!(named_gpus("2, GPU-8932f937"), ["2", "GPU-8932f937"]);
        assert_eq!(named_gpus("1,-1,0"), ["1"]);
        assert!(named_gpus("").is_empty());
    }
}
