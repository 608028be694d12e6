//! A study as one tuning job of SageMaker's, and back.

use std::collections::BTreeMap;

use serde_json::{Number, Value};
use stokehold_jobs::{Decoded, decode_hyperparameter};
use stokehold_sagemaker::{
    CategoricalRange, CompletionCriteria, Convergence, CreateTuningJob, EarlyStoppingType, Hyperband,
    HyperbandConfig, JobDefinition, NotImproving, NumberRange, Objective, ObjectiveType, ParameterRanges,
    ParentJob, Plan as Request, ResourceLimits, SageMakerError, ScalingType, Source, TuningJobConfig,
    TuningStrategy, WarmStart, WarmStartType, encode_hyperparameters,
};

use super::kept::unique;
use crate::error::input;
use crate::{
    Direction, EarlyStopping, JOURNAL, Kind, Limits, MOST_CATEGORIES, Parameter, Plan, Range, Rule, Scaling,
    Spec, Strategy, Take, TuneError, Values,
};

/// What is sent for a study that SageMaker tunes itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Native {
    /// The request.
    pub request: CreateTuningJob,
    /// The code.
    pub source: Source,
    /// Where the code goes, or is: `s3://..`.
    pub source_uri: String,
    /// What has another meaning there, a sentence each.
    pub notes: Vec<String>,
}

/// The reduction of SageMaker's Hyperband, which cannot be chosen.
const REDUCTION: u64 = 3;

impl Native {
    /// A name for a tuning job, unlike any other: `flowers-0123abcd`.
    #[must_use]
    pub fn name(study: &str) -> String {
        unique(study, 23)
    }

    /// Translates a study. `name` is the tuning job's, `region` where it runs. Asks nobody.
    ///
    /// # Errors
    /// [`TuneError::Input`] names everything that SageMaker's tuning has no counterpart of.
    pub fn new(plan: &Plan, name: &str, region: &str) -> Result<Self, TuneError> {
        CreateTuningJob::check_name(name).map_err(SageMakerError::from)?;
        let spec = &plan.study;
        spec.check()?;
        let without = without_counterpart(plan);
        if !without.is_empty() {
            return input(format!(
                "SageMaker's own tuning has no counterpart of {}; change these, or leave --native out",
                without.join("; ")
            ));
        }
        let mut job = plan.job.clone();
        let mut ranges = ParameterRanges::default();
        for (name, parameter) in &spec.parameters {
            match &parameter.range {
                Range::Static { value } => drop(job.hyperparameters.insert(name.clone(), value.clone())),
                // SageMaker's value takes the place of the job's own, as here.
                range => {
                    job.hyperparameters.remove(name);
                    add(&mut ranges, name, range, spec.strategy);
                }
            }
        }
        let sent = Request::new(&job, name, region)?;
        let mut notes = sent.notes;
        let mut definition = JobDefinition::from(sent.request.clone());
        if definition
            .resource_config
            .keep_alive_period_in_seconds
            .take()
            .is_some()
        {
            notes.push("[sagemaker] keep-alive-seconds has no counterpart in a tuning job: its machines are not kept".to_owned());
        }
        if plan.job.profile {
            notes.push(
                "profile has no counterpart in a tuning job: its training jobs are not recorded".to_owned(),
            );
        }
        if plan.job.checkpoints.is_some() {
            notes.push(
                "checkpoints: all training jobs of a tuning job are given the same place, so let the script write below its own \
                 name (TRAINING_JOB_NAME)"
                    .to_owned(),
            );
        }
        let request = CreateTuningJob {
            hyper_parameter_tuning_job_name: name.to_owned(),
            hyper_parameter_tuning_job_config: config(spec, ranges)?,
            training_job_definition: definition,
            warm_start_config: spec.warm_start.as_ref().map(|warm| WarmStart {
                parent_hyper_parameter_tuning_jobs: warm
                    .parents
                    .iter()
                    .map(|parent| ParentJob {
                        hyper_parameter_tuning_job_name: last_part(parent),
                    })
                    .collect(),
                warm_start_type: match warm.kind {
                    Kind::IdenticalDataAndAlgorithm => WarmStartType::IdenticalDataAndAlgorithm,
                    Kind::TransferLearning => WarmStartType::TransferLearning,
                },
            }),
            tags: sent.request.tags,
        };
        request.check().map_err(SageMakerError::from)?;
        Ok(Self {
            request,
            source: sent.source,
            source_uri: sent.source_uri,
            notes,
        })
    }
}

