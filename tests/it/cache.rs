//! The image cache as users have it: trainings with it, without it, killed, on full and wrong places, and in jobs.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
#[cfg(feature = "full")]
use stokehold_untested::needs::can_mount;
use stokehold_untested::skip;
use tempfile::TempDir;

fn stokehold(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_stokehold"));
    command.current_dir(dir).env_remove("STOKEHOLD_IMAGE_CACHE");
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr[..]].concat()).into_owned()
}

fn data() -> TempDir {
    let dir = TempDir::new().unwrap();
    let mut make = stokehold(dir.path());
    make.args(["dataset", "synth", "data", "--images", "120", "--classes", "2"]);
    let made = make.output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    // Files that were just written have no version yet.
    thread::sleep(Duration::from_millis(3050));
    dir
}

/// Whether images are packed on this machine.
fn packs() -> bool {
    let packs = stokehold_jpeg::packed_is_fast();
    if !packs {
        skip("this processor has no AVX2, without which nothing is packed");
    }
    packs
}

/// Trains for two epochs; the losses of all steps and the summary.
fn train(dir: &Path, name: &str, more: &[&str]) -> (Vec<f64>, Value) {
    let mut command = stokehold(dir);
    command.args([
        "train",
        "data",
        "--image-size",
        "64",
        "--batch-size",
        "4",
        "--epochs",
        "2",
    ]);
    command.args([
        "--freeze-backbone",
        "--ceiling-batches",
        "0",
        "--log-every",
        "1",
        "--name",
        name,
    ]);
    let output = command.args(more).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let run = dir.join("runs").join(name);
    let lines = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let steps = lines.filter(|line| line["kind"] == "train");
    let losses = steps.map(|line| line["loss"].as_f64().unwrap()).collect();
    let summary = fs::read_to_string(run.join("summary.json")).unwrap();
    (losses, serde_json::from_str(&summary).unwrap())
}

