//! What was measured: the contents of `compare.json`.

use serde::{Deserialize, Serialize};
use stokehold_base::stats::percentile;
use stokehold_profile::{Machine, Recording, dimension};
use stokehold_train::model::Arch;
use stokehold_train::run::DatasetFacts;
use stokehold_train::{StepTotals, TrainerChoice};

use crate::plan::{Plan, TrainerPlan, Trial};
use crate::process::{Observed, Ready};
use crate::verdict::{Gain, LEAST_PAIRS, MOST_PAIRS, Verdict};
use crate::{CompareError, EqualWork};

/// The version of the format of `compare.json`.
pub(crate) const FORMAT_VERSION: u32 = 3;

/// A comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// The version of this format: 3.
    pub format_version: u32,
    /// What was compared.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Value"))]
    pub plan: Plan,
    /// What identifies the data.
    #[cfg_attr(feature = "schema", schemars(with = "serde_json::Value"))]
    pub dataset: DatasetFacts,
    /// The machine.
    pub machine: Machine,
    /// A short real training of the trials, as evidence that they do the same work; `None` where there is none.
    pub equal_work: Option<EqualWork>,
    /// The cells that were begun.
    pub cells: Vec<Cell>,
}

/// A network at an augmentation load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cell {
    /// The network.
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub model: Arch,
    /// How often flip, flip, rotate come before the random crop; 0 with a pipeline of the user's own.
    pub load: u32,
    /// The speed of the emulated accelerator, images per second; `None` for a real trainer.
    pub images_per_second: Option<f64>,
    /// Images of an epoch: the batches of a pass over the data.
    pub epoch_images: u64,
    /// Steps of a round.
    pub steps: u64,
    /// Whether nothing is left to measure.
    pub finished: bool,
    /// The trials, A first.
    pub trials: Vec<Measured>,
}

/// A trial in a cell.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Measured {
    /// The trial.
    pub trial: Trial,
    /// Versions and device; `None` if it never became ready.
    pub ready: Option<Ready>,
    /// Its rounds, one for each pair; a pair in which a trial failed lacks that trial's.
    pub rounds: Vec<Round>,
    /// What follows from the rounds; `None` without any.
    pub summary: Option<Summary>,
    /// How busy cores and GPUs were in its rounds; empty where the platform does not tell.
    pub usage: Vec<Usage>,
    /// Why it could not run, or stopped.
    pub failure: Option<Failure>,
}

/// How busy something was: percentiles over the samples within a trial's rounds, percent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// What: `cores` (the mean of all), `gpu`, `gpu memory`; or `accelerator`, an emulated one's busy share, by rounds.
    pub of: String,
    /// The largest.
    pub max: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 90th percentile.
    pub p90: f64,
    /// The median.
    pub p50: f64,
    /// The smallest.
    pub min: f64,
}

impl Usage {
    fn of(of: &str, values: &[f64]) -> Option<Self> {
        let p = |p| percentile(values, p);
        Some(Self {
            of: of.to_owned(),
            max: p(100.0)?,
            p99: p(99.0)?,
            p95: p(95.0)?,
            p90: p(90.0)?,
            p50: p(50.0)?,
            min: p(0.0)?,
        })
    }
}

/// A turn of a trial.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Round {
    /// The pair, from 0: rounds of one pair belong together.
    pub pair: u32,
    /// When it began, unix seconds.
    pub began: f64,
    /// When it ended, unix seconds.
    pub ended: f64,
    /// CPU time of the trial's processes, seconds; `None` where the platform does not tell.
    pub cpu_seconds: Option<f64>,
    /// Cores that other programs kept busy meanwhile, on average; `None` where the platform does not tell.
    pub others_cores: Option<f64>,
    /// What the trial says of it. The times of its steps are in a file of their own, and left out here.
    #[serde(flatten)]
    pub totals: StepTotals,
}

