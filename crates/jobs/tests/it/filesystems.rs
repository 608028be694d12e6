//! Channels of the kind Mount: file systems that are mounted here, and folders that only look like it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use stokehold_base::fault::Fault;
use stokehold_jobs::{Channel, Job, Status};

use crate::Bench;
use crate::rooms::can_have_rooms;

fn job(bench: &Bench, channel: &str, script: &str) -> Job {
    let mut job = bench.job("run.sh", script);
    job.channels
        .insert("train".to_owned(), Channel::parse(channel).unwrap());
    job
}

/// A folder in a file system in memory that every Linux machine has mounted.
fn shared_memory() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::write(folder.path().join("a"), "one\n").unwrap();
    folder
}

#[test]
fn a_mounted_file_system_is_used_as_it_is_and_named() {
    if !can_have_rooms() {
        return;
    }
    let bench = Bench::new();
    let folder = shared_memory();
    let path = folder.path().display();
    let record = bench.run(&job(
        &bench,
        &format!("{path},kind=Mount"),
        "cat $SM_CHANNEL_TRAIN/a; touch $SM_CHANNEL_TRAIN/b || echo refused",
    ));
    assert_eq!(record.status, Status::Completed, "{record:?}");
    let printed = bench.printed();
    let named =
        format!("stokehold err channel train: {path} is tmpfs from tmpfs, mounted writable at /dev/shm");
    for line in [named.as_str(), "algo-1 out one", "algo-1 out refused"] {
        assert!(
            printed.iter().any(|printed| printed == line),
            "{line}: {printed:?}"
        );
    }
    assert!(!folder.path().join("b").exists());
    let record = bench.run(&job(
        &bench,
        &format!("{path},kind=Mount,access=rw"),
        "echo two > $SM_CHANNEL_TRAIN/b",
    ));
    assert_eq!(record.status, Status::Completed, "{record:?}");
    assert_eq!(fs::read_to_string(folder.path().join("b")).unwrap(), "two\n");
}

/// Why a job is refused; then there is none.
fn refused(bench: &Bench, job: &Job) -> String {
    let error = bench.store.create(job).unwrap_err();
    assert!(error.is_input(), "{error}");
    assert!(bench.store.list().unwrap().is_empty());
    error.to_string()
}

#[test]
fn a_folder_that_nothing_is_mounted_at_is_no_mount() {
    let bench = Bench::new();
    let empty = PathBuf::from("/mnt");
    let said = refused(&bench, &job(&bench, "/mnt,kind=Mount", "true"));
    assert!(
        empty.is_dir() && said.contains("channel train: /mnt: no file system is mounted there"),
        "{said}"
    );
    assert!(said.contains("Mount it first"), "{said}");
    let missing = bench.dir.path().join("missing").display().to_string();
    let said = refused(&bench, &job(&bench, &format!("{missing},kind=Mount"), "true"));
    assert!(
        said.contains(&missing) && said.contains("cannot be read"),
        "{said}"
    );
}

#[test]
fn without_namespaces_only_a_file_system_that_nobody_can_harm_is_shown() {
    let bench = Bench::new();
    let folder = shared_memory();
    let path = folder.path().display();
    let mut job = job(
        &bench,
        &format!("{path},kind=Mount"),
        "echo new > $SM_CHANNEL_TRAIN/b",
    );
    job.opt_ml = false;
    let said = refused(&bench, &job);
    assert!(
        said.contains("mount it read-only") && said.contains("access=rw"),
        "{said}"
    );
    let channel = Channel::parse(&format!("{path},kind=Mount,access=rw")).unwrap();
    job.channels.insert("train".to_owned(), channel);
    assert_eq!(bench.run(&job).status, Status::Completed);
    assert!(folder.path().join("b").exists());
}

/// A file system in memory that is mounted read-only, where mounting one is permitted.
struct ReadOnly(PathBuf);

impl ReadOnly {
    fn new(folder: &Path) -> Option<Self> {
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "ro,size=1m", "none"])
            .arg(folder)
            .output();
        let can = mount.is_ok_and(|output| output.status.success());
        if !can {
            stokehold_untested::skip("this machine does not permit mounting");
        }
        can.then(|| Self(folder.to_owned()))
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn a_read_only_mount_cannot_be_written() {
    let bench = Bench::new();
    let folder = bench.dir.path().join("my data");
    fs::create_dir(&folder).unwrap();
    let Some(_mount) = ReadOnly::new(&folder) else {
        return;
    };
    let path = folder.display();
    let said = refused(
        &bench,
        &job(&bench, &format!("{path},kind=Mount,access=rw"), "true"),
    );
    assert!(
        said.contains("access=rw, and tmpfs from none is mounted read-only"),
        "{said}"
    );
    // Without namespaces it is linked, not copied.
    let mut job = job(
        &bench,
        &format!("{path},kind=Mount"),
        "touch $SM_CHANNEL_TRAIN/x || echo refused",
    );
    job.opt_ml = false;
    let record = bench.run(&job);
    assert_eq!(record.status, Status::Completed, "{record:?}");
    let printed = bench.printed();
    assert!(
        printed.iter().any(|line| line == "algo-1 out refused")
            && printed.iter().any(|line| line.contains("mounted read-only at")),
        "{printed:?}"
    );
}
