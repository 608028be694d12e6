//! When a study ends, what it takes for a result, and what it refuses.

use serde_json::json;
use stokehold_base::fault::Fault;
use stokehold_tune::{
    Ask, Direction, End, Outcome, Rule, Rungs, Spec, Strategy, Study, Take, TuneError, Verdict, to_csv,
    to_json,
};
use tempfile::tempdir;

use crate::{loss, parameters, spec, trial, work};

fn ended(study: &mut Study) -> End {
    loop {
        match study.ask().unwrap() {
            // Above 0, so that there is something of which 1 % can be.
            Ask::Trial(trial) => drop(study.tell(trial.number, Some(1.0 + loss(&trial))).unwrap()),
            Ask::Wait => panic!("nothing runs"),
            Ask::Finished(end) => return end,
        }
    }
}

#[test]
fn every_limit_ends_a_study() {
    let end = |change: &dyn Fn(&mut Spec)| {
        let mut spec = spec();
        spec.limits.max_jobs = 60;
        change(&mut spec);
        let mut study = Study::in_memory(spec).unwrap();
        (ended(&mut study), study.history().trials.len())
    };
    assert_eq!(end(&|spec| spec.limits.max_jobs = 3), (End::MaxJobs, 3));
    let (target, made) = end(&|spec| spec.limits.target = Some(1.05));
    assert!(target == End::Target && made < 60, "{made}");
    let (idle, made) = end(&|spec| spec.limits.max_jobs_without_improvement = Some(5));
    assert!(idle == End::NoImprovement && made < 60, "{made}");
    let (converged, made) = end(&|spec| spec.limits.until_converged = true);
    assert!(converged == End::Converged && made >= 14, "{made}");
    // As many trials as fit into the clock's next tick.
    let (late, _) = end(&|spec| {
        spec.strategy = Strategy::Random;
        spec.limits.max_jobs = 1_000_000;
        spec.limits.max_run_seconds = Some(1e-9);
    });
    assert_eq!(late, End::MaxRunTime);
    let grid = |spec: &mut Spec| {
        spec.strategy = Strategy::Grid;
        spec.parameters = parameters(json!({
            "lr": {"type": "categorical", "values": [0.1, 0.01]},
            "batch-size": {"type": "integer", "min": 1, "max": 3},
        }));
    };
    assert_eq!(end(&grid), (End::NothingLeft, 6));
    for strategy in [Strategy::Random, Strategy::Bayesian, Strategy::Tpe] {
        let all = |spec: &mut Spec| {
            grid(spec);
            spec.strategy = strategy;
        };
        assert_eq!(end(&all), (End::NothingLeft, 6), "{strategy:?} repeats nothing");
    }
}

#[test]
fn failures_are_recorded_and_only_many_end_a_study() {
    let mut spec = spec();
    spec.limits.max_failed_jobs = 3;
    let mut study = Study::in_memory(spec).unwrap();
    for left in (0..3).rev() {
        let trial = trial(study.ask().unwrap());
        study.tell_failed(trial.number, "exit code 1").unwrap();
        assert_eq!(study.end_now().is_some(), left == 0);
    }
    assert_eq!(study.ask().unwrap(), Ask::Finished(End::MaxFailedJobs));
    assert_eq!(study.history().counts().failed, 3);
}

#[test]
fn what_a_trial_reported_is_its_result() {
    for (take, direction, expected) in [
        (Take::Last, Direction::Minimize, 4.0),
        (Take::Best, Direction::Minimize, 1.0),
        (Take::Best, Direction::Maximize, 7.0),
        (Take::Mean, Direction::Minimize, 4.0),
    ] {
        let mut spec = spec();
        (spec.take, spec.direction) = (take, direction);
        let mut study = Study::in_memory(spec).unwrap();
        let trial = trial(study.ask().unwrap());
        for (step, value) in [(1, 1.0), (2, 7.0), (3, 4.0)] {
            study.report(trial.number, step, value).unwrap();
        }
        assert_eq!(
            study.tell(trial.number, None).unwrap(),
            Outcome::Completed { value: expected }
        );
    }
}

