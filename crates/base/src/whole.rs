//! Files that exist completely or not at all.
//!
//! A file is written under another name in the same folder, flushed to the disk, and then renamed, which
//! replaces the old file in one step. A process that opens the path sees the old content or the new, even
//! after a crash.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::there::if_there;

/// The suffix of an incomplete file.
pub const PARTIAL: &str = "partial";

/// The path of a file until it is complete: `weights.bin.partial` for `weights.bin`.
pub fn aside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(PARTIAL);
    name.into()
}

/// Writes a file, or replaces it.
///
/// # Errors
/// Errors of the file system. Then the file at `path` is unchanged, and nothing is left beside it.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    write_with(path, |file| file.write_all(bytes.as_ref()))
}

/// Writes a file, or replaces it, with what `fill` writes into it: for content that is made piece by piece.
///
/// # Errors
/// Errors of `fill` and of the file system. Then the file at `path` is unchanged, and nothing is left beside
/// it.
pub fn write_with<T>(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    let aside = aside(path);
    let written = create(&aside).and_then(|mut file| {
        let done = fill(&mut file)?;
        file.sync_all()?;
        fs::rename(&aside, path)?;
        Ok(done)
    });
    if written.is_err() {
        // Report the first error.
        let _ = fs::remove_file(&aside);
        return written;
    }
    // The file is complete already. Some network file systems cannot flush a folder; ignore that.
    let _ = sync_folder(path.parent().unwrap_or(Path::new(".")));
    written
}

/// Creates the incomplete file at `aside`. An existing one of a killed writer is removed and never written
/// into: it could be a link to another file.
///
/// # Errors
/// Errors of the file system.
pub fn create(aside: &Path) -> io::Result<File> {
    if_there(fs::remove_file(aside))?;
    File::options().write(true).create_new(true).open(aside)
}

/// Makes the names in a folder survive a power cut; only possible on Unix.
///
/// # Errors
/// Errors of the file system.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    let here = if folder.as_os_str().is_empty() {
        Path::new(".")
    } else {
        folder
    };
    if cfg!(unix) {
        File::open(here)?.sync_all()
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names in a folder, in order.
    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_file_is_made_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        for text in ["a longer one", "short", ""] {
            write(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
            assert_eq!(names(dir.path()), ["a.json"]);
        }
    }

    #[test]
    fn what_a_killed_writer_left_is_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        fs::write(aside(&path), "half of something much longer").unwrap();
        write(&path, "whole").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(names(dir.path()), ["a.json"]);
    }

    #[test]
    fn a_failure_leaves_everything_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        // A folder that is not empty cannot be replaced by a file: the last step fails.
        let path = dir.path().join("a.json");
        fs::create_dir(&path).unwrap();
        fs::write(path.join("inside"), "kept").unwrap();
        assert!(write(&path, "new").is_err());
        assert_eq!(names(dir.path()), ["a.json"]);
        assert_eq!(fs::read_to_string(path.join("inside")).unwrap(), "kept");

        // What cannot even be begun: no such folder, and something in the way of the file beside it.
        let error = write(&dir.path().join("missing/a.json"), "new").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let path = dir.path().join("b.json");
        fs::write(&path, "old").unwrap();
        fs::create_dir(aside(&path)).unwrap();
        assert!(write(&path, "new").is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(dir.path()), ["a.json", "b.json", "b.json.partial"]);
    }

    #[test]
    fn a_failure_on_the_way_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        fs::write(&path, "old").unwrap();
        let full = |file: &mut File| {
            file.write_all(b"ne")?;
            Err::<(), _>(io::Error::from(io::ErrorKind::StorageFull))
        };
        let error = write_with(&path, full).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(names(dir.path()), ["a.json"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_in_the_way_leads_nowhere() {
        let dir = tempfile::tempdir().unwrap();
        let (path, victim) = (dir.path().join("a.json"), dir.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, aside(&path)).unwrap();
        write(&path, "first").unwrap();
        fs::hard_link(&victim, aside(&path)).unwrap();
        write(&path, "second").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "second");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }
}
