//! Rules on simulated recordings: each phase is named by the rules it was made for, and by those alone.

use stokehold_diagnose::rules::{Finding, Parameters, judge};
use stokehold_profile::{Recording, dimension};
use stokehold_simulate::{Phase, Simulation};

use super::{Machine, named};

fn simulated(phases: &[Phase], gpus: usize, step_seconds: f64) -> Recording {
    Simulation {
        phases: phases.to_vec(),
        gpus,
        step_seconds,
        seconds: 120.0 * phases.len() as f64,
        ..Simulation::default()
    }
    .recording()
}

fn judged(recording: &Recording) -> Vec<Finding> {
    judge(recording, &Parameters::default())
}

/// A job that first starves on one core, then on disk, is named in that order, by GPUs, by the trainer's waiting and
/// by cores alone.
#[test]
fn one_core_then_disk_are_named_in_that_order() {
    for (gpus, step_seconds) in [(1, 0.25), (8, 0.25), (0, 0.25), (0, 0.0)] {
        let recording = simulated(&[Phase::OneCore, Phase::Disk], gpus, step_seconds);
        let start = recording.extent().unwrap().0;
        let findings = judged(&recording);
        let cpu = named(findings.clone(), "CPUBottleneck");
        let io = named(findings, "IOBottleneck");
        assert!(cpu.triggered && io.triggered, "{cpu:?} {io:?}");
        assert_eq!((cpu.evidence.len(), io.evidence.len()), (1, 1));
        let (cpu, io) = (&cpu.evidence[0], &io.evidence[0]);
        assert_eq!(cpu.what, "cpu0");
        assert!(
            (cpu.from - start).abs() < 3.0 && (cpu.to - start - 120.0).abs() < 3.0,
            "{cpu:?}"
        );
        assert!(
            (io.from - start - 120.0).abs() < 3.0 && (io.to - start - 240.0).abs() < 5.0,
            "{io:?}"
        );
        assert_eq!(cpu.steps.is_some(), step_seconds > 0.0);
    }
}

#[test]
fn a_healthy_run_fires_nothing() {
    for gpus in [0, 1, 8] {
        let recording = simulated(
            &[Phase::Startup, Phase::Healthy, Phase::Healthy, Phase::Healthy],
            gpus,
            0.25,
        );
        for finding in judged(&recording) {
            assert!(!finding.triggered, "{finding:?}");
            assert!(!finding.summary.is_empty(), "{finding:?}");
        }
    }
}

/// What each phase, filling four fifths of the run, is named by.
#[test]
fn each_phase_is_named_by_the_rules_made_for_it() {
    for (phase, gpus, expected) in [
        (
            Phase::OneCore,
            1,
            vec!["CPUBottleneck", "Dataloader", "LoaderBound", "LowGPUUtilization"],
        ),
        (
            Phase::Disk,
            1,
            vec!["IOBottleneck", "LoaderBound", "LowGPUUtilization"],
        ),
        (
            Phase::Loader,
            1,
            vec!["CPUBottleneck", "LoaderBound", "LowGPUUtilization"],
        ),
        (
            Phase::Loader,
            0,
            vec!["CPUBottleneck", "LoaderBound", "PreprocessOnTrainerCores"],
        ),
        (Phase::SmallFiles, 1, vec!["SmallFiles"]),
        (Phase::Quota, 1, vec!["CgroupThrottled", "LoaderBound"]),
        (Phase::Memory, 1, vec!["MemoryPressure", "LoaderBound"]),
        (Phase::Heat, 8, vec!["ThermalThrottle"]),
        (Phase::Uneven, 8, vec!["LoadBalancing", "LowGPUUtilization"]),
    ] {
        let recording = simulated(&[Phase::Healthy, phase, phase, phase, phase], gpus, 0.25);
        let findings = judged(&recording);
        for name in &expected {
            let finding = named(findings.clone(), name);
            assert!(finding.triggered, "{phase:?}: {finding:?}");
            assert!(
                !finding.evidence.is_empty() && !finding.recommendation.is_empty(),
                "{phase:?}: {finding:?}"
            );
        }
        // GPUs that wait are under-used too; nothing else may fire.
        let others = ["LowGPUUtilization", "BatchSize", "ProfilerReport"];
        for finding in findings.iter().filter(|finding| finding.triggered) {
            assert!(
                expected.contains(&finding.rule) || others.contains(&finding.rule),
                "{phase:?}: {finding:?}"
            );
        }
    }
}

#[test]
fn machines_of_different_speed_are_named() {
    let recording = Simulation {
        nodes: 2,
        phases: vec![Phase::Healthy, Phase::Uneven],
        ..Simulation::default()
    }
    .recording();
    let finding = named(judged(&recording), "Imbalance");
    assert!(finding.triggered);
    assert!(
        finding.summary.contains("algo-2 computes a step longest"),
        "{}",
        finding.summary
    );
    let start = recording.extent().unwrap().0;
    let one = &finding.evidence[0];
    assert!(
        one.node == "algo-2" && (one.from - start - 300.0).abs() < 15.0,
        "{one:?}"
    );
}

