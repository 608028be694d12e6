//! CgroupThrottled, ThermalThrottle, MemoryPressure, Imbalance, Straggler, OtherPrograms.

use stokehold_profile::ranks::{RankTimes, RanksSummary};
use stokehold_profile::workload::Workload;
use stokehold_profile::{About, dimension, span};

use super::{Machine, START, finding, near, recording};

#[test]
fn throttling_of_the_cgroup_on_both_sides_of_every_threshold() {
    let run = |samples: usize, value: f32, set: &[&str]| {
        let machine = Machine::new("algo-1", 100).series("cpu", dimension::THROTTLED, move |at| {
            if at < samples { value } else { 0.0 }
        });
        finding(&machine.recording(), "CgroupThrottled", set)
    };
    assert!(run(11, 5.1, &[]).triggered);
    assert!(!run(10, 5.1, &[]).triggered, "threshold");
    assert!(run(10, 5.1, &["threshold=9"]).triggered);
    assert!(!run(11, 5.0, &[]).triggered, "throttled_threshold");
    assert!(run(11, 5.0, &["throttled_threshold=4"]).triggered);
    assert!(run(11, 5.1, &["patience=99"]).triggered);
    assert!(!run(11, 5.1, &["patience=100"]).triggered);
    let found = run(40, 50.0, &[]);
    assert_eq!((found.violations, found.datapoints), (40, 100));
    assert!(near(&found.details["algo-1"]["share"], 40.0) && near(&found.details["algo-1"]["p95"], 50.0));
    assert_eq!(
        (found.evidence[0].to - START, found.evidence[0].what.as_str()),
        (39.0, "cpu")
    );
}

#[test]
fn heat_on_both_sides_of_every_threshold() {
    let run = |samples: usize, set: &[&str]| {
        let hot = move |at: usize| (50..50 + samples).contains(&at);
        let machine = Machine::new("algo-1", 100)
            .series("gpu0", dimension::GPU_THERMAL_THROTTLE, |_| 0.0)
            .series("gpu1", dimension::GPU_THERMAL_THROTTLE, move |at| {
                if hot(at) { 100.0 } else { 0.0 }
            })
            .series(
                "gpu1",
                dimension::GPU_CLOCK,
                move |at| if hot(at) { 800.0 } else { 1500.0 },
            )
            .series("gpu1", dimension::GPU_TEMPERATURE, move |at| {
                if hot(at) { 90.0 } else { 60.0 }
            });
        finding(&machine.recording(), "ThermalThrottle", set)
    };
    assert!(run(6, &[]).triggered);
    assert!(!run(5, &[]).triggered, "threshold");
    assert!(run(5, &["threshold=4.9"]).triggered);
    assert!(run(6, &["patience=99"]).triggered);
    assert!(!run(6, &["patience=100"]).triggered);
    let found = run(20, &[]);
    let gpu = &found.details["algo-1"]["gpu1"];
    assert!(
        near(&gpu["clock_throttled"], 800.0) && near(&gpu["clock"], 1500.0),
        "{gpu}"
    );
    assert!(
        near(&gpu["temperature_throttled"], 90.0) && near(&gpu["share"], 20.0),
        "{gpu}"
    );
    assert_eq!(found.evidence.len(), 1);
    let one = &found.evidence[0];
    assert_eq!(
        (one.what.as_str(), one.from - START, one.to - START),
        ("gpu1", 49.0, 69.0)
    );
}

#[test]
fn memory_pressure_on_both_sides_of_every_threshold() {
    let run = |samples: usize, stall: f32, swap: f32, set: &[&str]| {
        let machine = Machine::new("algo-1", 100)
            .series("memory", dimension::PRESSURE, move |at| {
                if at < samples { stall } else { 0.0 }
            })
            .series("cpu", dimension::PRESSURE, |_| 100.0)
            // Falls from 30 to 5, then rises.
            .series("SwapUsedPercent", dimension::SWAP, move |at| match at {
                0..20 => 30.0,
                20..60 => 5.0,
                _ => 5.0 + swap,
            });
        finding(&machine.recording(), "MemoryPressure", set)
    };
    assert!(run(6, 10.1, 0.0, &[]).triggered);
    assert!(!run(5, 10.1, 0.0, &[]).triggered, "threshold");
    assert!(run(5, 10.1, 0.0, &["threshold=4"]).triggered);
    assert!(!run(6, 10.0, 0.0, &[]).triggered, "pressure_threshold");
    assert!(run(6, 10.0, 0.0, &["pressure_threshold=9"]).triggered);
    assert!(!run(6, 10.1, 0.0, &["patience=100"]).triggered);
    let swaps = run(0, 0.0, 10.5, &[]);
    assert!(swaps.triggered);
    assert!(near(&swaps.details["algo-1"]["swap_rise"], 10.5));
    let one = &swaps.evidence[0];
    assert_eq!(
        (one.what.as_str(), one.from - START, one.to - START),
        ("swap", 20.0, 60.0)
    );
    assert!(!run(0, 0.0, 10.0, &[]).triggered, "swap_threshold");
    assert!(run(0, 0.0, 10.0, &["swap_threshold=9.5"]).triggered);
}