/// What follows from a trial's rounds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Summary {
    /// Seconds for the images of an epoch: the median of the rounds.
    pub seconds_per_epoch: f64,
    /// The shortest and the longest round, as seconds per epoch.
    pub range: [f64; 2],
    /// Images per second: of the median round.
    pub images_per_second: f64,
    /// Images per second of CPU time: what a core makes of its time, loader and trainer together.
    pub images_per_core_second: Option<f64>,
    /// Share of the time in which the trainer had no batch, 0 to 1.
    pub waited: f64,
    /// Share of the time in which the trainer was busy, 0 to 1.
    pub busy: f64,
    /// Cores that other programs kept busy, on average.
    pub others_cores: Option<f64>,
    /// Mean training loss; `None` where nothing learns.
    pub loss: Option<f64>,
    /// By how much it is better than trial A; `None` for A itself, and without a common pair.
    pub gain: Option<Gain>,
}

/// Why a trial has no figures, or no more of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Failure {
    /// The reason.
    pub why: String,
    /// The command that installs what is missing.
    pub install: Option<String>,
    /// The last lines of its standard error.
    pub stderr: Vec<String>,
}

impl Failure {
    pub(crate) fn of(why: String) -> Self {
        Self {
            why,
            install: None,
            stderr: Vec::new(),
        }
    }

    /// Its reason, what to do, and the last line of its standard error.
    pub fn text(&self) -> String {
        let mut text = self.why.clone();
        if let Some(install) = &self.install {
            text += &format!("; {install}");
        }
        if let Some(last) = self.stderr.last() {
            text += &format!(": {last}");
        }
        text
    }
}

impl Round {
    /// A round without the times of its steps.
    pub(crate) fn new(pair: u32, observed: Observed, others_cores: Option<f64>) -> Self {
        Self {
            pair,
            began: observed.began,
            ended: observed.ended,
            cpu_seconds: observed.cpu_seconds,
            others_cores,
            totals: StepTotals {
                times: Vec::new(),
                ..observed.totals
            },
        }
    }

    /// Its length, seconds. If the machine's clock was set back meanwhile, the trial knows it.
    pub(crate) fn length(&self) -> f64 {
        f64::max(self.ended - self.began, self.totals.seconds)
    }

    /// Share of the time in which the trainer was busy, 0 to 1.
    pub fn busy_share(&self) -> f64 {
        (self.totals.busy / self.totals.seconds).clamp(0.0, 1.0)
    }

    fn seconds_per_image(&self) -> f64 {
        self.totals.seconds / self.totals.images as f64
    }
}

impl Cell {
    /// A cell of a plan before its first round.
    pub(crate) fn new(plan: &Plan, model: Arch, load: u32, epoch_images: u64) -> Self {
        Self {
            model,
            load,
            images_per_second: match plan.trainer_of(model) {
                TrainerChoice::Emulated {
                    images_per_second, ..
                } => Some(images_per_second),
                TrainerChoice::Burn => None,
            },
            epoch_images,
            steps: 0,
            finished: false,
            trials: plan
                .trials
                .iter()
                .map(|&trial| Measured {
                    trial,
                    ready: None,
                    rounds: Vec::new(),
                    summary: None,
                    usage: Vec::new(),
                    failure: None,
                })
                .collect(),
        }
    }

    /// What its files are called: `resnet18-load12`.
    pub(crate) fn file_name(&self) -> String {
        format!("{}-load{}", self.model, self.load)
    }

    /// Whether it is as a comparison of this plan writes it. A file may say anything.
    pub(crate) fn is_sound(&self, plan: &Plan) -> bool {
        let sound = |round: &Round| {
            let totals = &round.totals;
            let numbers = [
                round.began,
                round.ended,
                totals.seconds,
                totals.waited,
                totals.busy,
                totals.copying,
            ];
            (round.pair as usize) < MOST_PAIRS
                && numbers.iter().all(|number| number.is_finite())
                && totals.seconds > 0.0
                && totals.images > 0
        };
        let trials: Vec<Trial> = self.trials.iter().map(|trial| trial.trial).collect();
        trials == plan.trials
            && self.epoch_images > 0
            && self.steps < 1 << 40
            && self
                .trials
                .iter()
                .all(|trial| trial.rounds.len() <= MOST_PAIRS && trial.rounds.iter().all(sound))
    }

