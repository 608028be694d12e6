//! Finds what tests need of a machine. Where it is missing, the calling test is reported as skipped.

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::skip;

/// The path in an environment variable; `what` says what the path has to be.
#[track_caller]
pub fn named(variable: &str, what: &str) -> Option<PathBuf> {
    let value = std::env::var_os(variable);
    if value.is_none() {
        skip(format_args!("{variable} is not set; set it to {what}"));
    }
    value.map(PathBuf::from)
}

/// What a program prints that the Python in an environment variable runs, with `input` on its standard input.
///
/// # Panics
/// The Python does not start, or fails.
#[track_caller]
pub fn asked(variable: &str, program: &str, input: &str) -> Option<String> {
    let python = named(variable, "the Python of an oracle")?;
    let mut child = Command::new(python)
        .args(["-c", program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the Python runs");
    let mut to = child.stdin.take().expect("a pipe");
    to.write_all(input.as_bytes()).expect("the program reads");
    drop(to);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{variable}: {:?}", output.status);
    Some(String::from_utf8(output.stdout).expect("it prints text"))
}

/// The Python of `STOKEHOLD_TEST_PYTHON`.
#[track_caller]
pub fn torch() -> Option<PathBuf> {
    named(
        "STOKEHOLD_TEST_PYTHON",
        "a Python with torch, torchvision and Pillow",
    )
}

/// The files in a folder below `STOKEHOLD_TEST_DATA`, in the order of their names.
#[track_caller]
pub fn data(folder: &str) -> Option<Vec<PathBuf>> {
    let root = named("STOKEHOLD_TEST_DATA", &format!("the folder that holds {folder}"))?;
    let folder = root.join(folder);
    let Ok(entries) = fs::read_dir(&folder) else {
        skip(format_args!("there is no {}", folder.display()));
        return None;
    };
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    Some(files)
}

/// Whether a program is installed whose version says what it is.
#[track_caller]
pub fn has(program: &str, says: &str) -> bool {
    let output = Command::new(program).arg("--version").output();
    let has = output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(says));
    if !has {
        skip(format_args!("there is no {program} ({says}) here"));
    }
    has
}

/// Whether FUSE may mount here: the device, and the right to mount (`CAP_SYS_ADMIN`, bit 21) or a helper that
/// has it.
#[track_caller]
pub fn can_mount() -> bool {
    let device = fs::File::options().read(true).write(true).open("/dev/fuse");
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let capabilities = effective
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let helped = std::env::split_paths(&path).any(|dir| dir.join("fusermount3").exists());
    let can = device.is_ok() && (capabilities >> 21 & 1 == 1 || helped);
    if !can {
        skip("this machine does not permit FUSE");
    }
    can
}
