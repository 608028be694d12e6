//! The file that stores a study: one event per line, append-only.
//!
//! ```text
//! 5f3a9c01 {"event":"asked","trial":3,..}
//! crc32 of the text, a space, the text as JSON
//! ```
//!
//! A writer holds the file's lock (a kernel lock, released when the process ends) and has read all earlier
//! lines. A process that is killed while it writes leaves an incomplete last line. The next writer removes
//! it, because its event was never confirmed to a caller. A bad line before good ones is different: the file
//! is damaged, and that is an error.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

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
pub(crate) struct News {
    pub events: Vec<Event>,
    /// The number of bytes after the last complete line.
    pub torn: u64,
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
    pub fn read(&mut self) -> Result<News, TuneError> {
        let mut text = Vec::new();
        let mut read = || -> io::Result<()> {
            self.file.seek(SeekFrom::Start(self.bytes))?;
            self.file.read_to_end(&mut text).map(drop)
        };
        read().map_err(TuneError::io(&self.path))?;
        let mut news = News::default();
        let mut at = 0;
        while at < text.len() {
            let end = text[at..]
                .iter()
                .position(|byte| *byte == b'\n')
                .map(|end| at + end);
            match end.map(|end| parse(&text[at..end])) {
                Some(Ok(event)) => {
                    news.events.push(event);
                    self.lines += 1;
                    at = end.unwrap_or(at) + 1;
                }
                Some(Err(reason)) if has_whole_line(&text[end.unwrap_or(at) + 1..]) => {
                    return Err(TuneError::Corrupt {
                        path: self.path.clone(),
                        line: self.lines + 1,
                        reason,
                    });
                }
                Some(Err(_)) | None => break,
            }
        }
        self.bytes += at as u64;
        news.torn = (text.len() - at) as u64;
        Ok(news)
    }

    /// Removes the incomplete line of a killed writer. Requires the lock, with all earlier lines read.
    pub fn cut(&mut self) -> Result<(), TuneError> {
        self.file.set_len(self.bytes).map_err(TuneError::io(&self.path))
    }

    /// Appends events in one write. Requires the lock, with all earlier lines read.
    pub fn append(&mut self, events: &[Event]) -> Result<(), TuneError> {
        let mut text = String::new();
        for event in events {
            let json = serde_json::to_string(event).map_err(|error| TuneError::Input(error.to_string()))?;
            text.push_str(&format!("{:08x} {json}\n", crc32fast::hash(json.as_bytes())));
        }
        let mut write = || {
            self.file.write_all(text.as_bytes())?;
            self.file.sync_data()
        };
        if let Err(error) = write() {
            // For example a full disk: remove what was written. If that fails too, the next writer removes
            // it.
            let _ = self.file.set_len(self.bytes);
            return Err(TuneError::io(&self.path)(error));
        }
        self.bytes += text.len() as u64;
        self.lines += events.len();
        Ok(())
    }
}

fn parse(line: &[u8]) -> Result<Event, String> {
    let text = std::str::from_utf8(line).map_err(|error| error.to_string())?;
    let (sum, json) = text.split_once(' ').ok_or("there is no checksum")?;
    if sum != format!("{:08x}", crc32fast::hash(json.as_bytes())) {
        return Err("the checksum does not fit the line".to_owned());
    }
    serde_json::from_str(json).map_err(|error| format!("a newer Stokehold may have written it: {error}"))
}

fn has_whole_line(text: &[u8]) -> bool {
    text.split_inclusive(|byte| *byte == b'\n')
        .filter_map(|line| line.strip_suffix(b"\n"))
        .any(|line| parse(line).is_ok())
}
