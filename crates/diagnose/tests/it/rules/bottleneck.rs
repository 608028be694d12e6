//! CPUBottleneck and IOBottleneck.

use stokehold_profile::{dimension, span};

use super::{Machine, START, finding, recording};

/// Both rules, with the series and the threshold that makes a core full.
const BOTH: [(&str, &str, f32, &str); 2] = [
    ("CPUBottleneck", dimension::CPU, 90.0, "cpu_threshold"),
    ("IOBottleneck", dimension::IO_WAIT, 50.0, "io_threshold"),
];

#[test]
fn both_sides_of_every_threshold() {
    for (rule, dimension, full, core_threshold) in BOTH {
        // 100 snapshots, of which the first 51 or 50 are bottlenecks: a core just above, a GPU just below.
        let run = |bottlenecks: usize, core: f32, gpu: f32, set: &[&str]| {
            let machine = Machine::new("algo-1", 100)
                .series("cpu0", dimension, |_| 1.0)
                .series(
                    "cpu1",
                    dimension,
                    move |at| if at < bottlenecks { core } else { 1.0 },
                )
                .series("gpu0", dimension::GPU, move |_| gpu)
                .series("gpu1", dimension::GPU, |_| 99.0);
            finding(&machine.recording(), rule, set)
        };
        let fires = |bottlenecks, core, gpu, set: &[&str]| run(bottlenecks, core, gpu, set).triggered;
        let above = full + 0.01;
        assert!(fires(51, above, 9.99, &["patience=0"]));
        assert!(!fires(50, above, 9.99, &["patience=0"]), "threshold");
        assert!(fires(50, above, 9.99, &["patience=0", "threshold=49.9"]));
        assert!(!fires(51, full, 9.99, &["patience=0"]), "core");
        assert!(fires(
            51,
            full,
            9.99,
            &["patience=0", &format!("{core_threshold}={}", full - 1.0)]
        ));
        assert!(!fires(51, above, 10.0, &["patience=0"]), "GPU");
        assert!(fires(51, above, 10.0, &["patience=0", "gpu_threshold=11"]));
        assert!(fires(51, above, 9.99, &["patience=99"]));
        assert!(!fires(51, above, 9.99, &["patience=100"]), "patience");
        let patient = run(51, above, 9.99, &["patience=100"]);
        assert_eq!(patient.violations, 51);
        assert!(
            patient
                .summary
                .contains("Not judged before more than 100 samples"),
            "{}",
            patient.summary
        );
    }
}

#[test]
fn numbers_and_evidence_are_those_of_a_count() {
    for (rule, dimension, _, _) in BOTH {
        let (cores, gpus): (usize, usize) = (5, 3);
        let core = |at: usize, core: usize| ((at * 37 + core * 61) % 101) as f32;
        let gpu = |at: usize, gpu: usize| ((at * 13 + gpu * 29) % 43) as f32;
        let mut machine = Machine::new("algo-1", 500);
        for number in 0..cores {
            machine = machine.series(&format!("cpu{number}"), dimension, move |at| core(at, number));
        }
        for number in 0..gpus {
            machine = machine.series(&format!("gpu{number}"), dimension::GPU, move |at| gpu(at, number));
        }
        let limit = if rule == "CPUBottleneck" { 90.0 } else { 50.0 };
        let (mut bottlenecks, mut low) = (serde_json::Map::new(), 0);
        for at in 0..500 {
            let idle = (0..gpus).filter(|number| gpu(at, *number) < 10.0).count();
            let full = (0..cores).filter(|number| core(at, *number) > limit).count();
            low += usize::from(idle > 0);
            if idle > 0 && full > 0 {
                bottlenecks.insert(
                    (START + at as f64).to_string(),
                    serde_json::json!({"GPUs": idle, "CPUs": full}),
                );
            }
        }
        let found = finding(&machine.recording(), rule, &["patience=0", "threshold=1"]);
        assert_eq!(found.violations as usize, bottlenecks.len());
        assert_eq!(found.datapoints, 500);
        assert_eq!(
            found.details["bottlenecks"],
            serde_json::Value::Object(bottlenecks)
        );
        assert_eq!(found.details["low_gpu_utilization"], low);
        let json = found.published();
        let core_threshold = if rule == "CPUBottleneck" {
            "cpu_threshold:90"
        } else {
            "io_threshold:50"
        };
        assert_eq!(
            json["RuleParameters"],
            format!("threshold:1\n{core_threshold}\ngpu_threshold:10\npatience:0")
        );
        assert_eq!(
            (&json["RuleTriggered"], &json["Datapoints"]),
            (&1.into(), &500.into())
        );
    }
}

