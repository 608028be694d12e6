//! What can go wrong with a transform, apart from single records.

use std::io;
use std::path::{Path, PathBuf};

use stokehold_base::fault::Fault;
use stokehold_loader::LoaderError;
use stokehold_objects::ObjectError;
use stokehold_storage::StorageError;
use stokehold_train::TrainError;

/// Why a transform cannot begin, or did not end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransformError {
    /// The request cannot be carried out as it is.
    #[error("{0}")]
    Input(String),
    /// A manifest or a file of JSON lines is wrong.
    #[error("{path}{}: {reason}", line.map(|line| format!(", line {line}")).unwrap_or_default())]
    File {
        /// The file or object.
        path: String,
        /// The line, counted from one, if it is known.
        line: Option<usize>,
        /// What is wrong, and what to do.
        reason: String,
    },
    /// The images cannot be listed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The images cannot be loaded.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// The network failed.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// A bucket failed.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The script cannot be started, or failed.
    #[error("{}: {reason}", script.display())]
    Script {
        /// The script.
        script: PathBuf,
        /// What happened, with the end of what it printed.
        reason: String,
    },
    /// A file or folder.
    #[error("{}: {source}", path.display())]
    Io {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl TransformError {
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Self {
        |source| Self::Io {
            path: path.to_owned(),
            source,
        }
    }
}

impl Fault for TransformError {
    fn is_input(&self) -> bool {
        match self {
            Self::Input(_) | Self::File { .. } => true,
            Self::Storage(error) => error.is_input(),
            Self::Loader(error) => error.is_input(),
            Self::Train(error) => error.is_input(),
            Self::Object(error) => error.is_input(),
            Self::Script { .. } | Self::Io { .. } => false,
        }
    }
}
