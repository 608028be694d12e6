//! The page of one run.

use std::fmt::Write;

use super::figures::{self, Job, Spread, Step};
use super::html::{self, Table, figure, moment, name, number, paragraph, section, share};
use super::pictures::{self, Part, digits, duration};
use super::svg::escape;
use super::{Contents, data};
use crate::advice::Advice;
use crate::recording::{Node, Recording, Series, dimension, span, totals};
use crate::rules::Finding;

/// Processes that the table shows.
const PROCESSES: usize = 20;
/// Rows of the table of framework metrics.
const FRAMEWORK_ROWS: usize = 40;
/// Pieces of evidence that are shown of a finding.
const EVIDENCE: usize = 12;
/// Problems that are shown.
const PROBLEMS: usize = 40;

pub fn page(contents: &Contents<'_>) -> String {
    let recording = contents.recording;
    let runs: Vec<_> = data::of(recording, contents.findings, "").into_iter().collect();
    let body = [
        header(contents),
        advice(contents),
        job(recording),
        heat(recording, !runs.is_empty()),
        tiles(recording, contents.findings),
        stages(recording),
        usage(contents.findings),
        percentiles(recording),
        processes(recording),
        framework(recording),
        rules(contents.findings),
        details(contents.findings, recording),
        notes(recording),
    ];
    html::document("Stokehold: profile of a run", &body.concat(), &runs)
}

fn header(contents: &Contents<'_>) -> String {
    let mut html = "<header>\n<p class=\"eyebrow\">Stokehold profile</p>\n".to_owned();
    let _ = writeln!(html, "<h1>{}</h1>", escape(contents.verdict));
    for fact in facts(contents.recording) {
        html += &paragraph("", &fact);
    }
    html + "</header>\n"
}

/// What was run, where and when, in sentences.
pub fn facts(recording: &Recording) -> Vec<String> {
    let mut facts = Vec::new();
    if let Some(about) = &recording.about {
        facts.push(format!("Command: {}", name(&about.command.join(" "))));
        let machine = &about.machine;
        facts.push(format!(
            "{}, {} cores, sampled every {}, Stokehold {}.{}",
            name(machine.cpu.as_deref().unwrap_or("Processor unknown")),
            machine.cores,
            duration(about.interval_ms as f64 / 1000.0),
            name(&about.stokehold),
            match about.exit_code {
                Some(0) | None => String::new(),
                Some(code) => format!(" The command ended with exit code {code}."),
            }
        ));
    } else {
        facts.push(
            "Recorded by another program, which left no description of machine and command.".to_owned(),
        );
    }
    let (cores, gpus, samples) = extent(recording);
    let nodes = recording.nodes.len();
    facts.push(format!(
        "{} of {cores} cores and {gpus} GPUs on {nodes} {}.",
        plural(samples, "sample"),
        if nodes == 1 { "machine" } else { "machines" }
    ));
    facts
}

fn plural(count: usize, of: &str) -> String {
    format!("{count} {of}{}", if count == 1 { "" } else { "s" })
}

/// Cores, GPUs and ticks of all nodes.
fn extent(recording: &Recording) -> (usize, usize, usize) {
    let count = |of: &'static str| recording.nodes.iter().map(|node| node.of(of).count()).sum();
    let ticks = recording.nodes.iter().map(|node| node.ticks.len()).sum();
    (count(dimension::CPU), count(dimension::GPU), ticks)
}

fn advice(contents: &Contents<'_>) -> String {
    if contents.advice.is_empty() {
        let workload = contents
            .recording
            .about
            .as_ref()
            .and_then(|about| about.workload.as_ref());
        let why = if workload.is_some() {
            "No change that Stokehold can make is predicted to make this run faster."
        } else {
            "What a change would gain is predicted for runs of stokehold train and compare, which measure the loader \
             and the trainer alone. For this run the findings below say what to look at."
        };
        return section("Advice", &paragraph("note", why));
    }
    let (worth, others): (Vec<&Advice>, Vec<&Advice>) =
        contents.advice.iter().partition(|advice| advice.is_worth_it());
    let mut body = if worth.is_empty() {
        paragraph(
            "",
            "No change that was looked at gains more than two runs of the same differ by.",
        )
    } else {
        format!(
            "<div class=\"wrap\">{}</div>\n",
            changes(&worth, contents.currency)
        )
    };
    if !others.is_empty() {
        let _ = write!(
            body,
            "<details><summary>Changes that gain nothing worth having</summary>\n<div class=\"wrap\">{}</div></details>\n",
            changes(&others, contents.currency)
        );
    }
    section("Advice", &body)
}

