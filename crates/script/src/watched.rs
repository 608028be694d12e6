//! The hook in a recording: what it needs before a command starts, and what came of it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use stokehold_profile::workload::Workload;
use stokehold_profile::{Contention, Machine, ProfileError, SystemSummary};

use crate::facts::{read, started, unmark};
use crate::hook::{Changes, FOLDER, Hook, is_python, starts_no_hook};
use crate::workload::Script;

/// A recording whose commands get the hook.
#[derive(Debug)]
pub struct Watched {
    /// Why there is none.
    hook: Result<Hook, String>,
    counters: PathBuf,
    is_python: bool,
    began: Instant,
    before: Option<Contention>,
    cpu: Duration,
}

/// What a script did.
#[derive(Debug, Default)]
pub struct Seen {
    /// The numbers from which gains are predicted; `None` where nothing trained.
    pub workload: Option<Workload>,
    /// Its loaders, the one that took most of the training's time first.
    pub loaders: Vec<Script>,
    /// What a reader should know of it.
    pub notes: Vec<String>,
}

/// A command that was recorded.
#[derive(Debug)]
pub struct Recorded {
    /// Its exit code, as a shell has it.
    pub code: u8,
    /// Whether it was asked to end.
    pub interrupted: bool,
    /// What a PyTorch script did.
    pub workload: Option<Workload>,
    /// Its loaders, the one that took most of the training's time first.
    pub loaders: Vec<Script>,
    /// What a reader should know of that.
    pub notes: Vec<String>,
    /// `None` for a command that did not start.
    pub recording: Option<Result<SystemSummary, ProfileError>>,
}

impl Recorded {
    /// Whether the command started; the program that starts it says why it did not.
    pub fn started(&self) -> bool {
        self.recording.is_some()
    }
}

impl Watched {
    /// The hook for a command of these words. Where it cannot be, the command runs without it, and a note of [`finish`](Self::finish)
    /// says why.
    pub fn begin(words: &[OsString], recording: &Path, changes: &Changes) -> Self {
        let counters = recording.join(FOLDER);
        let hook = match starts_no_hook(words) {
            Some(why) => Err(why),
            None => {
                Hook::new(&counters.join("hook"), changes, Some(&counters)).map_err(|error| error.to_string())
            }
        };
        Self {
            hook,
            counters,
            is_python: is_python(words),
            began: Instant::now(),
            before: Contention::now(),
            cpu: children_cpu(),
        }
    }

    /// Gives a command the hook.
    pub fn set(&self, command: &mut Command) {
        if let Ok(hook) = &self.hook {
            hook.set(command);
        }
    }

    /// Whether the command is a Python that has not started the hook.
    pub fn lacks_the_hook(&self) -> bool {
        self.is_python && self.hook.is_ok() && !started(&self.counters)
    }

    /// What the script did, after its end.
    pub fn finish(&self) -> Seen {
        if let Err(reason) = &self.hook {
            return Seen {
                notes: vec![format!("steps and waits are not seen: {reason}")],
                ..Seen::default()
            };
        }
        let mut notes = Vec::new();
        if self.lacks_the_hook() {
            notes.push(
                "the hook did not start in this Python, so steps and waits are not seen: PYTHONPATH did not reach it; a wrapper that sets it has to keep what it holds".to_owned(),
            );
        }
        let own = children_cpu().saturating_sub(self.cpu).as_secs_f64();
        let others = self.before.zip(Contention::now()).and_then(|(before, now)| {
            let seconds = self.began.elapsed().as_secs_f64();
            // The children's time is not this process's own.
            Some((before.others_cores_until(now)? - own / seconds.max(1e-9)).max(0.0))
        });
        let (processes, problems) = read(&self.counters);
        let of_hook = processes.iter().flat_map(|process| &process.problems);
        for problem in of_hook.chain(&problems) {
            if !notes.contains(problem) {
                notes.push(problem.clone());
            }
        }
        let loaders = Script::all(&processes);
        let script = Script::of(&processes);
        let loaded: u64 = processes
            .iter()
            .flat_map(|process| &process.loaders)
            .map(|loader| loader.evaluate.batches)
            .sum();
        if script.is_none() && loaded > 0 {
            notes.push(format!(
                "{loaded} batches were loaded, and no optimizer of torch made a step: nothing trained that could be judged"
            ));
        }
        notes.extend(script.iter().flat_map(Script::notes));
        let machine = Machine::here();
        let workload = script.map(|script| Workload {
            quota: machine.quota,
            ..script.workload(machine.cores as u64, others)
        });
        Seen {
            workload,
            loaders,
            notes,
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.hook = Err(String::new());
        // Nothing of the hook is left in the recording of another program.
        unmark(&self.counters);
        let _ = std::fs::remove_dir(&self.counters);
    }
}

/// CPU time of the children that have ended.
fn children_cpu() -> Duration {
    let duration = |time: TimeVal| Duration::from_micros(time.num_microseconds().max(0) as u64);
    getrusage(UsageWho::RUSAGE_CHILDREN).map_or(Duration::ZERO, |usage| {
        duration(usage.user_time()) + duration(usage.system_time())
    })
}
