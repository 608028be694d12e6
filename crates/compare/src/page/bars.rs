//! Bars: seconds per epoch of every trial, cell by cell, with the range of the rounds.

use stokehold_page::html::figure as framed;
use stokehold_page::svg::{Svg, short, ticks};

use super::colour;
use crate::report::{Cell, Report, Summary};
use crate::table;

const WIDTH: f64 = 640.0;
const LEFT: f64 = 80.0;
/// Room for the number after the longest bar.
const RIGHT: f64 = 76.0;
const HEADING: f64 = 24.0;
/// The preferred height of the chart.
const HEIGHT: f64 = 250.0;
/// Space after the bars of a cell.
const GAP: f64 = 12.0;

pub fn figure(report: &Report) -> String {
    let summaries = || {
        report
            .cells
            .iter()
            .flat_map(|cell| &cell.trials)
            .filter_map(|trial| trial.summary)
    };
    let ticks = ticks(
        0.0,
        summaries().map(|summary| summary.range[1]).fold(0.0, f64::max),
        5,
    );
    let end = ticks.last().copied().unwrap_or(1.0);
    let x = |seconds: f64| LEFT + seconds / end * (WIDTH - LEFT - RIGHT);
    let (bar, height) = sizes(report);

    let mut svg = Svg::new(WIDTH);
    for &tick in &ticks {
        svg.line("grid", [x(tick), 0.0], [x(tick), height]);
        svg.text("tick middle", [x(tick), height + 18.0], short(tick));
    }
    svg.text("tick end", [WIDTH, height + 18.0], "s/epoch");
    let mut y = 0.0;
    for model in report.models() {
        svg.text("strong", [0.0, y + 17.0], model);
        y += HEADING;
        for cell in report.cells_of(model) {
            group(&mut svg, report, cell, y, bar, x);
            y += bar * cell.trials.len() as f64 + GAP;
        }
    }
    let described = |cell: &Cell| -> String {
        let each = cell.trials.iter().filter_map(|trial| {
            let seconds = trial.summary?.seconds_per_epoch;
            Some(format!("{} {seconds:.2} s", trial.trial))
        });
        format!(
            "{} at load {}: {}. ",
            cell.model,
            cell.load,
            each.collect::<Vec<_>>().join(", ")
        )
    };
    let description: String = report.cells.iter().map(described).collect();
    let picture = svg.finish(height + 26.0, description.trim_end());
    framed(
        "Seconds per epoch",
        "Shorter is better. The thin line goes from the shortest round to the longest.",
        &picture,
    )
}

/// The height of a bar and of the chart, without the line of ticks.
pub fn sizes(report: &Report) -> (f64, f64) {
    let headings = report.models().len() as f64 * HEADING;
    let cells = report.cells.len() as f64;
    let bars = report.plan.trials.len().max(1) as f64 * cells;
    let bar = ((HEIGHT - headings - cells * GAP) / bars.max(1.0)).clamp(13.0, 30.0);
    (bar, headings + bars * bar + cells * GAP)
}

/// The bars of a cell.
fn group(svg: &mut Svg, report: &Report, cell: &Cell, y: f64, bar: f64, x: impl Fn(f64) -> f64) {
    let middle = y + bar * cell.trials.len() as f64 / 2.0;
    svg.text(
        "label end",
        [LEFT - 8.0, middle + 4.0],
        format!("load {}", table::load(report, cell)),
    );
    for (number, trial) in cell.trials.iter().enumerate() {
        let Some(Summary {
            seconds_per_epoch: seconds,
            range: [low, high],
            ..
        }) = trial.summary
        else {
            continue;
        };
        let top = y + number as f64 * bar;
        let title = format!(
            "{} at load {}, {}: {seconds:.2} s per epoch",
            cell.model, cell.load, trial.trial
        );
        svg.rect(
            &colour(number),
            [x(0.0), top, x(seconds) - x(0.0), bar - 2.0],
            &title,
        );
        let middle = top + bar / 2.0 - 1.0;
        svg.line("range", [x(low), middle], [x(high), middle]);
        svg.text("value", [x(high) + 6.0, middle + 4.5], format!("{seconds:.2}"));
    }
}
