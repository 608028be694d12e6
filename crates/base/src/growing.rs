//! A file of lines that another process appends to.

use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::regular;
use crate::there::if_there;

/// At most this much is read at a look, bytes.
const CHUNK: u64 = 16 << 20;
/// Longer lines are left out, bytes: no program writes them on purpose, and they would be kept until their end comes.
const LONGEST: usize = 1 << 20;

/// A file of lines, followed as it grows.
#[derive(Debug)]
pub struct Growing {
    path: PathBuf,
    from: u64,
    /// The beginning of a line whose end is not there yet.
    tail: Vec<u8>,
    /// Whether the present line is too long, and passed over.
    too_long: bool,
}

/// What was written since the last look.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Appended {
    /// The file is shorter than it was: what it has was written again, from its beginning.
    pub anew: bool,
    /// Whole lines, with their ends.
    pub text: Vec<u8>,
    /// Whether there is more, for another look.
    pub more: bool,
}

impl Appended {
    /// The lines, without their ends and the empty ones.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let lines = self.text.split(|byte| *byte == b'\n');
        lines.filter(|line| !line.iter().all(u8::is_ascii_whitespace))
    }
}

impl Growing {
    /// Follows a file from its beginning; it need not be there yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            from: 0,
            tail: Vec::new(),
            too_long: false,
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The whole lines since the last look, of at most 16 MiB. A line that is still being written comes with its end; one of more
    /// than a MiB does not come at all.
    ///
    /// # Errors
    /// The system's error, and for what is no regular file; a file that is not there has no lines.
    pub fn look(&mut self) -> io::Result<Appended> {
        let mut appended = Appended::default();
        let Some(mut file) = if_there(regular::open(&self.path))? else {
            return Ok(appended);
        };
        let length = file.metadata()?.len();
        if length < self.from {
            *self = Self::new(std::mem::take(&mut self.path));
            appended.anew = true;
        }
        file.seek(SeekFrom::Start(self.from))?;
        let mut read = Vec::new();
        self.from += file.take(CHUNK).read_to_end(&mut read)? as u64;
        appended.more = self.from < length;
        let mut rest = &read[..];
        if self.too_long {
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                return Ok(appended);
            };
            (rest, self.too_long) = (&rest[end + 1..], false);
        }
        appended.text = std::mem::take(&mut self.tail);
        appended.text.extend(rest);
        let whole = appended
            .text
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        self.tail = appended.text.split_off(whole);
        if self.tail.len() > LONGEST {
            (self.tail, self.too_long) = (Vec::new(), true);
        }
        Ok(appended)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;
    use std::process::Command;

    use super::*;

    #[test]
    fn lines_come_once_and_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        let mut growing = Growing::new(&path);
        assert_eq!(growing.look().unwrap(), Appended::default());
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one\n\n  \ntw").unwrap();
        let appended = growing.look().unwrap();
        assert_eq!(appended.lines().collect::<Vec<_>>(), [b"one"]);
        file.write_all(b"o\n").unwrap();
        assert_eq!(growing.look().unwrap().text, b"two\n");
        assert_eq!(growing.look().unwrap(), Appended::default());
        fs::write(&path, "new\n").unwrap();
        let appended = growing.look().unwrap();
        assert!(appended.anew && appended.text == b"new\n");
    }

    #[test]
    fn lines_that_are_too_long_are_passed_over_and_large_files_come_in_parts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lines");
        let mut growing = Growing::new(&path);
        let mut file = File::create(&path).unwrap();
        file.write_all(b"one\n").unwrap();
        file.write_all(&vec![b'x'; LONGEST + 1]).unwrap();
        assert_eq!(growing.look().unwrap().text, b"one\n");
        file.write_all(b"end of it\ntwo\n").unwrap();
        assert_eq!(growing.look().unwrap().text, b"two\n");
        let line = [&vec![b'y'; 1023][..], b"\n"].concat();
        file.write_all(&line.repeat((CHUNK >> 10) as usize + 5)).unwrap();
        let (first, second) = (growing.look().unwrap(), growing.look().unwrap());
        assert!(first.more && !second.more);
        assert_eq!(
            (first.lines().count() + second.lines().count()) as u64,
            (CHUNK >> 10) + 5
        );
    }

    #[test]
    fn nobody_waits_for_a_fifo() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("fifo");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert_eq!(
            Growing::new(&path).look().unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
}
