//! `stokehold advise`: predictions from a run's own record, a trial of the best one, and what it refuses.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

/// Exit code, standard output and standard error of the program in `dir`.
pub fn stokehold(dir: &Path, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_stokehold"))
        .args(arguments)
        .current_dir(dir)
        .output()
        .unwrap();
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stdout).unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

/// A run of one epoch on generated images with the per-op executor, in `runs/one`.
pub fn trained(ceiling_batches: &str) -> TempDir {
    let dir = TempDir::new().unwrap();
    let (code, _, said) = stokehold(
        dir.path(),
        &["dataset", "synth", "data", "--images", "24", "--classes", "2"],
    );
    assert_eq!(code, 0, "{said}");
    let mut train = vec![
        "train",
        "data",
        "--image-size",
        "32",
        "--batch-size",
        "4",
        "--epochs",
        "1",
    ];
    train.extend([
        "--executor",
        "per-op",
        "--load",
        "2",
        "--workers",
        "1",
        "--device",
        "cpu",
    ]);
    train.extend(["--name", "one", "--ceiling-batches", ceiling_batches]);
    let (code, _, said) = stokehold(dir.path(), &train);
    assert_eq!(code, 0, "{said}");
    if ceiling_batches != "0" {
        settle(dir.path());
    }
    dir
}

/// Puts times into the recording that the model explains, as those of a machine that does nothing else: what this one did meanwhile
/// decides whether anything can be predicted at all.
fn settle(dir: &Path) {
    let mut about = kept(dir);
    let workload = &mut about["workload"];
    let images = workload["images"].as_f64().unwrap();
    let times = json!({
        "cores": 2,
        "others_cores": 0.0,
        "loader_ceiling": 100.0,
        "loader_cpu_seconds": 0.01,
        "trainer_ceiling": 100.0,
        "trainer_cpu_seconds": 0.02,
        "trainer_delay_seconds": 0.0,
        "seconds_per_epoch": 0.015 * images,
        "stage_seconds": {"read": 0.0001, "decode": 0.006, "augment": 0.004},
    });
    for (name, value) in times.as_object().unwrap() {
        workload[name] = value.clone();
    }
    keep(dir, &about);
}

fn kept(dir: &Path) -> Value {
    serde_json::from_slice(&fs::read(dir.join(RECORDING)).unwrap()).unwrap()
}

fn keep(dir: &Path, about: &Value) {
    fs::write(dir.join(RECORDING), about.to_string()).unwrap();
}

pub const RECORDING: &str = "runs/one/profiler-output/recording.json";

fn advice(dir: &Path, more: &[&str]) -> Value {
    let (code, text, said) = stokehold(dir, &[&["advise", "runs/one", "--json"], more].concat());
    assert_eq!(code, 0, "{said}");
    serde_json::from_str(&text).unwrap()
}

