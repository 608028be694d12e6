//! Files written as a whole, and errors that name them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Replaces a file: written beside it, flushed to the disk, renamed. Whoever reads it sees the old or the new one.
pub fn write(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(".part");
    let aside = path.with_file_name(name);
    let written = File::create(&aside).and_then(|mut file| {
        file.write_all(contents.as_ref())?;
        file.sync_all()?;
        fs::rename(&aside, path)
    });
    if written.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&aside);
    }
    written.map_err(|error| named(path, &error))
}

/// Removes a folder and what is in it, if it is there.
pub fn remove_dir(path: &Path) -> io::Result<()> {
    unless_missing(path, fs::remove_dir_all(path))
}

/// Removes a file, if it is there.
pub fn remove_file(path: &Path) -> io::Result<()> {
    unless_missing(path, fs::remove_file(path))
}

/// The error with the file's name.
pub fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn unless_missing(path: &Path, removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(named(path, &error)),
        _ => Ok(()),
    }
}
