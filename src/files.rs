//! Complete files, locked folders, and errors with file names.

use std::error::Error;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use stokehold_base::lock::{Lock, Refused};
use stokehold_base::whole;

use crate::failure::Usage;

/// Replaces a file, by [`whole::write`].
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    whole::write(path, contents).map_err(|error| named(path, &error))
}

/// The value of a file of JSON; `None` if it has none.
pub fn json(path: &Path) -> Option<serde_json::Value> {
    serde_json::from_slice(&stokehold_base::regular::read(path).ok()?).ok()
}

/// Writes a template file for the user.
///
/// # Errors
/// [`Usage`] if the file exists, which is then unchanged; an error of the system.
pub fn write_new(path: &Path, contents: &str) -> Result<(), Box<dyn Error>> {
    match File::create_new(path) {
        Ok(mut made) => Ok(made
            .write_all(contents.as_bytes())
            .and_then(|()| made.sync_all())
            .map_err(|error| {
                // A partial file would block the next try; report the first error.
                let _ = fs::remove_file(path);
                named(path, &error)
            })?),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(Usage(format!("{} is there already; give another name", path.display())).into())
        }
        Err(error) => Err(named(path, &error).into()),
    }
}

/// The file by which a folder is locked.
pub const LOCK: &str = "lock";

/// Locks a folder, which is created if needed, against other processes that lock it, until the lock is
/// dropped.
///
/// # Errors
/// [`Usage`] if another process has it, with its name; an error of the system.
pub fn lock(folder: &Path) -> Result<Lock, Box<dyn Error>> {
    fs::create_dir_all(folder).map_err(|error| named(folder, &error))?;
    let path = folder.join(LOCK);
    Lock::take(&path).map_err(|refused| match refused {
        Refused::Held(holder) => Usage(format!(
            "{}: {} works in this folder; wait until it ends, or give another folder",
            folder.display(),
            holder
        ))
        .into(),
        Refused::Io(error) => named(&path, &error).into(),
    })
}

/// The error with the file's name.
pub fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
