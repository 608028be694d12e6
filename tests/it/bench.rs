//! `stokehold bench loader`: its JSON, its sweep, and the turn-by-turn protocol; and `stokehold bench disturbance`.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn images() -> TempDir {
    let dir = TempDir::new().unwrap();
    let bytes = fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile/small.jpg")).unwrap();
    for i in 0..6 {
        fs::write(dir.path().join(format!("{i}.jpg")), &bytes).unwrap();
    }
    dir
}

fn bench(dir: &Path, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stokehold"));
    command
        .args(["bench", "loader"])
        .arg(dir)
        .args(["--image-size", "32", "--batch-size", "2"])
        .args(more);
    command
}

#[test]
fn json_has_the_rate_its_spread_and_the_stages() {
    let dir = images();
    for executor in ["per-op", "fused"] {
        let output = bench(
            dir.path(),
            &["--json", "--passes", "3", "--load", "2", "--executor", executor],
        )
        .output()
        .unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let rate = report["images_per_second"].as_f64().unwrap();
        let [low, high] = [0, 1].map(|i| report["spread"][i].as_f64().unwrap());
        assert!(0.0 < low && low <= rate && rate <= high, "{report}");
        assert_eq!(report["passes"].as_array().unwrap().len(), 3);
        assert_eq!(
            (&report["images"], &report["load"], &report["executor"]),
            (&6.into(), &2.into(), &executor.into())
        );
        assert!(
            ["read", "decode", "augment"]
                .iter()
                .all(|stage| report["stages_us"][stage].as_f64().unwrap() > 0.0)
        );
    }
}

#[test]
fn a_sweep_names_the_knee_and_slow_reads_are_slow() {
    let dir = images();
    let options = [
        "--json",
        "--passes",
        "1",
        "--workers",
        "1,2",
        "--read-latency",
        "20ms",
    ];
    let report: Value =
        serde_json::from_slice(&bench(dir.path(), &options).output().unwrap().stdout).unwrap();
    let sweep = report["sweep"].as_array().unwrap();
    assert_eq!(sweep.len(), 2);
    assert!(report["knee"] == 1 || report["knee"] == 2);
    for one in sweep {
        assert!(one["stages_us"]["read"].as_f64().unwrap() >= 20_000.0, "{one}");
    }
}

#[test]
fn serve_answers_pass_by_pass() {
    let dir = images();
    let mut child = bench(dir.path(), &["--serve"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"pass\npass\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let answers: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(answers.len(), 2);
    assert!(
        answers
            .iter()
            .all(|a| a["images"] == 6 && a["seconds"].as_f64().unwrap() > 0.0),
        "{answers:?}"
    );
}

#[test]
fn mistakes_exit_with_2() {
    let dir = images();
    for (options, expected) in [
        (&["--read-latency", "20"][..], "--read-latency"),
        (
            &["--executor", "dali"],
            "no executor is called 'dali'; there are per-op, fused and gpu",
        ),
        (&["--executor", "gpu", "--device", "cpu"], "the executor gpu: "),
        (&["--gpu-decode", "nvjpeg"], "there are hybrid and device"),
        (&["--gpu-memory-budget", "much"], "such as 150MB or 1GiB"),
        (&["--workers", "0"], "must be auto or 1 to"),
        (&["--pipeline", "missing.toml"], "cannot be used with"),
        (&["--passes", "0"], "1..=1000"),
    ] {
        let output = bench(dir.path(), options).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{options:?}: {said}");
        assert!(said.contains(expected), "{options:?}: {said}");
    }
}

#[test]
fn a_rate_of_the_few_images_that_load_is_none() {
    let dir = images();
    for name in 2..6 {
        fs::write(dir.path().join(format!("{name}.jpg")), [0xFF, 0xD8, 0xFF]).unwrap();
    }
    let output = bench(dir.path(), &["--passes", "1"]).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("4 of 6 images cannot be loaded"), "{said}");
}

#[test]
fn the_type_of_the_numbers_is_recorded_and_memory_with_it() {
    let dir = images();
    for sample_type in ["f32", "f16", "bf16", "u8"] {
        let output = bench(
            dir.path(),
            &["--json", "--passes", "1", "--sample-type", sample_type],
        )
        .output()
        .unwrap();
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["sample_type"], sample_type);
        assert_eq!(report["images"], 6);
        if cfg!(target_os = "linux") {
            assert!(report["peak_rss"].as_u64().unwrap() > 1 << 20, "{report}");
        }
    }
}

#[test]
fn disturbance_compares_steps_pair_by_pair() {
    let dir = images();
    let output = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args(["bench", "disturbance"])
        .arg(dir.path())
        .args([
            "--image-size",
            "32",
            "--batch-size",
            "1",
            "--workers",
            "1",
            "--pairs",
            "2",
        ])
        .args(["--device", "cpu", "--json"])
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["found"]["beside"].as_array().unwrap().len(), 2);
    assert_eq!(report["found"]["alone"].as_array().unwrap().len(), 2);
    assert!(report["found"]["slowdown"].as_f64().unwrap() > 0.0, "{report}");
}
