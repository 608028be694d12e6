//! Processes on this machine: their identity, whether they live, how they end.

use std::fs;
use std::process::ExitStatus;

use rustix::process::{Pid, Signal, kill_process_group};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A process, with enough to tell it from a later one with the same number. It leads its own process group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Process {
    /// The number of the process and of its group.
    pub pid: i32,
    /// Its start time, in the kernel's ticks since the boot.
    pub started: u64,
    /// The identity of the boot.
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

    /// Whether the process exists and is no zombie.
    pub fn is_alive(&self) -> bool {
        self.boot == boot() && start_time(self.pid) == Some(self.started)
    }

    /// Kills the process and its group. Does nothing if the process is gone: its number may belong to another
    /// one by now.
    pub(crate) fn end_group(&self) {
        if self.is_alive() {
            signal_group(self.pid, Signal::KILL);
        }
    }
}

pub(crate) fn signal_group(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // An error means that it is gone already.
        let _ = kill_process_group(pid, signal);
    }
}

fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim()
        .to_owned()
}

/// Field 22 of `/proc/PID/stat`; `None` for a process that is gone, or has ended and was not reaped.
fn start_time(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may contain any character.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    let state = fields.next()?;
    (state != "Z" && state != "X").then_some(())?;
    fields.nth(18)?.parse().ok()
}

/// 0..=255 as the process exited; 128 plus the signal's number for one that was killed.
pub(crate) fn exit_code(status: ExitStatus) -> i32 {
    use std::os::unix::process::ExitStatusExt;
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
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
}
