//! `stokehold bench storage`: every way of bringing data from a bucket, measured as a job.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use stokehold_s3_server::Server;
use tempfile::TempDir;

fn images() -> (TempDir, Server) {
    let dir = TempDir::new().unwrap();
    let bytes = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile/small.jpg")).unwrap();
    for number in 0..20 {
        let folder = dir.path().join(format!("photos/set/{}", number % 2));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{number}.jpg")), &bytes).unwrap();
    }
    fs::write(dir.path().join("photos/set/LICENSE"), "no image").unwrap();
    let server = Server::start(dir.path()).unwrap();
    (dir, server)
}

fn bench(dir: &TempDir, server: &Server, args: &[&str]) -> Output {
    let work = dir.path().join("work");
    fs::create_dir_all(&work).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_stokehold"));
    command
        .args(["bench", "storage"])
        .args(args)
        .arg("--work-dir")
        .arg(&work);
    let output = command.envs(server.settings()).output().unwrap();
    assert_eq!(fs::read_dir(&work).unwrap().count(), 0, "everything is removed");
    output
}

#[test]
fn every_way_reads_the_same_images_and_says_what_it_cost() {
    let (dir, server) = images();
    let options = [
        "--image-size",
        "32",
        "--batch-size",
        "4",
        "--workers",
        "2",
        "--max-images",
        "16",
        "--json",
    ];
    let paced = ["--trainer-images-per-s", "2000"];
    let output = bench(
        &dir,
        &server,
        &[&["s3://photos/set"][..], &options, &paced].concat(),
    );
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&report["images"], &report["all_images"]),
        (&16.into(), &20.into())
    );
    let bytes = report["bytes"].as_u64().unwrap();
    let rows = report["rows"].as_array().unwrap();
    let row = |way: &str| rows.iter().find(|row| row["way"] == way).unwrap();
    for row in rows {
        if let Some(reason) = row["failed"].as_str() {
            // Only what a machine may lack.
            assert!(reason.contains("FUSE"), "{row}");
            continue;
        }
        let epochs = row["epochs"].as_array().unwrap();
        assert_eq!(epochs.len(), 2);
        for epoch in epochs {
            assert_eq!(epoch["images"], 16, "{row}");
            let rate = epoch["images_per_second"].as_f64().unwrap();
            assert!(rate > 0.0 && rate <= 2000.1, "{row}");
        }
    }
    let moved = |way: &str| [0, 1].map(|epoch| row(way)["epochs"][epoch]["bytes"].as_u64().unwrap());
    assert_eq!(moved("local disk"), [0, 0]);
    assert_eq!(moved("File"), [bytes, 0]);
    assert_eq!(moved("streaming"), [bytes, bytes]);
    if row("Cache")["failed"].is_null() {
        assert_eq!((moved("Cache"), moved("Cache, next job")), ([bytes, 0], [0, 0]));
    }
    assert_eq!(report["choose"], "File", "{report}");
}

#[test]
fn what_cannot_be_measured_is_an_error_of_the_input() {
    let (dir, server) = images();
    let folder = dir.path().join("photos/set");
    for (args, says) in [
        (&[folder.to_str().unwrap()][..], "stokehold bench loader"),
        (&["s3://photos/nothing"], "s3://photos/nothing"),
        (&["s3://photos/set", "--trainer-images-per-s", "0"], "above 0"),
    ] {
        let output = bench(&dir, &server, args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(says), "{errors}");
    }
}
