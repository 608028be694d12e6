//! `stokehold runs`, and runs that continue by their folder alone.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::train::QUICK;

/// Exit code, standard output and standard error.
fn stokehold(dir: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args(words)
        .current_dir(dir)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (status.code(), text(stdout), text(stderr))
}

fn done(dir: &Path, words: &[&str]) -> (String, String) {
    let (code, out, said) = stokehold(dir, words);
    assert_eq!(code, Some(0), "{words:?}: {said}");
    (out, said)
}

/// A data set of two classes, and a run of `epochs` on it.
fn trained(dir: &Path, name: &str, epochs: &str) {
    let hostile = Path::new(env!("CARGO_MANIFEST_DIR")).join("hostile");
    for (folder, file) in [
        ("train/a", "small.jpg"),
        ("train/b", "grey.jpg"),
        ("val/a", "small.jpg"),
        ("val/b", "grey.jpg"),
    ] {
        let folder = dir.join("data").join(folder);
        fs::create_dir_all(&folder).unwrap();
        fs::copy(hostile.join(file), folder.join(file)).unwrap();
    }
    let words = [
        "--lr",
        "0.001",
        "--schedule",
        "constant",
        "--epochs",
        epochs,
        "--name",
        name,
    ];
    done(dir, &[&QUICK[..], &words].concat());
}

/// What TensorBoard reads out of a folder: name, step and value of every number, in its order.
const TENSORBOARD: &str = "import json, sys\n\
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator\n\
    events = EventAccumulator(sys.argv[1], size_guidance={'scalars': 0}).Reload()\n\
    print(json.dumps({tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in events.Tags()['scalars']}))\n";

