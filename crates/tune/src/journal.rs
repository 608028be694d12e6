//! The file that stores a study: one event per line, append-only.
//!
//! ```text
//! 5f3a9c01 {"event":"asked","trial":3,..}
//! crc32 of the text, a space, the text as JSON
//! ```
//!
//! A writer holds the file's lock (a kernel lock, released when the process ends) and has read all earlier
//! lines. It writes one line at a time, flushes it to the disk, and only then writes the next line or tells a
//! caller. So a crash can damage the line that was being written and none before it:
//!
//! - A killed process or a power cut leaves bytes without a newline behind them; after a power cut they may
//!   be NULs, where the file's new length reached the disk and its content did not. No one was told of them.
//!   The next writer removes them.
//! - The blocks of one line may reach the disk in any order. So a power cut can leave a last line that has its
//!   newline and not all of its content. A damaged disk or a mistake of an editor looks the same, and then a
//!   caller may have been told of the line. The next writer moves it into a file next to the journal.
//! - A line that does not fit its checksum and has anything after it was on the disk once. The file is damaged.
//!   That is an error, and nothing is changed.
//! - A line that fits its checksum is what a writer wrote. If it cannot be understood, the writer was a newer
//!   version. That is an error, and nothing is changed.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use stokehold_base::whole;

use crate::TuneError;
use crate::event::Event;

/// An open journal.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    file: File,
    /// Bytes and lines that were read and applied.
    bytes: u64,
    lines: usize,
}

/// The result of a read.
#[derive(Debug, Default)]
pub(crate) struct NewEvents {
    pub events: Vec<Event>,
    /// What is after the last good line, if anything is.
    pub tail: Option<Tail>,
}

/// The end of a journal that a crash may have left.
#[derive(Debug, Clone)]
pub(crate) enum Tail {
    /// This many bytes without a newline.
    Incomplete(u64),
    /// A line with its newline that does not fit its checksum.
    Damaged(Vec<u8>),
}

/// What was removed from the end of a journal. Displayed, it is a sentence about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Torn {
    /// The beginning of a line, or NULs.
    Incomplete {
        /// How much of it there was.
        bytes: u64,
    },
    /// A last line that did not fit its checksum.
    Damaged {
        /// The line, counted from one.
        line: usize,
        /// The file that has it now.
        kept: PathBuf,
    },
}

impl fmt::Display for Torn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete { bytes } => write!(
                f,
                "the journal ended in the middle of a line: {bytes} incomplete bytes were removed; no caller had been told of them"
            ),
            Self::Damaged { line, kept } => write!(
                f,
                "the journal's last line, line {line}, does not fit its checksum: a power cut while it was written leaves it so, \
                 or a damaged disk; the study continues without it, and it is kept as {}",
                kept.display()
            ),
        }
    }
}

impl Journal {
    pub fn create(path: &Path) -> Result<Self, TuneError> {
        let open = File::options()
            .read(true)
            .append(true)
            .create_new(true)
            .open(path);
        Ok(Self::of(path, open.map_err(TuneError::io(path))?))
    }

    pub fn open(path: &Path) -> Result<Self, TuneError> {
        let open = File::options().read(true).append(true).open(path);
        Ok(Self::of(path, open.map_err(TuneError::io(path))?))
    }

    fn of(path: &Path, file: File) -> Self {
        Self {
            path: path.to_owned(),
            file,
            bytes: 0,
            lines: 0,
        }
    }

    /// Waits for other writers, and takes the lock.
    pub fn lock(&self) -> Result<(), TuneError> {
        self.file.lock().map_err(TuneError::io(&self.path))
    }

    pub fn unlock(&self) -> Result<(), TuneError> {
        self.file.unlock().map_err(TuneError::io(&self.path))
    }

