//! PyTorch scripts under `stokehold profile`, `advise --try` and `run`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use stokehold_untested::needs;

/// A script of the hook's own tests: sleeping reads, steps, validation.
fn small() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("crates/script/tests/it/scripts/small.py")
        .display()
        .to_string()
}

struct Bench {
    dir: tempfile::TempDir,
    python: PathBuf,
}

impl Bench {
    fn new() -> Option<Self> {
        Some(Self {
            python: needs::torch()?,
            dir: tempfile::tempdir().unwrap(),
        })
    }

    /// Exit code, standard output and standard error of a command of this program on the script.
    fn stokehold(&self, words: &[&str], script: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new("env");
        command
            .args(["--default-signal", env!("CARGO_BIN_EXE_stokehold")])
            .args(words);
        if !script.is_empty() {
            command.arg("--").arg(&self.python).args(script);
        }
        let Output {
            status,
            stdout,
            stderr,
        } = command
            .current_dir(self.dir.path())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (status.code(), text(stdout), text(stderr))
    }
}

/// The published mock: reads that sleep, one worker. The recording says what it waits for, and advises more workers.
#[test]
fn a_script_that_waits_is_told_why_and_what_would_help() {
    let Some(bench) = Bench::new() else { return };
    let script = small();
    let (code, out, said) = bench.stokehold(&["profile", "-o", "run"], &[&script, "workers=1", "read=0.03"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.starts_with("loss "), "{out}");
    // The reads sleep.
    let limit = "waiting in 1 worker is the limit; the recording does not show what for: storage, a network, or something else";
    assert!(said.contains(limit), "{said}");
    let (code, out, said) = bench.stokehold(&["advise", "run", "--json"], &[]);
    assert_eq!(code, Some(0), "{said}");
    let advised: Value = serde_json::from_str(&out).unwrap();
    let advice = advised["advice"].as_array().unwrap();
    let more = advice
        .iter()
        .find(|advice| advice["change"]["kind"] == "workers")
        .unwrap();
    assert!(more["change"]["workers"].as_u64().unwrap() >= 2, "{more}");
    assert!(more["gain_percent"].as_f64().unwrap() > 10.0, "{more}");
    assert!(
        more["flags"][0].as_str().unwrap().starts_with("num_workers="),
        "{more}"
    );
    let fit = advised["fit"].as_f64().unwrap();
    // How near it comes is in BENCHMARKS.md; the machine of a test may be held up.
    assert!((0.5..1.5).contains(&fit), "{fit}");
    let notes = advised["notes"].to_string();
    assert!(notes.contains("advise --try"), "{notes}");
    let (code, out, said) = bench.stokehold(&["report", "run"], &[]);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.contains(limit), "{out}");
    // Only a run has something to try without a command.
    let (code, _, said) = bench.stokehold(&["advise", "run", "--try"], &[]);
    assert_eq!(code, Some(2));
    assert!(said.contains("advise --try -- python train.py"), "{said}");
}

/// The advised number of workers is tried in the script itself: predicted and measured agree.
#[test]
fn advice_is_proved_in_the_script() {
    let Some(bench) = Bench::new() else { return };
    let script = small();
    let words = ["advise", "--try", "--json", "--steps", "20", "--out", "tried"];
    let (code, out, said) = bench.stokehold(&words, &[&script, "workers=1", "read=0.03", "epochs=100"]);
    assert_eq!(code, Some(0), "{said}");
    let advised: Value = serde_json::from_str(&out).unwrap();
    let trial = &advised["trial"];
    assert_eq!(trial["rounds"], 2, "{trial}");
    let changes = trial["changes"].as_array().unwrap();
    let workers = changes
        .iter()
        .find(|tried| tried["keep"].as_str().unwrap().starts_with("num_workers="));
    let workers = workers.unwrap_or_else(|| panic!("{trial}"));
    let (predicted, measured) = (
        workers["predicted_ratio"].as_f64().unwrap(),
        workers["measured_ratio"].as_f64().unwrap(),
    );
    assert!(measured < 0.9, "{workers}");
    assert!((0.4..2.0).contains(&(predicted / measured)), "{workers}");
    assert!(
        workers["keep"].as_str().unwrap().contains("run --workers "),
        "{workers}"
    );
    // Its data set is no ImageFolder.
    let problems = trial["problems"].to_string();
    assert!(problems.contains("Stokehold's loader: "), "{problems}");
    assert!(bench.dir.path().join("tried/unchanged-2/output.log").is_file());
}

