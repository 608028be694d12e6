//! The description of a study, read from a file or built by a program.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::TuneError;
use crate::error::input;
use crate::parameter::Parameter;
use crate::space::{Space, Values};

/// What a study tunes, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Spec {
    /// The name of the metric to minimise or maximise.
    #[cfg_attr(feature = "schema", schemars(length(min = 1)))]
    pub objective: String,
    /// Whether to minimise or maximise.
    #[serde(default)]
    pub direction: Direction,
    /// Which of the reported values of the objective is a trial's result.
    #[serde(default)]
    pub take: Take,
    /// The parameters, by name. Each of them becomes a hyperparameter of the job, or replaces `{NAME}` in its
    /// hyperparameters and variables.
    pub parameters: BTreeMap<String, Parameter>,
    /// How to choose the values of the next trial.
    #[serde(default)]
    pub strategy: Strategy,
    /// The seed of all random choices. The same seed and the same results so far give the same next trial.
    #[serde(default)]
    pub seed: u64,
    /// When the study ends, and how many trials run at the same time.
    #[serde(default)]
    pub limits: Limits,
    /// Which trials to stop early.
    #[serde(default)]
    pub early_stopping: EarlyStopping,
    /// The steps at which trials are compared by the strategy `hyperband` and the rule `asha`, and only by
    /// these; both need it. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rungs: Option<Rungs>,
    /// Values to try before anything else: some or all parameters of each trial; the strategy chooses the
    /// others.
    #[serde(default)]
    pub enqueue: Vec<Values>,
    /// Earlier studies to build on. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_start: Option<WarmStart>,
}

/// Which objective is better.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// The smaller.
    #[default]
    Minimize,
    /// The larger.
    Maximize,
}

impl Direction {
    /// Converts the objective to a loss to minimise, and back.
    pub fn loss(self, value: f64) -> f64 {
        match self {
            Self::Minimize => value,
            Self::Maximize => -value,
        }
    }
}

/// Which of a trial's reports is its result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Take {
    /// The last one.
    #[default]
    Last,
    /// The best one.
    Best,
    /// Their mean.
    Mean,
}

/// How the next values are chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// By a Gaussian process of the results so far: the point with the largest expected improvement.
    #[default]
    Bayesian,
    /// By two densities, of the better and of the other results: the point where they differ most.
    Tpe,
    /// Drawn uniformly.
    Random,
    /// Every combination of categorical and integer parameters, once.
    Grid,
    /// Drawn uniformly, with most trials stopped at the rungs.
    Hyperband,
}

/// When a study ends, and how many trials run at the same time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Limits {
    /// The study ends after this many trials.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub max_jobs: usize,
    /// The most trials that run at the same time, over all processes that work on the study.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub max_parallel_jobs: usize,
    /// The study ends after this many failed trials.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub max_failed_jobs: usize,
    /// The study ends after this many trials in a row without an improvement. Default: no such limit.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_jobs_without_improvement: Option<usize>,
    /// The study ends this many seconds after its start. Default: no such limit.
    #[cfg_attr(feature = "schema", schemars(extend("exclusiveMinimum" = 0)))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_run_seconds: Option<f64>,
    /// The study ends when a trial's objective is at least this good. Default: no such limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// Whether the study ends when its model considers no further improvement of more than 1 % likely. For
    /// the strategy `bayesian`.
    pub until_converged: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_jobs: 10,
            max_parallel_jobs: 1,
            max_failed_jobs: 10,
            max_jobs_without_improvement: None,
            max_run_seconds: None,
            target: None,
            until_converged: false,
        }
    }
}

/// Which trials to stop before their end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct EarlyStopping {
    /// The rule that stops trials.
    pub rule: Rule,
    /// For the rule `auto`: what a trial is compared with.
    pub against: Against,
    /// For the rule `auto`: no trial is stopped before it has made this many reports. With 1, the
    /// comparison would be one of first reports only, which mostly reflect the size of the learning rate.
    /// From the second report on, the others' averages include an early, bad report, which favours a trial
    /// that is improving.
    pub grace_reports: usize,
    /// For the rule `auto`: no trial is stopped before this many others can be compared.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub min_trials: usize,
}

impl Default for EarlyStopping {
    fn default() -> Self {
        Self {
            rule: Rule::Off,
            against: Against::Earlier,
            grace_reports: 2,
            min_trials: 3,
        }
    }
}

/// A rule for early stopping.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// Every trial runs to its end.
    #[default]
    Off,
    /// A trial that is worse than the median of the others is stopped.
    Auto,
    /// At each rung only the best 1 of `reduction` continue (asynchronous successive halving).
    Asha,
}

/// What the median rule compares.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Against {
    /// A trial's objective with the running averages of all earlier trials up to the same step (SageMaker).
    #[default]
    Earlier,
    /// A trial's best objective so far with the running averages of completed trials (Vizier, Ray Tune).
    Completed,
}

/// The steps at which trials are compared: `min-steps`, that times `reduction`, and so on, below `max-steps`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Rungs {
    /// The first step at which trials are compared; below `max-steps`.
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    #[serde(default = "one")]
    pub min_steps: u64,
    /// The number of steps of a complete trial. Trials are compared below it.
    #[cfg_attr(feature = "schema", schemars(range(min = 2)))]
    pub max_steps: u64,
    /// One of this many trials continues beyond a comparison, and the next comparison is at this many times
    /// the step.
    #[cfg_attr(feature = "schema", schemars(range(min = 2)))]
    #[serde(default = "three")]
    pub reduction: u64,
}

