//! What goes wrong between here and SageMaker.

use std::io::ErrorKind;

use stokehold_base::fault::Fault;
use stokehold_objects::ObjectError;

use crate::RequestError;

/// The command that follows a job in a region, in a sentence.
#[must_use]
pub fn followed(name: &str, region: &str) -> String {
    format!("`stokehold job logs -f {name} --on sagemaker --region {region}` follows it")
}

/// A request that was not made, not answered, or refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SageMakerError {
    /// SageMaker would refuse the request; it was not sent.
    #[error("{0}")]
    Request(#[from] RequestError),
    /// The job file has something that SageMaker has no counterpart of, or lacks something that it wants.
    #[error("{0}")]
    Input(String),
    /// There is no job of this name in the region.
    #[error("there is no training job {name} in {region}; check the name, the region and the account")]
    NoSuchJob {
        /// The job.
        name: String,
        /// The region that was asked.
        region: String,
    },
    /// Another job has this name.
    #[error(
        "there is a training job {name} in {region} already; {} if it is yours, or choose another name (names are never free \
         again)",
        followed(name, region)
    )]
    NameTaken {
        /// The job.
        name: String,
        /// The region that was asked.
        region: String,
    },
    /// The credentials are missing, wrong or expired, or do not allow it.
    #[error(
        "{operation} at {address}: {reason}; check the credentials (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, \
         AWS_PROFILE, or a role) and what they allow"
    )]
    Denied {
        /// The operation, such as `CreateTrainingJob`.
        operation: String,
        /// Where.
        address: String,
        /// What the service said.
        reason: String,
    },
    /// The service refused the request as it is: a quota, a bucket in another region, a role that it cannot assume.
    #[error("{operation} at {address}: {reason}")]
    Refused {
        /// The operation.
        operation: String,
        /// Where.
        address: String,
        /// What the service said, and its name for the error.
        reason: String,
    },
    /// The service failed, throttled or did not answer, until all retries were over.
    #[error("{operation} at {address}: {reason}; it was tried for {seconds} s; try again later")]
    Unavailable {
        /// The operation.
        operation: String,
        /// Where.
        address: String,
        /// The last failure.
        reason: String,
        /// For how long it was tried, in seconds.
        seconds: u64,
    },
    /// No job was created, because the service could not be asked, or failed.
    #[error("no training job {name} was created in {region}: {reason}; try again")]
    NotCreated {
        /// The job.
        name: String,
        /// The region.
        region: String,
        /// The last failure.
        reason: String,
    },
    /// The request may have arrived, and the service could not be asked whether it did.
    #[error(
        "whether training job {name} was created in {region} is not known: {reason}; {} if it was; to try again, give the same \
         name: there is never a second one of it",
        followed(name, region)
    )]
    Unclear {
        /// The job.
        name: String,
        /// The region.
        region: String,
        /// The last failure.
        reason: String,
    },
    /// The source cannot be packed.
    #[error("source-dir: {0}")]
    Source(std::io::Error),
    /// The job continues, and its lines or its state cannot be followed.
    #[error(
        "{source}; job {name} continues, and `stokehold job logs -f {name} --on sagemaker --region {region}` follows it again"
    )]
    Follow {
        /// The job.
        name: String,
        /// Its region.
        region: String,
        /// Why.
        source: Box<SageMakerError>,
    },
    /// The region, the endpoint or the credentials cannot be used, or a bucket cannot be written.
    #[error("{0}")]
    Objects(#[from] ObjectError),
}

impl Fault for SageMakerError {
    fn is_input(&self) -> bool {
        match self {
            Self::Request(_)
            | Self::Input(_)
            | Self::NoSuchJob { .. }
            | Self::NameTaken { .. }
            | Self::Denied { .. }
            | Self::Refused { .. } => true,
            Self::Follow { source, .. } => source.is_input(),
            // Of the source, unless the disk is at fault.
            Self::Source(error) => matches!(
                error.kind(),
                ErrorKind::NotFound
                    | ErrorKind::NotADirectory
                    | ErrorKind::PermissionDenied
                    | ErrorKind::InvalidInput
                    | ErrorKind::InvalidData
            ),
            Self::Unavailable { .. } | Self::NotCreated { .. } | Self::Unclear { .. } => false,
            Self::Objects(error) => error.is_input(),
        }
    }
}
