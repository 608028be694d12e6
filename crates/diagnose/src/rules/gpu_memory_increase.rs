//! GPUMemoryIncrease: a GPU's memory in use rises when it should be constant.
//!
//! At every sample beyond `patience` the mean of the latest `window` samples is compared with the mean of the
//! `window` samples before; a rise of more than `increase` points is a violation. If training steps are
//! known, only samples from the first to the last step are used.
//!
//! smdebug compares windows that are one sample apart, of which the older omits two more: with its defaults a
//! rise of 5 points needs a jump of 25 within a second. Its documentation describes the moving average of the
//! previous iteration, which means consecutive windows.

use std::collections::VecDeque;

use serde_json::json;
use stokehold_profile::{Node, Series, dimension};

use crate::rules::case::Case;
use crate::rules::evidence::{bridged, of_time};
use crate::rules::low_gpu_utilization::last_timestamp;
use crate::rules::parameters::{Parameter, Range};
use crate::rules::scan::Scans;
use crate::rules::statistics::Sorted;
use crate::rules::{Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "GPUMemoryIncrease",
    detects: "memory of a GPU that rises during training",
    parameters: &[
        Parameter {
            name: "increase",
            meaning: "rise from one window's mean to the next one's, points of percent; fires above",
            range: Range::Percent,
            defaults: [10.0, 5.0, 10.0],
        },
        Parameter {
            name: "patience",
            meaning: "samples of a GPU's memory; judged with more",
            range: Range::Count(0),
            defaults: [20.0, 1000.0, 100.0],
        },
        Parameter {
            name: "window",
            meaning: "samples that each of the two means is taken of",
            range: Range::Count(1),
            defaults: [10.0, 10.0, 500.0],
        },
    ],
    judge,
};

/// The state for one GPU.
#[derive(Default)]
struct GpuMemoryState {
    samples: u64,
    /// The times of the two windows of each violation.
    rises: Vec<(f64, f64)>,
    most: f64,
}

fn judge(case: &Case) -> Finding {
    let mut finding = case.finding();
    let (mut known, mut sentences) = (false, Vec::new());
    for node in case.nodes() {
        let scans = Scans::of(node);
        for gpu in node.of(dimension::GPU_MEMORY) {
            known = true;
            let seen = judge_gpu(case, node, gpu, &scans);
            finding.datapoints = finding.datapoints.max(seen.samples);
            if seen.rises.is_empty() {
                continue;
            }
            finding.violations += seen.rises.len() as u64;
            let all = Sorted::of_column(&gpu.values);
            let mut plot = all.box_plot();
            (plot["increase"], plot["gpu_max"], plot["p05"]) =
                (json!(seen.most), json!(all.p(100.0)), json!(all.p(5.0)));
            if finding.details.get(&node.name).is_none() {
                finding.details[&node.name] = json!({});
            }
            finding.details[&node.name][&gpu.name] = plot;
            finding.details["last_timestamp"] = last_timestamp(node);
            sentences.push(format!(
                "The memory of {} on {} rose by up to {:.1} points from one window of {} samples to the next, to {:.1} % \
                 at most.",
                gpu.name,
                node.name,
                seen.most,
                case.number("window"),
                all.p(100.0),
            ));
            let times = bridged(seen.rises, 0.0).into_iter();
            finding
                .evidence
                .extend(times.map(|(from, to)| of_time(node, from, to, gpu.name.clone())));
        }
    }
    finding.triggered = !sentences.is_empty();
    finding.judged = finding.triggered || finding.datapoints > case.count("patience");
    finding.summary = match () {
        () if !known => return case.missing("no memory of a GPU was recorded"),
        () if finding.triggered => sentences.join(" "),
        () if finding.judged => "No GPU's memory rose.".to_owned(),
        () => format!(
            "Not judged before more than {} samples; there are {}.",
            case.number("patience"),
            finding.datapoints
        ),
    };
    if finding.triggered {
        finding.recommendation = "Look for tensors that are kept from step to step, such as losses summed with their \
                                  graph; where it is one jump, for a phase that needs more, before it runs out of \
                                  memory."
            .to_owned();
    }
    finding
}

fn judge_gpu(case: &Case, node: &Node, gpu: &Series, scans: &Scans) -> GpuMemoryState {
    // A window longer than the recording is never full.
    let window = (case.count("window") as usize).min(gpu.values.len().max(1));
    let (patience, increase) = (case.count("patience"), case.number("increase"));
    let mut seen = GpuMemoryState::default();
    // The two windows, the older one first, with the time of each sample, and the sum of each.
    let mut latest: VecDeque<(f64, f32)> = VecDeque::with_capacity(2 * window + 1);
    let (mut before, mut now) = (0f64, 0f64);
    for at in scans.seen.clone() {
        let Some(&value) = gpu.values.get(at).filter(|value| !value.is_nan()) else {
            continue;
        };
        seen.samples += 1;
        latest.push_back((node.ticks[at], value));
        now += f64::from(value);
        if latest.len() > window {
            let moved = f64::from(latest[latest.len() - 1 - window].1);
            (now, before) = (now - moved, before + moved);
        }
        if latest.len() > 2 * window {
            before -= latest.pop_front().map_or(0.0, |(_, value)| f64::from(value));
        }
        let rise = (now - before) / window as f64;
        if latest.len() == 2 * window && seen.samples > patience && rise > increase {
            seen.rises.push((latest[0].0, node.ticks[at]));
            seen.most = seen.most.max(rise);
        }
    }
    seen
}