fn changes(advice: &[&Advice], currency: &str) -> String {
    let mut table = Table::new(
        &[
            "Change",
            "Predicted s/epoch",
            "Gain s/epoch",
            "Gain",
            "Cost per epoch",
            "Why",
        ],
        &[0, 5],
    );
    for advice in advice {
        table.row([
            name(&advice.title),
            format!("{:.2}", advice.seconds_per_epoch),
            format!("{:.2}", advice.gain_seconds),
            format!("{:.0} %", advice.gain_percent),
            advice
                .cost_per_epoch
                .map_or("–".to_owned(), |cost| format!("{cost:.4} {}", name(currency))),
            match advice.flags.as_slice() {
                [] => advice.why.clone(),
                flags => format!("{}\n{}", advice.why, flags.join(" ")),
            },
        ]);
    }
    table.html()
}

fn job(recording: &Recording) -> String {
    let Some(job) = Job::of(recording) else {
        return section(
            "Job summary",
            &paragraph(
                "note",
                "No moment of this run was recorded: there is neither a sample nor a span.",
            ),
        );
    };
    let mut table = Table::new(&["", "", "Share"], &[0]);
    table.row(["Start".to_owned(), moment(job.start), String::new()]);
    table.row(["End".to_owned(), moment(job.end), String::new()]);
    table.row([
        "Duration".to_owned(),
        duration(job.duration()),
        share(job.duration(), job.duration()),
    ]);
    let mut bar = String::new();
    let missing = if let Some(parts) = job.parts() {
        for (number, (part, seconds)) in parts.into_iter().enumerate() {
            let of = share(seconds, job.duration());
            let width = 100.0 * seconds / job.duration().max(1e-9);
            let _ = write!(
                bar,
                "<div class=\"part p{number}\" style=\"width:{width:.3}%\" title=\"{part}: {}, {of}\"></div>",
                duration(seconds),
            );
            table.row([part.to_owned(), format!("{seconds:.1} s"), of]);
        }
        bar = format!(
            "<div class=\"bar\">{bar}</div>\n<p class=\"keys\">{}</p>\n",
            ["Initialisation", "Training loop", "Finalisation"]
                .iter()
                .enumerate()
                .map(|(number, part)| format!(
                    "<span class=\"key\"><span class=\"swatch p{number}\"></span>{part}</span>"
                ))
                .collect::<String>()
        );
        String::new()
    } else {
        paragraph(
            "note",
            "No steps were recorded, so initialisation, training and finalisation are not told apart. A program marks \
             its steps through STOKEHOLD_TIMELINE.",
        )
    };
    let waited = figures::wait_share(recording).map_or(String::new(), |share| {
        paragraph(
            "",
            &format!(
                "In the training loop the trainer waited for data {:.1} % of the time.",
                100.0 * share
            ),
        )
    });
    section("Job summary", &(bar + &table.html() + &waited + &missing))
}

/// The heat map's place; the script draws it.
pub fn heat(recording: &Recording, known: bool) -> String {
    let (cores, gpus, samples) = extent(recording);
    let heading = if gpus > 0 {
        "Cores and GPUs over time"
    } else {
        "Cores over time"
    };
    if !known || (samples == 0 && recording.nodes.iter().all(|node| node.spans.is_empty())) {
        return section(
            heading,
            &paragraph("note", "No sample was recorded, so there is nothing to draw."),
        );
    }
    let mut words = String::new();
    if samples == 0 {
        words += "No sample of the machine was recorded; only steps are drawn. ";
    } else if cores == 0 {
        words += "No core was sampled. ";
    }
    if gpus == 0 && samples > 0 {
        words += "No GPU was recorded. ";
    }
    words += "A row for each; the darker, the busier. Drag over a time to look closer, twice-click or press 0 to see all; \
              + − and arrow keys work too. Where a column of pixels holds several samples it shows their mean, or the \
              least or largest of them.";
    figure(heading, &words, &heat_box(""))
}

