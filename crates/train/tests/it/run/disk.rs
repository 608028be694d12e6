//! A disk that is full while a checkpoint is written.
//!
//! The kernel refuses to let a file of the child process grow beyond a limit, as a full disk would.

use std::path::Path;
use std::process::Command;

use stokehold_train::TrainConfig;

use super::tiny::{End, STEPS_PER_EPOCH, config, run, write_data};

/// The process that [`a_full_disk_is_told_and_spares_the_checkpoint_before`] starts.
#[test]
#[ignore = "not a test of its own: it needs a limit on the size of files"]
fn limited_process() {
    let Some(dir) = std::env::var_os("STOKEHOLD_TEST_LIMITED_RUN") else {
        return;
    };
    let dir = Path::new(&dir);
    let error = run(&config(dir, &dir.join("run")), true, End::Never)
        .0
        .unwrap_err();
    println!("the run ended: {error}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_told_and_spares_the_checkpoint_before() {
    let dir = tempfile::tempdir().unwrap();
    write_data(dir.path());
    let config = config(dir.path(), &dir.path().join("run"));
    let (summary, first) = run(&config, false, End::AfterStep(2));
    assert!(summary.unwrap().interrupted);

    // 10 000 blocks of 512 bytes or 1 KiB, by the shell; the weights alone are 44 MB.
    let child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 10000; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "run::disk::limited_process",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env("STOKEHOLD_TEST_LIMITED_RUN", dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(
        child.status.success(),
        "{said} {}",
        String::from_utf8_lossy(&child.stderr)
    );
    for part in [
        "cannot write the checkpoint",
        "epoch-0001-step-00000003",
        "File too large",
        "the one before is intact",
        "epoch-0000-step-00000002",
        "make room and resume the run",
    ] {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
    let names: Vec<_> = std::fs::read_dir(config.run_dir.join("checkpoints"))
        .unwrap()
        .collect();
    assert_eq!(names.len(), 1, "{names:?}");

    // With room again the run continues from there.
    let TrainConfig { epochs, .. } = config;
    let (summary, second) = run(&config, true, End::Never);
    assert!(!summary.unwrap().interrupted);
    assert_eq!(
        (first.losses.len() + second.losses.len()) as u64,
        epochs * STEPS_PER_EPOCH
    );
}
