//! The data for the page's script: the heat map's columns, steps and epochs, evidence, and the stages of
//! chosen steps.
//!
//! A heat map has levels, from coarse to fine. The first two cover the whole run. If even those have more
//! than one sample per column, four ranges are included sample by sample: those where values vary most. Each
//! row of a level is three bytes per column: means, how far the smallest value is below, how far the largest
//! is above. The differences are small, so the bytes compress well. A level's size does not depend on the
//! length of the run.

use std::collections::BTreeMap;
use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde_json::{Value, json};
use stokehold_profile::{Node, Recording, Series, dimension, span};

use super::columns::{Columns, Cover, GAP, Grid, shares};
use super::figures::{self, Step};
use super::shown;
use crate::rules::Finding;

/// The columns of the first level: the width of a wide screen.
const COLUMNS: usize = 2000;
/// The second level has this many times more columns.
const FINER: usize = 8;
/// Ranges with a column for every sample.
const STRETCHES: usize = 4;
/// The most bytes in a level before compression.
const LEVEL_BYTES: usize = 6_000_000;
/// Individual steps are marked only if there are at most this many.
const MARKED_STEPS: usize = 4000;
/// Epochs are marked only if there are at most this many.
const MARKED_EPOCHS: usize = 1000;
/// The most pieces of evidence of one rule that are marked.
const MARKED_EVIDENCE: usize = 50;
/// The number of steps whose stages can be shown.
const CHOSEN_STEPS: usize = 16;
/// The most spans of a chosen step that are drawn.
const STEP_SPANS: usize = 400;

/// The data of a run; `None` if the recording has no data at any time.
pub fn of(recording: &Recording, findings: &[Finding], label: &str) -> Option<Value> {
    let (mut start, mut end) = recording.extent()?;
    for node in &recording.nodes {
        if let Some((first, length)) = node.ticks.first().zip(lengths(recording, node).first()) {
            // The first sample covers the time before it.
            start = start.min(first - length);
        }
    }
    if let Some(about) = &recording.about {
        start = start.min(about.started);
        end = end.max(about.ended.unwrap_or(end));
    }
    let shown = shown(recording);
    let rows: usize = shown.iter().map(|node| rows(node).len() + 3).sum();
    let plan = Plan { start, end, rows };
    let nodes: Vec<Value> = shown.iter().map(|node| heat(recording, node, &plan)).collect();
    let evidence: Vec<Value> = findings
        .iter()
        .filter(|finding| finding.triggered)
        .flat_map(|finding| {
            finding.evidence.iter().take(MARKED_EVIDENCE).map(|evidence| {
                json!([
                    finding.rule,
                    ms(evidence.from - start),
                    ms(evidence.to - start),
                    evidence.what
                ])
            })
        })
        .collect();
    Some(json!({
        "label": label,
        "start": ms(start),
        "seconds": ms(end - start),
        "nodes": nodes,
        "evidence": evidence,
    }))
}

/// The common properties of all levels.
struct Plan {
    start: f64,
    end: f64,
    rows: usize,
}

impl Plan {
    /// The levels that cover the whole run, if the finest thing to show takes `finest` seconds.
    fn whole(&self, finest: f64) -> Vec<Grid> {
        let seconds = (self.end - self.start).max(1e-3);
        let most = (LEVEL_BYTES / (3 * self.rows.max(1))).max(200);
        let first = COLUMNS.min(most);
        let second = (COLUMNS * FINER)
            .min(most)
            .min((seconds / finest).ceil() as usize);
        let mut levels = vec![Grid::new(self.start, self.end, first)];
        if second >= 2 * first {
            levels.push(Grid::new(self.start, self.end, second));
        }
        levels
    }
}

/// Seconds between samples of a node: measured, or as recorded, or the default of half a second.
fn interval(recording: &Recording, node: &Node) -> f64 {
    let planned = recording
        .about
        .as_ref()
        .map_or(0.5, |about| about.interval_ms as f64 / 1000.0);
    node.interval().unwrap_or(planned).max(1e-3)
}

