//! From a tuning job's description to a study file.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use stokehold_jobs::Job;
use stokehold_sagemaker::{EarlyStoppingType, ObjectiveType, TuningJob, TuningStrategy, WarmStartType};

use super::native::{decoded, parameters};
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
    /// Translates a description.
    ///
    /// # Errors
    /// It has no study in it: several algorithms, ranges that SageMaker chooses, an image with a program of its own.
    pub fn new(job: &TuningJob) -> Result<Self, TuneError> {
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
        let mut job = Definition::new(&job.training_job_definition)?.job(&mut left)?;
        for name in job.take_secrets() {
            left.push(format!(
                "the variable {name} looks like a secret and is not written out; give it in [job.environment] if it is needed"
            ));
        }
        let plan = Plan {
            study,
            job,
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
    let mut spec = Spec::new(&objective.metric_name, parameters(&config.parameter_ranges)?);
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

/// A training job's definition, whose members are taken out one by one; those that remain are named.
struct Definition(Map<String, Value>);

impl Definition {
    fn new(value: &Value) -> Result<Self, TuneError> {
        match value.as_object() {
            Some(members) => Ok(Self(members.clone())),
            None => input("the tuning job has no TrainingJobDefinition"),
        }
    }

    /// Takes a member out, by its path.
    fn take(&mut self, path: &[&str]) -> Option<Value> {
        let (last, before) = path.split_last()?;
        let mut at = &mut self.0;
        for name in before {
            at = at.get_mut(*name)?.as_object_mut()?;
        }
        at.remove(*last).filter(|value| !value.is_null())
    }

    fn job(mut self, left: &mut Vec<String>) -> Result<Job, TuneError> {
        let encoded: BTreeMap<String, String> = match self.take(&["StaticHyperParameters"]) {
            Some(values) => {
                serde_json::from_value(values).map_err(|error| TuneError::Input(error.to_string()))?
            }
            None => BTreeMap::new(),
        };
        let mut values = decoded(&encoded);
        let mut job = Map::new();
        toolkit(&mut values, &mut job)?;
        let mut sagemaker = Map::new();
        let input_mode = self.take(&["AlgorithmSpecification", "TrainingInputMode"]);
        let metrics = self.take(&["AlgorithmSpecification", "MetricDefinitions"]);
        let metrics = metrics.as_ref().and_then(Value::as_array).into_iter().flatten();
        let metrics: Vec<Value> = metrics
            .map(|metric| json!({"name": metric["Name"], "regex": metric["Regex"]}))
            .collect();
        job.insert("metrics".to_owned(), json!(metrics));
        for (to, path) in [
            ("role", &["RoleArn"][..]),
            ("image", &["AlgorithmSpecification", "TrainingImage"]),
            ("kms-key", &["OutputDataConfig", "KmsKeyId"]),
            ("volume-gigabytes", &["ResourceConfig", "VolumeSizeInGB"]),
            ("subnets", &["VpcConfig", "Subnets"]),
            ("security-groups", &["VpcConfig", "SecurityGroupIds"]),
        ] {
            if let Some(value) = self.take(path) {
                sagemaker.insert(to.to_owned(), value);
            }
        }
        let volume_key = self.take(&["ResourceConfig", "VolumeKmsKeyId"]);
        if volume_key.is_some() && volume_key.as_ref() != sagemaker.get("kms-key") {
            left.push(
                "ResourceConfig.VolumeKmsKeyId: a job file has one key, kms-key, for disks and models"
                    .to_owned(),
            );
        }
        for (to, path) in [
            ("output", &["OutputDataConfig", "S3OutputPath"][..]),
            ("checkpoints", &["CheckpointConfig", "S3Uri"]),
            ("instance-type", &["ResourceConfig", "InstanceType"]),
            ("instances", &["ResourceConfig", "InstanceCount"]),
            ("max-run-seconds", &["StoppingCondition", "MaxRuntimeInSeconds"]),
            ("environment", &["Environment"]),
        ] {
            if let Some(value) = self.take(path) {
                job.insert(to.to_owned(), value);
            }
        }
        let wait = self.take(&["StoppingCondition", "MaxWaitTimeInSeconds"]);
        if self.take(&["EnableManagedSpotTraining"]) == Some(json!(true)) {
            job.insert(
                "spot".to_owned(),
                wait.map_or(json!({}), |wait| json!({"max-wait-seconds": wait})),
            );
        }
        self.channels(input_mode.as_ref(), &mut job, &mut sagemaker, left);
        for name in self.rest() {
            left.push(format!(
                "TrainingJobDefinition.{name} has no counterpart in a job file"
            ));
        }
        job.insert("sagemaker".to_owned(), Value::Object(sagemaker));
        // A tuning job records nothing.
        job.insert("profile".to_owned(), json!(false));
        job.insert("hyperparameters".to_owned(), json!(values));
        serde_json::from_value(Value::Object(job)).map_err(|error| {
            TuneError::Input(format!(
                "the training jobs of this tuning job make no job file: {error}"
            ))
        })
    }

    fn channels(
        &mut self,
        input_mode: Option<&Value>,
        job: &mut Map<String, Value>,
        sagemaker: &mut Map<String, Value>,
        left: &mut Vec<String>,
    ) {
        let (mut channels, mut elsewhere) = (Map::new(), Map::new());
        let all = self.take(&["InputDataConfig"]);
        for channel in all.as_ref().and_then(Value::as_array).into_iter().flatten() {
            let text = |pointer: &str| channel.pointer(pointer).and_then(Value::as_str);
            let Some(name) = text("/ChannelName") else {
                continue;
            };
            let mut table = Map::new();
            let mut put = |key: &str, value: Option<&Value>| {
                if let Some(value) = value.filter(|value| !value.is_null() && *value != "None") {
                    table.insert(key.to_owned(), value.clone());
                }
            };
            put("content-type", channel.get("ContentType"));
            if let Some(uri) = channel.pointer("/DataSource/S3DataSource/S3Uri") {
                put("uri", Some(uri));
                put("kind", channel.pointer("/DataSource/S3DataSource/S3DataType"));
                put(
                    "distribution",
                    channel.pointer("/DataSource/S3DataSource/S3DataDistributionType"),
                );
                put(
                    "attributes",
                    channel.pointer("/DataSource/S3DataSource/AttributeNames"),
                );
                put(
                    "mode",
                    channel
                        .get("InputMode")
                        .filter(|mode| !mode.is_null())
                        .or(input_mode),
                );
                put("compression", channel.get("CompressionType"));
                put("wrapper", channel.get("RecordWrapperType"));
                put("shuffle", channel.pointer("/ShuffleConfig/Seed"));
            } else if let (Some(id), Some(folder)) = (
                text("/DataSource/FileSystemDataSource/FileSystemId"),
                text("/DataSource/FileSystemDataSource/DirectoryPath"),
            ) {
                let scheme = match text("/DataSource/FileSystemDataSource/FileSystemType") {
                    Some("EFS") => "efs",
                    _ => "fsx",
                };
                elsewhere.insert(name.to_owned(), json!(format!("{scheme}://{id}{folder}")));
                let here = format!("data/{name}");
                put(
                    "access",
                    channel.pointer("/DataSource/FileSystemDataSource/FileSystemAccessMode"),
                );
                put("uri", Some(&json!(here)));
                left.push(format!("channel {name} is on a file system there: say in the file where it is here, in place of {here}"));
            }
            channels.insert(name.to_owned(), Value::Object(table));
        }
        job.insert("channels".to_owned(), Value::Object(channels));
        sagemaker.insert("channels".to_owned(), Value::Object(elsewhere));
    }

    /// The members that nobody took, by their names.
    fn rest(&self) -> Vec<String> {
        let mut found = Vec::new();
        for (name, value) in &self.0 {
            match value {
                Value::Null | Value::Bool(false) => {}
                Value::Object(members) => {
                    let members = members.iter().filter(|(_, value)| !value.is_null());
                    found.extend(members.map(|(member, _)| format!("{name}.{member}")));
                }
                Value::Array(all) if all.is_empty() => {}
                _ => found.push(name.clone()),
            }
        }
        // Every definition may have a name; a study has no use for it.
        found.retain(|name| name != "DefinitionName");
        found
    }
}

/// Turns the toolkit's own hyperparameters into keys of a job file.
fn toolkit(values: &mut BTreeMap<String, Value>, job: &mut Map<String, Value>) -> Result<(), TuneError> {
    let Some(program) = values.remove("sagemaker_program") else {
        return input(
            "the training jobs of this tuning job run a program of their image (they have no hyperparameter sagemaker_program), \
             and a job file names a script",
        );
    };
    job.insert("entry-point".to_owned(), program);
    if let Some(source) = values.remove("sagemaker_submit_directory") {
        job.insert("source-dir".to_owned(), source);
    }
    let mut is_on = |name: &str| values.remove(name) == Some(json!(true));
    let distribution = [
        (
            "smdistributed",
            is_on("sagemaker_distributed_dataparallel_enabled"),
        ),
        ("torch", is_on("sagemaker_torch_distributed_enabled")),
        ("mpi", is_on("sagemaker_mpi_enabled")),
    ];
    if let Some((name, _)) = distribution.iter().find(|(_, is_on)| *is_on) {
        job.insert("distribution".to_owned(), json!(name));
    }
    if let Some(processes) = values.remove("sagemaker_mpi_num_of_processes_per_host") {
        job.insert("processes-per-host".to_owned(), processes);
    }
    for name in [
        "_tuning_objective_metric",
        "sagemaker_container_log_level",
        "sagemaker_distributed_dataparallel_custom_mpi_options",
        "sagemaker_instance_type",
        "sagemaker_job_name",
        "sagemaker_mpi_custom_mpi_options",
        "sagemaker_region",
    ] {
        values.remove(name);
    }
    Ok(())
}
