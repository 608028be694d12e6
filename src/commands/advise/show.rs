//! Advice as a table for people and as JSON for programs.

use std::fmt::Write;

use serde_json::json;
use stokehold_advise::Advised;
use stokehold_advise::script::Trials;
use stokehold_advise::trial::Trial;
use stokehold_base::words::plural;
use stokehold_diagnose::advice::{Advice, amount, fit, order, without_others};

/// A longer name stands out of its column.
const WIDEST: usize = 200;

/// As JSON: `run`, `verdict`, `workload`, `fit`, `advice`, `machines`, `prices`, `notes`, and `trial` (null without one).
pub fn json(advised: &Advised, trial: Option<&Trial>) -> Result<String, serde_json::Error> {
    let prices = &advised.prices;
    serde_json::to_string_pretty(&json!({
        "run": advised.run,
        "verdict": advised.verdict,
        "workload": advised.workload,
        "fit": fit(&advised.workload),
        "advice": advised.advice,
        "machines": advised.machines,
        "prices": {"currency": prices.currency, "source": prices.source, "date": prices.date},
        "notes": advised.notes,
        "trial": trial,
    }))
}

/// As [`json()`], of a script: `trial` has `rounds`, `unchanged_seconds` and `changes`, and `problems`.
pub fn json_of_script(advised: &Advised, trials: &Trials) -> Result<String, serde_json::Error> {
    let mut value: serde_json::Value = serde_json::from_str(&json(advised, None)?)?;
    value["trial"] = serde_json::to_value(trials)?;
    serde_json::to_string_pretty(&value)
}

/// As [`text`], with what was tried of a script: predicted and measured, the quickest first, and how to keep it.
pub fn text_of_script(advised: &Advised, trials: &Trials) -> String {
    let mut text = text(advised, None);
    let rounds = plural(trials.rounds, "round");
    if !trials.changes.is_empty() {
        let _ = writeln!(
            text,
            "\nTried in {rounds}; an epoch as it is: {:.2} s",
            trials.unchanged_seconds
        );
    }
    let widest = trials
        .changes
        .iter()
        .map(|tried| tried.title.chars().count())
        .max();
    let width = widest.unwrap_or(0).clamp("change".len(), WIDEST);
    if !trials.changes.is_empty() {
        let _ = writeln!(
            text,
            "  {:<width$}  {:>11}  {:>11}  {:>11}  to keep it",
            "change", "predicted", "measured", "of the time"
        );
    }
    for tried in &trials.changes {
        let _ = writeln!(
            text,
            "  {:<width$}  {:>11}  {:>9.2} s  {:>11}  {}",
            tried.title,
            tried.predicted_ratio.map_or("-".to_owned(), |ratio| format!(
                "{:.2} s",
                ratio * trials.unchanged_seconds
            )),
            tried.measured_ratio * trials.unchanged_seconds,
            shares(tried.measured_range),
            match tried.measured_ratio < 1.0 - Advice::WORTH_PERCENT / 100.0 {
                true => &tried.keep,
                false => "-",
            }
        );
    }
    for problem in &trials.problems {
        let _ = writeln!(text, "Not tried: {problem}.");
    }
    if trials.interrupted {
        let _ = writeln!(text, "It was stopped before its end.");
    }
    text
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
        let width = widest.unwrap_or(0).min(WIDEST);
        let _ = writeln!(
            text,
            "\n  {:<width$}  {:>13}  gain               {:>16}  option",
            "change", "s/epoch", "saves"
        );
        for advice in &advised.advice {
            row(&mut text, advice, width, advised);
        }
    }
    if let Some(order) = order(workload).filter(|_| !advised.advice.is_empty()) {
        let _ = writeln!(text, "\n{order}");
    } else if let Some(fit) = fit(workload).filter(|_| !advised.advice.is_empty()) {
        let _ = writeln!(
            text,
            "\nThe run's own epochs took {fit:.2} times as long as the model says for them; predictions are multiplied \
             by that{}.{}",
            match workload.script {
                Some(_) => ", and those of numbers of workers far from the run's by less",
                None => "",
            },
            match workload.others().filter(|_| workload.script.is_some()) {
                Some(others) => format!(" In this run {others}; the predictions hold while they do."),
                None => String::new(),
            }
        );
        if let Some(seconds) = without_others(workload) {
            let _ = writeln!(
                text,
                "Without the other programs, an epoch with these settings would take {seconds:.2} s."
            );
        }
    }
    if let Some(machines) = &advised.machines {
        let _ = writeln!(text, "\n{}:\n", machines.heading());
        for line in machines.table().text().lines() {
            let _ = writeln!(text, "  {line}");
        }
        let _ = writeln!(
            text,
            "\nOthers have the best number of workers, and ranges are extrapolated: docs/guide/machines.md says how. Prices: {}.",
            machines.prices
        );
        for note in &machines.notes {
            let _ = writeln!(text, "Note: {note}.");
        }
    }
    for note in &advised.notes {
        let _ = writeln!(text, "Note: {note}.");
    }
    if let Some(trial) = trial {
        tried(&mut text, trial);
    }
    text
}

/// Of the rounds, in percent: `31 %`, or `68..140 %` where they differ.
fn shares([least, most]: [f64; 2]) -> String {
    let (least, most) = (format!("{:.0}", 100.0 * least), format!("{:.0}", 100.0 * most));
    match least == most {
        true => format!("{least} %"),
        false => format!("{least}..{most} %"),
    }
}

fn row(text: &mut String, advice: &Advice, width: usize, advised: &Advised) {
    // Of the whole training.
    let saves = advice.saved_per_epoch.map(|saved| advised.epochs as f64 * saved);
    let cost = saves.map_or("-".to_owned(), |saves| amount(saves, &advised.prices.currency));
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
