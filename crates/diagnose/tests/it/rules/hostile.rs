//! Recordings that have little, nothing, or nonsense in them.

use proptest::prelude::*;
use stokehold_diagnose::rules::{Defaults, Finding, Parameters, judge};
use stokehold_profile::{Node, Recording, Series, Span, dimension, span};
use stokehold_simulate::{Phase, Simulation};

use super::{Machine, named, recording};

/// Judges with every threshold's defaults and with no patience, and checks what every finding promises.
fn judged(recording: &Recording) -> Vec<Finding> {
    let mut eager = Parameters::default();
    for rule in stokehold_diagnose::rules::Rule::ALL {
        if rule
            .parameters
            .iter()
            .any(|parameter| parameter.name == "patience")
        {
            eager.set(&format!("{}_patience=0", rule.name)).unwrap();
        }
    }
    let findings = judge(recording, &eager);
    for finding in findings
        .iter()
        .chain(&judge(recording, &Parameters::new(Defaults::Guide)))
    {
        assert!(!finding.summary.is_empty(), "{finding:?}");
        assert_eq!(
            finding.triggered && finding.rule != "ProfilerReport",
            !finding.recommendation.is_empty()
        );
        assert!(
            finding.evidence.len() <= 80 * recording.nodes.len().max(1),
            "{finding:?}"
        );
        for one in &finding.evidence {
            assert!(
                one.from <= one.to && one.from.is_finite() && one.to.is_finite(),
                "{finding:?}"
            );
        }
        let text = serde_json::to_string(&finding.published()).unwrap();
        assert!(
            !finding.summary.contains("NaN") && !finding.summary.contains("inf"),
            "{}",
            finding.summary
        );
        assert!(
            !text.contains("null") || finding.rule != "OverallSystemUsage",
            "{text}"
        );
    }
    findings
}

#[test]
fn nothing_is_judged_of_nothing() {
    for recording in [
        Recording::default(),
        recording([Machine::new("algo-1", 0)]),
        recording([Machine::new("algo-1", 1)]),
        recording([Machine::new("algo-1", 100)]),
    ] {
        for finding in judged(&recording) {
            assert!(!finding.triggered, "{finding:?}");
            let text = &finding.summary;
            assert!(
                text.starts_with("Not judged: ")
                    || finding.rule == "ProfilerReport"
                    || text.contains("No step")
            );
        }
    }
}

#[test]
fn shorter_than_an_interval() {
    let machine = Machine::new("algo-1", 1)
        .series("cpu0", dimension::CPU, |_| 99.0)
        .series("gpu0", dimension::GPU, |_| 1.0)
        .series("gpu0", dimension::GPU_MEMORY, |_| 1.0)
        .span(span::WAIT, 0.0, 0.0, 0)
        .span(span::STEP, 0.0, 0.0, 0);
    judged(&machine.recording());
}

#[test]
fn a_series_without_any_number_takes_no_part() {
    for rule in judged(
        &Machine::new("algo-1", 100)
            .series("cpu0", dimension::CPU, |_| f32::NAN)
            .series("cpu0", dimension::IO_WAIT, |_| f32::NAN)
            .series("gpu0", dimension::GPU, |_| f32::NAN)
            .series("gpu1", dimension::GPU, |_| f32::NAN)
            .series("gpu0", dimension::GPU_MEMORY, |_| f32::NAN)
            .series("gpu0", dimension::GPU_THERMAL_THROTTLE, |_| f32::NAN)
            .series("memory", dimension::PRESSURE, |_| f32::NAN)
            .series("SwapUsedPercent", dimension::SWAP, |_| f32::NAN)
            .series("tree", dimension::PROCESS_READS, |_| f32::NAN)
            .series("tree", dimension::PROCESS_READ, |_| f32::NAN)
            .recording(),
    ) {
        assert!(!rule.triggered, "{rule:?}");
    }
}

#[test]
fn a_gap_is_no_time_of_a_finding() {
    // Ten minutes without samples in the middle of a bottleneck.
    let mut recording = Machine::new("algo-1", 200)
        .series("cpu0", dimension::CPU, |_| 99.0)
        .series("gpu0", dimension::GPU, |_| 1.0)
        .recording();
    for tick in &mut recording.nodes[0].ticks[100..] {
        *tick += 600.0;
    }
    let cpu = named(judged(&recording), "CPUBottleneck");
    assert_eq!((cpu.violations, cpu.datapoints), (200, 200));
    let seconds: f64 = cpu.evidence.iter().map(|one| one.to - one.from).sum();
    assert_eq!(cpu.evidence.len(), 2);
    assert_eq!(seconds, 200.0);
}

