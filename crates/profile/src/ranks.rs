//! Where the time of steps went that ranks made together, and which rank the others waited for.
//!
//! A trainer counts it, its record keeps it, and the rule `Straggler` judges it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The time of one rank in its epochs since the last start or resume, seconds. The five parts make it up, but for validation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RankTimes {
    /// The name of its machine.
    pub host: String,
    /// Steps.
    pub steps: u64,
    /// It waited for its loader.
    pub loading: f64,
    /// It computed losses and gradients.
    pub computing: f64,
    /// It waited for the slowest rank.
    pub waiting: f64,
    /// Gradients were summed and weights updated.
    pub reducing: f64,
    /// Between two steps: logs, and the checkpoints that rank 0 writes.
    pub between: f64,
    /// The number of its machine's cores that other programs kept busy, on average; `None` if the platform does not
    /// provide it.
    pub others_cores: Option<f64>,
}

impl RankTimes {
    /// Adds a step, by the times of its parts in the order of the fields.
    pub fn add(&mut self, [loading, computing, waiting, reducing, between]: [Duration; 5]) {
        self.steps += 1;
        self.loading += loading.as_secs_f64();
        self.computing += computing.as_secs_f64();
        self.waiting += waiting.as_secs_f64();
        self.reducing += reducing.as_secs_f64();
        self.between += between.as_secs_f64();
    }

    fn total(&self) -> f64 {
        self.loading + self.computing + self.waiting + self.reducing + self.between
    }
}

/// The ranks of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RanksSummary {
    /// Pieces of each rank's share of a batch.
    pub accumulate: usize,
    /// By rank.
    pub times: Vec<RankTimes>,
}

/// A rank that the others wait for.
#[derive(Debug, Clone, PartialEq)]
pub struct Straggler {
    /// The rank.
    pub rank: usize,
    /// The name of its machine.
    pub host: String,
    /// The share of the steps' time that the others, on average, spend waiting for it, 0 to 1.
    pub share: f64,
    /// Why, in words.
    pub cause: String,
}

/// Below this share of the steps' time no one is a straggler.
pub const STRAGGLES: f64 = 0.05;
/// This many more cores used by other programs than next to the other ranks are a cause.
const BUSIER: f64 = 0.3;

impl RanksSummary {
    /// The means over the ranks of the parts of their time, as shares of the whole: loading, computing, waiting for the
    /// slowest, reducing, between steps. Zeros without a step.
    pub fn shares(&self) -> [f64; 5] {
        let total: f64 = self.times.iter().map(RankTimes::total).sum();
        let part = |of: fn(&RankTimes) -> f64| match total > 0.0 {
            true => self.times.iter().map(of).sum::<f64>() / total,
            false => 0.0,
        };
        [
            part(|times| times.loading),
            part(|times| times.computing),
            part(|times| times.waiting),
            part(|times| times.reducing),
            part(|times| times.between),
        ]
    }

    /// What the ranks' sums of gradients take, if that is a tenth of the time or more: a sentence without its end.
    pub fn sums(&self) -> Option<String> {
        let [.., reducing, _] = self.shares();
        let limits = self.times.len() > 1 && reducing >= 0.1;
        limits.then(|| {
            format!(
                "summing the gradients of {} ranks takes {:.0} % of the time",
                self.times.len(),
                100.0 * reducing
            )
        })
    }

    /// Steps of every rank.
    pub fn steps(&self) -> u64 {
        self.times.iter().map(|times| times.steps).min().unwrap_or(0)
    }

    /// The rank that the others wait for, if that takes more than [`STRAGGLES`] of the steps' time.
    pub fn straggler(&self) -> Option<Straggler> {
        self.slowest().filter(|slowest| slowest.share > STRAGGLES)
    }

