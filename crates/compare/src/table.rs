//! The tables of a comparison, and the same as CSV.

use std::fmt::Write;

use stokehold_page::Table;

use crate::published;
use crate::report::{Cell, Measured, Report, Summary};

/// The column of [`result`] with the gain.
pub const GAIN: usize = 6;

/// The rows of [`result`]: each cell, with the place of a trial but A.
pub fn rows_of_result(report: &Report) -> impl Iterator<Item = (&Cell, usize)> {
    let cells = report.cells.iter();
    cells.flat_map(|cell| (1..cell.trials.len()).map(move |trial| (cell, trial)))
}

/// The result: a row for each cell and each trial but A, with both times, the gain, its interval and the verdict; next to the
/// published gains where there are some.
pub fn result(report: &Report) -> Table {
    let published = rows_of_result(report)
        .any(|(cell, trial)| published::better_by(cell.trials[trial].trial, cell.model, cell.load).is_some());
    let mut head = vec![
        "model",
        "load",
        "A",
        "s/epoch",
        "B",
        "s/epoch",
        "better by",
        "95 % interval",
        "verdict",
        "published",
    ];
    if !published {
        head.pop();
    }
    let mut table = Table::new(&head, &[0, 2, 4, 8]);
    for (cell, trial) in rows_of_result(report) {
        let (a, b) = (&cell.trials[0], &cell.trials[trial]);
        let gain = b.summary.and_then(|summary| summary.gain);
        let mut row = vec![
            cell.model.to_string(),
            load(report, cell),
            a.trial.to_string(),
            seconds(a),
            b.trial.to_string(),
            seconds(b),
            or_dash(gain.map(|gain| format!("{:.1} %", unsigned_zero(gain.better_by)))),
            or_dash(gain.map(|gain| {
                format!(
                    "{:.1} to {:.1} %",
                    unsigned_zero(gain.low),
                    unsigned_zero(gain.high)
                )
            })),
            verdict(a, b),
        ];
        if published {
            let of_cell = gain.and_then(|_| published::better_by(b.trial, cell.model, cell.load));
            row.push(or_dash(of_cell.map(|percent| format!("{percent:.1} %"))));
        }
        table.row(row);
    }
    table
}

/// A row for each trial of each cell: speed, what a core makes, waits, and what else ran.
pub fn details(report: &Report) -> Table {
    let head = [
        "model",
        "load",
        "trial",
        "images/s",
        "per core-second",
        "waited",
        "busy",
        "pairs",
        "shortest to longest",
        "others' cores",
        "loss",
    ];
    let mut table = Table::new(&head, &[0, 2]);
    for (cell, trial) in trials(report) {
        let of = |text: fn(&Summary) -> Option<String>| or_dash(trial.summary.as_ref().and_then(text));
        table.row([
            cell.model.to_string(),
            load(report, cell),
            trial.trial.to_string(),
            of(|s| Some(format!("{:.1}", s.images_per_second))),
            of(|s| Some(format!("{:.0}", s.images_per_core_second?))),
            of(|s| Some(format!("{:.1} %", 100.0 * s.waited))),
            of(|s| Some(format!("{:.1} %", 100.0 * s.busy))),
            trial.rounds.len().to_string(),
            of(|s| Some(format!("{:.2} to {:.2} s", s.range[0], s.range[1]))),
            of(|s| Some(format!("{:.2}", s.others_cores?))),
            of(|s| Some(format!("{:.4}", s.loss?))),
        ]);
    }
    table
}

/// How busy cores, GPUs and their memory were: the percentiles that the published study shows.
pub fn usage(report: &Report) -> Table {
    let head = [
        "model", "load", "trial", "of", "max", "p99", "p95", "p90", "p50", "min",
    ];
    let mut table = Table::new(&head, &[0, 2, 3]);
    for (cell, trial) in trials(report) {
        for usage in &trial.usage {
            let mut row = vec![
                cell.model.to_string(),
                load(report, cell),
                trial.trial.to_string(),
                usage.of.clone(),
            ];
            let figures = [usage.max, usage.p99, usage.p95, usage.p90, usage.p50, usage.min];
            row.extend(figures.map(|share| format!("{share:.0} %")));
            table.row(row);
        }
    }
    table
}

/// The trials that have no figures or stopped giving them, with the reasons; empty if there are none.
pub fn failures(report: &Report) -> Table {
    let mut table = Table::new(&["model", "load", "trial", "what happened"], &[0, 2, 3]);
    for (cell, trial) in trials(report) {
        if let Some(failure) = &trial.failure {
            let mut text = failure.why.clone();
            if let Some(install) = &failure.install {
                text += &format!("; {install}");
            }
            for line in &failure.stderr {
                text += &format!("\n{line}");
            }
            table.row([
                cell.model.to_string(),
                load(report, cell),
                trial.trial.to_string(),
                text,
            ]);
        }
    }
    table
}

/// What the trials ran on and were made of.
pub fn versions(report: &Report) -> Table {
    let mut table = Table::new(&["trial", "device", "versions"], &[0, 1, 2]);
    let mut seen = Vec::new();
    for (_, trial) in trials(report) {
        if let Some(ready) = &trial.ready
            && !seen.contains(&trial.trial)
        {
            seen.push(trial.trial);
            table.row([
                trial.trial.to_string(),
                ready.device.clone(),
                ready.versions.clone(),
            ]);
        }
    }
    table
}

