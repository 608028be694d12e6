//! Output goes to this machine, and a bucket named for it is an error that says so.

use std::fs;
use std::process::Command;

#[test]
fn a_bucket_is_no_place_to_write() {
    let dir = tempfile::tempdir().unwrap();
    let uri = "s3://bucket/there";
    for words in [
        &["train", "data", "--runs", uri][..],
        &["train", "data", "--name", uri],
        &["train", "data", "--weights", uri],
        &["train", "data", "--eval-pipeline", uri],
        &["compare", "data", "--out", uri],
        &["report", "run", "-o", uri],
        &["report", "run", "--rules", uri],
        &["top", uri],
        &["tune", "init", uri],
        &["tune", "run", "tune.toml", "--study", uri],
        &["tune", "status", uri],
        &["tune", "report", "study", "--output", uri],
        &["prepare", "data", uri],
        &["prepare", "data", "--extract", uri],
        &["prepare", "data", "out", "--pipeline", uri],
        &["profile", "-o", uri, "--", "true"],
        &["profile", "--attach", uri, "--sampling", "off"],
        &["advise", uri],
        &["advise", "run", "--try", "--out", uri],
        &["job", "init", uri],
        &["job", "run", uri],
        &["job", "list", "--jobs", uri],
        &["bench", "loader", "data", "--pipeline", uri],
        &["bench", "storage", "s3://bucket/set", "--work-dir", uri],
        &["dataset", "synth", uri],
        &["explain", "published", "a.jpg", "--out", uri],
        &["explain", "published", uri],
        &["serve", "data", "--pipeline", uri],
        &["serve", "data", "--tls-cert", uri, "--tls-key", "key"],
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_stokehold"))
            .args(words)
            .current_dir(dir.path())
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        // The terminal's width decides where the message is wrapped.
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        for part in [uri, "a path on this machine", "copy it"] {
            assert!(said.contains(part), "{words:?}: {said}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{words:?}");
    }
}

#[test]
fn a_variable_is_no_place_elsewhere_either() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args(["job", "list"])
        .env("STOKEHOLD_JOBS", "s3://bucket/jobs")
        .current_dir(dir.path())
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("STOKEHOLD_JOBS=s3://bucket/jobs: this has to be a path on this machine"),
        "{said}"
    );
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// A URI of a file is its path.
#[test]
fn a_file_uri_is_a_path() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tune.toml");
    let status = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args(["tune", "init", &format!("file://{}", file.display())])
        .current_dir(dir.path())
        .status()
        .unwrap();
    assert!(status.success() && file.exists());
}
