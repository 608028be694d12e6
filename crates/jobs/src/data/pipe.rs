//! Channels that stream: one named pipe an epoch.
//!
//! ```text
//!  bucket ──► pieces of 8 MiB at most, 64 on their way, 64 MiB in all ──► unpack ──► wrap ──► BASE/input/data/<channel>_<epoch> ──► script
//! ```
//!
//! The pipe of an epoch and that of the next exist at the same time, so that a script never has to wait for a
//! pipe to appear. A script that reads to the end gets the next epoch from the next pipe; so does one that
//! closes early. Writes never block for good: the pipe is polled for room, and between polls the writer
//! checks whether the script has ended.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, Mode, OFlags, mkfifoat};
use stokehold_base::random::Random;
use stokehold_objects::{Bucket, Cause, Fetch, Object, ObjectError};

use crate::data::Flow;
use crate::data::augmented::Samples;
use crate::{Channel, Compression, Wrapper};

const PIECE: u64 = 8 << 20;

/// Pieces in flight for small objects: as many requests as a bucket allows at the same time.
const AHEAD: usize = 64;

/// Bytes in flight for large objects.
const BYTES_AHEAD: u64 = 64 << 20;

/// A record's first four bytes, little endian.
const MAGIC: u32 = 0xCED7_230A;

/// The largest record that is unpacked, bytes: it is held in memory, because its length precedes it.
const LARGEST_RECORD: u64 = 1 << 30;

/// Feeds a channel until `quit` is set: makes the pipes `<name>_0`, `<name>_1`, .. in `folder`, and removes
/// each when it is done.
///
/// # Errors
/// An object cannot be fetched or unpacked, or a pipe cannot be made.
pub(crate) fn feed(
    flow: &Flow,
    channel: &Channel,
    folder: &Path,
    name: &str,
    quit: &AtomicBool,
) -> Result<(), ObjectError> {
    let of_pipe = |error: io::Error| ObjectError {
        uri: folder.join(name).display().to_string(),
        cause: Cause::Disk,
        reason: error.to_string(),
    };
    let path = |epoch: u64| folder.join(format!("{name}_{epoch}"));
    for epoch in 0.. {
        make(&path(epoch + 1)).map_err(of_pipe)?;
        let Some(mut pipe) = Pipe::open(&path(epoch), quit).map_err(of_pipe)? else {
            return Ok(());
        };
        let written = match flow {
            Flow::Objects(found) => {
                let objects = in_order(&found.objects, channel.shuffle, epoch);
                write_epoch(&found.bucket, &objects, channel, &mut pipe)
            }
            Flow::Samples(samples) => write_samples(samples, channel, epoch, &mut pipe),
        };
        match written {
            Ok(()) => {}
            // The script has closed the pipe before the end of the epoch.
            Err(Stop::Pipe(error)) if error.kind() == io::ErrorKind::BrokenPipe => {}
            Err(Stop::Pipe(error)) if error.kind() == io::ErrorKind::ConnectionAborted => return Ok(()),
            Err(Stop::Pipe(error)) => return Err(of_pipe(error)),
            Err(Stop::Object(error)) => return Err(error),
        }
        fs::remove_file(path(epoch)).map_err(of_pipe)?;
    }
    Ok(())
}

/// Makes the first pipe of a channel, before the script starts.
pub(crate) fn make_first(folder: &Path, name: &str) -> io::Result<()> {
    // Remove the pipes of an earlier run, whose script has ended.
    for entry in fs::read_dir(folder)?.flatten() {
        let file = entry.file_name();
        let epoch = file
            .to_str()
            .and_then(|file| file.strip_prefix(name)?.strip_prefix('_'));
        if epoch.is_some_and(|epoch| epoch.parse::<u64>().is_ok()) {
            fs::remove_file(entry.path())?;
        }
    }
    make(&folder.join(format!("{name}_0")))
}

fn make(path: &Path) -> io::Result<()> {
    Ok(mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?)
}

/// The items in the order of the given epoch.
fn in_order<T>(items: &[T], seed: Option<u64>, epoch: u64) -> Vec<&T> {
    let mut items: Vec<&T> = items.iter().collect();
    if let Some(seed) = seed {
        shuffle(&mut items, seed, epoch);
    }
    items
}

