//! From a tuning job's description to a study file.

use std::collections::BTreeMap;

use stokehold_sagemaker::{
    EarlyStoppingType, ImportedJob, ObjectiveType, TuningJob, TuningStrategy, WarmStartType,
};

use super::native::parameters;
use crate::error::input;
use crate::{Direction, Kind, Plan, Rule, Rungs, Spec, Strategy, TuneError, WarmStart};

/// A study that a tuning job's description makes.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// The study.
    pub plan: Plan,
    /// What the description has and the file has not, or has to be changed before the study runs here: a sentence each.
    pub left: Vec<String>,
}

impl Imported {
    /// Translates a description of a tuning job in `region`, which has these labels.
    ///
    /// # Errors
    /// It has no study in it: several algorithms, ranges that SageMaker chooses, an image with a program of its own.
    pub fn new(job: &TuningJob, region: &str, tags: &BTreeMap<String, String>) -> Result<Self, TuneError> {
        let name = &job.hyper_parameter_tuning_job_name;
        if !job.training_job_definitions.is_empty() {
            return input(format!(
                "tuning job {name} tunes several algorithms, and a study tunes one"
            ));
        }
        if job.autotune.as_ref().is_some_and(|autotune| !autotune.is_null()) {
            return input(format!(
                "tuning job {name} has ranges that SageMaker chose (Autotune), and a study wants its own"
            ));
        }
        let mut left = Vec::new();
        let study = spec(job, &mut left)?;
        let made = ImportedJob::of_definition(&job.training_job_definition, region, tags)
            .map_err(|error| TuneError::Input(format!("tuning job {name}: {error}")))?;
        let own = made.remarks.iter();
        left.extend(own.map(|remark| format!("of its training jobs: {remark}")));
        let plan = Plan {
            study,
            job: made.job,
            metrics_file: None,
            timeline: false,
            prepare: Vec::new(),
        };
        if let Err(error) = plan.check() {
            left.push(format!("the study cannot run as it is: {error}"));
        }
        Ok(Self { plan, left })
    }

    /// The study's file.
    ///
    /// # Errors
    /// A value has no form in TOML.
    pub fn to_toml(&self) -> Result<String, TuneError> {
        toml::to_string_pretty(&self.plan).map_err(|error| TuneError::Input(error.to_string()))
    }
}

fn spec(job: &TuningJob, left: &mut Vec<String>) -> Result<Spec, TuneError> {
    let config = &job.hyper_parameter_tuning_job_config;
    let Some(objective) = &config.hyper_parameter_tuning_job_objective else {
        return input("the tuning job has no objective, and a study wants one");
    };
    let mut spec = Spec::new(
        &objective.metric_name,
        parameters(&config.parameter_ranges, left)?,
    );
    spec.direction = match objective.r#type {
        ObjectiveType::Maximize => Direction::Maximize,
        ObjectiveType::Minimize => Direction::Minimize,
    };
    spec.strategy = match config.strategy {
        TuningStrategy::Bayesian => Strategy::Bayesian,
        TuningStrategy::Random => Strategy::Random,
        TuningStrategy::Hyperband => Strategy::Hyperband,
        TuningStrategy::Grid => Strategy::Grid,
    };
    spec.seed = u64::from(config.random_seed.unwrap_or_default());
    let limits = &mut spec.limits;
    let asked = &config.resource_limits;
    limits.max_parallel_jobs = asked.max_parallel_training_jobs as usize;
    limits.max_run_seconds = asked.max_runtime_in_seconds.map(f64::from);
    if let Some(criteria) = &config.tuning_job_completion_criteria {
        limits.target = criteria.target_objective_metric_value;
        let not_improving = criteria.best_objective_not_improving;
        limits.max_jobs_without_improvement = not_improving
            .and_then(|jobs| jobs.max_number_of_training_jobs_not_improving)
            .map(|jobs| jobs as usize);
        let convergence = criteria.convergence_detected.as_ref();
        limits.until_converged = convergence.is_some_and(|one| one.complete_on_convergence == "Enabled");
    }
    if let Some(config) = &config.strategy_config {
        spec.rungs = Some(Rungs {
            min_steps: u64::from(config.hyperband.min_resource),
            max_steps: u64::from(config.hyperband.max_resource),
            reduction: 3,
        });
    }
    if config.training_job_early_stopping_type == EarlyStoppingType::Auto {
        spec.early_stopping.rule = Rule::Auto;
    }
    spec.limits.max_jobs = match asked.max_number_of_training_jobs {
        Some(jobs) => jobs as usize,
        // A grid has as many as it has combinations.
        None => spec
            .check()?
            .count()
            .map_or(spec.limits.max_jobs, |count| count as usize),
    };
    if let Some(warm) = &job.warm_start_config {
        let parents = warm.parent_hyper_parameter_tuning_jobs.iter();
        spec.warm_start = Some(WarmStart {
            kind: match warm.warm_start_type {
                WarmStartType::IdenticalDataAndAlgorithm => Kind::IdenticalDataAndAlgorithm,
                WarmStartType::TransferLearning => Kind::TransferLearning,
            },
            parents: parents
                .map(|parent| (&parent.hyper_parameter_tuning_job_name).into())
                .collect(),
        });
        left.push(
            "the parents of its warm start are tuning jobs, which only --native can build upon; a study of our own wants folders"
                .to_owned(),
        );
    }
    Ok(spec)
}
