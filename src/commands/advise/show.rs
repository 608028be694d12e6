//! Advice as a table for people and as JSON for programs.

use std::fmt::Write;

use serde_json::json;
use stokehold_diagnose::advice::{Advice, amount, fit};
use stokehold_page::words::plural;

use super::Advised;
use super::trial::Trial;

/// As JSON: `run`, `verdict`, `workload`, `fit`, `advice`, `prices`, `notes`, and `trial` (null without one).
pub fn json(advised: &Advised, trial: Option<&Trial>) -> Result<String, serde_json::Error> {
    let prices = &advised.prices;
    serde_json::to_string_pretty(&json!({
        "run": advised.run,
        "verdict": advised.verdict,
        "workload": advised.workload,
        "fit": fit(&advised.workload),
        "advice": advised.advice,
        "prices": {"currency": prices.currency, "source": prices.source, "date": prices.date},
        "notes": advised.notes,
        "trial": trial,
    }))
}

/// As text: the verdict, a row for each change with the reason below it, and the model's fit.
pub fn text(advised: &Advised, trial: Option<&Trial>) -> String {
    let mut text = format!("{}\n", advised.verdict);
    let workload = &advised.workload;
    if let Some(seconds) = workload.seconds_per_epoch {
        let _ = writeln!(
            text,
            "\n{}: {seconds:.2} s per epoch with {} on {}, {}, {}",
            advised.run.display(),
            workload.executor,
            workload.device,
            plural(workload.num_workers as usize, "worker"),
            plural(workload.cores as usize, "core")
        );
    }
    if !advised.advice.is_empty() {
        let widest = advised
            .advice
            .iter()
            .map(|advice| advice.title.chars().count())
            .max();
        let width = widest.unwrap_or(0);
        let _ = writeln!(
            text,
            "\n  {:<width$}  {:>13}  gain               {:>16}  option",
            "change", "s/epoch", "cost/epoch"
        );
        for advice in &advised.advice {
            row(&mut text, advice, width, &advised.prices.currency);
        }
    }
    if let Some(fit) = fit(workload).filter(|_| !advised.advice.is_empty()) {
        let _ = writeln!(
            text,
            "\nThe run's own epochs took {fit:.2} times as long as the model says for them; predictions are multiplied \
             by that."
        );
    }
    if advised
        .advice
        .iter()
        .any(|advice| advice.cost_per_epoch.is_some())
    {
        let _ = writeln!(
            text,
            "Prices: {}, {}.",
            advised.prices.source, advised.prices.date
        );
    }
    for note in &advised.notes {
        let _ = writeln!(text, "Note: {note}.");
    }
    if let Some(trial) = trial {
        tried(&mut text, trial);
    }
    text
}

fn row(text: &mut String, advice: &Advice, width: usize, currency: &str) {
    let cost = advice
        .cost_per_epoch
        .map_or("-".to_owned(), |cost| amount(cost, currency));
    let seconds = match advice.seconds_at_best {
        Some(best) => format!("{best:.2}..{:.2}", advice.seconds_per_epoch),
        None => format!("{:.2}", advice.seconds_per_epoch),
    };
    let line = format!(
        "  {:<width$}  {seconds:>13}  {:>7.2} s {:>4.0} %  {cost:>16}  {}",
        advice.title,
        advice.gain_seconds,
        advice.gain_percent,
        advice.flags.join(" ")
    );
    let _ = writeln!(text, "{}\n      {}", line.trim_end(), advice.why);
}

fn tried(text: &mut String, trial: &Trial) {
    let Trial {
        title,
        images,
        unchanged_seconds,
        changed_seconds,
        predicted_ratio,
        measured_ratio,
        interrupted,
    } = trial;
    let _ = writeln!(text, "\nTried {title}, {images} images, in turns:");
    let _ = writeln!(text, "  unchanged  {unchanged_seconds:.2} s per epoch");
    let _ = writeln!(text, "  changed    {changed_seconds:.2} s per epoch");
    let _ = writeln!(
        text,
        "  left of the time: predicted {:.0} %, measured {:.0} %",
        100.0 * predicted_ratio,
        100.0 * measured_ratio
    );
    if *interrupted {
        let _ = writeln!(text, "  It was stopped before its end.");
    }
}
