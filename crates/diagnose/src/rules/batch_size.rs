//! BatchSize: GPUs that a larger batch would use better, or that allow a smaller machine.
//!
//! The rule fires if, over the latest `window` samples, the 95th percentiles of the cores' mean (of the run's
//! own use, if the recording has it), of a GPU's utilisation and of its memory are all below their
//! thresholds. It is evaluated at every scan that has more than `patience` and more than `window` samples of
//! the cores. Frameworks that allocate all of a GPU's memory at once hide this.
//!
//! The details are box plots over all samples. (In smdebug the whiskers of the memory use a quartile of the
//! utilisation by mistake.)

use serde_json::json;
use stokehold_profile::{Node, Series, dimension};

use crate::rules::case::{self, Case};
use crate::rules::evidence::{bridged, list, of_time};
use crate::rules::low_gpu_utilization::last_timestamp;
use crate::rules::parameters::{Parameter, Range};
use crate::rules::scan::Scans;
use crate::rules::statistics::{Sorted, cores_column};
use crate::rules::{Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "BatchSize",
    detects: "cores, GPUs and GPU memory that are all under-used, as by batches that are too small",
    parameters: &[
        Parameter {
            name: "cpu_threshold_p95",
            meaning: "95th percentile of the cores' mean, percent; under-used below",
            range: Range::Percent,
            defaults: [70.0; 3],
        },
        Parameter {
            name: "gpu_threshold_p95",
            meaning: "95th percentile of a GPU's utilisation, percent; under-used below",
            range: Range::Percent,
            defaults: [70.0; 3],
        },
        Parameter {
            name: "gpu_memory_threshold_p95",
            meaning: "95th percentile of a GPU's memory in use, percent; under-used below",
            range: Range::Percent,
            defaults: [70.0; 3],
        },
        Parameter {
            name: "patience",
            meaning: "samples of the cores; judged with more",
            range: Range::Count(0),
            defaults: [60.0, 1000.0, 100.0],
        },
        Parameter {
            name: "window",
            meaning: "latest samples that percentiles are taken of",
            range: Range::Count(1),
            defaults: [60.0, 500.0, 500.0],
        },
    ],
    judge,
};

/// One GPU: its two columns, and the windows in which everything was under-used.
struct Gpu<'a> {
    utilisation: &'a Series,
    memory: &'a Series,
    windows: Vec<(f64, f64)>,
    /// The 95th percentiles of the last of them: cores, utilisation, memory.
    last: [f64; 3],
}

fn judge(case: &Case) -> Finding {
    let mut finding = case.finding();
    let (mut known, mut judged, mut sentences) = (false, false, Vec::new());
    for node in case.nodes() {
        let mut gpus = gpus(node);
        if gpus.is_empty() || node.of(dimension::CPU).next().is_none() {
            continue;
        }
        known = true;
        let cores = cores_column(node);
        let scans = Scans::of(node);
        finding.datapoints = finding.datapoints.max(scans.numbers(&cores));
        judged |= judge_node(case, node, &cores, &scans, &mut gpus);
        let small: Vec<&Gpu> = gpus.iter().filter(|gpu| !gpu.windows.is_empty()).collect();
        if small.is_empty() {
            continue;
        }
        let mut details = json!({"cpu": Sorted::of_column(&cores).box_plot()});
        for gpu in &small {
            let name = &gpu.utilisation.name;
            finding.violations += gpu.windows.len() as u64;
            details[name] = Sorted::of_column(&gpu.utilisation.values).box_plot();
            details[format!("{name}_memory")] = Sorted::of_column(&gpu.memory.values).box_plot();
            let times = bridged(gpu.windows.iter().copied(), 0.0).into_iter();
            finding
                .evidence
                .extend(times.map(|(from, to)| of_time(node, from, to, name.clone())));
        }
        let names: Vec<&str> = small.iter().map(|gpu| gpu.utilisation.name.as_str()).collect();
        let [used_cores, used, used_memory] = small[0].last;
        sentences.push(format!(
            "On {}, the cores, {} and the GPU memory were under-used at the same time; of the last such window of {} the \
             p95 was {used:.0} % with {used_memory:.0} % of its memory, and {used_cores:.0} % of the cores.{}",
            node.name,
            list(&names),
            names[0],
            case::whose(node),
        ));
        finding.details[&node.name] = details;
        finding.details["last_timestamp"] = last_timestamp(node);
    }
    finding.triggered = !sentences.is_empty();
    if finding.triggered {
        finding.summary = sentences.join(" ");
        finding.recommendation =
            "Make batches larger until the GPU or its memory is full, or use a smaller machine.".to_owned();
    } else if !known {
        return case.missing("no GPU with its memory, or no cores, were recorded");
    } else if judged {
        finding.summary = "Cores, GPUs or their memory were well used.".to_owned();
    } else {
        let least = case.number("patience").max(case.number("window"));
        let samples = finding.datapoints;
        finding.judged = false;
        finding.summary = format!("Not judged before more than {least} samples; there are {samples}.");
    }
    finding
}

/// The GPUs whose memory was sampled too.
fn gpus(node: &Node) -> Vec<Gpu<'_>> {
    let memory = |name: &str| node.of(dimension::GPU_MEMORY).find(|series| series.name == name);
    node.of(dimension::GPU)
        .filter_map(|utilisation| {
            Some(Gpu {
                utilisation,
                memory: memory(&utilisation.name)?,
                windows: Vec::new(),
                last: [0.0; 3],
            })
        })
        .collect()
}

/// Evaluates a node. Returns whether there were enough samples.
fn judge_node(case: &Case, node: &Node, cores: &[f32], scans: &Scans, gpus: &mut [Gpu]) -> bool {
    let mut judged = false;
    let size = case.count("window");
    scans.windows(cores, size, case.count("patience").max(size), |window| {
        judged = true;
        let cores = window.values.p(95.0);
        if cores >= case.number("cpu_threshold_p95") {
            return;
        }
        for gpu in &mut *gpus {
            let p95 = |series: &Series| Some(scans.latest(&series.values, window.end, size)?.values.p(95.0));
            let (Some(used), Some(memory)) = (p95(gpu.utilisation), p95(gpu.memory)) else {
                continue;
            };
            if used < case.number("gpu_threshold_p95") && memory < case.number("gpu_memory_threshold_p95") {
                gpu.last = [cores, used, memory];
                gpu.windows
                    .push((node.ticks[window.first], node.ticks[window.last]));
            }
        }
    });
    judged
}
