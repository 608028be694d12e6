//! Rules, each on both sides of its thresholds, their numbers against direct computations.

mod beyond;
mod bottleneck;
mod gpus;
mod hostile;
mod loading;
mod parameters;
mod simulated;
mod table;
mod training;
mod usage;

use stokehold_diagnose::rules::{Defaults, Finding, Parameters, judge};
use stokehold_profile::{Node, Recording, Series, Span};

/// A machine of one tick a second, from the time `START` on.
pub struct Machine(Node);

pub const START: f64 = 1_700_000_000.0;

impl Machine {
    pub fn new(name: &str, ticks: usize) -> Self {
        Self(Node {
            name: name.to_owned(),
            ticks: (0..ticks).map(|tick| START + tick as f64).collect(),
            ..Node::default()
        })
    }

    /// Adds a series whose value at each tick is what `value` says.
    pub fn series(mut self, name: &str, dimension: &str, value: impl Fn(usize) -> f32) -> Self {
        self.0.series.push(Series {
            kind: name.trim_end_matches(char::is_numeric).to_owned(),
            name: name.to_owned(),
            dimension: dimension.to_owned(),
            values: (0..self.0.ticks.len()).map(value).collect(),
        });
        self
    }

    /// Adds a span of a step, seconds from `START`.
    pub fn span(mut self, name: &str, from: f64, duration: f64, step: u64) -> Self {
        let name = self.0.name(name);
        self.0.spans.push(Span {
            name,
            start: START + from,
            duration,
            step: Some(step),
            worker: None,
            bytes: None,
        });
        self
    }

    /// Adds spans.
    pub fn spans(self, spans: impl IntoIterator<Item = (&'static str, f64, f64, u64)>) -> Self {
        let add = |machine: Self, (name, from, duration, step)| machine.span(name, from, duration, step);
        spans.into_iter().fold(self, add)
    }

    pub fn recording(self) -> Recording {
        recording([self])
    }
}

pub fn recording<const N: usize>(machines: [Machine; N]) -> Recording {
    let mut recording = Recording {
        nodes: machines.into_iter().map(|machine| machine.0).collect(),
        ..Recording::default()
    };
    recording.sort();
    recording
}

/// `numpy.quantile` of values in any order, `q` from 0 to 1, computed by its definition.
pub fn quantile(values: impl IntoIterator<Item = f32>, q: f64) -> f64 {
    let mut values: Vec<f64> = values.into_iter().map(f64::from).collect();
    values.sort_by(|a, b| a.partial_cmp(b).unwrap());
    let place = q * (values.len() - 1) as f64;
    let (low, high) = (
        values[place as usize],
        values[(place as usize + 1).min(values.len() - 1)],
    );
    low + (high - low) * place.fract()
}

/// Whether two numbers are equal but for rounding.
pub fn near(one: &serde_json::Value, other: f64) -> bool {
    one.as_f64()
        .is_some_and(|one| (one - other).abs() <= 1e-9 * other.abs().max(1.0))
}

/// What a rule finds with the parameters of rulesconfig and some of its own (`patience=0`).
pub fn finding(recording: &Recording, rule: &str, set: &[&str]) -> Finding {
    let mut parameters = Parameters::new(Defaults::RulesConfig);
    for one in set {
        parameters.set(&format!("{rule}_{one}")).unwrap();
    }
    named(judge(recording, &parameters), rule)
}

pub fn named(findings: Vec<Finding>, rule: &str) -> Finding {
    findings.into_iter().find(|finding| finding.rule == rule).unwrap()
}