fn last_part(path: &std::path::Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// What SageMaker's tuning does not have, each in some words.
fn without_counterpart(plan: &Plan) -> Vec<String> {
    let spec = &plan.study;
    let Limits { max_failed_jobs, .. } = Limits::default();
    let EarlyStopping {
        against,
        grace_reports,
        min_trials,
        ..
    } = EarlyStopping::default();
    let stopping = &spec.early_stopping;
    let is_auto = stopping.rule == Rule::Auto;
    let mut found: Vec<String> = [
        (spec.strategy == Strategy::Tpe, "strategy = \"tpe\""),
        (spec.take != Take::Last, "take (the last value counts)"),
        (!spec.enqueue.is_empty(), "enqueue"),
        (stopping.rule == Rule::Asha, "early stopping by \"asha\""),
        (is_auto && stopping.against != against, "against = \"completed\""),
        (
            is_auto && stopping.grace_reports != grace_reports,
            "grace-reports",
        ),
        (is_auto && stopping.min_trials != min_trials, "min-trials"),
        (spec.limits.max_failed_jobs != max_failed_jobs, "max-failed-jobs"),
        (spec.seed > i32::MAX as u64, "a seed above 2147483647"),
        (
            plan.timeline,
            "timeline (name the objective among the job's metrics)",
        ),
        (
            plan.metrics_file.is_some(),
            "metrics-file (name the objective among the job's metrics)",
        ),
        (
            !plan.prepare.is_empty(),
            "prepare (SageMaker cannot read shards of this machine)",
        ),
    ]
    .into_iter()
    .filter(|(is_said, _)| *is_said)
    .map(|(_, what)| what.to_owned())
    .collect();
    if let Some(rungs) = spec.rungs.as_ref().filter(|rungs| rungs.reduction != REDUCTION) {
        found.push(format!(
            "reduction = {} (it is always {REDUCTION})",
            rungs.reduction
        ));
    }
    if spec.strategy == Strategy::Grid
        && let Some(count) = spec.check().ok().and_then(|space| space.count())
        && (spec.limits.max_jobs as u64) < count
    {
        found.push(format!(
            "max-jobs = {} below the {count} combinations of a grid",
            spec.limits.max_jobs
        ));
    }
    for (name, parameter) in &spec.parameters {
        if parameter.when.is_some() {
            found.push(format!("when of parameter {name}"));
        }
        match &parameter.range {
            Range::Categorical { values } if values.len() > MOST_CATEGORIES => {
                found.push(format!(
                    "the {} values of parameter {name} (at most {MOST_CATEGORIES})",
                    values.len()
                ));
            }
            Range::Integer { min, max, .. }
                if spec.strategy == Strategy::Grid && max.abs_diff(*min) >= MOST_CATEGORIES as u64 =>
            {
                found.push(format!(
                    "the {} whole numbers of parameter {name} in a grid (at most {MOST_CATEGORIES})",
                    max.abs_diff(*min).saturating_add(1)
                ));
            }
            _ => {}
        }
    }
    for name in plan.placed() {
        found.push(format!("{{{name}}} in a hyperparameter or variable"));
    }
    if let Some(warm) = &spec.warm_start {
        for parent in warm.parents.iter().filter(|parent| parent.join(JOURNAL).exists()) {
            found.push(format!(
                "a parent that is a study of this machine, {} (its parents are tuning jobs: write the name of one)",
                parent.display()
            ));
        }
    }
    found
}

fn add(ranges: &mut ParameterRanges, name: &str, range: &Range, strategy: Strategy) {
    let number = |min: String, max: String, scaling| NumberRange {
        name: name.to_owned(),
        min_value: min,
        max_value: max,
        scaling_type: match scaling {
            Scaling::Auto => ScalingType::Auto,
            Scaling::Linear => ScalingType::Linear,
            Scaling::Logarithmic => ScalingType::Logarithmic,
            Scaling::ReverseLogarithmic => ScalingType::ReverseLogarithmic,
        },
    };
    let mut categories = |values: Vec<String>| {
        ranges.categorical_parameter_ranges.push(CategoricalRange {
            name: name.to_owned(),
            values,
        });
    };
    match range {
        // A grid there has categories only.
        Range::Integer { min, max, .. } if strategy == Strategy::Grid => {
            categories((*min..=*max).map(|value| value.to_string()).collect());
        }
        Range::Categorical { values } => categories(values.iter().map(encoded).collect()),
        Range::Integer { min, max, scaling } => {
            let range = number(min.to_string(), max.to_string(), *scaling);
            ranges.integer_parameter_ranges.push(range);
        }
        Range::Continuous { min, max, scaling } => {
            let range = number(min.to_string(), max.to_string(), *scaling);
            ranges.continuous_parameter_ranges.push(range);
        }
        Range::Static { .. } => {}
    }
}

/// A value as the training toolkit decodes it.
fn encoded(value: &Value) -> String {
    let one = BTreeMap::from([(String::new(), value.clone())]);
    encode_hyperparameters(&one).remove("").unwrap_or_default()
}

fn config(spec: &Spec, ranges: ParameterRanges) -> Result<TuningJobConfig, TuneError> {
    let limits = &spec.limits;
    let whole = |what: &str, value: u64| match i32::try_from(value) {
        Ok(value) => Ok(value.unsigned_abs()),
        Err(_) => input(format!(
            "{what} = {value} is more than SageMaker takes, {}",
            i32::MAX
        )),
    };
    let hyperband = match (spec.strategy, &spec.rungs) {
        (Strategy::Hyperband, Some(rungs)) => Some(HyperbandConfig {
            hyperband: Hyperband {
                min_resource: whole("min-steps", rungs.min_steps)?,
                max_resource: whole("max-steps", rungs.max_steps)?,
            },
        }),
        _ => None,
    };
    let not_improving = limits.max_jobs_without_improvement;
    let criteria = CompletionCriteria {
        target_objective_metric_value: limits.target,
        best_objective_not_improving: match not_improving {
            Some(jobs) => Some(NotImproving {
                max_number_of_training_jobs_not_improving: Some(whole(
                    "max-jobs-without-improvement",
                    jobs as u64,
                )?),
            }),
            None => None,
        },
        convergence_detected: limits.until_converged.then(|| Convergence {
            complete_on_convergence: "Enabled".to_owned(),
        }),
    };
    Ok(TuningJobConfig {
        strategy: match spec.strategy {
            Strategy::Random => TuningStrategy::Random,
            Strategy::Grid => TuningStrategy::Grid,
            Strategy::Hyperband => TuningStrategy::Hyperband,
            // The second is refused before.
            Strategy::Bayesian | Strategy::Tpe => TuningStrategy::Bayesian,
        },
        strategy_config: hyperband,
        hyper_parameter_tuning_job_objective: Some(Objective {
            r#type: match spec.direction {
                Direction::Minimize => ObjectiveType::Minimize,
                Direction::Maximize => ObjectiveType::Maximize,
            },
            metric_name: spec.objective.clone(),
        }),
        resource_limits: ResourceLimits {
            // A grid has as many as it has combinations, and takes no other number.
            max_number_of_training_jobs: match spec.strategy {
                Strategy::Grid => None,
                _ => Some(whole("max-jobs", limits.max_jobs as u64)?),
            },
            max_parallel_training_jobs: whole("max-parallel-jobs", limits.max_parallel_jobs as u64)?,
            max_runtime_in_seconds: match limits.max_run_seconds {
                Some(seconds) => Some(whole("max-run-seconds", seconds.ceil() as u64)?),
                None => None,
            },
        },
        parameter_ranges: ranges,
        training_job_early_stopping_type: match spec.early_stopping.rule {
            Rule::Auto => EarlyStoppingType::Auto,
            Rule::Off | Rule::Asha => EarlyStoppingType::Off,
        },
        tuning_job_completion_criteria: (criteria != CompletionCriteria::default()).then_some(criteria),
        random_seed: Some(whole("seed", spec.seed)?),
    })
}