    /// Reads the complete lines that other processes have written since the last call.
    pub fn read(&mut self) -> Result<NewEvents, TuneError> {
        let mut text = Vec::new();
        let mut read = || -> io::Result<()> {
            self.file.seek(SeekFrom::Start(self.bytes))?;
            self.file.read_to_end(&mut text).map(drop)
        };
        read().map_err(TuneError::io(&self.path))?;
        let mut read = NewEvents::default();
        let mut at = 0;
        while let Some(length) = text[at..].iter().position(|byte| *byte == b'\n') {
            let (line, next) = (&text[at..at + length], at + length + 1);
            match parse(line) {
                Ok(event) => read.events.push(event),
                Err(Bad::Unknown(reason)) => {
                    return Err(TuneError::Newer {
                        path: self.path.clone(),
                        line: self.lines + 1,
                        reason,
                    });
                }
                Err(Bad::Damaged) if next < text.len() => {
                    return Err(TuneError::Corrupt {
                        path: self.path.clone(),
                        line: self.lines + 1,
                    });
                }
                Err(Bad::Damaged) => {
                    read.tail = Some(Tail::Damaged(text[at..next].to_vec()));
                    break;
                }
            }
            self.lines += 1;
            at = next;
        }
        self.bytes += at as u64;
        if read.tail.is_none() && at < text.len() {
            read.tail = Some(Tail::Incomplete((text.len() - at) as u64));
        }
        Ok(read)
    }

    /// Removes what a crash left at the end. Requires the lock, with all earlier lines read.
    pub fn cut(&mut self, tail: Tail) -> Result<Torn, TuneError> {
        let torn = match tail {
            Tail::Incomplete(bytes) => Torn::Incomplete { bytes },
            Tail::Damaged(line) => {
                let kept = self.unused_name();
                whole::write(&kept, line).map_err(TuneError::io(&kept))?;
                let line = self.lines + 1;
                Torn::Damaged { line, kept }
            }
        };
        self.file.set_len(self.bytes).map_err(TuneError::io(&self.path))?;
        tracing::warn!("{torn}");
        Ok(torn)
    }

    /// The name for what is kept: `journal.jsonl.damaged`, or the first free one of `.damaged-1` and so on.
    fn unused_name(&self) -> PathBuf {
        let mut name = self.path.with_added_extension("damaged");
        for number in 1.. {
            if !name.exists() {
                break;
            }
            name = self.path.with_added_extension(format!("damaged-{number}"));
        }
        name
    }

    /// Appends events, each one in a write of its own and flushed before the next. Requires the lock, with all
    /// earlier lines read.
    pub fn append(&mut self, events: &[Event]) -> Result<(), TuneError> {
        let lines = events.iter().map(line).collect::<Result<Vec<_>, _>>()?;
        let mut end = self.bytes;
        for line in &lines {
            let mut write = || {
                self.file.write_all(line.as_bytes())?;
                self.file.sync_data()
            };
            if let Err(error) = write() {
                // For example a full disk: remove what was written of this line; if that fails too, the next
                // writer removes it. Another process may have read the lines before it: they stay, and the
                // next read finds them.
                let _ = self.file.set_len(end);
                return Err(TuneError::io(&self.path)(error));
            }
            end += line.len() as u64;
        }
        self.bytes = end;
        self.lines += events.len();
        Ok(())
    }
}

/// The line of an event.
fn line(event: &Event) -> Result<String, TuneError> {
    let json = serde_json::to_string(event).map_err(|error| TuneError::Input(error.to_string()))?;
    Ok(format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes())))
}

/// What is wrong with a line.
enum Bad {
    /// It is not what was written.
    Damaged,
    /// It is what was written, and says something that this version does not know.
    Unknown(String),
}

fn parse(line: &[u8]) -> Result<Event, Bad> {
    let (sum, json) = line
        .split_at_checked(8)
        .and_then(|(sum, rest)| Some((sum, rest.strip_prefix(b" ")?)))
        .ok_or(Bad::Damaged)?;
    if sum != format!("{:08x}", crc32fast::hash(json)).as_bytes() {
        return Err(Bad::Damaged);
    }
    serde_json::from_slice(json).map_err(|error| Bad::Unknown(error.to_string()))
}
