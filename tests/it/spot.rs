//! `stokehold job run` on machines that are taken away.

use std::fs;
use std::process::Command;

use crate::job::{Jobs, send};

/// Where this command lies, for scripts.
const STOKEHOLD: &str = env!("CARGO_BIN_EXE_stokehold");

/// What is printed to continue with is a command that does, wherever the jobs are.
#[test]
fn the_printed_command_resumes_the_job() {
    let jobs = Jobs::new();
    let script = "[ -e \"$SM_CHECKPOINT_DIR/n\" ] && exit 0; trap 'echo 1 > \"$SM_CHECKPOINT_DIR/n\"; exit 0' TERM; echo ready\n\
                  while :; do sleep 0.05; done";
    jobs.write("run.sh", script);
    let words = [
        "--jobs",
        "the team's jobs",
        "run",
        "--entry-point",
        "run.sh",
        "--name",
        "a",
        "--no-profile",
        "--spot",
        "--environment",
        "AWS_EC2_METADATA_DISABLED=true",
    ];
    let child = jobs.ready(&words);
    send("-TERM", &child);
    let said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    let line = said.lines().find_map(|line| line.strip_prefix("to continue: "));
    let resumed = Command::new("sh")
        .args(["-c", line.unwrap_or_else(|| panic!("{said}"))])
        .current_dir(jobs.path(""))
        .env("STOKEHOLD_JOBS", jobs.path("jobs"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&resumed.stderr);
    assert_eq!(resumed.status.code(), Some(0), "{said}");
    assert!(said.contains("job a Completed"), "{said}");
}

/// SIGTERM says that the machine goes: the job waits to be resumed, and has its checkpoint then.
#[test]
fn sigterm_leaves_a_job_that_can_be_resumed() {
    let jobs = Jobs::new();
    let script = "[ -e $SM_CHECKPOINT_DIR/n ] && exit 0; trap 'echo 1 > $SM_CHECKPOINT_DIR/n; exit 0' TERM; echo ready\n\
                  while :; do sleep 0.05; done";
    jobs.write("run.sh", script);
    let place = jobs.path("kept");
    // No one is to be asked whether this machine goes.
    let words = [
        "run",
        "--entry-point",
        "run.sh",
        "--name",
        "a",
        "--no-profile",
        "--spot",
        "--price",
        "3",
        "--spot-price",
        "1",
    ];
    let words = [
        &words[..],
        &[
            "--environment",
            "AWS_EC2_METADATA_DISABLED=true",
            "--checkpoint-uri",
            place.to_str().unwrap(),
        ],
    ]
    .concat();
    let child = jobs.ready(&words);
    send("-TERM", &child);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(
        said.contains("job a Stopped (interrupted)\nto continue: ") && said.contains(" job run --resume a\n"),
        "{said}"
    );
    let record = jobs.record("a");
    assert_eq!(
        (&record["status"], &record["secondary"]),
        (&"Stopped".into(), &"Interrupted".into())
    );
    assert_eq!(fs::read_to_string(place.join("n")).unwrap(), "1\n");

    let (code, _, said) = jobs.job(&["run", "--resume", "a"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(
        said.contains("spot: 1 interruptions, ") && said.contains(", savings: 66.7%, cost: 0.00"),
        "{said}"
    );
    let (_, shown, _) = jobs.job(&["show", "a"]);
    assert!(shown.contains("checkpoints 1 files, 2 bytes at "), "{shown}");
    for (option, says) in [
        (["--spot-simulate", "often"], "every 90s"),
        (["--price", "1"], "--spot-price"),
        (
            ["--max-wait", "1h"],
            "max-wait-seconds (3600) must be at least max-run-seconds",
        ),
    ] {
        let (code, _, said) = jobs.job(&[&["run", "--entry-point", "run.sh"][..], &option].concat());
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(says), "{said}");
    }
}

/// The trainer continues where it was, on what looks like another machine, and ends with the model of a run that no one
/// disturbed, bit for bit.
#[test]
fn training_ends_with_the_same_model_when_its_machine_is_taken_away() {
    let jobs = Jobs::new();
    let made = Command::new(STOKEHOLD)
        .args(["dataset", "synth", "data", "--images", "48", "--classes", "2"])
        .current_dir(jobs.path(""))
        .output()
        .unwrap();
    assert!(made.status.success(), "{made:?}");
    // The trainer gets the signal by itself; the shell waits for it.
    let script = "trap : TERM\n\
        \"$STOKEHOLD\" train \"$SM_CHANNEL_TRAIN\" --runs \"$SM_CHECKPOINT_DIR\" --name run --resume \"$@\" &&\n\
        cp \"$SM_CHECKPOINT_DIR/run/model.safetensors\" \"$SM_MODEL_DIR\"";
    jobs.write("train.sh", script);
    let mut words = vec![
        "run",
        "--entry-point",
        "train.sh",
        "--no-profile",
        "--channel",
        "train=data",
    ];
    let variable = format!("STOKEHOLD={STOKEHOLD}");
    words.extend(["--environment", &variable]);
    let hyperparameters = [
        "epochs=2",
        "batch-size=2",
        "image-size=32",
        "lr=0.001",
        "checkpoint-steps=10",
        "keep-checkpoints=1",
        "ceiling-batches=0",
        "workers=1",
    ];
    words.extend(
        hyperparameters
            .iter()
            .flat_map(|value| ["--hyperparameter", *value]),
    );
    let place = jobs.path("kept").display().to_string();
    let run = |name: &str, more: &[&str]| {
        let (code, out, said) = jobs.job(&[&words[..], &["--json", "--name", name], more].concat());
        assert_eq!(code, Some(0), "{said}");
        let record: serde_json::Value = serde_json::from_str(&out).unwrap();
        let base = jobs.path("jobs").join(name).join("algo-1");
        (
            record,
            fs::read(base.join("model/model.safetensors")).unwrap(),
            said,
        )
    };
    let (_, undisturbed, _) = run("whole", &[]);
    // How long it takes no one knows: it is interrupted ever earlier, until it is.
    for (attempt, when) in ["at 2s,3s", "at 1s,2s", "at 500ms,1s"].iter().enumerate() {
        let _ = fs::remove_dir_all(&place);
        let name = format!("cut-{attempt}");
        let (record, model, said) = run(&name, &["--checkpoint-uri", &place, "--spot-simulate", when]);
        assert!(
            model == undisturbed,
            "another model than that of an undisturbed run: {said}"
        );
        if record["spot"]["interruptions"].as_u64().unwrap() > 0 && said.contains("came from") {
            return;
        }
    }
    panic!("it was never interrupted");
}
