//! LoaderBound: the trainer waits for data.
//!
//! A step waited if its wait is more than `wait_threshold` percent of its wait plus its computing. The rule
//! fires if more than `threshold` percent of the training steps waited, or if waiting took more than
//! `total_threshold` percent of the time of all steps: with a loader whose batches come in bursts, few steps
//! wait, but for long. Where many steps wait and all waits together are less than that, the trainer is not
//! held up for most of its time, and the finding says what a faster loader can gain at most.
//!
//! A step's computing lasts until the trainer waits again: scripts do work after `optimizer.step()`, too.

use serde_json::json;

use crate::rules::case::Case;
use crate::rules::evidence::{bridged, of_time, when};
use crate::rules::parameters::{Parameter, Range};
use crate::rules::statistics::Sorted;
use crate::rules::steps::{has_waits, steps};
use crate::rules::{Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "LoaderBound",
    detects: "a trainer that waits for data",
    parameters: &[
        Parameter {
            name: "threshold",
            meaning: "share of the steps that waited, percent; fires above",
            range: Range::Percent,
            defaults: [25.0; 3],
        },
        Parameter {
            name: "wait_threshold",
            meaning: "wait, percent of wait and step together; waited above",
            range: Range::Percent,
            defaults: [20.0; 3],
        },
        Parameter {
            name: "total_threshold",
            meaning: "waiting of all steps, percent of their waits and computing; fires above",
            range: Range::Percent,
            defaults: [20.0; 3],
        },
        Parameter {
            name: "patience",
            meaning: "training steps; judged with more",
            range: Range::Count(0),
            defaults: [10.0; 3],
        },
    ],
    judge,
};

fn judge(case: &Case) -> Finding {
    let mut finding = Finding {
        judged: false,
        ..case.finding()
    };
    let (mut sentences, mut most) = (Vec::new(), 0.0f64);
    for node in case.nodes().iter().filter(|node| has_waits(node)) {
        let (mut count, mut late, mut waited, mut computed) = (0u64, Vec::new(), 0.0, 0.0);
        let (mut first, mut last) = (f64::INFINITY, f64::NEG_INFINITY);
        for step in steps(node) {
            count += 1;
            waited += step.waited;
            computed += step.lasted();
            (first, last) = (first.min(step.from), last.max(step.until()));
            if step.share() > case.number("wait_threshold") {
                late.push((step.from, step.until()));
            }
        }
        if count == 0 {
            continue;
        }
        let share = 100.0 * late.len() as f64 / count as f64;
        let total = if waited > 0.0 {
            100.0 * waited / (waited + computed)
        } else {
            0.0
        };
        most = most.max(total);
        let fires = share > case.number("threshold") || total > case.number("total_threshold");
        finding.triggered |= fires && count > case.count("patience");
        finding.violations += late.len() as u64;
        finding.datapoints += count;
        let waits = Sorted::of(steps(node).map(|step| step.waited));
        finding.details[&node.name] = json!({
            "steps": count,
            "steps_waited": late.len(),
            "steps_waited_share": share,
            "wait_share": total,
            "wait_seconds": waited,
            "step_seconds": computed,
            "wait": {"p50": waits.p(50.0), "p95": waits.p(95.0), "p99": waits.p(99.0), "max": waits.p(100.0)},
        });
        let waited_steps = late.len();
        let times = bridged(late, last - first);
        let here: Vec<_> = times
            .into_iter()
            .map(|(from, to)| of_time(node, from, to, "trainer".to_owned()))
            .collect();
        let begin = node.ticks.first().copied().unwrap_or(first).min(first);
        let mut sentence = format!(
            "On {}, {waited_steps} of {count} steps ({share:.0} %) waited for data; the trainer waited {waited:.1} s of \
             {:.1} s ({total:.0} %)",
            node.name,
            waited + computed,
        );
        if !here.is_empty() {
            sentence += &format!(", mostly {}", when(&here, begin));
        }
        let judged = count > case.count("patience");
        finding.judged |= judged;
        if !judged {
            sentence += &format!("; not judged before more than {} steps", case.number("patience"));
        }
        sentences.push(sentence + ".");
        finding.evidence.extend(here);
    }
    if sentences.is_empty() {
        return case.missing("no training steps with the waits for their batches were recorded");
    }
    finding.summary = sentences.join(" ");
    if finding.triggered {
        finding.recommendation = match most > case.number("total_threshold") {
            true => "Make batches come faster: more workers while cores idle, a cheaper pipeline where they are full, shards where \
                     storage is slow. The other rules and the advice say which."
                .to_owned(),
            false => format!(
                "Many steps wait, but not for long: a loader that never held them up would gain at most {most:.0} % of their time."
            ),
        };
    }
    finding
}