/// The element that a heat map of a run is drawn into.
pub fn heat_box(label: &str) -> String {
    format!(
        "<div class=\"heat\" data-run=\"{label}\"></div>\n<noscript><p class=\"note\">The heat map needs \
         JavaScript; the tables and the other pictures do not.</p></noscript>\n"
    )
}

/// Histograms, box plots and step durations, as far as there is something to draw.
fn tiles(recording: &Recording, findings: &[Finding]) -> String {
    let mut tiles = String::new();
    let series = |of: &'static str| recording.nodes.iter().flat_map(move |node| node.of(of));
    for (of, class, heading, what) in [
        (
            dimension::CPU,
            "heat-cpu",
            "How busy cores were",
            "utilisation of a core",
        ),
        (
            dimension::GPU,
            "heat-gpu",
            "How busy GPUs were",
            "utilisation of a GPU",
        ),
        (
            dimension::GPU_MEMORY,
            "heat-gpu",
            "GPU memory",
            "memory of a GPU in use",
        ),
    ] {
        let counts = figures::histogram(series(of));
        if counts.iter().sum::<u64>() > 0 {
            let part = Part {
                class,
                name: "",
                of: &counts,
            };
            let sentence = "Share of all samples in each class of five points.";
            tiles += &figure(heading, sentence, &pictures::histogram(&[part], what));
        }
    }
    let boxes = gpu_boxes(recording, "heat-gpu", "");
    if !boxes.is_empty() {
        let sentence =
            "Box: 25th to 75th percentile, with the median. Whiskers: 5th and 95th. Dots: extremes.";
        tiles += &figure(
            "GPU utilisation",
            sentence,
            &pictures::boxes(&boxes, "utilisation of a GPU"),
        );
    }
    let deviations = deviations(findings);
    for node in &recording.nodes {
        let Some((mode, steps)) = figures::steps(node) else {
            continue;
        };
        let (sentence, limit) = step_sentence(&steps, deviations);
        let part = Part {
            class: "b",
            name: "",
            of: steps.as_slice(),
        };
        let heading = match recording.nodes.len() {
            1 => format!("Durations of {} steps", mode_name(&mode)),
            _ => format!("Durations of {} steps on {}", mode_name(&mode), name(&node.name)),
        };
        tiles += &figure(&heading, &sentence, &pictures::steps(&[part], &[limit]));
    }
    if tiles.is_empty() {
        return String::new();
    }
    format!("<div class=\"tiles\">\n{tiles}</div>\n")
}

/// The box plots of GPUs, each with its node's name where there are several.
pub fn gpu_boxes(
    recording: &Recording,
    class: &'static str,
    before: &str,
) -> Vec<(&'static str, String, Spread)> {
    let mut boxes = Vec::new();
    for node in &recording.nodes {
        for series in node.of(dimension::GPU) {
            if let Some(spread) = Spread::of(series.values.iter().copied()) {
                let name = match recording.nodes.len() {
                    1 => format!("{before}{}", series.name),
                    _ => format!("{before}{} {}", node.name, series.name),
                };
                boxes.push((class, name, spread));
            }
        }
    }
    boxes
}

/// By how many standard deviations the rule calls a step an outlier.
pub fn deviations(findings: &[Finding]) -> f64 {
    let rule = findings.iter().find(|finding| finding.rule == "StepOutlier");
    let value = rule.and_then(|rule| rule.parameters.iter().find(|(name, _)| *name == "stddev"));
    value.and_then(|(_, value)| value.parse().ok()).unwrap_or(3.0)
}

/// What the durations of steps are, and from what duration on a step is an outlier.
pub fn step_sentence(steps: &[Step], deviations: f64) -> (String, f64) {
    let limit = figures::outlier_from(steps, deviations);
    let outliers = steps.iter().filter(|step| step.duration > limit).count();
    let spread = Spread::of(steps.iter().map(|step| step.duration as f32));
    let sentence = spread.map_or(String::new(), |spread| {
        format!(
            "{}: median {}, mean {}, longest {}. {}.",
            plural(steps.len(), "step"),
            duration(spread.p50()),
            duration(spread.mean),
            duration(spread.max()),
            match outliers {
                0 => format!("None is longer than mean + {deviations} standard deviations"),
                1 => format!(
                    "1 is longer than {}, mean + {deviations} standard deviations",
                    duration(limit)
                ),
                many => format!(
                    "{many} are longer than {}, mean + {deviations} standard deviations",
                    duration(limit)
                ),
            }
        )
    });
    (sentence, limit)
}

