//! Rules on the loader: Dataloader, LoaderBound, PreprocessOnTrainerCores, SmallFiles.

use stokehold_profile::{Recording, Span, dimension, span};

use stokehold_profile::workload::{ScriptLoader, Workload};
use stokehold_simulate::Simulation;

use super::{Machine, START, finding, near};

/// Adds spans of workers or reads: name, start, duration, worker, bytes.
fn with(
    mut recording: Recording,
    spans: impl IntoIterator<Item = (&'static str, f64, f64, u32, Option<u64>)>,
) -> Recording {
    let node = &mut recording.nodes[0];
    for (name, from, duration, worker, bytes) in spans {
        let name = node.name(name);
        node.spans.push(Span {
            name,
            start: START + from,
            duration,
            step: None,
            worker: Some(worker),
            bytes,
        });
    }
    recording.sort();
    recording
}

fn cores(count: usize, ticks: usize, busy: f32) -> Machine {
    (0..count).fold(Machine::new("algo-1", ticks), |machine, core| {
        machine.series(&format!("cpu{core}"), dimension::CPU, move |_| busy)
    })
}

/// Four workers on four cores, each with 1.5 threads that compute.
#[test]
fn loader_threads_on_both_sides_of_every_threshold() {
    let run = |threads: f64, workers: u64, set: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        Simulation::default().write(dir.path()).unwrap();
        let mut recording = Recording::open(dir.path()).unwrap();
        recording.about.as_mut().unwrap().workload = Some(Workload {
            num_workers: workers,
            cores: 4,
            script: Some(ScriptLoader {
                worker_threads: threads,
                ..ScriptLoader::default()
            }),
            ..Workload::default()
        });
        finding(&recording, "LoaderThreads", set)
    };
    assert!(run(1.51, 4, &[]).triggered);
    assert!(!run(1.5, 4, &[]).triggered, "threshold");
    assert!(run(1.5, 4, &["threshold=1.4"]).triggered);
    // Cores that no worker has are free for threads.
    assert!(run(2.1, 2, &[]).triggered && !run(2.0, 2, &[]).triggered);
    let found = run(3.8, 4, &[]);
    for way in [
        "torch.set_num_threads(1)",
        "cv2.setNumThreads(0)",
        "OMP_NUM_THREADS=1",
    ] {
        assert!(found.recommendation.contains(way), "{found:?}");
    }
    assert!(!run(0.0, 0, &[]).judged);
    assert!(!finding(&cores(4, 20, 1.0).recording(), "LoaderThreads", &[]).judged);
}

#[test]
fn dataloader_on_both_sides_of_every_threshold() {
    // Every worker is busy for half of each second.
    let run = |workers: u32, seconds: u32, set: &[&str]| {
        let spans = (0..seconds).flat_map(|second| {
            (0..workers).map(move |worker| (span::WORKER, f64::from(second) + 0.1, 0.5, worker, None))
        });
        finding(&with(cores(10, 20, 1.0).recording(), spans), "Dataloader", set)
    };
    assert!(run(6, 11, &[]).triggered);
    assert!(!run(7, 11, &[]).triggered, "min_threshold");
    assert!(!run(6, 11, &["min_threshold=60"]).triggered);
    assert!(!run(20, 11, &[]).triggered);
    assert!(run(21, 11, &[]).triggered, "max_threshold");
    assert!(run(20, 11, &["max_threshold=199"]).triggered);
    assert!(!run(6, 10, &[]).triggered, "more than 10 seconds");
    let found = run(6, 11, &[]);
    let details = &found.details;
    assert_eq!(
        (
            &details["cores"],
            &details["dataloaders"],
            &details["num_workers"]
        ),
        (&10.into(), &6.into(), &6.into())
    );
    assert_eq!(found.datapoints, 66);
    assert!(near(&details["dataloading_time"]["p50"], 0.5));
    assert_eq!(
        details["dataloading_time"]["probs"].as_array().unwrap().len(),
        100
    );
    assert_eq!(
        details["dataloading_time"]["binedges"].as_array().unwrap().len(),
        101
    );
    assert_eq!(
        found.published()["RuleParameters"],
        "min_threshold:70\nmax_threshold:200"
    );
}

