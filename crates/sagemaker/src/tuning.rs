//! Jobs that tune hyperparameters: CreateHyperParameterTuningJob's members under SageMaker's names, what SageMaker would
//! refuse of them, and what it answers.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::check::{check_hyperparameters, is_name};
use crate::request::is_false;
use crate::{
    AlgorithmSpecification, Channel, CheckpointConfig, CreateTrainingJob, JobStatus, OutputDataConfig,
    RequestError, ResourceConfig, StoppingCondition, Tag, VpcConfig, answer,
};

/// The request CreateHyperParameterTuningJob. Members that are `None` or empty are left out of the JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct CreateTuningJob {
    /// 1 to 32 letters, digits and hyphens; unique within the account and region.
    pub hyper_parameter_tuning_job_name: String,
    /// What is tuned, and how.
    pub hyper_parameter_tuning_job_config: TuningJobConfig,
    /// What runs.
    pub training_job_definition: JobDefinition,
    /// Earlier tuning jobs that it builds on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warm_start_config: Option<WarmStart>,
    /// Labels for the account's own order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
}

/// What is tuned, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TuningJobConfig {
    /// How values are chosen.
    pub strategy: TuningStrategy,
    /// What the strategy wants to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy_config: Option<HyperbandConfig>,
    /// What is tuned for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hyper_parameter_tuning_job_objective: Option<Objective>,
    /// How much is tried.
    pub resource_limits: ResourceLimits,
    /// The hyperparameters that are tuned.
    #[serde(default)]
    pub parameter_ranges: ParameterRanges,
    /// Whether hopeless training jobs are stopped.
    #[serde(default)]
    pub training_job_early_stopping_type: EarlyStoppingType,
    /// When it is over before its limits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tuning_job_completion_criteria: Option<CompletionCriteria>,
    /// What random choices are made of, 0 to 2³¹ - 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_seed: Option<u32>,
}

/// How values are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TuningStrategy {
    /// By a model of the results so far.
    Bayesian,
    /// At random.
    Random,
    /// At random, and most training jobs are stopped early.
    Hyperband,
    /// Every combination of categories.
    Grid,
}

/// What the strategy Hyperband wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HyperbandConfig {
    /// Its resources.
    #[serde(rename = "HyperbandStrategyConfig")]
    pub hyperband: Hyperband,
}

/// Hyperband's resources: numbers of times that the objective is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Hyperband {
    /// No training job is stopped earlier.
    pub min_resource: u32,
    /// That of a whole training job.
    pub max_resource: u32,
}

/// What is tuned for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Objective {
    /// Which values are better.
    pub r#type: ObjectiveType,
    /// One of the metrics' names.
    pub metric_name: String,
}

/// Which values are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ObjectiveType {
    /// The larger.
    Maximize,
    /// The smaller.
    Minimize,
}

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ResourceLimits {
    /// Training jobs in all; none for a grid, which has its own number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_number_of_training_jobs: Option<u32>,
    /// Training jobs at once.
    pub max_parallel_training_jobs: u32,
    /// Seconds from the start, 120 to 15768000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_runtime_in_seconds: Option<u32>,
}

/// The hyperparameters that are tuned, at most 30 of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct ParameterRanges {
    /// Whole numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub integer_parameter_ranges: Vec<NumberRange>,
    /// Numbers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub continuous_parameter_ranges: Vec<NumberRange>,
    /// One of some values.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub categorical_parameter_ranges: Vec<CategoricalRange>,
}

/// Numbers between two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NumberRange {
    /// The hyperparameter's name.
    pub name: String,
    /// The least number, as a text.
    pub min_value: String,
    /// The greatest number, as a text.
    pub max_value: String,
    /// How distances are measured.
    #[serde(default)]
    pub scaling_type: ScalingType,
}

/// How distances are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScalingType {
    /// SageMaker chooses.
    #[default]
    Auto,
    /// By difference.
    Linear,
    /// By ratio.
    Logarithmic,
    /// By the ratio of `1 - x`.
    ReverseLogarithmic,
}

/// One of some values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct CategoricalRange {
    /// The hyperparameter's name.
    pub name: String,
    /// 1 to 30 values, each as JSON for the training toolkit.
    pub values: Vec<String>,
}

/// Whether hopeless training jobs are stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum EarlyStoppingType {
    /// Each runs to its end.
    #[default]
    Off,
    /// Those that are worse than the median of the others.
    Auto,
}

/// When it is over before its limits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CompletionCriteria {
    /// An objective that is good enough.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_objective_metric_value: Option<f64>,
    /// The last training jobs made nothing better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_objective_not_improving: Option<NotImproving>,
    /// The model expects nothing better.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub convergence_detected: Option<Convergence>,
}

