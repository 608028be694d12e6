//! Errors of a study of jobs, apart from its trials.

use std::path::Path;

use stokehold_base::fault::Fault;
use stokehold_jobs::JobError;
use stokehold_prepare::PrepareError;
use stokehold_sagemaker::SageMakerError;
use stokehold_tune::TuneError;

/// Why a study of jobs could not be read, created or run. A trial that fails is no error: it is a result of
/// its study.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrialsError {
    /// A request, the study or one of its files is invalid, or cannot be read or written.
    #[error(transparent)]
    Tune(#[from] TuneError),
    /// A trial's job cannot be created or stored.
    #[error("job: {0}")]
    Job(#[from] JobError),
    /// SageMaker cannot be asked, or refuses something.
    #[error("{0}")]
    SageMaker(#[from] SageMakerError),
    /// The account cannot be asked on, and jobs of trials run there.
    #[error(
        "{source}; {going} of the study's jobs continue there, and `stokehold tune resume STUDY --on sagemaker` follows them again"
    )]
    Account {
        /// Why.
        source: SageMakerError,
        /// How many jobs continue.
        going: usize,
    },
    /// A channel cannot be prepared.
    #[error("channel {channel} cannot be prepared: {source}")]
    Prepare {
        /// The channel.
        channel: String,
        /// The cause.
        source: Box<PrepareError>,
    },
    /// The work was interrupted before the study was created.
    #[error("interrupted; run the same command to continue after what is prepared")]
    Interrupted,
}

impl TrialsError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| TuneError::Io { path, source }.into()
    }
}

pub(crate) fn input<T>(reason: impl Into<String>) -> Result<T, TrialsError> {
    Err(TuneError::Input(reason.into()).into())
}

impl Fault for TrialsError {
    fn is_input(&self) -> bool {
        match self {
            Self::Tune(error) => error.is_input(),
            Self::Job(error) => error.is_input(),
            Self::SageMaker(source) | Self::Account { source, .. } => source.is_input(),
            Self::Prepare { source, .. } => source.is_input(),
            Self::Interrupted => false,
        }
    }
}
