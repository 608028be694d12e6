//! Changes a recording while it runs.
//!
//! The recorder holds the lock in the recording's folder, which shows other processes that it runs and who it
//! is, and reads `control.json` before each tick. To change the recording, a process writes that file.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stokehold_base::lock::{self, Lock, Refused};
use stokehold_base::there::if_there;
use stokehold_base::{regular, whole};

use crate::ProfileError;

pub(crate) const FILE: &str = "control.json";
pub(crate) const LOCK: &str = "lock";

/// A change to a running recording.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Whether it takes samples; `None` leaves that as it is.
    pub on: Option<bool>,
    /// The sampling interval, milliseconds; `None` leaves it as it is.
    pub interval_ms: Option<u64>,
}

impl Change {
    /// Sends the change to the recorder of a recording's folder (`profiler-output`), which applies it within
    /// a second.
    ///
    /// # Errors
    /// [`ProfileError::NotRecording`] if no recorder runs, [`ProfileError::Interval`] for an interval out of
    /// range, [`ProfileError::Io`] if the file cannot be written.
    pub fn send(self, recording: &Path) -> Result<(), ProfileError> {
        if let Some(ms) = self.interval_ms {
            check_interval(Duration::from_millis(ms))?;
        }
        let path = recording.join(FILE);
        let failed = |source| ProfileError::Io {
            path: path.clone(),
            source,
        };
        match check_free(recording) {
            Err(ProfileError::Recording { .. }) => {}
            Err(error) => return Err(error),
            Ok(()) => {
                return Err(ProfileError::NotRecording {
                    path: recording.to_owned(),
                });
            }
        }
        let before = read(&path).unwrap_or_default();
        let whole = Self {
            on: self.on.or(before.on),
            interval_ms: self.interval_ms.or(before.interval_ms),
        };
        let text = serde_json::to_vec(&whole).map_err(|error| failed(error.into()))?;
        whole::write(&path, text).map_err(failed)
    }
}

/// Accepts intervals from 100 ms to 60 s.
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

/// Checks that no recorder runs in a folder (`profiler-output`), which need not exist.
///
/// # Errors
/// [`ProfileError::Recording`] if a recorder runs there, [`ProfileError::Io`] if that cannot be determined.
pub fn check_free(recording: &Path) -> Result<(), ProfileError> {
    let path = recording.join(LOCK);
    match lock::holder(&path) {
        Ok(None) => Ok(()),
        Ok(Some(holder)) => Err(ProfileError::Recording {
            path: recording.to_owned(),
            holder,
        }),
        Err(source) => Err(ProfileError::Io { path, source }),
    }
}

/// The recorder's side. Removes the file when dropped.
pub(crate) struct Control {
    path: PathBuf,
    _lock: Lock,
    seen: Option<Change>,
}

impl Control {
    /// # Errors
    /// [`ProfileError::Recording`] if another recorder runs in the folder.
    pub fn hold(recording: &Path) -> Result<Self, ProfileError> {
        let path = recording.join(LOCK);
        let lock = Lock::take(&path).map_err(|refused| match refused {
            Refused::Held(holder) => ProfileError::Recording {
                path: recording.to_owned(),
                holder,
            },
            Refused::Io(source) => ProfileError::Io { path, source },
        })?;
        let path = recording.join(FILE);
        // Remove the request to a recorder that was killed.
        if let Err(source) = if_there(fs::remove_file(&path)) {
            return Err(ProfileError::Io { path, source });
        }
        Ok(Self {
            path,
            _lock: lock,
            seen: None,
        })
    }

    /// The latest request since the last call.
    pub fn changed(&mut self) -> Option<Change> {
        let change = read(&self.path).filter(|&change| Some(change) != self.seen)?;
        self.seen = Some(change);
        Some(change)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // A file that remains is harmless: the next recorder removes it.
        let _ = fs::remove_file(&self.path);
    }
}

fn read(path: &Path) -> Option<Change> {
    serde_json::from_slice(&regular::read(path).ok()?).ok()
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
    }

    #[test]
    fn who_records_is_told() {
        let dir = tempfile::tempdir().unwrap();
        check_free(&dir.path().join("no")).unwrap();
        let control = Control::hold(dir.path()).unwrap();
        let own = format!("process {} on ", std::process::id());
        for error in [Control::hold(dir.path()).err(), check_free(dir.path()).err()] {
            let said = error.unwrap().to_string();
            assert!(said.contains(&own) && said.contains(" UTC"), "{said}");
        }
        drop(control);
        check_free(dir.path()).unwrap();
        Control::hold(dir.path()).unwrap();
    }

    #[test]
    fn without_a_recorder_it_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let send = |change: Change| change.send(dir.path()).unwrap_err().to_string();
        assert!(send(Change::default()).contains("nobody is recording"));
        drop(Control::hold(dir.path()).unwrap());
        assert!(send(Change::default()).contains("nobody is recording"));
        // As a killed one leaves it: its changes are not the next one's.
        fs::write(dir.path().join(FILE), "{\"on\":false}").unwrap();
        assert!(send(Change::default()).contains("nobody is recording"));
        assert_eq!(Control::hold(dir.path()).unwrap().changed(), None);
        for ms in [0, 99, 60_001] {
            let change = Change {
                interval_ms: Some(ms),
                ..Change::default()
            };
            assert!(send(change).contains("100 ms to 60 s"));
        }
    }
}
