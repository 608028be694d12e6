//! SageMaker Debugger reads what we write.
//!
//! The oracle is its own package, in an environment of its own: `bench/peers/setup.sh smdebug` makes it and
//! `STOKEHOLD_TEST_SMDEBUG` names its Python. Without, the test is skipped.

use std::collections::BTreeMap;
use std::process::Command;

use serde::Deserialize;
use stokehold_profile::{FOLDER, Node, Recording, dimension, span};
use stokehold_simulate::{Phase, Simulation};

#[derive(Deserialize)]
struct Seen {
    system: Vec<Sample>,
    framework: Vec<Event>,
    /// By node, dimension and name.
    heat: BTreeMap<String, BTreeMap<String, BTreeMap<String, Vec<f64>>>>,
    rows: Vec<Vec<f64>>,
    metrics: Vec<String>,
    /// By dimension and name.
    histograms: BTreeMap<String, BTreeMap<String, Vec<u64>>>,
}

#[derive(Deserialize)]
struct Sample {
    r#type: String,
    name: String,
    dimension: String,
    value: f64,
    node: String,
    time: f64,
}

#[derive(Deserialize)]
struct Event {
    name: String,
    phase: String,
    node: String,
    start: i64,
    duration: i64,
    args: BTreeMap<String, u64>,
}

/// Two machines of four cores and eight GPUs for two and a half minutes across a full hour, half healthy and half
/// waiting for data.
fn simulation() -> Simulation {
    Simulation {
        nodes: 2,
        cores: 4,
        gpus: 8,
        interval: 1.0,
        seconds: 150.0,
        start: 1_767_225_600.0 - 80.0,
        phases: vec![Phase::Healthy, Phase::Loader],
        ..Simulation::default()
    }
}

/// The value as the file has it.
fn hundredths(value: f32) -> f64 {
    (f64::from(value) * 100.0).round() / 100.0
}

fn micros(seconds: f64) -> i64 {
    (seconds * 1e6).round() as i64
}

#[test]
fn smdebug_sees_what_was_recorded() {
    let Some(python) = std::env::var_os("STOKEHOLD_TEST_SMDEBUG") else {
        stokehold_untested::skip(
            "STOKEHOLD_TEST_SMDEBUG names no Python with smdebug (bench/peers/setup.sh smdebug)",
        );
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let recording = simulation().recording();
    simulation().write(dir.path()).unwrap();
    let output = Command::new(python)
        .args(["-c", include_str!("read_with_smdebug.py")])
        .arg(dir.path().join(FOLDER))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let seen: Seen = serde_json::from_slice(&output.stdout).unwrap();
    samples(&recording, &seen);
    spans(&recording, &seen);
    for node in &recording.nodes {
        heat_map(node, &seen);
        histograms(node, &seen);
    }
}

/// Every sample, with its value and time.
fn samples(recording: &Recording, seen: &Seen) {
    let key = |kind: &str, name: &str, dimension: &str, node: &str, time: f64| {
        let texts = [kind, name, dimension, node].map(str::to_owned);
        (texts, micros(time))
    };
    let got: BTreeMap<_, _> = seen
        .system
        .iter()
        .map(|s| (key(&s.r#type, &s.name, &s.dimension, &s.node, s.time), s.value))
        .collect();
    assert_eq!(got.len(), seen.system.len(), "nothing twice");
    let mut count = 0;
    for node in &recording.nodes {
        for series in &node.series {
            for (&time, &value) in node.ticks.iter().zip(&series.values) {
                let key = key(&series.kind, &series.name, &series.dimension, &node.name, time);
                let got = got.get(&key).unwrap_or_else(|| panic!("{key:?} is missing"));
                // Two decimals, of a value that is a single-precision number.
                assert!(
                    (got - f64::from(value)).abs() <= 0.005_01 + f64::from(value.abs()) * 1e-7,
                    "{key:?} {got} {value}"
                );
                count += 1;
            }
        }
        let of = |dimension| node.of(dimension).count();
        assert_eq!(
            (of(dimension::CPU), of(dimension::GPU), of(dimension::GPU_MEMORY)),
            (4, 8, 8)
        );
    }
    assert_eq!(count, got.len());
}

/// Every span, with its start and duration to the microsecond, its step and its worker.
fn spans(recording: &Recording, seen: &Seen) {
    let mut got: Vec<_> = seen
        .framework
        .iter()
        .map(|event| {
            assert_eq!(event.phase, event.name);
            let arg = |name: &str| event.args.get(name).copied();
            let numbers = (arg("step_num"), arg("worker_id"), arg("bytes"));
            (
                event.node.clone(),
                event.name.clone(),
                event.start,
                event.duration,
                numbers,
            )
        })
        .collect();
    let mut wanted = Vec::new();
    for node in &recording.nodes {
        for span in &node.spans {
            wanted.push((
                // The order in which SageMaker Debugger names node and process; all simulated processes have one number.
                format!("{}-4487", node.name),
                node.names[span.name as usize].clone(),
                micros(span.start),
                micros(span.duration),
                (span.step, span.worker.map(u64::from), span.bytes),
            ));
        }
    }
    got.sort();
    wanted.sort();
    let steps = wanted.iter().filter(|span| span.1 == span::STEP).count();
    let of_workers = wanted.iter().filter(|span| span.1 == span::WORKER).count();
    assert!(steps > 500 && of_workers > 500, "{steps} {of_workers}");
    assert_eq!(got.len(), wanted.len());
    for (got, wanted) in got.iter().zip(&wanted) {
        assert_eq!(got, wanted);
    }
}

/// What the heat map draws: each core's and GPU's values in order, the mean of them, and a row for each.
fn heat_map(node: &Node, seen: &Seen) {
    for dimension in [
        dimension::CPU,
        dimension::GPU,
        dimension::GPU_MEMORY,
        dimension::IO_WAIT,
    ] {
        let drawn = &seen.heat[&node.name][dimension];
        let all: Vec<_> = node.of(dimension).collect();
        assert_eq!(drawn.len(), all.len() + 1, "{dimension}");
        for series in &all {
            let wanted: Vec<f64> = series.values.iter().copied().map(hundredths).collect();
            assert_eq!(drawn[&series.name], wanted, "{dimension} {}", series.name);
            let metric = format!("{dimension}_{}_{}", series.name, node.name);
            let row = seen.metrics.iter().position(|name| *name == metric).unwrap();
            assert_eq!(seen.rows[row], wanted, "{metric}");
        }
        for (tick, total) in drawn["total"].iter().enumerate() {
            let sum: f64 = all.iter().map(|series| hundredths(series.values[tick])).sum();
            assert!((total - sum / all.len() as f64).abs() < 1e-9);
        }
    }
}

/// The counts of values in 49 bins of two percent; the last one has 98 in it, and what lies above is in none.
fn histograms(node: &Node, seen: &Seen) {
    for dimension in [dimension::CPU, dimension::GPU] {
        let drawn = &seen.histograms[&format!("{dimension}-nodeid:{}", node.name)];
        for series in node.of(dimension) {
            let mut wanted = vec![0; 49];
            for value in series.values.iter().copied().map(hundredths) {
                if value <= 98.0 {
                    wanted[((value / 2.0) as usize).min(48)] += 1;
                }
            }
            assert_eq!(drawn[&series.name], wanted, "{dimension} {}", series.name);
        }
    }
}
