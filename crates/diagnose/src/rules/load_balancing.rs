//! LoadBalancing: GPUs of one machine that are unevenly used.
//!
//! A histogram of each GPU's utilisation is made, in 49 bins of 2 points from 0 to 98 as in smdebug
//! (`arange(0, 100, 2)`). For each pair of GPUs of a machine with more than `patience` samples, the rule
//! fires if the Jensen-Shannon distance of their histograms is more than `threshold`. With `P` and `Q` the
//! histograms divided by their sums, `M = (P + Q) / 2` and the natural logarithm,
//! ```text
//! distance = sqrt((sum P ln(P / M) + sum Q ln(Q / M)) / 2),    from 0 (alike) to sqrt(ln 2) = 0.83 (nothing in common)
//! ```
//!
//! (Lin 1991; Endres and Schindelin 2003.) Values above 98 are in no bin of the published histogram, so
//! smdebug cannot tell a GPU that is always full from one that was never sampled. Here they are a fiftieth
//! class for the distance, but not in the counts in the details. `Imbalance` compares machines.

use serde_json::{Map, Value, json};
use stokehold_profile::{Node, Series, dimension};

use crate::rules::case::Case;
use crate::rules::evidence::{of_run, runs};
use crate::rules::parameters::{Parameter, Range};
use crate::rules::snapshot::Snapshots;
use crate::rules::{Evidence, Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "LoadBalancing",
    detects: "GPUs of one machine that are unevenly used",
    parameters: &[
        Parameter {
            name: "threshold",
            meaning: "Jensen-Shannon distance of two GPUs' histograms; fires above",
            range: Range::Number(0.0, 1.0),
            defaults: [0.5; 3],
        },
        Parameter {
            name: "patience",
            meaning: "samples of each GPU; judged with more",
            range: Range::Count(0),
            defaults: [60.0, 1000.0, 10.0],
        },
    ],
    judge,
};

/// The bins of the published histogram; one more is used for the values above.
const BINS: usize = 49;

type Histogram = [u64; BINS + 1];

struct Gpu<'a> {
    series: &'a Series,
    histogram: Histogram,
}

fn judge(case: &Case) -> Finding {
    let mut finding = case.finding();
    let (mut several, mut compared, mut sentences) = (false, 0, Vec::new());
    for node in case.nodes() {
        let mut gpus = Vec::new();
        for series in node.of(dimension::GPU) {
            let histogram = histogram(&series.values);
            let samples: u64 = histogram.iter().sum();
            finding.datapoints = finding.datapoints.max(samples);
            gpus.push((samples, Gpu { series, histogram }));
        }
        several |= gpus.len() > 1;
        gpus.retain(|(samples, _)| *samples > case.count("patience"));
        let gpus: Vec<Gpu> = gpus.into_iter().map(|(_, gpu)| gpu).collect();
        let mut distances = Map::new();
        let mut apart: Vec<(f64, &Gpu, &Gpu)> = Vec::new();
        for (at, one) in gpus.iter().enumerate() {
            let mut row = Map::new();
            for other in &gpus[at + 1..] {
                let distance = distance(&one.histogram, &other.histogram);
                row.insert(other.series.name.clone(), json!(distance));
                compared += 1;
                if distance > case.number("threshold") {
                    apart.push((distance, one, other));
                }
            }
            if !row.is_empty() {
                distances.insert(one.series.name.clone(), Value::Object(row));
            }
        }
        if distances.is_empty() {
            continue;
        }
        let workloads = gpus
            .iter()
            .map(|gpu| (gpu.series.name.clone(), json!(gpu.histogram[..BINS])));
        let workloads: Map<String, Value> = workloads.collect();
        finding.details[&node.name] = json!({"workloads": workloads, "distances": distances});
        finding.violations += apart.len() as u64;
        apart.sort_by(|a, b| b.0.total_cmp(&a.0));
        if let Some((distance, one, other)) = apart.first() {
            sentences.push(format!(
                "On {}, {} of {} pairs of GPUs are used unevenly; {} ({:.0} % on average) and {} ({:.0} %) most, at a \
                 distance of {distance:.2}.",
                node.name,
                apart.len(),
                gpus.len() * (gpus.len() - 1) / 2,
                one.series.name,
                mean(&one.series.values),
                other.series.name,
                mean(&other.series.values),
            ));
            finding.evidence.extend(evidence(node, &apart));
        }
    }
    finding.triggered = !sentences.is_empty();
    finding.judged = compared > 0;
    finding.summary = match () {
        () if finding.triggered => sentences.join(" "),
        () if !several => return case.missing("no machine with several GPUs was recorded"),
        () if compared > 0 => "All GPUs of a machine work alike.".to_owned(),
        () => format!(
            "Not judged before more than {} samples of each GPU; there are {}.",
            case.number("patience"),
            finding.datapoints
        ),
    };
    if finding.triggered {
        finding.recommendation =
            "Give every GPU the same share of each batch and its own stream of data; look at what \
                                  runs on one of them alone, such as validation or gathering of outputs."
                .to_owned();
    }
    finding
}

fn histogram(values: &[f32]) -> Histogram {
    let mut histogram = [0; BINS + 1];
    for value in values.iter().filter(|value| **value >= 0.0) {
        // As in numpy, the last bin includes its upper edge.
        let bin = if *value == 98.0 {
            BINS - 1
        } else {
            (value / 2.0) as usize
        };
        histogram[bin.min(BINS)] += 1;
    }
    histogram
}

fn distance(one: &Histogram, other: &Histogram) -> f64 {
    let share =
        |histogram: &Histogram, at: usize| histogram[at] as f64 / histogram.iter().sum::<u64>().max(1) as f64;
    let term = |p: f64, m: f64| if p > 0.0 { p * (p / m).ln() } else { 0.0 };
    let divergence: f64 = (0..=BINS)
        .map(|at| {
            let (p, q) = (share(one, at), share(other, at));
            let m = (p + q) / 2.0;
            term(p, m) + term(q, m)
        })
        .sum();
    (divergence / 2.0).max(0.0).sqrt()
}

fn mean(values: &[f32]) -> f64 {
    let numbers = values.iter().filter(|value| !value.is_nan());
    let (sum, count) = numbers.fold((0f64, 0u64), |(sum, count), value| {
        (sum + f64::from(*value), count + 1)
    });
    sum / count.max(1) as f64
}

/// The times at which the GPUs of the most different pairs were used differently by more than 20 points.
fn evidence(node: &Node, apart: &[(f64, &Gpu, &Gpu)]) -> Vec<Evidence> {
    const PAIRS: usize = 4;
    const POINTS: f32 = 20.0;
    let snapshots = Snapshots::of(node);
    let mut evidence = Vec::new();
    for (_, one, other) in &apart[..apart.len().min(PAIRS)] {
        let mut values = vec![f32::NAN; snapshots.len()];
        snapshots.each(one.series, |at, value| values[at] = value);
        snapshots.each(other.series, |at, value| values[at] = (values[at] - value).abs());
        let names = format!("{}, {}", one.series.name, other.series.name);
        let runs = runs(&snapshots, |at| values[at] > POINTS);
        evidence.extend(
            runs.iter()
                .map(|run| of_run(node, &snapshots, run, names.clone())),
        );
    }
    evidence
}
