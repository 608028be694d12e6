//! The charts that need no script: histograms, box plots, step durations, curves.
//!
//! Each is designed for half the page's width and for a phone, where the style sheet enlarges the text.

use stokehold_page::svg::{Svg, short, ticks};
use stokehold_page::words::{digits, duration, shortened};

use super::figures::{Spread, Step};
use crate::curves::Curve;

const WIDTH: f64 = 520.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 26.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 50.0;
const HEIGHT: f64 = 250.0;
/// Columns of the chart of step durations.
const STEP_COLUMNS: usize = 220;
/// The most outliers that are drawn.
const OUTLIERS: usize = 100;
/// The most box plots that are drawn.
const BOXES: usize = 64;
/// The most letters of a box plot's name.
const LABEL: usize = 18;

/// A run's part of a chart: its colour's class, its name, and its data.
pub struct ChartSeries<'a, T: ?Sized> {
    /// `a` or `b`.
    pub class: &'static str,
    /// The name in the tooltip.
    pub name: &'static str,
    /// The data.
    pub of: &'a T,
}

/// Shares of the samples in each class of five points; two runs are drawn side by side.
pub fn histogram(parts: &[ChartSeries<'_, [u64; 20]>], what: &str) -> String {
    let shares: Vec<[f64; 20]> = parts
        .iter()
        .map(|part| {
            let all = part.of.iter().sum::<u64>().max(1) as f64;
            part.of.map(|count| 100.0 * count as f64 / all)
        })
        .collect();
    let highest = shares.iter().flatten().copied().fold(1.0, f64::max);
    let y_ticks = ticks(0.0, highest, 4);
    let top = y_ticks.last().copied().unwrap_or(100.0);
    let mut svg = Svg::new(WIDTH);
    let x = |percent: f64| LEFT + percent / 100.0 * (WIDTH - LEFT - RIGHT);
    let y = |share: f64| TOP + (1.0 - share / top) * (HEIGHT - TOP - BOTTOM);
    for &tick in &y_ticks {
        svg.line("grid", [LEFT, y(tick)], [WIDTH - RIGHT, y(tick)]);
        svg.text(
            "tick end",
            [LEFT - 8.0, y(tick) + 5.0],
            format!("{} %", short(tick)),
        );
    }
    let bar = (x(5.0) - x(0.0) - 2.0) / parts.len().max(1) as f64;
    for (number, (part, shares)) in std::iter::zip(parts, &shares).enumerate() {
        for (class, &share) in shares.iter().enumerate() {
            if share > 0.0 {
                let percent = class as f64 * 5.0;
                let left = x(percent) + 1.0 + bar * number as f64;
                // Every nonempty class is visible, even with one sample of a million.
                let height = (y(0.0) - y(share)).max(1.0);
                let title = format!(
                    "{}{share:.2} % of the samples from {percent} to {} %",
                    part.name,
                    percent + 5.0
                );
                svg.rect(part.class, [left, y(0.0) - height, bar, height], &title);
            }
        }
    }
    for tick in [0.0, 25.0, 50.0, 75.0, 100.0] {
        svg.text("tick middle", [x(tick), HEIGHT - BOTTOM + 20.0], short(tick));
    }
    svg.text("tick end", [WIDTH - RIGHT, HEIGHT - 6.0], format!("{what}, %"));
    svg.line("axis", [LEFT, y(0.0)], [WIDTH - RIGHT, y(0.0)]);
    svg.finish(HEIGHT, &format!("Histogram of {what}."))
}

/// Box plots of utilisation: the box spans the 25th to the 75th percentile with the median in it, whiskers
/// reach the 5th and 95th, and dots mark the extremes.
pub fn boxes(rows: &[(&'static str, String, [f64; 7])], what: &str) -> String {
    let shown = &rows[..rows.len().min(BOXES)];
    let row = (190.0 / shown.len().max(1) as f64).clamp(18.0, 40.0);
    let height = TOP + row * shown.len() as f64 + BOTTOM;
    let mut svg = Svg::new(WIDTH);
    let names: Vec<String> = shown.iter().map(|(_, name, _)| shortened(name, LABEL)).collect();
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    // The width of a letter on a phone.
    let left = (11.5 * longest as f64 + 12.0).max(LEFT);
    let x = |percent: f64| left + percent.clamp(0.0, 100.0) / 100.0 * (WIDTH - left - RIGHT - 6.0);
    for tick in [0.0, 25.0, 50.0, 75.0, 100.0] {
        svg.line("grid", [x(tick), TOP], [x(tick), height - BOTTOM]);
        svg.text("tick middle", [x(tick), height - BOTTOM + 20.0], short(tick));
    }
    for (number, ((class, name, at), short)) in std::iter::zip(shown, &names).enumerate() {
        let middle = TOP + row * (number as f64 + 0.5);
        let [min, p5, p25, p50, p75, p95, max] = *at;
        let half = row * 0.3;
        svg.text("label end", [left - 8.0, middle + 5.0], short);
        svg.line("range", [x(p5), middle], [x(p95), middle]);
        for end in [p5, p95] {
            svg.line(
                "range",
                [x(end), middle - half / 2.0],
                [x(end), middle + half / 2.0],
            );
        }
        let title = format!(
            "{name}: min {min:.0}, p5 {p5:.0}, p25 {p25:.0}, p50 {p50:.0}, p75 {p75:.0}, p95 {p95:.0}, max {max:.0} %"
        );
        let width = (x(p75) - x(p25)).max(2.0);
        svg.rect(class, [x(p25), middle - half, width, 2.0 * half], &title);
        svg.line("median", [x(p50), middle - half], [x(p50), middle + half]);
        for extreme in [min, max] {
            svg.circle(&format!("dot {class}"), [x(extreme), middle], &title);
        }
    }
    svg.text("tick end", [WIDTH - RIGHT, height - 6.0], format!("{what}, %"));
    svg.finish(height, &format!("Box plots of {what}."))
}

/// Durations of consecutive steps: the mean of neighbours as a line, their range as a band, outliers as dots.
/// The scale is logarithmic if the longest step is much longer than the typical one.
pub fn steps(parts: &[ChartSeries<'_, [Step]>], outliers: &[f64]) -> String {
    let durations = || parts.iter().flat_map(|part| part.of).map(|step| step.duration);
    let longest = durations().fold(0.0, f64::max).max(1e-6);
    let spread = Spread::of(durations().map(|seconds| seconds as f32));
    let median = spread.map_or(longest, |spread| spread.p50).max(1e-6);
    let powers = longest / median > 20.0;
    let shortest = if powers {
        let shortest = durations()
            .filter(|seconds| *seconds > 0.0)
            .fold(longest, f64::min);
        10f64.powf(shortest.max(1e-6).log10().floor())
    } else {
        0.0
    };
    let y_ticks = if powers {
        let (low, high) = (shortest.log10().round() as i32, longest.log10().ceil() as i32);
        (low..=high).map(|power| 10f64.powi(power)).collect()
    } else {
        ticks(0.0, longest, 4)
    };
    let top = y_ticks.last().copied().unwrap_or(longest);
    let count = parts.iter().map(|part| part.of.len()).max().unwrap_or(0);

    let mut svg = Svg::new(WIDTH);
    let x = |place: f64| LEFT + place / count.max(1) as f64 * (WIDTH - LEFT - RIGHT);
    let y = |seconds: f64| {
        let share = if powers {
            (seconds.max(shortest) / shortest).log10() / (top / shortest).log10().max(1e-9)
        } else {
            seconds / top
        };
        TOP + (1.0 - share) * (HEIGHT - TOP - BOTTOM)
    };
    for &tick in &y_ticks {
        svg.line("grid", [LEFT, y(tick)], [WIDTH - RIGHT, y(tick)]);
        svg.text("tick end", [LEFT - 8.0, y(tick) + 5.0], duration(tick));
    }
    for (part, &limit) in std::iter::zip(parts, outliers) {
        let together = part.of.len().div_ceil(STEP_COLUMNS).max(1);
        let mut line = Vec::new();
        for (number, steps) in part.of.chunks(together).enumerate() {
            let each = || steps.iter().map(|step| step.duration);
            let place = x((number * together) as f64 + steps.len() as f64 / 2.0);
            let (low, high) = (each().fold(f64::INFINITY, f64::min), each().fold(0.0, f64::max));
            if together > 1 {
                svg.line(&format!("band {}", part.class), [place, y(low)], [place, y(high)]);
            }
            line.push([place, y(each().sum::<f64>() / steps.len() as f64)]);
        }
        svg.polyline(&format!("line {}", part.class), &line);
        let mut far: Vec<(usize, &Step)> = part
            .of
            .iter()
            .enumerate()
            .filter(|(_, step)| step.duration > limit)
            .collect();
        far.sort_by(|a, b| b.1.duration.total_cmp(&a.1.duration));
        for (place, step) in far.into_iter().take(OUTLIERS) {
            let number = step.number.map_or(place as u64, |number| number);
            let title = format!("{}step {number}: {}", part.name, duration(step.duration));
            svg.circle("dot outlier", [x(place as f64 + 0.5), y(step.duration)], &title);
        }
    }
    for tick in ticks(0.0, count as f64, 4) {
        if tick <= count as f64 {
            svg.text("tick middle", [x(tick), HEIGHT - BOTTOM + 20.0], short(tick));
        }
    }
    svg.text("tick end", [WIDTH - RIGHT, HEIGHT - 6.0], "steps");
    svg.finish(HEIGHT, "Durations of the steps, in their order.")
}

/// Curves in one chart, over the time of the run; the best point of a curve is marked, and so is a value that is no number. Each curve
/// has the colour of its place, `s0` to `s4`.
pub fn curves(curves: &[&Curve], [from, to]: [f64; 2]) -> String {
    let finite = || {
        let points = curves.iter().flat_map(|curve| &curve.points);
        points.map(|point| point.value).filter(|value| value.is_finite())
    };
    let (low, high) = (
        finite().fold(f64::INFINITY, f64::min),
        finite().fold(f64::NEG_INFINITY, f64::max),
    );
    let (low, high) = match low <= high {
        true if high - low > 1e-9 * high.abs() => (low, high),
        // A constant stands in the middle.
        true => (low - 0.1 * low.abs().max(1e-9), high + 0.1 * high.abs().max(1e-9)),
        false => (0.0, 1.0),
    };
    let y_ticks = ticks(low, high, 4);
    let (bottom, top) = (y_ticks[0], y_ticks[y_ticks.len() - 1]);
    let seconds = (to - from).max(1e-6);
    let mut svg = Svg::new(WIDTH);
    let x = |time: f64| LEFT + ((time - from) / seconds).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT);
    let y = |value: f64| TOP + (top - value) / (top - bottom).max(1e-12) * (HEIGHT - TOP - BOTTOM);
    for &tick in &y_ticks {
        svg.line("grid", [LEFT, y(tick)], [WIDTH - RIGHT, y(tick)]);
        // Long numbers have no room.
        let wide = tick != 0.0 && !(1e-3..1e5).contains(&tick.abs());
        let text = if wide { format!("{tick:.1e}") } else { short(tick) };
        svg.text("tick end", [LEFT - 8.0, y(tick) + 5.0], text);
    }
    for tick in ticks(0.0, seconds, 4).into_iter().filter(|tick| *tick <= seconds) {
        svg.text(
            "tick middle",
            [x(from + tick), HEIGHT - BOTTOM + 20.0],
            duration(tick),
        );
    }
    svg.text(
        "tick middle",
        [0.5 * (LEFT + WIDTH - RIGHT), HEIGHT - 6.0],
        "time since the start",
    );
    for (place, curve) in curves.iter().enumerate() {
        let class = format!("line s{}", place % COLOURS);
        let together = curve.points.len().div_ceil(STEP_COLUMNS).max(1);
        let mut line = Vec::new();
        for points in curve.points.chunks(together) {
            let each = || points.iter().filter(|point| point.value.is_finite());
            if each().count() < points.len() {
                // What is no number has no height.
                let lost = points
                    .iter()
                    .find(|point| !point.value.is_finite())
                    .unwrap_or(&points[0]);
                let what = if lost.value.is_nan() {
                    "not a number"
                } else {
                    "infinite"
                };
                let title = format!("{} is {what} at {}", curve.name, duration(lost.time - from));
                svg.rect(
                    "outlier",
                    [x(lost.time) - 2.0, TOP, 4.0, HEIGHT - TOP - BOTTOM],
                    &title,
                );
            }
            let count = each().count();
            if count == 0 {
                continue;
            }
            let mean = each().map(|point| point.value).sum::<f64>() / count as f64;
            let time = each().map(|point| point.time).sum::<f64>() / count as f64;
            line.push([x(time), y(mean)]);
        }
        match line.len() {
            1 => svg.circle(&format!("s{}", place % COLOURS), line[0], &curve.name),
            _ => svg.polyline(&class, &line),
        }
        if let Some(best) = curve.best() {
            let at = best
                .step
                .map_or(String::new(), |step| format!(" at {} {step}", curve.counts));
            let title = format!("best {}: {}{at}", curve.name, digits(best.value));
            svg.circle("dot best", [x(best.time), y(best.value)], &title);
        }
    }
    let names: Vec<&str> = curves.iter().map(|curve| curve.name.as_str()).collect();
    svg.finish(HEIGHT, &format!("{} over time", names.join(", ")))
}

/// The colours of curves in a chart.
pub const COLOURS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn step(duration: f64) -> Step {
        Step {
            start: 0.0,
            duration,
            number: Some(3),
            wait: 0.0,
        }
    }

    #[test]
    fn pictures_of_next_to_nothing_have_no_infinite_numbers() {
        for steps_ in [
            vec![],
            vec![step(0.0)],
            vec![step(1e-9), step(1e9)],
            vec![step(0.1); 1000],
        ] {
            let part = ChartSeries {
                class: "b",
                name: "",
                of: steps_.as_slice(),
            };
            let text = steps(&[part], &[0.5]);
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
        let none = ChartSeries {
            class: "b",
            name: "",
            of: &[0; 20],
        };
        assert!(!histogram(&[none], "cores").contains("NaN"));
        assert!(!boxes(&[], "GPUs").contains("NaN"));
    }

    #[test]
    fn outliers_are_dots() {
        let mut all = vec![step(0.1); 5000];
        all[77].duration = 0.9;
        let part = ChartSeries {
            class: "b",
            name: "",
            of: all.as_slice(),
        };
        let text = steps(&[part], &[0.5]);
        assert_eq!(text.matches("<circle").count(), 1);
        assert!(text.contains("step 3: 900 ms"), "{text}");
        assert!(text.len() < 60_000, "{}", text.len());
    }
}
