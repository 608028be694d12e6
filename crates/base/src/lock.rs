//! Locks that say which process holds them.
//!
//! A lock is a file that a process has locked with the operating system (`flock`) and that contains the
//! process's identity. The operating system releases the lock when the process ends for any reason, so a lock
//! never outlives its holder, and none has to be removed. The file stays; the content of an unlocked file is
//! ignored.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::regular;
use crate::there::if_there;

use crate::clock::{Utc, unix_now};

/// A lock, held until it is dropped or the process ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
    /// The process that took it.
    pid: u32,
}

/// The holder of a lock.
#[derive(Debug, Clone, PartialEq)]
pub enum Holder {
    /// A process that has written its identity.
    Process {
        /// Its number on its machine.
        pid: u32,
        /// The machine's name.
        host: String,
        /// When it took the lock, in seconds since 1970.
        since: f64,
    },
    /// A process that has not written yet.
    Unknown,
}

impl fmt::Display for Holder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, host, since } => {
                write!(out, "process {pid} on {host}, since {}", Utc(*since))
            }
            Self::Unknown => out.write_str("another process"),
        }
    }
}

/// Why a lock could not be taken.
#[derive(Debug)]
pub enum Refused {
    /// Another process holds it.
    Held(Holder),
    /// The file system failed.
    Io(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Lock {
    /// Takes the lock of a file, which is created if needed; its folder must exist.
    ///
    /// # Errors
    /// [`Refused::Held`] while another process, or another [`Lock`] of this one, holds it.
    pub fn take(path: &Path) -> Result<Self, Refused> {
        if fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(not_ours(path));
        }
        let mut file = opened(path)?;
        if !lock(&file, MOMENT)? {
            return Err(Refused::Held(announced(&mut file)));
        }
        let mut text = String::new();
        if file.read_to_string(&mut text).is_err() || !(text.is_empty() || parse(&text).is_some()) {
            return Err(not_ours(path));
        }
        file.rewind()?;
        file.set_len(0)?;
        let pid = std::process::id();
        let line = format!("{pid} {:.3} {}\n", unix_now(), host());
        file.write_all(line.as_bytes())?;
        Ok(Self {
            file,
            path: path.to_owned(),
            pid,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing the file is not enough: a program that is being started still shares it (see [`MOMENT`]). A forked process
        // shares it, too, and must not end the lock of the process that took it.
        if self.pid == std::process::id() {
            let _ = self.file.unlock();
        }
    }
}

/// The file is not a lock file: never overwrite a user's file, nor the target of a link.
fn not_ours(path: &Path) -> Refused {
    let reason = format!("{} is there and is no lock; move it away", path.display());
    Refused::Io(io::Error::new(io::ErrorKind::AlreadyExists, reason))
}

/// How long to wait for a lock that will be released in a moment: a program that a process has just started
/// shares all of that process's open files, locked ones too, until it is loaded.
pub const MOMENT: Duration = Duration::from_secs(1);

/// Locks an open file, or folder, until it is closed. Waits up to `patience` if another process holds it, and
/// returns `false` if it still does then.
///
/// # Errors
/// Errors of the file system.
pub fn lock(file: &File, patience: Duration) -> io::Result<bool> {
    let started = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if started.elapsed() >= patience => return Ok(false),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Opens a file to read and write, creates it if needed, and locks it as [`lock`] does. `None` if another
/// process holds it. Nothing is written to the file, so others cannot see who holds it.
///
/// # Errors
/// Errors of the file system.
pub fn open(path: &Path, patience: Duration) -> io::Result<Option<File>> {
    let file = opened(path)?;
    Ok(lock(&file, patience)?.then_some(file))
}

fn opened(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
}

/// The holder of a file's lock, without taking it: `None` if it is free or the file does not exist.
///
/// # Errors
/// Errors of the file system.
pub fn holder(path: &Path) -> io::Result<Option<Holder>> {
    Ok(held(path)?.map(|mut file| announced(&mut file)))
}

/// Whether a process holds the lock of a file, without taking it, and whether or not the process has written
/// its identity.
///
/// # Errors
/// Errors of the file system.
pub fn is_held(path: &Path) -> io::Result<bool> {
    Ok(held(path)?.is_some())
}

/// The file, if it exists and is locked.
fn held(path: &Path) -> io::Result<Option<File>> {
    let Some(file) = if_there(regular::open(path))? else {
        return Ok(None);
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(None),
        Err(TryLockError::WouldBlock) => Ok(Some(file)),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Reads the identity in a locked file. The holder writes it a moment after it locks, so an empty file is
/// read again for 100 ms.
fn announced(file: &mut File) -> Holder {
    let started = Instant::now();
    loop {
        let mut text = String::new();
        let read = file.rewind().and_then(|()| file.read_to_string(&mut text));
        if let Some(found) = read.ok().and_then(|_| parse(&text)) {
            return found;
        }
        if started.elapsed() > Duration::from_millis(100) {
            return Holder::Unknown;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn parse(text: &str) -> Option<Holder> {
    let mut words = text.strip_suffix('\n')?.splitn(3, ' ');
    Some(Holder::Process {
        pid: words.next()?.parse().ok()?,
        since: words.next()?.parse().ok()?,
        host: words.next()?.to_owned(),
    })
}

/// The machine's name, if it has one.
fn host() -> String {
    let name =
        fs::read_to_string("/proc/sys/kernel/hostname").or_else(|_| fs::read_to_string("/etc/hostname"));
    let name = name.unwrap_or_default().trim().to_owned();
    if name.is_empty() {
        "this host".to_owned()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_learns_who_the_first_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert!(holder(&path).unwrap().is_none());
        let before = unix_now();
        let lock = Lock::take(&path).unwrap();
        let Err(Refused::Held(first)) = Lock::take(&path) else {
            panic!("the lock was given twice");
        };
        let Holder::Process { pid, since, .. } = first else {
            panic!("{first}");
        };
        assert_eq!(pid, std::process::id());
        assert!((before - 0.01..=unix_now()).contains(&since), "{since}");
        assert_eq!(holder(&path).unwrap(), Some(first));
        drop(lock);
        assert!(holder(&path).unwrap().is_none());
        Lock::take(&path).unwrap();
    }

    #[test]
    fn a_longer_text_of_an_earlier_holder_is_written_over() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        fs::write(&path, "1 2.0 a host with a very long name that is longer than anything that this process writes into it\n").unwrap();
        let _lock = Lock::take(&path).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let Some(Holder::Process { pid, .. }) = parse(&text) else {
            panic!("{text}");
        };
        assert_eq!(pid, std::process::id());
    }

    #[test]
    fn what_is_no_lock_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let mine = dir.path().join("mine");
        fs::write(&mine, "precious").unwrap();
        let link = dir.path().join("lock");
        std::os::unix::fs::symlink(&mine, &link).unwrap();
        for path in [&mine, &link] {
            let Err(Refused::Io(error)) = Lock::take(path) else {
                panic!("{} was taken", path.display());
            };
            assert!(error.to_string().contains("is no lock"), "{error}");
        }
        assert_eq!(fs::read_to_string(&mine).unwrap(), "precious");
    }

    #[test]
    fn a_lock_ends_although_a_starting_program_shares_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = Lock::take(&path).unwrap();
        let shared = lock.file.try_clone().unwrap();
        drop(lock);
        assert_eq!(holder(&path).unwrap(), None);
        drop(shared);
    }

    #[test]
    fn a_fork_does_not_end_the_lock_of_its_parent() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let parent = Lock::take(&path).unwrap();
        let fork = Lock {
            file: parent.file.try_clone().unwrap(),
            path: path.clone(),
            pid: parent.pid + 1,
        };
        drop(fork);
        assert!(holder(&path).unwrap().is_some());
        drop(parent);
        assert!(holder(&path).unwrap().is_none());
    }

    #[test]
    fn a_folder_that_is_missing_is_an_error_and_not_a_holder() {
        let dir = tempfile::tempdir().unwrap();
        assert!(matches!(
            Lock::take(&dir.path().join("no/lock")),
            Err(Refused::Io(_))
        ));
    }

    /// As between the start of a program and its first instruction, when it still has the files of the one that started it and
    /// was killed.
    #[test]
    fn a_lock_that_is_given_up_in_a_moment_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = open(&path, Duration::ZERO).unwrap().unwrap();
        let second = first.try_clone().unwrap();
        drop(first);
        std::thread::scope(|scope| {
            let taken = scope.spawn(|| Lock::take(&path));
            std::thread::sleep(Duration::from_millis(20));
            drop(second);
            assert!(taken.join().unwrap().is_ok());
        });
    }
}
