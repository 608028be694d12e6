//! The tables of samples and spans: system usage, percentiles, processes, framework metrics.

use std::fmt::Write;

use serde_json::Value;
use stokehold_base::words::plural;
use stokehold_page::Table;
use stokehold_page::html::{paragraph, section};
use stokehold_page::words::{digits, duration, name, share};
use stokehold_profile::{Node, Recording, Series, dimension, span, totals};

use super::figures::{Job, Spread};
use super::shown;
use crate::rules::Finding;

/// The most processes in the table.
const PROCESSES: usize = 20;
/// The most rows of the table of framework metrics.
const FRAMEWORK_ROWS: usize = 40;

/// The table of the published report: a row for each machine and metric.
pub fn usage(findings: &[Finding], recording: &Recording) -> String {
    let Some(table) = usage_table(findings, recording) else {
        return section("System usage", &paragraph("note", "Nothing was sampled."));
    };
    section(
        "System usage",
        &(paragraph(
            "note",
            "Cores, GPUs and I/O wait are means over the cores or GPUs of the machine at each sample, whichever programs \
             used them.",
        ) + &table.html()),
    )
}

fn usage_table(findings: &[Finding], recording: &Recording) -> Option<Table> {
    let finding = findings
        .iter()
        .find(|finding| finding.rule == "OverallSystemUsage")?;
    let mut table = Table::new(
        &["Node", "Metric", "Unit", "max", "p99", "p95", "p50", "min"],
        &[0, 1, 2],
    );
    for (metric, unit, scale) in METRICS {
        let nodes = finding.details.get(metric).and_then(Value::as_object);
        let shown = nodes
            .into_iter()
            .flatten()
            .filter(|(node, _)| is_shown(recording, node));
        for (node, values) in shown {
            let values = ["max", "p99", "p95", "p50", "min"].map(|column| number(values.get(column), scale));
            table.row(
                [name(node), metric.to_owned(), unit.to_owned()]
                    .into_iter()
                    .chain(values),
            );
        }
    }
    (!table.is_empty()).then_some(table)
}

/// Whether a machine of this name is shown by itself.
pub fn is_shown(recording: &Recording, name: &str) -> bool {
    shown(recording).iter().any(|node| node.name == name)
}

/// The metrics of the published table, their units, and the divisor from the file's units.
pub const METRICS: [(&str, &str, f64); 8] = [
    ("CPU", "percent", 1.0),
    ("CPU of the run", "percent", 1.0),
    ("CPU of other programs", "percent", 1.0),
    ("GPU", "percent", 1.0),
    ("CPU memory", "percent", 1.0),
    ("GPU memory", "percent", 1.0),
    ("I/O", "percent", 1.0),
    ("Network", "MB/s", 1e6),
];

/// The name of a series in tables, and the divisor of its values.
fn label(node: &Node, series: &Series, nodes: usize) -> (String, f64) {
    let (what, scale) = match series.dimension.as_str() {
        dimension::CPU | dimension::GPU => ("busy, %", 1.0),
        dimension::IO_WAIT => ("I/O wait, %", 1.0),
        dimension::GPU_MEMORY => ("memory, %", 1.0),
        dimension::MEMORY => ("in use, %", 1.0),
        dimension::SWAP => ("swap in use, %", 1.0),
        dimension::PRESSURE => ("some task stalled, %", 1.0),
        dimension::THROTTLED => ("held back by quota, %", 1.0),
        dimension::NETWORK | dimension::DISK => ("MB/s", 1e6),
        dimension::TREE_CPU => ("of this run, % of one core", 1.0),
        dimension::OTHERS_CPU => ("programs, % of one core", 1.0),
        dimension::SAMPLE => ("every, ms", 1.0),
        dimension::PROCESS_READ => ("read, MB/s", 1e6),
        dimension::PROCESS_READS => ("read calls/s", 1.0),
        dimension::GPU_MEMORY_BYTES => ("memory, GiB", 1_073_741_824.0),
        dimension::GPU_POWER => ("power, W", 1.0),
        dimension::GPU_CLOCK => ("clock, MHz", 1.0),
        dimension::GPU_TEMPERATURE => ("temperature, °C", 1.0),
        dimension::GPU_PCIE_RECEIVED => ("PCIe in, MB/s", 1e6),
        dimension::GPU_PCIE_SENT => ("PCIe out, MB/s", 1e6),
        dimension::GPU_ENCODER => ("encoder, %", 1.0),
        dimension::GPU_DECODER => ("decoder, %", 1.0),
        dimension::GPU_JPEG => ("JPEG engine, %", 1.0),
        dimension::GPU_THERMAL_THROTTLE => ("slowed by heat, %", 1.0),
        dimension::GPU_POWER_THROTTLE => ("slowed by power limit, %", 1.0),
        other => (other, 1.0),
    };
    let kind = match series.kind.as_str() {
        kind if series.name.starts_with(kind) => String::new(),
        kind => format!("{} ", name(kind)),
    };
    let of = match series.name.as_str() {
        "MemoryUsedPercent" | "SwapUsedPercent" => String::new(),
        "ReadBytesPerSecond" => "read ".to_owned(),
        "WriteBytesPerSecond" => "written ".to_owned(),
        "ReceiveBytesPerSecond" => "received ".to_owned(),
        "TransmitBytesPerSecond" => "sent ".to_owned(),
        of => format!("{} ", name(of)),
    };
    let node = match nodes {
        1 => String::new(),
        _ => format!("{} ", name(&node.name)),
    };
    (format!("{node}{kind}{of}{}", name(what)), scale)
}

