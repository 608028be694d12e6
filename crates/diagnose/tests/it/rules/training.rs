//! Rules on steps: StepOutlier, MaxInitializationTime, OverallFrameworkMetrics.

use stokehold_profile::{dimension, span};

use super::{Machine, START, finding, near};

/// One training step a second, of the durations given.
fn steps(durations: &[f64]) -> Machine {
    Machine::new("algo-1", durations.len()).spans(
        durations
            .iter()
            .zip(0..)
            .map(|(duration, step)| (span::STEP, step as f64, *duration, step)),
    )
}

#[test]
fn step_outliers_are_those_of_a_direct_computation() {
    let duration = |step: u64| 0.1 + (step * 7 % 13) as f64 / 1000.0 + if step % 20 == 5 { 0.7 } else { 0.0 };
    let durations: Vec<f64> = (0..300).map(duration).collect();
    let found = finding(&steps(&durations).recording(), "StepOutlier", &["stddev=2"]);
    let mean = durations.iter().sum::<f64>() / 300.0;
    let deviation = (durations
        .iter()
        .map(|one| (one - mean) * (one - mean))
        .sum::<f64>()
        / 300.0)
        .sqrt();
    let limit = mean + 2.0 * deviation;
    let outliers: Vec<u64> = (0..300).filter(|step| duration(*step) > limit).collect();
    assert_eq!(outliers.len(), 15);
    assert!(found.triggered);
    assert_eq!((found.violations, found.datapoints), (15, 300));
    let details = &found.details["step_details"]["algo-1"];
    let stats = &details["step_stats"];
    let q = |q| super::quantile(durations.iter().map(|one| *one as f32), q);
    assert!(near(&stats["mean"], mean), "{stats}");
    for (name, at) in [
        ("max", 1.0),
        ("p99", 0.99),
        ("p95", 0.95),
        ("p50", 0.5),
        ("min", 0.0),
    ] {
        // The direct computation is in single precision.
        assert!(
            (stats[name].as_f64().unwrap() - q(at)).abs() < 1e-6,
            "{name}: {stats}"
        );
    }
    assert_eq!(details["number_of_outliers"], 15);
    assert_eq!(details["phase"], "Step:ModeKeys.TRAIN");
    assert_eq!(details["stddev"], (deviation * 100.0).round() / 100.0);
    assert_eq!(details["step_numbers"], serde_json::json!(outliers));
    // The histogram of the others.
    let normal: Vec<f64> = durations.iter().copied().filter(|one| *one < limit).collect();
    let (least, most) = (0.1, 0.112);
    let edges = details["binedges"].as_array().unwrap();
    assert_eq!(edges.len(), 101);
    assert!(
        near(&edges[0], least) && near(&edges[100], most) && near(&edges[50], 0.106),
        "{edges:?}"
    );
    let counts: Vec<u64> = details["probs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one.as_u64().unwrap())
        .collect();
    assert_eq!(
        (counts.len(), counts.iter().sum::<u64>()),
        (100, normal.len() as u64)
    );
    assert_eq!(
        counts[99],
        normal.iter().filter(|one| **one > 0.1119).count() as u64
    );
    assert_eq!(
        found.published()["RuleParameters"],
        "threshold:2\nmode:None\nn_outliers:10\nstddev:2"
    );
    assert_eq!(found.evidence.len(), 15);
    assert_eq!(found.evidence[0].steps, Some((5, 5)));
}

#[test]
fn step_outlier_on_both_sides_of_every_threshold() {
    // `outliers` steps of 1 s among steps of 0.1 s.
    let run = |steps_in_all: u64, outliers: u64, set: &[&str]| {
        let every = steps_in_all / outliers;
        let long = |step: u64| step.is_multiple_of(every) && step / every < outliers;
        let durations: Vec<f64> = (0..steps_in_all)
            .map(|step| if long(step) { 1.0 } else { 0.1 })
            .collect();
        finding(&steps(&durations).recording(), "StepOutlier", set)
    };
    assert!(run(300, 11, &[]).triggered);
    assert!(!run(300, 10, &[]).triggered, "n_outliers");
    assert!(run(300, 10, &["n_outliers=9"]).triggered);
    // With a share p of outliers they lie sqrt((1 - p) / p) deviations above the mean: 3 at a tenth.
    assert!(run(300, 29, &[]).triggered);
    assert!(!run(300, 31, &[]).triggered, "stddev");
    assert!(run(300, 31, &["stddev=2.9"]).triggered);
    assert!(run(101, 11, &["stddev=1"]).triggered);
    let few = run(100, 11, &["stddev=1"]);
    assert!(!few.triggered, "more than 100 steps");
    assert!(few.summary.contains("there are 100 steps"), "{}", few.summary);
    assert!(run(300, 11, &["mode=TRAIN"]).triggered);
    assert!(!run(300, 11, &["mode=EVAL"]).triggered);
}

#[test]
fn initialization_on_both_sides_of_its_threshold() {
    let run = |step: Option<f64>, samples: usize, set: &[&str]| {
        let machine = Machine::new("algo-1", samples)
            .series("cpu0", dimension::CPU, |_| 1.0)
            .span("phase", 1.0, 1.0, 0)
            .spans(step.map(|start| (span::EVAL_STEP, start, 1.0, 3)));
        finding(&machine.recording(), "MaxInitializationTime", set)
    };
    assert!(!run(Some(1200.0), 1300, &[]).triggered);
    assert!(run(Some(1200.5), 1300, &[]).triggered);
    assert!(run(Some(31.0), 100, &["threshold=0.5"]).triggered);
    assert!(!run(Some(29.0), 100, &["threshold=0.5"]).triggered);
    assert!(!run(None, 1201, &[]).triggered);
    let never = run(None, 1202, &[]);
    assert!(never.triggered);
    assert_eq!(
        (never.details["step_num"].clone(), never.evidence[0].to - START),
        (serde_json::json!({}), 1201.0)
    );
    assert_eq!(never.published()["RuleParameters"], "threshold:20");
}

#[test]
fn initialization_gives_the_times_of_the_published_report() {
    let machine =
        Machine::new("algo-1", 100).spans((0..5).map(|step| (span::STEP, 10.0 + step as f64, 0.5, step)));
    let found = finding(&machine.recording(), "MaxInitializationTime", &[]);
    let micros = |seconds: f64| ((START + seconds) * 1e6) as u64;
    assert_eq!(
        found.details,
        serde_json::json!({
            "job_start": START,
            "job_end": START + 99.0,
            "step_num": {"first": micros(10.0), "last": micros(14.0)},
        })
    );
    assert_eq!(found.datapoints, 5);
    let unmarked = Machine::new("algo-1", 5000)
        .series("cpu0", dimension::CPU, |_| 1.0)
        .recording();
    let found = finding(&unmarked, "MaxInitializationTime", &[]);
    assert!(
        !found.triggered && found.summary.contains("no steps were recorded"),
        "{}",
        found.summary
    );
}

#[test]
fn time_per_phase_is_added_up() {
    // Training steps of 2 s every 4 s and one of validation of 3 s: from second 0 to 41.
    let machine = Machine::new("algo-1", 50)
        .spans((0..10).map(|step| (span::STEP, 4.0 * step as f64, 2.0, step)))
        .span(span::EVAL_STEP, 38.0, 3.0, 0)
        .span(span::WAIT, 2.0, 1.5, 1)
        .span("checkpoint", 6.0, 0.5, 1);
    let found = finding(&machine.recording(), "OverallFrameworkMetrics", &[]);
    assert!(!found.triggered);
    assert_eq!(found.datapoints, 13);
    let time = |name: &str| found.details["phase_time"][name].as_f64().unwrap();
    assert_eq!(
        [
            time("Step:ModeKeys.TRAIN"),
            time("Step:ModeKeys.EVAL"),
            time("others")
        ],
        [20.0, 3.0, 18.0]
    );
    assert!(near(
        &found.details["phase"]["Step:ModeKeys.TRAIN"],
        100.0 * 20.0 / 41.0
    ));
    assert!(near(&found.details["general"]["DataLoaderIter"], 75.0));
    assert!(near(&found.details["general_time"]["checkpoint"], 0.5));
}