    /// The number of pairs begun.
    pub fn pairs(&self) -> u32 {
        let rounds = self.trials.iter().flat_map(|trial| &trial.rounds);
        rounds.map(|round| round.pair + 1).max().unwrap_or(0)
    }

    /// The time of its rounds, seconds.
    fn spent(&self) -> f64 {
        let rounds = self.trials.iter().flat_map(|trial| &trial.rounds);
        rounds.map(Round::length).sum()
    }

    /// How much of what a plan wants is measured, 0 to 1: of the time, or of the least number of pairs where that takes longer.
    pub fn progress(&self, plan: &Plan) -> f64 {
        let pairs = self.pairs() as f64 / LEAST_PAIRS as f64;
        (self.spent() / plan.time_limit).min(pairs).min(1.0)
    }

    /// Whether the rounds are as many as a plan wants.
    pub(crate) fn is_measured(&self, plan: &Plan) -> bool {
        let pairs = self.pairs() as usize;
        let enough =
            pairs >= MOST_PAIRS || self.spent() >= plan.time_limit || self.is_precise(plan.precision);
        pairs >= LEAST_PAIRS && enough
    }

    /// Whether every gain's interval is narrower than this, percent.
    fn is_precise(&self, precision: f64) -> bool {
        let trials = self.trials.iter().skip(1).filter(|trial| trial.failure.is_none());
        let mut gains = trials.filter_map(|trial| trial.summary?.gain);
        gains.all(|gain| gain.pairs >= LEAST_PAIRS && gain.width() < precision)
    }

    /// Makes the summaries from the rounds.
    pub(crate) fn summarize(&mut self) {
        let a = self.trials.first().cloned();
        for (number, trial) in self.trials.iter_mut().enumerate() {
            let both = a
                .as_ref()
                .filter(|a| number > 0 && a.failure.is_none() && trial.failure.is_none());
            let gain = both.and_then(|a| {
                let mut gain = Gain::of(&trial.ratios(a))?;
                if !trial.has_images_of(a) {
                    gain.verdict = Verdict::NotTheSameWork;
                }
                Some(gain)
            });
            trial.summary = Summary::of(&trial.rounds, self.epoch_images as f64, gain);
            // Servers spend most of it, and say nothing of that.
            if trial.trial == Trial::Remote
                && let Some(summary) = &mut trial.summary
            {
                summary.images_per_core_second = None;
            }
        }
    }

    /// Makes the percentiles of what was busy, from the samples of the machine.
    pub(crate) fn measure_usage(&mut self, samples: &[Sample]) {
        let emulated = self.images_per_second.is_some();
        for trial in &mut self.trials {
            // Those of an earlier call may be gone.
            if Sample::within(samples, &trial.rounds).next().is_none() && !trial.usage.is_empty() {
                continue;
            }
            let within: Vec<&Sample> = Sample::within(samples, &trial.rounds)
                .map(|(_, sample)| sample)
                .collect();
            let of = |values: fn(&Sample) -> &[f64]| -> Vec<f64> {
                let mean = |sample: &&Sample| {
                    let values = values(sample);
                    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
                };
                within.iter().filter_map(mean).collect()
            };
            let busy: Vec<f64> = trial
                .rounds
                .iter()
                .map(|round| 100.0 * round.busy_share())
                .collect();
            trial.usage = [
                Usage::of("cores", &of(|sample| &sample.cores)),
                Usage::of("accelerator", &busy).filter(|_| emulated),
                Usage::of("gpu", &of(|sample| &sample.gpus)),
                Usage::of("gpu memory", &of(|sample| &sample.gpu_memory)),
            ]
            .into_iter()
            .flatten()
            .collect();
        }
    }

    /// Whether all rounds of a pair were made on the same images, as far as their number and labels tell; `None` without a pair.
    pub fn same_images(&self) -> Option<bool> {
        let (a, others) = self.trials.split_first()?;
        let mut others = others
            .iter()
            .filter(|other| other.pairs(a).next().is_some())
            .peekable();
        others.peek()?;
        Some(others.all(|other| other.has_images_of(a)))
    }
}

