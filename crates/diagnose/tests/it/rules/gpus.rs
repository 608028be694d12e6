//! Rules on GPUs: LowGPUUtilization, BatchSize, GPUMemoryIncrease, LoadBalancing.

use stokehold_profile::{dimension, span};

use super::{Machine, finding, near, quantile};

#[test]
fn low_utilization_on_both_sides_of_every_threshold() {
    let rule = "LowGPUUtilization";
    // Of 100 samples, six are `high` and the others `low`: p95 lies among the high ones, p5 among the low ones.
    let run =
        |low: f32, high: f32, set: &[&str]| {
            let machine = Machine::new("algo-1", 100).series("gpu0", dimension::GPU, move |at| {
                if at % 16 == 3 { high } else { low }
            });
            finding(&machine.recording(), rule, set)
        };
    assert_eq!((0..100).filter(|at| at % 16 == 3).count(), 7);
    let patient = "patience=99";
    assert!(run(69.9, 69.9, &[patient]).triggered, "under-used");
    assert!(!run(70.0, 70.0, &[patient]).triggered);
    assert!(!run(69.9, 69.9, &[patient, "threshold_p95=69"]).triggered);
    assert!(run(9.9, 70.1, &[patient]).triggered, "fluctuates");
    assert!(!run(10.0, 70.1, &[patient]).triggered);
    assert!(run(10.0, 70.1, &[patient, "threshold_p5=11"]).triggered);
    assert!(
        !run(9.9, 70.0, &[patient]).triggered,
        "neither below nor above threshold_p95"
    );
    assert!(!run(69.9, 69.9, &["patience=100"]).triggered, "patience");
    let few = run(69.9, 69.9, &["patience=100"]);
    assert!(
        few.summary.contains("Not judged before more than 100 samples"),
        "{}",
        few.summary
    );
}

#[test]
fn low_utilization_looks_at_the_latest_window_at_every_scan() {
    // Idle for the seconds 200 to 299, full otherwise.
    let machine = || {
        Machine::new("algo-1", 600)
            .series("gpu0", dimension::GPU, |at| {
                if (200..300).contains(&at) { 1.0 } else { 99.0 }
            })
            .series("gpu1", dimension::GPU, |_| 99.0)
    };
    let found = finding(
        &machine().recording(),
        "LowGPUUtilization",
        &["patience=0", "window=30"],
    );
    // Scans see the seconds to 240 and 300; windows of 30 s that are idle but for less than 5 % end there.
    assert_eq!(
        (found.triggered, found.violations, found.datapoints),
        (true, 2, 600)
    );
    assert!(
        found.evidence.iter().all(|one| one.what == "gpu0"),
        "{:?}",
        found.evidence
    );
    let plot = &found.details["algo-1"]["gpu0"];
    assert!(found.details["algo-1"].get("gpu1").is_none());
    let values = || (0..600).map(|at| if (200..300).contains(&at) { 1.0 } else { 99.0 });
    for (name, q) in [
        ("gpu_max", 1.0),
        ("p25", 0.25),
        ("p50", 0.5),
        ("p75", 0.75),
        ("p95", 0.95),
    ] {
        assert!(near(&plot[name], quantile(values(), q)), "{name}: {plot}");
    }
    assert_eq!((&plot["gpu_95"], &plot["gpu_5"]), (&1.0.into(), &1.0.into()));
    assert_eq!((&plot["upper"], &plot["lower"]), (&99.0.into(), &99.0.into()));
    assert_eq!(found.details["last_timestamp"], 1_700_000_599_000_000u64);
    assert_eq!(
        found.published()["RuleParameters"],
        "threshold_p95:70\nthreshold_p5:10\nwindow:30\npatience:0"
    );
    // Training lasts from second 320 to 500: what was before and comes after is not looked at.
    let training = machine().spans((32..50).map(|step| (span::STEP, 10.0 * step as f64, 9.0, step)));
    let found = finding(
        &training.recording(),
        "LowGPUUtilization",
        &["patience=0", "window=30"],
    );
    assert!(!found.triggered, "{found:?}");
}

