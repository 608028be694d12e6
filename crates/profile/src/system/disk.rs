//! Disk space of the samples: compresses finished hours and removes the oldest.
//!
//! Only files that have the names and the places of this recorder's are counted, compressed and removed:
//! another program may have files in the same folders.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use flate2::Compression;
use flate2::write::GzEncoder;
use stokehold_base::there::if_there;
use stokehold_base::whole;

use super::{MINUTE, hour_name, io_error};
use crate::ProfileError;

/// The size of the files, and the finished hours.
pub(super) struct Disk {
    /// The end of the files' names, `.NODE.json`.
    ending: String,
    /// The folder of the current hour, and the bytes in it.
    folder: PathBuf,
    current: u64,
    /// The finished hours, oldest first, each with its bytes.
    closed: VecDeque<(PathBuf, u64)>,
    /// Those of them that are still to be compressed.
    raw: Vec<PathBuf>,
    compressing: Option<JoinHandle<Result<(), ProfileError>>>,
    removed_before: Option<u64>,
}

impl Disk {
    /// Reads the state of a node's existing files.
    pub fn look(root: &Path, node: &str) -> io::Result<Self> {
        let ending = format!(".{node}.json");
        let mut closed = Vec::new();
        for entry in fs::read_dir(root)? {
            let entry = entry?;
            // Links are not followed: what they lead to is elsewhere.
            if entry.file_type()?.is_dir() && hour_end(&entry.path()).is_some() {
                closed.push((entry.path(), size(&entry.path(), &ending)));
            }
        }
        closed.sort();
        Ok(Self {
            ending,
            folder: PathBuf::new(),
            current: 0,
            raw: closed.iter().map(|(path, _)| path.clone()).collect(),
            closed: closed.into(),
            compressing: None,
            removed_before: None,
        })
    }

    /// Begins another hour.
    pub fn enter(&mut self, folder: &Path) {
        if !self.folder.as_os_str().is_empty() {
            self.closed.push_back((self.folder.clone(), self.current));
            self.raw.push(self.folder.clone());
        }
        // This hour may exist: after a restart, or when the clock was set back.
        self.closed.retain(|(path, _)| path != folder);
        self.raw.retain(|path| path != folder);
        self.folder = folder.to_owned();
        self.current = size(folder, &self.ending);
    }

    /// Counts bytes that were written.
    pub fn grew(&mut self, bytes: u64) {
        self.current += bytes;
    }

    /// Samples before this time, unix seconds, were removed.
    pub fn removed_before(&self) -> Option<u64> {
        self.removed_before
    }

    /// Compresses finished hours, and removes the oldest while the files exceed the limit.
    pub fn tend(&mut self, limit: u64, gzip: bool) -> Result<(), ProfileError> {
        if self.compressing.as_ref().is_some_and(JoinHandle::is_finished) {
            self.join()?;
        }
        if gzip && self.compressing.is_none() && !self.raw.is_empty() {
            let hours = std::mem::take(&mut self.raw);
            let ending = self.ending.clone();
            // In a separate thread, so that the sampler is not late.
            let thread = std::thread::Builder::new()
                .name("compress-samples".to_owned())
                .spawn(move || hours.iter().try_for_each(|hour| compress(hour, &ending)));
            self.compressing = Some(thread.map_err(|error| io_error(&self.folder, error))?);
        }
        while self.total() > limit
            && let Some((hour, _)) = self.closed.front()
        {
            if self.compressing.is_some() {
                // The compression may be working on this hour.
                self.join()?;
                continue;
            }
            remove_hour(hour, &self.ending)?;
            let (hour, _) = self.closed.pop_front().unwrap_or_default();
            self.raw.retain(|path| *path != hour);
            self.note(hour_end(&hour));
        }
        if self.total() > limit {
            self.remove_minutes(limit)?;
        }
        Ok(())
    }

    /// Removes the oldest minutes of the current hour, but not the last one, which is being written.
    fn remove_minutes(&mut self, limit: u64) -> Result<(), ProfileError> {
        let mut files = own(&self.folder, &self.ending).map_err(|error| io_error(&self.folder, error))?;
        files.sort();
        files.pop();
        for Own { minute, path, bytes } in files {
            if self.current <= limit {
                break;
            }
            unless_missing(&path, fs::remove_file(&path))?;
            self.current = self.current.saturating_sub(bytes);
            self.note(Some(minute + MINUTE));
        }
        Ok(())
    }