#[test]
fn evidence_says_when_which_core_and_which_steps() {
    let machine = Machine::new("algo-1", 400)
        .series("cpu0", dimension::CPU, |_| 20.0)
        .series("cpu1", dimension::CPU, |at| {
            if (100..160).contains(&at) { 99.0 } else { 20.0 }
        })
        .series("cpu2", dimension::CPU, |at| {
            if (300..320).contains(&at) { 99.0 } else { 20.0 }
        })
        .series("gpu0", dimension::GPU, |_| 5.0)
        .spans((0..39).map(|step| (span::STEP, 10.0 * step as f64, 9.0, step)));
    let found = finding(
        &machine.recording(),
        "CPUBottleneck",
        &["patience=0", "threshold=10"],
    );
    // A sample tells of the second before it.
    let seen: Vec<_> = found
        .evidence
        .iter()
        .map(|one| (one.from - START, one.to - START, one.what.as_str(), one.steps))
        .collect();
    assert_eq!(
        seen,
        [
            (99.0, 159.0, "cpu1", Some((10, 15))),
            (299.0, 319.0, "cpu2", Some((30, 31)))
        ]
    );
    assert!(
        found
            .summary
            .contains("100 s to 160 s (cpu1), 300 s to 320 s (cpu2)"),
        "{}",
        found.summary
    );
    assert!(!found.recommendation.is_empty());
}

#[test]
fn without_a_gpu_the_waiting_trainer_stands_for_it() {
    for (rule, dimension, full, _) in BOTH {
        // Of every second the trainer waits the first `wait` and computes the rest.
        let run = |wait: f64, set: &[&str]| {
            let spans = (0..200).flat_map(|at| {
                let from = at as f64;
                [
                    (span::WAIT, from, wait, at),
                    (span::STEP, from + wait, 1.0 - wait, at),
                ]
            });
            let machine = Machine::new("algo-1", 200)
                .series("cpu0", dimension, move |_| full + 1.0)
                .spans(spans);
            finding(&machine.recording(), rule, set)
        };
        assert!(run(0.91, &["patience=0"]).triggered);
        assert!(!run(0.89, &["patience=0"]).triggered);
        assert!(run(0.31, &["patience=0", "gpu_threshold=70"]).triggered);
        assert!(!run(0.29, &["patience=0", "gpu_threshold=70"]).triggered);
        let found = run(0.95, &["patience=0"]);
        assert_eq!(found.details["judged_by"]["algo-1"], "trainer");
        assert!(
            found.summary.contains("its waiting stands for an idle GPU"),
            "{}",
            found.summary
        );
    }
}

