//! Processes of this machine: who they are, whether they live, how they end.

use std::fs;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};

/// A process that cannot be mistaken for a later one with the same number. It leads a group of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number, and its group's.
    pub pid: i32,
    /// When it started, in the kernel's ticks since the boot.
    pub started: u64,
    /// Which boot.
    pub boot: String,
}

impl Process {
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok()?;
        Some(Self {
            pid,
            started: start_time(pid)?,
            boot: boot(),
        })
    }

    /// Whether it is there and no zombie.
    pub fn is_alive(&self) -> bool {
        self.boot == boot() && start_time(self.pid) == Some(self.started)
    }

    /// Ends it and its group, without asking. Does nothing when it is gone: its number may be another's by now.
    pub(crate) fn end_group(&self) {
        if self.is_alive() {
            signal_group(self.pid, Signal::KILL);
        }
    }
}

pub(crate) fn signal_group(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // It may be gone already, which is what is wanted.
        let _ = kill_process_group(pid, signal);
    }
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Field 22 of `/proc/PID/stat`; none for a process that is gone or has ended and waits to be collected.
fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?;
    (state != "Z" && state != "X").then_some(())?;
    fields.nth(18)?.parse().ok()
}

/// 0..=255 as the process said, 128 and the signal's number for one that was killed.
pub(crate) fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// The cores that this thread may use.
pub(crate) fn cores() -> Vec<usize> {
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

/// Keeps this thread, and what it starts from now on, on some cores.
pub(crate) fn stay_on(cores: &[usize]) -> std::io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// The share of the i-th of n: contiguous, disjoint where there is enough for all, else one thing for several.
pub(crate) fn share<T: Copy>(all: &[T], i: usize, n: usize) -> Vec<T> {
    match all.len() {
        0 => Vec::new(),
        len if len < n => vec![all[i % len]],
        len => all[len * i / n..len * (i + 1) / n].to_vec(),
    }
}

/// The numbers of the machine's NVIDIA devices.
pub(crate) fn gpus() -> Vec<usize> {
    let entries = fs::read_dir("/dev").into_iter().flatten().flatten();
    let mut gpus: Vec<usize> = entries
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("nvidia")?.parse().ok())
        .collect();
    gpus.sort_unstable();
    gpus
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_more_than_its_number() {
        let me = Process::of(std::process::id()).unwrap();
        assert!(me.is_alive());
        assert!(
            !Process {
                started: me.started + 1,
                ..me.clone()
            }
            .is_alive()
        );
        assert!(
            !Process {
                boot: "another".to_owned(),
                ..me.clone()
            }
            .is_alive()
        );
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let ended = Process::of(child.id());
        child.wait().unwrap();
        assert!(ended.is_none_or(|ended| !ended.is_alive()));
    }

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
}