/// The last training jobs made nothing better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct NotImproving {
    /// How many, at least 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_number_of_training_jobs_not_improving: Option<u32>,
}

/// Whether it ends when the model expects nothing better.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Convergence {
    /// `Enabled` or `Disabled`.
    pub complete_on_convergence: String,
}

/// What runs: a training job without a name, whose hyperparameters are those that are not tuned.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct JobDefinition {
    /// The hyperparameters that are not tuned, at most 100, made by
    /// [`encode_hyperparameters`](crate::encode_hyperparameters).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub static_hyper_parameters: BTreeMap<String, String>,
    /// The image, and how lines are read.
    pub algorithm_specification: AlgorithmSpecification,
    /// The role that the jobs act as.
    pub role_arn: String,
    /// At most 20 channels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub input_data_config: Vec<Channel>,
    /// The network of the machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vpc_config: Option<VpcConfig>,
    /// Where the models go.
    pub output_data_config: OutputDataConfig,
    /// The machines of each job.
    pub resource_config: ResourceConfig,
    /// When SageMaker ends a job.
    pub stopping_condition: StoppingCondition,
    /// Whether the machines are cut off from all networks.
    #[serde(skip_serializing_if = "is_false")]
    pub enable_network_isolation: bool,
    /// Whether what machines send to each other is encrypted.
    #[serde(skip_serializing_if = "is_false")]
    pub enable_inter_container_traffic_encryption: bool,
    /// Whether the machines are spot machines.
    pub enable_managed_spot_training: bool,
    /// Where checkpoints are mirrored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint_config: Option<CheckpointConfig>,
    /// At most 48 variables.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

impl From<CreateTrainingJob> for JobDefinition {
    /// What a tuning job has of a training job: without its name, its labels and its profiler.
    fn from(job: CreateTrainingJob) -> Self {
        Self {
            static_hyper_parameters: job.hyper_parameters,
            algorithm_specification: job.algorithm_specification,
            role_arn: job.role_arn,
            input_data_config: job.input_data_config,
            vpc_config: job.vpc_config,
            output_data_config: job.output_data_config,
            resource_config: job.resource_config,
            stopping_condition: job.stopping_condition,
            enable_network_isolation: job.enable_network_isolation,
            enable_inter_container_traffic_encryption: job.enable_inter_container_traffic_encryption,
            enable_managed_spot_training: job.enable_managed_spot_training,
            checkpoint_config: job.checkpoint_config,
            environment: job.environment,
        }
    }
}

impl JobDefinition {
    fn as_job(&self, name: &str) -> CreateTrainingJob {
        let definition = self.clone();
        CreateTrainingJob {
            algorithm_specification: definition.algorithm_specification,
            hyper_parameters: definition.static_hyper_parameters,
            input_data_config: definition.input_data_config,
            output_data_config: definition.output_data_config,
            resource_config: definition.resource_config,
            stopping_condition: definition.stopping_condition,
            vpc_config: definition.vpc_config,
            enable_network_isolation: definition.enable_network_isolation,
            enable_inter_container_traffic_encryption: definition.enable_inter_container_traffic_encryption,
            enable_managed_spot_training: definition.enable_managed_spot_training,
            checkpoint_config: definition.checkpoint_config,
            environment: definition.environment,
            ..CreateTrainingJob::new(name, &self.role_arn, "")
        }
    }
}

/// Earlier tuning jobs that one builds on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct WarmStart {
    /// 1 to 5 of them.
    pub parent_hyper_parameter_tuning_jobs: Vec<ParentJob>,
    /// What it has in common with them.
    pub warm_start_type: WarmStartType,
}

/// An earlier tuning job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ParentJob {
    /// Its name.
    pub hyper_parameter_tuning_job_name: String,
}

/// What a tuning job has in common with its parents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WarmStartType {
    /// Data and algorithm.
    IdenticalDataAndAlgorithm,
    /// Not everything.
    TransferLearning,
}

