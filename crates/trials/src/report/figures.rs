//! The charts of a study's page.

use serde_json::Value;
use stokehold_page::svg::{Svg, escape};
use stokehold_page::words::clipped;
use stokehold_tune::{History, Insight, Level, Outcome, Range, Space, Trial, in_words, short};

use super::scale::Axis;

/// The width of wide charts, in units of about a pixel; small charts are placed side by side.
const WIDE: f64 = 1000.0;
const SMALL: f64 = 360.0;

/// At most this many lines are parallel coordinates; more are one dark area, and a page of megabytes.
const WAYS: usize = 1000;

/// The position of a chart's axes.
const LEFT: f64 = 62.0;

/// The objective of a trial, including one that was stopped early.
pub(super) fn value(trial: &Trial) -> Option<f64> {
    match trial.outcome {
        Some(Outcome::Completed { value } | Outcome::Stopped { value: Some(value) }) => Some(value),
        _ => None,
    }
}

fn class(trial: &Trial) -> &'static str {
    match trial.outcome {
        Some(Outcome::Completed { .. }) => "dot",
        _ => "dot early",
    }
}

fn title(trial: &Trial) -> String {
    let value = value(trial).map(short).unwrap_or_default();
    let early = if matches!(trial.outcome, Some(Outcome::Stopped { .. })) {
        ", stopped early"
    } else {
        ""
    };
    format!(
        "trial {}: {value}{early}\n{}",
        trial.number,
        in_words(&trial.values)
    )
}

fn results(history: &History) -> Vec<(&Trial, f64)> {
    history
        .trials
        .iter()
        .filter_map(|trial| Some((trial, value(trial)?)))
        .collect()
}

pub(super) fn wide(picture: String) -> String {
    format!("<div class=\"scroll\"><div class=\"wide\">{picture}</div></div>\n")
}

fn grid(svg: &mut Svg, axis: &Axis, right: f64) {
    for (text, y) in axis.marks() {
        svg.line("grid", [LEFT, y], [right, y]);
        svg.text("tick end", [LEFT - 8.0, y + 4.0], text);
    }
}

/// Objectives by trial, and the best so far.
pub(super) fn progress(history: &History) -> String {
    let (right, top, bottom) = (WIDE - 16.0, 14.0, 290.0);
    let results = results(history);
    let values: Vec<f64> = results.iter().map(|(_, value)| *value).collect();
    let axis = Axis::around(&values, bottom, top);
    let most = history.trials.len().max(2) - 1;
    let x = |number: usize| LEFT + 8.0 + (right - LEFT - 16.0) * number as f64 / most as f64;
    let mut svg = Svg::new(WIDE);
    grid(&mut svg, &axis, right);
    for mark in stokehold_page::svg::ticks(0.0, most as f64, 8) {
        if mark.fract() == 0.0 && mark <= most as f64 {
            svg.text("tick middle", [x(mark as usize), bottom + 22.0], mark);
        }
    }
    svg.text("tick end", [right, bottom + 42.0], "trial");
    let mut best: Option<f64> = None;
    let mut steps: Vec<[f64; 2]> = Vec::new();
    for trial in &history.trials {
        let better = trial
            .objective()
            .filter(|value| best.is_none_or(|best| history.is_better(*value, best)));
        if let Some(best) = best {
            steps.push([x(trial.number), axis.place(best)]);
        }
        if let Some(value) = better {
            best = Some(value);
            steps.push([x(trial.number), axis.place(value)]);
        }
    }
    if let Some(best) = best {
        steps.push([right, axis.place(best)]);
    }
    svg.polyline("sofar", &steps);
    for (trial, value) in &results {
        svg.circle(class(trial), [x(trial.number), axis.place(*value)], &title(trial));
    }
    wide(svg.finish(bottom + 48.0, "the objective of each trial, and the best so far"))
}

/// Parallel coordinates: one line per trial through all parameters.
pub(super) fn parallel(history: &History) -> String {
    let names: Vec<&str> = history
        .names()
        .into_iter()
        .filter(|name| !matches!(history.spec.parameters[*name].range, Range::Static { .. }))
        .collect();
    let (top, bottom) = (46.0, 320.0);
    let (first, last) = (90.0, WIDE - 90.0);
    let x = |axis: usize| first + (last - first) * axis as f64 / names.len() as f64;
    let results = results(history);
    let values: Vec<f64> = results.iter().map(|(_, value)| *value).collect();
    let objective = Axis::around(&values, bottom, top);
    let mut svg = Svg::new(WIDE);
    let insight = Places::new(history);
    // The best trials are drawn last, on top.
    let mut order: Vec<usize> = (0..results.len()).collect();
    order.sort_by(|a, b| {
        let loss = |i: usize| history.spec.direction.loss(results[i].1);
        loss(*b).total_cmp(&loss(*a))
    });
    let worse = order.len().saturating_sub(WAYS);
    for (rank, i) in order.iter().enumerate().skip(worse) {
        let (trial, value) = results[*i];
        let mut points = Vec::new();
        for (axis, name) in names.iter().enumerate() {
            // The line of a trial without the parameter passes below the axis.
            let share = insight.share(name, trial.values.get(*name));
            points.push([
                x(axis),
                share.map_or(bottom + 14.0, |share| bottom - share * (bottom - top)),
            ]);
        }
        points.push([x(names.len()), objective.place(value)]);
        let fifth = rank * 5 / results.len();
        svg.polyline(&format!("way w{fifth}"), &points);
    }
    for (axis, name) in names.iter().enumerate() {
        svg.line("axis", [x(axis), top], [x(axis), bottom]);
        svg.text("strong middle", [x(axis), 20.0], clipped(name, 18));
        for (text, share) in insight.marks(name) {
            svg.text(
                "halo end",
                [x(axis) - 7.0, bottom - share * (bottom - top) + 4.0],
                clipped(&text, 12),
            );
        }
    }
    let at = x(names.len());
    svg.line("axis", [at, top], [at, bottom]);
    svg.text("strong middle", [at, 20.0], clipped(&history.spec.objective, 18));
    for (text, y) in objective.marks() {
        svg.text("halo", [at + 7.0, y + 4.0], text);
    }
    svg.finish(
        bottom + 24.0,
        "a line a trial through its values to its objective",
    )
}

