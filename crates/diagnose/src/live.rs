//! Rules that are judged while a run continues, and what is done when one fires.
//!
//! ```text
//!   metrics (loss, val_loss, gradient_norm, ..) ──┐
//!   steps ────────────────────────────────────────┼──► Live ──► Fired ──► log, stop, or a command
//!   the recording's last minutes ─────────────────┘
//! ```
//!
//! There are two kinds. Rules about training read the numbers that a run reports:
//!
//! | rule | fires when | SageMaker Debugger's |
//! |---|---|---|
//! | `NonFiniteLoss` | a loss is NaN or infinite | `ExplodingTensor` |
//! | `LossNotDecreasing` | two windows of fifty losses in a row have a mean no lower, by 0.1 %, than the lowest one before | the same name |
//! | `Overfit` | the last three validation losses are over 1.1 times their minimum, and the training loss has fallen since | the same name |
//! | `StalledTraining` | no step and no number came for a time, 1800 s if none is given | `StalledTrainingRule` |
//! | `VanishingGradient` | the norm of all gradients is below 1e-7 three times in a row | the same name, of each layer |
//! | `ExplodingGradient` | the norm is not finite, or a thousand times the median of its first twenty values | `ExplodingTensor` |
//! | `IdleGPU` | the GPUs were busy less than 10 % of the last ten minutes | none |
//!
//! A loss is a number that [`is_loss`](crate::curves::is_loss) says is one, and so are those of validation. A norm of gradients is one
//! whose name has `grad` and `norm` in it.
//!
//! All others are the [rules](crate::rules) of recordings, judged on the last minutes. Each rule fires once.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stokehold_base::clock::unix_now;
use stokehold_page::words::{digits, duration};
use stokehold_profile::{Recording, dimension};

use crate::curves;
use crate::rules::{Defaults, Parameters, Rule, judge};

/// The rules about training, with what each detects.
pub const TRAINING: [(&str, &str); 7] = [
    ("NonFiniteLoss", "a loss that is NaN or infinite"),
    ("LossNotDecreasing", "a training loss that falls no more"),
    (
        "Overfit",
        "a validation loss that rises while the training loss falls",
    ),
    ("StalledTraining", "a run that reports nothing any more"),
    ("VanishingGradient", "gradients that are nearly zero"),
    ("ExplodingGradient", "gradients that grow without bound"),
    (
        "IdleGPU",
        "GPUs that have had almost nothing to do for ten minutes",
    ),
];

/// Rules of a recording that only report.
const REPORTS: [&str; 3] = ["OverallSystemUsage", "OverallFrameworkMetrics", "ProfilerReport"];

/// Losses of a window.
const WINDOW: usize = 50;
/// Windows without a lower mean.
const WINDOWS: usize = 2;
/// By what share a mean has to be lower.
const LOWER: f64 = 1e-3;
/// Validation losses over the minimum.
const RISEN: usize = 3;
/// How far over it, as a share of its size.
const RISE: f64 = 0.1;
/// Norms that make the median.
const NORMS: usize = 20;
const VANISHED: f64 = 1e-7;
const VANISHED_TIMES: usize = 3;
const EXPLODED: f64 = 1e3;
/// The time of a recording that is judged, seconds.
const JUDGED_SECONDS: f64 = 600.0;
/// How often a run's recording is read for its rules.
const READ: Duration = Duration::from_secs(30);
/// GPUs below this, percent, are idle.
const IDLE: f64 = 10.0;
/// How long a command of [`OnFire`] may run.
const COMMAND: Duration = Duration::from_secs(60);
/// The most names of numbers that are looked at.
const NAMES: usize = 256;

/// There is no rule of a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no rule {0}; there are training, system, all, {names}", names = names().join(", "))]
pub struct UnknownRule(pub String);

/// Every rule that can be judged while a run continues.
pub fn names() -> Vec<&'static str> {
    let of_recordings = Rule::ALL.iter().map(|rule| rule.name);
    let of_recordings = of_recordings.filter(|name| !REPORTS.contains(name));
    TRAINING
        .iter()
        .map(|(name, _)| *name)
        .chain(of_recordings)
        .collect()
}

/// A rule that has fired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fired {
    /// Its name.
    pub rule: &'static str,
    /// The reason, with numbers.
    pub reason: String,
}

impl fmt::Display for Fired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}: {}", self.rule, self.reason)
    }
}

/// What happens when a rule fires: `"log"`, `"stop"`, or a command as a list of words.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Words", into = "Words")]
pub enum OnFire {
    /// It is said.
    #[default]
    Log,
    /// It is said, and the run is stopped.
    Stop,
    /// It is said, and a command is run, which finds the rule in `STOKEHOLD_RULE` and the reason in `STOKEHOLD_REASON`.
    Command(Vec<String>),
}

