//! Signals as a queue, each with its sender.

use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use nix::errno::Errno;
use nix::libc::SI_KERNEL;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The signals that a recorder forwards or acts on.
const SIGNALS: [Signal; 9] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGTSTP,
    Signal::SIGCONT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGCHLD,
];

/// The queue.
pub struct Signals {
    queue: SignalFd,
    /// The signals that were blocked before.
    before: SigSet,
}

/// A signal that arrived.
pub struct Arrived {
    pub number: Signal,
    /// Whether the terminal sent it, to the whole process group.
    pub from_terminal: bool,
}

impl Arrived {
    /// Whether it asks a program to end.
    pub fn ends(&self) -> bool {
        const ENDS: [Signal; 4] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
        ENDS.contains(&self.number)
    }
}

impl Signals {
    /// Queues the signals for this thread and the threads that it starts.
    pub fn block() -> nix::Result<Self> {
        let set: SigSet = SIGNALS.into_iter().collect();
        let before = SigSet::thread_get_mask()?;
        set.thread_block()?;
        Ok(Self {
            queue: SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?,
            before,
        })
    }

    /// Makes a program get its signals as if it had been started without this queue.
    pub fn restore_in<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        let before = self.before;
        // SAFETY: between fork and exec only functions that are async-signal-safe may be called. `pthread_sigmask` is
        // (signal-safety(7)), and nothing is allocated or locked: the set is copied into the closure, and an error is
        // a number.
        unsafe { command.pre_exec(move || before.thread_set_mask().map_err(Into::into)) }
    }

    /// The next signal; `None` if none comes within this time.
    pub fn wait(&self, time: Option<Duration>) -> nix::Result<Option<Arrived>> {
        let timeout = time.map_or(PollTimeout::NONE, |time| {
            PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut [PollFd::new(self.queue.as_fd(), PollFlags::POLLIN)], timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error),
        }
        let Some(info) = self.queue.read_signal()? else {
            return Ok(None);
        };
        Ok(Some(Arrived {
            number: Signal::try_from(info.ssi_signo as i32)?,
            from_terminal: info.ssi_code == SI_KERNEL,
        }))
    }
}
