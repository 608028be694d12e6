//! What can go wrong before the first batch.

use std::io;
use std::path::PathBuf;

use stokehold_base::fault::Fault;

/// An error of a server, or of the connection to servers.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// An address cannot be read.
    #[error(transparent)]
    Address(#[from] stokehold_loader::AddressError),
    /// No server can be used.
    #[error("no server of batches can be used: {}; start one with `stokehold serve`", .said.join("; "))]
    None {
        /// What each of them said.
        said: Vec<String>,
    },
    /// A certificate, a key or a token cannot be used.
    #[error("{}: {reason}", .path.display())]
    Secret {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There are no certificates to trust.
    #[error("no certificates to check servers with{why}; name a file of them in SSL_CERT_FILE")]
    Certificates {
        /// What the system says.
        why: String,
    },
    /// The token cannot be sent.
    #[error(
        "the token in STOKEHOLD_TOKEN must have visible ASCII characters only, at least one and no spaces"
    )]
    Token,
    /// The address of a server cannot be used.
    #[error("cannot listen on {address}: {error}; choose another address with --listen")]
    Listen {
        /// What was asked for.
        address: String,
        /// Why.
        error: io::Error,
    },
    /// The data set or a pipeline.
    #[error(transparent)]
    Loader(#[from] stokehold_loader::LoaderError),
    /// The data set.
    #[error(transparent)]
    Storage(#[from] stokehold_storage::StorageError),
    /// The system.
    #[error("{what}: {error}")]
    System {
        /// What was tried.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
}

impl Fault for RemoteError {
    fn is_input(&self) -> bool {
        match self {
            Self::Loader(error) => error.is_input(),
            Self::Storage(error) => error.is_input(),
            Self::System { .. } => false,
            _ => true,
        }
    }
}
