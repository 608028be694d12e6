//! What may be tried, and what is said of ranges that make no sense.

use proptest::prelude::*;
use serde_json::{Value, json};
use stokehold_tune::{Parameter, Range, Scaling, Spec, Strategy, Study};

use crate::{parameters, trial};

fn wrong(text: Value) -> String {
    match serde_json::from_value::<std::collections::BTreeMap<String, Parameter>>(text) {
        Ok(parameters) => Spec::new("loss", parameters).check().unwrap_err().to_string(),
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_range_that_makes_no_sense_says_what_to_change() {
    for (parameter, says) in [
        (
            json!({"type": "continuous", "min": 2, "max": 1}),
            "min = 2 is above max = 1; exchange them",
        ),
        (
            json!({"type": "integer", "min": 2, "max": 1}),
            "min = 2 is above max = 1",
        ),
        (
            json!({"type": "continuous", "min": 0, "max": 1, "scaling": "logarithmic"}),
            "wants a range above 0, and min = 0; raise min or take linear",
        ),
        (
            json!({"type": "continuous", "min": -1, "max": 1, "scaling": "logarithmic"}),
            "wants a range above 0",
        ),
        (
            json!({"type": "continuous", "min": 0.5, "max": 1, "scaling": "reverse-logarithmic"}),
            "wants 0 <= min and max < 1",
        ),
        (
            json!({"type": "integer", "min": 0, "max": 0, "scaling": "reverse-logarithmic"}),
            "for continuous parameters",
        ),
        (json!({"type": "integer", "min": 0.5, "max": 3}), "whole numbers"),
        (json!({"type": "categorical", "values": []}), "list at least one"),
        (
            json!({"type": "categorical", "values": [1, 2, 1.0]}),
            "1.0 is there twice",
        ),
        (
            json!({"type": "categorical", "values": [[1]]}),
            "not a string, a number",
        ),
        (
            json!({"type": "categorical", "values": (0..31).collect::<Vec<_>>()}),
            "31 values are more than 30",
        ),
        (
            json!({"type": "continuous", "min": 0, "max": 1, "scalling": "linear"}),
            "unknown field `scalling`",
        ),
        (
            json!({"type": "continuous", "min": 0, "max": 1, "scaling": "log"}),
            "unknown variant `log`",
        ),
        (json!({"type": "continuous", "min": 0}), "has min, max"),
        (
            json!({"type": "categorical", "values": [1], "min": 0}),
            "values and no more",
        ),
        (json!({"type": "static", "value": 1}), "no parameter to tune"),
    ] {
        let error = wrong(json!({"x": parameter}));
        assert!(error.contains(says), "{parameter}: {error}");
    }
    let of = |when: Value| json!({"a": {"type": "categorical", "values": ["x", "y"]}, "b": {"type": "continuous", "min": 0, "max": 1, "when": when}});
    for (when, says) in [
        (json!({"parameter": "c", "is": [1]}), "there is no parameter c"),
        (json!({"parameter": "a", "is": ["z"]}), "a is never \"z\""),
        (json!({"parameter": "a", "is": []}), "never true"),
        (json!({"parameter": "b", "is": [0.5]}), "leads back to itself"),
    ] {
        let error = wrong(of(when));
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn what_cannot_be_finite_is_refused() {
    for (min, max) in [(f64::NAN, 1.0), (0.0, f64::INFINITY)] {
        let range = Range::Continuous {
            min,
            max,
            scaling: Scaling::Linear,
        };
        let error = Spec::new("loss", [("x".to_owned(), range.into())].into())
            .check()
            .unwrap_err();
        assert!(error.to_string().contains("finite"), "{error}");
    }
}

/// The middle of draws is the middle of the scaled range: by the definitions of the scalings.
#[test]
fn scalings_put_the_middle_where_they_say() {
    for (min, max, scaling, middle) in [
        (1e-4, 1.0, "logarithmic", 1e-2),
        (1e-4, 1.0, "auto", 1e-2),
        (1.0, 3.0, "auto", 2.0),
        (0.0, 0.99, "reverse-logarithmic", 0.9),
        (0.0, 4.0, "linear", 2.0),
    ] {
        let mut spec = Spec::new(
            "loss",
            parameters(json!({"x": {"type": "continuous", "min": min, "max": max, "scaling": scaling}})),
        );
        spec.strategy = Strategy::Random;
        spec.limits.max_jobs = 400;
        let mut study = Study::in_memory(spec).unwrap();
        let below = (0..400)
            .filter(|_| {
                let trial = trial(study.ask().unwrap());
                study.tell(trial.number, Some(0.0)).unwrap();
                trial.values["x"].as_f64().unwrap() < middle
            })
            .count();
        // 200 are expected; six standard deviations are 60.
        assert!(
            (140..=260).contains(&below),
            "{scaling}: {below} of 400 below {middle}"
        );
    }
}

#[test]
fn a_condition_decides_who_is_there() {
    for strategy in [Strategy::Random, Strategy::Bayesian, Strategy::Tpe] {
        let mut spec = Spec::new(
            "loss",
            parameters(json!({
                "optimizer": {"type": "categorical", "values": ["sgd", "adam"]},
                "momentum": {"type": "continuous", "min": 0, "max": 0.9, "when": {"parameter": "optimizer", "is": ["sgd"]}},
                "nesterov": {"type": "categorical", "values": [true, false], "when": {"parameter": "optimizer", "is": ["sgd"]}},
                "eps": {"type": "static", "value": 1e-8},
            })),
        );
        spec.strategy = strategy;
        spec.limits.max_jobs = 25;
        let mut study = Study::in_memory(spec).unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..25 {
            let trial = trial(study.ask().unwrap());
            let is_sgd = trial.values["optimizer"] == "sgd";
            assert_eq!(trial.values.contains_key("momentum"), is_sgd);
            assert_eq!(trial.values.contains_key("nesterov"), is_sgd);
            assert_eq!(trial.values["eps"], 1e-8);
            seen.insert(is_sgd);
            let loss = trial
                .values
                .get("momentum")
                .map_or(1.0, |m| (m.as_f64().unwrap() - 0.5).abs());
            study.tell(trial.number, Some(loss)).unwrap();
        }
        assert_eq!(seen.len(), 2, "{strategy:?} tries both");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the ranges are, trials stay within them, and a parameter's text says the same as it.
    #[test]
    fn trials_stay_within_their_ranges(
        a in -1e6..1e6_f64, width in 0.0..1e6_f64, low in 1..1000_i64, more in 0..10_000_i64, k in 1..30_usize,
        seed in any::<u64>(), log in any::<bool>(),
    ) {
        let scaling = if log { Scaling::Logarithmic } else { Scaling::Auto };
        let ranges = [
            ("real", Range::Continuous { min: a, max: a + width, scaling: Scaling::Auto }),
            ("whole", Range::Integer { min: low, max: low + more, scaling }),
            ("kind", Range::Categorical { values: (0..k).map(Value::from).collect() }),
            ("near-one", Range::Continuous { min: 0.0, max: 0.999, scaling: Scaling::ReverseLogarithmic }),
        ];
        let parameters: std::collections::BTreeMap<String, Parameter> =
            ranges.into_iter().map(|(name, range)| (name.to_owned(), range.into())).collect();
        let text = serde_json::to_string(&parameters).unwrap();
        prop_assert_eq!(&serde_json::from_str::<std::collections::BTreeMap<String, Parameter>>(&text).unwrap(), &parameters);
        for strategy in [Strategy::Random, Strategy::Bayesian, Strategy::Tpe] {
            let mut spec = Spec::new("loss", parameters.clone());
            (spec.strategy, spec.seed, spec.limits.max_jobs) = (strategy, seed, 14);
            let mut study = Study::in_memory(spec).unwrap();
            for _ in 0..14 {
                let trial = trial(study.ask().unwrap());
                let real = trial.values["real"].as_f64().unwrap();
                let whole = trial.values["whole"].as_i64().unwrap();
                prop_assert!(real >= a && real <= a + width);
                prop_assert!(whole >= low && whole <= low + more);
                prop_assert!(trial.values["kind"].as_u64().unwrap() < k as u64);
                prop_assert!((0.0..=0.999).contains(&trial.values["near-one"].as_f64().unwrap()));
                // What was handed out can be handed in: it is found again in the space.
                study.enqueue(trial.values.clone()).unwrap();
                study.tell(trial.number, Some(real)).unwrap();
            }
        }
    }
}
