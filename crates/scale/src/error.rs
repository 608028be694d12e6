//! Why nothing can be predicted.

use std::io;
use std::path::PathBuf;

use stokehold_base::fault::Fault;
use stokehold_profile::ProfileError;

use crate::Fact;

fn in_words(facts: &[Fact]) -> String {
    let words: Vec<String> = facts.iter().map(ToString::to_string).collect();
    words.join(", ")
}

/// Why nothing can be predicted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScaleError {
    /// The recording cannot be read.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The recording does not say what a prediction needs, and neither do the settings.
    #[error("the recording does not say {}", in_words(facts))]
    Missing {
        /// What has to be said.
        facts: Vec<Fact>,
    },
    /// The recording does not have what a prediction needs.
    #[error("{}: {reason}", path.display())]
    Run {
        /// The recording.
        path: PathBuf,
        /// What is missing, and what to do.
        reason: String,
    },
    /// A number of the run or of the cluster is out of its range.
    #[error("{field}: {problem}")]
    Range {
        /// What the number is.
        field: &'static str,
        /// The number, and what is allowed.
        problem: String,
    },
    /// A file that describes a network cannot be read.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A file does not describe a network.
    #[error("{}: not the description of a network: {reason}", path.display())]
    Network {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what is allowed.
        reason: String,
    },
}

impl Fault for ScaleError {
    fn is_input(&self) -> bool {
        match self {
            Self::Profile(error) => error.is_input(),
            // A file that was named and cannot be read is input as well.
            _ => true,
        }
    }
}
