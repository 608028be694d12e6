//! The spans of programs that a recorder starts, beside its samples.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stokehold_base::clock::unix_now;

use super::private::Private;
use super::{Metrics, Server, Timeline};
use crate::{ProfileError, events};

/// A socket whose address programs get as [`VARIABLE`](super::VARIABLE), and the files of a recording that their spans go to.
///
/// The socket lies in a folder that no other user can enter: what is sent there is believed.
pub struct Spans {
    taking: Result<Taking, String>,
}

struct Taking {
    /// Before its timeline, which takes what it reads, and its folder, which holds its socket.
    server: Server,
    timeline: Timeline,
    socket: PathBuf,
    _folder: Private,
}

impl Spans {
    /// Listens. Where that is not possible, the recording has no spans and says so.
    pub fn take(recording: &Path) -> Self {
        let taking = listen(recording).map_err(|error| format!("spans are not taken: {error}"));
        Self { taking }
    }

    /// Where the command is to send its spans; empty where nobody listens.
    pub fn address(&self) -> &OsStr {
        match &self.taking {
            Ok(taking) => taking.socket.as_os_str(),
            Err(_) => OsStr::new(""),
        }
    }

    /// Where the metrics are that the command sends; there are none where nobody listens.
    pub fn metrics(&self) -> Arc<Metrics> {
        match &self.taking {
            Ok(taking) => taking.server.metrics(),
            Err(_) => Arc::default(),
        }
    }

    /// Writes what was sent; what a reader of the recording should know.
    pub fn finish(self) -> Vec<String> {
        match self.taking {
            Ok(taking) => {
                let mut notes = taking.server.stop();
                let outcome = taking.timeline.finish();
                notes.extend(outcome.notes);
                notes.extend(
                    outcome
                        .failed
                        .map(|error| format!("the spans are not complete: {error}")),
                );
                notes
            }
            Err(reason) => vec![reason],
        }
    }
}

fn listen(recording: &Path) -> Result<Taking, ProfileError> {
    // Not in the recording's folder, whose path may be too long for a socket.
    let folder = Private::new().map_err(|source| ProfileError::Io {
        path: std::env::temp_dir(),
        source,
    })?;
    let socket = folder.socket();
    let files = events::Writer::new(recording, events::Options::new(unix_now()));
    let timeline = Timeline::start(Some(files), None).map_err(|source| ProfileError::Io {
        path: socket.clone(),
        source,
    })?;
    Ok(Taking {
        server: Server::listen(&socket, &timeline)?,
        timeline,
        socket,
        _folder: folder,
    })
}
