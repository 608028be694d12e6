//! Errors of starting a studio. Those of a request become answers.

use std::io;
use std::path::PathBuf;

use stokehold_base::fault::Fault;

/// Why a studio cannot run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudioError {
    /// The address cannot be used.
    #[error("cannot listen on {address}: {error}; name a free HOST:PORT, as 127.0.0.1:0 for any free port")]
    Listen {
        /// As it was given.
        address: String,
        /// The system's error.
        error: io::Error,
    },
    /// A folder cannot be read.
    #[error("{path}: {error}; name a folder of runs, jobs or images that is there")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The same folder was named twice.
    #[error("{path}: this folder is named twice; name it once")]
    Twice {
        /// The folder.
        path: PathBuf,
    },
    /// A run was named, and not the folder that it is in.
    #[error("{path}: this is a run itself; name the folder that it is in, such as {parent}")]
    IsRun {
        /// The folder.
        path: PathBuf,
        /// The one above it.
        parent: PathBuf,
    },
    /// The certificate cannot be used.
    #[error("{path}: {reason}; name files in PEM, the certificate's and its key's")]
    Certificate {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The system refuses what every program gets: threads, random numbers.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl Fault for StudioError {
    fn is_input(&self) -> bool {
        !matches!(self, Self::System { .. })
    }
}
