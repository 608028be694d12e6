//! Where the oracles are: a Python with torchvision, and real photos. Both are optional; a test without them says so.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The Python named by STOKEHOLD_TEST_PYTHON.
pub fn python() -> Option<PathBuf> {
    named("STOKEHOLD_TEST_PYTHON", "a Python with torch and torchvision")
}

/// The folder `photos` of the data named by STOKEHOLD_TEST_DATA.
pub fn photos() -> Option<PathBuf> {
    named("STOKEHOLD_TEST_DATA", "the folder that holds the folder `photos`").map(|data| data.join("photos"))
}

fn named(variable: &str, what: &str) -> Option<PathBuf> {
    let value = std::env::var_os(variable);
    if value.is_none() {
        stokehold_untested::skip(format_args!("{variable} is not set; set it to {what}"));
    }
    value.map(PathBuf::from)
}

/// Runs a script of tests/oracle.
pub fn run(python: &Path, script: &str, args: &[&Path]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/oracle")
        .join(script);
    let status = Command::new(python)
        .arg(&script)
        .args(args)
        .status()
        .expect("the Python starts");
    assert!(status.success(), "{} failed: {status}", script.display());
}
