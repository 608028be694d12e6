//! The files and folders that a recorder creates when it opens a recording, so that it can take them back.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stokehold_base::there::if_there;

use crate::control::{FILE as CONTROL, LOCK};
use crate::recording::About;
use crate::system::io_error;
use crate::{ProfileError, open};

/// What was created, in the order of creation.
pub(crate) struct Made {
    folders: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl Made {
    /// Creates the folders of a recording, `profiler-output`, and looks which of its files do not exist yet.
    ///
    /// # Errors
    /// [`ProfileError::Foreign`] if the folder holds what another program recorded, and
    /// [`ProfileError::Io`].
    pub fn prepare(recording: &Path) -> Result<Self, ProfileError> {
        refuse_foreign(recording)?;
        let samples = recording.join("system").join("incremental");
        let mut folders = Vec::new();
        create(&samples, &mut folders).map_err(|error| io_error(&samples, error))?;
        // The lock goes last: it holds off other recorders.
        let files = [About::FILE, LOCK].map(|name| recording.join(name));
        Ok(Self {
            folders,
            files: files.into_iter().filter(|file| !file.exists()).collect(),
        })
    }

    /// Removes what was created. A folder stays if something else is in it.
    ///
    /// # Errors
    /// [`ProfileError::Io`] for the first file or folder that cannot be removed.
    pub fn take_back(self) -> Result<(), ProfileError> {
        for file in &self.files {
            if_there(fs::remove_file(file)).map_err(|error| io_error(file, error))?;
        }
        for folder in self.folders.iter().rev() {
            match if_there(fs::remove_dir(folder)) {
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => break,
                removed => removed.map_err(|error| io_error(folder, error))?,
            };
        }
        Ok(())
    }
}

/// Creates a folder with those above it, and adds those that did not exist to `made`.
fn create(folder: &Path, made: &mut Vec<PathBuf>) -> io::Result<()> {
    match fs::create_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let above = folder.parent().ok_or(error)?;
            create(above, made)?;
            create(folder, made)
        }
        Err(_) if folder.is_dir() => Ok(()),
        created => {
            created?;
            made.push(folder.to_owned());
            Ok(())
        }
    }
}

/// Refuses a folder with samples, or with a file that a recorder would remove, that no recorder of ours has
/// begun. Files below `framework` are welcome: programs may put their spans there.
fn refuse_foreign(recording: &Path) -> Result<(), ProfileError> {
    // Looked for before `recording.json`, which a recorder writes before its first sample.
    let control = recording.join(CONTROL);
    let samples = recording.join("system");
    let found = match fs::symlink_metadata(&control) {
        Ok(_) => Some(control),
        Err(_) => first_file(&samples, open::DEPTH).map_err(|error| io_error(&samples, error))?,
    };
    match found {
        Some(found) if !recording.join(About::FILE).is_file() => Err(ProfileError::Foreign {
            path: recording.to_owned(),
            found: found.strip_prefix(recording).unwrap_or(&found).to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Anything below a folder but folders: a recorder that was killed early leaves those.
fn first_file(folder: &Path, depth: usize) -> io::Result<Option<PathBuf>> {
    for entry in if_there(fs::read_dir(folder))?.into_iter().flatten() {
        let entry = entry?;
        let is_folder = entry.file_type()?.is_dir() && depth > 0;
        let found = match is_folder {
            true => first_file(&entry.path(), depth - 1)?,
            false => Some(entry.path()),
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_created_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let recording = dir.path().join("runs/one/profiler-output");
        let made = Made::prepare(&recording).unwrap();
        fs::write(recording.join(LOCK), "").unwrap();
        fs::write(recording.join(About::FILE), "{}").unwrap();
        made.take_back().unwrap();
        assert!(!dir.path().join("runs").exists());

        let spans = recording.join("framework/mine.timeline");
        fs::create_dir_all(spans.parent().unwrap()).unwrap();
        fs::write(&spans, "step 1 2\n").unwrap();
        fs::write(recording.join(LOCK), "").unwrap();
        let made = Made::prepare(&recording).unwrap();
        fs::write(recording.join(About::FILE), "{}").unwrap();
        // Of another program, meanwhile.
        let other = recording.join("system/other");
        fs::write(&other, "").unwrap();
        made.take_back().unwrap();
        assert!(spans.exists() && other.exists() && recording.join(LOCK).exists());
        assert!(!recording.join(About::FILE).exists() && !recording.join("system/incremental").exists());
    }

    #[test]
    fn what_another_program_recorded_is_refused_and_stays() {
        for name in [
            "system/incremental/2020091312/1600000000.algo-1.json",
            "system/notes.txt",
            "control.json",
        ] {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "precious").unwrap();
            let error = Made::prepare(dir.path()).err().unwrap().to_string();
            assert!(error.contains(name) && error.contains("move it away"), "{error}");
            assert_eq!(fs::read_to_string(&file).unwrap(), "precious");
            // With the facts of a recorder, damaged or not, it is a recording to be continued.
            fs::write(dir.path().join(About::FILE), "").unwrap();
            Made::prepare(dir.path()).unwrap();
        }
    }
}