#[test]
fn batch_size_on_both_sides_of_every_threshold() {
    let run = |cores: f32, gpu: f32, memory: f32, set: &[&str]| {
        let machine = Machine::new("algo-1", 101)
            .series("cpu0", dimension::CPU, move |_| cores - 10.0)
            .series("cpu1", dimension::CPU, move |_| cores + 10.0)
            .series("gpu0", dimension::GPU, move |_| gpu)
            .series("gpu0", dimension::GPU_MEMORY, move |_| memory);
        finding(
            &machine.recording(),
            "BatchSize",
            &[&["patience=100", "window=50"], set].concat(),
        )
    };
    assert!(run(69.0, 69.0, 69.0, &[]).triggered);
    for (cores, gpu, memory, parameter) in [
        (70.0, 69.0, 69.0, "cpu_threshold_p95"),
        (69.0, 70.0, 69.0, "gpu_threshold_p95"),
        (69.0, 69.0, 70.0, "gpu_memory_threshold_p95"),
    ] {
        assert!(!run(cores, gpu, memory, &[]).triggered, "{parameter}");
        assert!(
            run(cores, gpu, memory, &[&format!("{parameter}=70.5")]).triggered,
            "{parameter}"
        );
    }
    assert!(!run(69.0, 69.0, 69.0, &["patience=101"]).triggered);
    assert!(run(69.0, 69.0, 69.0, &["window=100"]).triggered);
    assert!(
        !run(69.0, 69.0, 69.0, &["window=101"]).triggered,
        "more samples than the window"
    );
}

#[test]
fn batch_size_gives_the_numbers_of_box_plots() {
    let core = |at: usize, core: usize| ((at * 31 + core * 17) % 60) as f32;
    let gpu = |at: usize| ((at * 7) % 50) as f32;
    let memory = |at: usize| ((at * 11) % 40) as f32;
    let machine = Machine::new("algo-1", 300)
        .series("cpu0", dimension::CPU, move |at| core(at, 0))
        .series("cpu1", dimension::CPU, move |at| core(at, 1))
        .series("gpu0", dimension::GPU, gpu)
        .series("gpu0", dimension::GPU_MEMORY, memory);
    let found = finding(&machine.recording(), "BatchSize", &["patience=10", "window=50"]);
    assert!(found.triggered);
    // Scans at the full minutes of 300 s, and at the end.
    assert_eq!((found.violations, found.datapoints), (5, 300));
    let columns: [(&str, Vec<f32>); 3] = [
        (
            "cpu",
            (0..300).map(|at| (core(at, 0) + core(at, 1)) / 2.0).collect(),
        ),
        ("gpu0", (0..300).map(gpu).collect()),
        ("gpu0_memory", (0..300).map(memory).collect()),
    ];
    for (name, values) in columns {
        let plot = &found.details["algo-1"][name];
        let q = |q| quantile(values.iter().copied(), q);
        for (key, at) in [("p25", 0.25), ("p50", 0.5), ("p75", 0.75), ("p95", 0.95)] {
            assert!(near(&plot[key], q(at)), "{name} {key}: {plot}");
        }
        let reach = 1.5 * (q(0.75) - q(0.25));
        assert!(
            near(&plot["upper"], (q(0.75) + reach).min(q(1.0))),
            "{name}: {plot}"
        );
        assert!(
            near(&plot["lower"], (q(0.25) - reach).max(q(0.0))),
            "{name}: {plot}"
        );
    }
    assert_eq!(
        found.published()["RuleParameters"],
        "cpu_threshold_p95:70\ngpu_threshold_p95:70\ngpu_memory_threshold_p95:70\npatience:10\nwindow:50"
    );
}

