//! What a later runner has to know of a layer when this one is killed: a line for each thing that happened.
//!
//! The lines are written before and after the requests that they tell of, and are not flushed to the disk: a runner
//! that is killed leaves them to the kernel. After a crash of the machine some may be missing; then files count as
//! incomplete, and are put aside.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use stokehold_base::there::if_there;
use stokehold_objects::Object;

/// A line of the journal.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// A file is complete, or gone (no stamp), and its object is this one, or none. The script may not see the
    /// object.
    Found {
        key: String,
        stamp: Option<String>,
        over: Option<Version>,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        hidden: bool,
    },
    /// A file was sent, and its object is this one now.
    Sent {
        key: String,
        stamp: String,
        version: Version,
    },
    /// An object was removed.
    Removed { key: String },
    /// The script has ended, and the files in the layer are complete. Objects are not removed any more where a file
    /// was put aside.
    Ended { removes: bool },
}

/// Identifies a version of an object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Version {
    etag: Option<String>,
    pub size: u64,
    modified: i64,
}

impl Version {
    pub fn of(object: &Object) -> Self {
        Self {
            etag: object.etag.clone(),
            size: object.size,
            modified: object.modified,
        }
    }

    /// The version that a server said it has written.
    pub fn written(etag: &str, size: u64) -> Self {
        Self {
            etag: Some(etag.to_owned()),
            size,
            modified: 0,
        }
    }

    /// Whether an object is of this version.
    pub fn is(&self, object: &Object) -> bool {
        let known = Object {
            key: String::new(),
            size: self.size,
            etag: self.etag.clone(),
            modified: self.modified,
        };
        known.is_version_of(object)
    }
}

/// The journal of a layer.
pub struct Journal<W = File> {
    file: W,
    /// Whether the last line may have been written in part, as on a full disk.
    is_torn: bool,
}

impl Journal {
    /// Opens a journal, and reads what it says so far.
    pub fn open(path: &Path) -> io::Result<(Self, Vec<Entry>)> {
        let text = if_there(fs::read(path))?.unwrap_or_default();
        let file = File::options().create(true).append(true).open(path)?;
        // The last line of a runner that was killed may be torn.
        let is_torn = text.last().is_some_and(|byte| *byte != b'\n');
        Ok((Self { file, is_torn }, entries(&text)))
    }
}

/// The entries of a journal, without torn lines.
fn entries(text: &[u8]) -> Vec<Entry> {
    let lines = text.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

impl<W: Write> Journal<W> {
    pub fn add(&mut self, entry: &Entry) -> io::Result<()> {
        let mut line = match self.is_torn {
            true => vec![b'\n'],
            false => Vec::new(),
        };
        serde_json::to_writer(&mut line, entry)?;
        line.push(b'\n');
        let written = self.file.write_all(&line);
        self.is_torn = written.is_err();
        written.map_err(|error| io::Error::new(error.kind(), format!("the journal of what is sent: {error}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again_without_a_torn_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("journal");
        let entry = |key: &str| Entry::Sent {
            key: key.to_owned(),
            stamp: "1 2 3 4".to_owned(),
            version: Version::written("\"e\"", 3),
        };
        let (mut journal, entries) = Journal::open(&path).unwrap();
        assert!(entries.is_empty());
        journal.add(&entry("a\nb")).unwrap();
        journal.file.write_all(b"{\"Sent\":{\"key\":").unwrap();
        let (mut journal, entries) = Journal::open(&path).unwrap();
        assert_eq!(entries, [entry("a\nb")]);
        journal.add(&Entry::Ended { removes: true }).unwrap();
        let (_, entries) = Journal::open(&path).unwrap();
        assert_eq!(entries, [entry("a\nb"), Entry::Ended { removes: true }]);
    }

    /// Takes this many bytes and then fails, as a full disk does, once.
    struct Full {
        text: Vec<u8>,
        left: Option<usize>,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let most = match self.left {
                Some(0) => {
                    self.left = None;
                    return Err(io::ErrorKind::StorageFull.into());
                }
                Some(left) => left.min(bytes.len()),
                None => bytes.len(),
            };
            self.left = self.left.map(|left| left - most);
            self.text.extend(&bytes[..most]);
            Ok(most)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_full_disk_costs_one_entry_and_not_the_next() {
        let entry = |key: &str| Entry::Removed { key: key.to_owned() };
        let length = serde_json::to_vec(&entry("a")).unwrap().len() + 1;
        for left in 0..length {
            let file = Full {
                text: Vec::new(),
                left: Some(length + left),
            };
            let mut journal = Journal { file, is_torn: false };
            journal.add(&entry("a")).unwrap();
            assert!(journal.add(&entry("b")).is_err());
            journal.add(&entry("c")).unwrap();
            journal.add(&entry("d")).unwrap();
            let mut expected = vec![entry("a"), entry("c"), entry("d")];
            // All of its line is there but for the end of the line.
            if left == length - 1 {
                expected.insert(1, entry("b"));
            }
            assert_eq!(entries(&journal.file.text), expected, "{left}");
        }
    }
}
