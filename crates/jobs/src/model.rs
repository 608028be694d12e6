//! Unpacks `model.tar.gz` of a job. Its writer decides what is in it, so nothing in it is trusted: no entry leaves
//! the folder, by its name or through a link, and it fills neither the memory nor the disk.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flate2::bufread::MultiGzDecoder;
use stokehold_base::there::if_there;
use tar::EntryType;

use crate::JobError;

/// More entries are taken for an attack.
pub(crate) const MOST_ENTRIES: u64 = 1_000_000;
/// The most folders: one entry of a few bytes may have a path of thousands.
const MOST_FOLDERS: usize = 10_000;

/// An archive may unpack to this many bytes, or to this many times its size, whichever is more. Weights in f32 shrink by a few
/// percent, and a file of zeros by a factor of 1000.
const MOST: (u64, u64) = (1 << 30, 100);

/// What may stand before an entry: its headers, long names and attributes, which are read into memory.
const MOST_HEADERS: u64 = 1 << 20;

/// What was unpacked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unpacked {
    /// Files and links.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Unpacks an archive into a folder that does not exist yet. It appears when it is complete; until then it is next to, under
/// another name. `done` counts bytes, `stop` ends the work early.
///
/// Times and owners are those of now; of the modes only the right to execute is kept.
///
/// # Errors
/// [`JobError::Input`]: the folder exists; the archive is damaged; an entry leads out of the folder, is no file, folder or
/// link within, or is too large. [`JobError::Io`] for the disk, and when it was stopped.
pub fn unpack(
    archive: &Path,
    into: &Path,
    done: &AtomicU64,
    stop: &AtomicBool,
) -> Result<Unpacked, JobError> {
    if if_there(fs::symlink_metadata(into))
        .map_err(JobError::io(into))?
        .is_some()
    {
        return Err(JobError::Input(format!(
            "{} is there already; give another folder",
            into.display()
        )));
    }
    let beside = match into.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(beside).map_err(JobError::io(beside))?;
    let aside = tempfile::Builder::new()
        .prefix(".model-")
        .tempdir_in(beside)
        .map_err(JobError::io(beside))?;
    // The folder itself has the usual mode, which the temporary one has not.
    let root = aside.path().join("model");
    fs::create_dir(&root).map_err(JobError::io(&root))?;
    let file = File::open(archive).map_err(JobError::io(archive))?;
    let size = file.metadata().map_err(JobError::io(archive))?.len();
    if size == 0 {
        return Err(JobError::Input(format!("{}: it is empty", archive.display())));
    }
    let mut unpacking = Unpacking {
        root: &root,
        most: MOST.0.max(size.saturating_mul(MOST.1)),
        unpacked: Unpacked::default(),
        made: 0,
        done,
        stop,
    };
    let unpacked = unpacking.all(BufReader::new(file)).map_err(|wrong| match wrong {
        Wrong::Archive(reason) => {
            JobError::Input(format!("{}: {reason}; nothing is unpacked", archive.display()))
        }
        Wrong::Disk(path, source) => JobError::Io { path, source },
    })?;
    fs::rename(&root, into).map_err(JobError::io(into))?;
    Ok(unpacked)
}

/// Why an archive is not unpacked.
enum Wrong {
    Archive(String),
    Disk(PathBuf, io::Error),
}

/// The archive's bytes, of which only this many may be read as `left` says.
struct Metered<R> {
    bytes: R,
    left: Rc<Cell<u64>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.left.get()).unwrap_or(usize::MAX);
        if left == 0 && !into.is_empty() {
            return Err(io::Error::other("the headers of an entry have more than 1 MiB"));
        }
        let most = into.len().min(left);
        let read = self.bytes.read(&mut into[..most])?;
        self.left.set(self.left.get() - read as u64);
        Ok(read)
    }
}

struct Unpacking<'a> {
    root: &'a Path,
    most: u64,
    unpacked: Unpacked,
    /// Folders that were made.
    made: usize,
    done: &'a AtomicU64,
    stop: &'a AtomicBool,
}

