//! Rules: what a recording says about the run, each with its evidence.

use serde_json::Value;

/// What one rule found.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The rule's name, such as `CPUBottleneck`.
    pub rule: &'static str,
    /// Whether it fired.
    pub triggered: bool,
    /// How often its condition held.
    pub violations: u64,
    /// How many values it looked at.
    pub datapoints: u64,
    /// Its parameters with the values used, in the order of the published report.
    pub parameters: Vec<(&'static str, String)>,
    /// The numbers, in the shape of the published JSON where there is one.
    pub details: Value,
    /// What was found, in a sentence with numbers.
    pub summary: String,
    /// What helps, in a sentence; empty where it did not fire.
    pub recommendation: String,
    /// When and where.
    pub evidence: Vec<Evidence>,
}

/// Where a finding can be seen.
#[derive(Debug, Clone, PartialEq)]
pub struct Evidence {
    /// Start, unix seconds.
    pub from: f64,
    /// End, unix seconds.
    pub to: f64,
    /// The machine.
    pub node: String,
    /// The cores, GPUs or processes: `cpu3`, `gpu0, gpu1`.
    pub what: String,
    /// First and last training step in that time, where steps are known.
    pub steps: Option<(u64, u64)>,
}
