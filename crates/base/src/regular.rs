//! Reads regular files only.
//!
//! A program that opens a FIFO to read it waits for a writer, perhaps for ever, and a device may never end. In a
//! folder that another program or another person filled, either can have the name of an expected file.

use std::fs::{self, File, FileType};
use std::io::{self, Read};
use std::path::Path;

/// Opens a regular file, or a link to one, to read it.
///
/// ```
/// use stokehold_base::regular;
/// assert!(regular::open("/dev/null".as_ref()).is_err());
/// ```
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for anything else, which is not opened, and errors of the file system.
pub fn open(path: &Path) -> io::Result<File> {
    // Opening can have effects already, so the kind is looked up before, and once more of what was opened.
    check(&fs::metadata(path)?)?;
    let file = File::open(path)?;
    check(&file.metadata()?)?;
    Ok(file)
}

/// The bytes of a regular file.
///
/// # Errors
/// As [`open`], and errors of reading.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The most bytes that [`read_small`] reads.
pub const SMALL: u64 = 64 << 20;

/// The bytes of a file that describes something, and so is small: what anybody may have put there does not fill the memory.
///
/// # Errors
/// As [`read`]; [`io::ErrorKind::InvalidData`] if it has more than [`SMALL`] bytes.
pub fn read_small(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open(path)?.take(SMALL + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > SMALL {
        true => {
            let reason = format!("it has more than {} MiB: it describes nothing", SMALL >> 20);
            Err(io::Error::new(io::ErrorKind::InvalidData, reason))
        }
        false => Ok(bytes),
    }
}

/// The text of a regular file.
///
/// # Errors
/// As [`read`]; [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_to_string(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

fn check(data: &fs::Metadata) -> io::Result<()> {
    let kind = data.file_type();
    if kind.is_file() {
        return Ok(());
    }
    let reason = format!("{} and no regular file, so it is not opened", name_of(kind));
    Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
}

#[cfg(unix)]
fn name_of(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt;
    match kind {
        _ if kind.is_dir() => "a folder",
        _ if kind.is_fifo() => "a FIFO",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    }
}

#[cfg(not(unix))]
fn name_of(kind: FileType) -> &'static str {
    if kind.is_dir() { "a folder" } else { "a device" }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;

    #[test]
    fn only_regular_files_and_links_to_them_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("file"), "text").unwrap();
        symlink("file", at("link")).unwrap();
        for name in ["file", "link"] {
            assert_eq!(read_to_string(&at(name)).unwrap(), "text");
            assert_eq!(read(&at(name)).unwrap(), b"text");
        }
        let made = Command::new("mkfifo").arg(at("fifo")).status().unwrap();
        assert!(made.success());
        symlink("fifo", at("link-to-fifo")).unwrap();
        let _socket = UnixListener::bind(at("socket")).unwrap();
        for (path, kind) in [
            (at("fifo"), "a FIFO"),
            (at("link-to-fifo"), "a FIFO"),
            (at("socket"), "a socket"),
            (dir.path().to_owned(), "a folder"),
            ("/dev/zero".into(), "a device"),
        ] {
            let error = read(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().starts_with(kind), "{error}");
        }
        assert_eq!(open(&at("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