/// [`OnFire`] as it is written.
#[derive(Clone, Serialize, Deserialize)]
#[serde(untagged)]
enum Words {
    One(String),
    Several(Vec<String>),
}

impl TryFrom<Words> for OnFire {
    type Error = String;

    fn try_from(words: Words) -> Result<Self, String> {
        match words {
            Words::One(word) => word.parse(),
            Words::Several(words) if words.is_empty() => Err("on-fire: the command has no words".to_owned()),
            Words::Several(words) => Ok(Self::Command(words)),
        }
    }
}

impl From<OnFire> for Words {
    fn from(on_fire: OnFire) -> Self {
        match on_fire {
            OnFire::Log => Self::One("log".to_owned()),
            OnFire::Stop => Self::One("stop".to_owned()),
            OnFire::Command(words) => Self::Several(words),
        }
    }
}

impl std::str::FromStr for OnFire {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "log" => Ok(Self::Log),
            "stop" => Ok(Self::Stop),
            other => Err(format!(
                "'{other}' is neither log nor stop; a command is a list of words, as [\"notify-send\", \"a rule fired\"]"
            )),
        }
    }
}

/// Rules of a run that continues.
#[derive(Debug)]
pub struct Live {
    rules: BTreeSet<&'static str>,
    fired: BTreeSet<&'static str>,
    /// A rule that fired on a number, until it is asked for.
    waiting: Vec<Fired>,
    series: BTreeMap<String, Series>,
    stalled_after: f64,
    /// When something was last heard of the run, unix seconds; `None` before the first time: perhaps it reports nothing at all.
    heard: Option<f64>,
    /// The means of the training losses when a validation loss was lowest, by the names of both.
    trained: BTreeMap<String, Vec<(String, f64)>>,
    /// When the recording was read, or would have been.
    read: Instant,
}

/// What is kept of a number.
#[derive(Debug, Default)]
struct Series {
    /// As many as a window has.
    latest: VecDeque<f64>,
    /// The window that is being filled.
    window: Vec<f64>,
    /// The lowest mean of a window, and windows since.
    lowest: Option<f64>,
    since: usize,
    /// The lowest value.
    minimum: Option<f64>,
    /// The first values.
    first: Vec<f64>,
}

impl Live {
    /// The rules of these names, or of `training`, `system` and `all`.
    ///
    /// # Errors
    /// A name that is none.
    pub fn new<S: AsRef<str>>(wanted: &[S]) -> Result<Self, UnknownRule> {
        let all = names();
        let training = |name: &&&str| TRAINING.iter().any(|(own, _)| *own == **name);
        let mut rules = BTreeSet::new();
        for wanted in wanted {
            let wanted = wanted.as_ref();
            match wanted {
                "all" => rules.extend(&all),
                "training" => rules.extend(all.iter().filter(training)),
                "system" => rules.extend(all.iter().filter(|name| !training(name))),
                _ => match all.iter().find(|name| **name == wanted) {
                    Some(name) => {
                        rules.insert(*name);
                    }
                    None => return Err(UnknownRule(wanted.to_owned())),
                },
            }
        }
        Ok(Self {
            rules,
            fired: BTreeSet::new(),
            waiting: Vec::new(),
            series: BTreeMap::new(),
            stalled_after: 1800.0,
            heard: None,
            trained: BTreeMap::new(),
            read: Instant::now(),
        })
    }

    /// The time without news after which training counts as stalled.
    #[must_use]
    pub fn stalled_after(mut self, time: Duration) -> Self {
        self.stalled_after = time.as_secs_f64();
        self
    }

    /// Whether a rule about gradients is among them, which somebody has to measure.
    pub fn wants_gradients(&self) -> bool {
        ["VanishingGradient", "ExplodingGradient"]
            .iter()
            .any(|rule| self.rules.contains(rule))
    }

    /// Whether a rule is among them that reads recordings.
    pub fn wants_recordings(&self) -> bool {
        let of_numbers = |rule: &&str| *rule != "IdleGPU" && TRAINING.iter().any(|(own, _)| own == rule);
        self.rules.iter().any(|rule| !of_numbers(rule))
    }

    /// The run gave a sign of life.
    pub fn heard(&mut self, now: f64) {
        self.heard = Some(self.heard.map_or(now, |heard| heard.max(now)));
    }

