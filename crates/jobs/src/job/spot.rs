//! Machines that may be taken away: real and simulated interruptions, and what spot prices save.
//!
//! ```text
//!  simulated  SIGTERM, grace, SIGKILL ──► checkpoints kept ──► Interrupted ──► a fresh folder ──► Starting, Downloading, Training
//!  real       SIGTERM, grace, SIGKILL ──► checkpoints kept ──► Interrupted: the job ends here, and is resumed elsewhere
//! ```
//!
//! A real interruption is announced by the instance's metadata service (EC2: two minutes before), or by a
//! caller of [`Store::interrupt`](crate::Store::interrupt); the command line calls it on SIGTERM. The job is
//! then `Stopped`, `Interrupted`. `--resume` continues it from the checkpoints at their place; so does a new
//! job with the same place on another machine.
//!
//! A simulated interruption is as hard as a real one: the whole folder of every instance is removed, with its
//! checkpoints and data. Files that were not mirrored to the job's place for checkpoints are lost.
//!
//! # What it costs
//! Training seconds are those with machines: Downloading, Training (with a script's time to end), Stopping
//! and Uploading, of all starts. Billable seconds are training seconds at the spot price, converted to
//! seconds at the full price: `training * spot-price / price`. Savings are `1 - billable / training`, as
//! SageMaker reports them for managed spot training. Repeated work is in both, so the savings compare the
//! same seconds at the two prices.

use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::store::{Record, Secondary, Transition};

/// Settings for machines that may be taken away: the section `[spot]` of a job file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Spot {
    /// When to simulate interruptions, in the script's running time: `every 90s`, `after 30s` or
    /// `at 10s,60s`. Default: never; the job waits for real notices.
    #[schemars(with = "Option<String>")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulate: Option<Simulation>,
    /// Seconds between SIGTERM and SIGKILL when the script is interrupted.
    #[serde(default = "two_minutes")]
    pub grace_seconds: u64,
    /// Seconds without a machine after a simulated interruption.
    #[serde(default)]
    pub pause_seconds: u64,
    /// The job is stopped if it is not done this many seconds after its start, pauses included; at least
    /// `max-run-seconds`. Default: no such limit.
    #[schemars(range(min = 1))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_wait_seconds: Option<u64>,
    /// The full price of an instance per hour, in any currency; with `spot-price`. Default: the bill has
    /// seconds only.
    #[schemars(extend("exclusiveMinimum" = 0))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<f64>,
    /// The price of an instance per hour on a spot machine; with `price`. Default: the bill has seconds only.
    #[schemars(extend("exclusiveMinimum" = 0))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spot_price: Option<f64>,
}

fn two_minutes() -> u64 {
    120
}

impl Default for Spot {
    fn default() -> Self {
        Self {
            simulate: None,
            grace_seconds: two_minutes(),
            pause_seconds: 0,
            max_wait_seconds: None,
            price: None,
            spot_price: None,
        }
    }
}

impl Spot {
    /// What is wrong with it, for a job that may run `max_run_seconds`.
    pub(crate) fn wrong(&self, max_run_seconds: u64) -> Option<String> {
        if let Some(wait) = self.max_wait_seconds.filter(|wait| *wait < max_run_seconds) {
            return Some(format!(
                "max-wait-seconds ({wait}) must be at least max-run-seconds ({max_run_seconds}): it includes the run and its interruptions"
            ));
        }
        let fine = |price: f64| price.is_finite() && price > 0.0;
        match (self.price, self.spot_price) {
            (None, None) => None,
            (Some(price), Some(spot)) if fine(price) && fine(spot) => None,
            (Some(_), Some(_)) => Some("price and spot-price are numbers above 0".to_owned()),
            _ => Some("price and spot-price are given together".to_owned()),
        }
    }
}

/// When to simulate interruptions, in seconds of the script's running time over all starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Simulation {
    /// `every 90s`
    Every(Duration),
    /// `at 10s,60s` or `after 30s`; ascending.
    At(Vec<Duration>),
}

impl Simulation {
    /// Reads `every 90s`, `after 30s` or `at 10s,1m,90s`.
    ///
    /// # Errors
    /// The text is anything else; the message has an example.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?}: write \"every 90s\", \"after 30s\" or \"at 10s,60s\"");
        let (word, times) = text.trim().split_once(' ').ok_or_else(wrong)?;
        let mut times = times
            .split(',')
            .map(|time| {
                humantime::parse_duration(time.trim())
                    .ok()
                    .filter(|time| !time.is_zero())
            })
            .collect::<Option<Vec<_>>>()
            .ok_or_else(wrong)?;
        times.sort_unstable();
        match (word, times.as_slice()) {
            ("every", [time]) => Ok(Self::Every(*time)),
            ("after", [_]) | ("at", _) => Ok(Self::At(times)),
            _ => Err(wrong()),
        }
    }

    /// The first interruption after the given running time.
    pub(crate) fn after(&self, ran: Duration) -> Option<Duration> {
        match self {
            Self::Every(time) => {
                let times = (ran.as_secs_f64() / time.as_secs_f64()).floor() + 1.0;
                Duration::try_from_secs_f64(time.as_secs_f64() * times).ok()
            }
            Self::At(times) => times.iter().copied().find(|time| *time > ran),
        }
    }
}