fn trials(report: &Report) -> impl Iterator<Item = (&Cell, &Measured)> {
    report
        .cells
        .iter()
        .flat_map(|cell| cell.trials.iter().map(move |trial| (cell, trial)))
}

/// The load of a cell; a dash with a pipeline of the user's own.
pub fn load(report: &Report, cell: &Cell) -> String {
    match report.plan.pipeline {
        Some(_) => dash(),
        None => cell.load.to_string(),
    }
}

/// What can be said of B next to A, or why nothing can.
fn verdict(a: &Measured, b: &Measured) -> String {
    let gain = b.summary.and_then(|summary| summary.gain);
    match (gain, &a.failure, &b.failure) {
        (_, _, Some(_)) => "failed".to_owned(),
        (_, Some(_), _) => format!("{} failed", a.trial),
        (Some(gain), None, None) => gain.verdict.to_string(),
        (None, None, None) => "not measured".to_owned(),
    }
}

fn seconds(trial: &Measured) -> String {
    or_dash(trial.summary.map(|summary| {
        let seconds = summary.seconds_per_epoch;
        match seconds < 10.0 {
            true => format!("{seconds:.3}"),
            false => format!("{seconds:.2}"),
        }
    }))
}

/// The value, without the sign of what is shown as zero.
fn unsigned_zero(percent: f64) -> f64 {
    if percent.abs() < 0.05 { 0.0 } else { percent }
}

fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(dash)
}

/// The text for a missing value.
fn dash() -> String {
    "–".to_owned()
}

/// A column of the CSV: its name and its value.
type Column = (&'static str, fn(&Summary) -> Option<f64>);

/// The columns of the CSV after model, load, trial and pairs.
const COLUMNS: [Column; 14] = [
    ("seconds_per_epoch", |s| Some(s.seconds_per_epoch)),
    ("shortest_seconds_per_epoch", |s| Some(s.range[0])),
    ("longest_seconds_per_epoch", |s| Some(s.range[1])),
    ("images_per_second", |s| Some(s.images_per_second)),
    ("images_per_core_second", |s| s.images_per_core_second),
    ("waited_share", |s| Some(s.waited)),
    ("busy_share", |s| Some(s.busy)),
    ("others_cores", |s| s.others_cores),
    ("loss", |s| s.loss),
    ("better_by_percent", |s| Some(s.gain?.better_by)),
    ("better_by_low", |s| Some(s.gain?.low)),
    ("better_by_high", |s| Some(s.gain?.high)),
    ("faster", |s| {
        Some(f64::from(s.gain?.verdict == crate::Verdict::Faster))
    }),
    ("slower", |s| {
        Some(f64::from(s.gain?.verdict == crate::Verdict::Slower))
    }),
];

/// A line for each trial of each cell, with full precision; values that were not measured are empty.
pub fn csv(report: &Report) -> String {
    let mut text = "model,load,trial,pairs".to_owned();
    for (name, _) in COLUMNS {
        let _ = write!(text, ",{name}");
    }
    text.push('\n');
    for (cell, trial) in trials(report) {
        let _ = write!(
            text,
            "{},{},{},{}",
            cell.model,
            cell.load,
            trial.trial,
            trial.rounds.len()
        );
        for (_, value) in COLUMNS {
            let value = trial.summary.as_ref().and_then(value);
            let _ = write!(
                text,
                ",{}",
                value.map_or_else(String::new, |value| value.to_string())
            );
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Trial;
    use crate::report::Failure;
    use crate::report::tests::{cell, report};
    use stokehold_train::model::Arch;

    #[test]
    fn a_row_has_both_times_and_what_follows() {
        let mut report = report(vec![cell(Arch::Resnet18, 12, 10.0, &[4.0, 10.0])]);
        assert!(!result(&report).text().contains("published"));
        report.cells[0].trials[2].trial = Trial::Dali;
        let text = result(&report).text();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| {
                line.split("  ")
                    .filter(|word| !word.is_empty())
                    .map(str::trim)
                    .collect()
            })
            .collect();
        assert_eq!(
            lines[1][..6],
            ["resnet18", "12", "per-op", "10.02", "fused", "4.008"]
        );
        // The published gain is DALI's.
        assert_eq!(lines[1][6..], ["60.0 %", "60.0 to 60.0 %", "faster", "–"]);
        assert_eq!(lines[2][8..], ["cannot be told apart", "72.6 %"]);
        report.cells[0].trials[2].failure = Some(Failure {
            why: "DALI is not installed".into(),
            install: Some("pip install it".into()),
            stderr: vec!["one".into(), "two".into()],
        });
        assert!(result(&report).text().contains("failed"));
        assert_eq!(
            failures(&report).rows()[0][3],
            "DALI is not installed; pip install it\none\ntwo"
        );
        assert_eq!(details(&report).rows().len(), 3);
    }

    #[test]
    fn the_csv_has_a_line_for_each_trial() {
        let report = report(vec![cell(Arch::Resnet18, 12, 10.0, &[4.0])]);
        let csv = csv(&report);
        let lines: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(lines.len(), 3);
        let value =
            |line: usize, name: &str| lines[line][lines[0].iter().position(|head| *head == name).unwrap()];
        assert!(lines.iter().all(|line| line.len() == lines[0].len()));
        assert_eq!((value(1, "trial"), value(1, "better_by_percent")), ("per-op", ""));
        assert_eq!((value(2, "pairs"), value(2, "faster")), ("8", "1"));
        assert!((value(2, "better_by_percent").parse::<f64>().unwrap() - 60.0).abs() < 1e-6);
    }
}