fn mode_name(mode: &str) -> String {
    match mode {
        "TRAIN" => "training".to_owned(),
        "EVAL" => "validation".to_owned(),
        other => name(other),
    }
}

fn stages(recording: &Recording) -> String {
    if recording.nodes.iter().all(|node| node.steps().next().is_none()) {
        return String::new();
    }
    figure(
        "Stages of a step",
        "From the wait for its batch to its end: what the trainer did, and what the loader's workers did meanwhile.",
        "<div class=\"gantt\"></div>\n",
    )
}

/// The published table: a row for each machine and metric.
fn usage(findings: &[Finding]) -> String {
    let Some(table) = usage_table(findings) else {
        return section("System usage", &paragraph("note", "Nothing was sampled."));
    };
    section(
        "System usage",
        &(paragraph("note", "All cores and all GPUs of a machine together.") + &table.html()),
    )
}

fn usage_table(findings: &[Finding]) -> Option<Table> {
    let finding = findings
        .iter()
        .find(|finding| finding.rule == "OverallSystemUsage")?;
    let mut table = Table::new(
        &["Node", "Metric", "Unit", "max", "p99", "p95", "p50", "min"],
        &[0, 1, 2],
    );
    for (metric, unit) in METRICS {
        let nodes = finding.details.get(metric).and_then(serde_json::Value::as_object);
        for (node, values) in nodes.into_iter().flatten() {
            let values = ["max", "p99", "p95", "p50", "min"].map(|column| number(values.get(column)));
            table.row(
                [name(node), metric.to_owned(), unit.to_owned()]
                    .into_iter()
                    .chain(values),
            );
        }
    }
    (!table.is_empty()).then_some(table)
}

/// The metrics of the published table and their units.
pub const METRICS: [(&str, &str); 6] = [
    ("CPU", "percent"),
    ("GPU", "percent"),
    ("CPU memory", "percent"),
    ("GPU memory", "percent"),
    ("I/O", "percent"),
    ("Network", "bytes/s"),
];

/// What a series is called in tables, and what its values are divided by.
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