    fn total(&self) -> u64 {
        self.current + self.closed.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }

    fn note(&mut self, removed_before: Option<u64>) {
        self.removed_before = self.removed_before.max(removed_before);
    }

    /// Waits for the compression, and updates the sizes.
    pub fn join(&mut self) -> Result<(), ProfileError> {
        let Some(thread) = self.compressing.take() else {
            return Ok(());
        };
        let done = thread.join();
        for (hour, bytes) in &mut self.closed {
            *bytes = size(hour, &self.ending);
        }
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// The end of the hour of a folder, from its name; unix seconds.
fn hour_end(hour: &Path) -> Option<u64> {
    let name = hour.file_name()?.to_str()?;
    let number = |range: std::ops::Range<usize>| name.get(range)?.parse::<i64>().ok();
    let (year, month, day, hour) = (number(0..4)?, number(4..6)?, number(6..8)?, number(8..10)?);
    // `days_from_civil`, the inverse of `civil`.
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468;
    u64::try_from(days * 86_400 + (hour + 1) * 3600).ok()
}

/// A file that a recorder of the node wrote. Sorted by its minute.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Own {
    minute: u64,
    path: PathBuf,
    bytes: u64,
}

/// The recorder's files in the folder of an hour; files that vanish meanwhile are skipped.
fn own(hour: &Path, ending: &str) -> io::Result<Vec<Own>> {
    let name_of_hour = hour.file_name().and_then(|name| name.to_str());
    let of = |entry: fs::DirEntry| {
        let name = entry.file_name();
        let (minute, rest) = name.to_str()?.split_at_checked(10)?;
        let minute = minute.parse().ok()?;
        let rest = rest.strip_prefix(ending)?;
        let is_partial = whole::of_partial(rest).is_some_and(|(of, or)| of == ".gz" || or == Some(".gz"));
        let known = rest.is_empty() || rest == ".gz" || is_partial;
        let data = entry.metadata().ok()?;
        let is_own = known && data.is_file() && Some(&*hour_name(minute)) == name_of_hour;
        is_own.then(|| Own {
            minute,
            path: entry.path(),
            bytes: data.len(),
        })
    };
    Ok(fs::read_dir(hour)?.flatten().filter_map(of).collect())
}

/// Removes the recorder's files of an hour, and the folder if nothing else is in it.
fn remove_hour(hour: &Path, ending: &str) -> Result<(), ProfileError> {
    let files = if_there(own(hour, ending)).map_err(|error| io_error(hour, error))?;
    for Own { path, .. } in files.into_iter().flatten() {
        unless_missing(&path, fs::remove_file(&path))?;
    }
    match fs::remove_dir(hour) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
        removed => unless_missing(hour, removed),
    }
}

/// Bytes of the recorder's files in the folder of an hour.
fn size(hour: &Path, ending: &str) -> u64 {
    let files = own(hour, ending).unwrap_or_default();
    files.iter().map(|file| file.bytes).sum()
}

/// Compresses the files of an hour, each to a temporary file that is then renamed.
fn compress(hour: &Path, ending: &str) -> Result<(), ProfileError> {
    let Ok(files) = own(hour, ending) else {
        return Ok(()); // removed meanwhile
    };
    for Own { path, .. } in files {
        let done = path.with_added_extension("gz");
        if path.extension().is_none_or(|end| end != "json") || done.exists() {
            continue;
        }
        let work = || {
            whole::write_with(&done, |file| {
                let mut to = GzEncoder::new(file, Compression::fast());
                io::copy(&mut File::open(&path)?, &mut to)?;
                to.finish().map(|_| ())
            })?;
            fs::remove_file(&path)
        };
        work().map_err(|error| io_error(&path, error))?;
    }
    Ok(())
}

fn unless_missing(path: &Path, removed: io::Result<()>) -> Result<(), ProfileError> {
    if_there(removed).map(drop).map_err(|error| io_error(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::hour_name;

    #[test]
    fn the_end_of_an_hour_is_the_start_of_the_next() {
        for unix in [951_782_399, 1_600_000_000, 1_709_164_800, 4_102_444_799u64] {
            let end = hour_end(Path::new(&hour_name(unix)));
            assert_eq!(end, Some(unix / 3600 * 3600 + 3600));
        }
        assert_eq!(hour_end(Path::new("what")), None);
    }
}
