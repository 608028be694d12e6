//! The request that starts a training job on SageMaker, as a type that is checked before anything is sent.
//!
//! ```text
//! hyperparameters ──► encode_hyperparameters ─┐
//! channels, machines, spot, profiler, .. ─────┴─► CreateTrainingJob ──► check ──► JSON
//! ```
//!
//! [`CreateTrainingJob`] is data: serde writes it as SageMaker's API reads it. [`CreateTrainingJob::check`] finds
//! what SageMaker would refuse, and names the field. The tests hold the JSON to botocore's model of the API, and
//! the hyperparameters to the decoder of SageMaker's training toolkit.
//!
//! This crate signs nothing and sends nothing. No request of it was ever answered by SageMaker itself.
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

mod check;
mod hyperparameters;
mod request;

pub use check::RequestError;
pub use hyperparameters::encode_hyperparameters;
pub use request::{
    AlgorithmSpecification, Channel, CheckpointConfig, CreateTrainingJob, DataSource, Distribution,
    FileSystemAccess, FileSystemDataSource, FileSystemType, InputMode, MetricDefinition, OutputDataConfig,
    ProfilerConfig, ResourceConfig, S3DataSource, S3DataType, StoppingCondition, Tag, VpcConfig,
};

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