/// Shuffles for an epoch (Fisher and Yates), with splitmix64 of the seed and the epoch.
fn shuffle<T>(items: &mut [T], seed: u64, epoch: u64) {
    Random::from_state(seed ^ epoch.wrapping_mul(0xD134_2543_DE82_EF95)).shuffle(items);
}

enum Stop {
    Object(ObjectError),
    Pipe(io::Error),
}

fn write_epoch(
    bucket: &Bucket,
    objects: &[&Object],
    channel: &Channel,
    pipe: &mut Pipe<'_>,
) -> Result<(), Stop> {
    let mut pieces = Pieces::new(bucket, objects);
    for object in objects {
        let mut reader = OneObject {
            pieces: &mut pieces,
            left: object.size,
            piece: io::Cursor::default(),
            failed: None,
        };
        let written = match channel.compression {
            Compression::None => {
                let length = object.size;
                wrapped(channel.wrapper, length, &mut reader, pipe, &object.key)
            }
            Compression::Gzip => {
                let mut unpacked = MultiGzDecoder::new(&mut reader);
                match channel.wrapper {
                    Wrapper::None => copy(&mut unpacked, pipe),
                    Wrapper::RecordIO => {
                        let mut record = Vec::new();
                        match unpacked.take(LARGEST_RECORD + 1).read_to_end(&mut record) {
                            Ok(_) => {
                                let length = record.len() as u64;
                                wrapped(channel.wrapper, length, &mut record.as_slice(), pipe, &object.key)
                            }
                            Err(error) => Err(Copying::Reading(error)),
                        }
                    }
                }
            }
        };
        match written {
            Ok(()) => reader.finish().map_err(Stop::Object)?,
            Err(Copying::Writing(error)) => return Err(Stop::Pipe(error)),
            Err(Copying::Reading(error)) => {
                return Err(Stop::Object(reader.failed.take().unwrap_or_else(|| {
                    ObjectError {
                        uri: bucket.location().uri(&object.key),
                        cause: Cause::Other,
                        reason: error.to_string(),
                    }
                })));
            }
        }
    }
    Ok(())
}

fn write_samples(samples: &Samples, channel: &Channel, epoch: u64, pipe: &mut Pipe<'_>) -> Result<(), Stop> {
    let mut values = samples.values(&in_order(&samples.samples, channel.shuffle, epoch));
    while let Some((name, bytes)) = values.next().map_err(Stop::Object)? {
        let length = bytes.len() as u64;
        match wrapped(channel.wrapper, length, &mut bytes.as_slice(), pipe, name) {
            Ok(()) => {}
            Err(Copying::Writing(error)) => return Err(Stop::Pipe(error)),
            // This is read from memory; an object that is fetched whole is at most as large as a record may
            // be.
            Err(Copying::Reading(error)) => {
                return Err(Stop::Object(ObjectError {
                    uri: channel.uri.clone(),
                    cause: Cause::Other,
                    reason: error.to_string(),
                }));
            }
        }
    }
    Ok(())
}

enum Copying {
    Reading(io::Error),
    Writing(io::Error),
}

fn copy(from: &mut impl Read, to: &mut Pipe<'_>) -> Result<(), Copying> {
    let mut chunk = vec![0; 64 << 10];
    loop {
        match from.read(&mut chunk).map_err(Copying::Reading)? {
            0 => return Ok(()),
            n => to.write_all(&chunk[..n]).map_err(Copying::Writing)?,
        }
    }
}

fn wrapped(
    wrapper: Wrapper,
    length: u64,
    from: &mut impl Read,
    pipe: &mut Pipe<'_>,
    key: &str,
) -> Result<(), Copying> {
    if wrapper == Wrapper::None {
        return copy(from, pipe);
    }
    let Some(short) = u32::try_from(length).ok().filter(|_| length <= LARGEST_RECORD) else {
        let error = io::Error::other(format!("{key}: more than {LARGEST_RECORD} bytes are no record"));
        return Err(Copying::Reading(error));
    };
    let mut head = MAGIC.to_le_bytes().to_vec();
    head.extend(short.to_le_bytes());
    pipe.write_all(&head).map_err(Copying::Writing)?;
    copy(from, pipe)?;
    let padding = (4 - length % 4) % 4;
    pipe.write_all(&[0; 3][..padding as usize])
        .map_err(Copying::Writing)
}