impl Measured {
    /// Its rounds, each with that of trial `a` in the same pair.
    fn pairs<'a>(&'a self, a: &'a Self) -> impl Iterator<Item = (&'a Round, &'a Round)> {
        let of_a = |round: &Round| a.rounds.iter().find(|of_a| of_a.pair == round.pair);
        self.rounds
            .iter()
            .filter_map(move |round| Some((round, of_a(round)?)))
    }

    /// Its seconds per image, divided by those of trial `a`, pair by pair.
    fn ratios(&self, a: &Self) -> Vec<f64> {
        let ratio = |(own, of_a): (&Round, &Round)| own.seconds_per_image() / of_a.seconds_per_image();
        self.pairs(a).map(ratio).collect()
    }

    fn has_images_of(&self, a: &Self) -> bool {
        let images = |round: &Round| (round.totals.labels, round.totals.images);
        self.pairs(a).all(|(own, of_a)| images(own) == images(of_a))
    }
}

impl Summary {
    fn of(rounds: &[Round], epoch_images: f64, gain: Option<Gain>) -> Option<Self> {
        if rounds.is_empty() {
            return None;
        }
        let sum = |of: fn(&Round) -> f64| rounds.iter().map(of).sum::<f64>();
        let (seconds, images) = (
            sum(|round| round.totals.seconds),
            sum(|round| round.totals.images as f64),
        );
        let cpu: Option<f64> = rounds.iter().map(|round| round.cpu_seconds).sum();
        let others: Option<f64> = rounds
            .iter()
            .map(|round| Some(round.others_cores? * round.totals.seconds))
            .sum();
        let loss: Option<f64> = rounds
            .iter()
            .map(|round| Some(round.totals.loss? * round.totals.images as f64))
            .sum();
        let each: Vec<f64> = rounds
            .iter()
            .map(|round| epoch_images * round.seconds_per_image())
            .collect();
        let seconds_per_epoch = percentile(&each, 50.0)?;
        let (low, high) = (percentile(&each, 0.0)?, percentile(&each, 100.0)?);
        Some(Self {
            seconds_per_epoch,
            range: [low, high],
            images_per_second: epoch_images / seconds_per_epoch,
            // Below a tick there is nothing to divide by.
            images_per_core_second: cpu.filter(|cpu| *cpu > 0.0).map(|cpu| images / cpu),
            waited: sum(|round| round.totals.waited) / seconds,
            busy: (sum(|round| round.totals.busy) / seconds).min(1.0),
            others_cores: others.map(|others| others / seconds),
            loss: loss.map(|loss| loss / images),
            gain,
        })
    }
}

impl Report {
    /// A report without cells.
    pub(crate) fn new(plan: Plan, dataset: DatasetFacts) -> Self {
        Self {
            format_version: FORMAT_VERSION,
            plan,
            dataset,
            machine: Machine::here(),
            equal_work: None,
            cells: Vec::new(),
        }
    }

    /// The contents of `compare.json`.
    ///
    /// # Errors
    /// A value cannot be written as JSON.
    pub fn json(&self) -> Result<String, CompareError> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Whether a cell is measured as the plan wants it, by all trials.
    pub fn is_kept(&self, model: Arch, load: u32) -> bool {
        self.cells.iter().any(|cell| {
            (cell.model, cell.load) == (model, load)
                && cell.is_measured(&self.plan)
                && cell.trials.iter().all(|trial| trial.failure.is_none())
        })
    }

    /// The networks of the cells, in order.
    pub fn models(&self) -> Vec<Arch> {
        let mut models = Vec::new();
        for cell in &self.cells {
            if !models.contains(&cell.model) {
                models.push(cell.model);
            }
        }
        models
    }

    /// The cells of a network, by load.
    pub fn cells_of(&self, model: Arch) -> Vec<&Cell> {
        let mut cells: Vec<&Cell> = self.cells.iter().filter(|cell| cell.model == model).collect();
        cells.sort_by_key(|cell| cell.load);
        cells
    }

    /// Whether an emulated accelerator is fed.
    pub fn is_emulated(&self) -> bool {
        matches!(self.plan.trainer, TrainerPlan::Emulated(_))
    }
}

