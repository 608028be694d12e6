//! LowGPUUtilization: a GPU that is under-used, or whose use fluctuates.
//!
//! In the latest `window` samples of a GPU, a 95th percentile below `threshold_p95` is under-use; one above
//! it, with a 5th percentile below `threshold_p5`, is fluctuation. Evaluated for every GPU at every scan that
//! has more than `patience` of its samples.
//!
//! In the details, `gpu_max`, the quartiles and whiskers are over all samples, `gpu_95` and `gpu_5` over the
//! last window with a violation. `last_timestamp` is the last sample's, microseconds.

use serde_json::{Value, json};
use stokehold_profile::{Node, Series, dimension};

use crate::rules::case::Case;
use crate::rules::evidence::{bridged, list, longest, of_time};
use crate::rules::parameters::{Parameter, Range};
use crate::rules::scan::Scans;
use crate::rules::statistics::Sorted;
use crate::rules::{Evidence, Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "LowGPUUtilization",
    detects: "GPUs that are under-used or whose use fluctuates",
    parameters: &[
        Parameter {
            name: "threshold_p95",
            meaning: "95th percentile of a GPU's utilisation, percent; under-used below",
            range: Range::Percent,
            defaults: [70.0, 70.0, 70.0],
        },
        Parameter {
            name: "threshold_p5",
            meaning: "5th percentile of a GPU's utilisation, percent; fluctuating below",
            range: Range::Percent,
            defaults: [10.0, 10.0, 10.0],
        },
        Parameter {
            name: "window",
            meaning: "latest samples that percentiles are taken of",
            range: Range::Count(1),
            defaults: [500.0, 500.0, 500.0],
        },
        Parameter {
            name: "patience",
            meaning: "samples of a GPU; judged with more",
            range: Range::Count(0),
            defaults: [60.0, 1000.0, 1000.0],
        },
    ],
    judge,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    UnderUsed,
    Fluctuates,
}

impl Fault {
    const ALL: [Self; 2] = [Self::UnderUsed, Self::Fluctuates];
}

/// The state for one GPU.
struct GpuUtilizationState {
    /// Violations: the fault, the window's time, its 95th and 5th percentile.
    faults: Vec<(Fault, (f64, f64), f64, f64)>,
    samples: u64,
}

fn judge(case: &Case) -> Finding {
    let mut finding = case.finding();
    let (mut sentences, mut known, mut patient) = (Vec::new(), false, false);
    for node in case.nodes() {
        let scans = Scans::of(node);
        let mut low = Vec::new();
        for gpu in node.of(dimension::GPU) {
            known = true;
            let seen = judge_gpu(case, node, gpu, &scans);
            finding.datapoints = finding.datapoints.max(seen.samples);
            patient |= seen.samples > case.count("patience");
            finding.violations += seen.faults.len() as u64;
            let Some(&(fault, _, p95, p5)) = seen.faults.last() else {
                continue;
            };
            let all = Sorted::of_column(&gpu.values);
            let mut plot = all.box_plot();
            (plot["gpu_max"], plot["gpu_95"], plot["gpu_5"]) = (json!(all.p(100.0)), json!(p95), json!(p5));
            if finding.details.get(&node.name).is_none() {
                finding.details[&node.name] = json!({});
            }
            finding.details[&node.name][&gpu.name] = plot;
            finding.details["last_timestamp"] = last_timestamp(node);
            low.push((fault, gpu.name.as_str(), all.p(50.0), p95, p5));
            let times = bridged(seen.faults.iter().map(|(_, time, ..)| *time), 0.0).into_iter();
            finding
                .evidence
                .extend(times.map(|(from, to)| of_time(node, from, to, gpu.name.clone())));
        }
        sentences.extend(
            Fault::ALL
                .into_iter()
                .filter_map(|fault| sentence(node, fault, &low)),
        );
    }
    finding.triggered = !sentences.is_empty();
    finding.evidence = longest(finding.evidence, |one: &Evidence| one.to - one.from);
    if finding.triggered {
        finding.summary = sentences.join(" ");
        finding.recommendation =
            "Find out what the GPU waits for: LoaderBound, CPUBottleneck and IOBottleneck tell. \
                                  Where it waits for nothing, a larger batch gives it more to do at once."
                .to_owned();
    } else if !known {
        return case.missing("no GPU was recorded");
    } else if patient {
        finding.summary = "Every GPU was well used.".to_owned();
    } else {
        finding.judged = false;
        finding.summary = format!(
            "Not judged before more than {} samples of a GPU; there are {}.",
            case.number("patience"),
            finding.datapoints
        );
    }
    finding
}

/// The GPUs of a machine with a fault, and the numbers of the one with the lowest median.
fn sentence(node: &Node, fault: Fault, low: &[(Fault, &str, f64, f64, f64)]) -> Option<String> {
    let of_fault = || low.iter().filter(|one| one.0 == fault);
    let (_, worst, median, p95, p5) = of_fault().min_by(|a, b| a.2.total_cmp(&b.2))?;
    let names: Vec<&str> = of_fault().map(|one| one.1).collect();
    let verb = if names.len() == 1 { "was" } else { "were" };
    let what = match fault {
        Fault::UnderUsed => "under-used",
        Fault::Fluctuates => "whose use fluctuates",
    };
    Some(format!(
        "On {}, {} {verb} {what}; {worst}: median {median:.0} % of all samples, p95 {p95:.0} % and p5 {p5:.0} % of the \
         last such window.",
        node.name,
        list(&names),
    ))
}

fn judge_gpu(case: &Case, node: &Node, gpu: &Series, scans: &Scans) -> GpuUtilizationState {
    let (threshold_p95, threshold_p5) = (case.number("threshold_p95"), case.number("threshold_p5"));
    let mut faults = Vec::new();
    scans.windows(
        &gpu.values,
        case.count("window"),
        case.count("patience"),
        |window| {
            let (p95, p5) = (window.values.p(95.0), window.values.p(5.0));
            let fault = match () {
                () if p95 < threshold_p95 => Fault::UnderUsed,
                () if p95 > threshold_p95 && p5 < threshold_p5 => Fault::Fluctuates,
                () => return,
            };
            faults.push((
                fault,
                (node.ticks[window.first], node.ticks[window.last]),
                p95,
                p5,
            ));
        },
    );
    GpuUtilizationState {
        faults,
        samples: scans.numbers(&gpu.values),
    }
}

/// The last sample's time, microseconds, for the details.
pub(super) fn last_timestamp(node: &Node) -> Value {
    json!(node.ticks.last().map(|tick| (tick * 1e6) as u64))
}
