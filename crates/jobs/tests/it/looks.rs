//! Who may only look at a job, and who may put files into its folder.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::SystemTime;

use stokehold_jobs::{Spot, Status};

use crate::Bench;

/// The files of a job's folder, each with its time and its bytes.
fn files(folder: &Path) -> BTreeMap<String, (SystemTime, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let files = entries.filter(|entry| entry.path().is_file());
    files
        .map(|entry| {
            let time = entry.metadata().unwrap().modified().unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, (time, fs::read(entry.path()).unwrap()))
        })
        .collect()
}

#[test]
fn who_only_looks_sees_a_dead_runner_and_changes_nothing() {
    let bench = Bench::new();
    let job = bench.job_without("train.sh", "echo hello");
    let name = bench.store.create(&job).unwrap();
    let folder = bench.store.path(&name);
    // No runner has come yet.
    assert_eq!(bench.store.look(&name).unwrap().status, Status::InProgress);
    let claim = bench.store.claim(&name).unwrap();
    assert_eq!(bench.store.look(&name).unwrap().status, Status::InProgress);
    // Its runner is gone, with its lock.
    drop(claim);
    let before = files(&folder);
    let record = bench.store.look(&name).unwrap();
    assert_eq!(
        (record.status, record.runner_died),
        (Status::Failed, true),
        "{record:?}"
    );
    assert_eq!(files(&folder), before);
    // Who may do more writes it down.
    assert_eq!(bench.store.get(&name).unwrap().status, Status::Failed);
    assert_ne!(files(&folder), before);

    let done = bench.run(&bench.job_without("train.sh", "echo hello"));
    let before = files(&bench.store.path(&done.name));
    let record = bench.store.look(&done.name).unwrap();
    assert_eq!((record.status, record.runner_died), (Status::Completed, false));
    assert_eq!(files(&bench.store.path(&done.name)), before);
    assert!(bench.store.look("nobody").is_err());
}

#[test]
fn a_job_whose_runner_cannot_be_started_has_failed() {
    let bench = Bench::new();
    for (program, says) in [("/bin/false", "ran nothing"), ("/not/there", "/not/there")] {
        let name = bench
            .store
            .create(&bench.job_without("train.sh", "echo hello"))
            .unwrap();
        let error = bench.store.start(&name, Path::new(program), false).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        let record = bench.store.look(&name).unwrap();
        assert_eq!(record.status, Status::Failed);
        assert!(
            record
                .failure_reason
                .as_deref()
                .is_some_and(|reason| reason.contains(says)),
            "{record:?}"
        );
    }
}

#[test]
fn a_link_in_a_jobs_folder_leads_no_wish_elsewhere() {
    let bench = Bench::new();
    let mut job = bench.job_without("train.sh", "echo hello");
    job.spot = Some(Spot::default());
    let name = bench.store.create(&job).unwrap();
    let victim = bench.dir.path().join("victim");
    fs::write(&victim, "mine").unwrap();
    let planted = |wish: &str| {
        let path = bench.store.path(&name).join(wish);
        let _ = fs::remove_file(&path);
        symlink(&victim, &path).unwrap();
        path
    };
    for (wish, text) in [("stop", ""), ("stop", "kill"), ("interrupt", "")] {
        let path = planted(wish);
        match (wish, text) {
            ("interrupt", _) => bench.store.interrupt(&name),
            (_, "kill") => bench.store.kill(&name),
            _ => bench.store.stop(&name),
        }
        .unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "mine", "{wish} {text}");
        assert!(path.symlink_metadata().unwrap().is_file(), "{wish}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
}
