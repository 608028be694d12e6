//! TensorBoard's event files: what `tensorboard --logdir DIR` shows, while a run continues or afterwards.
//!
//! The format is that of TensorFlow's `tfevents` files: records of a length, its checksum, an `Event` as a protocol buffer
//! (`tensorflow/core/util/event.proto`), and its checksum (`tensorflow/core/lib/io/record_writer.h`). A program that is killed
//! leaves half a record at the most, which TensorBoard passes over.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// An event file that is being written.
#[derive(Debug)]
pub struct EventFile {
    file: File,
    path: PathBuf,
    /// How many numbers each name had: the step of one that says none.
    counts: BTreeMap<String, u64>,
}

impl EventFile {
    /// Begins a new one in a folder, which is created. TensorBoard reads all of a folder as one run.
    ///
    /// # Errors
    /// The system's error.
    pub fn create(folder: &Path, now: f64) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        // Two that begin in the same second have other names.
        for number in 0.. {
            let path = folder.join(name(now, &format!("{}.{number}", std::process::id())));
            let made = File::options().append(true).create_new(true).open(&path);
            match made {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    let mut file = made?;
                    file.write_all(&begin(now))?;
                    let counts = BTreeMap::new();
                    return Ok(Self { file, path, counts });
                }
            }
        }
        Err(io::ErrorKind::AlreadyExists.into())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Adds a number. One without a step counts the numbers of its name, those that were [passed](Self::pass) included.
    ///
    /// # Errors
    /// The system's error.
    pub fn add(&mut self, name: &str, step: Option<u64>, time: f64, value: f64) -> io::Result<()> {
        let count = self.pass(name);
        self.file
            .write_all(&scalar(name, step.unwrap_or(count), time, value))
    }

    /// Counts a number that an older file has. Returns how many there were before it.
    pub fn pass(&mut self, name: &str) -> u64 {
        let count = self.counts.entry(name.to_owned()).or_default();
        *count += 1;
        *count - 1
    }

    /// The run continues from this step: what older files have of later ones was lost, and TensorBoard leaves it out.
    ///
    /// # Errors
    /// The system's error.
    pub fn resumed(&mut self, step: u64, time: f64) -> io::Result<()> {
        // session_log of status START.
        let session = bytes_field(7, &[1 << 3, 1]);
        self.file.write_all(&record(&event(time, Some(step), &session)))
    }
}

/// The name of an event file; `end` makes it another one than those of other runs.
pub fn name(began: f64, end: &str) -> String {
    format!(
        "events.out.tfevents.{:010}.stokehold.{end}",
        began.max(0.0) as u64
    )
}

/// The event files in a folder that Stokehold has written.
pub fn found(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let own = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("events.out.tfevents.") && name.contains(".stokehold.")
    });
    own.map(|entry| entry.path()).collect()
}

/// The first record of an event file.
pub fn begin(began: f64) -> Vec<u8> {
    record(&event(began, None, &bytes_field(3, b"brain.Event:2")))
}

/// The record of a number.
pub fn scalar(name: &str, step: u64, time: f64, value: f64) -> Vec<u8> {
    let mut bytes = bytes_field(1, name.as_bytes());
    // simple_value: a float.
    bytes.push(2 << 3 | 5);
    bytes.extend((value as f32).to_le_bytes());
    let summary = bytes_field(5, &bytes_field(1, &bytes));
    record(&event(time, Some(step), &summary))
}

/// A protocol buffer's number of variable length.
fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

/// A field of bytes, a text or a message.
fn bytes_field(number: u8, of: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    bytes.extend(varint(of.len() as u64));
    bytes.extend(of);
    bytes
}

fn event(time: f64, step: Option<u64>, rest: &[u8]) -> Vec<u8> {
    // wall_time: a double.
    let mut bytes = vec![1 << 3 | 1];
    bytes.extend(time.to_le_bytes());
    if let Some(step) = step {
        bytes.push(2 << 3);
        bytes.extend(varint(step));
    }
    bytes.extend(rest);
    bytes
}

fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let mut bytes = length.to_vec();
    bytes.extend(masked(&length).to_le_bytes());
    bytes.extend(data);
    bytes.extend(masked(data).to_le_bytes());
    bytes
}

/// The checksum of a record: CRC-32C, turned and moved, so that it is not one of data that has checksums in it.
fn masked(data: &[u8]) -> u32 {
    crc32c::crc32c(data).rotate_right(15).wrapping_add(0xa282_ead8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_protocol_buffers_have_them() {
        assert_eq!(varint(0), [0]);
        assert_eq!(varint(300), [0xac, 0x02]);
        assert_eq!(varint(u64::MAX).len(), 10);
        // The first record of every file that TensorFlow writes has these 9 bytes of length and its checksum.
        let version = record(&event(0.0, None, &bytes_field(3, b"brain.Event:2")));
        assert_eq!(&version[..8], &24u64.to_le_bytes());
        // The checksum of the length 24, from such a file.
        assert_eq!(&version[8..12], &[0xa3, 0x7f, 0x4b, 0x22]);
    }

    #[test]
    fn files_of_a_second_are_two() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("tb");
        let mut one = EventFile::create(&folder, 7.0).unwrap();
        let two = EventFile::create(&folder, 7.0).unwrap();
        assert_ne!(one.path(), two.path());
        one.add("loss", Some(3), 8.0, 0.5).unwrap();
        one.pass("loss");
        one.add("loss", None, 8.0, 0.5).unwrap();
        let bytes = fs::read(one.path()).unwrap();
        let [third, second] = [3, 2].map(|step| scalar("loss", step, 8.0, 0.5));
        assert_eq!(bytes, [begin(7.0), third, second].concat());
        assert_eq!(fs::read(two.path()).unwrap(), begin(7.0));
    }
}
