//! A command as a child: signals that are passed on, orphans that are kept in sight, and its exit code as a shell has it.

mod signals;

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::terminal::note;
pub use signals::Signals;

/// Makes the orphans of a command children of this process.
///
/// # Errors
/// The system's error.
pub fn adopt_orphans() -> nix::Result<()> {
    prctl::set_child_subreaper(true)
}

/// Says why a command did not start. Returns the exit code that a shell has for it.
pub fn not_started(program: &OsStr, error: &io::Error) -> u8 {
    let shown = program.display();
    match Path::new(program)
        .extension()
        .is_some_and(|suffix| suffix == "py")
        && Path::new(program).is_file()
    {
        true => note!("error: {shown}: {error}; it is a script: put python3 before it"),
        false => note!("error: {shown}: {error}"),
    }
    match error.kind() {
        io::ErrorKind::NotFound => 127,
        _ => 126,
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// Its exit code, as a shell has it.
    pub code: u8,
    /// Whether it was asked to end meanwhile, by Ctrl-C or a signal like that.
    pub interrupted: bool,
}

/// Forwards signals until the child ends.
///
/// # Errors
/// The system's error.
pub fn follow(child: &Child, signals: &Signals) -> nix::Result<Ended> {
    let mut interrupted = false;
    let child = Pid::from_raw(child.id() as i32);
    loop {
        let Some(signal) = signals.wait(None)? else {
            continue;
        };
        interrupted |= signal.ends();
        match signal.number {
            Signal::SIGCHLD => {
                if let Some(code) = reap(child)? {
                    return Ok(Ended { code, interrupted });
                }
            }
            _ if signal.from_terminal => {
                if signal.number == Signal::SIGTSTP {
                    // The command has stopped; stop too. A process that continues the command continues this
                    // one.
                    kill(Pid::this(), Signal::SIGSTOP)?;
                }
            }
            number => {
                match kill(child, number) {
                    // It has just ended.
                    Ok(()) | Err(Errno::ESRCH) => {}
                    // For example if it runs as another user.
                    Err(error) => note!("stokehold: {number} cannot be passed on: {error}"),
                }
            }
        }
    }
}

/// Reaps every child that has ended, orphans too. Returns the exit code of the command if it is among them.
fn reap(child: Pid) -> nix::Result<Option<u8>> {
    let mut code = None;
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, status)) if pid == child => code = Some(status as u8),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == child => {
                code = Some(128 + signal as i32 as u8)
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(code),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Ends what a command that has ended left behind, as far as it is a child of this process.
pub fn end_orphans() {
    /// Children of children come to this process when these end.
    const LONGEST: Duration = Duration::from_secs(5);
    let begin = Instant::now();
    while begin.elapsed() < LONGEST {
        let children = children();
        if children.is_empty() {
            return;
        }
        for child in children {
            let _ = kill(child, Signal::SIGKILL);
            let _ = waitpid(child, None);
        }
    }
}

/// The processes that this one has as children.
fn children() -> Vec<Pid> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let numbers: Vec<i32> = lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<i32>>()
        })
        .collect();
    numbers.into_iter().map(Pid::from_raw).collect()
}
