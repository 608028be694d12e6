//! What is recorded next to a job, and which rules are judged while it runs.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stokehold_diagnose::live::{Live, OnFire};
use stokehold_profile::check_interval;

/// The section `[profiler]` of a job file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Profiling {
    /// Time between two samples of the machine, `100ms` to `60s`.
    #[serde(default = "half_a_second")]
    pub interval: String,
    /// Rules that are judged while the job runs: their names, `training`, `system` or `all`. The report at the end has those of
    /// recordings in any case.
    #[serde(default)]
    pub rules: Vec<String>,
    /// What happens when one fires: `"log"`, `"stop"`, or a command as a list of words. Each fires once.
    #[serde(default)]
    #[schemars(with = "WordOrWords")]
    pub on_fire: OnFire,
    /// Seconds without a step and without a number after which training counts as stalled.
    #[serde(default = "half_an_hour")]
    #[schemars(range(min = 1))]
    pub stalled_seconds: u64,
}

#[derive(JsonSchema)]
#[serde(untagged)]
#[allow(dead_code)]
enum WordOrWords {
    Word(String),
    Words(Vec<String>),
}

fn half_a_second() -> String {
    "500ms".to_owned()
}

fn half_an_hour() -> u64 {
    1800
}

impl Default for Profiling {
    fn default() -> Self {
        Self {
            interval: half_a_second(),
            rules: Vec::new(),
            on_fire: OnFire::default(),
            stalled_seconds: half_an_hour(),
        }
    }
}

impl Profiling {
    /// The rules; `None` without any.
    ///
    /// # Errors
    /// A name that is no rule's.
    pub fn live(&self) -> Result<Option<Live>, String> {
        if self.rules.is_empty() {
            return Ok(None);
        }
        let live = Live::new(&self.rules).map_err(|error| error.to_string())?;
        Ok(Some(
            live.stalled_after(Duration::from_secs(self.stalled_seconds)),
        ))
    }

    /// The time between two samples.
    ///
    /// # Errors
    /// It is no time, or out of range.
    pub fn interval(&self) -> Result<Duration, String> {
        let interval = humantime::parse_duration(&self.interval)
            .map_err(|error| format!("'{}': {error}; write it as 500ms", self.interval))?;
        check_interval(interval).map_err(|error| error.to_string())?;
        Ok(interval)
    }

    /// The first thing that is wrong.
    pub(crate) fn wrong(&self, profile: bool) -> Option<String> {
        if let Err(error) = self.interval() {
            return Some(format!("[profiler] interval: {error}"));
        }
        if self.stalled_seconds == 0 {
            return Some("[profiler] stalled-seconds: must be at least 1".to_owned());
        }
        match self.live() {
            Err(error) => Some(format!("[profiler] rules: {error}")),
            Ok(Some(live)) if live.wants_recordings() && !profile => {
                Some("[profiler] rules: those of recordings need profile = true".to_owned())
            }
            Ok(_) => None,
        }
    }
}
