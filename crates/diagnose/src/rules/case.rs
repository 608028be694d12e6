//! The input of a rule, and helpers for findings.

use serde_json::json;
use stokehold_profile::{Node, Recording};

use crate::rules::{Finding, Parameters, Rule};

/// The note in a finding about the cores of a machine whose recording does not tell programs apart.
pub(super) const WHOLE_MACHINE: &str = " The recording does not tell programs apart: these are the figures of the \
                                        whole machine, with all that ran there.";

/// [`WHOLE_MACHINE`] for such a machine, else nothing.
pub(super) fn whose(node: &Node) -> &'static str {
    match node.core_use() {
        Some(_) => "",
        None => WHOLE_MACHINE,
    }
}

/// A recording and a rule to evaluate.
pub(super) struct Case<'a> {
    pub rule: &'static Rule,
    pub recording: &'a Recording,
    pub parameters: &'a Parameters,
    /// The findings of the rules before this one in the table.
    pub before: &'a [Finding],
}

impl<'a> Case<'a> {
    pub fn nodes(&self) -> &'a [Node] {
        &self.recording.nodes
    }

    /// The value of a parameter that is a number.
    pub fn number(&self, name: &str) -> f64 {
        self.parameters.number(self.rule.name, name)
    }

    /// The value of a parameter that is a count.
    pub fn count(&self, name: &str) -> u64 {
        self.number(name) as u64
    }

    /// An empty finding that did not fire.
    pub fn finding(&self) -> Finding {
        Finding {
            rule: self.rule.name,
            triggered: false,
            judged: true,
            violations: 0,
            datapoints: 0,
            parameters: self.parameters.of(self.rule),
            details: json!({}),
            summary: String::new(),
            recommendation: String::new(),
            evidence: Vec::new(),
        }
    }

    /// The finding of a rule whose data was not recorded.
    pub fn missing(&self, what: &str) -> Finding {
        Finding {
            judged: false,
            summary: format!("Not judged: {what}."),
            ..self.finding()
        }
    }
}
