//! A segment that this process writes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::lease;
use crate::segment::{self, FileExtent, Key};

/// The segment, open and locked. One that is dropped without its end is read record by record.
pub(crate) struct Writer {
    file: Arc<File>,
    at: u64,
    /// The most bytes of the file, its index included.
    most: u64,
    places: Vec<(Key, FileExtent)>,
}

impl Writer {
    /// Makes a file that takes at most this many bytes. Leaves none where that goes wrong.
    pub fn begin(path: &PathBuf, most: u64) -> io::Result<Self> {
        let begun = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .and_then(|file| {
                lease::of_writer(&file)?;
                file.write_all_at(&segment::start(), 0)?;
                Ok(Arc::new(file))
            });
        let file = begun.inspect_err(|_| {
            let _ = fs::remove_file(path);
        })?;
        Ok(Self {
            file,
            at: segment::START,
            most,
            places: Vec::new(),
        })
    }

    /// The file, to be read from meanwhile.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Whether it has no samples.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether a file of this many bytes has room in it.
    pub fn fits(&self, file: usize) -> bool {
        self.at + with_end(file, self.places.len() + 1) <= self.most
    }

    /// Whether a file of this many bytes fits an empty segment of `most` bytes.
    pub fn could_fit(file: usize, most: u64) -> bool {
        segment::START + with_end(file, 1) <= most
    }

    /// Adds a sample: where it is, and the bytes of its record.
    pub fn append(&mut self, key: Key, file: &[u8]) -> io::Result<(FileExtent, u64)> {
        let mut bytes = Vec::with_capacity(file.len() + segment::HEAD as usize);
        let place = segment::record(key, file, &mut bytes);
        if let Err(error) = self.file.write_all_at(&bytes, self.at) {
            // Readers ignore half a record. Truncating gives its bytes back to a full disk.
            let _ = self.file.set_len(self.at);
            return Err(error);
        }
        let place = FileExtent {
            at: self.at + place.at,
            ..place
        };
        self.places.push((key, place));
        self.at += bytes.len() as u64;
        Ok((place, bytes.len() as u64))
    }

    /// Ends it with its index. One that could not be ended is ended by the next process that looks for room.
    pub fn finish(self) -> io::Result<()> {
        let end = segment::end(&self.places, self.at);
        let written = self.file.write_all_at(&end, self.at);
        if written.is_err() {
            let _ = self.file.set_len(self.at);
        }
        written.and_then(|()| lease::complete(&self.file))
    }
}

/// A record of a file of this many bytes, with the end of a segment of this many records.
fn with_end(file: usize, records: usize) -> u64 {
    segment::HEAD * (records as u64 + 2) + file as u64 + segment::TRAILER
}
