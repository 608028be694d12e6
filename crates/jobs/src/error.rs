//! What can go wrong with a job, apart from the script.

use std::path::{Path, PathBuf};

use stokehold_base::fault::Fault;
use stokehold_loader::LoaderError;
use stokehold_objects::ObjectError;
use stokehold_storage::StorageError;

/// Why a job could not be described, started or read. A script that fails is no error: it is a state of its
/// job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobError {
    /// The job file is wrong.
    #[error("{}{}: {reason}", path.display(), line.map(|line| format!(", line {line}")).unwrap_or_default())]
    File {
        /// The file.
        path: PathBuf,
        /// The line, counted from one, if it is known.
        line: Option<usize>,
        /// What is wrong.
        reason: String,
    },
    /// A request is invalid, or names something that does not exist.
    #[error("{0}")]
    Input(String),
    /// There is no job of this name.
    #[error("there is no job {name} in {}; see `stokehold job list`", root.display())]
    NoSuchJob {
        /// The name.
        name: String,
        /// The folder that was searched.
        root: PathBuf,
    },
    /// A channel's data cannot be read.
    #[error("channel {channel}: {source}")]
    Channel {
        /// The channel's name.
        channel: String,
        /// The cause.
        source: ObjectError,
    },
    /// The code cannot be read.
    #[error("source-dir: {0}")]
    Source(ObjectError),
    /// The place for the results cannot be written.
    #[error("output: {0}")]
    Output(ObjectError),
    /// What requirements.txt asks for cannot be installed.
    #[error("requirements.txt: {0}")]
    Requirements(String),
    /// The system does not let the job have its own folders ([`Job::opt_ml`](crate::Job::opt_ml)).
    #[error("{0}")]
    Room(String),
    /// The place for checkpoints cannot be read or written.
    #[error("checkpoints: {0}")]
    Checkpoints(ObjectError),
    /// The process that was to run the job in the background did not get hold of it.
    #[error("{reason}")]
    Runner {
        /// What it said.
        reason: String,
        /// Whether the input is at fault.
        is_input: bool,
    },
    /// The images of a [`Place`](crate::ways::Place) cannot be listed.
    #[error(transparent)]
    Images(StorageError),
    /// The objects of a [`Place`](crate::ways::Place) cannot be listed.
    #[error(transparent)]
    Objects(ObjectError),
    /// The loader of a [`Reader`](crate::ways::Reader) failed.
    #[error(transparent)]
    Loader(LoaderError),
    /// A [`Way`](crate::ways::Way) cannot be described as a job.
    #[error("{0}")]
    Way(String),
    /// Slurm refused something, or did not answer.
    #[error("{0}")]
    Slurm(String),
    /// An operation on a file or folder failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl JobError {
    /// Whether the disk is full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull)
    }

    /// What TOML's reader says of the text of a file, with the line.
    pub fn in_file(path: &Path, text: &str, error: &toml::de::Error) -> Self {
        let before = error.span().and_then(|span| text.get(..span.start));
        Self::File {
            path: path.to_owned(),
            line: before.map(|before| before.matches('\n').count() + 1),
            reason: error.message().to_owned(),
        }
    }

    pub(crate) fn io(path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, source }
    }
}

impl Fault for JobError {
    fn is_input(&self) -> bool {
        match self {
            Self::File { .. } | Self::Input(_) | Self::NoSuchJob { .. } | Self::Room(_) => true,
            Self::Channel { source, .. }
            | Self::Source(source)
            | Self::Output(source)
            | Self::Checkpoints(source)
            | Self::Objects(source) => source.is_input(),
            Self::Images(source) => source.is_input(),
            Self::Loader(source) => source.is_input(),
            Self::Runner { is_input, .. } => *is_input,
            Self::Requirements(_) | Self::Way(_) | Self::Slurm(_) | Self::Io { .. } => false,
        }
    }
}
