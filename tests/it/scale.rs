//! `stokehold scale`: predictions from a recorded run, in every form, and what it refuses.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use stokehold_profile::{FOLDER, Span, events, span};
use tempfile::TempDir;

use crate::advise::stokehold;

/// A recording of so many steps of 0.1 s.
fn record(folder: &Path, steps: u64) {
    let begin = 1_767_225_600.0;
    let mut writer = events::Writer::new(&folder.join(FOLDER), events::Options::new(begin));
    for step in 1..=steps {
        let span = Span {
            name: 0,
            start: begin + 0.1 * step as f64,
            duration: 0.1,
            step: Some(step),
            worker: None,
            bytes: None,
        };
        writer.write(span::STEP, &span).unwrap();
    }
    writer.finish().unwrap();
}

/// A run of stokehold train in `run`, and one of another program in `script`.
fn recorded() -> TempDir {
    let dir = TempDir::new().unwrap();
    record(&dir.path().join("script"), 40);
    record(&dir.path().join("run"), 40);
    let config = json!({"batch_size": 10, "prefetch": 0, "drop_last": false, "freeze_backbone": false, "keep_checkpoints": 2});
    let record = json!({"config": config, "dataset": {"train": 40_000}});
    fs::write(dir.path().join("run/run.json"), record.to_string()).unwrap();
    let head = r#"{"fc.weight":{"dtype":"F32","shape":[1000,25000],"data_offsets":[0,100000000]}}"#;
    let model = [&(head.len() as u64).to_le_bytes(), head.as_bytes()].concat();
    fs::write(dir.path().join("run/model.safetensors"), model).unwrap();
    dir
}