#[test]
fn nan_and_infinity_are_refused() {
    let mut study = Study::in_memory(spec()).unwrap();
    let number = trial(study.ask().unwrap()).number;
    for says in [
        study.report(number, 1, f64::NAN).unwrap_err(),
        study.tell(number, Some(f64::INFINITY)).unwrap_err(),
    ] {
        assert!(says.to_string().contains("tell that it failed"), "{says}");
    }
    let nothing = study.tell(number, None).unwrap_err().to_string();
    assert!(nothing.contains("told none and reported none"), "{nothing}");
    assert!(
        study
            .tell(7, Some(0.0))
            .unwrap_err()
            .to_string()
            .contains("no trial 7")
    );
    study.tell(number, Some(0.5)).unwrap();
    assert!(
        study
            .tell(number, Some(0.5))
            .unwrap_err()
            .to_string()
            .contains("has ended")
    );
}

#[test]
fn enqueued_points_come_first_and_are_completed() {
    let mut spec = spec();
    spec.enqueue = vec![
        [
            ("lr".to_owned(), json!(0.03)),
            ("batch-size".to_owned(), json!(512)),
        ]
        .into(),
        [("batch-size".to_owned(), json!(64))].into(),
    ];
    let mut study = Study::in_memory(spec).unwrap();
    let first = trial(study.ask().unwrap());
    assert!((first.values["lr"].as_f64().unwrap() - 0.03).abs() < 1e-12 && first.values["batch-size"] == 512);
    study.tell(first.number, Some(1.0)).unwrap();
    let second = trial(study.ask().unwrap());
    assert!(second.values["batch-size"] == 64 && second.values.contains_key("lr"));
    for (values, says) in [
        (json!({"lr": 7}), "7 is outside its range"),
        (json!({"lr": "high"}), "outside its range"),
        (json!({"momentum": 0.9}), "no parameter momentum"),
    ] {
        let error = study
            .enqueue(serde_json::from_value(values).unwrap())
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn what_makes_no_sense_is_said_before_anything_is_made() {
    type Case<'a> = (&'a dyn Fn(&mut Spec), &'a str);
    let rungs = |min_steps| {
        Some(Rungs {
            min_steps,
            max_steps: 9,
            reduction: 3,
        })
    };
    let cases: [Case<'_>; 9] = [
        (
            &|spec| spec.strategy = Strategy::Grid,
            "list the values of continuous ones",
        ),
        (
            &|spec| spec.strategy = Strategy::Hyperband,
            "needs [rungs] with max-steps",
        ),
        (&|spec| spec.rungs = rungs(1), "[rungs] is for"),
        (
            &|spec| (spec.strategy, spec.rungs) = (Strategy::Hyperband, rungs(9)),
            "not between 1 and max-steps = 9",
        ),
        (
            &|spec| {
                (spec.strategy, spec.rungs) = (Strategy::Hyperband, rungs(1));
                spec.early_stopping.rule = Rule::Auto;
            },
            "take early stopping off",
        ),
        (&|spec| spec.limits.max_jobs = 0, "max-jobs is at least 1"),
        (&|spec| spec.limits.target = Some(f64::NAN), "finite"),
        (
            &|spec| (spec.strategy, spec.limits.until_converged) = (Strategy::Tpe, true),
            "asks the model of strategy = \"bayesian\"",
        ),
        (
            &|spec| spec.enqueue = vec![[("lr".to_owned(), json!(9))].into()],
            "enqueue: parameter lr",
        ),
    ];
    for (change, says) in cases {
        let mut spec = spec();
        change(&mut spec);
        let dir = tempdir().unwrap();
        let error = Study::create(&dir.path().join("study"), spec).unwrap_err();
        assert!(error.is_input() && error.to_string().contains(says), "{error}");
        assert!(!dir.path().join("study").exists());
    }
}

#[test]
fn a_changed_space_is_another_study() {
    let dir = tempdir().unwrap();
    let study = Study::create(dir.path(), spec()).unwrap();
    let mut more = spec();
    more.limits.max_jobs = 99;
    study.fits(&more).unwrap();
    let mut other = spec();
    other.parameters = parameters(json!({
        "lr": {"type": "continuous", "min": 0.001, "max": 0.2},
        "batch-size": {"type": "categorical", "values": [64, 128, 256, 512]},
    }));
    other.seed = 1;
    let error = study.fits(&other).unwrap_err().to_string();
    assert!(
        error.contains("parameter lr, seed") && error.contains("make a new study"),
        "{error}"
    );
    let twice = Study::create(dir.path(), spec()).unwrap_err();
    assert!(
        matches!(&twice, TuneError::Input(says) if says.contains("resume it")),
        "{twice}"
    );
}

/// With hyperband most trials stop early, and the median rule stops what is clearly bad.
#[test]
fn trials_without_hope_are_stopped() {
    for is_hyperband in [true, false] {
        let mut spec = spec();
        spec.limits.max_jobs = 40;
        spec.strategy = Strategy::Random;
        spec.early_stopping.rule = Rule::Auto;
        if is_hyperband {
            spec.strategy = Strategy::Hyperband;
            spec.early_stopping.rule = Rule::Off;
            spec.rungs = Some(Rungs {
                min_steps: 1,
                max_steps: 9,
                reduction: 3,
            });
        }
        let mut study = Study::in_memory(spec).unwrap();
        let mut steps = 0;
        while let Ask::Trial(trial) = study.ask().unwrap() {
            let stopped = (1..=9_u32).any(|epoch| {
                steps += 1;
                let value = loss(&trial) + 1.0 / f64::from(epoch);
                study.report(trial.number, u64::from(epoch), value).unwrap() == Verdict::Stop
            });
            match stopped {
                true => study.tell_stopped(trial.number).unwrap(),
                false => study.tell(trial.number, None).unwrap(),
            };
        }
        let counts = study.history().counts();
        assert!(counts.stopped >= 10 && counts.completed >= 1, "{counts:?}");
        assert!(steps < 40 * 9 * 3 / 4, "{steps} of {}", 40 * 9);
        let best = study.history().best().unwrap();
        assert!(
            study
                .history()
                .trials
                .iter()
                .all(|trial| loss(trial) >= loss(best) || trial.stop.is_some())
        );
    }
}

/// At the rung 1 one of three continues. Worked by hand: of 4, 5 and 6 trials there 1, 1 and 2 do.
#[test]
fn who_has_become_one_of_the_best_at_a_rung_goes_on() {
    let mut spec = spec();
    spec.strategy = Strategy::Random;
    spec.early_stopping.rule = Rule::Asha;
    spec.rungs = Some(Rungs {
        min_steps: 1,
        max_steps: 3,
        reduction: 3,
    });
    spec.limits.max_jobs = 6;
    let folder = tempdir().unwrap();
    let mut study = Study::create(folder.path(), spec).unwrap();
    for (number, loss) in [(0, 1.0), (1, 2.0), (2, 5.0), (3, 4.0), (4, 6.0), (5, 7.0)] {
        let new = trial(study.ask().unwrap());
        assert_eq!(new.number, number);
        match study.report(number, 1, loss).unwrap() {
            Verdict::Continue => study.tell(number, Some(loss)).unwrap(),
            Verdict::Stop => study.tell_stopped(number).unwrap(),
        };
    }
    let again = trial(study.ask().unwrap());
    assert_eq!(
        (again.number, again.reports.len(), again.stop, again.attempt),
        (1, 1, None, 1)
    );
    // Readers of the journal see it.
    assert!(!Study::look(folder.path()).unwrap().trials[1].is_over());
    assert_eq!(study.report(1, 2, 0.5).unwrap(), Verdict::Continue);
    study.tell(1, None).unwrap();
    assert_eq!(study.history().best().unwrap().number, 1);
    assert_eq!(study.ask().unwrap(), Ask::Finished(End::MaxJobs));
}

#[test]
fn tables_have_every_trial() {
    let mut spec = spec();
    spec.limits.max_jobs = 3;
    let mut study = Study::in_memory(spec).unwrap();
    let first = trial(study.ask().unwrap());
    study.tell_failed(first.number, "said \"no\", and ended").unwrap();
    work(&mut study);
    let csv = to_csv(study.history());
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 4);
    assert_eq!(
        lines[0],
        "trial,status,objective,seconds,reports,attempt,origin,reason,batch-size,lr"
    );
    assert!(
        lines[1].starts_with("0,failed,,") && lines[1].contains("\"said \"\"no\"\", and ended\""),
        "{csv}"
    );
    assert!(lines[2].starts_with("1,completed,"));
    let json = to_json(study.history());
    assert_eq!(json["trials"].as_array().unwrap().len(), 3);
    assert_eq!(
        json["counts"],
        json!({"completed": 2, "stopped": 0, "failed": 1, "running": 0})
    );
    assert_eq!(
        json["overall_best"]["objective"],
        json["trials"][json["best"].as_u64().unwrap() as usize]["objective"]
    );
}