#[test]
fn a_training_is_the_same_with_a_cache_in_every_state() {
    let dir = data();
    let dir = dir.path();
    let (expected, summary) = train(dir, "without", &[]);
    assert!(expected.len() > 30 && summary.get("cache").is_none());
    let (first, summary) = train(dir, "first", &["--cache", "kept:100MB"]);
    assert_eq!(first, expected);
    assert!(summary["cache"]["misses"].as_u64().unwrap() > 0, "{summary}");
    let (second, summary) = train(dir, "second", &["--cache", "kept:100MB", "--cache-share", "0"]);
    assert_eq!(second, expected);
    if packs() {
        assert!(summary["cache"]["hits"].as_u64().unwrap() > 0, "{summary}");
    }
    // A run that had a cache continues without one.
    let mut command = stokehold(dir);
    command.args(["train", "--resume", "runs/first", "--epochs", "3", "--no-cache"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let summary = fs::read_to_string(dir.join("runs/first/summary.json")).unwrap();
    let summary: Value = serde_json::from_str(&summary).unwrap();
    assert!(summary.get("cache").is_none(), "{summary}");
    // Of the environment, and damaged in the middle of every file.
    for entry in fs::read_dir(dir.join("kept")).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = fs::read(&path).unwrap();
        if let Some(byte) = bytes
            .len()
            .checked_div(2)
            .and_then(|middle| bytes.get_mut(middle))
        {
            *byte ^= 0x40;
        }
        fs::write(path, bytes).unwrap();
    }
    let mut command = stokehold(dir);
    command.env("STOKEHOLD_IMAGE_CACHE", "kept:100MB");
    command.args(["bench", "loader", "data", "--passes", "1", "--json"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["images"], 120);
    assert!(report["cache"].is_object(), "{report}");
}

/// Images that are read and will not be kept are said, once; the run finds its cache again from another folder.
#[test]
fn a_training_says_that_its_cache_is_full_and_finds_it_again() {
    if !packs() {
        return;
    }
    let dir = data();
    let dir = dir.path();
    let emulated = [
        "--trainer",
        "emulated",
        "--images-per-second",
        "2000",
        "--ceiling-batches",
        "0",
    ];
    let mut command = stokehold(dir);
    // From another folder the run finds its data by their whole path alone.
    command.arg("train").arg(dir.join("data")).args([
        "--cache",
        "small:1MiB",
        "--cache-share",
        "1",
        "--epochs",
        "30",
        "--name",
        "a",
    ]);
    let output = command
        .args(["--log-every", "5"])
        .args(emulated)
        .output()
        .unwrap();
    let text = said(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!(
        text.matches("takes no images now: it is full").count(),
        1,
        "{text}"
    );
    let other = dir.join("elsewhere");
    fs::create_dir(&other).unwrap();
    let mut command = stokehold(&other);
    command.args(["train", "--resume", "../runs/a", "--epochs", "31"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(!other.join("small").exists(), "{}", said(&output));
    assert!(said(&output).contains("reads were from"), "{}", said(&output));
}

#[test]
fn what_a_killed_process_has_packed_is_used() {
    if !packs() {
        return;
    }
    let dir = data();
    let dir = dir.path();
    let bench = |more: &[&str]| {
        let mut command = stokehold(dir);
        command.args([
            "bench",
            "loader",
            "data",
            "--workers",
            "1",
            "--json",
            "--cache",
            "kept:100MB",
        ]);
        command.args(more);
        command
    };
    let mut first = bench(&["--passes", "1000", "--cache-share", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let size = || -> u64 {
        let entries = fs::read_dir(dir.join("kept")).into_iter().flatten().flatten();
        entries
            .map(|entry| entry.metadata().map_or(0, |facts| facts.len()))
            .sum()
    };
    let begun = Instant::now();
    while size() < 1_000_000 {
        assert!(first.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(2));
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let output = bench(&["--passes", "1", "--cache-share", "0"]).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["cache"]["hits"].as_u64().unwrap() > 10, "{report}");
    assert_eq!(report["cache"]["damaged"], 0);
}

#[test]
fn places_that_cannot_be_are_refused_before_the_work() {
    let dir = data();
    let dir = dir.path();
    fs::write(dir.join("file"), "precious").unwrap();
    for (arguments, why) in [
        (
            &["bench", "loader", "data", "--cache", "file"][..],
            "the cache's folder",
        ),
        (&["train", "data", "--cache", "file/below"], "the cache's folder"),
        (
            &["train", "data", "--cache", "x:12kB"],
            "the size is at least 1MiB",
        ),
        (&["train", "data", "--cache", "0"], "./0 is a folder of that name"),
        (
            &["train", "data", "--cache", "s3://bucket/x"],
            "a folder of this machine",
        ),
        (
            &["train", "data", "--cache", "x", "--cache-share", "2"],
            "must be from 0 to 1",
        ),
        (
            &["bench", "loader", "data", "--cache", "x", "--workers", "1,2"],
            "give one number, or --no-cache",
        ),
        (
            &["bench", "loader", "data", "--cache", "x", "--no-cache"],
            "cannot be used with",
        ),
        (
            &["compare", "data", "--trials", "fused,cached"],
            "add --cache DIR[:SIZE]",
        ),
        (&["compare", "data", "--cache", "x"], "add it to --trials"),
    ] {
        let output = stokehold(dir).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(why), "{arguments:?}: {}", said(&output));
    }
    let mut command = stokehold(dir);
    command.env("STOKEHOLD_IMAGE_CACHE", "x:7 apples");
    let output = command.args(["bench", "loader", "data"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        said(&output).contains("STOKEHOLD_IMAGE_CACHE=x:7 apples"),
        "{}",
        said(&output)
    );
    assert_eq!(fs::read_to_string(dir.join("file")).unwrap(), "precious");
}

#[test]
fn a_place_in_the_environment_is_held_to_the_same_rules() {
    let dir = data();
    let dir = dir.path();
    let bench = |options: &[&str]| {
        let mut command = stokehold(dir);
        command.env("STOKEHOLD_IMAGE_CACHE", "kept:5MB");
        command.args(["bench", "loader", "data", "--workers", "1,2", "--passes", "1"]);
        command.args(options).output().unwrap()
    };
    let refused = bench(&[]);
    assert_eq!(refused.status.code(), Some(2), "{}", said(&refused));
    assert!(said(&refused).contains("--no-cache"), "{}", said(&refused));
    let without = bench(&["--no-cache"]);
    assert!(without.status.success(), "{}", said(&without));
    assert!(!dir.join("kept").exists());
}

/// On a disk of two megabytes, in a mount namespace of this test's own.
#[test]
fn a_full_disk_ends_the_adding_and_not_the_training() {
    if !packs() {
        return;
    }
    let dir = data();
    let script = format!(
        "mount -t tmpfs -o size=2m none kept && {} bench loader data --passes 2 --json --cache kept:100MB --cache-share 1",
        env!("CARGO_BIN_EXE_stokehold")
    );
    fs::create_dir(dir.path().join("kept")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", &script]);
    let output = command
        .current_dir(dir.path())
        .env_remove("STOKEHOLD_IMAGE_CACHE")
        .output();
    let output = match output {
        Ok(output) if !said(&output).contains("unshare failed") && !said(&output).contains("mount:") => {
            output
        }
        _ => return skip("this machine does not permit namespaces with mounts"),
    };
    assert!(output.status.success(), "{}", said(&output));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["images"], 120);
    assert_eq!(report["cache"]["stopped"], "its disk is nearly full", "{report}");
}

#[test]
fn compare_has_a_trial_from_the_cache() {
    let dir = data();
    let mut command = stokehold(dir.path());
    command.args([
        "compare",
        "data",
        "--trials",
        "fused,cached",
        "--cache",
        "kept:100MB",
        "--loads",
        "0",
    ]);
    command.args([
        "--models",
        "resnet18",
        "--trainer",
        "emulated",
        "--images-per-second",
        "100000",
    ]);
    command.args([
        "--batch-size",
        "8",
        "--round",
        "0.2",
        "--time-limit",
        "2",
        "--image-size",
        "64",
        "--out",
        "out",
    ]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("cached"), "{}", said(&output));
    if packs() {
        let segments = fs::read_dir(dir.path().join("kept")).unwrap().count();
        assert!(segments >= 2, "nothing was packed");
        let result = fs::read_to_string(dir.path().join("out/compare.json")).unwrap();
        assert!(result.contains(" images from the cache"), "{result}");
    }
}

/// Two jobs of one bucket: the second reads what the first has packed.
#[cfg(feature = "full")]
#[test]
fn jobs_of_mode_cache_share_packed_images() {
    if !packs() || !can_mount() {
        return;
    }
    let dir = data();
    let dir = dir.path();
    fs::create_dir_all(dir.join("s3/bucket")).unwrap();
    fs::rename(dir.join("data"), dir.join("s3/bucket/data")).unwrap();
    let server = stokehold_s3_server::Server::start(&dir.join("s3")).unwrap();
    let program = env!("CARGO_BIN_EXE_stokehold");
    fs::write(
        dir.join("train.sh"),
        format!("{program} bench loader $SM_CHANNEL_TRAIN --passes 2 --cache-share 1 --json > $SM_OUTPUT_DIR/report.json\n"),
    )
    .unwrap();
    let cached = |name: &str| {
        let mut command = stokehold(dir);
        command
            .env("STOKEHOLD_JOBS", dir.join("jobs"))
            // As seen from here, not from the folder that the script runs in.
            .env("STOKEHOLD_CACHE", "cache");
        command.args([
            "job",
            "run",
            "--entry-point",
            "train.sh",
            "--source-dir",
            ".",
            "--name",
            name,
        ]);
        command.args(["--channel", "train=s3://bucket/data,mode=Cache"]);
        for (variable, value) in server.settings() {
            command.args(["--environment", &format!("{variable}={value}")]);
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let report = dir.join("jobs").join(name).join("algo-1/output/report.json");
        let report: Value = serde_json::from_str(&fs::read_to_string(report).unwrap()).unwrap();
        ["hits", "misses", "added"].map(|count| report["cache"][count].as_u64().unwrap())
    };
    // Until a job finds all that those before it packed.
    let mut names = (1..=5).map(|number| format!("job-{number}"));
    let all = names.find(|name| {
        let [hits, misses, added] = cached(name);
        hits > 0 && misses == 0 && added == 0
    });
    assert!(all.is_some(), "five jobs have not packed it all");
    assert!(dir.join("cache/images").is_dir());
    // One more object, the first of the list, is one more sample, and no other one becomes new.
    let mut one = dir.join("s3/bucket/data");
    while one.is_dir() {
        one = fs::read_dir(&one).unwrap().next().unwrap().unwrap().path();
    }
    fs::copy(&one, one.with_file_name("0.jpg")).unwrap();
    thread::sleep(Duration::from_millis(3050));
    let [hits, misses, added] = cached("more");
    assert!(
        hits > 0 && misses <= 3 && added == 1,
        "{hits} hits, {misses} misses, {added} added"
    );
}
