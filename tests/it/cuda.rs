//! Training on the first CUDA device next to the CPU. Made for the stand-in of crate cuda-on-cpu (`.ci/cuda --training`), where
//! a step of these networks takes seconds.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// What `stokehold` exits with, and its messages.
fn stokehold(dir: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// What a step changes stays small against rounding: with images of 32 pixels, where batch norm has few numbers, a learning rate
/// that differs by a millionth changes the fourth loss by a thousandth, on the CPU alone. Here it is a millionth.
const SETTINGS: [&str; 16] = [
    "train",
    "data",
    "--device",
    "cuda",
    "--executor",
    "gpu",
    "--image-size",
    "48",
    "--batch-size",
    "4",
    "--lr",
    "0.0005",
    "--log-every",
    "1",
    "--ceiling-batches",
    "0",
];

/// Trains with these options, of which later ones replace earlier ones; what it said.
fn train(dir: &Path, options: &[&str]) -> String {
    let mut arguments = SETTINGS.to_vec();
    for pair in options.chunks(2) {
        match arguments.iter().position(|argument| *argument == pair[0]) {
            Some(at) => arguments[at + 1] = pair[1],
            None => arguments.extend(pair),
        }
    }
    let (code, said) = stokehold(dir, &arguments);
    assert_eq!(code, Some(0), "{options:?}: {said}");
    said
}

/// A number of each line of a run's metrics of a kind.
fn metrics(dir: &Path, run: &str, kind: &str, field: &str) -> Vec<f64> {
    let lines = fs::read_to_string(dir.join("runs").join(run).join("metrics.jsonl")).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of_kind = lines.filter(|line| line["kind"] == kind);
    of_kind.map(|line| line[field].as_f64().unwrap()).collect()
}

#[track_caller]
fn near(ours: &[f64], theirs: &[f64], tolerance: f64) {
    let close = ours
        .iter()
        .zip(theirs)
        .all(|(ours, theirs)| (ours - theirs).abs() <= tolerance);
    assert!(ours.len() == theirs.len() && close, "{ours:?} are not {theirs:?}");
}

/// A folder with images, where CubeCL does not run each kernel that might be the fastest up to ten times: that takes many
/// minutes here.
fn folder() -> TempDir {
    let dir = TempDir::new().unwrap();
    let once = "[autotune]\nlevel = \"minimal\"\n[autotune.bench]\nmin_samples = 1\nmax_samples = 1\n";
    fs::write(dir.path().join("cubecl.toml"), once).unwrap();
    let synth = ["dataset", "synth", "data", "--images", "10", "--classes", "2"];
    let (code, said) = stokehold(dir.path(), &synth);
    assert_eq!(code, Some(0), "{said}");
    dir
}

const ON_CPU: [&str; 4] = ["--device", "cpu", "--executor", "fused"];

/// An epoch with the executor gpu and another one in a resumed run have the losses of the CPU with the executor fused.
#[test]
fn two_epochs_have_the_losses_of_the_cpu() {
    let dir = folder();
    let dir = dir.path();
    train(dir, &[&ON_CPU[..], &["--epochs", "2", "--name", "cpu"]].concat());
    train(dir, &["--epochs", "1", "--name", "cuda"]);
    let (code, said) = stokehold(dir, &["train", "runs/cuda", "--resume", "--epochs", "2"]);
    assert_eq!(code, Some(0), "{said}");
    for (kind, field, count) in [("train", "loss", 4), ("epoch", "val_loss", 2)] {
        let cpu = metrics(dir, "cpu", kind, field);
        assert_eq!(cpu.len(), count);
        near(&metrics(dir, "cuda", kind, field), &cpu, 1e-3);
    }
}

/// The executor that is chosen changes the speed alone.
#[test]
fn auto_chooses_an_executor_and_says_why() {
    let dir = folder();
    let dir = dir.path();
    train(dir, &[&ON_CPU[..], &["--epochs", "1", "--name", "cpu"]].concat());
    let said = train(dir, &["--epochs", "1", "--executor", "auto", "--name", "auto"]);
    assert!(
        ["gpu", "fused"]
            .iter()
            .any(|executor| said.contains(&format!("the executor {executor} performs the pipeline: "))),
        "{said}"
    );
    let cpu = metrics(dir, "cpu", "train", "loss");
    assert_eq!(cpu.len(), 2);
    near(&metrics(dir, "auto", "train", "loss"), &cpu, 1e-3);
}