impl Unpacking<'_> {
    fn all(&mut self, file: BufReader<File>) -> Result<Unpacked, Wrong> {
        let left = Rc::new(Cell::new(MOST_HEADERS));
        let mut archive = tar::Archive::new(Metered {
            bytes: MultiGzDecoder::new(file),
            left: Rc::clone(&left),
        });
        let damaged = |error: io::Error| Wrong::Archive(format!("it cannot be read: {}", cause(&error)));
        let mut entries = 0;
        for entry in archive.entries().map_err(damaged)? {
            let mut entry = entry.map_err(damaged)?;
            entries += 1;
            if entries > MOST_ENTRIES {
                return Err(Wrong::Archive(format!("it has more than {MOST_ENTRIES} entries")));
            }
            let kind = entry.header().entry_type();
            let size = entry.size();
            let named = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let is_file = matches!(kind, EntryType::Regular | EntryType::Continuous);
            if size > MOST_HEADERS && !is_file {
                return Err(refused(&named, "has contents, and is no file"));
            }
            left.set(size.saturating_add(MOST_HEADERS));
            let below = inside(&entry.path_bytes()).map_err(|reason| refused(&named, reason))?;
            let link = entry.link_name_bytes().map(|name| name.into_owned());
            let linked = || {
                let name = link.as_deref().unwrap_or_default();
                PathBuf::from(std::ffi::OsStr::from_bytes(name))
            };
            match kind {
                _ if is_file => {
                    let is_program = entry.header().mode().unwrap_or(0o644) & 0o111 != 0;
                    self.file(&below, &named, size, is_program, &mut entry)?;
                }
                EntryType::Directory => drop(self.folders(&below, &named)?),
                EntryType::Symlink => self.symlink(&below, &named, &linked())?,
                EntryType::Link => self.hard_link(&below, &named, &linked())?,
                // Attributes of all entries, such as the commit that git writes.
                EntryType::XGlobalHeader => {}
                _ => return Err(refused(&named, "is no file, folder or link")),
            }
            left.set(MOST_HEADERS);
        }
        Ok(self.unpacked)
    }

    fn file(
        &mut self,
        below: &Path,
        named: &str,
        size: u64,
        is_program: bool,
        bytes: &mut impl Read,
    ) -> Result<(), Wrong> {
        let path = self.place(below, named)?;
        let total = self.unpacked.bytes.saturating_add(size);
        if total > self.most {
            return Err(Wrong::Archive(format!(
                "it unpacks to more than {} bytes, which is too much for its size",
                self.most
            )));
        }
        let disk = |error| Wrong::Disk(path.clone(), error);
        let facts = rustix::fs::statvfs(self.root).map_err(|error| disk(error.into()))?;
        let room = facts.f_bavail.saturating_mul(facts.f_frsize);
        if size > room {
            let text = format!("it has {size} bytes, and the disk has room for {room}; free some");
            return Err(disk(io::Error::new(io::ErrorKind::StorageFull, text)));
        }
        let mut file = File::options()
            .write(true)
            .create_new(true)
            .mode(if is_program { 0o777 } else { 0o666 })
            .open(&path)
            .map_err(disk)?;
        let mut chunk = vec![0; 1 << 16];
        let mut written = 0;
        loop {
            self.goes_on(&path)?;
            let read = bytes
                .read(&mut chunk)
                .map_err(|error| refused(named, &format!("cannot be read: {}", cause(&error))))?;
            if read == 0 {
                break;
            }
            file.write_all(&chunk[..read]).map_err(disk)?;
            written += read as u64;
            self.done.fetch_add(read as u64, Ordering::Relaxed);
        }
        if written != size {
            return Err(refused(named, "is cut off"));
        }
        self.unpacked.files += 1;
        self.unpacked.bytes = total;
        Ok(())
    }

    /// # Errors
    /// Unpacking was stopped before this place.
    fn goes_on(&self, place: &Path) -> Result<(), Wrong> {
        match self.stop.load(Ordering::Relaxed) {
            true => {
                let stopped = io::Error::new(io::ErrorKind::Interrupted, "unpacking was stopped");
                Err(Wrong::Disk(place.to_owned(), stopped))
            }
            false => Ok(()),
        }
    }

    fn symlink(&mut self, below: &Path, named: &str, to: &Path) -> Result<(), Wrong> {
        let depth = below.components().count().saturating_sub(1);
        if !stays(depth, to) {
            return Err(refused(
                named,
                &format!("is a link that leads out of the folder: {}", to.display()),
            ));
        }
        let path = self.place(below, named)?;
        symlink(to, &path).map_err(|error| Wrong::Disk(path, error))?;
        self.unpacked.files += 1;
        Ok(())
    }

    fn hard_link(&mut self, below: &Path, named: &str, to: &Path) -> Result<(), Wrong> {
        let wrong = |reason: &str| refused(named, &format!("is a link to {}, which {reason}", to.display()));
        let of = inside(to.as_os_str().as_bytes()).map_err(&wrong)?;
        let mut from = self.root.to_owned();
        let mut is_file = false;
        for part in of.components() {
            from.push(part);
            match fs::symlink_metadata(&from) {
                Ok(facts) if facts.is_dir() => is_file = false,
                Ok(facts) if facts.is_file() => is_file = true,
                _ => return Err(wrong("is no file of the archive before it")),
            }
        }
        if !is_file {
            return Err(wrong("is no file of the archive before it"));
        }
        let path = self.place(below, named)?;
        fs::hard_link(&from, &path).map_err(|error| Wrong::Disk(path, error))?;
        self.unpacked.files += 1;
        Ok(())
    }

    /// The place of a new file, whose folders are made; what an earlier entry put there is removed, as tar does it.
    fn place(&mut self, below: &Path, named: &str) -> Result<PathBuf, Wrong> {
        let (Some(name), Some(parent)) = (below.file_name(), below.parent()) else {
            return Err(refused(named, "has no name"));
        };
        let path = self.folders(parent, named)?.join(name);
        let disk = |error| Wrong::Disk(path.clone(), error);
        match if_there(fs::symlink_metadata(&path)).map_err(disk)? {
            Some(facts) if facts.is_dir() => Err(refused(named, "is a folder before")),
            Some(_) => {
                fs::remove_file(&path).map_err(disk)?;
                Ok(path)
            }
            None => Ok(path),
        }
    }

    /// Makes folders, none of which is a link.
    fn folders(&mut self, below: &Path, named: &str) -> Result<PathBuf, Wrong> {
        let mut path = self.root.to_owned();
        for part in below.components() {
            path.push(part);
            let disk = |error| Wrong::Disk(path.clone(), error);
            match if_there(fs::symlink_metadata(&path)).map_err(disk)? {
                Some(facts) if facts.is_dir() => {}
                Some(_) => return Err(refused(named, "goes through a file or a link")),
                None => {
                    self.made += 1;
                    if self.made > MOST_FOLDERS {
                        return Err(Wrong::Archive(format!("it has more than {MOST_FOLDERS} folders")));
                    }
                    self.goes_on(&path)?;
                    fs::create_dir(&path).map_err(disk)?;
                }
            }
        }
        Ok(path)
    }
}

fn refused(named: &str, reason: &str) -> Wrong {
    Wrong::Archive(format!("its entry {named:?} {reason}"))
}

/// The innermost error says what it is; the outer ones where.
fn cause(error: &io::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

/// The path of an entry below the folder.
fn inside(name: &[u8]) -> Result<PathBuf, &'static str> {
    if name.contains(&0) {
        return Err("has a zero byte in its name");
    }
    let mut path = PathBuf::new();
    for part in Path::new(std::ffi::OsStr::from_bytes(name)).components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            _ => return Err("leads out of the folder"),
        }
    }
    Ok(path)
}

/// Whether a link stays inside, in a folder `depth` levels below the root. Steps upwards come first: after a name, which may be
/// a link itself, they could lead anywhere.
pub(crate) fn stays(depth: usize, to: &Path) -> bool {
    let mut up = 0;
    let mut is_down = false;
    for part in to.components() {
        match part {
            Component::ParentDir if !is_down => up += 1,
            Component::Normal(_) => is_down = true,
            Component::CurDir => {}
            _ => return false,
        }
    }
    up <= depth && !to.as_os_str().is_empty() && !to.as_os_str().as_bytes().contains(&0)
}
