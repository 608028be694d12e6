//! Training on the first CUDA device beside the CPU. Made for the stand-in of crate cuda-on-cpu (`.ci/cuda --training`), where
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

/// Images of 32 pixels would do, were it not that batch norm then has few numbers: a learning rate that differs by a millionth
/// changes the fourth loss by a thousandth, on the CPU alone. With 64 pixels it is less than a millionth.
const SETTINGS: [&str; 16] = [
    "train",
    "data",
    "--device",
    "cuda",
    "--executor",
    "gpu",
    "--image-size",
    "64",
    "--batch-size",
    "8",
    "--lr",
    "0.002",
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

/// Whole epochs with the executor gpu have the losses of the CPU with the executor fused; so has a run that is interrupted and
/// resumed, and one that chooses its executor.
#[test]
fn two_epochs_have_the_losses_of_the_cpu() {
    let dir = TempDir::new().unwrap();
    let dir = dir.path();
    // CubeCL runs each kernel that might be the fastest up to ten times, and here that takes many minutes.
    let once = "[autotune]\nlevel = \"minimal\"\n[autotune.bench]\nmin_samples = 1\nmax_samples = 1\n";
    fs::write(dir.join("cubecl.toml"), once).unwrap();
    let synth = ["dataset", "synth", "data", "--images", "20", "--classes", "2"];
    let (code, said) = stokehold(dir, &synth);
    assert_eq!(code, Some(0), "{said}");
    let two = ["--epochs", "2"];
    let cpu = ["--device", "cpu", "--executor", "fused", "--name", "cpu"];
    train(dir, &[&two[..], &cpu].concat());
    let steps = metrics(dir, "cpu", "train", "loss");
    let validation = metrics(dir, "cpu", "epoch", "val_loss");
    assert_eq!((steps.len(), validation.len()), (4, 2));

    train(dir, &[&two[..], &["--name", "cuda"]].concat());
    near(&metrics(dir, "cuda", "train", "loss"), &steps, 1e-3);
    near(&metrics(dir, "cuda", "epoch", "val_loss"), &validation, 1e-3);

    train(dir, &["--epochs", "1", "--name", "resumed"]);
    let (code, said) = stokehold(dir, &["train", "runs/resumed", "--resume", "--epochs", "2"]);
    assert_eq!(code, Some(0), "{said}");
    near(&metrics(dir, "resumed", "train", "loss"), &steps, 1e-3);

    let said = train(dir, &["--epochs", "1", "--executor", "auto", "--name", "auto"]);
    assert!(
        said.contains("executor gpu") || said.contains("executor fused"),
        "{said}"
    );
    near(&metrics(dir, "auto", "train", "loss"), &steps[..2], 1e-3);
}
