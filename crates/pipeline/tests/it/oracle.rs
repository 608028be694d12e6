//! Where the oracles are: a Python with torchvision, and real photos. Both are optional; a test without them says so.

use std::path::{Path, PathBuf};
use std::process::Command;

use stokehold_untested::needs;
pub use stokehold_untested::needs::torch as python;

/// The folder `photos` of the test data.
pub fn photos() -> Option<PathBuf> {
    needs::named("STOKEHOLD_TEST_DATA", "the folder that holds the folder `photos`")
        .map(|data| data.join("photos"))
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