fn one() -> u64 {
    1
}

fn three() -> u64 {
    3
}

/// Earlier studies to build on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct WarmStart {
    /// What the study has in common with its parents.
    pub kind: WarmStartKind,
    /// The folders of the earlier studies.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = MOST_PARENTS)))]
    pub parents: Vec<PathBuf>,
}

/// What a study has in common with its parents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum WarmStartKind {
    /// Data and algorithm: the parents' results count like the study's own, also for the best result.
    IdenticalDataAndAlgorithm,
    /// Not everything: the parents' results show where to search first, with less weight.
    TransferLearning,
}

impl Spec {
    /// A study of the given parameters, with the defaults of a study file for everything else.
    pub fn new(objective: &str, parameters: BTreeMap<String, Parameter>) -> Self {
        Self {
            objective: objective.to_owned(),
            direction: Direction::default(),
            take: Take::default(),
            parameters,
            strategy: Strategy::default(),
            seed: 0,
            limits: Limits::default(),
            early_stopping: EarlyStopping::default(),
            rungs: None,
            enqueue: Vec::new(),
            warm_start: None,
        }
    }

    /// Checks whether it can run, as far as possible without file or network access.
    ///
    /// # Errors
    /// [`TuneError::Input`] with the first error, and what to change.
    pub fn check(&self) -> Result<Space, TuneError> {
        let space = Space::new(&self.parameters)?;
        if self.objective.is_empty() {
            return input("objective = \"\" is no metric's name");
        }
        self.limits.check()?;
        if self.limits.until_converged && self.strategy != Strategy::Bayesian {
            return input(
                "until-converged asks the model of strategy = \"bayesian\"; take that, or another limit",
            );
        }
        if self.early_stopping.min_trials == 0 {
            return input("min-trials = 0 leaves nothing to compare with; take at least 1");
        }
        let needs = match (self.strategy, self.early_stopping.rule) {
            (Strategy::Hyperband, Rule::Off) => Some("strategy = \"hyperband\""),
            (Strategy::Hyperband, _) => {
                return input("strategy = \"hyperband\" stops trials itself; take early stopping off");
            }
            (_, Rule::Asha) => Some("early stopping by \"asha\""),
            (_, Rule::Off | Rule::Auto) => None,
        };
        match (needs, &self.rungs) {
            (Some(who), None) => {
                return input(format!(
                    "{who} needs [rungs] with max-steps, the steps of a whole trial"
                ));
            }
            (None, Some(_)) => {
                return input("[rungs] is for strategy = \"hyperband\" or early stopping by \"asha\"");
            }
            (_, Some(rungs)) if rungs.reduction < 2 => return input("rungs: reduction is at least 2"),
            (_, Some(rungs)) if rungs.min_steps == 0 || rungs.min_steps >= rungs.max_steps => {
                return input(format!(
                    "rungs: min-steps = {} is not between 1 and max-steps = {}",
                    rungs.min_steps, rungs.max_steps
                ));
            }
            _ => {}
        }
        if self.strategy == Strategy::Grid {
            match space.count() {
                None => {
                    return input(
                        "strategy = \"grid\" takes categorical and integer parameters; list the values of continuous ones",
                    );
                }
                Some(count) if count > MOST_CELLS => {
                    return input(format!("a grid of {count} trials is no plan; make it smaller"));
                }
                Some(_) => {}
            }
        }
        for values in &self.enqueue {
            check_enqueued(&space, values)?;
        }
        if let Some(warm) = &self.warm_start
            && !(1..=MOST_PARENTS).contains(&warm.parents.len())
        {
            return input(format!(
                "a warm start has 1 to {MOST_PARENTS} parents, and not {}",
                warm.parents.len()
            ));
        }
        Ok(space)
    }
}

/// A larger grid is taken for a mistake.
const MOST_CELLS: u64 = 1_000_000;

/// SageMaker's limit.
const MOST_PARENTS: usize = 5;

/// Checks queued values: some of the parameters, each within its range.
pub(crate) fn check_enqueued(space: &Space, values: &Values) -> Result<(), TuneError> {
    space
        .complete(values, vec![0.5; space.dims().len()])
        .map(drop)
        .map_err(|error| TuneError::Input(format!("enqueue: {error}")))
}

impl Limits {
    pub(crate) fn check(&self) -> Result<(), TuneError> {
        for (name, value) in [
            ("max-jobs", self.max_jobs),
            ("max-parallel-jobs", self.max_parallel_jobs),
            ("max-failed-jobs", self.max_failed_jobs),
            (
                "max-jobs-without-improvement",
                self.max_jobs_without_improvement.unwrap_or(1),
            ),
        ] {
            if value == 0 {
                return input(format!("{name} is at least 1"));
            }
        }
        if self
            .max_run_seconds
            .is_some_and(|seconds| seconds.is_nan() || seconds <= 0.0)
        {
            return input("max-run-seconds is above 0");
        }
        if self.target.is_some_and(|target| !target.is_finite()) {
            return input("target is a finite number");
        }
        Ok(())
    }
}
