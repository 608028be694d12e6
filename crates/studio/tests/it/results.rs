//! Results of measurements that lie in the folders.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use serde_json::{Value, json};

use crate::{Running, two_runs};

/// As `stokehold bench storage --json` prints it, with a hostile name.
fn storage() -> Value {
    let row = |way: &str, rate: f64, failed: Option<&str>| {
        json!({
            "way": way, "failed": failed, "problem": null, "startup_seconds": 1.5, "first_batch_seconds": 0.25, "cpu_seconds": 3.0,
            "epochs": [
                {"images": 400, "seconds": 4.0, "images_per_second": rate, "bytes": 4e7, "requests": 400},
                {"images": 400, "seconds": 2.0, "images_per_second": 2.0 * rate, "bytes": 0, "requests": 0},
            ],
            "of_local_disk": [0.5, 1.0], "cost": [0.1, null],
        })
    };
    json!({
        "trainer_images_per_second": 300.0, "currency": "USD", "prices": "a table of 2026",
        "places": [{
            "place": "s3://bucket/<img src=x onerror=window.hacked=1>", "kind": "s3", "is_shards": false, "images": 400, "bytes": 40_000_000,
            "all_images": 4000, "all_bytes": 400_000_000,
            "rows": [row("File", 200.0, None), row("FastFile", 150.0, None), row("Pipe", 0.0, Some("the bucket refused <b>it</b>"))],
            "choose": {"way": "File", "why": "the set is small"},
        }],
        "choose": {"place": "s3://bucket/x", "way": "File", "why": "the set is small"},
    })
}

/// As `stokehold scale --json` prints it.
fn scale() -> Value {
    let size = |machines: u64, epoch: f64| {
        json!({
            "machines": machines, "ranks": machines, "batch": 64 * machines, "steps": 100, "seconds_per_step": epoch / 100.0,
            "seconds_per_epoch": epoch, "images_per_second": 6400.0 / epoch, "efficiency": 100.0 / epoch / machines as f64,
            "cost_per_epoch": 0.5, "algorithm": null, "computing_seconds": 50.0 / machines as f64,
            "lost": [{"cause": "loader", "seconds": 10.0}, {"cause": "reduce", "seconds": 0.0}], "limit": "loader", "lifts": [],
        })
    };
    json!({
        "sizes": [size(1, 100.0), size(4, 30.0)], "repeated": {"recorded": 101.0, "simulated": 100.0},
        "assumptions": ["Steps of all ranks take as long as the recorded ones."], "run": {}, "cluster": {"gpus": 1}, "currency": "USD",
        "published": {"gpus": [1, 2], "efficiency": [1.0, 0.9]},
    })
}

/// Puts both into a folder.
pub fn write_results(runs: &Path) {
    fs::write(runs.join("storage.json"), storage().to_string()).unwrap();
    fs::write(runs.join("scale.json"), scale().to_string()).unwrap();
}

#[test]
fn results_are_known_by_what_is_in_them_and_read_below_the_folders_only() {
    let (dir, runs) = two_runs();
    write_results(&runs);
    fs::write(runs.join("other.json"), "{\"places\": []}").unwrap();
    fs::write(runs.join("half.json"), "{\"places\": [").unwrap();
    fs::write(dir.path().join("secret.json"), scale().to_string()).unwrap();
    symlink(dir.path().join("secret.json"), runs.join("away.json")).unwrap();
    let studio = Running::start(None, vec![runs], true);
    let all = studio.get("/api/results").json();
    assert_eq!(
        all,
        json!({"files": ["runs/scale.json", "runs/storage.json"], "whole": true})
    );
    let one = studio.get("/api/result?file=runs/storage.json").json();
    assert_eq!(
        (&one["kind"], &one["result"]["places"][0]["rows"][0]["way"]),
        (&json!("storage"), &json!("File"))
    );
    for (name, status) in [
        ("runs/other.json", 422),
        ("runs/half.json", 422),
        ("runs/one/run.json", 422),
        ("runs/away.json", 403),
        ("runs/../secret.json", 404),
        ("runs/none.json", 404),
        ("runs/one/metrics.jsonl", 404),
    ] {
        let answer = studio.get(&format!("/api/result?file={name}"));
        assert_eq!(answer.status, status, "{name} {answer:?}");
    }
}