/// A program on four cores without GPU and without marked steps, next to others that want so much of every core.
fn beside(phase: Phase, others: Option<f32>, step_seconds: f64) -> Vec<Finding> {
    let recording = Simulation {
        phases: vec![phase],
        others,
        step_seconds,
        gpus: 0,
        cores: 4,
        seconds: 120.0,
        ..Simulation::default()
    }
    .recording();
    judged(&recording)
}

/// What limits a run is its own use of the cores, and not the machine's.
#[test]
fn the_program_is_judged_and_not_the_machine() {
    let fired = |findings: &[Finding], rule: &str| named(findings.to_vec(), rule).triggered;

    let asleep = beside(Phase::Asleep, Some(98.0), 0.25);
    let wrong: Vec<&Finding> = asleep
        .iter()
        .filter(|finding| finding.triggered && !["OtherPrograms", "ProfilerReport"].contains(&finding.rule))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    let others = named(asleep, "OtherPrograms");
    assert!(
        others.triggered && others.evidence[0].what == "other programs",
        "{others:?}"
    );
    assert!(
        others
            .summary
            .starts_with("On algo-1, other programs took 3.9 of 4 cores on average, and the run 0.0;"),
        "{}",
        others.summary
    );

    // One core of the run's, another full core of others; and steps that wait for four workers.
    for (phase, step_seconds) in [
        (Phase::OneCore, 0.0),
        (Phase::OneCore, 0.25),
        (Phase::Loader, 0.25),
    ] {
        let alone = beside(phase, Some(0.0), step_seconds);
        assert!(
            fired(&alone, "CPUBottleneck") && !fired(&alone, "OtherPrograms"),
            "{phase:?}"
        );
        let cpu = named(alone, "CPUBottleneck");
        assert!(cpu.summary.contains("by this run"), "{}", cpu.summary);
    }
    let both = beside(Phase::Loader, Some(60.0), 0.25);
    assert!(fired(&both, "CPUBottleneck") && fired(&both, "OtherPrograms"));
    // Workers that have 60 % of the cores do not fill them.
    assert!(!fired(&both, "PreprocessOnTrainerCores"));
}

/// Another program fills one core, and the run does a little on each of them.
#[test]
fn a_core_that_another_program_fills_is_nobodys_bottleneck() {
    let judged_with = |tree: f32, others: f32, process: f32, gpu: Option<f32>| {
        let mut machine = Machine::new("algo-1", 100)
            .series("tree", dimension::TREE_CPU, move |_| tree)
            .series("others", dimension::OTHERS_CPU, move |_| others)
            .series("7 python3", dimension::PROCESS_CPU, move |_| process);
        for (core, busy) in [100.0, 30.0, 30.0, 30.0].into_iter().enumerate() {
            machine = machine.series(&format!("cpu{core}"), dimension::CPU, move |_| busy);
        }
        if let Some(gpu) = gpu {
            machine = machine.series("gpu0", dimension::GPU, move |_| gpu);
        }
        named(judged(&machine.recording()), "CPUBottleneck").triggered
    };
    for gpu in [None, Some(5.0)] {
        assert!(!judged_with(90.0, 100.0, 60.0, gpu), "a quarter of four cores");
        assert!(!judged_with(1.0, 189.0, 1.0, gpu), "asleep");
        assert!(
            judged_with(120.0, 70.0, 120.0, gpu),
            "others cannot have filled it"
        );
        assert!(
            judged_with(95.0, 95.0, 95.0, gpu),
            "one busy thread of one process"
        );
        assert!(!judged_with(f32::NAN, f32::NAN, f32::NAN, gpu), "not measured");
    }
}

/// Recordings of SageMaker Debugger, and those that Stokehold made before.
#[test]
fn without_the_two_parts_the_machine_is_judged_and_findings_say_so() {
    let findings = beside(Phase::Loader, None, 0.25);
    for rule in ["CPUBottleneck", "PreprocessOnTrainerCores", "OverallSystemUsage"] {
        let finding = named(findings.clone(), rule);
        assert!(
            finding
                .summary
                .ends_with("these are the figures of the whole machine, with all that ran there."),
            "{}",
            finding.summary
        );
        assert!(finding.triggered || rule == "OverallSystemUsage");
        assert!(!finding.summary.contains("by this run"));
    }
    let others = named(findings, "OtherPrograms");
    assert!(others.summary.starts_with("Not judged: ") && !others.triggered);
    let usage = named(beside(Phase::Loader, Some(60.0), 0.25), "OverallSystemUsage");
    let median = |metric: &str| usage.details[metric]["algo-1"]["p50"].as_f64().unwrap();
    let (all, run, others) = (
        median("CPU"),
        median("CPU of the run"),
        median("CPU of other programs"),
    );
    assert!((all - run - others).abs() < 1.0, "{all} {run} {others}");
    assert!(
        (run - 61.0).abs() < 3.0 && (others - 38.0).abs() < 3.0,
        "{run} {others}"
    );
    assert!(
        usage.summary.contains("CPU of other programs of algo-1: median"),
        "{}",
        usage.summary
    );
}
