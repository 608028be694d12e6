//! The tables of a comparison, and the same as CSV.

use std::fmt::Write;

use stokehold_page::Table;

use super::LETTERS;
use super::report::{Cell, Report, Trial};
use super::verdict::Verdict;

/// The published table: model, load, seconds per epoch of both trials, better by; and whether that is more
/// than chance.
pub fn published(report: &Report) -> Table {
    let header = [
        "model",
        "load",
        "A s/epoch",
        "B s/epoch",
        "better by",
        "told apart",
    ];
    let row = |cell: &Cell| {
        let [a, b] = &cell.trials;
        vec![
            cell.model.to_string(),
            cell.load.to_string(),
            format!("{:.2}", a.seconds_per_epoch()),
            format!("{:.2}", b.seconds_per_epoch()),
            format!("{:.2} %", cell.better_by),
            told_apart(report, cell).to_owned(),
        ]
    };
    let mut table = Table::new(&header, &[0]);
    report.cells.iter().for_each(|cell| table.row(row(cell)));
    table
}

fn told_apart(report: &Report, cell: &Cell) -> &'static str {
    if Verdict::of_cell(report, cell).is_shown() {
        "yes"
    } else {
        "no"
    }
}

/// A row for each run: speeds, ceilings, CPU, and figures that show that the work was equal.
pub fn details(report: &Report) -> Table {
    let header = [
        "model",
        "trial",
        "load",
        "images/s",
        "loader",
        "trainer",
        "waited",
        "CPU ms/image",
        "CPU p50/95/99 %",
        "loss",
        "top-1",
        "of images",
    ];
    let rows = report.cells.iter().flat_map(|cell| {
        cell.trials.iter().enumerate().map(move |(number, trial)| {
            let summary = &trial.summary;
            let cpu = summary.cpu.map_or_else(dash, |cpu| {
                format!("{:.0}/{:.0}/{:.0}", cpu.p50, cpu.p95, cpu.p99)
            });
            let rate = |rate| or_dash(rate, |rate| format!("{rate:.1}"));
            vec![
                cell.model.to_string(),
                format!("{} {}", LETTERS[number], trial.executor),
                cell.load.to_string(),
                rate(Some(summary.images_per_second)),
                rate(summary.loader_ceiling),
                rate(summary.trainer_ceiling),
                format!("{:.1} %", 100.0 * summary.wait_share),
                rate(trial.cpu_time.ms_per_image()),
                cpu,
                or_dash(summary.train_loss, |loss| format!("{loss:.4}")),
                or_dash(summary.validation.map(|val| val.top1), |top1| {
                    format!("{top1:.4}")
                }),
                summary
                    .validation
                    .map_or_else(dash, |val| match val.images < val.of {
                        true => format!("{}/{}", val.images, val.of),
                        false => val.images.to_string(),
                    }),
            ]
        })
    });
    let mut table = Table::new(&header, &[0, 1]);
    rows.for_each(|row| table.row(row));
    table
}

fn or_dash(value: Option<f64>, show: impl Fn(f64) -> String) -> String {
    value.map_or_else(dash, show)
}

/// The text for a missing value.
fn dash() -> String {
    "–".to_owned()
}

