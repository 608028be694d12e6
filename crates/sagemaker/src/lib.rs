//! Training jobs on SageMaker: requests as types that are checked before anything is sent, and the calls.
//!
//! ```text
//! job.toml ──► Job ──► Plan::new ──┬──► CreateTrainingJob ──► check ──┐
//!            with [sagemaker]      └──► Source ──► upload ────────────┴──► Client::create ──► SageMaker
//!                                                  to the bucket           describe, list, stop ◄──►
//!                                                                          lines ◄──── CloudWatch
//!                                                                  follow: states and lines to the end
//! ```
//!
//! [`Plan`] is the translation, a pure function that reads no file and asks no one. [`CreateTrainingJob`] is data:
//! serde writes it as SageMaker's API reads it. [`CreateTrainingJob::check`] finds what SageMaker would refuse, and
//! names the field. A [`Client`] sends it. `stokehold_objects::Service` signs and sends, with the credentials that
//! buckets are opened with; this crate adds the types, the retries and what an answer means.
//!
//! [`Imported`] is the way back: from a job's description to a job file. [`Cost`] bounds what a job costs, by prices that the
//! user gives.
//!
//! # When the network fails
//! A name is a token: within an account and region there is never a second job of the same name. So after a
//! request without an answer, [`Client::create`] asks for the name, and sends the request again if there is no such
//! job. It returns the job, or says that there is none, or that it does not know ([`SageMakerError::Unclear`]): nothing could
//! be asked until the end, or a request without an answer may still arrive. The same name then makes no second job: it
//! creates the job, or [is taken](SageMakerError::NameTaken).
//!
//! # What was tested
//! The tests hold every request to botocore's model of the API, signatures to botocore's, hyperparameters to the
//! decoder of SageMaker's training toolkit, the code's archive to the toolkit, and the calls to moto's server.
//! Throttling, faults, silence and expired credentials come from a server of the tests. No request was ever answered
//! by SageMaker itself.
//!
//! ```
//! use stokehold_sagemaker::CreateTrainingJob;
//!
//! let mut request =
//!     CreateTrainingJob::new("flowers-1", "arn:aws:iam::123456789012:role/trains", "s3://bucket/out");
//! request.algorithm_specification.training_image = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/train:1".into();
//! request.resource_config.instance_type = "ml.g5.xlarge".into();
//! request.check()?;
//! assert_eq!(serde_json::to_value(&request)?["ResourceConfig"]["InstanceCount"], 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod check;
mod client;
mod cost;
mod error;
mod follow;
mod hyperparameters;
mod image;
mod import;
mod plan;
mod request;
mod secret;
pub mod section;
mod source;

pub use answer::{
    JobStatus, Machines, MetricData, ModelArtifacts, ProfilerPlace, StatusTransition, TrainingJob,
    TrainingJobSummary,
};
pub use check::RequestError;
pub use client::{Client, LogLine, LogPosition};
pub use cost::{Cost, PricedMachines};
pub use error::{SageMakerError, followed};
pub use follow::{News, follow};
pub use hyperparameters::encode_hyperparameters;
pub use import::{ImportError, Imported};
pub use plan::Plan;
pub use request::{
    AlgorithmSpecification, Channel, CheckpointConfig, CompressionType, CreateTrainingJob, DataSource,
    Distribution, FileSystemAccess, FileSystemDataSource, FileSystemType, InputMode, InstanceGroup,
    MetricDefinition, OutputDataConfig, ProfilerConfig, RecordWrapper, ResourceConfig, S3DataSource,
    S3DataType, ShuffleConfig, StoppingCondition, Tag, VpcConfig,
};
pub use source::Source;

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