#[test]
fn a_script_runs_with_other_arguments() {
    let Some(bench) = Bench::new() else { return };
    let script = small();
    let (code, out, said) = bench.stokehold(&["run", "--workers", "2"], &[&script, "workers=0", "read=0"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.starts_with("loss "), "{out}");
    assert!(!said.contains("nothing was changed"), "{said}");
    // What changes nothing says so.
    let already = bench
        .stokehold(&["run", "--workers", "0"], &[&script, "workers=0", "read=0"])
        .2;
    assert!(
        already.contains("nothing was changed: the DataLoader over")
            && already.contains("has num_workers=0 already"),
        "{already}"
    );
    let (_, _, said) = bench.stokehold(
        &["run", "--persistent-workers"],
        &[&script, "workers=0", "read=0"],
    );
    assert!(
        said.contains("stays as it is: it has no workers") && said.ends_with("nothing was changed\n"),
        "{said}"
    );
    let (code, _, said) = bench.stokehold(&["run", "--workers", "2"], &["-c", "import torch.utils.data"]);
    assert_eq!(
        (code, said.as_str()),
        (Some(0), "nothing was changed: the script made no DataLoader\n")
    );
    // The exit code of a script that fails is its own, and so are its messages.
    let (code, _, said) = bench.stokehold(&["run", "--workers", "1"], &[&script, "workers=0", "bad=3"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("this sample is bad"), "{said}");
}

/// A script that `run` changes can be recorded: the hook has the settings of both.
#[test]
fn one_command_runs_in_the_other() {
    let Some(bench) = Bench::new() else { return };
    let script = small();
    let inner = [
        "profile",
        "-o",
        "run",
        "--",
        env!("CARGO_BIN_EXE_stokehold"),
        "run",
        "--workers",
        "2",
    ];
    let (code, out, said) = bench.stokehold(&inner, &[&script, "workers=0", "read=0.001"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(out.starts_with("loss ") && !said.contains("Recursion"), "{said}");
    let about = std::fs::read_to_string(bench.dir.path().join("run/profiler-output/recording.json")).unwrap();
    let about: Value = serde_json::from_str(&about).unwrap();
    assert_eq!(about["workload"]["num_workers"], 2, "{about}");
}

#[test]
fn what_cannot_be_run_is_an_error_that_says_so() {
    let bench = Bench {
        dir: tempfile::tempdir().unwrap(),
        python: "python3".into(),
    };
    for (words, script, expected) in [
        (
            &["run"][..],
            &["x.py"][..],
            "what to change? Give --fast-images, --swap-loader",
        ),
        (
            &["run", "--swap-loader"],
            &["-I", "x.py"],
            "python3 -I does not start the hook",
        ),
        (
            &["advise", "--try", "--steps", "3"],
            &["x.py"],
            "3 is not in 10..",
        ),
        (&["advise"], &["x.py"], "put --try before it"),
    ] {
        let (code, _, said) = bench.stokehold(words, script);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains(expected), "{said}");
    }
    // A script that trains nothing, and one that fails.
    let (code, _, said) = bench.stokehold(&["advise", "--try"], &["-c", "print(1)"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("nothing was seen that trains"), "{said}");
    let (code, _, said) = bench.stokehold(&["advise", "--try"], &["-c", "raise SystemExit('no data')"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("exit code 1") && said.contains("no data"), "{said}");
}

/// A recording of a Python that ignores the hook says so.
#[test]
fn a_python_without_the_hook_is_recorded_without_steps() {
    let bench = Bench {
        dir: tempfile::tempdir().unwrap(),
        python: "python3".into(),
    };
    let (code, _, said) = bench.stokehold(&["profile", "-o", "run"], &["-I", "-c", "print(1)"]);
    assert_eq!(code, Some(0), "{said}");
    let about = std::fs::read_to_string(bench.dir.path().join("run/profiler-output/recording.json")).unwrap();
    assert!(
        about.contains("-I does not start the hook that sees and changes loaders; leave -I out"),
        "{about}"
    );
    let (code, _, said) = bench.stokehold(&["advise", "run"], &[]);
    assert_eq!(code, Some(2));
    assert!(said.contains("neither a run of stokehold train"), "{said}");
    // Its environment may be taken from it.
    let clean = "import os, sys; os.execve(sys.executable, [sys.executable, '-c', 'pass'], {})";
    for (words, script, expected) in [
        (
            &["run", "--swap-loader"][..],
            &["-c", "pass"][..],
            "nothing was changed: the script made no DataLoader",
        ),
        (
            &["run", "--workers", "2"],
            &["-c", clean],
            "nothing was changed: the script made no DataLoader",
        ),
        (&["profile", "-o", "other"], &["-c", "pass"], "sample"),
    ] {
        let (code, _, said) = bench.stokehold(words, script);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(expected), "{said}");
        assert!(!said.contains("did not start"), "{said}");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args([
            "run",
            "--swap-loader",
            "--",
            "env",
            "-u",
            "PYTHONPATH",
            "python3",
            "-c",
            "pass",
        ])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("nothing was changed: the command started no Python with the hook"),
        "{said}"
    );
}
