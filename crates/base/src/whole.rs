//! Files that exist completely or not at all.
//!
//! A file is written under another name in the same folder, flushed to the disk, and then renamed, which
//! replaces the old file in one step. A process that opens the path sees the old content or the new, even
//! after a crash, and with several writers the whole content of one of them.

use std::fs::{self, File, TryLockError};
use std::io::{self, Seek, SeekFrom, Write};
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

/// The name of the file whose incomplete file has this name: `weights.bin` for `weights.bin.partial` and
/// `weights.bin.1.partial`. A file that is itself called `weights.1` may be meant by the second; both are given,
/// the longer one first.
pub fn of_partial(name: &str) -> Option<(&str, Option<&str>)> {
    let name = name.strip_suffix(PARTIAL)?.strip_suffix('.')?;
    let unnumbered = name.rsplit_once('.').and_then(|(before, number)| {
        let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
        is_number.then_some(before)
    });
    Some((name, unnumbered))
}

/// Writes a file, or replaces it.
///
/// # Errors
/// Errors of the file system. Then the file at `path` is unchanged, and nothing is left next to it.
pub fn write(path: &Path, bytes: impl AsRef<[u8]>) -> io::Result<()> {
    write_with(path, |file| file.write_all(bytes.as_ref()))
}

/// Writes a file, or replaces it, with what `fill` writes into it: for content that is made piece by piece.
///
/// # Errors
/// Errors of `fill` and of the file system. Then the file at `path` is unchanged, and nothing is left next to
/// it.
pub fn write_with<T>(path: &Path, fill: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    let mut writing = Writing::begin(path)?;
    let done = fill(&mut writing.file)?;
    writing.finish()?;
    Ok(done)
}

/// A file that is being written. Unless it is finished, it is removed when this is dropped.
///
/// It is locked meanwhile, where the file system has locks, so that a second writer of the same path takes
/// another name next to it: `weights.bin.1.partial`. The last one to finish gives the file its content. What a
/// killed writer left is removed by the next writer that needs the same name.
#[derive(Debug)]
pub struct Writing {
    file: File,
    aside: PathBuf,
    path: PathBuf,
}

impl Writing {
    /// Begins the file at `path`. What a killed writer of it left is removed and never written into: it could
    /// be a link to another file.
    ///
    /// # Errors
    /// Errors of the file system; something is at the path that is no file.
    pub fn begin(path: &Path) -> io::Result<Self> {
        // A rename would put a file in the place of a device, such as /dev/null.
        if let Some(there) = if_there(fs::metadata(path))?
            && !there.is_file()
        {
            let what = if there.is_dir() {
                "a folder"
            } else {
                "a device or a pipe"
            };
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{what} is there, and no file; give the name of a file"),
            ));
        }
        let mut aside = aside(path);
        for number in 1.. {
            if let Some(file) = create(&aside)? {
                return Ok(Self {
                    file,
                    aside,
                    path: path.to_owned(),
                });
            }
            aside = self::aside(&path.with_added_extension(number.to_string()));
        }
        unreachable!("there is always another number")
    }

    /// The file while it is incomplete.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Gives the complete file its name, when all of it is on the disk.
    ///
    /// # Errors
    /// Errors of the file system. Then the file at the path is unchanged.
    pub fn finish(self) -> io::Result<()> {
        self.file.sync_all()?;
        if !is_at(&self.file, &self.aside)? {
            // Where the file system has no locks.
            return Err(io::Error::other("another process writes the same file"));
        }
        fs::rename(&self.aside, &self.path)?;
        // The file is complete already. Some network file systems cannot flush a folder; ignore that.
        let _ = sync_folder(self.path.parent().unwrap_or(Path::new(".")));
        Ok(())
    }
}

impl Write for Writing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Seek for Writing {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // A finished file has its own name by now, and after a failure the first error counts.
        if is_at(&self.file, &self.aside).unwrap_or(false) {
            let _ = fs::remove_file(&self.aside);
        }
    }
}

/// Creates and locks an incomplete file; `None` while another writer has it.
fn create(aside: &Path) -> io::Result<Option<File>> {
    loop {
        match File::options().write(true).create_new(true).open(aside) {
            Ok(file) => match file.try_lock() {
                // Another writer has taken it for a killed one's before it was locked, and removes it.
                Err(TryLockError::WouldBlock) => {}
                Ok(()) if !is_at(&file, aside)? => {}
                // Without locks, the later writer of one path removes the earlier one's file, which fails in the end.
                Ok(()) | Err(TryLockError::Error(_)) => return Ok(Some(file)),
            },
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if !remove_old(aside)? {
                    return Ok(None);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Removes what is in the way of an incomplete file, unless a live writer has it.
fn remove_old(aside: &Path) -> io::Result<bool> {
    let Some(facts) = if_there(fs::symlink_metadata(aside))? else {
        return Ok(true);
    };
    // The lock is held until the file is gone, so that no other writer begins with it meanwhile.
    let mut _held = None;
    if facts.is_file() {
        // For writing too: NFS has no other exclusive locks.
        let Some(file) = if_there(File::options().read(true).write(true).open(aside))? else {
            return Ok(true);
        };
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Ok(false);
        }
        if !is_at(&file, aside)? {
            return Ok(true);
        }
        _held = Some(file);
    }
    if_there(fs::remove_file(aside))?;
    Ok(true)
}

/// Whether the path still names the open file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let of = |facts: fs::Metadata| (facts.dev(), facts.ino());
    let there = if_there(fs::symlink_metadata(path))?;
    Ok(there.map(of) == Some(of(file.metadata()?)))
}

#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
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
    fn what_is_no_file_stays() {
        let dir = tempfile::tempdir().unwrap();
        for path in [dir.path(), Path::new("/dev/null")] {
            let error = write(path, b"x").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
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

        // What cannot even be begun: no such folder, and something in the way of the file next to it.
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

    #[test]
    fn names_of_incomplete_files() {
        assert_eq!(of_partial("a.json.partial"), Some(("a.json", None)));
        assert_eq!(
            of_partial("a.json.12.partial"),
            Some(("a.json.12", Some("a.json")))
        );
        assert_eq!(of_partial("a.json"), None);
        assert_eq!(of_partial("partial"), None);
    }

    #[cfg(unix)]
    #[test]
    fn a_writer_that_lost_its_file_fails_and_touches_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        let mut first = Writing::begin(&path).unwrap();
        first.write_all(b"first").unwrap();
        // As a second writer does where there are no locks.
        fs::remove_file(aside(&path)).unwrap();
        fs::write(aside(&path), "half of the second").unwrap();
        assert!(
            first
                .finish()
                .unwrap_err()
                .to_string()
                .contains("another process")
        );
        assert_eq!(names(dir.path()), ["a.json.partial"]);
    }

    #[test]
    fn two_writers_do_not_meet() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        let mut slow = Writing::begin(&path).unwrap();
        slow.write_all(b"slow and").unwrap();
        let mut given_up = Writing::begin(&path).unwrap();
        given_up.write_all(b"given up").unwrap();
        write(&path, "quick").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "quick");
        drop(given_up);
        slow.write_all(b" whole").unwrap();
        slow.finish().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "slow and whole");
        assert_eq!(names(dir.path()), ["a.json"]);
    }

    #[test]
    fn many_writers_leave_one_whole_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.txt");
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..50 {
                        let text = writer.to_string().repeat(10_000);
                        write(path, &text).unwrap();
                        let read = fs::read_to_string(path).unwrap();
                        assert_eq!(read, read[..1].repeat(10_000));
                    }
                });
            }
        });
        assert_eq!(names(dir.path()), ["a.txt"]);
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