impl CreateTuningJob {
    /// Finds the first member that SageMaker would refuse by its form. Whether the parents, the role, the image, the type of
    /// machine and the buckets exist, only SageMaker knows.
    ///
    /// # Errors
    /// The name, a range, a limit, or a member of the training jobs is not as SageMaker wants it.
    pub fn check(&self) -> Result<(), RequestError> {
        let wrong = |member: &str, reason: String| {
            Err(RequestError {
                member: member.to_owned(),
                reason,
            })
        };
        let name = &self.hyper_parameter_tuning_job_name;
        Self::check_name(name)?;
        let mut job = self.training_job_definition.as_job(name);
        job.tags.clone_from(&self.tags);
        job.check().map_err(|error| RequestError {
            member: format!("TrainingJobDefinition.{}", error.member),
            reason: error.reason,
        })?;
        let variables = job.environment.len();
        if variables > 48 {
            return wrong(
                "TrainingJobDefinition.Environment",
                format!("has {variables} entries; SageMaker takes at most 48 of a tuning job"),
            );
        }
        let config = &self.hyper_parameter_tuning_job_config;
        match &config.hyper_parameter_tuning_job_objective {
            None => {
                return wrong(
                    "HyperParameterTuningJobObjective",
                    "is missing; name a metric".to_owned(),
                );
            }
            Some(objective) => {
                let metrics = &job.algorithm_specification.metric_definitions;
                if !metrics.iter().any(|metric| metric.name == objective.metric_name) {
                    let reason = format!(
                        "'{}' is none of the metrics; give it a definition",
                        objective.metric_name
                    );
                    return wrong("HyperParameterTuningJobObjective.MetricName", reason);
                }
            }
        }
        check_limits(config)?;
        self.check_ranges()?;
        if let Some(warm) = &self.warm_start_config {
            let parents = &warm.parent_hyper_parameter_tuning_jobs;
            if !(1..=5).contains(&parents.len()) {
                return wrong(
                    "WarmStartConfig",
                    format!("has {} parents; give 1 to 5", parents.len()),
                );
            }
            if let Some(parent) = parents
                .iter()
                .find(|parent| !is_name(&parent.hyper_parameter_tuning_job_name, 32))
            {
                let reason = format!(
                    "'{}' is no tuning job's name",
                    parent.hyper_parameter_tuning_job_name
                );
                return wrong("WarmStartConfig.ParentHyperParameterTuningJobs", reason);
            }
        }
        Ok(())
    }

    /// Whether a tuning job can have this name.
    ///
    /// # Errors
    /// It is not as SageMaker wants it.
    pub fn check_name(name: &str) -> Result<(), RequestError> {
        match is_name(name, 32) {
            true => Ok(()),
            false => Err(RequestError {
                member: "HyperParameterTuningJobName".to_owned(),
                reason: format!(
                    "'{name}' is not 1 to 32 letters, digits and hyphens between them; choose another name"
                ),
            }),
        }
    }

    fn check_ranges(&self) -> Result<(), RequestError> {
        let wrong = |member: &str, reason: String| {
            Err(RequestError {
                member: format!("ParameterRanges{member}"),
                reason,
            })
        };
        let ranges = &self.hyper_parameter_tuning_job_config.parameter_ranges;
        let kinds = [
            ranges.integer_parameter_ranges.len(),
            ranges.continuous_parameter_ranges.len(),
            ranges.categorical_parameter_ranges.len(),
        ];
        if kinds.iter().any(|count| *count > 30) {
            return wrong(
                "",
                "has more than 30 hyperparameters of a kind; tune fewer".to_owned(),
            );
        }
        if kinds.iter().sum::<usize>() == 0 {
            return wrong("", "is empty; give a hyperparameter a range".to_owned());
        }
        let numbers = ranges
            .integer_parameter_ranges
            .iter()
            .chain(&ranges.continuous_parameter_ranges);
        let mut names = BTreeSet::new();
        for name in numbers.map(|range| &range.name).chain(
            ranges
                .categorical_parameter_ranges
                .iter()
                .map(|range| &range.name),
        ) {
            let is_static = self
                .training_job_definition
                .static_hyper_parameters
                .contains_key(name);
            if is_static || !names.insert(name) {
                return wrong(&format!(".{name}"), "is given twice; leave one out".to_owned());
            }
            if name.chars().count() > 256 {
                return wrong(
                    &format!(".{name}"),
                    "has a name of more than 256 characters".to_owned(),
                );
            }
        }
        for range in &ranges.categorical_parameter_ranges {
            let member = format!(".{}", range.name);
            if !(1..=30).contains(&range.values.len()) {
                return wrong(
                    &member,
                    format!("has {} values; give 1 to 30", range.values.len()),
                );
            }
            if range.values.iter().any(|value| value.chars().count() > 256) {
                return wrong(
                    &member,
                    "has a value of more than 256 characters as JSON".to_owned(),
                );
            }
            for value in &range.values {
                check_hyperparameters(&BTreeMap::from([(range.name.clone(), value.clone())]))?;
            }
        }
        Ok(())
    }
}