/// Positions of values on their parameters' scales, 0..=1.
struct Places {
    space: Option<Space>,
}

impl Places {
    fn new(history: &History) -> Self {
        Self {
            space: Space::new(&history.spec.parameters).ok(),
        }
    }

    fn share(&self, name: &str, value: Option<&Value>) -> Option<f64> {
        self.space.as_ref()?.share(name, value?)
    }

    fn marks(&self, name: &str) -> Vec<(String, f64)> {
        let levels = self
            .space
            .as_ref()
            .map(|space| space.marks(name))
            .unwrap_or_default();
        levels
            .into_iter()
            .map(|(value, share)| (word(&value), share))
            .collect()
    }
}

fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => short(number.as_f64().unwrap_or(f64::NAN)),
        other => other.to_string(),
    }
}

/// Positions of a parameter's levels between two ends: categories at the centres of equal parts.
fn along(levels: &[Level], is_category: bool, from: f64, to: f64) -> impl Fn(f64) -> f64 {
    let count = levels.len() as f64;
    move |at| match is_category {
        true => from + (to - from) * (at + 0.5) / count,
        false => from + (to - from) * at,
    }
}

fn is_category(history: &History, name: &str) -> bool {
    matches!(history.spec.parameters[name].range, Range::Categorical { .. })
}

/// A few of the levels, for labels.
fn named(levels: &[Level], is_category: bool) -> Vec<&Level> {
    match (is_category, levels.len()) {
        (true, n) if n <= 6 => levels.iter().collect(),
        (_, 0) => Vec::new(),
        (_, n) => [0, n / 2, n - 1].iter().map(|i| &levels[*i]).collect(),
    }
}

fn name_levels(svg: &mut Svg, levels: &[Level], is_category: bool, place: impl Fn(f64) -> f64, y: f64) {
    for level in named(levels, is_category) {
        let class = match (is_category, level.at) {
            (false, at) if at <= 0.0 => "tick",
            (false, at) if at >= 1.0 => "tick end",
            _ => "tick middle",
        };
        svg.text(class, [place(level.at), y], clipped(&word(&level.value), 10));
    }
}

/// Objectives by the value of one parameter.
pub(super) fn slice(history: &History, insight: &Insight, name: &str) -> Option<String> {
    let (right, top, bottom) = (SMALL - 14.0, 12.0, 190.0);
    let slice = insight.slice(name)?;
    let levels: Vec<Level> = slice.iter().map(|(level, _)| level.clone()).collect();
    let is_category = is_category(history, name);
    let x = along(&levels, is_category, LEFT + 6.0, right - 6.0);
    let results = results(history);
    let values: Vec<f64> = results.iter().map(|(_, value)| *value).collect();
    let axis = Axis::around(&values, bottom, top);
    let mut svg = Svg::new(SMALL);
    grid(&mut svg, &axis, right);
    name_levels(&mut svg, &levels, is_category, &x, bottom + 20.0);
    let line: Vec<[f64; 2]> = slice
        .iter()
        .map(|(level, value)| [x(level.at), axis.place(*value)])
        .collect();
    let is_there = |best: &Trial| best.values.contains_key(name);
    match is_category {
        // If the best trial does not have this parameter, nothing depends on it.
        _ if !history.best().is_none_or(is_there) => {}
        // Categories are not connected.
        true => {
            for [x, y] in line {
                svg.line("sofar", [x - 14.0, y], [x + 14.0, y]);
            }
        }
        false => svg.polyline("sofar", &line),
    }
    for (trial, value) in &results {
        if let Some(at) = trial
            .values
            .get(name)
            .and_then(|value| insight.position(name, value))
        {
            svg.circle(class(trial), [x(at), axis.place(*value)], &title(trial));
        }
    }
    Some(captioned(
        name,
        &svg.finish(bottom + 28.0, &format!("the objective over {name}")),
    ))
}

fn captioned(name: &str, picture: &str) -> String {
    format!("<div><h3>{}</h3>\n{picture}</div>\n", escape(name))
}

