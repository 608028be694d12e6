//! Rules on simulated recordings: each phase is named by the rules it was made for, and by those alone.

use stokehold_profile::Recording;
use stokehold_profile::rules::{Finding, Parameters, judge};
use stokehold_profile::simulate::{Phase, Simulation};

use super::named;

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