/// The same as JSON; `None` without TensorBoard.
fn tensorboard(folder: &Path) -> Option<Value> {
    let Some(python) = std::env::var_os("STOKEHOLD_TEST_TOOLKIT") else {
        stokehold_untested::skip(
            "STOKEHOLD_TEST_TOOLKIT names no Python with tensorboard (bench/peers/setup.sh toolkit)",
        );
        return None;
    };
    let output = Command::new(python)
        .args(["-c", TENSORBOARD])
        .arg(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

/// A run writes what TensorBoard reads, and continues with it when it is resumed; an export afterwards has the same numbers.
#[test]
fn tensorboard_reads_a_run_while_it_goes_on_and_afterwards() {
    let dir = tempfile::tempdir().unwrap();
    trained(dir.path(), "plain", "1");
    let words = [
        "--lr",
        "0.001",
        "--schedule",
        "constant",
        "--tensorboard",
        "--name",
        "tb",
        "--epochs",
    ];
    done(dir.path(), &[&QUICK[..], &words, &["1"]].concat());
    done(
        dir.path(),
        &["train", "--resume", "runs/tb", "--epochs", "3", "--tensorboard"],
    );
    done(
        dir.path(),
        &["runs", "export", "runs/tb", "exported", "--format", "tensorboard"],
    );
    let Some(read) = tensorboard(&dir.path().join("runs/tb")) else {
        return;
    };
    let steps = |of: &Value, name: &str| -> Vec<u64> {
        of[name]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one[0].as_u64().unwrap())
            .collect()
    };
    assert_eq!(steps(&read, "val_loss"), [1, 2, 3], "{read}");
    assert_eq!(tensorboard(&dir.path().join("exported")).unwrap(), read);
    // Without the option there is none, and both are removed whole.
    let events = |run: &str| {
        fs::read_dir(dir.path().join("runs").join(run))
            .unwrap()
            .filter(|entry| {
                let name = entry.as_ref().unwrap().file_name();
                name.to_string_lossy().starts_with("events.out.tfevents.")
            })
            .count()
    };
    assert_eq!((events("plain"), events("tb")), (0, 2));
    done(dir.path(), &["runs", "rm", "runs/tb", "runs/plain"]);
    assert!(!dir.path().join("runs/tb").exists());
}

/// More epochs continue with a finished run, and end where a run of that many ends.
#[test]
fn a_run_goes_on_by_its_folder_alone() {
    let dir = tempfile::tempdir().unwrap();
    trained(dir.path(), "longer", "1");
    trained(dir.path(), "whole", "2");
    let (_, said) = done(dir.path(), &["train", "--resume", "runs/longer", "--epochs", "2"]);
    assert!(said.contains("continues after step 1"), "{said}");
    let model = |name: &str| fs::read(dir.path().join("runs").join(name).join("model.safetensors")).unwrap();
    assert!(model("longer") == model("whole"));
    // It is finished again, and knows its length.
    let (out, _) = done(dir.path(), &["train", "--resume", "runs/longer"]);
    assert!(out.contains('2'), "{out}");
    for (more, expected) in [
        (&["--lr", "0.1"][..], "--lr: runs/longer continues as it began"),
        (&["--epochs", "1"], "--epochs 1: runs/longer is a run of 2"),
    ] {
        let words = [&["train", "--resume", "runs/longer"][..], more].concat();
        let (code, _, said) = stokehold(dir.path(), &words);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn runs_are_listed_shown_compared_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    trained(dir.path(), "one", "1");
    trained(dir.path(), "two", "2");
    fs::create_dir(dir.path().join("runs/none")).unwrap();
    fs::write(dir.path().join("runs/note.txt"), "mine").unwrap();
    done(dir.path(), &["profile", "-o", "runs/shell", "--", "true"]);
    let (out, _) = done(dir.path(), &["runs", "list"]);
    for row in ["runs/one", "runs/two", "runs/shell"] {
        assert!(out.contains(row), "{out}");
    }
    assert!(
        !out.contains("none") && out.contains("1/1") && out.contains("finished"),
        "{out}"
    );
    let (out, _) = done(dir.path(), &["runs", "list", "--json"]);
    let runs: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(runs.as_array().unwrap().len(), 3);
    let (out, _) = done(dir.path(), &["runs", "show", "runs/one"]);
    assert!(
        out.contains("to continue: ") && out.contains("runs/one --epochs N"),
        "{out}"
    );
    let (out, _) = done(dir.path(), &["runs", "diff", "runs/one", "runs/two", "--json"]);
    let diff: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(diff["settings"]["epochs"], serde_json::json!([1, 2]), "{diff}");
    let names: Vec<&String> = diff["settings"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["epochs", "run_dir"]);
    assert_eq!(diff["results"]["epochs"], serde_json::json!([1.0, 2.0]));
    // What is no run is not removed, and neither is what was named next to it.
    let (code, _, said) = stokehold(dir.path(), &["runs", "rm", "runs/one", "runs/none"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("runs/none: no run is there"), "{said}");
    // A link is not followed, and what is not the run's stays.
    std::os::unix::fs::symlink("runs/two", dir.path().join("link")).unwrap();
    for link in ["link", "link/"] {
        let (code, _, said) = stokehold(dir.path(), &["runs", "rm", link]);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("it is a link"), "{said}");
    }
    assert!(dir.path().join("runs/two/run.json").exists());
    fs::write(dir.path().join("runs/shell/mine.txt"), "mine").unwrap();
    done(dir.path(), &["runs", "rm", "runs/one", "runs/shell"]);
    assert!(dir.path().join("runs/shell/mine.txt").exists());
    let (out, _) = done(
        dir.path(),
        &["runs", "export", "runs/two", "tb", "--format", "tensorboard"],
    );
    assert!(Path::new(&dir.path().join(out.trim())).is_file(), "{out}");
    let (out, _) = done(
        dir.path(),
        &["runs", "export", "runs/two", "ml", "--format", "mlflow"],
    );
    let run = dir.path().join(out.trim());
    let losses = fs::read_to_string(run.join("metrics/loss")).unwrap();
    assert!(
        losses.lines().all(|line| line.split(' ').count() == 3),
        "{losses}"
    );
    assert_eq!(fs::read_to_string(run.join("params/epochs")).unwrap(), "2");
    assert!(!dir.path().join("runs/one").exists() && dir.path().join("runs/two").exists());
    let (code, _, said) = stokehold(dir.path(), &["runs", "list", "nowhere"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("nowhere: there is no such folder"), "{said}");
}

/// A loss that is none stops the run within the step, with a checkpoint.
#[test]
fn a_rule_stops_a_run_whose_loss_is_none() {
    let dir = tempfile::tempdir().unwrap();
    trained(dir.path(), "good", "1");
    let words = [
        "--lr",
        "1e30",
        "--epochs",
        "500",
        "--name",
        "bad",
        "--rules",
        "training",
        "--on-fire",
        "stop",
    ];
    let (code, _, said) = stokehold(dir.path(), &[&QUICK[..], &words].concat());
    assert_eq!(code, Some(1), "{said}");
    assert!(
        said.contains("rule NonFiniteLoss: ") && said.contains("loss is NaN"),
        "{said}"
    );
    assert!(
        said.contains("stopped after") && said.contains("train --resume runs/bad"),
        "{said}"
    );
    let (code, _, said) = stokehold(dir.path(), &["train", "data", "--rules", "Loss"]);
    assert_eq!(code, Some(2));
    assert!(
        said.contains("--rules: there is no rule Loss; there are training"),
        "{said}"
    );
}
