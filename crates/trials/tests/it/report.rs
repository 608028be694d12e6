//! What the page of a study draws.

use serde_json::json;
use stokehold_trials::report;
use stokehold_tune::{Ask, Spec, Strategy, Study};

/// The best trial has no such parameter, so there is nothing to say about its values.
#[test]
fn a_parameter_that_the_best_trial_lacks_has_no_line() {
    let space = json!({
        "kind": {"type": "categorical", "values": ["plain", "other"]},
        "extra": {"type": "continuous", "min": 0, "max": 1, "when": {"parameter": "kind", "is": ["other"]}},
    });
    for (best, drawn) in [("plain", false), ("other", true)] {
        let mut spec = Spec::new("loss", serde_json::from_value(space.clone()).unwrap());
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
    let mut spec = Spec::new("loss", serde_json::from_value(space).unwrap());
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