#[test]
fn a_slow_worker_is_busy_in_every_second_of_its_work() {
    // Eight workers, each 8 s for a batch, one beginning every second.
    let spans = (0..80u32).map(|at| (span::WORKER, f64::from(at), 8.0, at % 8, None));
    let found = finding(&with(cores(8, 90, 1.0).recording(), spans), "Dataloader", &[]);
    assert_eq!(found.details["dataloaders"], 8);
    assert!(!found.triggered, "{found:?}");
}

#[test]
fn loader_bound_on_both_sides_of_every_threshold() {
    // Of 100 steps of 0.8 s, `late` wait as long as `wait` says.
    let run = |late: u64, wait: f64, set: &[&str]| {
        let spans = (0..100).flat_map(|step| {
            let from = 0.8 * step as f64 + wait * step.min(late) as f64;
            let wait = if step < late { wait } else { 0.0 };
            [
                (span::WAIT, from, wait, step),
                (span::STEP, from + wait, 0.8, step),
            ]
        });
        finding(
            &Machine::new("algo-1", 1000).spans(spans).recording(),
            "LoaderBound",
            set,
        )
    };
    assert!(run(26, 0.21, &[]).triggered);
    assert!(!run(25, 0.21, &[]).triggered, "threshold");
    assert!(
        !run(26, 0.2, &[]).triggered,
        "wait_threshold: 0.2 of 1.0 is no more than 20 %"
    );
    assert!(run(26, 0.2, &["wait_threshold=19"]).triggered);
    // Ten steps wait so long that of all time 20 % is waiting: x / (x + 80) = 0.2 for x = 20.
    assert!(run(10, 2.01, &[]).triggered);
    assert!(!run(10, 1.99, &[]).triggered, "total_threshold");
    assert!(run(10, 1.99, &["total_threshold=19"]).triggered);
    assert!(run(26, 0.21, &["patience=99"]).triggered);
    assert!(!run(26, 0.21, &["patience=100"]).triggered);
    // Many short waits are not a loader that has to be quicker before all else: 30 of 0.4 s next to 80 s of steps.
    let found = run(30, 0.4, &[]);
    assert!(
        found.recommendation.contains("would gain at most 13 %"),
        "{found:?}"
    );
    let found = run(30, 1.0, &[]);
    assert!(
        found.recommendation.starts_with("Make batches come faster"),
        "{found:?}"
    );
    let found = run(30, 0.4, &[]);
    let details = &found.details["algo-1"];
    assert_eq!((found.violations, found.datapoints), (30, 100));
    assert!(
        near(&details["wait_share"], 100.0 * 12.0 / 92.0) && near(&details["steps_waited_share"], 30.0),
        "{details}"
    );
    assert!(
        near(&details["wait_seconds"], 12.0) && near(&details["wait"]["p50"], 0.0),
        "{details}"
    );
    assert_eq!(found.evidence.len(), 1);
    let one = &found.evidence[0];
    // Times of today are known to a quarter of a microsecond.
    assert!(
        (one.from - START).abs() < 1e-6 && (one.to - START - 36.0).abs() < 1e-6,
        "{one:?}"
    );
    assert_eq!((one.what.as_str(), one.steps), ("trainer", Some((0, 29))));
}

/// A script's step ends with `optimizer.step()`, and it works on until it asks for the next batch. What else is recorded is no work of
/// the step.
#[test]
fn work_after_a_step_is_the_steps() {
    let run = |work: f64, more: Option<&'static str>| {
        let length = 0.01 + 0.001 + work;
        let spans = (0..150).flat_map(move |step| {
            let from = length * step as f64;
            let more = more.map(|name| (name, from + 0.011, work, step));
            [
                (span::WAIT, from, 0.01, step),
                (span::STEP, from + 0.01, 0.001, step),
            ]
            .into_iter()
            .chain(more)
        });
        finding(
            &Machine::new("algo-1", 20).spans(spans).recording(),
            "LoaderBound",
            &[],
        )
    };
    let found = run(0.05, None);
    assert!(!found.triggered && found.judged, "{found:?}");
    // Nothing says for how long the last step lasts.
    let says = "On algo-1, 1 of 150 steps (1 %) waited for data; the trainer waited 1.5 s of 9.1 s (16 %)";
    assert!(found.summary.starts_with(says), "{found:?}");
    assert!(run(0.03, None).triggered);
    assert!(run(0.05, Some(span::VALIDATION)).triggered);
}

