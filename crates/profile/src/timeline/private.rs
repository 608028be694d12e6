//! A folder for a socket that only its owner can enter.

use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use stokehold_base::lock::{self, Lock, Refused};
use stokehold_base::there::if_there;

/// The prefix of the folders' names.
const NAME: &str = "stokehold-spans-";
const NEW: &str = ".stokehold-spans-";
/// The address of a Unix socket has 108 bytes, the last of them 0.
const LONGEST: usize = 107;

/// A folder that is locked while it is in use. Dropping it removes it.
pub(super) struct Private {
    path: PathBuf,
    _lock: Lock,
}

impl Private {
    /// Creates a folder in the temporary folder if the address of a socket in it is short enough, and
    /// otherwise in `/tmp`. Removes folders that killed processes left there.
    ///
    /// # Errors
    /// The system's error.
    pub fn new() -> io::Result<Self> {
        let usual = std::env::temp_dir();
        let fits = socket(&usual.join(format!("{NAME}{:016x}", 0)))
            .as_os_str()
            .as_bytes()
            .len()
            <= LONGEST;
        Self::below(if fits { &usual } else { Path::new("/tmp") })
    }

    fn below(base: &Path) -> io::Result<Self> {
        // The system seeds it, so no other user can create the folder first.
        let number = format!("{:016x}", RandomState::new().build_hasher().finish());
        let new = base.join(format!("{NEW}{number}"));
        let path = base.join(format!("{NAME}{number}"));
        DirBuilder::new().mode(0o700).create(&new)?;
        // The folder gets its final name only when it is locked, so one with a final name and no lock is
        // abandoned.
        let made = Lock::take(&new.join("lock")).map_err(|refused| match refused {
            Refused::Io(error) => error,
            refused => io::Error::other(format!("{refused:?}")),
        });
        let made = made.and_then(|lock| fs::rename(&new, &path).map(|()| lock));
        match made {
            Ok(lock) => {
                sweep(base, &path);
                Ok(Self { path, _lock: lock })
            }
            Err(error) => {
                // This may fail for the same reason; report the first error.
                let _ = fs::remove_dir_all(&new);
                Err(error)
            }
        }
    }

    /// The path for a socket.
    pub fn socket(&self) -> PathBuf {
        socket(&self.path)
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // If this fails, the next process removes it.
        let _ = remove(&self.path);
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}

/// Removes what killed processes of the same user left: folders that no other user can have changed and whose
/// lock is free.
fn sweep(base: &Path, own: &Path) {
    let Ok(owner) = fs::symlink_metadata(own).map(|data| data.uid()) else {
        return;
    };
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().as_bytes().starts_with(NAME.as_bytes())) {
        let path = entry.path();
        let ours = fs::symlink_metadata(&path)
            .is_ok_and(|data| data.is_dir() && data.uid() == owner && data.mode() & 0o077 == 0);
        let lock = path.join("lock");
        if ours && path != own && lock.exists() && matches!(lock::is_held(&lock), Ok(false)) {
            // Another process may be removing it, too.
            let _ = remove(&path);
        }
    }
}

/// Removes a folder and the files that a server leaves in it, and nothing else.
fn remove(folder: &Path) -> io::Result<()> {
    for file in [socket(folder), folder.join("lock")] {
        if_there(fs::remove_file(file))?;
    }
    fs::remove_dir(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_its_owner_enters_and_it_goes_when_it_is_dropped() {
        let base = tempfile::tempdir().unwrap();
        let (one, two) = (
            Private::below(base.path()).unwrap(),
            Private::below(base.path()).unwrap(),
        );
        assert_ne!(one.path, two.path);
        let mode = fs::metadata(&one.path).unwrap().mode() & 0o777;
        assert_eq!(mode, 0o700, "{mode:o}");
        UnixListener::bind(one.socket()).unwrap();
        drop((one, two));
        assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_process_left_goes_and_what_is_used_stays() {
        let base = tempfile::tempdir().unwrap();
        let folder = |name: &str, mode| {
            let path = base.path().join(name);
            DirBuilder::new().mode(mode).create(&path).unwrap();
            fs::write(path.join("lock"), "1 2 3\n").unwrap();
            path
        };
        let left = folder("stokehold-spans-left", 0o700);
        UnixListener::bind(socket(&left)).unwrap();
        let open = folder("stokehold-spans-open", 0o755);
        let other = folder("something-else", 0o700);
        let foreign = folder("stokehold-spans-more", 0o700);
        fs::write(foreign.join("data"), "of somebody").unwrap();
        let used = Private::below(base.path()).unwrap();
        let next = Private::below(base.path()).unwrap();
        assert!(!left.exists());
        assert!(open.exists() && other.exists() && used.path.exists() && next.path.exists());
        assert!(foreign.join("data").exists());
    }

    #[test]
    fn a_folder_that_cannot_be_is_an_error() {
        assert!(Private::below(Path::new("/dev/null")).is_err());
    }
}
