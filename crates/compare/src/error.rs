use std::path::PathBuf;

use stokehold_base::fault::Fault;
use stokehold_loader::LoaderError;
use stokehold_pipeline::PipelineError;
use stokehold_profile::ProfileError;
use stokehold_storage::StorageError;
use stokehold_train::TrainError;
use thiserror::Error;

/// Why a comparison cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CompareError {
    /// Values that are wrong, or do not go together.
    #[error("{0}")]
    Plan(String),
    /// The folder holds other files, or another comparison.
    #[error("{}: {reason}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is in the way, and what to do.
        reason: String,
    },
    /// A file cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The report cannot be written as JSON.
    #[error("the report cannot be written: {0}")]
    Json(#[from] serde_json::Error),
    /// The data set.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The pipeline.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The loader.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// The trainer.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The samples of the machine.
    #[error(transparent)]
    Profile(#[from] ProfileError),
}

impl Fault for CompareError {
    fn is_input(&self) -> bool {
        match self {
            Self::Plan(_) | Self::Folder { .. } => true,
            Self::Io { .. } | Self::Json(_) => false,
            Self::Storage(error) => error.is_input(),
            Self::Pipeline(error) => error.is_input(),
            Self::Loader(error) => error.is_input(),
            Self::Train(error) => error.is_input(),
            Self::Profile(error) => error.is_input(),
        }
    }
}