/// The expected objective by two parameters.
pub(super) fn contour(history: &History, insight: &Insight, across: &str, up: &str) -> Option<String> {
    let (right, top, bottom) = (SMALL - 8.0, 8.0, 250.0);
    let rows = insight.contour(across, up)?;
    let (x_levels, y_levels) = (insight.levels(across)?, insight.levels(up)?);
    if x_levels.len() < 2 || y_levels.len() < 2 {
        return None;
    }
    let (x_kind, y_kind) = (is_category(history, across), is_category(history, up));
    let all: Vec<f64> = rows
        .iter()
        .flatten()
        .map(|value| history.spec.direction.loss(*value))
        .collect();
    let mut sorted = all.clone();
    sorted.sort_by(f64::total_cmp);
    let mut svg = Svg::new(SMALL);
    let (width, height) = (
        (right - LEFT) / x_levels.len() as f64,
        (bottom - top) / y_levels.len() as f64,
    );
    for (j, row) in rows.iter().enumerate() {
        for (i, value) in row.iter().enumerate() {
            // By rank, so that a few bad corners do not use up the shades.
            let loss = history.spec.direction.loss(*value);
            let rank = sorted.partition_point(|other| *other < loss);
            let shade = 9 - rank * 10 / sorted.len().max(1);
            let place = [
                LEFT + i as f64 * width,
                bottom - (j + 1) as f64 * height,
                width + 0.4,
                height + 0.4,
            ];
            let text = format!(
                "{} {}, {} {}: {}",
                across,
                word(&x_levels[i].value),
                up,
                word(&y_levels[j].value),
                short(*value)
            );
            svg.rect(&format!("heat h{shade}"), place, &text);
        }
    }
    let cell = |levels: usize, is_category: bool, at: f64| match is_category {
        true => (at + 0.5) / levels as f64,
        // Levels are at the centres of their cells.
        false => (0.5 + at * (levels - 1) as f64) / levels as f64,
    };
    let x = |at: f64| LEFT + (right - LEFT) * cell(x_levels.len(), x_kind, at);
    let y = |at: f64| bottom - (bottom - top) * cell(y_levels.len(), y_kind, at);
    name_levels(&mut svg, &x_levels, x_kind, x, bottom + 20.0);
    for level in named(&y_levels, y_kind) {
        svg.text(
            "tick end",
            [LEFT - 8.0, y(level.at) + 4.0],
            clipped(&word(&level.value), 8),
        );
    }
    let best = history.best().map(|trial| trial.number);
    for (trial, _) in results(history) {
        let at = |name: &str| insight.position(name, trial.values.get(name)?);
        if let (Some(i), Some(j)) = (at(across), at(up)) {
            let class = if best == Some(trial.number) {
                "ring"
            } else {
                "trial"
            };
            svg.circle(class, [x(i), y(j)], &title(trial));
        }
    }
    let caption = format!("{up} over {across}");
    Some(captioned(
        &caption,
        &svg.finish(bottom + 28.0, &format!("what is expected of {caption}")),
    ))
}

/// The reports of all trials.
pub(super) fn curves(history: &History) -> String {
    let (right, top, bottom) = (WIDE - 16.0, 14.0, 290.0);
    let reports = || history.trials.iter().flat_map(|trial| &trial.reports);
    let values: Vec<f64> = reports().map(|report| report.value).collect();
    let steps = reports().map(|report| report.step);
    let (low, high) = (steps.clone().min().unwrap_or(0), steps.max().unwrap_or(1));
    let axis = Axis::around(&values, bottom, top);
    let x = |step: u64| LEFT + 8.0 + (right - LEFT - 16.0) * (step - low) as f64 / (high - low).max(1) as f64;
    let mut svg = Svg::new(WIDE);
    grid(&mut svg, &axis, right);
    for mark in stokehold_page::svg::ticks(low as f64, high as f64, 8) {
        if mark.fract() == 0.0 && mark >= low as f64 && mark <= high as f64 {
            svg.text("tick middle", [x(mark as u64), bottom + 22.0], mark);
        }
    }
    svg.text("tick end", [right, bottom + 42.0], "step");
    let best = history.best().map(|trial| trial.number);
    let mut order: Vec<&Trial> = history
        .trials
        .iter()
        .filter(|trial| !trial.reports.is_empty())
        .collect();
    order.sort_by_key(|trial| (best == Some(trial.number), trial.number));
    for trial in order {
        let points: Vec<[f64; 2]> = trial
            .reports
            .iter()
            .map(|report| [x(report.step), axis.place(report.value)])
            .collect();
        let is_early = matches!(trial.outcome, Some(Outcome::Stopped { .. }));
        let class = match (best == Some(trial.number), is_early) {
            (true, _) => "curve first",
            (_, true) => "curve given-up",
            _ => "curve",
        };
        svg.polyline(class, &points);
        if let (Some(end), true) = (points.last(), is_early || points.len() == 1) {
            svg.circle(if is_early { "dot early" } else { "dot" }, *end, &title(trial));
        }
    }
    wide(svg.finish(bottom + 48.0, "the objective of every trial over its steps"))
}