#[test]
fn with_neither_gpu_nor_steps_cores_alone_are_judged() {
    let run = |cores: [f32; 3], process: f32| {
        let mut machine =
            Machine::new("algo-1", 100).series("7 python3", dimension::PROCESS_CPU, move |_| process);
        for (number, busy) in cores.into_iter().enumerate() {
            machine = machine.series(&format!("cpu{number}"), dimension::CPU, move |_| busy);
        }
        finding(&machine.recording(), "CPUBottleneck", &["patience=0"])
    };
    let one = run([3.0, 95.0, 20.0], 0.0);
    assert!(one.triggered);
    assert_eq!(one.evidence[0].what, "cpu1");
    assert!(one.summary.contains("cores alone are judged"), "{}", one.summary);
    assert!(!run([3.0, 90.0, 20.0], 0.0).triggered, "no core is full");
    assert!(run([49.0, 95.0, 50.0], 0.0).triggered);
    assert!(
        !run([50.0, 95.0, 50.0], 0.0).triggered,
        "the others have no room: all cores work"
    );
    // One thread that the kernel moves about fills no core, but its process is one core busy.
    let moved = run([35.0, 34.0, 33.0], 99.0);
    assert!(moved.triggered);
    assert_eq!(moved.evidence[0].what, "7 python3");
    assert!(!run([35.0, 34.0, 33.0], 90.0).triggered);
    assert!(
        !run([45.0, 44.0, 43.0], 132.0).triggered,
        "several busy threads are not one"
    );

    let io = |wait: f32| {
        let machine = Machine::new("algo-1", 100).series("cpu0", dimension::IO_WAIT, move |_| wait);
        finding(&machine.recording(), "IOBottleneck", &["patience=0"])
    };
    assert!(io(50.1).triggered);
    assert!(!io(50.0).triggered);
}

/// A task that waits for storage on cores that others keep busy.
#[test]
fn pressure_tells_of_waits_that_busy_cores_hide() {
    let run = |pressure: f32, gpus: bool| {
        let machine = Machine::new("algo-1", 100)
            .series("cpu0", dimension::IO_WAIT, |_| 0.0)
            .series("io", dimension::PRESSURE, move |_| pressure)
            .series("memory", dimension::PRESSURE, |_| 99.0);
        let machine = if gpus {
            machine.series("gpu0", dimension::GPU, |_| 0.0)
        } else {
            machine
        };
        finding(&machine.recording(), "IOBottleneck", &["patience=0"])
    };
    let found = run(50.1, false);
    assert!(found.triggered);
    assert_eq!(found.evidence[0].what, "storage");
    assert!(!run(50.0, false).triggered);
    assert!(
        !run(99.0, true).triggered,
        "with a GPU the rule is the published one"
    );
}

#[test]
fn each_machine_is_judged_by_what_it_has() {
    let starved = Machine::new("algo-2", 100)
        .series("cpu0", dimension::CPU, |_| 99.0)
        .series("gpu0", dimension::GPU, |_| 1.0);
    // A machine without GPU, whose full core is no one's bottleneck as its trainer never waits.
    let busy = Machine::new("algo-1", 100)
        .series("cpu0", dimension::CPU, |_| 99.0)
        .spans((0..100).map(|at| (span::STEP, at as f64 - 0.5, 1.0, at)));
    let found = finding(&recording([starved, busy]), "CPUBottleneck", &["patience=99"]);
    assert!(found.triggered);
    assert_eq!((found.violations, found.datapoints), (100, 200));
    assert!(found.evidence.iter().all(|one| one.node == "algo-2"));
    assert_eq!(
        found.details["judged_by"],
        serde_json::json!({"algo-1": "trainer", "algo-2": "gpu"})
    );
}

#[test]
fn one_machine_that_was_looked_at_long_enough_is_enough() {
    let quiet = |name, samples| {
        Machine::new(name, samples)
            .series("cpu0", dimension::CPU, |_| 50.0)
            .series("gpu0", dimension::GPU, |_| 99.0)
    };
    let judged = |machines| finding(&recording(machines), "CPUBottleneck", &["patience=50"]).judged;
    assert!(judged([quiet("algo-1", 100), quiet("algo-2", 20)]));
    assert!(!judged([quiet("algo-1", 50), quiet("algo-2", 20)]));
}

#[test]
fn a_long_list_of_bottlenecks_is_thinned_and_says_so() {
    let machine = Machine::new("algo-1", 25_000)
        .series("cpu0", dimension::CPU, |_| 99.0)
        .series("gpu0", dimension::GPU, |_| 1.0);
    let found = finding(&machine.recording(), "CPUBottleneck", &[]);
    assert_eq!(found.violations, 25_000);
    assert_eq!(found.details["every"], 3);
    assert_eq!(found.details["bottlenecks"].as_object().unwrap().len(), 8334);
}
