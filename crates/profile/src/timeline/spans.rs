//! The spans of programs that a recorder starts, beside its samples.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use super::{Metrics, Server, Timeline};
use crate::{ProfileError, events};

/// A socket whose address programs get as [`VARIABLE`](super::VARIABLE), and the files of a recording that their spans go to.
pub struct Spans {
    socket: PathBuf,
    taking: Result<(Timeline, Server), String>,
}

impl Spans {
    /// Listens. Where that is not possible, the recording has no spans and says so.
    pub fn take(recording: &Path) -> Self {
        // Not in the recording's folder: paths of sockets have at most about 100 bytes.
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let socket = std::env::temp_dir().join(format!("stokehold-{}-{number}.socket", std::process::id()));
        // One with our number was left by a recorder that was killed.
        let _ = fs::remove_file(&socket);
        let taking = listen(&socket, recording).map_err(|error| format!("spans are not taken: {error}"));
        Self { socket, taking }
    }

    /// Where the command is to send its spans; empty where nobody listens.
    pub fn address(&self) -> &OsStr {
        match &self.taking {
            Ok(_) => self.socket.as_os_str(),
            Err(_) => OsStr::new(""),
        }
    }

    /// Where the metrics are that the command sends; there are none where nobody listens.
    pub fn metrics(&self) -> Arc<Metrics> {
        match &self.taking {
            Ok((_, server)) => server.metrics(),
            Err(_) => Arc::default(),
        }
    }

    /// Writes what was sent; what a reader of the recording should know.
    pub fn finish(self) -> Vec<String> {
        match self.taking {
            Ok((timeline, server)) => {
                let mut notes = server.stop();
                let outcome = timeline.finish();
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

fn listen(socket: &Path, recording: &Path) -> Result<(Timeline, Server), ProfileError> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let files = events::Writer::new(recording, events::Options::new(now.as_secs_f64()));
    let timeline = Timeline::start(Some(files), None).map_err(|source| ProfileError::Io {
        path: socket.to_owned(),
        source,
    })?;
    let server = Server::listen(socket, &timeline)?;
    Ok((timeline, server))
}
