//! Reports tests that could not run in this environment, and why.
//!
//! A test that lacks something (a reference implementation, a permission, a program) calls [`skip`] and
//! returns. The reason is printed at once, even if the test's output is captured, and stored next to the test
//! programs. The test program `summary` of this package, which Cargo runs last, counts and lists all skips of
//! the run, and writes them to `untested/last` next to the test programs. With `STOKEHOLD_REQUIRE_ALL=1` a skip is a failure.
//!
//! A test that waits for another thread or process calls [`until`].
//!
//! A test that compares with answers that an oracle once gave calls [`kept`] where the oracle is not there: its promise is
//! proved, and the oracle would prove more.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::process::parent_id;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

pub mod moto;
pub mod needs;

/// The environment variable that turns skips into failures.
pub const REQUIRE_ALL: &str = "STOKEHOLD_REQUIRE_ALL";

/// Reports that the calling test ends without testing, and why.
///
/// # Panics
///
/// If `STOKEHOLD_REQUIRE_ALL=1` is set, and if the line cannot be stored.
#[track_caller]
pub fn skip(reason: impl Display) {
    note(SKIPPED, &reason);
}

/// Reports that the calling test compares with the oracle's kept answers alone, because the oracle is not here.
///
/// # Panics
///
/// As [`skip`].
#[track_caller]
pub fn kept(oracle: impl Display) {
    note(KEPT, &oracle);
}

/// Waits for what another thread or process does, and looks every 10 ms.
///
/// # Panics
///
/// If it is not so after two minutes.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(120), "waited for {what}");
        sleep(Duration::from_millis(10));
    }
}

/// Before the lines of tests that did not test.
pub const SKIPPED: &str = "skipped: ";
/// Before the lines of tests that compared with kept answers alone.
pub const KEPT: &str = "kept answers: ";

#[track_caller]
fn note(kind: &str, reason: &dyn Display) {
    let thread = std::thread::current();
    let at = Location::caller().to_string();
    // With one test thread libtest has no thread with the test's name.
    let test = thread.name().filter(|name| *name != "main").unwrap_or(&at);
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default();
    let line = format!("{kind}{package} {test}: {reason}\n");
    assert!(
        std::env::var_os(REQUIRE_ALL).is_none_or(|value| value != "1"),
        "{line}and {REQUIRE_ALL}=1 lets no test be skipped"
    );
    // Report a test once per reason: a property test calls this once per case, and some tests lack several
    // things.
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    if SAID.lock().expect("no thread panics here").insert(line.clone()) {
        // Unlike println's output, this is not captured. One call per line, because other tests write too.
        let _ = io::stderr().write_all(line.as_bytes());
        keep(&line).expect("the target folder takes the line");
    }
}

/// Returns whether the calling test, which needs files that its user must not read, should continue.
///
/// Root may read every file. So the test runs once more in a process without that right (`setpriv` of
/// util-linux), where it continues; here it is done once that process has succeeded.
///
/// # Panics
///
/// If the test failed in that process.
#[track_caller]
pub fn permissions_bind() -> bool {
    const WITHOUT: &str = "STOKEHOLD_TEST_WITHOUT_RIGHTS";
    // CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH are bits 1 and 2.
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let rights = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    if rights.unwrap_or(0) & 0b110 == 0 {
        return true;
    }
    assert!(
        std::env::var_os(WITHOUT).is_none(),
        "setpriv took no right away: {rights:?}"
    );
    let thread = std::thread::current();
    let program = std::env::current_exe().expect("a test program");
    let again = Command::new("setpriv")
        .args(["--bounding-set", "-dac_override,-dac_read_search"])
        .arg(program)
        .args(["--exact", thread.name().unwrap_or_default(), "--nocapture"])
        .env(WITHOUT, "1")
        .output();
    match again {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(
                output.status.success() && said.contains("1 passed"),
                "without the right to read everything: {said}{errors}"
            );
        }
        Err(error) => skip(format_args!(
            "this user may read every file, and setpriv does not start: {error}"
        )),
    }
    false
}

/// The file with the lines of the last run.
const LAST: &str = "last";

/// Writes the lines of a run, for those who run its tests once more with what they lacked.
///
/// # Errors
///
/// If the file cannot be written.
pub fn keep_last(lines: &BTreeSet<String>) -> io::Result<()> {
    let path = record(parent_id())?.with_file_name(LAST);
    fs::create_dir_all(path.parent().expect("in a folder"))?;
    fs::write(
        path,
        lines.iter().map(|line| format!("{line}\n")).collect::<String>(),
    )
}

fn keep(line: &str) -> io::Result<()> {
    let path = record(parent_id())?;
    fs::create_dir_all(path.parent().expect("in a folder"))?;
    File::options()
        .create(true)
        .append(true)
        .open(path)?
        .write_all(line.as_bytes())
}

/// Returns the skips of this run of `cargo test`, sorted and without duplicates, and removes them from disk,
/// together with those of runs that ended before their summary.
///
/// # Errors
///
/// If they cannot be read or removed.
pub fn take() -> io::Result<BTreeSet<String>> {
    take_of(parent_id())
}

fn take_of(cargo: u32) -> io::Result<BTreeSet<String>> {
    let path = record(cargo)?;
    let lines = match fs::read_to_string(&path) {
        Ok(lines) => lines.lines().map(str::to_owned).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeSet::new()),
        Err(error) => return Err(error),
    };
    for entry in fs::read_dir(path.parent().expect("in a folder"))? {
        let entry = entry?;
        let is_of_ended = entry.file_name() != LAST && !Path::new("/proc").join(entry.file_name()).exists();
        if entry.path() == path || is_of_ended {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(lines)
}

/// The file for the skips of one `cargo test` process with this number: in a folder next to `deps`.
fn record(cargo: u32) -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let profile = program.ancestors().nth(2).expect("a test program lies in deps/");
    Ok(profile.join("untested").join(cargo.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The test program itself, as a process that has to skip this test.
    #[test]
    fn a_skip_is_said_and_kept_and_fails_where_none_is_allowed() {
        const SKIPS: &str = "STOKEHOLD_TEST_SKIPS";
        const NAME: &str = "tests::a_skip_is_said_and_kept_and_fails_where_none_is_allowed";
        if std::env::var_os(SKIPS).is_some() {
            for reason in ["of no oracle", "of no program", "of no oracle"] {
                skip(reason);
            }
            return;
        }
        let run = |require_all| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", NAME, "--test-threads", "2"])
                .env(SKIPS, "1")
                .env(REQUIRE_ALL, require_all)
                .output()
                .unwrap()
        };
        let lines = ["of no oracle", "of no program"]
            .map(|reason| format!("skipped: {} {NAME}: {reason}", env!("CARGO_PKG_NAME")));
        let skipping = run("0");
        assert!(skipping.status.success());
        let said = String::from_utf8(skipping.stderr).unwrap();
        for line in &lines {
            assert_eq!(said.matches(line).count(), 1, "{said}");
        }
        let cargo = std::process::id();
        assert_eq!(take_of(cargo).unwrap(), BTreeSet::from(lines));
        assert_eq!(take_of(cargo).unwrap(), BTreeSet::new());
        assert_eq!(run("1").status.code(), Some(101));
    }
}
