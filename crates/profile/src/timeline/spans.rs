//! Receives the spans of programs that a recorder starts.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stokehold_base::clock::unix_now;

use super::private::Private;
use super::{Metrics, Server, Timeline};
use crate::{ProfileError, events};

/// A socket, whose address programs get as [`VARIABLE`](super::VARIABLE), and the recording's files for their
/// spans.
///
/// The socket is in a folder that no other user can enter, because what is sent there is trusted.
pub struct Spans {
    taking: Result<Taking, String>,
}

struct Taking {
    /// Dropped before its timeline, which it writes to, and before its folder, which contains its socket.
    server: Server,
    timeline: Timeline,
    socket: PathBuf,
    _folder: Private,
}

impl Spans {
    /// Starts listening. If that fails, the recording has no spans, and a note says so.
    pub fn take(recording: &Path) -> Self {
        let taking = listen(recording).map_err(|error| format!("spans are not taken: {error}"));
        Self { taking }
    }

    /// The address for the command's spans; empty if there is no server.
    pub fn address(&self) -> &OsStr {
        match &self.taking {
            Ok(taking) => taking.socket.as_os_str(),
            Err(_) => OsStr::new(""),
        }
    }

    /// The metrics that the command sends; none if there is no server.
    pub fn metrics(&self) -> Arc<Metrics> {
        match &self.taking {
            Ok(taking) => taking.server.metrics(),
            Err(_) => Arc::default(),
        }
    }

    /// Writes what was sent. Returns notes for readers of the recording.
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
    // Not in the recording's folder: its path may be too long for a socket.
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
