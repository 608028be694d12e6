//! Errors of a study, apart from its trials.

use std::path::{Path, PathBuf};

use stokehold_base::fault::Fault;
use stokehold_jobs::JobError;
use stokehold_prepare::PrepareError;

/// Why a study could not be described, opened or written. A trial that fails is no error: it is a result of
/// its study.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TuneError {
    /// A request is invalid, or names something that does not exist.
    #[error("{0}")]
    Input(String),
    /// The file of a study is invalid.
    #[error("{}{}: {reason}", path.display(), line.map(|line| format!(", line {line}")).unwrap_or_default())]
    File {
        /// The file.
        path: PathBuf,
        /// The line, counted from one, if it is known.
        line: Option<usize>,
        /// What is wrong.
        reason: String,
    },
    /// A trial's job cannot be created or stored.
    #[error("job: {0}")]
    Job(#[from] JobError),
    /// A channel cannot be prepared.
    #[error("channel {channel} cannot be prepared: {source}")]
    Prepare {
        /// The channel.
        channel: String,
        /// The cause.
        source: PrepareError,
    },
    /// The work was interrupted before the study was created.
    #[error("interrupted; the same command goes on behind what is prepared")]
    Interrupted,
    /// A line in the middle of a journal is not what was written.
    #[error(
        "{}, line {line}: {reason}. The lines after it are whole, so this is no crash but a damaged file: restore it from a copy, \
         or keep what comes before (head -n {} {0} > copy) and resume from there",
        path.display(), line - 1
    )]
    Corrupt {
        /// The journal.
        path: PathBuf,
        /// The line, counted from one.
        line: usize,
        /// What is wrong.
        reason: String,
    },
    /// An operation on a file or folder failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl TuneError {
    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

pub(crate) fn input<T>(reason: impl Into<String>) -> Result<T, TuneError> {
    Err(TuneError::Input(reason.into()))
}

impl Fault for TuneError {
    fn is_input(&self) -> bool {
        match self {
            Self::Input(_) | Self::File { .. } | Self::Corrupt { .. } => true,
            Self::Job(error) => error.is_input(),
            Self::Prepare { source, .. } => source.is_input(),
            Self::Io { .. } | Self::Interrupted => false,
        }
    }
}
