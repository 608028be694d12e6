//! CgroupThrottled: the container's CPU quota slows the job down.
//!
//! A sample is throttled if the quota stopped tasks for more than `throttled_threshold` percent of its time
//! (`nr_throttled` and `throttled_usec` of the kernel's `cpu.stat`, recorded as `ThrottledPercent`). The rule
//! fires if more than `threshold` percent of a machine's samples are throttled. Cores that look half idle may
//! be all that the quota allows.

use serde_json::json;
use stokehold_profile::{Series, dimension};

use crate::rules::case::Case;
use crate::rules::parameters::{PATIENCE, Parameter, Range};
use crate::rules::share::Share;
use crate::rules::statistics::Sorted;
use crate::rules::{Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "CgroupThrottled",
    detects: "a container's CPU quota that holds the job back",
    parameters: &[
        Parameter {
            name: "threshold",
            meaning: "share of the samples that are throttled, percent; fires above",
            range: Range::Percent,
            defaults: [10.0; 3],
        },
        Parameter {
            name: "throttled_threshold",
            meaning: "share of a sample's time that tasks were held back, percent; throttled above",
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
    let belongs = |series: &Series| series.dimension == dimension::THROTTLED;
    let limit = case.number("throttled_threshold") as f32;
    for node in case.nodes() {
        let Some(share) = Share::of(node, belongs, |value| value > limit) else {
            continue;
        };
        known = true;
        finding.triggered |= share.add_to(&mut finding, case);
        let held = node
            .of(dimension::THROTTLED)
            .map(|series| Sorted::of_column(&series.values));
        let p95 = held.map(|values| values.p(95.0)).fold(0.0, f64::max);
        finding.details[&node.name] = json!({"share": share.percent(), "p95": p95});
        finding
            .evidence
            .extend(share.evidence(belongs, |value| value > limit));
        sentences.push(format!(
            "On {}, the CPU quota held tasks back for more than {limit} % of the time in {} of {} samples ({:.1} %); \
             p95 {p95:.0} %.",
            node.name,
            share.count,
            share.snapshots.len(),
            share.percent(),
        ));
    }
    if !known {
        return case.missing("no throttling of a cgroup was recorded");
    }
    finding.summary = sentences.join(" ");
    if finding.triggered {
        finding.recommendation =
            "Raise the container's CPU limit, or use no more workers than the limit has cores: \
                                  more of them only spend the quota sooner."
                .to_owned();
    }
    finding
}
