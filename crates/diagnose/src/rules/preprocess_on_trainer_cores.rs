//! PreprocessOnTrainerCores: the loader's workers take cores from a trainer that computes on them.
//!
//! This is judged on machines without GPU samples, but with samples of the cores, training steps and workers:
//! there the trainer computes on the cores that workers use. A sample is contended if the trainer computed in
//! at least half of it, at least one worker was busy for half of it, and the run kept the cores on average
//! more than `cpu_threshold` percent busy (or all programs did, if the recording does not tell them apart).
//! The rule fires if more than `threshold` percent of the samples in which the trainer computed are
//! contended, and steps are slower because of it: the median of steps with at least half a worker busy next to
//! them is more than `slowdown_threshold` percent above that of steps with less than a tenth of one. If there
//! are fewer than ten steps of either kind, nothing shows how fast steps would be alone, and the samples
//! alone decide.

use serde_json::json;
use stokehold_profile::{Node, Span, dimension, span};

use crate::rules::case::{self, Case};
use crate::rules::evidence::{of_run, runs};
use crate::rules::parameters::{PATIENCE, Parameter, Range};
use crate::rules::snapshot::Snapshots;
use crate::rules::statistics::{Sorted, cores_column};
use crate::rules::steps::steps;
use crate::rules::{Evidence, Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "PreprocessOnTrainerCores",
    detects: "loader workers that take cores from a trainer that computes on them",
    parameters: &[
        Parameter {
            name: "threshold",
            meaning: "share of the samples with computing that are contended, percent; fires above",
            range: Range::Percent,
            defaults: [30.0; 3],
        },
        Parameter {
            name: "cpu_threshold",
            meaning: "mean busy share of the cores, percent; contended above",
            range: Range::Percent,
            defaults: [90.0; 3],
        },
        Parameter {
            name: "slowdown_threshold",
            meaning: "how much longer steps take next to busy workers, percent; slower above",
            range: Range::Number(0.0, f64::INFINITY),
            defaults: [10.0; 3],
        },
        PATIENCE,
    ],
    judge,
};

/// The number of steps of each kind that a comparison needs.
const ENOUGH: usize = 10;

fn judge(case: &Case) -> Finding {
    let mut finding = case.finding();
    let mut sentences = Vec::new();
    for node in case.nodes() {
        let Some(found) = judge_node(case, node) else {
            continue;
        };
        let share = 100.0 * found.contended as f64 / found.computing.max(1) as f64;
        let slower = found
            .slowdown
            .is_none_or(|slowdown| slowdown > case.number("slowdown_threshold"));
        finding.triggered |=
            found.computing as u64 > case.count("patience") && share > case.number("threshold") && slower;
        finding.violations += found.contended as u64;
        finding.datapoints += found.computing as u64;
        finding.details[&node.name] = json!({"share": share, "slowdown": found.slowdown});
        let slowdown = match found.slowdown {
            Some(slowdown) => {
                format!("steps next to busy workers took {slowdown:.0} % longer than steps alone")
            }
            None => "too few steps ran with and without busy workers beside them to compare".to_owned(),
        };
        sentences.push(format!(
            "On {}, all cores were busy and workers at work in {} of {} samples in which the trainer computed \
             ({share:.0} %); {slowdown}.{}",
            node.name,
            found.contended,
            found.computing,
            case::whose(node),
        ));
        finding.evidence.extend(found.evidence);
    }
    if sentences.is_empty() {
        return case.missing(
            "no machine without GPU was recorded with its cores, its training steps and its workers",
        );
    }
    finding.summary = sentences.join(" ");
    if finding.triggered {
        finding.recommendation =
            "Leave the trainer cores of its own: fewer workers or fewer threads of each, a \
                                  cheaper pipeline, or images prepared beforehand."
                .to_owned();
    }
    finding
}

struct NodeContention {
    computing: usize,
    contended: usize,
    /// How much longer steps take next to workers, percent.
    slowdown: Option<f64>,
    evidence: Vec<Evidence>,
}

fn judge_node(case: &Case, node: &Node) -> Option<NodeContention> {
    let has = |what: &str| node.of(what).next().is_some();
    if has(dimension::GPU) || !has(dimension::CPU) || node.spans_of(span::WORKER).next().is_none() {
        return None;
    }
    steps(node).next()?;
    let snapshots = Snapshots::of(node);
    let seconds: Vec<[f32; 2]> = snapshots.seconds(node, |name| match name {
        span::STEP => Some(0),
        span::WORKER => Some(1),
        _ => None,
    })?;
    let cores = snapshots.column(&cores_column(node));
    let limit = case.number("cpu_threshold") as f32;
    let half = |at: usize| {
        let (from, to) = snapshots.time(at);
        (to - from) as f32 / 2.0
    };
    let computes = |at: usize| seconds[at][0] > 0.0 && seconds[at][0] >= half(at);
    let contended = |at: usize| computes(at) && seconds[at][1] >= half(at) && cores[at] > limit;
    let computing = (0..snapshots.len()).filter(|at| computes(*at)).count();
    let held = (0..snapshots.len()).filter(|at| contended(*at)).count();
    let evidence = runs(&snapshots, contended);
    let evidence = evidence
        .iter()
        .map(|run| of_run(node, &snapshots, run, "all cores".to_owned()));
    Some(NodeContention {
        computing,
        contended: held,
        slowdown: slowdown(node),
        evidence: evidence.collect(),
    })
}

/// How much longer steps take with workers busy next to them, percent of the median alone.
fn slowdown(node: &Node) -> Option<f64> {
    let mut workers = node
        .spans_of(span::WORKER)
        .filter(|span| span.end().is_finite())
        .peekable();
    let mut active: Vec<&Span> = Vec::new();
    let (mut beside, mut alone) = (Vec::new(), Vec::new());
    for step in steps(node).filter(|step| step.span.duration > 0.0) {
        let (from, to) = (step.span.start, step.span.end());
        active.retain(|span| span.end() > from);
        while let Some(span) = workers.next_if(|span| span.start < to) {
            if span.end() > from {
                active.push(span);
            }
        }
        let overlap: f64 = active
            .iter()
            .map(|span| (span.end().min(to) - span.start.max(from)).max(0.0))
            .sum();
        let busy = overlap / step.span.duration;
        if busy >= 0.5 {
            beside.push(step.span.duration);
        } else if busy < 0.1 {
            alone.push(step.span.duration);
        }
    }
    if beside.len() < ENOUGH || alone.len() < ENOUGH {
        return None;
    }
    let median = |values: Vec<f64>| Sorted::of(values).p(50.0);
    Some(100.0 * (median(beside) / median(alone) - 1.0))
}
