//! Who uses a segment, and who may remove it.
//!
//! ```text
//!  its writer           an exclusive lock on the file, and a shared one when it is complete
//!  its readers          a shared lock, from the first read on; while it grows none, for the writer has it
//!  who may remove it    the process with the exclusive lock: no one uses it
//! ```
//!
//! The system gives locks back when a process ends in whatever way. So a segment without an end whose exclusive lock no one holds has
//! lost its writer. Those that were used longest ago are removed first, by the time of their files' last change, which a reader sets.
//! What is removed while somebody has it open stays readable for him, so a mistake costs space and never a sample. The file `lock` of
//! the folder is held while segments are begun and removed.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::SystemTime;

use stokehold_base::there::if_there;

/// Takes a segment that was just made.
pub(crate) fn of_writer(file: &File) -> io::Result<()> {
    file.lock()
}

/// Gives a complete segment to its readers, of whom its writer is one.
pub(crate) fn complete(file: &File) -> io::Result<()> {
    file.lock_shared()
}

/// Whether a segment's writer lives.
pub(crate) fn has_writer(file: &File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether no one uses a segment. Then no one else may begin to, until the file is closed.
pub(crate) fn is_unused(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Opens a segment to read from it, and keeps others from removing it; `None` if it is not there any more.
pub(crate) fn of_reader(path: &Path) -> io::Result<Option<File>> {
    let Some(file) = if_there(File::open(path))? else {
        return Ok(None);
    };
    // Of one that grows, the writer has the lock, and no one may remove it.
    has_writer(&file)?;
    // It may have been removed just before it was locked.
    if file.metadata()?.nlink() == 0 {
        return Ok(None);
    }
    // When it was used last; in a read-only folder no one removes it.
    let _ = File::options()
        .append(true)
        .open(path)
        .and_then(|file| file.set_modified(SystemTime::now()));
    Ok(Some(file))
}