#[test]
fn one_machine_of_two_without_gpu() {
    let mut recording = Simulation {
        nodes: 2,
        gpus: 2,
        phases: vec![Phase::OneCore],
        seconds: 200.0,
        ..Simulation::default()
    }
    .recording();
    recording.nodes[1].series.retain(|series| series.kind != "gpu");
    let findings = judged(&recording);
    let cpu = named(findings.clone(), "CPUBottleneck");
    assert!(cpu.triggered);
    assert_eq!(
        cpu.details["judged_by"],
        serde_json::json!({"algo-1": "gpu", "algo-2": "trainer"})
    );
    let low = named(findings, "LowGPUUtilization");
    assert!(low.triggered && low.details.get("algo-2").is_none());
}

/// Any number, often one that is none.
fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -1e3..1e3f64,
        1 => Just(f64::NAN),
        1 => Just(f64::INFINITY),
        1 => Just(f64::NEG_INFINITY),
        1 => Just(f64::MAX),
        1 => Just(0.0),
    ]
}

fn any_node() -> impl Strategy<Value = Node> {
    let dimensions = prop::sample::select(vec![
        dimension::CPU,
        dimension::IO_WAIT,
        dimension::GPU,
        dimension::GPU_MEMORY,
        dimension::MEMORY,
        dimension::SWAP,
        dimension::NETWORK,
        dimension::PRESSURE,
        dimension::THROTTLED,
        dimension::PROCESS_CPU,
        dimension::PROCESS_READ,
        dimension::PROCESS_READS,
        dimension::GPU_THERMAL_THROTTLE,
        dimension::GPU_CLOCK,
    ]);
    let names = prop::sample::select(vec![
        "cpu0",
        "gpu0",
        "gpu1",
        "memory",
        "tree",
        "MemoryUsedPercent",
    ]);
    let ticks = prop::collection::vec(0.001..200.0f64, 0..40);
    let series = prop::collection::vec(
        (dimensions, names, prop::collection::vec(any_number(), 0..45)),
        0..12,
    );
    let span_names = prop::sample::select(vec![
        span::STEP,
        span::EVAL_STEP,
        span::WAIT,
        span::WORKER,
        span::READ,
        span::EPOCH,
    ]);
    let durations = prop_oneof![6 => 0.0..50.0f64, 1 => any_number()];
    let span = (
        span_names,
        -100.0..5e3f64,
        durations,
        prop::option::of(0..20u64),
        prop::option::of(0..4u32),
        prop::option::of(any::<u64>()),
    );
    (ticks, series, prop::collection::vec(span, 0..150)).prop_map(|(ticks, series, spans)| {
        let mut node = Node::default();
        let mut time = super::START;
        node.ticks = ticks
            .into_iter()
            .map(|between| {
                time += between;
                time
            })
            .collect();
        for (dimension, name, values) in series {
            node.series.push(Series {
                kind: "any".into(),
                name: name.into(),
                dimension: dimension.into(),
                // A reader gives a value for every tick; a rule must not rely on it.
                values: values.into_iter().map(|value| value as f32).collect(),
            });
        }
        for (name, start, duration, step, worker, bytes) in spans {
            let name = node.name(name);
            node.spans.push(Span {
                name,
                start: super::START + start,
                duration,
                step,
                worker,
                bytes,
            });
        }
        node
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn whatever_was_recorded_is_judged(mut nodes in prop::collection::vec(any_node(), 0..3)) {
        for (at, node) in nodes.iter_mut().enumerate() {
            node.name = format!("algo-{}", at + 1);
        }
        let mut recording = Recording { nodes, ..Recording::default() };
        recording.sort();
        judge(&recording, &Parameters::new(Defaults::Guide));
        let mut eager = Parameters::default();
        for rule in stokehold_diagnose::rules::Rule::ALL {
            for parameter in rule.parameters {
                // Everything fires as soon as it can.
                if ["patience", "threshold", "n_outliers", "stddev", "increase"].contains(&parameter.name) {
                    eager.set(&format!("{}_{}=0", rule.name, parameter.name)).unwrap();
                }
            }
        }
        for finding in judge(&recording, &eager) {
            prop_assert!(!finding.summary.is_empty());
        }
    }
}
