//! OverallSystemUsage: the utilisation of each machine. It never fires.
//!
//! Per machine and metric it has the largest, 99th, 95th and 50th percentile and smallest of the samples,
//! with two decimals. Cores, GPUs and I/O wait are means over the cores or GPUs of the machine at each
//! sample; network is the sum of its series, in bytes per second; memory is that of the machine, in percent.
//! Negative values become 0, as in smdebug.
//!
//! If the recording tells the run from other programs, `CPU of the run` and `CPU of other programs` are the
//! two parts of `CPU`.
//!
//! smdebug divides by the number of core or GPU names of all machines; we divide by the number of values
//! present, so that a core that goes offline does not look idle.

use serde_json::{Map, Value, json};
use stokehold_profile::{Node, Series, dimension};

use crate::rules::case::{self, Case};
use crate::rules::statistics::{Sorted, sums, two_decimals};
use crate::rules::{Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "OverallSystemUsage",
    detects: "nothing: it reports what was used of every machine",
    parameters: &[],
    judge,
};

/// A metric: its published name, its series, and how they are combined.
type Metric = (&'static str, fn(&Series) -> bool, Together);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Together {
    Mean,
    Sum,
    /// Percent of one core, converted to a share of all cores.
    OfCores,
}
use Together::{Mean, OfCores, Sum};

const METRICS: [Metric; 8] = [
    ("CPU", |series| series.dimension == dimension::CPU, Mean),
    (
        "CPU of the run",
        |series| series.dimension == dimension::TREE_CPU,
        OfCores,
    ),
    (
        "CPU of other programs",
        |series| series.dimension == dimension::OTHERS_CPU,
        OfCores,
    ),
    ("GPU", |series| series.dimension == dimension::GPU, Mean),
    ("CPU memory", |series| series.name == dimension::MEMORY, Mean),
    (
        "GPU memory",
        |series| series.dimension == dimension::GPU_MEMORY,
        Mean,
    ),
    ("I/O", |series| series.dimension == dimension::IO_WAIT, Mean),
    ("Network", |series| series.dimension == dimension::NETWORK, Sum),
];

fn judge(case: &Case) -> Finding {
    let mut finding = case.finding();
    let mut sentences = Vec::new();
    let mut details = Map::new();
    for node in case.nodes() {
        finding.datapoints += node.ticks.len() as u64;
        for (name, belongs, how) in METRICS {
            let values = Sorted::of(together(node, belongs, how));
            if values.is_empty() {
                continue;
            }
            let p = |p| two_decimals(values.p(p).max(0.0));
            let usage =
                json!({"max": p(100.0), "p99": p(99.0), "p95": p(95.0), "p50": p(50.0), "min": p(0.0)});
            let metric = details.entry(name).or_insert_with(|| json!({}));
            metric[&node.name] = usage;
            if name.starts_with("CPU") && how != Mean || ["CPU", "GPU"].contains(&name) {
                sentences.push(format!(
                    "{name} of {}: median {:.0} %, p95 {:.0} %",
                    node.name,
                    p(50.0),
                    p(95.0)
                ));
            }
        }
    }
    finding.details = Value::Object(details);
    if sentences.is_empty() {
        return Finding {
            details: finding.details,
            ..case.missing("no samples were recorded")
        };
    }
    let whole_machine = case
        .nodes()
        .iter()
        .map(case::whose)
        .find(|words| !words.is_empty());
    finding.summary = sentences.join("; ") + "." + whole_machine.unwrap_or_default();
    finding
}

/// At every tick, the mean or the sum of the matching series; NaN if none has a value.
fn together(node: &Node, belongs: fn(&Series) -> bool, how: Together) -> impl Iterator<Item = f64> {
    let cores = node.of(dimension::CPU).count() as f64;
    sums(node, belongs)
        .into_iter()
        .map(move |(sum, count)| match count {
            0 => f64::NAN,
            _ => match how {
                Mean => sum / f64::from(count),
                Sum => sum,
                OfCores => sum / cores,
            },
        })
}