/// Everything that was sampled, in percentiles.
fn percentiles(recording: &Recording) -> String {
    let mut table = Table::new(&["", "min", "p50", "p90", "p95", "p99", "max"], &[0]);
    let mut all = (0, 0);
    let mut rest = Table::new(&["", "min", "p50", "p90", "p95", "p99", "max"], &[0]);
    for node in &recording.nodes {
        for series in node.series.iter().filter(|series| !is_process(series)) {
            let Some(spread) = Spread::of(series.values.iter().copied()) else {
                continue;
            };
            let (label, scale) = label(node, series, recording.nodes.len());
            let cells = spread.table().map(|value| digits(value / scale));
            let row = std::iter::once(label).chain(cells);
            // What differs from core to core is looked up; what there is one of is read.
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

/// The processes that took most of the processor.
fn processes(recording: &Recording) -> String {
    let mut rows = Vec::new();
    for node in &recording.nodes {
        for series in node.of(dimension::PROCESS_CPU) {
            let memory = node
                .of(dimension::PROCESS_MEMORY)
                .find(|memory| memory.name == series.name)
                .and_then(|memory| Spread::of(memory.values.iter().copied()));
            if let Some(cpu) = Spread::of(series.values.iter().copied()) {
                let seconds = cpu.mean / 100.0 * cpu.count as f64 * node.interval().unwrap_or(0.0);
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
            format!("{:.2}", cpu.at[6] / 100.0),
            format!("{:.2}", cpu.max() / 100.0),
            memory.map_or("–".to_owned(), |memory| {
                format!("{:.0} MiB", memory.max() / 1_048_576.0)
            }),
        ]);
    }
    let left = match all.saturating_sub(PROCESSES) {
        0 => String::new(),
        more => paragraph("note", &format!("{} took less.", plural(more, "more process"))),
    };
    section("Processes", &(table.html() + &left))
}

fn framework(recording: &Recording) -> String {
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
            duration(spread.p50()),
            duration(spread.at[6]),
            duration(spread.max()),
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

/// A phase in words, where it is a known one.
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

fn rules(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return section("Rules", &paragraph("note", "No rule has judged this run."));
    }
    let mut table = Table::new(
        &[
            "Rule",
            "Triggered",
            "Violations",
            "Datapoints",
            "What was found",
            "Recommendation",
            "Parameters",
        ],
        &[0, 1, 4, 5, 6],
    );
    for finding in ordered(findings) {
        let parameters: Vec<String> = finding
            .parameters
            .iter()
            .map(|(name, value)| format!("{name}: {value}"))
            .collect();
        table.row([
            finding.rule.to_owned(),
            if finding.triggered { "yes" } else { "no" }.to_owned(),
            finding.violations.to_string(),
            finding.datapoints.to_string(),
            finding.summary.clone(),
            finding.recommendation.clone(),
            parameters.join("\n"),
        ]);
    }
    section(
        "Rules",
        &format!("<div class=\"wrap rules\">{}</div>\n", table.html()),
    )
}

/// Rules that fired before those that did not.
pub fn ordered(findings: &[Finding]) -> Vec<&Finding> {
    let mut ordered: Vec<&Finding> = findings.iter().collect();
    ordered.sort_by_key(|finding| !finding.triggered);
    ordered
}

/// Each rule that fired, with when and where.
fn details(findings: &[Finding], recording: &Recording) -> String {
    let start = Job::of(recording).map_or(0.0, |job| job.start);
    let mut html = String::new();
    for finding in findings.iter().filter(|finding| finding.triggered) {
        let mut body = paragraph("", &finding.summary);
        if !finding.recommendation.is_empty() {
            body += &paragraph("do", &finding.recommendation);
        }
        if !finding.evidence.is_empty() {
            let mut table = Table::new(&["From", "To", "For", "Where", "Node", "Steps"], &[3, 4]);
            for evidence in finding.evidence.iter().take(EVIDENCE) {
                table.row([
                    after(evidence.from - start),
                    after(evidence.to - start),
                    duration((evidence.to - evidence.from).max(0.0)),
                    name(&evidence.what),
                    name(&evidence.node),
                    evidence
                        .steps
                        .map_or("–".to_owned(), |(first, last)| format!("{first}–{last}")),
                ]);
            }
            body += &table.html();
            if finding.evidence.len() > EVIDENCE {
                let more = finding.evidence.len() - EVIDENCE;
                body += &paragraph("note", &format!("And {more} more."));
            }
            let _ = writeln!(
                body,
                "<p><button type=\"button\" class=\"show\" data-rule=\"{}\">Show in the heat map</button></p>",
                escape(finding.rule)
            );
        }
        html += &format!(
            "<section class=\"finding\" id=\"{rule}\">\n<h2>{rule}</h2>\n{body}</section>\n",
            rule = escape(finding.rule)
        );
    }
    html
}

/// Time after the start, `1:02:03.4`.
fn after(seconds: f64) -> String {
    let sign = if seconds < 0.0 { "−" } else { "" };
    let tenths = (seconds.abs() * 10.0).round() as u64;
    let (whole, tenth) = (tenths / 10, tenths % 10);
    let (hours, minutes, seconds) = (whole / 3600, whole / 60 % 60, whole % 60);
    if hours > 0 {
        format!("{sign}{hours}:{minutes:02}:{seconds:02}.{tenth}")
    } else {
        format!("{sign}{minutes}:{seconds:02}.{tenth}")
    }
}

/// What a reader should know of the recording itself.
fn notes(recording: &Recording) -> String {
    let noted = recording.about.iter().flat_map(|about| &about.notes);
    let all: Vec<&String> = noted.chain(&recording.problems).collect();
    if all.is_empty() {
        return String::new();
    }
    let mut list: String = all
        .iter()
        .take(PROBLEMS)
        .map(|text| format!("<li>{}</li>\n", escape(&pictures::clipped(text, 400))))
        .collect();
    if all.len() > PROBLEMS {
        let _ = writeln!(list, "<li>And {} more.</li>", all.len() - PROBLEMS);
    }
    section("About the recording", &format!("<ul>\n{list}</ul>\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_after_the_start() {
        assert_eq!(
            [0.0, 59.96, 3723.4, -1.5].map(after),
            ["0:00.0", "1:00.0", "1:02:03.4", "−0:01.5"]
        );
    }
}