fn prediction(dir: &Path, arguments: &[&str]) -> Value {
    let (code, text, said) = stokehold(dir, &[&["scale", "--json"], arguments].concat());
    assert_eq!(code, 0, "{said}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_run_of_training_needs_no_more_words() {
    let dir = recorded();
    let found = prediction(dir.path(), &["run", "--machines", "8,1,8"]);
    let sizes = found["sizes"].as_array().unwrap();
    assert_eq!(sizes.len(), 2, "{sizes:?}");
    let number = |size: usize, field: &str| sizes[size][field].as_f64().unwrap();
    assert_eq!((number(0, "machines"), number(1, "machines")), (1.0, 8.0));
    assert!((number(0, "seconds_per_epoch") - 400.0).abs() < 1e-3, "{found}");
    // 100 MB in buckets after the backward pass, by the formula of the ring or a better one.
    assert!(number(1, "efficiency") < 0.65, "{found}");
    assert_eq!(sizes[1]["limit"], "reduce");
    assert_eq!(found["run"]["parameters"], 25_000_000);
    assert_eq!(found["published"], json!({"gpus": 64, "efficiency": 0.93}));
    let lifts = sizes[1]["lifts"].as_array().unwrap();
    assert!(
        lifts
            .iter()
            .any(|lift| lift["change"] == "a network of 100 Gbit/s"),
        "{lifts:?}"
    );

    let overlapped = prediction(dir.path(), &["--machines", "8", "--overlap", "run"]);
    let efficiency = overlapped["sizes"][0]["efficiency"].as_f64().unwrap();
    assert!(efficiency > number(1, "efficiency"), "{overlapped}");

    let arguments = [
        "scale",
        "run",
        "--price",
        "3.6",
        "--page",
        "page.html",
        "--gpus-per-machine",
        "2",
    ];
    let (code, text, said) = stokehold(dir.path(), &arguments);
    assert_eq!(code, 0, "{said}");
    for part in [
        "machines  GPUs",
        "USD/epoch",
        "64   128",
        "reducing gradients takes",
        "page  page.html",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let page = fs::read_to_string(dir.path().join("page.html")).unwrap();
    assert!(
        page.contains("64 machines: an epoch in") && page.contains("USD/epoch"),
        "{page}"
    );
}

#[test]
fn a_measured_network_is_read_from_its_file() {
    let dir = recorded();
    let network = r#"{"alpha_seconds": 0, "bytes_per_second": 1e9, "date": "2026-01-01"}"#;
    fs::write(dir.path().join("network.json"), network).unwrap();
    let arguments = [
        "run",
        "--machines",
        "2",
        "--network",
        "network.json",
        "--algorithm",
        "ring",
    ];
    let step = prediction(dir.path(), &arguments)["sizes"][0]["seconds_per_step"].clone();
    // 0.1 s, and 2 (p-1)/p n / bandwidth = 0.1 s.
    assert!((step.as_f64().unwrap() - 0.2).abs() < 1e-3, "{step}");
}

#[test]
fn what_a_script_does_not_say_is_asked_for() {
    let dir = recorded();
    let (code, text, said) = stokehold(dir.path(), &["scale", "script"]);
    assert_eq!((code, text.as_str()), (2, ""), "{said}");
    for option in ["--images", "--batch-size", "--parameters"] {
        assert!(said.contains(option), "{said}");
    }
    let words = [
        "script",
        "--images",
        "1000",
        "--batch-size",
        "8",
        "--parameters",
        "1000",
        "--price",
        "g5.xlarge",
    ];
    let found = prediction(dir.path(), &words);
    assert_eq!(found["run"]["overlap"], true);
    assert!(found["sizes"][0]["cost_per_epoch"].as_f64().unwrap() > 0.0);
    let (code, _, said) = stokehold(
        dir.path(),
        &[&["scale", "--storage-limit", "1GB"], &words[..]].concat(),
    );
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("--image-bytes"), "{said}");
}

#[test]
fn what_cannot_be_predicted_is_refused() {
    let dir = recorded();
    fs::create_dir(dir.path().join("empty")).unwrap();
    record(&dir.path().join("short"), 7);
    let file = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
    file("broken.json", "{\"alpha_seconds\": 1e-5");
    file("slow.json", "{\"alpha_seconds\": 1e-5, \"bytes_per_second\": 1}");
    let known = ["--images", "9", "--batch-size", "1", "--parameters", "1"];
    for (arguments, expected) in [
        (vec!["nowhere"], "nowhere: "),
        (vec!["empty"], "empty: "),
        ([&["short"], &known[..]].concat(), "2 steps are not enough"),
        (vec!["run", "--machines", "0"], "1 to 4096 GPUs"),
        (vec!["run", "--machines", "1,x"], "'x'"),
        (vec!["run", "--machines", "5000"], "1 to 4096 GPUs"),
        (
            vec!["run", "--machines", "600", "--gpus-per-machine", "8"],
            "600 of 8 GPUs",
        ),
        (vec!["run", "--gpus-per-machine", "0"], "at least 1"),
        (vec!["run", "--network", "40"], "choose 10, 25, 100 or 400"),
        (vec!["run", "--network", "none.json"], "none.json: "),
        (
            vec!["run", "--network", "broken.json"],
            "broken.json: not the description of a network",
        ),
        (vec!["run", "--network", "slow.json"], "1e3 to 1e13"),
        (
            vec!["run", "--algorithm", "star"],
            "choose ring, tree or hierarchical",
        ),
        (vec!["run", "--storage-limit", "0"], "above 0"),
        (vec!["run", "--loader-rate", "0"], "1e-6 to 1e15"),
        (vec!["run", "--price", "castle"], "no machine 'castle'"),
        (vec!["run", "--price=-1"], "-1 an hour"),
        (vec!["run", "--batch-size", "0"], "images of a step: is 0"),
    ] {
        let (code, text, said) = stokehold(dir.path(), &[&["scale"], &arguments[..]].concat());
        assert_eq!((code, text.as_str()), (2, ""), "{arguments:?}: {said}");
        assert!(said.contains(expected), "{expected} is not in {said}");
    }
    let (code, _, said) = stokehold(dir.path(), &["scale", "run", "--page", "no/folder/page.html"]);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("no/folder"), "{said}");
}