fn check_limits(config: &TuningJobConfig) -> Result<(), RequestError> {
    let wrong = |member: &str, reason: String| {
        Err(RequestError {
            member: member.to_owned(),
            reason,
        })
    };
    let limits = &config.resource_limits;
    if limits.max_parallel_training_jobs == 0 || limits.max_number_of_training_jobs == Some(0) {
        return wrong(
            "ResourceLimits",
            "has 0 training jobs; allow at least 1".to_owned(),
        );
    }
    if let Some(seconds) = limits
        .max_runtime_in_seconds
        .filter(|seconds| !(120..=15_768_000).contains(seconds))
    {
        let reason = format!("is {seconds}; SageMaker takes 120 to 15768000 s");
        return wrong("ResourceLimits.MaxRuntimeInSeconds", reason);
    }
    if config.random_seed.is_some_and(|seed| seed > i32::MAX as u32) {
        return wrong(
            "RandomSeed",
            format!("is more than SageMaker takes, {}", i32::MAX),
        );
    }
    match (config.strategy, &config.strategy_config) {
        (TuningStrategy::Hyperband, Some(HyperbandConfig { hyperband })) => {
            if hyperband.min_resource == 0 || hyperband.min_resource >= hyperband.max_resource {
                let reason = format!(
                    "MinResource = {} is not between 1 and MaxResource = {}",
                    hyperband.min_resource, hyperband.max_resource
                );
                return wrong("StrategyConfig.HyperbandStrategyConfig", reason);
            }
            if config.training_job_early_stopping_type == EarlyStoppingType::Auto {
                let reason = "Hyperband stops training jobs itself; turn it off".to_owned();
                return wrong("TrainingJobEarlyStoppingType", reason);
            }
        }
        (TuningStrategy::Hyperband, None) => {
            return wrong(
                "StrategyConfig",
                "Hyperband wants MinResource and MaxResource; give them".to_owned(),
            );
        }
        (_, Some(_)) => return wrong("StrategyConfig", "is for Hyperband; leave it out".to_owned()),
        (_, None) => {}
    }
    let ranges = &config.parameter_ranges;
    let has_numbers =
        !ranges.integer_parameter_ranges.is_empty() || !ranges.continuous_parameter_ranges.is_empty();
    if config.strategy == TuningStrategy::Grid && has_numbers {
        return wrong(
            "ParameterRanges",
            "a grid is of categories only; list the values".to_owned(),
        );
    }
    let criteria = config.tuning_job_completion_criteria.as_ref();
    let jobs = criteria.and_then(|criteria| criteria.best_objective_not_improving);
    if let Some(jobs) = jobs.and_then(|jobs| jobs.max_number_of_training_jobs_not_improving)
        && jobs < 3
    {
        let reason = format!("is {jobs}; SageMaker takes at least 3");
        return wrong(
            "BestObjectiveNotImproving.MaxNumberOfTrainingJobsNotImproving",
            reason,
        );
    }
    Ok(())
}

/// A tuning job, as DescribeHyperParameterTuningJob tells it. Times are unix seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TuningJob {
    /// The name.
    pub hyper_parameter_tuning_job_name: String,
    /// `arn:aws:sagemaker:..`.
    pub hyper_parameter_tuning_job_arn: String,
    /// The state.
    pub hyper_parameter_tuning_job_status: JobStatus,
    /// What is tuned, and how.
    pub hyper_parameter_tuning_job_config: TuningJobConfig,
    /// What runs, as SageMaker tells it.
    #[serde(default)]
    pub training_job_definition: Value,
    /// What runs, where there are several algorithms.
    #[serde(
        default,
        skip_serializing_if = "Vec::is_empty",
        deserialize_with = "or_default"
    )]
    pub training_job_definitions: Vec<Value>,
    /// When it was asked for.
    pub creation_time: f64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hyper_parameter_tuning_end_time: Option<f64>,
    /// The best training job so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_training_job: Option<TunedJob>,
    /// Earlier tuning jobs that it builds on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_start_config: Option<WarmStart>,
    /// Whether SageMaker chooses ranges and strategy itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autotune: Option<Value>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
}

/// A training job of a tuning job. Times are unix seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TunedJob {
    /// The name.
    pub training_job_name: String,
    /// The state.
    pub training_job_status: JobStatus,
    /// When it was asked for.
    pub creation_time: f64,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training_end_time: Option<f64>,
    /// The hyperparameters that are tuned, encoded.
    #[serde(default)]
    pub tuned_hyper_parameters: BTreeMap<String, String>,
    /// Its objective.
    #[serde(
        default,
        rename = "FinalHyperParameterTuningJobObjectiveMetric",
        skip_serializing_if = "Option::is_none"
    )]
    pub objective: Option<TunedValue>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
}

/// The objective of a training job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TunedValue {
    /// The metric's name.
    pub metric_name: String,
    /// The value.
    #[serde(deserialize_with = "answer::number")]
    pub value: f64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct TunedPage {
    pub training_job_summaries: Vec<TunedJob>,
    pub next_token: Option<String>,
}

/// Null is the default, too.
fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}