/// One run for all that can be asked of it: training takes most of the time.
#[test]
fn a_run_is_advised_by_what_it_measured() {
    let dir = trained("2");
    let first = advice(dir.path(), &[]);
    let list = first["advice"].as_array().unwrap();
    // What is free stands before what costs money.
    let kinds = list.iter().map(|one| one["change"]["kind"].as_str().unwrap());
    let machines = kinds.map(|kind| kind == "servers");
    let worth = list
        .iter()
        .map(|one| one["gain_percent"].as_f64().unwrap() >= 3.0);
    let order: Vec<(bool, bool)> = worth.zip(machines).filter(|one| one.0).collect();
    assert!(order.is_sorted_by_key(|one| one.1), "{order:?}");
    assert_eq!(list[0]["title"], "fused instead of per-op");
    let now = first["workload"]["seconds_per_epoch"].as_f64().unwrap();
    for one in list {
        let [then, gain] = ["seconds_per_epoch", "gain_seconds"].map(|field| one[field].as_f64().unwrap());
        assert!(then > 0.0 && (then + gain - now).abs() < 1e-9, "{one}");
    }
    let of = |kind: &str| list.iter().find(|one| one["change"]["kind"] == kind);
    let fused = of("executor").unwrap();
    assert_eq!(fused["flags"], json!(["--executor", "fused"]));
    assert_eq!(of("workers").unwrap()["flags"], json!(["--workers", "2"]));
    assert!(of("shards").is_some());
    // Twice the images of a step fit the epoch; steps of them were timed, unless the machine has no time for that.
    // A busy machine may be too slow for steps, or too uneven.
    let notes = first["notes"].to_string();
    let why_not = |what: &str| {
        notes.contains(&format!("{what} not predicted: measuring"))
            || notes.contains(&format!("{what} not predicted: 8 steps"))
    };
    match of("batch-size") {
        Some(one) => assert_eq!(one["change"]["batch_size"], 8),
        None => assert!(why_not("larger batches are"), "{first}"),
    }
    match of("precision") {
        Some(one) => assert_eq!(one["flags"], json!(["--precision", "bf16"])),
        None => assert!(why_not("bf16 is"), "{first}"),
    }
    // Machines that make the batches: their cost needs that of this one.
    let servers = of("servers").unwrap();
    assert!(servers["cost_per_epoch"].is_null() && servers["change"]["count"].as_u64() > Some(0));
    assert!(
        servers["why"].as_str().unwrap().contains(" USD an hour; "),
        "{servers}"
    );
    // The whole training on other machines of the table, those without GPUs: a price and a range for each.
    let machines = &first["machines"];
    assert_eq!(machines["epochs"], 1);
    assert!(machines["here"]["cost"].is_null() && machines["here"]["seconds_per_epoch"] == json!([now, now]));
    let others = machines["others"].as_array().unwrap();
    assert!(!others.is_empty());
    for other in others {
        let [least, most] = [0, 1].map(|end| other["cost"][end].as_f64().unwrap());
        assert!(0.0 < least && least <= most && other["gpu"].is_null(), "{other}");
    }
    assert!(
        fused["cost_per_epoch"].is_null(),
        "nobody said what this machine costs"
    );
    // Fused costs less, whatever else continues.
    let measured = first["workload"]["alternatives"].as_array().unwrap();
    let fused = measured
        .iter()
        .find(|one| one["change"]["kind"] == "executor")
        .unwrap();
    assert!(fused["loader"].as_f64().unwrap() < 0.9, "{fused}");

    // What was measured is kept, and not measured again.
    let kept = kept(dir.path());
    assert_eq!(
        kept["workload"]["alternatives"],
        first["workload"]["alternatives"]
    );
    assert_eq!(advice(dir.path(), &[])["advice"], first["advice"]);

    let (code, text, said) = stokehold(dir.path(), &["advise", "runs/one"]);
    assert_eq!(code, 0, "{said}");
    assert!(text.starts_with("The trainer "), "{text}");
    for part in [
        "fused instead of per-op",
        "--workers 2",
        "saves",
        "this machine, as it is",
        "1 epoch of training",
        " USD",
        "times as long as the model says",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }

    // A table that knows this machine prices every change.
    let prices = "currency = \"EUR\"\nsource = \"mine\"\ndate = \"today\"\nhere = \"desk\"\n[[machine]]\n\
                  name = \"desk\"\ncores = 2\nprice_per_hour = 3600.0\n";
    fs::write(dir.path().join("prices.toml"), prices).unwrap();
    let priced = advice(dir.path(), &["--prices", "prices.toml", "--epochs", "10"]);
    let cost = priced["machines"]["here"]["cost"][0].as_f64().unwrap();
    assert!((cost - 10.0 * now).abs() < 1e-9, "{priced}");
    for one in priced["advice"].as_array().unwrap() {
        let [cost, seconds] =
            ["cost_per_epoch", "seconds_per_epoch"].map(|field| one[field].as_f64().unwrap());
        // This machine's, and those of servers next to it.
        let machines = 1.0 + one["change"]["count"].as_f64().unwrap_or(0.0);
        assert!((cost - machines * seconds).abs() < 1e-9, "{one}");
    }
    fs::write(dir.path().join("prices.toml"), prices.replace("3600.0", "0")).unwrap();
    let (code, _, said) = stokehold(dir.path(), &["advise", "runs/one", "--prices", "prices.toml"]);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("prices.toml: line 5: desk costs 0 an hour"),
        "{said}"
    );

    // Where loading cost much more than it does, fused would gain the most: that is tried.
    let mut about = kept;
    about["workload"]["seconds_per_epoch"] = about["workload"]["images"].clone();
    about["workload"]["loader_cpu_seconds"] = json!(1.0);
    about["workload"]["loader_ceiling"] = json!(1.0);
    about["workload"]["alternatives"] = json!([
        {"change": {"kind": "executor", "executor": "fused"}, "loader": 0.01, "trainer": 1.0}
    ]);
    keep(dir.path(), &about);
    let tried = &advice(dir.path(), &["--try", "-o", "trial"])["trial"];
    assert_eq!(tried["title"], "fused instead of per-op");
    assert_eq!(tried["images"], first["workload"]["images"]);
    assert!(tried["predicted_ratio"].as_f64().unwrap() < 0.9, "{tried}");
    let [before, after, ratio] = ["unchanged_seconds", "changed_seconds", "measured_ratio"]
        .map(|field| tried[field].as_f64().unwrap());
    assert!(before > 0.0 && (ratio - after / before).abs() < 1e-9, "{tried}");
    for (side, executor) in [("unchanged-1", "per-op"), ("changed-2", "fused")] {
        let record = fs::read(dir.path().join("trial").join(side).join("run.json")).unwrap();
        let record: Value = serde_json::from_slice(&record).unwrap();
        assert_eq!(record["config"]["executor"], executor);
    }
    let (code, _, said) = stokehold(dir.path(), &["advise", "runs/one", "--try", "-o", "trial"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("unchanged-1 exists"), "{said}");

    // Without its images a run is advised by the rest.
    about["workload"]["alternatives"] = json!([]);
    keep(dir.path(), &about);
    fs::rename(dir.path().join("data"), dir.path().join("away")).unwrap();
    let rest = advice(dir.path(), &[]);
    assert!(
        rest["notes"][0]
            .as_str()
            .unwrap()
            .starts_with("other executors and shards are not predicted: ")
    );
    let list = rest["advice"].as_array().unwrap();
    assert!(list.iter().any(|one| one["change"]["kind"] == "workers"));
    assert!(list.iter().all(|one| one["change"]["kind"] != "executor"));

    // Epochs that loader and trainer do not explain: nothing is predicted from them, and no one is to buy a machine.
    about["workload"]["seconds_per_epoch"] = json!(1000.0);
    about["workload"]["others_cores"] = json!(1.5);
    keep(dir.path(), &about);
    let (code, text, said) = stokehold(dir.path(), &["advise", "runs/one"]);
    assert_eq!(code, 0, "{said}");
    assert!(
        text.contains("nothing is predicted: the run's epochs took "),
        "{text}"
    );
    assert!(text.contains("other programs took 1.5 of 2 cores"), "{text}");
    assert!(!text.contains("instead of"), "{text}");
}