/// A sample of the machine within a round.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    /// Its start and end, unix seconds.
    pub since: f64,
    pub time: f64,
    /// Busy share of each core, percent.
    pub cores: Vec<f64>,
    /// Busy share of each GPU, percent.
    pub gpus: Vec<f64>,
    /// Memory in use of each GPU, percent.
    pub gpu_memory: Vec<f64>,
}

impl Sample {
    /// All samples of a recording, oldest first.
    pub fn all(recording: &Recording) -> Vec<Self> {
        let Some(node) = recording.nodes.first() else {
            return Vec::new();
        };
        let of = |dimension: &'static str| node.of(dimension).collect::<Vec<_>>();
        let (cores, gpus, memory) = (of(dimension::CPU), of(dimension::GPU), of(dimension::GPU_MEMORY));
        let started = recording.about.as_ref().map(|about| about.started);
        let at = |(tick, &time): (usize, &f64)| {
            let values = |series: &[_]| -> Vec<f64> {
                let value = |one: &&stokehold_profile::Series| f64::from(one.values[tick]);
                series.iter().map(value).filter(|value| !value.is_nan()).collect()
            };
            Self {
                since: match tick.checked_sub(1) {
                    Some(last) => node.ticks[last],
                    None => started.map_or(time, |since| since.min(time)),
                },
                time,
                cores: values(&cores),
                gpus: values(&gpus),
                gpu_memory: values(&memory),
            }
        };
        node.ticks.iter().enumerate().map(at).collect()
    }