    /// The run reported a number.
    pub fn number(&mut self, name: &str, value: f64, now: f64) {
        self.heard(now);
        if !self.series.contains_key(name) && self.series.len() == NAMES {
            return;
        }
        if curves::is_loss(name) {
            if !value.is_finite() {
                self.fire("NonFiniteLoss", format!("{name} is {value}"));
                return;
            }
            let series = self.series.entry(name.to_owned()).or_default();
            let lowest = series.put(value);
            if curves::is_of_validation(name) {
                if lowest {
                    self.remember(name);
                }
                self.overfit(name);
            } else if series.since >= WINDOWS {
                let lowest = series.lowest.unwrap_or(value);
                let reason = format!(
                    "the mean of {name} over {WINDOW} values has not fallen below {} for {} values",
                    digits(lowest),
                    WINDOWS * WINDOW
                );
                self.fire("LossNotDecreasing", reason);
            }
        } else if is_norm_of_gradients(name) {
            self.gradient(name, value);
        }
    }

    /// The training losses, as they are while a validation loss is lowest.
    fn remember(&mut self, name: &str) {
        let training = self.series.iter().filter(|(name, _)| is_of_training(name));
        let means = training.filter_map(|(name, series)| Some((name.clone(), series.recent()?)));
        let means = means.collect();
        self.trained.insert(name.to_owned(), means);
    }

    /// A validation loss has come.
    fn overfit(&mut self, name: &str) {
        let series = &self.series[name];
        let Some(minimum) = series.minimum else { return };
        let limit = minimum + RISE * minimum.abs();
        let last: Vec<f64> = series.latest.iter().rev().take(RISEN).copied().collect();
        if last.len() < RISEN || last.iter().any(|value| *value <= limit) {
            return;
        }
        let before = self.trained.get(name).into_iter().flatten();
        let fallen = before.filter_map(|(name, before)| {
            let now = self.series.get(name)?.recent()?;
            (now < *before).then(|| (name.clone(), *before, now))
        });
        if let Some((training, before, now)) = fallen.into_iter().next() {
            let reason = format!(
                "{name} has risen from {} to {}, while {training} fell from {} to {}",
                digits(minimum),
                digits(last[0]),
                digits(before),
                digits(now)
            );
            self.fire("Overfit", reason);
        }
    }

    /// A norm of all gradients has come.
    fn gradient(&mut self, name: &str, value: f64) {
        if !value.is_finite() {
            self.fire("ExplodingGradient", format!("{name} is {value}"));
            return;
        }
        let series = self.series.entry(name.to_owned()).or_default();
        series.put(value);
        let last: Vec<f64> = series.latest.iter().rev().take(VANISHED_TIMES).copied().collect();
        let vanished = last.len() == VANISHED_TIMES && last.iter().all(|value| *value < VANISHED);
        let median = series.median_of_first();
        if vanished {
            let reason = format!("{name} was below {VANISHED:e} {VANISHED_TIMES} times, at last {value:e}");
            self.fire("VanishingGradient", reason);
        }
        if let Some(median) = median.filter(|median| *median > 0.0 && value > EXPLODED * median) {
            let reason = format!("{name} is {}, and was {} at first", digits(value), digits(median));
            self.fire("ExplodingGradient", reason);
        }
    }

    fn fire(&mut self, rule: &'static str, reason: String) {
        if self.rules.contains(rule) && self.fired.insert(rule) {
            self.waiting.push(Fired { rule, reason });
        }
    }

    /// The rules that have fired since the last call; `recording` has the last minutes, where they are wanted.
    pub fn judge(&mut self, now: f64, recording: Option<&Recording>) -> Vec<Fired> {
        let silent = self.heard.map_or(0.0, |heard| now - heard);
        if silent >= self.stalled_after {
            self.fire(
                "StalledTraining",
                format!("nothing was heard of the run for {}", duration(silent)),
            );
        }
        if let Some(recording) = recording {
            self.idle(recording);
            for finding in judge(recording, &Parameters::new(Defaults::default())) {
                if finding.triggered && !REPORTS.contains(&finding.rule) {
                    self.fire(finding.rule, finding.summary);
                }
            }
        }
        std::mem::take(&mut self.waiting)
    }

    /// As [`judge`](Self::judge) now, with the last minutes of the recording in a run's folder: it is read every 30 s, where a rule
    /// wants it. One that cannot be read yet is read the next time; its report will say what is wrong with it.
    pub fn judge_run(&mut self, run: &Path) -> Vec<Fired> {
        let now = unix_now();
        let reads = self.wants_recordings() && self.read.elapsed() >= READ;
        let recording = reads
            .then(|| {
                self.read = Instant::now();
                Recording::open_since(run, now - JUDGED_SECONDS).ok()
            })
            .flatten();
        self.judge(now, recording.as_ref())
    }

