//! Exports a study as a table for other programs.

use serde_json::{Value, json};

use stokehold_base::words::field;

use crate::event::{History, Outcome, Trial};

/// One line per trial: number, status, objective, seconds, reports, attempt, origin, reason, then one column
/// per parameter, which is empty if the trial does not have the parameter. Commas, quotes and line ends are
/// quoted (RFC 4180).
pub fn to_csv(history: &History) -> String {
    let names = history.names();
    let mut head: Vec<String> = COLUMNS.iter().map(|name| (*name).to_owned()).collect();
    head.extend(names.iter().map(|name| field(name)));
    let mut text = head.join(",") + "\n";
    for trial in &history.trials {
        let (status, value, reason) = outcome(trial);
        let number = |x: Option<f64>| x.map(|x| x.to_string()).unwrap_or_default();
        let mut row = vec![
            trial.number.to_string(),
            status.to_owned(),
            number(value),
            number(trial.ended.map(|ended| ended - trial.asked)),
            trial.reports.len().to_string(),
            trial.attempt.to_string(),
            origin(trial).to_owned(),
            field(reason),
        ];
        row.extend(names.iter().map(|name| match trial.values.get(*name) {
            Some(Value::String(text)) => field(text),
            Some(other) => field(&other.to_string()),
            None => String::new(),
        }));
        text.push_str(&(row.join(",") + "\n"));
    }
    text
}

const COLUMNS: [&str; 8] = [
    "trial",
    "status",
    "objective",
    "seconds",
    "reports",
    "attempt",
    "origin",
    "reason",
];

/// The complete study: the description, the parents, and every trial with its reports. Times are unix
/// seconds.
pub fn to_json(history: &History) -> Value {
    let trials: Vec<Value> = history
        .trials
        .iter()
        .map(|trial| {
            let (status, value, reason) = outcome(trial);
            let reports: Vec<Value> = trial
                .reports
                .iter()
                .map(|report| json!({"step": report.step, "value": report.value, "time": report.time}))
                .collect();
            json!({
                "trial": trial.number, "status": status, "objective": value, "values": trial.values,
                "asked": trial.asked, "ended": trial.ended, "attempt": trial.attempt, "origin": origin(trial),
                "stopped_at_step": trial.stop, "reason": reason, "reports": reports,
            })
        })
        .collect();
    let best = history.best().map(|trial| trial.number);
    let overall = history
        .overall_best()
        .map(|(parent, values, value)| json!({"parent": parent, "values": values, "objective": value}));
    json!({
        "spec": history.spec, "created": history.created, "counts": history.counts(), "best": best, "overall_best": overall,
        "parents": history.parents, "trials": trials,
    })
}

fn outcome(trial: &Trial) -> (&'static str, Option<f64>, &str) {
    match &trial.outcome {
        None => ("running", None, ""),
        Some(Outcome::Completed { value }) => ("completed", Some(*value), ""),
        Some(Outcome::Stopped { value }) => ("stopped", *value, ""),
        Some(Outcome::Failed { reason }) => ("failed", None, reason),
    }
}

fn origin(trial: &Trial) -> &'static str {
    match trial.origin {
        crate::Origin::Strategy => "strategy",
        crate::Origin::Enqueued => "enqueued",
    }
}
