//! Ctrl-C: the first one asks the work to stop at the next good place, the second one ends the program at once.

use std::sync::atomic::{AtomicBool, Ordering};

static STOP: AtomicBool = AtomicBool::new(false);

/// The exit code of a program that was stopped by Ctrl-C.
pub const EXIT_CODE: u8 = 130;

/// The flag that Ctrl-C (or SIGTERM) sets. The handler is installed by the first call.
///
/// # Errors
/// Where the system refuses the handler.
pub fn flag() -> Result<&'static AtomicBool, ctrlc::Error> {
    flag_for("stopping after this step and saving a checkpoint; press Ctrl-C again to end at once")
}

/// As [`flag`], with what the first Ctrl-C says; the first call decides.
///
/// # Errors
/// Where the system refuses the handler.
pub fn flag_for(says: &'static str) -> Result<&'static AtomicBool, ctrlc::Error> {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.swap(true, Ordering::SeqCst) {
        ctrlc::set_handler(move || {
            if STOP.swap(true, Ordering::SeqCst) {
                std::process::exit(i32::from(EXIT_CODE));
            }
            eprintln!("\n{says}");
        })?;
    }
    Ok(&STOP)
}
