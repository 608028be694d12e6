//! Errors.

use std::io;
use std::path::PathBuf;

use stokehold_base::fault::Fault;
use thiserror::Error;

/// Why a cache cannot be opened, or filled in advance. While it works there are none: what it cannot do, the source does.
#[derive(Debug, Error)]
pub enum CacheError {
    /// The folder cannot be made or read.
    #[error("the cache's folder {}: {source}; give a folder that this user may write to", path.display())]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It holds images.
    #[error("the cache's folder {} holds images ({image}); give a folder beside them", dir.display())]
    Images {
        /// The folder.
        dir: PathBuf,
        /// The name of one of them.
        image: String,
    },
    /// Its file system has no locks.
    #[error("the cache's folder {} cannot be locked: {source}; give one on a disk of this machine", path.display())]
    Lock {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It does not hold all that it should.
    #[error("the cache takes no more images: {why}")]
    Stopped {
        /// Why.
        why: String,
    },
    /// A variable of the environment is wrong.
    #[error("{name}={text}: {reason}")]
    Variable {
        /// Its name.
        name: &'static str,
        /// What it says.
        text: String,
        /// What is wrong with that.
        reason: String,
    },
    /// A share that is none.
    #[error("the cache's share of the CPU time is {share}: it is from 0 to 1")]
    Share {
        /// What was given.
        share: f64,
    },
}

impl Fault for CacheError {
    fn is_input(&self) -> bool {
        !matches!(self, Self::Stopped { .. })
    }
}