    /// Whether the GPUs of a recording were idle for all of the time that is judged.
    fn idle(&mut self, recording: &Recording) {
        let Some((from, to)) = recording
            .extent()
            .filter(|(from, to)| to - from >= 0.8 * JUDGED_SECONDS)
        else {
            return;
        };
        let means = recording.nodes.iter().flat_map(|node| {
            node.of(dimension::GPU)
                .filter_map(|series| node.mean(&series.values))
        });
        let means: Vec<f64> = means.collect();
        let mean = means.iter().sum::<f64>() / means.len().max(1) as f64;
        if !means.is_empty() && mean < IDLE {
            let reason = format!(
                "{} GPUs were busy {mean:.0} % of the last {}; they cost money all the time",
                means.len(),
                duration(to - from)
            );
            self.fire("IdleGPU", reason);
        }
    }
}

impl Series {
    /// Takes a value. Returns whether it is the lowest so far.
    fn put(&mut self, value: f64) -> bool {
        self.latest.push_back(value);
        if self.latest.len() > WINDOW {
            self.latest.pop_front();
        }
        if self.first.len() < NORMS {
            self.first.push(value);
        }
        let lowest = self.minimum.is_none_or(|minimum| value < minimum);
        if lowest {
            self.minimum = Some(value);
        }
        self.window.push(value);
        if self.window.len() < WINDOW {
            return lowest;
        }
        let mean = self.window.drain(..).sum::<f64>() / WINDOW as f64;
        // A negative loss is lower by a share of its size, too.
        if self
            .lowest
            .is_none_or(|lowest| mean < lowest - LOWER * lowest.abs())
        {
            (self.lowest, self.since) = (Some(mean), 0);
        } else {
            self.since += 1;
        }
        lowest
    }

    /// The mean of the latest values.
    fn recent(&self) -> Option<f64> {
        let count = self.latest.len();
        (count > 0).then(|| self.latest.iter().sum::<f64>() / count as f64)
    }

    fn median_of_first(&self) -> Option<f64> {
        (self.first.len() == NORMS).then(|| stokehold_base::stats::percentile(&self.first, 50.0))?
    }
}

fn is_norm_of_gradients(name: &str) -> bool {
    let name = name.to_lowercase();
    name.contains("grad") && name.contains("norm")
}

fn is_of_training(name: &str) -> bool {
    curves::is_loss(name) && !curves::is_of_validation(name)
}