#[test]
fn preprocessing_beside_a_trainer_on_the_same_cores() {
    // 60 steps of `slow` seconds, two seconds apart, each next to a busy worker; then 60 of 1 s alone.
    let run = |slow: f64, busy: f32, set: &[&str]| {
        let steps = (0..120).map(|step| {
            (
                span::STEP,
                2.0 * step as f64,
                if step < 60 { slow } else { 1.0 },
                step,
            )
        });
        let machine = cores(4, 240, busy).spans(steps);
        let workers = (0..60).map(|at| (span::WORKER, 2.0 * f64::from(at), 1.9, 0, None));
        finding(
            &with(machine.recording(), workers),
            "PreprocessOnTrainerCores",
            set,
        )
    };
    let found = run(1.2, 95.0, &[]);
    assert!(found.triggered, "{found:?}");
    assert!(
        (found.details["algo-1"]["slowdown"].as_f64().unwrap() - 20.0).abs() < 1e-3,
        "{found:?}"
    );
    assert!(!run(1.09, 95.0, &[]).triggered, "slowdown_threshold");
    assert!(run(1.09, 95.0, &["slowdown_threshold=8"]).triggered);
    assert!(!run(1.2, 90.0, &[]).triggered, "cpu_threshold");
    assert!(run(1.2, 90.0, &["cpu_threshold=89"]).triggered);
    // A step's sample is the one that tells of its first second; half of those are next to a worker.
    let share = found.details["algo-1"]["share"].as_f64().unwrap();
    assert!((share - 50.0).abs() < 1.0, "{share}");
    assert!(!run(1.2, 95.0, &["threshold=52"]).triggered);
    assert!(run(1.2, 95.0, &["patience=100"]).triggered);
    assert!(!run(1.2, 95.0, &["patience=130"]).triggered);
    assert_eq!(found.evidence.len(), 1);
    assert_eq!(found.evidence[0].steps, Some((0, 59)));
}

#[test]
fn small_files_by_the_loaders_reads() {
    // In each of 100 seconds as many opens of as many bytes.
    let run = |opens: u32, bytes: u64, set: &[&str]| {
        let spans = (0..100).flat_map(|second| {
            (0..opens).map(move |at| {
                let from = f64::from(second) + f64::from(at) / f64::from(opens + 1);
                (span::READ, from, 0.0, 0, Some(bytes))
            })
        });
        finding(
            &with(Machine::new("algo-1", 100).recording(), spans),
            "SmallFiles",
            set,
        )
    };
    let found = run(201, 65_535, &[]);
    assert!(found.triggered);
    assert!(
        found
            .summary
            .contains("201 files were opened per second, with 65535 bytes per open"),
        "{}",
        found.summary
    );
    assert_eq!(found.details["algo-1"]["judged_by"], "opens");
    assert_eq!((found.violations, found.datapoints), (100, 100));
    assert!(!run(200, 65_535, &[]).triggered, "opens_threshold");
    assert!(run(200, 65_535, &["opens_threshold=199"]).triggered);
    assert!(!run(201, 65_536, &[]).triggered, "bytes_threshold");
    assert!(run(201, 65_536, &["bytes_threshold=65537"]).triggered);
    assert!(run(201, 1, &["patience=99"]).triggered);
    assert!(!run(201, 1, &["patience=100"]).triggered);
}

#[test]
fn small_files_by_read_calls() {
    let run = |calls: f32, bytes: f32, share: usize, set: &[&str]| {
        let machine = Machine::new("algo-1", 100)
            .series("tree", dimension::PROCESS_READS, move |at| {
                if at < share { calls } else { 1.0 }
            })
            .series("tree", dimension::PROCESS_READ, move |_| bytes * calls);
        finding(&machine.recording(), "SmallFiles", set)
    };
    let found = run(1001.0, 16_000.0, 21, &[]);
    assert!(found.triggered);
    assert!(
        found.summary.contains("since the loader marked no reads"),
        "{}",
        found.summary
    );
    assert!(!run(1001.0, 16_000.0, 20, &[]).triggered, "threshold");
    assert!(run(1001.0, 16_000.0, 20, &["threshold=19"]).triggered);
    assert!(!run(1000.0, 16_000.0, 21, &[]).triggered, "calls_threshold");
    assert!(run(1000.0, 16_000.0, 21, &["calls_threshold=999"]).triggered);
    assert!(!run(1024.0, 16_384.0, 21, &[]).triggered, "call_bytes_threshold");
    assert!(run(1024.0, 16_384.0, 21, &["call_bytes_threshold=16385"]).triggered);
}
