//! Bars: seconds per epoch of both trials, cell by cell, with the range of the epochs.

use stokehold_page::html::figure as framed;
use stokehold_page::svg::{Svg, short, ticks};

use super::super::report::{Cell, Report};
use super::super::trial_name;

const WIDTH: f64 = 640.0;
const LEFT: f64 = 66.0;
/// Room for the number after the longest bar.
const RIGHT: f64 = 76.0;
const HEADING: f64 = 24.0;
/// The preferred height of the chart.
const HEIGHT: f64 = 250.0;

pub fn figure(report: &Report) -> String {
    let longest = report
        .cells
        .iter()
        .flat_map(|cell| &cell.trials)
        .map(|trial| trial.range().1);
    let ticks = ticks(0.0, longest.fold(0.0, f64::max), 5);
    let end = ticks.last().copied().unwrap_or(1.0);
    let x = |seconds: f64| LEFT + seconds / end * (WIDTH - LEFT - RIGHT);
    let models = report.models();
    let (bar, height) = sizes(report);

    let mut svg = Svg::new(WIDTH);
    for &tick in &ticks {
        svg.line("grid", [x(tick), 0.0], [x(tick), height]);
        svg.text("tick middle", [x(tick), height + 18.0], short(tick));
    }
    svg.text("tick end", [WIDTH, height + 18.0], "s/epoch");
    let mut y = 0.0;
    for model in models {
        svg.text("strong", [0.0, y + 17.0], model);
        y += HEADING;
        for cell in report.cells_of(model) {
            group(&mut svg, report, cell, y, bar, x);
            y += group_height(bar);
        }
    }
    let description = report.cells.iter().map(|cell| {
        let [a, b] = &cell.trials;
        format!(
            "{} at load {}: A {:.2} s, B {:.2} s per epoch. ",
            cell.model,
            cell.load,
            a.seconds_per_epoch(),
            b.seconds_per_epoch()
        )
    });
    let picture = svg.finish(height + 26.0, description.collect::<String>().trim_end());
    framed(
        "Seconds per epoch",
        "Shorter is better. The thin line goes from the shortest epoch to the longest.",
        &picture,
    )
}

/// The height of a bar and of the chart, without the line of ticks.
pub fn sizes(report: &Report) -> (f64, f64) {
    let headings = report.models().len() as f64 * HEADING;
    let cells = report.cells.len() as f64;
    let bar = ((HEIGHT - headings) / cells.max(1.0) / 2.0 - 7.0).clamp(15.0, 30.0);
    (bar, headings + cells * group_height(bar))
}

/// Two bars, and the gap to the next two.
fn group_height(bar: f64) -> f64 {
    2.0 * bar + 14.0
}

/// The two bars of a cell.
fn group(svg: &mut Svg, report: &Report, cell: &Cell, y: f64, bar: f64, x: impl Fn(f64) -> f64) {
    svg.text(
        "label end",
        [LEFT - 8.0, y + bar + 5.0],
        format!("load {}", cell.load),
    );
    for (number, trial) in cell.trials.iter().enumerate() {
        let (top, seconds) = (y + number as f64 * (bar + 2.0), trial.seconds_per_epoch());
        let title = format!(
            "{} at load {}, {}: {seconds:.2} s per epoch",
            cell.model,
            cell.load,
            trial_name(number, report.executor(number))
        );
        svg.rect(
            ["a", "b"][number],
            [x(0.0), top, x(seconds) - x(0.0), bar],
            &title,
        );
        let (low, high) = trial.range();
        let middle = top + bar / 2.0;
        svg.line("range", [x(low), middle], [x(high), middle]);
        svg.text("value", [x(high) + 6.0, middle + 4.5], format!("{seconds:.2}"));
    }
}
