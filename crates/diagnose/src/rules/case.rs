//! What a rule is given, and the parts of findings that all rules make alike.

use serde_json::json;
use stokehold_profile::{Node, Recording};

use crate::rules::{Finding, Parameters, Rule};

/// What a finding says about cores of a machine whose recording does not tell whose time they spent.
pub(super) const WHOLE_MACHINE: &str = " Whose programs' time it was is not recorded: these are the figures of the \
                                        whole machine, with all that ran there.";

/// [`WHOLE_MACHINE`] where that is so.
pub(super) fn whose(node: &Node) -> &'static str {
    match node.core_use() {
        Some(_) => "",
        None => WHOLE_MACHINE,
    }
}

/// A recording before a rule.
pub(super) struct Case<'a> {
    pub rule: &'static Rule,
    pub recording: &'a Recording,
    pub parameters: &'a Parameters,
    /// What the rules before this one in the table found.
    pub before: &'a [Finding],
}

impl<'a> Case<'a> {
    pub fn nodes(&self) -> &'a [Node] {
        &self.recording.nodes
    }

    /// The value of one of the rule's numbers.
    pub fn number(&self, name: &str) -> f64 {
        self.parameters.number(self.rule.name, name)
    }

    /// The value of one of the rule's counts.
    pub fn count(&self, name: &str) -> u64 {
        self.number(name) as u64
    }

    /// A finding that did not fire and has nothing in it yet.
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
