//! Data that lies in a bucket: the same commands with a URI for the folder.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::Ordering::SeqCst;

use serde_json::Value;
use stokehold_s3_server::Server;
use tempfile::TempDir;

fn images() -> (TempDir, Server) {
    let dir = TempDir::new().unwrap();
    let bytes = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile/small.jpg")).unwrap();
    for part in ["train/cat", "train/dog", "val/cat", "val/dog"] {
        let folder = dir.path().join("photos/set").join(part);
        fs::create_dir_all(&folder).unwrap();
        for number in 0..6 {
            fs::write(folder.join(format!("{number}.jpg")), &bytes).unwrap();
        }
    }
    let server = Server::start(dir.path()).unwrap();
    (dir, server)
}

fn run(server: &Server, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stokehold"));
    command.args(args).envs(server.settings()).output().unwrap()
}

#[test]
fn a_loader_reads_a_bucket_as_it_reads_a_folder() {
    let (dir, server) = images();
    let options = [
        "--image-size",
        "32",
        "--batch-size",
        "2",
        "--json",
        "--passes",
        "2",
    ];
    let bench = |data: &str| {
        let output = run(&server, &[&["bench", "loader", data][..], &options].concat());
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{text}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let there = bench("s3://photos/set");
    let here = bench(dir.path().join("photos/set").to_str().unwrap());
    assert_eq!((&there["images"], &here["images"]), (&24.into(), &24.into()));

    let out = dir.path().join("prepared");
    let output = run(&server, &["prepare", "s3://photos/set", out.to_str().unwrap()]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let output = run(
        &server,
        &[
            "prepare",
            "--verify",
            out.to_str().unwrap(),
            "--against",
            "s3://photos/set",
        ],
    );
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_key_that_no_file_can_have_is_named_and_the_others_are_read() {
    let (dir, server) = images();
    let odd = ["set/train/cat//7.jpg", "set/train/cat/../8.jpg"];
    *server.faults().listed.lock().unwrap() = odd.map(|key| (key.to_owned(), 9)).to_vec();
    let out = dir.path().join("out");
    let prepared = out.join("prepared");
    for args in [
        &["dataset", "info", "s3://photos/set"][..],
        &["prepare", "s3://photos/set", prepared.to_str().unwrap()],
        &[
            "bench",
            "loader",
            "s3://photos/set",
            "--image-size",
            "32",
            "--passes",
            "1",
        ],
    ] {
        let output = run(&server, args);
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {text}");
        for says in [
            "warning: \"s3://photos/set/train/cat//7.jpg\" is left out: one of its folders has no name",
            "warning: \"s3://photos/set/train/cat/../8.jpg\" is left out: one of its folders is called . or ..",
        ] {
            assert!(text.contains(says), "{args:?}: {text}");
        }
    }
}

#[test]
fn what_is_wrong_with_a_bucket_is_said_and_no_secret() {
    let (_dir, server) = images();
    let code = |args: &[&str], word: &str| {
        let output = run(&server, args);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(word), "{text}");
        assert!(!text.contains(stokehold_s3_server::SECRET_KEY), "{text}");
        output.status.code()
    };
    assert_eq!(
        code(&["dataset", "info", "s3://nowhere/set"], "NoSuchBucket"),
        Some(2)
    );
    assert_eq!(
        code(&["dataset", "info", "s3://photos/typo"], "s3://photos/typo"),
        Some(2)
    );
    assert_eq!(
        code(&["dataset", "info", "ftp://photos/set"], "is not known"),
        Some(2)
    );
    server.faults().expired.store(u64::MAX, SeqCst);
    assert_eq!(
        code(&["dataset", "info", "s3://photos/set"], "ExpiredToken"),
        Some(2)
    );
}

#[test]
fn a_recording_in_a_bucket_is_reported() {
    let (dir, server) = images();
    let minute = 1_591_748_100;
    let line = |second: f64, value: f64| {
        format!(
            r#"{{"Type":"cpu","Name":"cpu0","Dimension":"CPUUtilization","Value":{value},"NodeId":"algo-1","Timestamp":{}}}"#,
            f64::from(minute) + second
        )
    };
    let hour = dir
        .path()
        .join("photos/job/profiler-output/system/incremental/2020061000");
    fs::create_dir_all(&hour).unwrap();
    let lines: String = (0..100)
        .map(|tick| line(f64::from(tick) * 0.5, f64::from(tick)) + "\n")
        .collect();
    fs::write(hour.join(format!("{minute}.algo-1.json")), lines).unwrap();
    // What is no part of the recording is not fetched.
    fs::create_dir_all(dir.path().join("photos/job/output")).unwrap();
    fs::write(
        dir.path().join("photos/job/output/model.tar.gz"),
        vec![0; 1 << 20],
    )
    .unwrap();

    let out = dir.path().join("out");
    let output = run(
        &server,
        &["report", "s3://photos/job", "--json", "-o", out.to_str().unwrap()],
    );
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cpu = &report["runs"][0]["findings"]["OverallSystemUsage"]["Details"]["CPU"]["algo-1"];
    assert_eq!(
        (cpu["max"].as_f64(), cpu["min"].as_f64()),
        (Some(99.0), Some(0.0)),
        "{report}"
    );
    assert_eq!(report["runs"][0]["run"], "s3://photos/job");
    assert!(Path::new(report["page"].as_str().unwrap()).is_file());

    let output = run(&server, &["report", "s3://photos/set"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("is of a recording"), "{text}");
}