#[test]
fn what_gives_nothing_to_predict_from_is_refused() {
    let dir = trained("0");
    let refused = |expected: &str| {
        let (code, text, said) = stokehold(dir.path(), &["advise", "runs/one"]);
        assert_eq!((code, text.as_str()), (2, ""), "{said}");
        assert!(said.contains(expected), "{expected} is not in {said}");
    };
    refused("--ceiling-batches 0");
    let mut about = kept(dir.path());
    about["workload"]["seconds_per_epoch"] = Value::Null;
    keep(dir.path(), &about);
    refused("has not finished an epoch");
    fs::write(dir.path().join(RECORDING), "{").unwrap();
    refused("recording.json");
    fs::remove_file(dir.path().join(RECORDING)).unwrap();
    refused("has left no measurements");
    fs::remove_file(dir.path().join("runs/one/run.json")).unwrap();
    refused("neither a run of stokehold train");
    let (code, _, said) = stokehold(dir.path(), &["advise", "nowhere"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("nowhere: there is no such folder"), "{said}");
}

#[test]
fn a_script_without_dashes_is_told_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let (code, _, said) = stokehold(dir.path(), &["advise", "--try", "python3", "train.py"]);
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("stokehold advise --try -- python3 train.py"),
        "{said}"
    );
}
