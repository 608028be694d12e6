//! StepOutlier: steps that take much longer than the others.
//!
//! For every machine and every mode (training, validation, ..) with more than 100 steps, an outlier is a step
//! longer than the mean plus `stddev` standard deviations (of all steps, outliers included; divided by n).
//! The rule fires if a mode has more than `n_outliers` of them. `mode` restricts it to one mode.
//!
//! In the details, which are in seconds, `probs` counts the steps that are not outliers in 100 bins of equal
//! width, `binedges` has their 101 edges, and `step_numbers` are the outliers' (at most 1000). smdebug keeps
//! the last mode that it saw of a machine; we keep the mode with the most outliers, or `TRAIN` if they tie.

use serde_json::{Value, json};
use stokehold_profile::{Node, Span, span};

use crate::rules::case::Case;
use crate::rules::evidence::{longest, of_time};
use crate::rules::parameters::{Parameter, Range};
use crate::rules::statistics::{Sorted, histogram, mean_and_deviation, two_decimals};
use crate::rules::{Evidence, Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "StepOutlier",
    detects: "steps that take much longer than the others",
    parameters: &[
        Parameter {
            name: "mode",
            meaning: "the only mode whose steps are judged",
            range: Range::Mode,
            defaults: [f64::NAN; 3],
        },
        Parameter {
            name: "n_outliers",
            meaning: "outliers of a mode; fires above",
            range: Range::Count(0),
            defaults: [10.0, 10.0, 10.0],
        },
        Parameter {
            name: "stddev",
            meaning: "standard deviations above the mean; an outlier beyond",
            range: Range::Number(0.0, f64::INFINITY),
            defaults: [3.0, 3.0, 5.0],
        },
    ],
    judge,
};

/// A mode needs more than this many steps, as in smdebug.
const ENOUGH: usize = 100;
/// The most outliers' numbers that the details list.
const LISTED: usize = 1000;

/// The steps of one mode on one machine.
struct Mode<'a> {
    node: &'a Node,
    name: &'a str,
    durations: Vec<f64>,
    mean: f64,
    deviation: f64,
    limit: f64,
    outliers: Vec<&'a Span>,
}

fn judge(case: &Case) -> Finding {
    let mut finding = case.finding();
    // Published here too, though it is the same number.
    finding
        .parameters
        .insert(0, ("threshold", case.number("stddev").to_string()));
    let only = case.parameters.mode(case.rule.name, "mode");
    let mut details = json!({});
    let mut sentences = Vec::new();
    for node in case.nodes() {
        let mut modes: Vec<&str> = Vec::new();
        for (mode, _) in node.steps() {
            finding.datapoints += 1;
            if !modes.contains(&mode) && only.is_none_or(|only| only == mode) {
                modes.push(mode);
            }
        }
        // Training comes first, so that it wins a tie.
        modes.sort_by_key(|mode| (*mode != "TRAIN", mode.to_owned()));
        let mut most: Option<Mode> = None;
        for mode in modes {
            let mode = look(node, mode, case.number("stddev"));
            if mode.durations.len() <= ENOUGH {
                continue;
            }
            if mode.outliers.len() as u64 > case.count("n_outliers") {
                finding.triggered = true;
                finding.violations += mode.outliers.len() as u64;
                sentences.push(sentence(&mode, case.number("stddev")));
                finding.evidence.extend(evidence(&mode));
            }
            if most
                .as_ref()
                .is_none_or(|most| mode.outliers.len() > most.outliers.len())
            {
                most = Some(mode);
            }
        }
        if let Some(mode) = most {
            details[&node.name] = published(&mode);
        }
    }
    finding.judged = details.as_object().is_some_and(|nodes| !nodes.is_empty());
    finding.summary = match (finding.datapoints, finding.judged) {
        (0, _) => "Not judged: no steps were recorded.".to_owned(),
        (steps, false) => {
            format!("Not judged: there are {steps} steps, and it takes more than {ENOUGH} of a mode.")
        }
        _ if finding.triggered => sentences.join(" "),
        _ => format!("No mode has more than {} outliers.", case.number("n_outliers")),
    };
    finding.details = json!({"step_details": details});
    if finding.triggered {
        finding.recommendation =
            "Look at what else happens at these steps: checkpoints and validation, other \
                                  processes, a slow disk, images of unusual size."
                .to_owned();
    }
    finding
}

fn look<'a>(node: &'a Node, mode: &'a str, stddev: f64) -> Mode<'a> {
    let steps = || node.steps().filter(|(of, _)| *of == mode).map(|(_, step)| step);
    let durations: Vec<f64> = steps()
        .map(|step| step.duration)
        .filter(|time| time.is_finite())
        .collect();
    let (mean, deviation) = mean_and_deviation(&durations);
    let limit = mean + stddev * deviation;
    Mode {
        node,
        name: mode,
        durations,
        mean,
        deviation,
        limit,
        outliers: steps().filter(|step| step.duration > limit).collect(),
    }
}

fn published(mode: &Mode) -> Value {
    let sorted = Sorted::of(mode.durations.iter().copied());
    let normal: Vec<f64> = mode
        .durations
        .iter()
        .copied()
        .filter(|time| *time < mode.limit)
        .collect();
    let (counts, edges) = histogram(&normal, 100);
    let numbers = mode.outliers.iter().filter_map(|step| step.step).take(LISTED);
    json!({
        "step_stats": {
            "mean": mode.mean,
            "max": sorted.p(100.0),
            "p99": sorted.p(99.0),
            "p95": sorted.p(95.0),
            "p50": sorted.p(50.0),
            "min": sorted.p(0.0),
        },
        "number_of_outliers": mode.outliers.len(),
        "phase": format!("{}{}", span::STEP_PREFIX, mode.name),
        "stddev": two_decimals(mode.deviation),
        "probs": counts,
        "binedges": edges,
        "step_numbers": numbers.collect::<Vec<_>>(),
    })
}

fn sentence(mode: &Mode, stddev: f64) -> String {
    let together: f64 = mode.outliers.iter().map(|step| step.duration - mode.mean).sum();
    format!(
        "On {}, {} of {} {} steps took longer than {:.3} s (mean {:.3} s and {stddev} deviations of {:.3} s); \
         together they cost {together:.1} s more than mean steps.",
        mode.node.name,
        mode.outliers.len(),
        mode.durations.len(),
        mode.name,
        mode.limit,
        mode.mean,
        mode.deviation,
    )
}

fn evidence(mode: &Mode) -> Vec<Evidence> {
    longest(mode.outliers.clone(), |step| step.duration)
        .into_iter()
        .map(|step| Evidence {
            steps: step.step.map(|number| (number, number)),
            ..of_time(mode.node, step.start, step.end(), format!("{} step", mode.name))
        })
        .collect()
}