/// Seconds that each sample of a node covers; for a single sample without a length, the planned interval.
fn lengths(recording: &Recording, node: &Node) -> Vec<f64> {
    let known = |length: f64| {
        if length > 0.0 {
            length
        } else {
            interval(recording, node)
        }
    };
    node.lengths().into_iter().map(known).collect()
}

/// A row of the heat map: its group, its name, and its percentages.
struct Row<'a> {
    group: &'static str,
    name: String,
    values: std::borrow::Cow<'a, [f32]>,
}

/// Everything of a node that is a percentage: cores, GPUs, and other limits of the run.
fn rows(node: &Node) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    if let Some(used) = node.core_use() {
        for (name, values) in [("this run", used.run), ("other programs", used.others)] {
            rows.push(Row {
                group: "Use of the cores",
                name: name.to_owned(),
                values: used.shares(values).into(),
            });
        }
    }
    let mut push = |group, of: &'static str, name: fn(&Series) -> String, idle: bool| {
        for series in node.of(of) {
            // Omit a row of zeros: it says nothing.
            if idle || series.values.iter().any(|value| *value > 0.0) {
                rows.push(Row {
                    group,
                    name: name(series),
                    values: series.values.as_slice().into(),
                });
            }
        }
    };
    push("Cores", dimension::CPU, |series| series.name.clone(), true);
    push("GPUs", dimension::GPU, |series| series.name.clone(), true);
    push(
        "GPU memory",
        dimension::GPU_MEMORY,
        |series| format!("{} memory", series.name),
        true,
    );
    push("Machine", dimension::MEMORY, |_| "memory".to_owned(), true);
    push("Machine", dimension::SWAP, |_| "swap".to_owned(), false);
    push(
        "Machine",
        dimension::PRESSURE,
        |series| format!("{} stalls", series.name),
        false,
    );
    push("Machine", dimension::THROTTLED, |_| "quota".to_owned(), false);
    let waits: Vec<&Series> = node.of(dimension::IO_WAIT).collect();
    if waits
        .iter()
        .any(|series| series.values.iter().any(|value| *value > 0.0))
    {
        rows.push(Row {
            group: "Machine",
            name: "I/O wait".to_owned(),
            values: means(&waits, node.ticks.len()).into(),
        });
    }
    rows
}

/// The mean of several series at each tick, over those that have a value there.
fn means(series: &[&Series], ticks: usize) -> Vec<f32> {
    let mut sums = vec![(0.0f32, 0u32); ticks];
    for one in series {
        for (sum, value) in std::iter::zip(&mut sums, &one.values) {
            if value.is_finite() {
                *sum = (sum.0 + value, sum.1 + 1);
            }
        }
    }
    sums.into_iter().map(|(sum, count)| sum / count as f32).collect()
}

