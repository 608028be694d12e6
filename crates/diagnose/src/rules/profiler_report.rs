//! ProfilerReport: all other rules together. It fires if one of them does.
//!
//! Its details say for every rule whether it fired; violations are the rules that did, datapoints the rules.

use serde_json::{Map, Value};

use crate::rules::case::Case;
use crate::rules::{Finding, Rule};

pub(super) const RULE: Rule = Rule {
    name: "ProfilerReport",
    detects: "whether any of the other rules fired",
    parameters: &[],
    judge,
};

fn judge(case: &Case) -> Finding {
    let fired: Vec<&str> = case
        .before
        .iter()
        .filter(|one| one.triggered)
        .map(|one| one.rule)
        .collect();
    let each = case
        .before
        .iter()
        .map(|one| (one.rule.to_owned(), Value::from(one.triggered)));
    Finding {
        triggered: !fired.is_empty(),
        violations: fired.len() as u64,
        datapoints: case.before.len() as u64,
        details: Value::Object(each.collect::<Map<_, _>>()),
        summary: match fired.is_empty() {
            true => format!("None of {} rules fired.", case.before.len()),
            false => format!(
                "{} of {} rules fired: {}.",
                fired.len(),
                case.before.len(),
                fired.join(", ")
            ),
        },
        ..case.finding()
    }
}
