//! OverallFrameworkMetrics: what the training loop spent its time on. It never fires.
//!
//! `phase` has the share of each mode's steps, and as `others` the time between the first and the last step
//! outside of steps, in percent of both together; `phase_time` has the same in seconds. `general` has the
//! share of every other name of a span, largest first, up to 100 of them, in percent of their sum, and
//! `general_time` their seconds. Seconds of all machines, and of workers that work at the same time, are
//! added up.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use stokehold_profile::span;
use stokehold_profile::totals;

use crate::rules::case::Case;
use crate::rules::{Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "OverallFrameworkMetrics",
    detects: "nothing: it reports the time of every phase of training",
    parameters: &[],
    judge,
};

const LISTED: usize = 100;

fn judge(case: &Case) -> Finding {
    let mut finding = case.finding();
    let mut phases: BTreeMap<&str, f64> = BTreeMap::new();
    let mut general: BTreeMap<&str, f64> = BTreeMap::new();
    for node in case.nodes() {
        for (name, (count, seconds)) in totals(node) {
            finding.datapoints += count;
            let group = if name.starts_with(span::STEP_PREFIX) {
                &mut phases
            } else {
                &mut general
            };
            *group.entry(name).or_default() += seconds;
        }
        let steps = node.steps().map(|(_, step)| (step.start, step.end()));
        // Steps of several trainers overlap: the time in which any of them computed does not count as other
        // time.
        let (mut others, mut until) = (0.0, None);
        for (start, end) in steps {
            let known: &mut f64 = until.get_or_insert(start);
            others += (start - *known).max(0.0);
            *known = known.max(end);
        }
        if until.is_some() {
            *phases.entry("others").or_default() += others;
        }
    }
    if finding.datapoints == 0 {
        return case.missing("no spans were recorded");
    }
    let phase_seconds: f64 = phases.values().sum();
    let mut parts: Vec<String> = Vec::new();
    for (name, seconds) in &phases {
        let name = name.trim_start_matches(span::STEP_PREFIX);
        parts.push(format!("{name} {:.1} %", percent(*seconds, phase_seconds)));
    }
    let mut largest: Vec<(&str, f64)> = general.into_iter().collect();
    largest.sort_by(|a, b| b.1.total_cmp(&a.1));
    largest.truncate(LISTED);
    let general_seconds: f64 = largest.iter().map(|(_, seconds)| seconds).sum();
    let shares = |all: &[(&str, f64)], sum: f64| -> Map<String, Value> {
        let share = |(name, seconds): &(&str, f64)| ((*name).to_owned(), json!(percent(*seconds, sum)));
        all.iter().map(share).collect()
    };
    let times = |all: &[(&str, f64)]| -> Map<String, Value> {
        all.iter()
            .map(|(name, seconds)| ((*name).to_owned(), json!(seconds)))
            .collect()
    };
    let phases: Vec<(&str, f64)> = phases.into_iter().collect();
    finding.details = json!({
        "phase": shares(&phases, phase_seconds),
        "phase_time": times(&phases),
        "general": shares(&largest, general_seconds),
        "general_time": times(&largest),
    });
    finding.summary = match parts.is_empty() {
        true => "No steps were recorded, only other spans.".to_owned(),
        false => format!(
            "Of the time from the first to the last step: {}.",
            parts.join(", ")
        ),
    };
    finding
}

fn percent(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { 100.0 * part / whole } else { 0.0 }
}
