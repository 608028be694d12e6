//! Who chooses what: the same every time, better than chance, and apart from what runs.

use serde_json::json;
use stokehold_tune::{Ask, Spec, Strategy, Study, Trial};

use crate::{loss, parameters, spec, trial, work};

const MODELS: [Strategy; 2] = [Strategy::Bayesian, Strategy::Tpe];

#[test]
fn the_same_seed_and_results_choose_the_same_whatever_the_order() {
    for strategy in MODELS {
        let next = |order: [usize; 4]| {
            let mut spec = spec();
            (spec.strategy, spec.seed) = (strategy, 5);
            (spec.limits.max_jobs, spec.limits.max_parallel_jobs) = (40, 4);
            let mut study = Study::in_memory(spec).unwrap();
            for _ in 0..5 {
                let four: Vec<Trial> = (0..4).map(|_| trial(study.ask().unwrap())).collect();
                for i in order {
                    study.tell(four[i].number, Some(loss(&four[i]))).unwrap();
                }
            }
            trial(study.ask().unwrap()).values
        };
        let expected = next([0, 1, 2, 3]);
        assert_eq!(next([3, 1, 0, 2]), expected, "{strategy:?}");
        assert_eq!(next([2, 3, 1, 0]), expected, "{strategy:?}");
    }
}

#[test]
fn seeds_differ() {
    let first = |seed| {
        let mut spec = spec();
        spec.seed = seed;
        trial(Study::in_memory(spec).unwrap().ask().unwrap()).values
    };
    assert_ne!(first(1), first(2));
}

/// Branin's function has its minimum of 0.397887 at three points.
fn branin(trial: &Trial) -> f64 {
    let [x, y] = ["x", "y"].map(|name| trial.values[name].as_f64().unwrap());
    let pi = std::f64::consts::PI;
    let curve = y - 5.1 / (4.0 * pi * pi) * x * x + 5.0 / pi * x - 6.0;
    curve * curve + 10.0 * (1.0 - 1.0 / (8.0 * pi)) * x.cos() + 10.0
}

#[test]
fn models_find_what_chance_does_not() {
    let best = |strategy, jobs, seed| {
        let space = json!({
            "x": {"type": "continuous", "min": -5, "max": 10, "scaling": "linear"},
            "y": {"type": "continuous", "min": 0, "max": 15, "scaling": "linear"},
        });
        let mut spec = Spec::new("loss", parameters(space));
        (spec.strategy, spec.seed, spec.limits.max_jobs) = (strategy, seed, jobs);
        let mut study = Study::in_memory(spec).unwrap();
        while let Ask::Trial(trial) = study.ask().unwrap() {
            study.tell(trial.number, Some(branin(&trial))).unwrap();
        }
        study.history().best().unwrap().objective().unwrap()
    };
    let middle = |strategy, jobs| {
        let mut bests: Vec<f64> = (0..5).map(|seed| best(strategy, jobs, seed)).collect();
        bests.sort_by(f64::total_cmp);
        bests[2]
    };
    let (bayesian, tpe, random) = (
        middle(Strategy::Bayesian, 30),
        middle(Strategy::Tpe, 60),
        middle(Strategy::Random, 60),
    );
    assert!(bayesian < 0.41, "{bayesian}");
    assert!(tpe < random, "{tpe} {random}");
}

#[test]
fn parallel_trials_keep_apart() {
    for strategy in MODELS {
        let mut spec = spec();
        spec.strategy = strategy;
        (spec.limits.max_jobs, spec.limits.max_parallel_jobs) = (30, 6);
        let mut study = Study::in_memory(spec).unwrap();
        for _ in 0..20 {
            let trial = trial(study.ask().unwrap());
            study.tell(trial.number, Some(loss(&trial))).unwrap();
        }
        let together: Vec<Trial> = (0..6).map(|_| trial(study.ask().unwrap())).collect();
        assert_eq!(study.ask().unwrap(), Ask::Wait);
        for (i, a) in together.iter().enumerate() {
            for b in &together[..i] {
                let apart = (a.values["lr"].as_f64().unwrap() / b.values["lr"].as_f64().unwrap())
                    .ln()
                    .abs();
                assert!(
                    apart > 1e-6 || a.values["batch-size"] != b.values["batch-size"],
                    "{a:?} {b:?}"
                );
            }
        }
    }
}

/// Where trainings break, the model looks elsewhere.
#[test]
fn a_region_that_fails_is_left() {
    let mut spec = spec();
    (spec.limits.max_jobs, spec.limits.max_failed_jobs) = (30, 30);
    let mut study = Study::in_memory(spec).unwrap();
    while let Ask::Trial(trial) = study.ask().unwrap() {
        let lr = trial.values["lr"].as_f64().unwrap();
        match lr > 0.03 {
            true => study.tell_failed(trial.number, "the loss was NaN").unwrap(),
            // It gets better up to where it breaks.
            false => study.tell(trial.number, Some(-lr)).unwrap(),
        };
    }
    let history = study.history();
    let late = history.trials[15..]
        .iter()
        .filter(|trial| trial.objective().is_none())
        .count();
    assert!(late <= 9, "{late} of the last 15 failed");
    assert!(history.best().unwrap().objective().unwrap() < -0.02);
}

#[test]
fn what_does_not_differ_is_no_trouble() {
    for strategy in MODELS {
        let mut spec = spec();
        (spec.strategy, spec.limits.max_jobs) = (strategy, 25);
        let mut study = Study::in_memory(spec).unwrap();
        while let Ask::Trial(trial) = study.ask().unwrap() {
            study.tell(trial.number, Some(1.0)).unwrap();
        }
        assert_eq!(study.history().trials.len(), 25);
    }
    // Nor is what differs by 300 orders of magnitude.
    for strategy in MODELS {
        let mut spec = spec();
        (spec.strategy, spec.limits.max_jobs) = (strategy, 25);
        let mut study = Study::in_memory(spec).unwrap();
        while let Ask::Trial(trial) = study.ask().unwrap() {
            let value = 10_f64.powf(300.0 * loss(&trial).min(1.0));
            study.tell(trial.number, Some(value)).unwrap();
        }
        assert_eq!(study.history().trials.len(), 25);
    }
}

#[test]
fn a_study_of_many_trials_is_still_asked() {
    let mut spec = spec();
    spec.limits.max_jobs = 150;
    let mut study = Study::in_memory(spec).unwrap();
    work(&mut study);
    assert!(study.history().best().unwrap().objective().unwrap() < 1e-4);
}