#[test]
fn imbalance_on_both_sides_of_its_threshold() {
    // Two machines of 100 steps, 10 s apart; the second one waits and computes as given in the second half.
    let run = |wait: f64, compute: f64, set: &[&str]| {
        let machine = |name: &str, wait: f64, compute: f64| {
            Machine::new(name, 1000).spans((0..100).flat_map(move |step| {
                let (wait, compute) = if step < 50 { (1.0, 4.0) } else { (wait, compute) };
                let from = 10.0 * step as f64;
                [
                    (span::WAIT, from, wait, step),
                    (span::STEP, from + wait, compute, step),
                ]
            }))
        };
        finding(
            &recording([machine("algo-1", 1.0, 4.0), machine("algo-2", wait, compute)]),
            "Imbalance",
            set,
        )
    };
    // With x more to compute in half of the steps, the means are 5 and 5 + x / 2, their mean 5 + x / 4: the difference
    // x / 2 is a fifth of it at x = 2.2222.
    assert!(run(1.0, 4.0 + 2.23, &[]).triggered);
    assert!(!run(1.0, 4.0 + 2.21, &[]).triggered, "threshold");
    assert!(run(1.0, 4.0 + 2.21, &["threshold=19"]).triggered);
    assert!(run(1.0 + 2.23, 4.0, &[]).triggered);
    assert!(!run(1.0 + 2.21, 4.0, &[]).triggered, "threshold");
    assert!(run(1.0, 8.0, &["patience=99"]).triggered);
    assert!(!run(1.0, 8.0, &["patience=100"]).triggered);
    let found = run(4.0, 4.0, &[]);
    assert!(
        found
            .summary
            .contains("algo-2 waits for data longest, 2.500 s on average where the shortest is 1.000 s")
    );
    assert!(
        near(&found.details["wait_difference"], 100.0 * 1.5 / 5.75),
        "{}",
        found.details
    );
    assert_eq!(found.datapoints, 200);
    assert_eq!(found.evidence.len(), 1);
    let one = &found.evidence[0];
    assert_eq!(one.node, "algo-2");
    // In fiftieths of the 995 s that both have steps in.
    assert!(
        (one.from - START - 500.0).abs() < 20.0 && (one.to - START - 995.0).abs() < 20.0,
        "{one:?}"
    );
}

#[test]
fn a_straggler_is_named_with_its_cause_on_both_sides_of_its_threshold() {
    // Three ranks of 100 steps and 100 s; the others wait so long for rank 2, whose loader is slow.
    let run = |wait: f64, set: &[&str]| {
        let times = |rank: usize| RankTimes {
            host: format!("node{rank}"),
            steps: 100,
            loading: if rank == 2 { 1.0 + wait } else { 1.0 },
            computing: 80.0,
            waiting: if rank == 2 { 0.0 } else { wait },
            reducing: 19.0 - wait,
            between: 0.0,
            others_cores: Some(0.0),
        };
        let ranks = RanksSummary {
            accumulate: 1,
            times: [0, 1, 2].map(times).into(),
        };
        let mut recording = Machine::new("algo-1", 100)
            .spans((0..100).map(|step| (span::RANKS_WAIT, step as f64, wait / 100.0, step)))
            .recording();
        recording.about = Some(About {
            stokehold: "0.1.0".to_owned(),
            command: Vec::new(),
            started: START,
            ended: Some(START + 100.0),
            exit_code: None,
            interval_ms: 500,
            machine: stokehold_profile::Machine::here(),
            workload: Some(Workload {
                ranks: Some(ranks),
                ..Workload::default()
            }),
            paused: None,
            idle_seconds: 0.0,
            notes: Vec::new(),
        });
        finding(&recording, "Straggler", set)
    };
    let found = run(5.1, &[]);
    assert!(found.triggered, "{found:?}");
    assert!(
        found.summary.starts_with(
            "The others wait 5 % of the time for rank 2 on node2: its loader takes 51.0 ms longer a step"
        ),
        "{found:?}"
    );
    assert_eq!(found.details["slowest"]["rank"], 2);
    assert!(near(&found.details["slowest"]["share"], 5.1));
    let [evidence] = &found.evidence[..] else {
        panic!("{found:?}")
    };
    assert_eq!((evidence.what.as_str(), evidence.from), ("rank 2", START));
    assert!(!run(4.9, &[]).triggered, "threshold");
    assert!(run(4.9, &["threshold=4.8"]).triggered);
    assert!(run(5.1, &["patience=99"]).triggered);
    assert!(!run(5.1, &["patience=100"]).triggered);
    let alone = finding(&Machine::new("algo-1", 100).recording(), "Straggler", &[]);
    assert!(!alone.judged && !alone.triggered);
}

#[test]
fn other_programs_on_both_sides_of_every_threshold() {
    // Two cores, of which others take `value` percent of one in the first samples.
    let run = |samples: usize, value: f32, set: &[&str]| {
        let machine = Machine::new("algo-1", 100)
            .series("cpu0", dimension::CPU, |_| 99.0)
            .series("cpu1", dimension::CPU, |_| 99.0)
            .series("tree", dimension::TREE_CPU, |_| 40.0)
            .series("others", dimension::OTHERS_CPU, move |at| {
                if at < samples { value } else { 0.0 }
            });
        finding(&machine.recording(), "OtherPrograms", set)
    };
    assert!(run(21, 50.1, &[]).triggered);
    assert!(!run(20, 50.1, &[]).triggered, "threshold");
    assert!(run(20, 50.1, &["threshold=19"]).triggered);
    assert!(!run(21, 50.0, &[]).triggered, "others_threshold");
    assert!(run(21, 50.0, &["others_threshold=24"]).triggered);
    assert!(run(21, 50.1, &["patience=99"]).triggered);
    assert!(!run(21, 50.1, &["patience=100"]).triggered);
    let found = run(50, 100.0, &[]);
    assert_eq!((found.violations, found.datapoints), (50, 100));
    assert_eq!(found.evidence[0].to - START, 49.0);
    let details = &found.details["algo-1"];
    assert!(
        near(&details["others"], 0.5) && near(&details["run"], 0.4) && near(&details["share"], 50.0),
        "{details}"
    );
}
