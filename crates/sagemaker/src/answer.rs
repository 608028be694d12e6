//! What SageMaker and CloudWatch answer, as far as it is used.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::check::is_secret_text;

use crate::InstanceGroup;

/// A job's state, in SageMaker's coarse terms.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobStatus {
    /// It runs, or waits for machines.
    InProgress,
    /// It ended by itself.
    Completed,
    /// It failed.
    Failed,
    /// It is being stopped.
    Stopping,
    /// It was stopped, or its time was over.
    Stopped,
    /// A word that is not known here.
    #[serde(untagged)]
    Other(String),
}

impl fmt::Display for JobStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Other(word) => f.write_str(word),
            known => write!(f, "{known:?}"),
        }
    }
}

impl JobStatus {
    /// Whether it never changes again.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Stopped)
    }
}

/// A training job, as DescribeTrainingJob tells it. Times are unix seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TrainingJob {
    /// The name.
    pub training_job_name: String,
    /// `arn:aws:sagemaker:..`.
    pub training_job_arn: String,
    /// The state.
    pub training_job_status: JobStatus,
    /// The finer state: `Starting`, `Downloading`, `Training`, `MaxRuntimeExceeded`, ..
    pub secondary_status: String,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// The states it had.
    #[serde(default)]
    pub secondary_status_transitions: Vec<StatusTransition>,
    /// When it was asked for.
    pub creation_time: f64,
    /// When its machines were there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training_start_time: Option<f64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training_end_time: Option<f64>,
    /// Seconds with machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training_time_in_seconds: Option<f64>,
    /// Seconds that are billed, at the full price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub billable_time_in_seconds: Option<f64>,
    /// Whether it may have spot machines.
    #[serde(default)]
    pub enable_managed_spot_training: bool,
    /// The last value of each metric.
    #[serde(default)]
    pub final_metric_data_list: Vec<MetricData>,
    /// Where the model is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_artifacts: Option<ModelArtifacts>,
    /// Where the profiler's files are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profiler_config: Option<ProfilerPlace>,
    /// The role it has.
    #[serde(default)]
    pub role_arn: String,
    /// The hyperparameters, encoded.
    #[serde(default)]
    pub hyper_parameters: BTreeMap<String, String>,
    /// What it runs on.
    #[serde(default)]
    pub resource_config: Machines,
}

impl TrainingJob {
    /// What spot machines saved, `1 - billable / training`, 0 to 1; none without spot machines or before the end.
    pub fn savings(&self) -> Option<f64> {
        let (training, billable) = (self.training_time_in_seconds?, self.billable_time_in_seconds?);
        (self.enable_managed_spot_training && training > 0.0).then(|| 1.0 - billable / training)
    }

    /// Whether its time was over: that of the run, or that of waiting for spot machines.
    pub fn is_late(&self) -> bool {
        matches!(
            self.secondary_status.as_str(),
            "MaxRuntimeExceeded" | "MaxWaitTimeExceeded"
        )
    }

    /// The same with `(hidden)` for each hyperparameter that looks like a secret.
    #[must_use]
    pub fn without_secrets(&self) -> Self {
        let mut job = self.clone();
        for (name, text) in &mut job.hyper_parameters {
            if is_secret_text(name, text) {
                "(hidden)".clone_into(text);
            }
        }
        job
    }
}

/// A state that a job had.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct StatusTransition {
    /// The finer state.
    pub status: String,
    /// Since when, unix seconds.
    pub start_time: f64,
    /// What SageMaker says about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_message: Option<String>,
}

/// The last value of a metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct MetricData {
    /// Its name.
    pub metric_name: String,
    /// The value. It may be no number, or infinite; as JSON it is null then.
    #[serde(deserialize_with = "number")]
    pub value: f64,
}

/// JSON has no word for what is no number, so AWS writes a text: `"NaN"`, `"Infinity"`, `"-Infinity"`.
fn number<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum NumberOrText {
        Number(f64),
        Text(String),
    }
    match NumberOrText::deserialize(from)? {
        NumberOrText::Number(value) => Ok(value),
        NumberOrText::Text(text) => text.parse().map_err(serde::de::Error::custom),
    }
}

/// Where the model is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ModelArtifacts {
    /// `s3://.../model.tar.gz`. It is there once the job has completed.
    pub s3_model_artifacts: String,
}

/// Where the profiler's files are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct ProfilerPlace {
    /// `s3://BUCKET/PREFIX`; the files are below the job's name.
    #[serde(default, rename = "S3OutputPath", skip_serializing_if = "Option::is_none")]
    pub s3_output_path: Option<String>,
}

/// What a job runs on.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Machines {
    /// The type.
    #[serde(default)]
    pub instance_type: String,
    /// How many.
    #[serde(default)]
    pub instance_count: u32,
    /// Groups of machines of different types, in place of both.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instance_groups: Vec<InstanceGroup>,
}

/// A training job of a list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TrainingJobSummary {
    /// The name.
    pub training_job_name: String,
    /// The state.
    pub training_job_status: JobStatus,
    /// When it was asked for, unix seconds.
    pub creation_time: f64,
    /// When it ended, unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub training_end_time: Option<f64>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Created {
    #[serde(rename = "TrainingJobArn")]
    pub arn: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct JobsPage {
    pub training_job_summaries: Vec<TrainingJobSummary>,
    pub next_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StreamsPage {
    #[serde(default)]
    pub log_streams: Vec<Stream>,
    pub next_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Stream {
    pub log_stream_name: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventsPage {
    #[serde(default)]
    pub events: Vec<Event>,
    pub next_forward_token: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Event {
    /// Unix milliseconds.
    #[serde(default)]
    pub timestamp: i64,
    #[serde(default)]
    pub message: String,
}