/// The heat map of a node.
fn heat(recording: &Recording, node: &Node, plan: &Plan) -> Value {
    let interval = interval(recording, node);
    let lengths = lengths(recording, node);
    let rows = rows(node);
    let steps = figures::steps(node);
    let steps: &[Step] = steps.as_ref().map_or(&[], |(_, steps)| steps);
    let times = |name| node.spans_of(name).map(|span| (span.start, span.end())).collect();
    let mut strips: Vec<(&str, Vec<(f64, f64)>)> = vec![
        ("waits for data", times(span::WAIT)),
        (
            "steps",
            steps
                .iter()
                .map(|step| (step.start, step.start + step.duration))
                .collect(),
        ),
        ("validation", times(span::EVAL_STEP)),
    ];
    strips.retain(|strip| !strip.1.is_empty());
    let finest = if strips.is_empty() {
        interval
    } else {
        interval.min(0.01)
    };
    let level = |grid: Grid| {
        let cover = Cover::new(grid, &node.ticks, &lengths);
        let of_strips = strips
            .iter()
            .map(|(_, times)| shares(grid, times.iter().copied()));
        let columns: Vec<Columns> = of_strips
            .chain(rows.iter().map(|row| cover.of(&row.values)))
            .collect();
        (grid, columns)
    };
    let mut levels: Vec<(Grid, Vec<Columns>)> = plan.whole(finest).into_iter().map(level).collect();
    if let Some((grid, columns)) = levels.last()
        && grid.column > 1.5 * interval
    {
        let stretches = lively(*grid, columns, COLUMNS as f64 * interval);
        let most = (LEVEL_BYTES / (3 * plan.rows)).clamp(200, COLUMNS);
        levels.extend(stretches.into_iter().map(|from| {
            level(Grid {
                from,
                column: interval,
                columns: most,
            })
        }));
    }
    let names = strips
        .iter()
        .map(|strip| json!(["Trainer", strip.0]))
        .chain(rows.iter().map(|row| json!([row.group, row.name])));
    let marks: Vec<Value> = if steps.len() <= MARKED_STEPS {
        let mark = |step: &Step| json!([ms(step.start - plan.start), ms(step.duration), step.number]);
        steps.iter().map(mark).collect()
    } else {
        Vec::new()
    };
    let epochs = node.spans_of(span::EPOCH).take(MARKED_EPOCHS);
    json!({
        "name": node.name,
        "rows": names.collect::<Vec<_>>(),
        "levels": levels.iter().map(|(grid, columns)| json!({
            "from": ms(grid.from - plan.start),
            "column": grid.column,
            "columns": grid.columns,
            "data": deflated(columns),
        })).collect::<Vec<_>>(),
        "epochs": epochs.map(|epoch| json!([
            ms(epoch.start - plan.start), ms(epoch.end() - plan.start), epoch.step
        ])).collect::<Vec<_>>(),
        "steps": marks,
        "stages": stages(node, steps, plan.start),
    })
}

/// The starts of the ranges in which values vary most within the columns of a level.
fn lively(grid: Grid, rows: &[Columns], seconds: f64) -> Vec<f64> {
    let wide = ((seconds / grid.column) as usize).clamp(1, grid.columns);
    let spread = |column: usize| -> u64 {
        let apart = |row: &Columns| match row.max[column] {
            GAP => 0,
            max => u64::from(max - row.min[column]),
        };
        rows.iter().map(apart).sum()
    };
    let mut windows: Vec<(u64, usize)> = (0..grid.columns / wide)
        .map(|window| ((window * wide..(window + 1) * wide).map(spread).sum(), window))
        .collect();
    windows.sort_by_key(|(spread, window)| (std::cmp::Reverse(*spread), *window));
    let mut starts: Vec<f64> = windows
        .iter()
        .take(STRETCHES)
        .map(|(_, window)| grid.from + (window * wide) as f64 * grid.column)
        .collect();
    starts.sort_by(f64::total_cmp);
    starts
}

/// The bytes of a level: zlib, base64.
fn deflated(rows: &[Columns]) -> String {
    let mut bytes = Vec::new();
    for row in rows {
        bytes.extend_from_slice(&row.mean);
        let differences = |from: &[u8], to: &[u8]| -> Vec<u8> {
            std::iter::zip(from, to).map(|(from, to)| to - from).collect()
        };
        bytes.extend(differences(&row.min, &row.mean));
        bytes.extend(differences(&row.mean, &row.max));
    }
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
    // Writing to a vector cannot fail.
    let deflated = encoder.write_all(&bytes).and_then(|()| encoder.finish());
    STANDARD.encode(deflated.unwrap_or_default())
}

