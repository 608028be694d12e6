//! The events of a study, as its journal stores them, and the state that follows from them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Values;
use crate::spec::{Limits, Spec, Take};
use crate::warm::Parent;

/// An event. Times are unix seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase", deny_unknown_fields)]
pub(crate) enum Event {
    /// The first event.
    Created {
        version: u32,
        time: f64,
        spec: Box<Spec>,
        parents: Vec<Parent>,
    },
    /// A caller queued these values to be tried next.
    Enqueued { values: Values },
    /// The limits were changed.
    Limits { limits: Limits },
    /// A trial was started.
    Asked {
        trial: usize,
        values: Values,
        origin: Origin,
        worker: String,
        time: f64,
    },
    /// A trial whose process died was started again.
    Again { trial: usize, worker: String, time: f64 },
    /// A trial was given back by a process that ends normally.
    Back { trial: usize },
    /// A trial that was stopped at a rung continues.
    Promoted { trial: usize, worker: String, time: f64 },
    /// A trial reported its objective.
    Reported {
        trial: usize,
        step: u64,
        value: f64,
        time: f64,
    },
    /// The rule for early stopping ended the trial.
    Stop { trial: usize, step: u64 },
    /// A trial has ended.
    Told {
        trial: usize,
        outcome: Outcome,
        time: f64,
    },
}

/// The source of a trial's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// The strategy.
    Strategy,
    /// A caller.
    Enqueued,
}

/// The outcome of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Outcome {
    /// It ran to its end.
    Completed {
        /// The objective.
        value: f64,
    },
    /// It was stopped early.
    Stopped {
        /// Its last report, if there is one.
        value: Option<f64>,
    },
    /// It has no objective.
    Failed {
        /// Why.
        reason: String,
    },
}

/// An intermediate result of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Report {
    /// The epoch, or another count.
    pub step: u64,
    /// The objective.
    pub value: f64,
    /// When it was reported, unix seconds.
    pub time: f64,
}

/// A trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Its number, from 0, in the order in which trials were started.
    pub number: usize,
    /// Its hyperparameters.
    pub values: Values,
    /// The source of its values.
    pub origin: Origin,
    /// The process that runs it; empty for one that was given back.
    pub worker: String,
    /// How often it was started: once, plus once for every process that died while running it. Giving it back
    /// or continuing after a rung does not count.
    pub attempt: u32,
    /// When it was first started, unix seconds.
    pub asked: f64,
    /// When it ended.
    pub ended: Option<f64>,
    /// Its reports, in the order of their steps.
    pub reports: Vec<Report>,
    /// The step at which the rule for early stopping ended it.
    pub stop: Option<u64>,
    /// The outcome, once it has ended.
    pub outcome: Option<Outcome>,
}

impl Trial {
    /// The objective of a trial that ran to its end.
    pub fn objective(&self) -> Option<f64> {
        match self.outcome {
            Some(Outcome::Completed { value }) => Some(value),
            _ => None,
        }
    }

    /// Whether it has ended.
    pub fn is_over(&self) -> bool {
        self.outcome.is_some()
    }

    pub(crate) fn result(&self, take: Take, better: impl Fn(f64, f64) -> bool) -> Option<f64> {
        let values = || self.reports.iter().map(|report| report.value);
        match take {
            Take::Last => values().next_back(),
            Take::Best => values().reduce(|a, b| if better(b, a) { b } else { a }),
            Take::Mean => {
                (!self.reports.is_empty()).then(|| values().sum::<f64>() / self.reports.len() as f64)
            }
        }
    }
}

/// The state of a study.
#[derive(Debug, Clone)]
pub struct History {
    /// Its description, with the current limits.
    pub spec: Spec,
    /// When it was created, unix seconds.
    pub created: f64,
    /// All trials by their numbers.
    pub trials: Vec<Trial>,
    /// Results of the studies that it builds on.
    pub parents: Vec<Parent>,
    /// Values that are to be tried next.
    pub(crate) enqueued: std::collections::VecDeque<Values>,
}

impl History {
    pub(crate) fn new(spec: Spec, created: f64, parents: Vec<Parent>) -> Self {
        let enqueued = spec.enqueue.iter().cloned().collect();
        Self {
            spec,
            created,
            trials: Vec::new(),
            parents,
            enqueued,
        }
    }

    /// Applies an event. Returns an error if the event contradicts the state.
    pub(crate) fn apply(&mut self, event: Event) -> Result<(), String> {
        let known = self.trials.len();
        let missing = |trial: usize| format!("there is no trial {trial} before it");
        match event {
            Event::Created { .. } => return Err("a study is created once".to_owned()),
            Event::Enqueued { values } => self.enqueued.push_back(values),
            Event::Limits { limits } => self.spec.limits = limits,
            Event::Asked {
                trial,
                values,
                origin,
                worker,
                time,
            } => {
                if trial != known {
                    return Err(format!("trial {trial} comes after {known} others"));
                }
                if origin == Origin::Enqueued {
                    self.enqueued.pop_front();
                }
                self.trials.push(Trial {
                    number: trial,
                    values,
                    origin,
                    worker,
                    attempt: 1,
                    asked: time,
                    ended: None,
                    reports: Vec::new(),
                    stop: None,
                    outcome: None,
                });
            }
            Event::Again { trial, worker, .. } => {
                let trial = self.trials.get_mut(trial).ok_or_else(|| missing(trial))?;
                trial.attempt += 1;
                trial.worker = worker;
            }
            Event::Back { trial } => {
                let trial = self.trials.get_mut(trial).ok_or_else(|| missing(trial))?;
                trial.attempt = trial.attempt.saturating_sub(1);
                trial.worker.clear();
            }
            Event::Promoted { trial, worker, .. } => {
                let trial = self.trials.get_mut(trial).ok_or_else(|| missing(trial))?;
                (trial.outcome, trial.ended, trial.stop) = (None, None, None);
                trial.worker = worker;
            }
            Event::Reported {
                trial,
                step,
                value,
                time,
            } => {
                let trial = self.trials.get_mut(trial).ok_or_else(|| missing(trial))?;
                // A trial that was restarted may report a step twice; the later report is kept.
                let at = trial.reports.partition_point(|report| report.step < step);
                let report = Report { step, value, time };
                match trial.reports.get_mut(at) {
                    Some(there) if there.step == step => *there = report,
                    _ => trial.reports.insert(at, report),
                }
            }
            Event::Stop { trial, step } => {
                self.trials.get_mut(trial).ok_or_else(|| missing(trial))?.stop = Some(step);
            }
            Event::Told { trial, outcome, time } => {
                let trial = self.trials.get_mut(trial).ok_or_else(|| missing(trial))?;
                trial.outcome = Some(outcome);
                trial.ended = Some(time);
            }
        }
        Ok(())
    }

