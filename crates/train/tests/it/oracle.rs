//! Asks PyTorch, through `tests/oracle/oracle.py`.

use std::path::Path;
use std::process::Command;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// PyTorch's answer; none, and a line that says so, where `STOKEHOLD_TEST_PYTHON` names no Python with
/// torchvision.
pub fn ask<T: DeserializeOwned>(question: &str, details: Value) -> Option<T> {
    let Some(python) = std::env::var_os("STOKEHOLD_TEST_PYTHON") else {
        println!(
            "skipped: set STOKEHOLD_TEST_PYTHON to a Python with torch and torchvision to compare with PyTorch"
        );
        return None;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/oracle/oracle.py");
    let asked = Command::new(&python)
        .arg(script)
        .arg(question)
        .arg(details.to_string())
        .output();
    let answer = asked.unwrap_or_else(|error| panic!("cannot run {}: {error}", python.display()));
    assert!(
        answer.status.success(),
        "the oracle failed: {}",
        String::from_utf8_lossy(&answer.stderr)
    );
    Some(serde_json::from_slice(&answer.stdout).expect("the oracle answers in JSON"))
}