fn is_process(series: &Series) -> bool {
    [dimension::PROCESS_CPU, dimension::PROCESS_MEMORY].contains(&series.dimension.as_str())
}

/// Percentiles of all samples.
pub fn percentiles(recording: &Recording) -> String {
    let mut table = Table::new(&["", "min", "p50", "p90", "p95", "p99", "max"], &[0]);
    let mut all = (0, 0);
    let mut rest = Table::new(&["", "min", "p50", "p90", "p95", "p99", "max"], &[0]);
    for node in shown(recording) {
        for series in node.series.iter().filter(|series| !is_process(series)) {
            let Some(spread) = Spread::of(series.values.iter().copied()) else {
                continue;
            };
            let (label, scale) = label(node, series, recording.nodes.len());
            let cells = spread.table().map(|value| digits(value / scale));
            let row = std::iter::once(label).chain(cells);
            // Per-core series go into a collapsed part; single series are shown.
            if [dimension::CPU, dimension::IO_WAIT].contains(&series.dimension.as_str()) {
                rest.row(row);
                all.1 += 1;
            } else {
                table.row(row);
                all.0 += 1;
            }
        }
    }
    if all == (0, 0) {
        return String::new();
    }
    let mut body = paragraph("note", "Percentiles over all samples of the run.");
    if all.0 > 0 {
        body += &table.html();
    }
    if all.1 > 0 {
        let _ = write!(
            body,
            "<details><summary>Every core</summary>\n{}</details>\n",
            rest.html()
        );
    }
    section("Percentiles", &body)
}

/// The processes with the most CPU time.
pub fn processes(recording: &Recording) -> String {
    let mut rows = Vec::new();
    for node in &recording.nodes {
        for series in node.of(dimension::PROCESS_CPU) {
            let memory = node
                .of(dimension::PROCESS_MEMORY)
                .find(|memory| memory.name == series.name)
                .and_then(|memory| Spread::of(memory.values.iter().copied()));
            if let Some(cpu) = Spread::of(series.values.iter().copied()) {
                let seconds = node.seconds(&series.values) / 100.0;
                rows.push((seconds, series.name.clone(), cpu, memory));
            }
        }
    }
    if rows.is_empty() {
        return String::new();
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let all = rows.len();
    let mut table = Table::new(
        &[
            "Process",
            "CPU time",
            "Cores, mean",
            "Cores, p95",
            "Cores, max",
            "Memory, max",
        ],
        &[0],
    );
    for (seconds, of, cpu, memory) in rows.into_iter().take(PROCESSES) {
        table.row([
            name(&of),
            duration(seconds),
            format!("{:.2}", cpu.mean / 100.0),
            format!("{:.2}", cpu.p95 / 100.0),
            format!("{:.2}", cpu.max / 100.0),
            memory.map_or("–".to_owned(), |memory| {
                format!("{:.0} MiB", memory.max / 1_048_576.0)
            }),
        ]);
    }
    let left = match all.saturating_sub(PROCESSES) {
        0 => String::new(),
        more => paragraph("note", &format!("{} took less.", plural(more, "more process"))),
    };
    section("Processes", &(table.html() + &left))
}

pub fn framework(recording: &Recording) -> String {
    let heading = "Framework metrics";
    let mut rows = Vec::new();
    for node in &recording.nodes {
        for (of, (count, seconds)) in totals(node) {
            rows.push((seconds, node, of, count));
        }
    }
    if rows.is_empty() {
        let why = "No step and no phase was recorded. A program marks them through STOKEHOLD_TIMELINE; stokehold train \
                   does so by itself.";
        return section(heading, &paragraph("note", why));
    }
    rows.sort_by(|a, b| b.0.total_cmp(&a.0));
    let training = Job::of(recording)
        .and_then(|job| job.training)
        .map_or(0.0, |(from, to)| to - from);
    let all = rows.len();
    let mut table = Table::new(
        &[
            "Node",
            "Phase",
            "Spans",
            "Total",
            "Of training loop",
            "Mean",
            "p50",
            "p95",
            "max",
        ],
        &[0, 1],
    );
    for (seconds, node, of, count) in rows.into_iter().take(FRAMEWORK_ROWS) {
        let Some(spread) = Spread::of(node.spans_of(of).map(|span| span.duration as f32)) else {
            continue;
        };
        table.row([
            name(&node.name),
            phase(of),
            count.to_string(),
            duration(seconds),
            share(seconds, training),
            duration(spread.mean),
            duration(spread.p50),
            duration(spread.p95),
            duration(spread.max),
        ]);
    }
    let mut note = "Time by phase. Phases of several workers run at the same time, so shares may add up to more than all \
                    of it."
        .to_owned();
    if all > FRAMEWORK_ROWS {
        let _ = write!(note, " {} took less.", plural(all - FRAMEWORK_ROWS, "more phase"));
    }
    section(heading, &(paragraph("note", &note) + &table.html()))
}

/// A phase in words, if it is a known one.
fn phase(of: &str) -> String {
    let words = match of {
        span::STEP => "training step",
        span::EVAL_STEP => "validation step",
        span::WAIT => "wait for data",
        span::WORKER => "worker busy with a batch",
        span::LOADER_START => "loader starts its workers",
        span::READ => "worker reads",
        span::DECODE => "worker decodes",
        span::AUGMENT => "worker augments",
        other => return name(other),
    };
    format!("{words} ({of})")
}

/// A number in a JSON file, in units of `scale`, with two decimals; a dash if it is missing.
pub(super) fn number(value: Option<&Value>, scale: f64) -> String {
    value
        .and_then(Value::as_f64)
        .map_or("–".to_owned(), |value| format!("{:.2}", value / scale))
}
