//! OverallSystemUsage and ProfilerReport.

use serde_json::{Value, json};
use stokehold_diagnose::rules::{Parameters, Rule, judge};
use stokehold_profile::dimension;

use super::{Machine, finding, named, quantile, recording};

#[test]
fn usage_has_the_published_shape_and_the_numbers_of_a_direct_computation() {
    let value = |at: usize, salt: usize| ((at * 31 + salt * 57) % 997) as f32 / 10.0;
    let machine = Machine::new("algo-1", 700)
        .series("cpu0", dimension::CPU, move |at| value(at, 0))
        .series("cpu1", dimension::CPU, move |at| value(at, 1))
        .series("cpu0", dimension::IO_WAIT, move |at| value(at, 2))
        .series("cpu1", dimension::IO_WAIT, move |at| value(at, 3))
        .series("gpu0", dimension::GPU, move |at| value(at, 4))
        .series("gpu1", dimension::GPU, move |at| value(at, 5))
        .series("gpu0", dimension::GPU_MEMORY, move |at| value(at, 6))
        .series("MemoryUsedPercent", dimension::MEMORY, move |at| value(at, 7))
        .series("ReceiveBytesPerSecond", dimension::NETWORK, move |at| {
            value(at, 8) * 1e6
        })
        .series("TransmitBytesPerSecond", dimension::NETWORK, move |at| {
            value(at, 9) * 1e6
        });
    let found = finding(&machine.recording(), "OverallSystemUsage", &[]);
    let expect = |of: &dyn Fn(usize) -> f64| -> Value {
        let q = |q: f64| {
            let mut values: Vec<f64> = (0..700).map(of).collect();
            values.sort_by(|a, b| a.partial_cmp(b).unwrap());
            let place = q * 699.0;
            let (low, high) = (values[place as usize], values[(place as usize + 1).min(699)]);
            ((low + (high - low) * place.fract()) * 100.0).round() / 100.0
        };
        json!({"algo-1": {"max": q(1.0), "p99": q(0.99), "p95": q(0.95), "p50": q(0.5), "min": q(0.0)}})
    };
    let v = |at, salt| f64::from(value(at, salt));
    let network = |salt: usize| move |at: usize| f64::from(value(at, salt) * 1e6);
    let expected = json!({
        "CPU": expect(&|at| (v(at, 0) + v(at, 1)) / 2.0),
        "I/O": expect(&|at| (v(at, 2) + v(at, 3)) / 2.0),
        "GPU": expect(&|at| (v(at, 4) + v(at, 5)) / 2.0),
        "GPU memory": expect(&|at| v(at, 6)),
        "CPU memory": expect(&|at| v(at, 7)),
        "Network": expect(&|at| network(8)(at) + network(9)(at)),
    });
    assert_eq!(found.details, expected);
    assert_eq!((found.triggered, found.datapoints), (false, 700));
    let json = found.published();
    assert_eq!(json["RuleParameters"], "");
    // The way that the published sample reads it.
    assert!(json["Details"]["CPU"]["algo-1"]["p95"].is_number());
    let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "Datapoints",
            "Details",
            "RuleParameters",
            "RuleTriggered",
            "Violations"
        ]
    );
}

#[test]
fn a_core_that_goes_offline_does_not_look_idle() {
    let machine = Machine::new("algo-1", 100)
        .series("cpu0", dimension::CPU, |_| 80.0)
        .series("cpu1", dimension::CPU, |at| if at < 30 { 80.0 } else { f32::NAN });
    let found = finding(&machine.recording(), "OverallSystemUsage", &[]);
    assert_eq!(found.details["CPU"]["algo-1"]["p50"], 80.0);
    assert_eq!(quantile([80.0, 80.0], 0.5), 80.0);
}

#[test]
fn the_report_fires_when_a_rule_does() {
    let starved = Machine::new("algo-2", 100)
        .series("cpu0", dimension::CPU, |_| 99.0)
        .series("gpu0", dimension::GPU, |_| 1.0);
    let idle = Machine::new("algo-1", 100).series("cpu0", dimension::CPU, |_| 10.0);
    let findings = judge(&recording([idle, starved]), &Parameters::default());
    let names: Vec<&str> = findings.iter().map(|finding| finding.rule).collect();
    let table: Vec<&str> = Rule::ALL.iter().map(|rule| rule.name).collect();
    assert_eq!(names, table);
    let fired = findings
        .iter()
        .filter(|one| one.triggered && one.rule != "ProfilerReport")
        .count();
    let report = named(findings, "ProfilerReport");
    assert!(report.triggered);
    assert_eq!(
        (report.violations as usize, report.datapoints as usize),
        (fired, Rule::ALL.len() - 1)
    );
    assert_eq!(report.details["CPUBottleneck"], true);
    assert_eq!(report.details["IOBottleneck"], false);
    let calm = judge(&Machine::new("algo-1", 100).recording(), &Parameters::default());
    assert!(!named(calm, "ProfilerReport").triggered);
}
