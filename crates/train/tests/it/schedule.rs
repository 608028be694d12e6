//! Schedules against `torch.optim.lr_scheduler`, stepped once a batch.

use serde_json::json;
use stokehold_train::schedule::{ScheduleConfig, ScheduleKind};

use crate::oracle;

const STEP: ScheduleKind = ScheduleKind::Step {
    every_epochs: 2,
    gamma: 0.1,
};
const COSINE: ScheduleKind = ScheduleKind::Cosine { final_factor: 0.0 };

/// Oracle: StepLR, CosineAnnealingLR, LinearLR, SequentialLR, ChainedScheduler. Tolerance: 1e-9 of the base
/// rate (they multiply their way from step to step).
#[test]
fn rates_are_pytorchs() {
    let cases = [
        (ScheduleKind::Constant, 0.0),
        (ScheduleKind::Constant, 1.0),
        (STEP, 0.0),
        (STEP, 1.0),
        (COSINE, 0.0),
        (COSINE, 1.5),
        (ScheduleKind::Cosine { final_factor: 0.01 }, 1.0),
    ];
    let (base_lr, steps_per_epoch, epochs) = (0.05, 10u64, 5u64);
    let questions = cases.map(|(kind, warmup_epochs)| {
        let mut question = serde_json::to_value(kind).unwrap();
        question["base_lr"] = json!(base_lr);
        question["steps_per_epoch"] = json!(steps_per_epoch);
        question["epochs"] = json!(epochs);
        question["warmup_steps"] = json!((warmup_epochs * steps_per_epoch as f64) as u64);
        question
    });
    oracle::ask("schedules", json!(questions), |answers: [Vec<f64>; 7]| {
        for ((kind, warmup_epochs), theirs) in cases.into_iter().zip(answers) {
            let schedule = ScheduleConfig { kind, warmup_epochs };
            assert_eq!(theirs.len() as u64, steps_per_epoch * epochs);
            for (step, theirs) in theirs.into_iter().enumerate() {
                let ours = schedule.lr(base_lr, step as u64, steps_per_epoch, epochs);
                assert!(
                    (ours - theirs).abs() < 1e-9 * base_lr,
                    "{schedule:?} step {step}: {ours} and {theirs}"
                );
            }
        }
    });
}

#[test]
fn the_rate_stays_finite_where_the_run_is_all_warm_up_or_empty() {
    for kind in [ScheduleKind::Constant, STEP, COSINE] {
        let schedule = ScheduleConfig {
            kind,
            warmup_epochs: 5.0,
        };
        for (step, steps_per_epoch, epochs) in [(0, 0, 0), (3, 1, 2), (u64::from(u32::MAX), 10, 5)] {
            let rate = schedule.lr(0.1, step, steps_per_epoch, epochs);
            assert!((0.0..=0.1).contains(&rate), "{kind:?}: {rate} at step {step}");
        }
    }
}