/// A column of the CSV: its name and its value.
type Measure = (&'static str, fn(&Trial) -> Option<f64>);

/// The columns of the CSV for each trial.
const MEASURES: [Measure; 16] = [
    ("seconds_per_epoch", |trial| Some(trial.seconds_per_epoch())),
    ("shortest_epoch", |trial| Some(trial.range().0)),
    ("longest_epoch", |trial| Some(trial.range().1)),
    ("images_per_second", |trial| Some(trial.summary.images_per_second)),
    ("loader_ceiling", |trial| trial.summary.loader_ceiling),
    ("trainer_ceiling", |trial| trial.summary.trainer_ceiling),
    ("wait_share", |trial| Some(trial.summary.wait_share)),
    ("cpu_ms_per_image", |trial| trial.cpu_time.ms_per_image()),
    ("cpu_p50", |trial| Some(trial.summary.cpu?.p50)),
    ("cpu_p95", |trial| Some(trial.summary.cpu?.p95)),
    ("cpu_p99", |trial| Some(trial.summary.cpu?.p99)),
    ("train_loss", |trial| trial.summary.train_loss),
    ("val_loss", |trial| Some(trial.summary.validation?.loss)),
    ("top1", |trial| Some(trial.summary.validation?.top1)),
    ("bad_images", |trial| Some(trial.summary.bad_images as f64)),
    ("val_images", |trial| {
        Some(trial.summary.validation?.images as f64)
    }),
];

/// A line for each cell, with full precision; values that were not measured are empty.
pub fn csv(report: &Report) -> String {
    let mut text = "model,load,a,b".to_owned();
    for letter in ["a", "b"] {
        for (name, _) in MEASURES {
            let _ = write!(text, ",{letter}_{name}");
        }
    }
    text += ",better_by_percent,told_apart\n";
    for cell in &report.cells {
        let [a, b] = &cell.trials;
        let _ = write!(text, "{},{},{},{}", cell.model, cell.load, a.executor, b.executor);
        for trial in &cell.trials {
            for (_, value) in MEASURES {
                let value = value(trial).map_or_else(String::new, |value| value.to_string());
                let _ = write!(text, ",{value}");
            }
        }
        let _ = writeln!(text, ",{},{}", cell.better_by, told_apart(report, cell));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::compare::report::tests::published_report;

    /// Oracle: the published table, whose percentages are cut off after two digits in places; equal to 0.02.
    const PUBLISHED: [&str; 12] = [
        "48.88", "57.21", "65.95", "72.59", "35.37", "40.14", "43.00", "47.76", "28.15", "32.08", "30.34",
        "33.95",
    ];

    #[test]
    fn the_published_rows_come_out_as_published() {
        let report = published_report();
        let table = published(&report);
        for (row, expected) in std::iter::zip(table.rows(), PUBLISHED) {
            let percent: f64 = row[4].trim_end_matches(" %").parse().unwrap();
            let expected: f64 = expected.parse().unwrap();
            assert!((percent - expected).abs() <= 0.02, "{row:?}: {expected}");
        }
        let text = table.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 13);
        assert_eq!(
            lines[0],
            "model      load  A s/epoch  B s/epoch  better by  told apart"
        );
        assert_eq!(
            lines[1],
            "resnet18      1      41.67      21.30    48.88 %         yes"
        );
        assert_eq!(
            lines[12],
            "resnet152    12     173.18     114.38    33.95 %         yes"
        );
        let markdown = table.markdown();
        assert!(
            markdown.contains("| resnet50 | 12 | 88.89 | 46.43 | 47.77 % | yes |\n"),
            "{markdown}"
        );
        assert!(
            markdown.contains("| --- | ---: | ---: | ---: | ---: | ---: |\n"),
            "{markdown}"
        );
    }

    #[test]
    fn details_have_a_row_for_each_run_and_fit_a_terminal() {
        let text = details(&published_report()).text();
        assert_eq!(text.lines().count(), 25);
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        assert!(text.contains("resnet18   A per-op"), "{text}");
    }

    #[test]
    fn csv_reads_back() {
        let report = published_report();
        let text = csv(&report);
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let header = lines.next().unwrap();
        for (cell, line) in std::iter::zip(&report.cells, lines) {
            assert_eq!(line.len(), header.len());
            let value = |name: &str| line[header.iter().position(|column| *column == name).unwrap()];
            assert_eq!(value("model").parse(), Ok(cell.model));
            assert_eq!(value("load").parse(), Ok(cell.load));
            assert_eq!(value("b"), "fused");
            assert_eq!(
                value("a_seconds_per_epoch").parse(),
                Ok(cell.trials[0].seconds_per_epoch())
            );
            assert_eq!(value("b_longest_epoch").parse(), Ok(cell.trials[1].range().1));
            assert_eq!(value("better_by_percent").parse(), Ok(cell.better_by));
            assert_eq!(value("told_apart"), "yes");
            assert_eq!(value("b_trainer_ceiling"), "1000");
        }
        assert_eq!(text.lines().count(), 13);
    }
}