#[test]
fn memory_increase_on_both_sides_of_every_threshold() {
    // A jump at sample 60; the means of the windows after and before it differ by its height.
    let run = |jump: f32, set: &[&str]| {
        let machine = Machine::new("algo-1", 100).series("gpu0", dimension::GPU_MEMORY, move |at| {
            if at < 60 { 20.0 } else { 20.0 + jump }
        });
        finding(
            &machine.recording(),
            "GPUMemoryIncrease",
            &[&["patience=0"], set].concat(),
        )
    };
    assert!(run(5.25, &[]).triggered);
    assert!(!run(5.0, &[]).triggered, "increase");
    assert!(run(5.0, &["increase=4.5"]).triggered);
    assert!(
        run(5.25, &["patience=69"]).triggered,
        "the second window is full with sample 70"
    );
    assert!(!run(5.25, &["patience=70"]).triggered, "patience");
    assert!(
        run(5.25, &["window=40"]).triggered,
        "windows of the samples 20 to 60 and 60 to 100"
    );
    assert!(
        !run(5.25, &["window=50"]).triggered,
        "windows meet at sample 50, where nothing jumps"
    );
    let found = run(5.25, &[]);
    assert_eq!(
        found.published()["RuleParameters"],
        "increase:5\npatience:0\nwindow:10"
    );
    let gpu = &found.details["algo-1"]["gpu0"];
    assert!(
        near(&gpu["increase"], 5.25) && near(&gpu["gpu_max"], 25.25) && near(&gpu["p05"], 20.0),
        "{gpu}"
    );
    assert_eq!(found.evidence.len(), 1);
    let run_out = found.evidence[0].clone();
    assert_eq!((run_out.what.as_str(), run_out.to - run_out.from), ("gpu0", 19.0));
}

#[test]
fn memory_increase_counts_as_a_direct_computation() {
    let memory = |at: usize| 20.0 + 0.3 * (at as f32) * ((at / 50) % 2) as f32 / 4.0 + ((at * 7) % 5) as f32;
    let machine = Machine::new("algo-1", 400).series("gpu0", dimension::GPU_MEMORY, memory);
    let found = finding(
        &machine.recording(),
        "GPUMemoryIncrease",
        &["patience=100", "window=7"],
    );
    let mean = |from: usize| (from..from + 7).map(|at| f64::from(memory(at))).sum::<f64>() / 7.0;
    let rises: Vec<f64> = (100..400)
        .map(|at| mean(at - 6) - mean(at - 13))
        .filter(|rise| *rise > 5.0)
        .collect();
    assert!(rises.len() > 3);
    assert_eq!(found.violations as usize, rises.len());
    let most = rises.into_iter().fold(0.0, f64::max);
    assert!(near(&found.details["algo-1"]["gpu0"]["increase"], most));
}

/// The distance by its definition, of two lists of counts.
fn jensen_shannon(one: &[f64], other: &[f64]) -> f64 {
    let normal = |counts: &[f64]| {
        counts
            .iter()
            .map(|count| count / counts.iter().sum::<f64>())
            .collect::<Vec<_>>()
    };
    let (p, q) = (normal(one), normal(other));
    let entropy = |shares: &[f64]| -> f64 { shares.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum() };
    let m: Vec<f64> = p.iter().zip(&q).map(|(p, q)| (p + q) / 2.0).collect();
    // The entropy of the mean less the mean of the entropies is the same divergence.
    (entropy(&m) - (entropy(&p) + entropy(&q)) / 2.0).max(0.0).sqrt()
}