/// Runs the command of a rule that has fired, for a minute at most. Returns what went wrong.
pub fn call(command: &[String], fired: &Fired) -> Option<String> {
    let (program, rest) = command.split_first()?;
    let child = Command::new(program)
        .args(rest)
        .env("STOKEHOLD_RULE", fired.rule)
        .env("STOKEHOLD_REASON", &fired.reason)
        .stdin(Stdio::null())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => return Some(format!("{program}: {error}")),
    };
    let began = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return None,
            Ok(Some(status)) => return Some(format!("{program}: {status}")),
            Ok(None) if began.elapsed() < COMMAND => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                let _ = child.kill();
                let _ = child.wait();
                return Some(format!("{program}: it was ended after {} s", COMMAND.as_secs()));
            }
            Err(error) => return Some(format!("{program}: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stokehold_simulate::{Phase, Simulation};

    fn watching(rules: &[&str]) -> Live {
        Live::new(rules).unwrap()
    }

    fn rules_of(fired: &[Fired]) -> Vec<&str> {
        fired.iter().map(|fired| fired.rule).collect()
    }

    #[test]
    fn a_loss_that_is_none_fires_once() {
        let mut live = watching(&["training"]);
        for (step, loss) in [2.0, 1.5, f64::NAN, f64::NAN, f64::INFINITY]
            .into_iter()
            .enumerate()
        {
            live.number("train_loss", loss, step as f64);
        }
        let fired = live.judge(5.0, None);
        assert_eq!(rules_of(&fired), ["NonFiniteLoss"]);
        assert_eq!(fired[0].to_string(), "rule NonFiniteLoss: train_loss is NaN");
        assert_eq!(live.judge(6.0, None), []);
    }

    #[test]
    fn a_loss_that_falls_slowly_is_no_plateau() {
        let mut falling = watching(&["LossNotDecreasing"]);
        let mut flat = watching(&["LossNotDecreasing"]);
        for step in 0..2000 {
            // Noise of 10 % around a loss that falls by 0.05 % a step, and around one that does not.
            let noise = 1.0 + 0.1 * f64::from((step * 7919) % 11 - 5) / 5.0;
            falling.number(
                "loss",
                noise * 5.0 * (-0.0005 * f64::from(step)).exp(),
                step.into(),
            );
            flat.number("loss", 5.0 * noise, step.into());
        }
        assert_eq!(falling.judge(2000.0, None), []);
        assert_eq!(rules_of(&flat.judge(2000.0, None)), ["LossNotDecreasing"]);
    }

    #[test]
    fn validation_that_rises_while_training_falls_is_overfitting() {
        let mut live = watching(&["Overfit"]);
        let validation = [1.0, 0.8, 0.7, 0.75, 0.9, 0.95, 1.0];
        for (epoch, val) in validation.into_iter().enumerate() {
            live.number("loss", 1.0 / (1.0 + epoch as f64), epoch as f64);
            live.number("val_loss", val, epoch as f64 + 0.5);
            let fired = live.judge(epoch as f64 + 0.5, None);
            assert_eq!(fired.is_empty(), epoch < 6, "epoch {epoch}: {fired:?}");
        }
        // A minimum thousands of steps ago.
        let mut long = watching(&["Overfit"]);
        for step in 0..40_000u32 {
            long.number("loss", 5.0 / f64::from(step + 1), step.into());
            if step % 5000 == 4999 {
                let epoch = step / 5000;
                long.number(
                    "val_loss",
                    if epoch < 3 {
                        1.0
                    } else {
                        1.0 + 0.2 * f64::from(epoch)
                    },
                    step.into(),
                );
            }
        }
        assert_eq!(rules_of(&long.judge(4e4, None)), ["Overfit"]);
        // Both rise: that is something else.
        let mut both = watching(&["Overfit"]);
        for (epoch, val) in validation.into_iter().enumerate() {
            both.number("loss", val, epoch as f64);
            both.number("val_loss", val, epoch as f64 + 0.5);
        }
        assert_eq!(both.judge(9.0, None), []);
    }

    #[test]
    fn silence_is_a_stall() {
        let mut live = watching(&["training"]).stalled_after(Duration::from_secs(60));
        live.heard(100.0);
        assert_eq!(live.judge(159.0, None), []);
        live.heard(159.0);
        assert_eq!(live.judge(218.0, None), []);
        assert_eq!(rules_of(&live.judge(219.0, None)), ["StalledTraining"]);
    }

    #[test]
    fn gradients_vanish_and_explode() {
        let mut live = watching(&["training"]);
        for step in 0..NORMS {
            live.number("gradient_norm", 1.0 + 0.01 * step as f64, 0.0);
        }
        for norm in [900.0, 1e-8, 1e-9] {
            live.number("gradient_norm", norm, 0.0);
        }
        assert_eq!(live.judge(0.0, None), []);
        live.number("gradient_norm", 1e-9, 0.0);
        assert_eq!(rules_of(&live.judge(0.0, None)), ["VanishingGradient"]);
        live.number("gradient_norm", 2000.0, 0.0);
        assert_eq!(rules_of(&live.judge(0.0, None)), ["ExplodingGradient"]);
    }

    #[test]
    fn rules_of_recordings_are_judged_too() {
        let simulation = Simulation {
            phases: vec![Phase::Disk],
            ..Simulation::default()
        };
        let recording = simulation.recording();
        let mut live = watching(&["IOBottleneck"]);
        assert!(live.wants_recordings());
        assert_eq!(rules_of(&live.judge(0.0, Some(&recording))), ["IOBottleneck"]);
        assert!(!watching(&["NonFiniteLoss"]).wants_recordings());
    }

    #[test]
    fn names_that_are_none_are_refused_with_those_that_are() {
        let error = Live::new(&["LossIsNan"]).unwrap_err().to_string();
        assert!(
            error.starts_with("there is no rule LossIsNan; there are training, system, all, NonFiniteLoss,"),
            "{error}"
        );
    }

    #[test]
    fn a_command_finds_the_rule() {
        let fired = Fired {
            rule: "NonFiniteLoss",
            reason: "loss is NaN".to_owned(),
        };
        let words = |script: &str| ["sh", "-c", script].map(str::to_owned).to_vec();
        assert_eq!(call(&words("test $STOKEHOLD_RULE = NonFiniteLoss"), &fired), None);
        assert_eq!(
            call(&words("test \"$STOKEHOLD_REASON\" = 'loss is NaN'"), &fired),
            None
        );
        assert!(call(&words("exit 3"), &fired).unwrap().contains("exit status: 3"));
        assert!(call(&["/nowhere/x".to_owned()], &fired).is_some());
    }
}