impl fmt::Display for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |time: &Duration| humantime::format_duration(*time).to_string();
        match self {
            Self::Every(time) => write!(f, "every {}", text(time)),
            Self::At(times) => write!(f, "at {}", times.iter().map(text).collect::<Vec<_>>().join(",")),
        }
    }
}

impl Serialize for Simulation {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Simulation {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

/// The cost of a job on spot machines so far.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Bill {
    /// The number of interruptions.
    pub interruptions: u64,
    /// Seconds with machines.
    pub training_seconds: f64,
    /// Training seconds at the spot price, converted to seconds at the full price; without prices, the
    /// training seconds.
    pub billable_seconds: f64,
    /// Seconds from the first state to the last.
    pub wall_seconds: f64,
    /// `1 - billable / training`, 0 to 1, if prices are given.
    pub savings: Option<f64>,
    /// The cost of all instances at the spot price, if prices are given, in their currency.
    pub cost: Option<f64>,
    /// The cost of the same seconds at the full price, if prices are given.
    pub full_cost: Option<f64>,
}

impl Bill {
    pub(crate) fn of(spot: &Spot, instances: usize, record: &Record) -> Self {
        let transitions = &record.transitions;
        let with_machines = |status: Secondary| {
            use Secondary::{Downloading, Stopping, Training, Uploading};
            matches!(status, Downloading | Training | Stopping | Uploading)
        };
        let spans = transitions
            .windows(2)
            .map(|pair| (pair[0].status, pair[1].start - pair[0].start));
        let training: f64 = spans
            .filter(|(status, _)| with_machines(*status))
            .map(|(_, seconds)| seconds.max(0.0))
            .sum();
        let end = |transition: Option<&Transition>| transition.map_or(0.0, |transition| transition.start);
        let prices = spot.price.zip(spot.spot_price);
        let share = prices.map(|(price, spot)| spot / price);
        let hours = training / 3600.0 * instances as f64;
        Self {
            interruptions: transitions
                .iter()
                .filter(|transition| transition.status == Secondary::Interrupted)
                .count() as u64,
            training_seconds: training,
            billable_seconds: training * share.unwrap_or(1.0),
            wall_seconds: end(transitions.last()) - end(transitions.first()),
            savings: share.map(|share| 1.0 - share),
            cost: prices.map(|(_, spot)| hours * spot),
            full_cost: prices.map(|(price, _)| hours * price),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_when_to_interrupt() {
        let seconds = Duration::from_secs;
        for (text, simulation) in [
            ("every 90s", Simulation::Every(seconds(90))),
            ("every 1m 30s", Simulation::Every(seconds(90))),
            ("after 30s", Simulation::At(vec![seconds(30)])),
            ("at 60s,10s", Simulation::At(vec![seconds(10), seconds(60)])),
            ("at 500ms", Simulation::At(vec![Duration::from_millis(500)])),
        ] {
            assert_eq!(Simulation::parse(text).unwrap(), simulation);
            assert_eq!(Simulation::parse(&simulation.to_string()).unwrap(), simulation);
        }
        for text in [
            "",
            "90s",
            "every",
            "every 0s",
            "every 90",
            "every 1s,2s",
            "after 1s,2s",
            "at 10s,,20s",
            "often 3s",
        ] {
            assert!(
                Simulation::parse(text).unwrap_err().contains("every 90s"),
                "{text}"
            );
        }
    }

    #[test]
    fn an_interruption_that_was_is_over() {
        let seconds = Duration::from_secs;
        let every = Simulation::Every(seconds(90));
        assert_eq!(every.after(seconds(0)), Some(seconds(90)));
        assert_eq!(every.after(seconds(90)), Some(seconds(180)));
        assert_eq!(every.after(seconds(200)), Some(seconds(270)));
        let at = Simulation::At(vec![seconds(10), seconds(60)]);
        assert_eq!(at.after(seconds(0)), Some(seconds(10)));
        assert_eq!(at.after(seconds(10)), Some(seconds(60)));
        assert_eq!(at.after(seconds(60)), None);
    }

    #[test]
    fn the_bill_counts_what_had_machines() {
        let mut record = Record::new("job");
        use Secondary::{Completed, Downloading, Interrupted, Starting, Training, Uploading};
        let states = [
            (Starting, 0.0),
            (Downloading, 1.0),
            (Training, 11.0),
            (Interrupted, 101.0),
            (Starting, 401.0),
            (Downloading, 402.0),
            (Training, 412.0),
            (Uploading, 492.0),
            (Completed, 502.0),
        ];
        record.transitions = states
            .iter()
            .map(|(status, start)| Transition {
                status: *status,
                start: 1e9 + start,
            })
            .collect();
        let mut spot = Spot::default();
        let bill = Bill::of(&spot, 2, &record);
        assert_eq!(
            (bill.interruptions, bill.training_seconds, bill.wall_seconds),
            (1, 200.0, 502.0)
        );
        assert_eq!(
            (bill.billable_seconds, bill.savings, bill.cost),
            (200.0, None, None)
        );
        (spot.price, spot.spot_price) = (Some(36.0), Some(9.0));
        let bill = Bill::of(&spot, 2, &record);
        assert_eq!((bill.billable_seconds, bill.savings), (50.0, Some(0.75)));
        assert_eq!((bill.cost, bill.full_cost), (Some(1.0), Some(4.0)));
    }
}