#[test]
fn load_balancing_gives_the_distances_of_histograms() {
    let gpu = |at: usize, gpu: usize| ((at * (3 + gpu)) % (40 + 20 * gpu)) as f32 + 0.5;
    let mut machine = Machine::new("algo-1", 1000);
    for number in 0..3 {
        machine = machine.series(&format!("gpu{number}"), dimension::GPU, move |at| gpu(at, number));
    }
    let found = finding(
        &machine.recording(),
        "LoadBalancing",
        &["patience=999", "threshold=0.1"],
    );
    let histogram = |number: usize| {
        let mut counts = vec![0.0; 49];
        for at in 0..1000 {
            counts[(gpu(at, number) / 2.0).floor() as usize] += 1.0;
        }
        counts
    };
    let mut apart = 0;
    for one in 0..3 {
        let counts = &found.details["algo-1"]["workloads"][format!("gpu{one}")];
        let counts: Vec<f64> = counts
            .as_array()
            .unwrap()
            .iter()
            .map(|count| count.as_f64().unwrap())
            .collect();
        assert_eq!(counts, histogram(one));
        for other in one + 1..3 {
            let distance = jensen_shannon(&histogram(one), &histogram(other));
            apart += u64::from(distance > 0.1);
            let said = &found.details["algo-1"]["distances"][format!("gpu{one}")][format!("gpu{other}")];
            assert!(
                (said.as_f64().unwrap() - distance).abs() < 1e-9,
                "{said} instead of {distance}"
            );
        }
    }
    assert!(apart > 0 && found.triggered);
    assert_eq!((found.violations, found.datapoints), (apart, 1000));
    assert_eq!(found.published()["RuleParameters"], "threshold:0.1\npatience:999");
}

#[test]
fn load_balancing_on_both_sides_of_every_threshold() {
    // Of 100 samples, `apart` of the second GPU lie in a bin of their own.
    let run = |apart: usize, set: &[&str]| {
        let machine = Machine::new("algo-1", 100)
            .series("gpu0", dimension::GPU, |_| 50.0)
            .series(
                "gpu1",
                dimension::GPU,
                move |at| if at < apart { 10.0 } else { 50.0 },
            );
        finding(
            &machine.recording(),
            "LoadBalancing",
            &[&["patience=99"], set].concat(),
        )
    };
    let distance = |apart: f64| jensen_shannon(&[100.0, 0.0], &[100.0 - apart, apart]);
    let limit = (1..100).find(|apart| distance(*apart as f64) > 0.5).unwrap();
    assert!(
        distance(limit as f64 - 1.0) > 0.45,
        "the two sides are near each other"
    );
    assert!(!run(limit - 1, &[]).triggered);
    assert!(run(limit, &[]).triggered);
    assert!(!run(limit, &["patience=100"]).triggered);
    assert!(run(limit - 1, &["threshold=0.45"]).triggered);
    let found = run(limit, &[]);
    assert_eq!(found.evidence.len(), 1);
    assert_eq!(found.evidence[0].what, "gpu0, gpu1");
    assert_eq!(found.evidence[0].to - super::START, (limit - 1) as f64);
}

#[test]
fn a_gpu_that_is_always_full_differs_from_an_idle_one() {
    let machine = Machine::new("algo-1", 100)
        .series("gpu0", dimension::GPU, |_| 100.0)
        .series("gpu1", dimension::GPU, |_| 3.0)
        .series("gpu2", dimension::GPU, |_| 98.0);
    let found = finding(&machine.recording(), "LoadBalancing", &["patience=0"]);
    let details = &found.details["algo-1"];
    assert!(near(
        &details["distances"]["gpu0"]["gpu1"],
        std::f64::consts::LN_2.sqrt()
    ));
    // As numpy's histogram: 98 is in the last bin, what is above in none.
    let counts = |gpu: &str| {
        details["workloads"][gpu]
            .as_array()
            .unwrap()
            .iter()
            .map(|n| n.as_u64().unwrap())
            .sum()
    };
    let sums: [u64; 3] = ["gpu0", "gpu1", "gpu2"].map(counts);
    assert_eq!(sums, [0, 100, 100]);
    assert_eq!(details["workloads"]["gpu2"][48], 100);
}
