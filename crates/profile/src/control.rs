//! Changing a recording while it runs.
//!
//! The recorder holds a lock on `control.json` in the recording's folder, which tells everybody that there is one, and
//! looks before each tick whether the file has changed. Whoever wants a change writes the file in place.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::ProfileError;

const FILE: &str = "control.json";

/// What a running recording should do from now on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Whether it takes samples; `None` leaves that as it is.
    #[serde(default)]
    pub on: Option<bool>,
    /// The sampling interval, milliseconds; `None` leaves it as it is.
    #[serde(default)]
    pub interval_ms: Option<u64>,
}

impl Change {
    /// Tells the recorder of a recording's folder (`profiler-output`), which follows within a second.
    ///
    /// # Errors
    /// [`ProfileError::NotRecording`] where none is at work, [`ProfileError::Interval`] for an interval that is not
    /// possible, [`ProfileError::Io`] where the file cannot be written.
    pub fn send(self, recording: &Path) -> Result<(), ProfileError> {
        if let Some(ms) = self.interval_ms {
            check_interval(Duration::from_millis(ms))?;
        }
        let path = recording.join(FILE);
        let failed = |source| ProfileError::Io {
            path: path.clone(),
            source,
        };
        let none = || ProfileError::NotRecording {
            path: recording.to_owned(),
        };
        let file = match OpenOptions::new().read(true).write(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(none()),
            file => file.map_err(failed)?,
        };
        match file.try_lock() {
            // A recorder that was killed left the file.
            Ok(()) => return Err(none()),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let before = read(&file).unwrap_or_default();
        let whole = Self {
            on: self.on.or(before.on),
            interval_ms: self.interval_ms.or(before.interval_ms),
        };
        let text = serde_json::to_vec(&whole).map_err(|error| failed(error.into()))?;
        file.write_all_at(&text, 0).map_err(failed)?;
        file.set_len(text.len() as u64).map_err(failed)
    }
}

/// Intervals from 100 ms to 60 s are possible.
///
/// # Errors
/// [`ProfileError::Interval`] for any other.
pub fn check_interval(interval: Duration) -> Result<(), ProfileError> {
    if (Duration::from_millis(100)..=Duration::from_secs(60)).contains(&interval) {
        Ok(())
    } else {
        Err(ProfileError::Interval { interval })
    }
}

/// The recorder's side. Removes the file when dropped.
pub(crate) struct Control {
    path: PathBuf,
    file: File,
    seen: Option<SystemTime>,
}

impl Control {
    /// # Errors
    /// [`ProfileError::Recording`] where another recorder is at work in the folder.
    pub fn hold(recording: &Path) -> Result<Self, ProfileError> {
        let path = recording.join(FILE);
        let failed = |source| ProfileError::Io {
            path: path.clone(),
            source,
        };
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(ProfileError::Recording {
                    path: recording.to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        file.set_len(0).map_err(failed)?;
        let seen = file.metadata().and_then(|data| data.modified()).ok();
        Ok(Self { path, file, seen })
    }

    /// What was asked for since the last time.
    pub fn changed(&mut self) -> Option<Change> {
        let modified = self.file.metadata().and_then(|data| data.modified()).ok()?;
        if self.seen == Some(modified) {
            return None;
        }
        // Half written, it is read again the next time.
        let change = read(&self.file)?;
        self.seen = Some(modified);
        Some(change)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Left behind, it does no harm: nobody holds it.
        let _ = fs::remove_file(&self.path);
    }
}

fn read(file: &File) -> Option<Change> {
    let mut text = [0; 256];
    let length = file.read_at(&mut text, 0).ok()?;
    serde_json::from_slice(&text[..length]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_reach_the_recorder_once_and_add_up() {
        let dir = tempfile::tempdir().unwrap();
        let mut control = Control::hold(dir.path()).unwrap();
        assert_eq!(control.changed(), None);
        let off = Change {
            on: Some(false),
            ..Change::default()
        };
        off.send(dir.path()).unwrap();
        assert_eq!(control.changed(), Some(off));
        assert_eq!(control.changed(), None);
        // The kernel's time of files has steps of some milliseconds.
        std::thread::sleep(Duration::from_millis(20));
        let faster = Change {
            interval_ms: Some(100),
            ..Change::default()
        };
        faster.send(dir.path()).unwrap();
        assert_eq!(
            control.changed(),
            Some(Change {
                on: Some(false),
                interval_ms: Some(100)
            })
        );
        assert!(matches!(
            Control::hold(dir.path()),
            Err(ProfileError::Recording { .. })
        ));
    }

    #[test]
    fn without_a_recorder_it_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let send = |change: Change| change.send(dir.path()).unwrap_err().to_string();
        assert!(send(Change::default()).contains("nobody is recording"));
        drop(Control::hold(dir.path()).unwrap());
        assert!(send(Change::default()).contains("nobody is recording"));
        // As a killed one leaves it.
        fs::write(dir.path().join(FILE), "{}").unwrap();
        assert!(send(Change::default()).contains("nobody is recording"));
        for ms in [0, 99, 60_001] {
            let change = Change {
                interval_ms: Some(ms),
                ..Change::default()
            };
            assert!(send(change).contains("100 ms to 60 s"));
        }
    }
}
