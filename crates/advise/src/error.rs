use stokehold_base::fault::Fault;
use stokehold_loader::LoaderError;
use stokehold_pipeline::PipelineError;
use stokehold_prepare::PrepareError;
use stokehold_storage::StorageError;
use stokehold_train::TrainError;
use thiserror::Error;

/// Why nothing can be predicted or tried.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AdviseError {
    /// There is no such run, it has no data for predictions, or a folder is in the way.
    #[error("{0}")]
    Input(String),
    /// A script failed, or a measurement has no result.
    #[error("{0}")]
    Failed(String),
    /// The system refused something.
    #[error(transparent)]
    System(#[from] std::io::Error),
    /// The data set.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The pipeline.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The loader.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// The shards.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// The trainer, or the run's record.
    #[error(transparent)]
    Train(#[from] TrainError),
}

impl Fault for AdviseError {
    fn is_input(&self) -> bool {
        match self {
            Self::Input(_) => true,
            Self::Failed(_) | Self::System(_) => false,
            Self::Storage(error) => error.is_input(),
            Self::Pipeline(error) => error.is_input(),
            Self::Loader(error) => error.is_input(),
            Self::Prepare(error) => error.is_input(),
            Self::Train(error) => error.is_input(),
        }
    }
}