    /// Those that lie within the rounds: a sample that covers a turn of another trial too says nothing of either.
    pub fn within<'a>(
        samples: &'a [Self],
        rounds: &'a [Round],
    ) -> impl Iterator<Item = (&'a Round, &'a Self)> {
        Self::places(samples, rounds).map(|(round, sample)| (&rounds[round], &samples[sample]))
    }

    /// The places of those that lie within the rounds, after the place of the round.
    pub fn places(samples: &[Self], rounds: &[Round]) -> impl Iterator<Item = (usize, usize)> {
        // The clock of the samples and the requests may differ by a little.
        const SLACK: f64 = 0.02;
        rounds.iter().enumerate().flat_map(move |(number, round)| {
            let first = samples.partition_point(|sample| sample.since < round.began - SLACK);
            let within = samples[first..]
                .iter()
                .take_while(|sample| sample.time <= round.ended + SLACK);
            let end = first + within.count();
            (first..end).map(move |sample| (number, sample))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::plan::tests::plan;

    /// A round in which an image took `ms` milliseconds.
    pub fn round(pair: u32, began: f64, ms: f64) -> Round {
        let seconds = ms * 0.32;
        Round {
            pair,
            began,
            ended: began + seconds,
            cpu_seconds: Some(seconds),
            others_cores: Some(0.5),
            totals: StepTotals {
                steps: 10,
                images: 320,
                seconds,
                waited: seconds / 4.0,
                busy: seconds / 2.0,
                copying: 0.0,
                labels: 77,
                loss: None,
                times: Vec::new(),
            },
        }
    }

    /// A finished cell: A took `a` milliseconds an image, the others those of `b`; eight pairs with a little noise.
    pub fn cell(model: Arch, load: u32, a: f64, b: &[f64]) -> Cell {
        let mut plan = plan();
        plan.trials = Trial::ALL[..=b.len()].to_vec();
        let mut cell = Cell::new(&plan, model, load, 1000);
        let mut clock = 1e9 + f64::from(load) * 1e4;
        for pair in 0..8u32 {
            for (trial, ms) in cell.trials.iter_mut().zip([a].iter().chain(b)) {
                let round = round(pair, clock, ms * (1.0 + 0.002 * f64::from(pair % 3)));
                clock = round.ended + 0.1;
                trial.rounds.push(round);
            }
        }
        for trial in &mut cell.trials {
            let versions = format!("{} 1.0", trial.trial);
            trial.ready = Some(Ready {
                versions,
                device: "emulated".to_owned(),
            });
        }
        cell.steps = 10;
        cell.finished = true;
        cell.summarize();
        cell
    }

    /// A report of these cells.
    pub fn report(cells: Vec<Cell>) -> Report {
        let dataset = DatasetFacts {
            classes: vec!["cat".into(), "dog".into()],
            train: 1000,
            val: None,
            split: None,
            names: String::new(),
        };
        let mut plan = plan();
        if let Some(cell) = cells.first() {
            plan.trials = cell.trials.iter().map(|trial| trial.trial).collect();
        }
        Report {
            cells,
            ..Report::new(plan, dataset)
        }
    }

    #[test]
    fn a_summary_is_of_all_rounds() {
        let cell = cell(Arch::Resnet18, 12, 10.0, &[4.0]);
        let [a, b] = [0, 1].map(|trial: usize| cell.trials[trial].summary.unwrap());
        assert!(
            (a.seconds_per_epoch - 10.0).abs() < 0.05 && a.gain.is_none(),
            "{a:?}"
        );
        assert!((b.images_per_second - 250.0).abs() < 1.0, "{b:?}");
        assert!((b.images_per_core_second.unwrap() - 250.0).abs() < 1.0);
        assert!((b.waited - 0.25).abs() < 1e-9 && (b.busy - 0.5).abs() < 1e-9);
        let gain = b.gain.unwrap();
        assert!(
            (gain.better_by - 60.0).abs() < 1e-6 && gain.pairs == 8,
            "{gain:?}"
        );
        assert_eq!(cell.same_images(), Some(true));
        assert_eq!(cell.pairs(), 8);
    }

    #[test]
    fn a_cell_ends_when_every_gain_is_known_or_the_time_is_over() {
        let mut plan = plan();
        plan.time_limit = 1e6;
        let mut cell = cell(Arch::Resnet18, 1, 10.0, &[5.0, 9.0]);
        assert!(cell.is_measured(&plan));
        for round in &mut cell.trials[1].rounds {
            round.totals.seconds *= 1.0 + 0.01 * f64::from(round.pair);
        }
        cell.summarize();
        plan.precision = 0.1;
        assert!(!cell.is_measured(&plan) && cell.progress(&plan) < 0.01);
        plan.time_limit = 1.0;
        assert!(cell.is_measured(&plan) && cell.progress(&plan) == 1.0);
        plan.precision = 5.0;
        for trial in &mut cell.trials {
            trial.rounds.truncate(5);
        }
        cell.summarize();
        assert!(!cell.is_measured(&plan), "five pairs are too few");
        assert!((cell.progress(&plan) - 5.0 / 6.0).abs() < 1e-9);
    }

    #[test]
    fn a_pair_without_a_trial_is_none() {
        let mut cell = cell(Arch::Resnet18, 12, 10.0, &[4.0]);
        cell.trials[1].rounds.truncate(3);
        cell.trials[1].rounds[2].totals.labels = 78;
        cell.summarize();
        assert_eq!(cell.trials[1].summary.unwrap().gain.unwrap().pairs, 3);
        assert_eq!(cell.same_images(), Some(false));
        cell.trials[0].rounds.clear();
        cell.summarize();
        assert_eq!(
            (cell.trials[0].summary, cell.trials[1].summary.unwrap().gain),
            (None, None)
        );
    }

    #[test]
    fn samples_of_a_turn_are_those_within_it() {
        let samples: Vec<Sample> = (0..100)
            .map(|tick| Sample {
                since: f64::from(tick) * 0.1,
                time: f64::from(tick + 1) * 0.1,
                cores: vec![f64::from(tick)],
                gpus: Vec::new(),
                gpu_memory: Vec::new(),
            })
            .collect();
        let mut one = round(0, 1.05, 1.0);
        one.ended = 1.45;
        let mut other = round(1, 9.95, 1.0);
        other.ended = 20.0;
        let ticks: Vec<f64> = Sample::within(&samples, &[one, other])
            .map(|(_, sample)| sample.cores[0])
            .collect();
        assert_eq!(ticks, [11.0, 12.0, 13.0]);
    }

    #[test]
    fn the_report_is_read_back() {
        let report = report(vec![cell(Arch::Resnet18, 1, 5.0, &[2.0, 3.0])]);
        let back: Report = serde_json::from_str(&report.json().unwrap()).unwrap();
        assert_eq!(back, report);
    }
}
