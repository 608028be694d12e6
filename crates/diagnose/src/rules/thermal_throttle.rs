//! ThermalThrottle: a GPU runs slower because it is hot.
//!
//! A sample is throttled if NVML reports heat as a reason for lower clocks. Each GPU is judged by itself: the
//! rule fires if more than `threshold` percent of its samples are throttled. The finding has its clocks and
//! temperature with and without throttling.

use serde_json::json;
use stokehold_profile::{Node, Series, dimension};

use crate::rules::case::Case;
use crate::rules::parameters::{PATIENCE, Parameter, Range};
use crate::rules::share::Share;
use crate::rules::statistics::Sorted;
use crate::rules::{Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "ThermalThrottle",
    detects: "GPUs that heat slows down",
    parameters: &[
        Parameter {
            name: "threshold",
            meaning: "share of a GPU's samples that are throttled by heat, percent; fires above",
            range: Range::Percent,
            defaults: [5.0; 3],
        },
        PATIENCE,
    ],
    judge,
};

fn judge(case: &Case) -> Finding {
    let mut finding = case.finding();
    let (mut known, mut sentences) = (false, Vec::new());
    let is_hot = |value: f32| value > 0.0;
    for node in case.nodes() {
        for gpu in node.of(dimension::GPU_THERMAL_THROTTLE) {
            let belongs = |series: &Series| std::ptr::eq(series, gpu);
            let Some(share) = Share::of(node, belongs, is_hot) else {
                continue;
            };
            known = true;
            let fires = share.add_to(&mut finding, case);
            finding.triggered |= fires;
            if share.count == 0 {
                continue;
            }
            let [clock_hot, clock] = medians(node, gpu, dimension::GPU_CLOCK);
            let [hottest, _] = medians(node, gpu, dimension::GPU_TEMPERATURE);
            if finding.details.get(&node.name).is_none() {
                finding.details[&node.name] = json!({});
            }
            finding.details[&node.name][&gpu.name] = json!({
                "share": share.percent(),
                "clock_throttled": clock_hot,
                "clock": clock,
                "temperature_throttled": hottest,
            });
            finding.evidence.extend(share.evidence(belongs, is_hot));
            let megahertz =
                |clock: Option<f64>| clock.map_or("unknown".to_owned(), |clock| format!("{clock:.0} MHz"));
            sentences.push(format!(
                "{} of {} was slowed down by heat in {} of {} samples ({:.1} %): median clock {} then, {} otherwise.",
                gpu.name,
                node.name,
                share.count,
                share.snapshots.len(),
                share.percent(),
                megahertz(clock_hot),
                megahertz(clock),
            ));
        }
    }
    finding.summary = match () {
        () if !known => return case.missing("no GPU's reasons for lower clocks were recorded"),
        () if sentences.is_empty() => "No GPU was slowed down by heat.".to_owned(),
        () => sentences.join(" "),
    };
    if finding.triggered {
        finding.recommendation =
            "Cool the machine better, or lower the GPU's power limit: a steady clock is faster \
                                  than one that falls and rises."
                .to_owned();
    }
    finding
}

/// The medians of another series of the GPU in throttled samples, and in the others.
fn medians(node: &Node, gpu: &Series, dimension: &str) -> [Option<f64>; 2] {
    let other = node
        .series
        .iter()
        .find(|one| one.dimension == dimension && one.name == gpu.name);
    [true, false].map(|hot| {
        let pairs = other?.values.iter().zip(&gpu.values);
        let belongs = pairs.filter(|(_, throttled)| !throttled.is_nan() && (**throttled > 0.0) == hot);
        let sorted = Sorted::of(belongs.map(|(value, _)| f64::from(*value)));
        (!sorted.is_empty()).then(|| sorted.p(50.0))
    })
}
