//! A study for its page: its trials, what was best, and which parameters matter.

use serde_json::{Value, json};
use stokehold_tune::report::{self, WAYS};
use stokehold_tune::{Direction, History, Insight, Outcome, Trial, in_words};

use crate::text;

/// The trials that are sent; those of larger studies are the latest.
const TRIALS: usize = 1000;
/// The most reports of a trial; every so many one is sent of more.
const REPORTS: usize = 200;

/// Everything that the page shows.
pub fn page(history: &History) -> Value {
    let spec = &history.spec;
    let counts = history.counts();
    let skipped = history.trials.len().saturating_sub(TRIALS);
    let insight = Insight::of(history);
    let names = history.names();
    json!({
        "objective": text::short(&spec.objective, 100),
        "direction": format!("{:?}", spec.direction).to_lowercase(),
        "strategy": format!("{:?}", spec.strategy),
        "created": history.created,
        "most": spec.limits.max_jobs,
        "counts": {
            "completed": counts.completed,
            "stopped": counts.stopped,
            "failed": counts.failed,
            "running": counts.running,
        },
        "names": names.iter().map(|name| text::short(name, 100)).collect::<Vec<_>>(),
        "best": history.best().map(|best| json!({
            "number": best.number,
            "value": best.objective(),
            "values": text::short(&in_words(&best.values), 400),
        })),
        "parents": history.parents.iter().map(|parent| text::short(&parent.name, 100)).collect::<Vec<_>>(),
        "importance": insight.map(|insight| insight.importance()),
        "parallel": report::parallel(history).map(|picture| json!({"picture": picture, "about": WAYS})),
        "skipped": skipped,
        // What the line of the best so far begins with.
        "best_before": best_of(history, skipped),
        "trials": history.trials.iter().skip(skipped).map(|trial| self::trial(trial, &names)).collect::<Vec<_>>(),
    })
}

/// The best result of the first trials.
fn best_of(history: &History, trials: usize) -> Option<f64> {
    let is_better = |a: f64, b: f64| match history.spec.direction {
        Direction::Minimize => a < b,
        Direction::Maximize => a > b,
    };
    let completed = |trial: &&Trial| matches!(trial.outcome, Some(Outcome::Completed { .. }));
    let results = history.trials[..trials]
        .iter()
        .filter(completed)
        .filter_map(Trial::objective);
    results.reduce(|best, one| if is_better(one, best) { one } else { best })
}

fn trial(trial: &Trial, names: &[&str]) -> Value {
    let every = trial.reports.len().div_ceil(REPORTS).max(1);
    let last = trial.reports.len().saturating_sub(1);
    let reports = trial.reports.iter().enumerate();
    let reports = reports.filter(|(number, _)| number % every == 0 || *number == last);
    let (state, why) = match &trial.outcome {
        None => ("running", String::new()),
        Some(Outcome::Completed { .. }) => ("finished", String::new()),
        Some(Outcome::Stopped { .. }) => ("stopped", String::new()),
        Some(Outcome::Failed { reason }) => ("failed", text::short(reason, 300)),
    };
    let values = names.iter().map(|name| trial.values.get(*name).cloned());
    json!({
        "number": trial.number,
        "state": state,
        "why": why,
        "value": trial.objective().or(match &trial.outcome {
            Some(Outcome::Stopped { value }) => *value,
            _ => None,
        }),
        "asked": trial.asked,
        "ended": trial.ended,
        "values": values.collect::<Vec<_>>(),
        "reports": reports.flat_map(|(_, report)| [
            json!(report.step),
            json!(Some(report.value).filter(|value| value.is_finite())),
        ]).collect::<Vec<_>>(),
    })
}
