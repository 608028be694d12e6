//! What can go wrong while recording.

use std::path::PathBuf;

use stokehold_base::fault::Fault;
use stokehold_base::lock::Holder;

/// Why something could not be recorded or read back.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// The platform does not offer what the sampler reads.
    #[error(
        "system samples are not supported here: {what} cannot be read ({reason}); they need Linux's /proc"
    )]
    NotSupported {
        /// The file that is missing.
        what: PathBuf,
        /// What the system said.
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
        /// Where it was looked for.
        path: PathBuf,
        /// What is there instead.
        reason: String,
    },
    /// Samples cannot be taken so often, or so seldom.
    #[error("an interval of {interval:?}: 100 ms to 60 s are possible")]
    Interval {
        /// What was asked for.
        interval: std::time::Duration,
    },
    /// Somebody records into the folder already.
    #[error("{path}: {holder} records into this folder; wait until it ends, or give another folder")]
    Recording {
        /// The recording's folder.
        path: PathBuf,
        /// Who it is.
        holder: Holder,
    },
    /// Nobody records into the folder.
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
        /// What the system said.
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
                | Self::NotRecording { .. }
        )
    }
}
