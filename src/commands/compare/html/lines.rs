//! Lines: by how many percent B is better, over the load, one line per model.

use stokehold_page::html::figure as framed;
use stokehold_page::svg::{Svg, short, ticks};

use super::super::report::Report;
use super::bars;

const WIDTH: f64 = 440.0;
const LEFT: f64 = 54.0;
/// Room for the models' names after their lines.
const RIGHT: f64 = 84.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 42.0;
/// Names closer than this are hard to read.
const APART: f64 = 17.0;

pub fn figure(report: &Report) -> String {
    // As high as the bars next to it, within limits.
    let height = (bars::sizes(report).1 + 20.0).clamp(270.0, 480.0);
    let percents = || report.cells.iter().map(|cell| cell.better_by);
    let ticks = ticks(percents().fold(0.0, f64::min), percents().fold(1.0, f64::max), 5);
    let (low, high) = (
        ticks.first().copied().unwrap_or(0.0),
        ticks.last().copied().unwrap_or(1.0),
    );
    let mut loads: Vec<u32> = report.cells.iter().map(|cell| cell.load).collect();
    loads.sort_unstable();
    loads.dedup();
    let (first, last) = (
        loads.first().copied().unwrap_or(0),
        loads.last().copied().unwrap_or(0),
    );
    let x = |load: u32| {
        // A single load is drawn in the middle.
        let share = if first == last {
            0.5
        } else {
            f64::from(load - first) / f64::from(last - first)
        };
        LEFT + 12.0 + share * (WIDTH - LEFT - RIGHT - 24.0)
    };
    let y = |percent: f64| TOP + (high - percent) / (high - low) * (height - TOP - BOTTOM);

    let mut svg = Svg::new(WIDTH);
    for &tick in &ticks {
        let class = if tick == 0.0 { "axis" } else { "grid" };
        svg.line(class, [LEFT, y(tick)], [WIDTH - RIGHT, y(tick)]);
        svg.text(
            "tick end",
            [LEFT - 8.0, y(tick) + 4.0],
            format!("{} %", short(tick)),
        );
    }
    let mut labelled = f64::NEG_INFINITY;
    for &load in &loads {
        // Labels of nearby loads would overlap.
        if x(load) - labelled >= 22.0 {
            svg.text("tick middle", [x(load), height - BOTTOM + 20.0], load);
            labelled = x(load);
        }
    }
    let middle = (LEFT + WIDTH - RIGHT) / 2.0;
    svg.text("tick middle", [middle, height - 4.0], "load");

    let mut names = Vec::new();
    for (number, model) in report.models().into_iter().enumerate() {
        let cells = report.cells_of(model);
        let points: Vec<[f64; 2]> = cells
            .iter()
            .map(|cell| [x(cell.load), y(cell.better_by)])
            .collect();
        svg.polyline(&format!("line m{}", number % 5), &points);
        for (cell, &point) in std::iter::zip(&cells, &points) {
            let title = format!("{model} at load {}: better by {:.2} %", cell.load, cell.better_by);
            svg.circle(&format!("dot m{}", number % 5), point, &title);
        }
        if let Some(&[x, y]) = points.last() {
            names.push((y, x, number, model));
        }
    }
    names.sort_by(|one, other| one.0.total_cmp(&other.0));
    let wanted: Vec<f64> = names.iter().map(|name| name.0).collect();
    for ((_, x, number, model), y) in std::iter::zip(names, spread(&wanted, height - BOTTOM)) {
        svg.text(&format!("label m{}", number % 5), [x + 10.0, y + 4.0], model);
    }
    let description = report.cells.iter().map(|cell| {
        format!(
            "{} at load {}: B better by {:.2} %. ",
            cell.model, cell.load, cell.better_by
        )
    });
    let picture = svg.finish(height, description.collect::<String>().trim_end());
    framed(
        "Improvement over load",
        "By how much B's epoch is shorter than A's. Below 0 % it is longer.",
        &picture,
    )
}

/// Heights, in order, at least [`APART`] from each other and near the wanted ones, none below `bottom`.
fn spread(wanted: &[f64], bottom: f64) -> Vec<f64> {
    let mut heights: Vec<f64> = Vec::with_capacity(wanted.len());
    for &height in wanted {
        let least = heights.last().map_or(f64::NEG_INFINITY, |last| last + APART);
        heights.push(height.max(least));
    }
    let mut most = bottom;
    for height in heights.iter_mut().rev() {
        *height = height.min(most);
        most = *height - APART;
    }
    heights
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_write_over_each_other() {
        assert_eq!(spread(&[10.0, 100.0], 250.0), [10.0, 100.0]);
        assert_eq!(spread(&[100.0, 101.0, 102.0], 250.0), [100.0, 117.0, 134.0]);
        assert_eq!(spread(&[240.0, 245.0], 250.0), [233.0, 250.0]);
    }
}