    /// Trials that have not ended.
    pub fn running(&self) -> impl Iterator<Item = &Trial> {
        self.trials.iter().filter(|trial| !trial.is_over())
    }

    /// The trial with the best objective among those that ran to their end; of equal ones the first.
    pub fn best(&self) -> Option<&Trial> {
        let mut best: Option<(&Trial, f64)> = None;
        for trial in &self.trials {
            if let Some(value) = trial.objective()
                && best.is_none_or(|(_, other)| self.is_better(value, other))
            {
                best = Some((trial, value));
            }
        }
        best.map(|(trial, _)| trial)
    }

    /// The best result of this study and, if data and algorithm are the same, of its parents: the parent's
    /// name, values, objective.
    pub fn overall_best(&self) -> Option<(Option<&str>, &Values, f64)> {
        let own = self
            .best()
            .and_then(|trial| Some((None, &trial.values, trial.objective()?)));
        let parents = self
            .parents
            .iter()
            .filter(|parent| parent.is_identical)
            .flat_map(|parent| {
                let name = Some(parent.name.as_str());
                parent
                    .results
                    .iter()
                    .map(move |result| (name, &result.values, result.value))
            });
        own.into_iter()
            .chain(parents)
            .reduce(|a, b| if self.is_better(b.2, a.2) { b } else { a })
    }

    /// Whether one objective is better than another.
    pub fn is_better(&self, a: f64, b: f64) -> bool {
        self.spec.direction.loss(a) < self.spec.direction.loss(b)
    }

    /// The numbers of trials by outcome.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for trial in &self.trials {
            match trial.outcome {
                Some(Outcome::Completed { .. }) => counts.completed += 1,
                Some(Outcome::Stopped { .. }) => counts.stopped += 1,
                Some(Outcome::Failed { .. }) => counts.failed += 1,
                None => counts.running += 1,
            }
        }
        counts
    }

    /// The number of trials that ended after the best one did.
    pub(crate) fn without_improvement(&self) -> usize {
        let mut ended: Vec<&Trial> = self.trials.iter().filter(|trial| trial.is_over()).collect();
        ended.sort_by(|a, b| {
            let (a_end, b_end) = (a.ended.unwrap_or(0.0), b.ended.unwrap_or(0.0));
            a_end.total_cmp(&b_end).then(a.number.cmp(&b.number))
        });
        match self.best() {
            Some(best) => ended
                .iter()
                .rev()
                .take_while(|trial| trial.number != best.number)
                .count(),
            None => 0,
        }
    }

    /// The names of all parameters that were tried, sorted, for tables.
    pub fn names(&self) -> Vec<&str> {
        self.spec.parameters.keys().map(String::as_str).collect()
    }
}

/// Numbers of trials by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Ran to their end.
    pub completed: usize,
    /// Stopped early.
    pub stopped: usize,
    /// Failed: no objective.
    pub failed: usize,
    /// Not ended yet.
    pub running: usize,
}

/// The values as one line: `batch-size=64 lr=0.01`.
pub fn in_words(values: &Values) -> String {
    let words: BTreeMap<&String, String> = values
        .iter()
        .map(|(name, value)| {
            let text = match value {
                serde_json::Value::String(text) => text.clone(),
                serde_json::Value::Number(number) if number.is_f64() => {
                    short(number.as_f64().unwrap_or(f64::NAN))
                }
                other => other.to_string(),
            };
            (name, text)
        })
        .collect();
    let words: Vec<String> = words
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    words.join(" ")
}

/// A number with four significant digits.
pub fn short(x: f64) -> String {
    if x != 0.0 && !(1e-3..1e6).contains(&x.abs()) {
        let text = format!("{x:.3e}");
        return match text.split_once('e') {
            Some((digits, power)) => {
                format!("{}e{power}", digits.trim_end_matches('0').trim_end_matches('.'))
            }
            None => text,
        };
    }
    let digits = if x == 0.0 {
        0
    } else {
        (3 - x.abs().log10().floor() as i32).max(0) as usize
    };
    let text = format!("{x:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_matter() {
        let shown = [0.0, 1.0, 0.12345, 123.456, 1e-4, 0.00012345, 2.5e7, -0.5, 99999.9].map(short);
        assert_eq!(
            shown,
            [
                "0", "1", "0.1235", "123.5", "1e-4", "1.234e-4", "2.5e7", "-0.5", "100000"
            ]
        );
    }
}
