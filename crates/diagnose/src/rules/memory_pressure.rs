//! MemoryPressure: main memory is short.
//!
//! The rule fires if in more than `threshold` percent of a machine's samples some task was stalled for memory
//! for more than `pressure_threshold` percent of the time (the kernel's pressure stall information), or if
//! the swap in use rose by more than `swap_threshold` points from its lowest value before.

use serde_json::json;
use stokehold_profile::{Node, Series, dimension};

use crate::rules::case::Case;
use crate::rules::evidence::of_time;
use crate::rules::parameters::{PATIENCE, Parameter, Range};
use crate::rules::share::Share;
use crate::rules::statistics::Sorted;
use crate::rules::{Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "MemoryPressure",
    detects: "main memory that is short",
    parameters: &[
        Parameter {
            name: "threshold",
            meaning: "share of the samples under pressure, percent; fires above",
            range: Range::Percent,
            defaults: [5.0; 3],
        },
        Parameter {
            name: "pressure_threshold",
            meaning: "share of a sample's time that some task was stalled for memory, percent; under pressure above",
            range: Range::Percent,
            defaults: [10.0; 3],
        },
        Parameter {
            name: "swap_threshold",
            meaning: "rise of the swap in use, points of percent; fires above",
            range: Range::Percent,
            defaults: [10.0; 3],
        },
        PATIENCE,
    ],
    judge,
};

/// The largest rise of the swap in use: points, and the ticks of its lowest and highest value.
struct Rise {
    points: f32,
    from: usize,
    to: usize,
}

fn judge(case: &Case) -> Finding {
    let mut finding = case.finding();
    let (mut known, mut sentences) = (false, Vec::new());
    let stalled = |series: &Series| series.dimension == dimension::PRESSURE && series.name == "memory";
    let limit = case.number("pressure_threshold") as f32;
    for node in case.nodes() {
        let mut details = json!({});
        if let Some(share) = Share::of(node, stalled, |value| value > limit) {
            known = true;
            finding.triggered |= share.add_to(&mut finding, case);
            finding
                .evidence
                .extend(share.evidence(stalled, |value| value > limit));
            details["share"] = json!(share.percent());
            sentences.push(format!(
                "On {}, tasks were stalled for memory for more than {limit} % of the time in {} of {} samples ({:.1} %).",
                node.name,
                share.count,
                share.snapshots.len(),
                share.percent(),
            ));
        }
        if let Some(rise) = swap_rise(node) {
            known = true;
            details["swap_rise"] = json!(rise.points);
            if f64::from(rise.points) > case.number("swap_threshold") {
                finding.triggered = true;
                finding.violations += 1;
                let (from, to) = (node.ticks[rise.from], node.ticks[rise.to]);
                finding.evidence.push(of_time(node, from, to, "swap".to_owned()));
                sentences.push(format!(
                    "The swap in use on {} rose by {:.0} points.",
                    node.name, rise.points
                ));
            }
        }
        let used = node.series.iter().find(|series| series.name == dimension::MEMORY);
        if let Some(used) = used.filter(|_| !sentences.is_empty()) {
            let most = Sorted::of_column(&used.values).p(100.0);
            details["memory_max"] = json!(most);
            sentences.push(format!(
                "At most {most:.0} % of the memory of {} was in use.",
                node.name
            ));
        }
        if details.as_object().is_some_and(|details| !details.is_empty()) {
            finding.details[&node.name] = details;
        }
    }
    if !known {
        return case.missing("neither memory pressure nor swap was recorded");
    }
    finding.summary = match sentences.is_empty() {
        true => "The swap in use did not rise; memory pressure was not recorded.".to_owned(),
        false => sentences.join(" "),
    };
    if finding.triggered {
        finding.recommendation =
            "Use fewer workers or a shorter prefetch, keep less in memory, or take a machine with more."
                .to_owned();
    }
    finding
}

fn swap_rise(node: &Node) -> Option<Rise> {
    let swap = node.of(dimension::SWAP).next()?;
    let values = swap.values.iter().take(node.ticks.len()).enumerate();
    let mut numbers = values.filter(|(_, value)| !value.is_nan()).peekable();
    let mut least = numbers.peek().map(|(at, value)| (*at, **value))?;
    let mut most = Rise {
        points: 0.0,
        from: least.0,
        to: least.0,
    };
    for (at, &value) in numbers {
        if value < least.1 {
            least = (at, value);
        }
        if value - least.1 > most.points {
            most = Rise {
                points: value - least.1,
                from: least.0,
                to: at,
            };
        }
    }
    Some(most)
}
