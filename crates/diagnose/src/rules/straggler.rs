//! Straggler: a rank that the others wait for.
//!
//! Ranks make each step together, so all wait for the slowest. The rank that waits least is the one that the others wait
//! for. The rule fires if they wait, on average, for more than `threshold` percent of the steps' time longer than it does.
//! The cause is the part of its time that exceeds the others' most: its loader, its computing, or its logs and checkpoints;
//! and, if other programs keep more cores of its machine busy, these.
//!
//! The times are those that the ranks counted themselves, over all steps since the run's last start or resume, so the evidence is
//! the whole of that time. `Imbalance` compares machines instead, and times within a run.

use serde_json::json;
use stokehold_profile::ranks::STRAGGLES;
use stokehold_profile::span;

use crate::rules::case::Case;
use crate::rules::evidence::of_time;
use crate::rules::parameters::{Parameter, Range};
use crate::rules::{Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "Straggler",
    detects: "a rank that the others wait for",
    parameters: &[
        Parameter {
            name: "threshold",
            meaning: "what the other ranks wait longer than the slowest, percent of the steps' time; fires above",
            range: Range::Percent,
            defaults: [100.0 * STRAGGLES; 3],
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
    let about = case.recording.about.as_ref();
    let ranks = about.and_then(|about| about.workload.as_ref()?.ranks.as_ref());
    let Some((ranks, slowest)) = ranks.and_then(|ranks| Some((ranks, ranks.slowest()?))) else {
        return case.missing("no steps of several ranks were recorded, or the run has not ended");
    };
    let mut finding = case.finding();
    finding.datapoints = ranks.steps();
    for (rank, times) in ranks.times.iter().enumerate() {
        finding.details[format!("rank {rank}")] = json!(times);
    }
    let percent = 100.0 * slowest.share;
    finding.details["slowest"] = json!({"rank": slowest.rank, "share": percent, "cause": slowest.cause});
    let beyond = percent > case.number("threshold");
    finding.judged = ranks.steps() > case.count("patience");
    finding.triggered = beyond && finding.judged;
    finding.violations = u64::from(beyond);
    let shares = ranks.shares().map(|share| 100.0 * share);
    let [loading, computing, waiting, reducing, between] = shares;
    finding.summary = match beyond {
        true => {
            let (rank, host) = (slowest.rank, &slowest.host);
            format!(
                "The others wait {percent:.0} % of the time for rank {rank} on {host}: {}.",
                slowest.cause
            )
        }
        false => format!(
            "{} ranks are equally fast to {percent:.1} % of the time.",
            ranks.times.len()
        ),
    };
    finding.summary += &format!(
        " A step of all: loading {loading:.1} %, computing {computing:.1} %, waiting for the slowest {waiting:.1} %, reducing \
         {reducing:.1} %, between steps {between:.1} %."
    );
    if !finding.judged {
        finding.summary += &format!(" Not judged before more than {} steps.", case.count("patience"));
    }
    if finding.triggered {
        finding.recommendation =
            "Look at the machine of the rank that is named, and at what is named there; where it \
                                  cannot be made faster, train without it."
                .to_owned();
        // Rank 0 records for all.
        let nodes = case.nodes().iter().filter_map(|node| {
            let mut waits = node.spans_of(span::RANKS_WAIT);
            let first = waits.next()?;
            let end = waits.map(|wait| wait.end()).fold(first.end(), f64::max);
            Some(of_time(node, first.start, end, format!("rank {}", slowest.rank)))
        });
        finding.evidence = nodes.take(1).collect();
    }
    finding
}
