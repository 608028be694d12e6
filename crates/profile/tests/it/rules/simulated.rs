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
