//! Helpers for rules on the share of the time in which a sampled value was beyond a limit.

use stokehold_profile::{Node, Series};

use crate::rules::case::Case;
use crate::rules::evidence::{list, of_run, runs, which};
use crate::rules::snapshot::Snapshots;
use crate::rules::{Evidence, Finding};

/// The samples of one machine in which some of its series were beyond a limit.
pub(super) struct Share<'a> {
    pub node: &'a Node,
    pub snapshots: Snapshots,
    beyond: Vec<bool>,
    /// The number of those snapshots.
    pub count: usize,
}

impl<'a> Share<'a> {
    /// Counts them; `None` if the machine has no such series or no samples.
    pub fn of(
        node: &'a Node,
        belongs: impl Fn(&Series) -> bool,
        is_beyond: impl Fn(f32) -> bool,
    ) -> Option<Self> {
        let mut series = node.series.iter().filter(|series| belongs(series)).peekable();
        series.peek().filter(|_| !node.ticks.is_empty())?;
        let snapshots = Snapshots::of(node);
        let mut beyond = vec![false; snapshots.len()];
        for series in series {
            snapshots.each(series, |at, value| beyond[at] |= is_beyond(value));
        }
        let count = beyond.iter().filter(|beyond| **beyond).count();
        Some(Self {
            node,
            snapshots,
            beyond,
            count,
        })
    }

    /// The share of the samples, percent.
    pub fn percent(&self) -> f64 {
        100.0 * self.count as f64 / self.snapshots.len().max(1) as f64
    }

    /// The times, and the series.
    pub fn evidence(
        &self,
        belongs: impl Fn(&Series) -> bool,
        is_beyond: impl Fn(f32) -> bool,
    ) -> Vec<Evidence> {
        let series = || self.node.series.iter().filter(|series| belongs(series));
        let one = |run: &std::ops::Range<usize>| {
            let held = run.clone().filter(|at| self.beyond[*at]).count();
            let names = which(&self.snapshots, run, held, series(), &is_beyond);
            of_run(self.node, &self.snapshots, run, list(&names))
        };
        runs(&self.snapshots, |at| self.beyond[at])
            .iter()
            .map(one)
            .collect()
    }

    /// Adds the counts to a finding. Returns whether there are more samples than its `patience`, and a share
    /// of them above its `threshold` is beyond the limit.
    pub fn add_to(&self, finding: &mut Finding, case: &Case) -> bool {
        finding.violations += self.count as u64;
        finding.datapoints += self.snapshots.len() as u64;
        self.snapshots.len() as u64 > case.count("patience") && self.percent() > case.number("threshold")
    }
}
