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
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    let report = &all["places"][0];
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
    // The requests for 16 images stand for those of all 20.
    let streaming = row("streaming");
    let requests = streaming["epochs"][1]["requests"].as_f64().unwrap();
    let cost = streaming["cost"][1].as_f64().unwrap();
    assert!(
        (cost - requests * 20.0 / 16.0 * 4e-7).abs() < 1e-15,
        "{streaming}"
    );
    assert_eq!(report["choose"]["way"], "File", "{report}");
    assert_eq!(all["choose"]["place"], "s3://photos/set");
}

/// A bucket and a folder, with files and with shards, in one table.
#[test]
fn places_are_compared_side_by_side() {
    let (dir, server) = images();
    let files = dir.path().join("photos/set");
    let shards = dir.path().join("photos/shards");
    let prepared = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .arg("prepare")
        .args([&files, &shards])
        .output()
        .unwrap();
    assert!(prepared.status.success(), "{prepared:?}");
    let places = [
        "s3://photos/set",
        files.to_str().unwrap(),
        "s3://photos/shards",
        shards.to_str().unwrap(),
    ];
    let options = ["--image-size", "32", "--batch-size", "4", "--workers", "auto"];
    let paced = ["--trainer-images-per-s", "100"];
    let json = bench(
        &dir,
        &server,
        &[&places[..], &options, &paced, &["--max-images", "12", "--json"]].concat(),
    );
    assert!(json.status.success(), "{json:?}");
    let report: Value = serde_json::from_slice(&json.stdout).unwrap();
    let measured = report["places"].as_array().unwrap();
    let ways = |place: &Value| place["rows"].as_array().unwrap().len();
    assert_eq!(measured.iter().map(ways).collect::<Vec<_>>(), [7, 1, 4, 1]);
    for (place, uri) in measured.iter().zip(places) {
        assert_eq!(place["place"], uri);
        assert_eq!(place["all_images"], 20, "{place}");
        assert_eq!(place["is_shards"], uri.ends_with("shards"), "{place}");
        assert_eq!(place["kind"] == "s3", uri.starts_with("s3:"), "{place}");
        let rows = place["rows"].as_array().unwrap().iter();
        for row in rows.filter(|row| row["failed"].is_null()) {
            assert_eq!(row["epochs"][1]["images"], 12, "{row}");
        }
    }
    // Nothing is slower than the trainer, and the folders cost nothing that is known.
    let chosen = report["choose"]["place"].as_str().unwrap();
    assert!(places.contains(&chosen), "{report}");

    let text = bench(
        &dir,
        &server,
        &[&places[1..2], &places[3..], &options, &paced].concat(),
    );
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.contains("Choose /") && text.contains(", as it is: from the second epoch on"),
        "{text}"
    );
    assert_eq!(text.matches(": 20 of 20 images").count(), 2, "{text}");
}

#[test]
fn what_cannot_be_measured_is_an_error_of_the_input() {
    let (dir, server) = images();
    let nothing = dir.path().join("nothing");
    for (args, says) in [
        (&[nothing.to_str().unwrap()][..], "nothing"),
        (&["s3://photos/nothing"], "s3://photos/nothing"),
        // Before the first is measured.
        (&["s3://photos/set", "s3://photos/nothing"], "s3://photos/nothing"),
        (&["s3://photos/set", "--trainer-images-per-s", "0"], "above 0"),
    ] {
        let output = bench(&dir, &server, args);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{errors}");
        assert!(errors.contains(says), "{errors}");
    }
}
