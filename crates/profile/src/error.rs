//! Errors of recording and of reading recordings.

use std::path::PathBuf;

use stokehold_base::fault::Fault;
use stokehold_base::lock::Holder;

/// Why something could not be recorded or read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// The platform does not offer what the sampler reads.
    #[error(
        "system samples are not supported here: {what} cannot be read ({reason}); they need Linux's /proc"
    )]
    NotSupported {
        /// The file that is missing.
        what: PathBuf,
        /// The system's error.
        reason: String,
    },
    /// A kernel file or a recorded file does not have the expected form.
    #[error("{path}: {reason}")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no recording.
    #[error("{path}: no recording: {reason}")]
    NoRecording {
        /// The folder that was searched.
        path: PathBuf,
        /// What was found instead.
        reason: String,
    },
    /// The sampling interval is out of range.
    #[error("an interval of {interval:?}: 100 ms to 60 s are possible")]
    Interval {
        /// The requested interval.
        interval: std::time::Duration,
    },
    /// Another recorder runs in the folder already.
    #[error("{path}: {holder} records into this folder; wait until it ends, or give another folder")]
    Recording {
        /// The recording's folder.
        path: PathBuf,
        /// The other recorder.
        holder: Holder,
    },
    /// The folder holds the samples of another program.
    #[error(
        "{path}: another program's recording: it holds {found}, and no recording.json of Stokehold; move \
         it away, or give another folder"
    )]
    Foreign {
        /// The recording's folder.
        path: PathBuf,
        /// A file below it that is not this recorder's.
        found: PathBuf,
    },
    /// No recorder runs in the folder.
    #[error("{path}: nobody is recording there now")]
    NotRecording {
        /// The recording's folder.
        path: PathBuf,
    },
    /// A record could not be written or read.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl Fault for ProfileError {
    fn is_input(&self) -> bool {
        matches!(
            self,
            Self::NoRecording { .. }
                | Self::Interval { .. }
                | Self::Recording { .. }
                | Self::Foreign { .. }
                | Self::NotRecording { .. }
        )
    }
}