/// The values of a training job of a tuning job, as the study's parameters have them.
#[must_use]
pub fn decoded(tuned: &BTreeMap<String, String>) -> Values {
    tuned
        .iter()
        .map(|(name, text)| (name.clone(), decode_hyperparameter(text).into_value()))
        .collect()
}

/// What a tuning job says of its parameters, ranges first. A sentence is added to `left` for what a study file has not.
pub(super) fn parameters(
    ranges: &ParameterRanges,
    left: &mut Vec<String>,
) -> Result<BTreeMap<String, Parameter>, TuneError> {
    let mut all = BTreeMap::new();
    let scaling = |scaling| match scaling {
        ScalingType::Auto => Scaling::Auto,
        ScalingType::Linear => Scaling::Linear,
        ScalingType::Logarithmic => Scaling::Logarithmic,
        ScalingType::ReverseLogarithmic => Scaling::ReverseLogarithmic,
    };
    for range in &ranges.continuous_parameter_ranges {
        let end = |text: &str| match text.trim().parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number),
            _ => input(format!(
                "the range of {} ends at '{text}', which is no number",
                range.name
            )),
        };
        let range_here = Range::Continuous {
            min: end(&range.min_value)?,
            max: end(&range.max_value)?,
            scaling: scaling(range.scaling_type),
        };
        all.insert(range.name.clone(), range_here.into());
    }
    for range in &ranges.integer_parameter_ranges {
        let end = |text: &str| match text.trim().parse::<i64>() {
            Ok(number) => Ok(number),
            Err(_) => input(format!(
                "the range of {} ends at '{text}', which is no whole number",
                range.name
            )),
        };
        let range_here = Range::Integer {
            min: end(&range.min_value)?,
            max: end(&range.max_value)?,
            scaling: scaling(range.scaling_type),
        };
        all.insert(range.name.clone(), range_here.into());
    }
    for range in &ranges.categorical_parameter_ranges {
        let mut values = Vec::new();
        for text in &range.values {
            let is_large = |number: &Number| number.is_u64() && number.as_i64().is_none();
            let own = match decode_hyperparameter(text) {
                Decoded::Value(Value::Number(number)) if is_large(&number) => number.to_string(),
                Decoded::Text(own) => own,
                Decoded::Value(Value::Null | Value::Array(_) | Value::Object(_)) => {
                    values.push(text.as_str().into());
                    continue;
                }
                Decoded::Value(value) => {
                    values.push(value);
                    continue;
                }
            };
            left.push(format!(
                "parameter {}: a study file has no number {text}, so it is a text; the script's argument is the same",
                range.name
            ));
            values.push(own.into());
        }
        all.insert(range.name.clone(), Range::Categorical { values }.into());
    }
    Ok(all)
}
