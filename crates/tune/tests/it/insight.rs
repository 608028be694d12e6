//! What a study says about its parameters, of functions where that is known.

use serde_json::json;
use stokehold_tune::{Ask, Insight, Spec, Strategy, Study, report};

use crate::parameters;

/// f = 3 a + b over the unit square: the variances of 3a and b are as 9 to 1; c has no part in it.
#[test]
fn importance_is_the_share_of_the_variance() {
    let unit = json!({"type": "continuous", "min": 0, "max": 1});
    let space = json!({"a": unit, "b": unit, "c": {"type": "categorical", "values": ["x", "y", "z"]}});
    let mut spec = Spec::new("loss", parameters(space));
    (spec.strategy, spec.limits.max_jobs) = (Strategy::Random, 40);
    let mut study = Study::in_memory(spec).unwrap();
    assert!(Insight::of(study.history()).is_none(), "nothing is known yet");
    while let Ask::Trial(trial) = study.ask().unwrap() {
        let [a, b] = ["a", "b"].map(|name| trial.values[name].as_f64().unwrap());
        study.tell(trial.number, Some(3.0 * a + b)).unwrap();
    }
    let insight = Insight::of(study.history()).unwrap();
    let shares = insight.importance().unwrap();
    assert_eq!(shares[0].0, "a");
    assert!(
        (shares[0].1 - 0.9).abs() < 0.09 && (shares[1].1 - 0.1).abs() < 0.06 && shares[2].1 < 0.02,
        "{shares:?}"
    );
    let slice = insight.slice("a").unwrap();
    let (first, last) = (&slice[0], &slice[slice.len() - 1]);
    assert!((last.1 - first.1 - 3.0).abs() < 0.1, "{first:?} {last:?}");
    assert_eq!(
        (first.0.value.clone(), insight.levels("c").unwrap().len()),
        (json!(0.0), 3)
    );
    let contour = insight.contour("a", "b").unwrap();
    assert!((contour[24][0] - contour[0][0] - 1.0).abs() < 0.1 && contour[0].len() == slice.len());
    assert_eq!(insight.position("c", &json!("z")), Some(2.0));
    assert!(insight.slice("nobody").is_none());
}

#[test]
fn of_results_that_are_all_alike_no_parameter_is_said_to_matter() {
    let unit = json!({"type": "continuous", "min": 0, "max": 1});
    let mut spec = Spec::new("loss", parameters(json!({"a": unit, "b": unit})));
    (spec.strategy, spec.limits.max_jobs) = (Strategy::Random, 12);
    let mut study = Study::in_memory(spec).unwrap();
    while let Ask::Trial(trial) = study.ask().unwrap() {
        study.tell(trial.number, Some(0.3)).unwrap();
    }
    let shares = Insight::of(study.history()).and_then(|insight| insight.importance());
    assert_eq!(shares, None);
}

/// The best trial has no such parameter, so there is nothing to say about its values.
#[test]
fn a_parameter_that_the_best_trial_lacks_has_no_line() {
    let space = json!({
        "kind": {"type": "categorical", "values": ["plain", "other"]},
        "extra": {"type": "continuous", "min": 0, "max": 1, "when": {"parameter": "kind", "is": ["other"]}},
    });
    for (best, drawn) in [("plain", false), ("other", true)] {
        let mut spec = Spec::new("loss", parameters(space.clone()));
        (spec.strategy, spec.limits.max_jobs) = (Strategy::Random, 12);
        let mut study = Study::in_memory(spec).unwrap();
        while let Ask::Trial(trial) = study.ask().unwrap() {
            let loss = f64::from(u8::from(trial.values["kind"] != best));
            study.tell(trial.number, Some(loss)).unwrap();
        }
        let page = report::page("study", study.history());
        let (_, picture) = page.split_once("<h3>extra</h3>").unwrap();
        let (picture, _) = picture.split_once("</div>").unwrap();
        assert_eq!(picture.contains("\"sofar\""), drawn, "{best}: {picture}");
    }
}

#[test]
fn parallel_coordinates_draw_the_best_thousand() {
    let space = json!({"lr": {"type": "continuous", "min": 0.001, "max": 1}});
    let mut spec = Spec::new("loss", parameters(space));
    (spec.strategy, spec.limits.max_jobs) = (Strategy::Random, 1003);
    let mut study = Study::in_memory(spec).unwrap();
    assert_eq!(report::parallel(study.history()), None);
    while let Ask::Trial(trial) = study.ask().unwrap() {
        let loss = trial.values["lr"].as_f64().unwrap();
        study.tell(trial.number, Some(loss)).unwrap();
    }
    let picture = report::parallel(study.history()).unwrap();
    let count = |class: &str| picture.matches(&format!("class=\"way {class}\"")).count();
    assert_eq!(
        ["w0", "w1", "w2", "w3", "w4"].map(count),
        [198, 201, 200, 201, 200]
    );
}
