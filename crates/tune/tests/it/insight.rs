//! What a study says about its parameters, of functions where that is known.

use serde_json::json;
use stokehold_tune::{Ask, Insight, Spec, Strategy, Study};

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
