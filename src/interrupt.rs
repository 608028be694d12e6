//! Ctrl-C, and the signals of clusters and terminals that end a program (SIGTERM, SIGHUP, and SIGUSR1, which Slurm sends on
//! request before its limit): the first one asks the work to stop
//! at the next good place, the second one ends the program at once.
//!
//! A thread waits for the signals, so that their handlers are ordinary code.
//!
//! [`survive_limits`] handles SIGXFSZ, the signal of a limit on file sizes.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::terminal::note;

static STOP: AtomicBool = AtomicBool::new(false);

/// The first signal, for [`by_limit`].
static FIRST: AtomicI32 = AtomicI32::new(0);

/// The exit code after Ctrl-C.
pub const EXIT_CODE: u8 = 130;

/// Whether the first signal was SIGUSR1, a cluster's warning before its limit.
pub fn by_limit() -> bool {
    FIRST.load(Ordering::SeqCst) == SIGUSR1
}

/// As [`flag_for`], also for SIGUSR1, for work with checkpoints.
///
/// # Errors
/// If the system refuses the handler.
pub fn flag_of_checkpoints() -> io::Result<&'static AtomicBool> {
    const SAVES: &str = "stopping after this step and saving a checkpoint; press Ctrl-C again to end at once";
    let flag = flag_for(SAVES)?;
    let mut signals = Signals::new([SIGUSR1])?;
    std::thread::Builder::new()
        .name("limits".to_owned())
        .spawn(move || {
            for signal in signals.forever() {
                // The warning may be repeated; only people end a program at once.
                let _ = FIRST.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
                if !flag.swap(true, Ordering::SeqCst) {
                    say(SAVES);
                }
            }
        })?;
    Ok(flag)
}

/// The flag that Ctrl-C (SIGTERM, SIGHUP) sets. The first call installs the handler, and determines the message for the
/// first Ctrl-C.
///
/// # Errors
/// If the system refuses the handler.
pub fn flag_for(says: &'static str) -> io::Result<&'static AtomicBool> {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.swap(true, Ordering::SeqCst) {
        on_each(move |nth, signal| {
            let _ = FIRST.compare_exchange(0, signal, Ordering::SeqCst, Ordering::SeqCst);
            if nth > 1 {
                end();
            }
            STOP.store(true, Ordering::SeqCst);
            say(says);
        })?;
    }
    Ok(&STOP)
}

/// Has the first signal end the program, with a message; for work that has nothing to finish.
///
/// # Errors
/// If the system refuses the handler.
pub fn leave(says: &'static str) -> io::Result<()> {
    on_each(move |_, _| {
        say(says);
        end()
    })
}

/// Starts a thread that calls `act` at every signal, with the count, from 1, and the signal; instead of
/// [`flag_for`], for work with its own handling.
///
/// # Errors
/// If the system refuses the handler.
pub fn on_each(act: impl FnMut(usize, i32) + Send + 'static) -> io::Result<()> {
    on_each_of(Signals::new([SIGINT, SIGTERM])?, act)
}

/// As [`on_each`], also for SIGUSR1, a cluster's warning before its limit.
///
/// # Errors
/// If the system refuses the handler.
pub fn on_each_and_limits(act: impl FnMut(usize, i32) + Send + 'static) -> io::Result<()> {
    on_each_of(Signals::new([SIGINT, SIGTERM, SIGUSR1])?, act)
}

fn on_each_of(mut signals: Signals, mut act: impl FnMut(usize, i32) + Send + 'static) -> io::Result<()> {
    // `nohup` makes it ignored; keep it so.
    if !is_ignored(SIGHUP) {
        signals.add_signal(SIGHUP)?;
    }
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            for (before, signal) in signals.forever().enumerate() {
                act(before + 1, signal);
            }
        })?;
    Ok(())
}

/// Makes a write beyond a limit on file sizes (`ulimit -f`) fail with an error, as on a full disk. Otherwise the
/// signal ends the program without a message and leaves its unfinished file.
///
/// The signal gets a handler and is not ignored: a started program gets the default action in place of a
/// handler, and would inherit an ignored signal.
pub fn survive_limits() {
    if !is_ignored(SIGXFSZ) {
        // If the system refuses it, such a write ends the program, as before.
        let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
    }
}

/// Whether this program was started with a signal ignored (proc(5), `SigIgn`: bit n - 1 is signal n).
fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Prints a message on a new line after Ctrl-C. The terminal may be gone, as SIGHUP means.
pub fn say(text: &str) {
    note!("\n{text}");
}

/// Ends the program with the exit code of Ctrl-C.
pub fn end() -> ! {
    std::process::exit(i32::from(EXIT_CODE))
}
