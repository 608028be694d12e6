//! MaxInitializationTime: the training loop starts late.
//!
//! The rule fires if the first step of any mode begins more than `threshold` minutes after the first sample,
//! or if that time has passed without a step. A recording without any span is not judged, because its program
//! marks no steps.
//!
//! In the details `job_start` and `job_end` are the first and the last sample, unix seconds (spans if there
//! are no samples), `first` and `last` the starts of the first and the last step, microseconds.

use serde_json::json;

use crate::rules::case::Case;
use crate::rules::evidence::of_time;
use crate::rules::parameters::{Parameter, Range};
use crate::rules::{Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "MaxInitializationTime",
    detects: "a training loop that takes long to begin",
    parameters: &[Parameter {
        name: "threshold",
        meaning: "minutes from the first sample to the first step; fires above",
        range: Range::Number(0.0, f64::INFINITY),
        defaults: [20.0; 3],
    }],
    judge,
};

fn judge(case: &Case) -> Finding {
    let mut finding = case.finding();
    let ticks = || {
        case.nodes()
            .iter()
            .flat_map(|node| [node.ticks.first(), node.ticks.last()])
            .flatten()
    };
    let sampled = ticks()
        .copied()
        .map(|tick| (tick, tick))
        .reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
    let Some((start, end)) = sampled.or_else(|| case.recording.extent()) else {
        return case.missing("nothing was recorded");
    };
    let mut steps: Option<(f64, f64)> = None;
    for (_, step) in case.nodes().iter().flat_map(|node| node.steps()) {
        finding.datapoints += 1;
        let (first, last) = steps.unwrap_or((step.start, step.start));
        steps = Some((first.min(step.start), last.max(step.start)));
    }
    let micros = |seconds: f64| (seconds * 1e6).round() as i64;
    let numbers = match steps {
        Some((first, last)) => json!({"first": micros(first), "last": micros(last)}),
        None => json!({}),
    };
    finding.details = json!({"job_start": start, "job_end": end, "step_num": numbers});
    if case.nodes().iter().all(|node| node.spans.is_empty()) {
        return Finding {
            datapoints: finding.datapoints,
            details: finding.details,
            ..case.missing("no steps were recorded, nor anything else of the training loop")
        };
    }
    let waited = steps.map_or(end, |(first, _)| first) - start;
    finding.triggered = waited > case.number("threshold") * 60.0;
    finding.violations = u64::from(finding.triggered);
    finding.summary = match steps {
        Some(_) => format!(
            "The first step began after {:.1} minutes.",
            waited.max(0.0) / 60.0
        ),
        None => format!("No step was seen in {:.1} minutes.", waited / 60.0),
    };
    if finding.triggered {
        finding.recommendation =
            "Look at what comes before the first step: downloading data, listing many files, \
                                  building the data set's index, compiling the model."
                .to_owned();
        let nodes = case
            .nodes()
            .iter()
            .filter(|node| !node.ticks.is_empty() || !node.spans.is_empty());
        finding.evidence = nodes
            .map(|node| of_time(node, start, start + waited, "initialisation".to_owned()))
            .collect();
    }
    finding
}