    /// The rank that the others wait for the longest, however short that is; `None` for less than two ranks, or without a step.
    pub fn slowest(&self) -> Option<Straggler> {
        if self.times.len() < 2 {
            return None;
        }
        let total = self.times.iter().map(RankTimes::total).sum::<f64>() / self.times.len() as f64;
        let (rank, slowest) = self
            .times
            .iter()
            .enumerate()
            .min_by(|one, other| one.1.waiting.total_cmp(&other.1.waiting))?;
        let others = || {
            self.times
                .iter()
                .enumerate()
                .filter(move |(other, _)| *other != rank)
                .map(|(_, times)| times)
        };
        let mean =
            |of: &dyn Fn(&RankTimes) -> f64| others().map(of).sum::<f64>() / others().count().max(1) as f64;
        let share = (mean(&|times| times.waiting) - slowest.waiting) / total;
        if share.is_nan() {
            return None;
        }
        let longer = |of: fn(&RankTimes) -> f64| of(slowest) - mean(&|times| of(times));
        let parts = [
            (
                longer(|times| times.loading),
                "its loader takes",
                "look at its storage and its cores",
            ),
            (
                longer(|times| times.computing),
                "it computes",
                "look at its device, its cores and its clock",
            ),
            (
                longer(|times| times.between),
                "between steps it writes checkpoints and logs for",
                "write fewer checkpoints, or to faster storage",
            ),
        ];
        let (seconds, what, advice) = parts.into_iter().max_by(|one, other| one.0.total_cmp(&other.0))?;
        let per_step = 1e3 * seconds / slowest.steps.max(1) as f64;
        let mut cause = match seconds > 0.0 {
            true => format!("{what} {per_step:.1} ms longer a step: {advice}"),
            false => "no part of its steps that is measured takes longer".to_owned(),
        };
        let busier = slowest.others_cores.unwrap_or(0.0) - mean(&|times| times.others_cores.unwrap_or(0.0));
        if busier > BUSIER {
            cause = format!(
                "other programs keep {:.1} cores of its machine busy; {cause}",
                slowest.others_cores.unwrap_or(0.0)
            );
        }
        Some(Straggler {
            rank,
            host: slowest.host.clone(),
            share,
            cause,
        })
    }
}

impl fmt::Display for Straggler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rank,
            host,
            share,
            cause,
        } = self;
        write!(
            f,
            "the others wait {:.0} % of the time for rank {rank} on {host}: {cause}",
            100.0 * share
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(loading: f64, computing: f64, waiting: f64) -> RankTimes {
        RankTimes {
            host: "node".into(),
            steps: 100,
            loading,
            computing,
            waiting,
            reducing: 1.0,
            between: 0.0,
            others_cores: Some(0.0),
        }
    }

    fn of(times: Vec<RankTimes>) -> RanksSummary {
        RanksSummary { accumulate: 1, times }
    }

    #[test]
    fn a_straggler_has_a_rank_and_a_cause() {
        let even = of(vec![times(1.0, 8.0, 0.2), times(1.0, 8.1, 0.1)]);
        assert_eq!(even.straggler(), None);
        assert!((even.shares().iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let slow = of(vec![
            times(0.1, 8.0, 3.0),
            times(3.1, 8.0, 0.0),
            times(0.1, 8.0, 3.0),
        ]);
        let straggler = slow.straggler().unwrap();
        assert_eq!(straggler.rank, 1);
        assert!((straggler.share - 3.0 / 12.1).abs() < 0.01, "{straggler}");
        assert!(
            straggler.cause.contains("its loader takes 30.0 ms longer"),
            "{straggler}"
        );
        let mut busy = of(vec![times(0.1, 8.0, 2.0), times(0.1, 10.0, 0.0)]);
        busy.times[1].others_cores = Some(0.9);
        let straggler = busy.straggler().unwrap().to_string();
        assert!(
            straggler.contains("rank 1 on node: other programs keep 0.9 cores"),
            "{straggler}"
        );
        assert!(straggler.contains("it computes 20.0 ms longer"), "{straggler}");
        assert_eq!(of(Vec::new()).slowest(), None);
        assert_eq!(of(vec![times(1.0, 8.0, 0.0)]).slowest(), None);
    }
}
