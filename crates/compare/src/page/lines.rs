//! Lines: by how many percent each trial is better than A, over the load, with intervals, next to the published curves.

use stokehold_page::html::figure as framed;
use stokehold_page::svg::{Svg, short, ticks};
use stokehold_train::model::Arch;

use super::{bars, colour};
use crate::published;
use crate::report::Report;

const WIDTH: f64 = 440.0;
const LEFT: f64 = 54.0;
/// The width of a character of a name, and the room between a line and its name.
const CHARACTER: f64 = 8.5;
const BEFORE_NAMES: f64 = 20.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 42.0;
/// Names closer than this are hard to read.
const APART: f64 = 17.0;

/// A line: its name, its class, and by load the gain and its interval, percent.
struct Series {
    name: String,
    class: String,
    points: Vec<(u32, f64, [f64; 2])>,
    /// Where the published curves are: without intervals.
    published: bool,
}

pub fn figure(report: &Report) -> String {
    if report.plan.pipeline.is_some() {
        return String::new();
    }
    let series = series(report);
    let longest = series.iter().map(|series| series.name.len()).max().unwrap_or(0);
    let right = (BEFORE_NAMES + CHARACTER * longest as f64).min(WIDTH / 2.0);
    // As high as the bars next to it, within limits.
    let height = (bars::sizes(report).1 + 20.0).clamp(270.0, 480.0);
    let points = || series.iter().flat_map(|series| &series.points);
    let low = points().map(|point| point.2[0]).fold(0.0, f64::min);
    let high = points().map(|point| point.2[1]).fold(1.0, f64::max);
    // An interval of few pairs may reach far below zero.
    let ticks = ticks(low.max(-100.0), high, 5);
    let (low, high) = (
        ticks.first().copied().unwrap_or(0.0),
        ticks.last().copied().unwrap_or(1.0),
    );
    let mut loads: Vec<u32> = points().map(|point| point.0).collect();
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
        LEFT + 12.0 + share * (WIDTH - LEFT - right - 24.0)
    };
    let y = |percent: f64| TOP + (high - percent.clamp(low, high)) / (high - low) * (height - TOP - BOTTOM);

    let mut svg = Svg::new(WIDTH);
    for &tick in &ticks {
        let class = if tick == 0.0 { "axis" } else { "grid" };
        svg.line(class, [LEFT, y(tick)], [WIDTH - right, y(tick)]);
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
    svg.text(
        "tick middle",
        [(LEFT + WIDTH - right) / 2.0, height - 4.0],
        "load",
    );
    let mut names = Vec::new();
    let mut description = String::new();
    for Series {
        name,
        class,
        points,
        published,
    } in &series
    {
        let places: Vec<[f64; 2]> = points.iter().map(|&(load, by, _)| [x(load), y(by)]).collect();
        svg.polyline(&format!("line {class}"), &places);
        for (&(load, by, [low, high]), &place) in points.iter().zip(&places) {
            let title = format!("{name}: better by {by:.1} % at load {load}");
            description += &format!("{title}. ");
            if !published {
                svg.line(&format!("spread {class}"), [x(load), y(low)], [x(load), y(high)]);
                svg.circle(&format!("dot {class}"), place, &title);
            }
        }
        if let Some(&[x, y]) = places.last() {
            names.push((y, x, class, name));
        }
    }
    names.sort_by(|one, other| one.0.total_cmp(&other.0));
    let wanted: Vec<f64> = names.iter().map(|name| name.0).collect();
    for ((_, x, class, name), y) in std::iter::zip(names, spread(&wanted, height - BOTTOM)) {
        svg.text(&format!("label {class}"), [x + 10.0, y + 4.0], name);
    }
    let picture = svg.finish(height, description.trim_end());
    framed(
        "Improvement over load",
        match series.iter().any(|series| series.published) {
            true => {
                "By how much an epoch is shorter than A's, with its 95 % interval. Below 0 % it is longer. Dashed: published of DALI."
            }
            false => {
                "By how much an epoch is shorter than A's, with its 95 % interval. Below 0 % it is longer."
            }
        },
        &picture,
    )
}

/// With two trials a line for each network, otherwise one for each trial and network; and the published ones.
fn series(report: &Report) -> Vec<Series> {
    let others: Vec<usize> = (1..report.plan.trials.len()).collect();
    let models = report.models();
    let mut all = Vec::new();
    for (place, &model) in models.iter().enumerate() {
        for &number in &others {
            let trial = report.plan.trials[number];
            let (name, class) = match (others.len(), models.len()) {
                (1, _) => (model.to_string(), format!("m{}", place % 5)),
                (_, 1) => (trial.to_string(), colour(number)),
                _ => (format!("{trial} {}", depth(model)), colour(number)),
            };
            let cells = report.cells_of(model);
            let points = cells.iter().filter_map(|cell| {
                let gain = cell.trials.get(number)?.summary?.gain?;
                Some((cell.load, gain.better_by, [gain.low, gain.high]))
            });
            all.push(Series {
                name,
                class,
                points: points.collect(),
                published: false,
            });
        }
    }
    for &model in &models {
        let cells = report.cells_of(model);
        let points = cells.iter().filter_map(|cell| {
            let mut trials = report.plan.trials.iter();
            let by = trials.find_map(|&trial| published::better_by(trial, model, cell.load))?;
            Some((cell.load, by, [by, by]))
        });
        all.push(Series {
            name: format!("DALI, V100 {}", depth(model)),
            class: "published".to_owned(),
            points: points.collect(),
            published: true,
        });
    }
    all.retain(|series| !series.points.is_empty());
    all
}

/// `18` of `resnet18`.
fn depth(model: Arch) -> String {
    model.to_string().trim_start_matches("resnet").to_owned()
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