/// The stages of chosen steps: the first, typical ones, the slowest, and those with the longest waits.
fn stages(node: &Node, steps: &[Step], origin: f64) -> Vec<Value> {
    let mut chosen: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    let mut order: Vec<usize> = (0..steps.len()).collect();
    let mut choose = |order: &[usize], why, count: usize| {
        for &step in order.iter().take(count) {
            chosen.entry(step).or_default().push(why);
        }
    };
    choose(&order, "first", 2);
    order.sort_by(|a, b| steps[*b].duration.total_cmp(&steps[*a].duration));
    choose(&order, "slowest", 5);
    choose(&order[order.len() / 2..], "median", 3);
    order.sort_by(|a, b| steps[*b].wait.total_cmp(&steps[*a].wait));
    order.retain(|step| steps[*step].wait > 0.0);
    choose(&order, "longest wait", 5);
    // Searching by start would need the longest span; there are few chosen steps, so scan.
    chosen
        .into_iter()
        .take(CHOSEN_STEPS)
        .map(|(step, why)| {
            let step = steps[step];
            let (from, to) = (step.start - step.wait, step.start + step.duration);
            // An epoch contains everything else.
            let epoch = node.names.iter().position(|name| name == span::EPOCH);
            let meets = |span: &&stokehold_profile::Span| {
                span.start < to && span.end() > from && Some(span.name as usize) != epoch
            };
            let mut spans: Vec<&stokehold_profile::Span> = node.spans.iter().filter(meets).collect();
            let all = spans.len();
            spans.sort_by(|a, b| b.duration.total_cmp(&a.duration));
            spans.truncate(STEP_SPANS);
            spans.sort_by(|a, b| a.start.total_cmp(&b.start));
            let spans: Vec<Value> = spans
                .into_iter()
                .filter_map(|span| {
                    let name = node.names.get(span.name as usize)?;
                    Some(json!([
                        name,
                        span.worker,
                        us(span.start - from),
                        us(span.duration),
                        span.step
                    ]))
                })
                .collect();
            json!({
                "number": step.number,
                "why": why,
                "at": ms(from - origin),
                "seconds": us(to - from),
                "left_out": all - spans.len(),
                "spans": spans,
            })
        })
        .collect()
}

/// Seconds to the millisecond.
fn ms(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

/// Seconds to the microsecond.
fn us(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

/// JSON for a script element: nothing in it can end the element or begin another one, and XML parsers accept
/// it.
pub fn script(data: &Value) -> String {
    let text = data.to_string();
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            // JSON has none of these outside of strings.
            '<' | '>' | '&' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{fffe}' | '\u{ffff}' => {
                safe += &format!("\\u{:04x}", u32::from(c));
            }
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn levels_come_back_as_they_were() {
        let row = Columns {
            mean: vec![50, GAP, 0, 100],
            min: vec![10, GAP, 0, 99],
            max: vec![90, GAP, 0, 100],
        };
        let text = STANDARD.decode(deflated(&[row.clone(), row])).unwrap();
        let mut bytes = Vec::new();
        flate2::read::ZlibDecoder::new(&text[..])
            .read_to_end(&mut bytes)
            .unwrap();
        let one = [50, 255, 0, 100, 40, 0, 0, 1, 40, 0, 0, 0];
        assert_eq!(bytes, [one, one].concat());
    }

    #[test]
    fn a_script_cannot_be_left() {
        let data = json!({"</script><script>alert(1)//": "<!-- & ]]> \u{2028}\u{0}\u{85}"});
        let text = script(&data);
        assert!(
            !text.contains(['<', '>', '&', '\u{2028}', '\u{0}', '\u{85}']),
            "{text}"
        );
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), data);
    }

    #[test]
    fn the_liveliest_stretch_is_found() {
        let mut row = Columns {
            mean: vec![50; 100],
            min: vec![50; 100],
            max: vec![50; 100],
        };
        row.max[71] = 100;
        row.max[15] = 60;
        let grid = Grid::new(1000.0, 1100.0, 100);
        assert_eq!(lively(grid, &[row], 10.0), [1000.0, 1010.0, 1020.0, 1070.0]);
    }
}