/// The bytes of consecutive objects, requested in advance.
struct Pieces<'a> {
    bucket: &'a Bucket,
    wanted: VecDeque<(&'a str, u64, u64)>,
    coming: VecDeque<(u64, Fetch)>,
    /// Bytes in flight.
    bytes: u64,
}

impl<'a> Pieces<'a> {
    fn new(bucket: &'a Bucket, objects: &[&'a Object]) -> Self {
        let pieces = objects.iter().flat_map(|&object| {
            let starts = (0..object.size).step_by(PIECE as usize);
            starts.map(move |start| (object.key.as_str(), start, object.size.min(start + PIECE)))
        });
        Self {
            bucket,
            wanted: pieces.collect(),
            coming: VecDeque::new(),
            bytes: 0,
        }
    }

    fn next(&mut self) -> Result<Vec<u8>, ObjectError> {
        while self.coming.len() < AHEAD
            && let Some((key, start, end)) = self
                .wanted
                .pop_front_if(|(_, start, end)| self.bytes + (*end - *start) <= BYTES_AHEAD)
        {
            self.coming
                .push_back((end - start, self.bucket.begin(key, Some(start..end))?));
            self.bytes += end - start;
        }
        let Some((bytes, fetch)) = self.coming.pop_front() else {
            return Ok(Vec::new());
        };
        self.bytes -= bytes;
        fetch.wait()
    }
}

/// One object of the stream.
struct OneObject<'a, 'b> {
    pieces: &'a mut Pieces<'b>,
    /// Bytes of it that have not been fetched.
    left: u64,
    piece: io::Cursor<Vec<u8>>,
    failed: Option<ObjectError>,
}

impl OneObject<'_, '_> {
    /// Skips to the next object: an unpacker may leave the last bytes unread.
    fn finish(&mut self) -> Result<(), ObjectError> {
        while self.left > 0 {
            self.left -= self.pieces.next()?.len() as u64;
        }
        Ok(())
    }
}

impl Read for OneObject<'_, '_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.piece.position() == self.piece.get_ref().len() as u64 && self.left > 0 {
            match self.pieces.next() {
                Ok(bytes) => {
                    self.left -= bytes.len() as u64;
                    self.piece = io::Cursor::new(bytes);
                }
                Err(error) => {
                    let reason = error.to_string();
                    self.failed = Some(error);
                    return Err(io::Error::other(reason));
                }
            }
        }
        self.piece.read(into)
    }
}

/// The writing end of a named pipe that has a reader.
struct Pipe<'a> {
    file: File,
    quit: &'a AtomicBool,
}

impl<'a> Pipe<'a> {
    /// Waits for a reader. Returns `None` when `quit` is set first.
    fn open(path: &Path, quit: &'a AtomicBool) -> io::Result<Option<Self>> {
        while !quit.load(Ordering::SeqCst) {
            let flags = OFlags::NONBLOCK.bits() as i32;
            match File::options().write(true).custom_flags(flags).open(path) {
                Ok(file) => return Ok(Some(Self { file, quit })),
                // There is no reader yet.
                Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NXIO.raw_os_error()) => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

impl Write for Pipe<'_> {
    /// Waits until there is room or the reader is gone. Fails with [`io::ErrorKind::ConnectionAborted`] when
    /// `quit` is set.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.file.write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            if self.quit.load(Ordering::SeqCst) {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
            let patience = Timespec {
                tv_sec: 0,
                tv_nsec: 100_000_000,
            };
            match poll(&mut [PollFd::new(&self.file, PollFlags::OUT)], Some(&patience)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_depends_on_seed_and_epoch_and_loses_nothing() {
        let order = |seed, epoch| {
            let mut items: Vec<u32> = (0..100).collect();
            shuffle(&mut items, seed, epoch);
            items
        };
        assert_eq!(order(1, 0), order(1, 0));
        assert!(order(1, 0) != order(1, 1) && order(1, 0) != order(2, 0));
        let mut sorted = order(1, 0);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..100).collect::<Vec<_>>());
    }
}
