//! Why images cannot be generated.

use std::io;
use std::path::PathBuf;

use stokehold_base::fault::Fault;

/// Why images cannot be generated.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SynthError {
    /// The generator was asked for something it cannot make.
    #[error("cannot generate images: {reason}")]
    Options {
        /// Which number is out of range, and what is allowed.
        reason: String,
    },
    /// The generator would overwrite something.
    #[error("{}: exists already; give a new folder, or remove this one first", path.display())]
    Exists {
        /// The folder that was to be made.
        path: PathBuf,
    },
    /// A file or folder could not be written.
    #[error("{}: cannot write: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// There is no folder to keep the default data set in.
    #[error(
        "no cache folder: none of STOKEHOLD_CACHE, XDG_CACHE_HOME and HOME is set to an absolute path; set one, or give a data set"
    )]
    NoCacheFolder,
}

impl Fault for SynthError {
    fn is_input(&self) -> bool {
        !matches!(self, Self::Write { .. })
    }
}
