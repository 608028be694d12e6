//! Studies as their users have them: made, asked, told, cut off, taken up again.

mod insight;
mod journal;
mod spaces;
mod strategies;
mod studies;
mod warm;

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stokehold_tune::{Ask, Parameter, Spec, Study, Trial};

/// Parameters as a file has them.
pub(crate) fn parameters(text: Value) -> BTreeMap<String, Parameter> {
    serde_json::from_value(text).unwrap()
}

/// Two parameters, the published example's.
pub(crate) fn spec() -> Spec {
    Spec::new(
        "loss",
        parameters(json!({
            "lr": {"type": "continuous", "min": 0.001, "max": 0.1},
            "batch-size": {"type": "categorical", "values": [64, 128, 256, 512]},
        })),
    )
}

pub(crate) fn trial(ask: Ask) -> Trial {
    match ask {
        Ask::Trial(trial) => trial,
        other => panic!("no trial but {other:?}"),
    }
}

/// Small at lr 0.01 and 128.
pub(crate) fn loss(trial: &Trial) -> f64 {
    let lr = trial.values["lr"].as_f64().unwrap();
    let batch = trial.values["batch-size"].as_f64().unwrap();
    (lr.log10() + 2.0).powi(2) + (batch / 128.0).log2().powi(2) / 10.0
}

/// Asks and tells until it is over.
pub(crate) fn work(study: &mut Study) {
    while let Ask::Trial(trial) = study.ask().unwrap() {
        study.tell(trial.number, Some(loss(&trial))).unwrap();
    }
}
