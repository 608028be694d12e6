//! The folder of a cache: its segments, what is in them, and its bound.
//!
//! A process writes segments of its own, and reads those of all. Who uses a segment holds a shared lock on its file, which the
//! system gives back when the process ends in whatever way. A segment whose lock is free may be removed for the sake of the bound;
//! the ones that were used longest ago go first. What is removed while somebody has it open stays readable for him, so a mistake
//! costs space and never a sample. The file `lock` is held while segments are begun and removed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use stokehold_base::lock;
use stokehold_base::random::mix;
use stokehold_base::there::if_there;
use stokehold_storage::SampleBytes;

use crate::CacheError;
use crate::segment::{self, Key, Place, Scanned};

/// How large a segment gets: of a large cache a 256th part, of a small one an eighth. Each takes an open file of whoever reads it.
const SEGMENT: u64 = 256 << 20;
/// Segments that are open at once, of the 1,024 files that a process may usually have.
const MOST_OPEN: usize = 256;
/// The smallest cache.
pub(crate) const LEAST: u64 = 1 << 20;
/// What stays free of a disk for others, such as checkpoints: this part of it, and at most so many bytes. Asked for as often as this
/// many bytes were added.
const RESERVE: (u64, u64) = (20, 1 << 30);
const ASKED: u64 = 1 << 20;
/// After how long a store that found no room looks again: others may have made some.
const RETRY: Duration = Duration::from_secs(30);
/// How often the folder is looked through for segments of other processes.
const LOOK: Duration = Duration::from_secs(1);
/// What files of this folder are called.
const SUFFIX: &str = ".skcache";
const LOCK: &str = "lock";
/// Marks a folder as a cache: <https://bford.info/cachedir/>.
const TAG: &str = "CACHEDIR.TAG";

/// An open folder.
pub(crate) struct Store {
    dir: PathBuf,
    limit: u64,
    known: RwLock<Known>,
    looked: Mutex<Instant>,
    writing: Mutex<Option<Writing>>,
    /// The number of the segment that this process adds to, or [`NONE`]: known without waiting for whoever writes.
    own: AtomicU32,
    /// Why the last sample was not added, if it was not.
    stopped: Mutex<Option<Stopped>>,
    retry: Duration,
    /// As if the disk were.
    #[cfg(test)]
    full: std::sync::atomic::AtomicBool,
    added: AtomicU64,
    damaged: AtomicU64,
    removed: AtomicU64,
    /// A fork of it must not write to its segment.
    process: u32,
}

struct Stopped {
    why: String,
    /// When adding is tried again; never, if this user may not.
    until: Option<Instant>,
}

#[derive(Default)]
struct Known {
    segments: Vec<Segment>,
    /// Their paths.
    paths: HashSet<PathBuf>,
    samples: HashMap<Key, (u32, Place)>,
    /// Those that are open to be read, in the order in which they were opened.
    open: VecDeque<u32>,
}

struct Segment {
    path: PathBuf,
    /// Open and locked from the first read on.
    file: Option<Arc<File>>,
    /// It has been removed, or cannot be read: its samples do not count.
    gone: bool,
    read: Scanned,
}

/// The number of no segment.
const NONE: u32 = u32::MAX;

impl Known {
    /// Adds a segment, and numbers it.
    fn push(&mut self, path: PathBuf, file: Option<Arc<File>>, from: u64) -> u32 {
        self.paths.insert(path.clone());
        self.segments.push(Segment {
            path,
            file,
            gone: false,
            read: Scanned::UpTo(from),
        });
        self.segments.len() as u32 - 1
    }

    fn place(&self, key: Key) -> Option<(u32, Place)> {
        let &(number, place) = self.samples.get(&key)?;
        (!self.segments[number as usize].gone).then_some((number, place))
    }

    /// Keeps a segment open, and closes the one that was opened first where they are too many.
    fn keep_open(&mut self, number: u32, file: Arc<File>) {
        // Another thread may have been faster.
        if self.segments[number as usize].file.is_some() {
            return;
        }
        if self.open.len() >= MOST_OPEN
            && let Some(first) = self.open.pop_front()
        {
            self.segments[first as usize].file = None;
        }
        self.open.push_back(number);
        self.segments[number as usize].file = Some(file);
    }
}

/// What became of a sample that was to be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Added {
    /// It is there now.
    Yes,
    /// It was there already, or nothing is added any more.
    No,
    /// It is larger than a segment.
    TooLarge,
}

/// The segment that this process adds to.
struct Writing {
    file: Arc<File>,
    number: u32,
    at: u64,
    /// What it may take, its end included.
    most: u64,
    places: Vec<(Key, Place)>,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Opens the folder, whose path is the one that [`made`] gave, and learns what is in it.
    pub fn open(dir: PathBuf, limit: Option<u64>) -> Result<Self, CacheError> {
        let limit = match limit {
            Some(limit) => limit,
            None => default_limit(&dir).map_err(|source| CacheError::Io {
                path: dir.clone(),
                source,
            })?,
        };
        let store = Self {
            limit,
            known: RwLock::default(),
            looked: Mutex::new(Instant::now()),
            writing: Mutex::default(),
            own: AtomicU32::new(NONE),
            stopped: Mutex::default(),
            retry: RETRY,
            #[cfg(test)]
            full: std::sync::atomic::AtomicBool::new(false),
            added: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            process: std::process::id(),
            dir,
        };
        // A folder without locks could lose its bound, or a segment in use.
        let locked = lock::open(&store.dir.join(LOCK), lock::MOMENT);
        match &locked {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                store.stop("this user may not write to it", None);
            }
            Err(error) if is_read_only(error) => store.stop("the folder is read-only", None),
            Err(_) => {}
        }
        let path = || store.dir.clone();
        let locked = match locked {
            Err(source) if store.stopped().is_none() => {
                return Err(CacheError::Lock { path: path(), source });
            }
            locked => locked.ok().flatten(),
        };
        let failed = |source| CacheError::Io { path: path(), source };
        store.look().map_err(failed)?;
        drop(locked);
        // Nothing is removed for a limit alone, which may be a slip of the pen, and others share the folder.
        let size = size(&store.dir).map_err(failed)?;
        if size > store.limit && store.stopped().is_none() {
            let megabytes = |bytes: u64| bytes / 1_000_000;
            tracing::warn!(
                "the cache in {} has {} MB, more than its limit of {} MB: what was used longest ago is removed when images are added",
                store.dir.display(),
                megabytes(size),
                megabytes(store.limit)
            );
        }
        Ok(store)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Why the last sample was not added, if it was not.
    pub fn stopped(&self) -> Option<String> {
        held(&self.stopped).as_ref().map(|stopped| stopped.why.clone())
    }

    /// Whether adding is paused or has ended.
    pub fn rests(&self) -> bool {
        let stopped = held(&self.stopped);
        let goes_on = |until: Option<Instant>| until.is_some_and(|until| until <= Instant::now());
        stopped.as_ref().is_some_and(|stopped| !goes_on(stopped.until))
    }

    /// Whether nothing will be added.
    pub fn ended(&self) -> bool {
        let stopped = held(&self.stopped);
        stopped.as_ref().is_some_and(|stopped| stopped.until.is_none())
    }

    /// Bytes that were added by this process; samples that were found damaged; bytes that this process removed.
    pub fn counts(&self) -> (u64, u64, u64) {
        (
            self.added.load(Ordering::Relaxed),
            self.damaged.load(Ordering::Relaxed),
            self.removed.load(Ordering::Relaxed),
        )
    }

    fn stop(&self, why: impl Into<String>, until: Option<Instant>) {
        let why = why.into();
        let mut stopped = held(&self.stopped);
        // Said once, not at every attempt.
        if stopped.as_ref().is_none_or(|stopped| stopped.why != why) {
            tracing::warn!(dir = %self.dir.display(), why, "the cache takes no samples now");
        }
        *stopped = Some(Stopped { why, until });
    }

    fn go_on(&self) {
        if held(&self.stopped).take().is_some() {
            tracing::warn!(dir = %self.dir.display(), "the cache takes samples again");
        }
    }

    pub fn has(&self, key: Key) -> bool {
        self.known().place(key).is_some()
    }

    fn known(&self) -> std::sync::RwLockReadGuard<'_, Known> {
        self.known.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_mut(&self) -> std::sync::RwLockWriteGuard<'_, Known> {
        self.known.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a sample is, and its open file.
    fn place(&self, key: Key) -> Option<(Arc<File>, Place)> {
        let (number, path) = {
            let known = self.known();
            let (number, place) = known.place(key)?;
            let segment = &known.segments[number as usize];
            match &segment.file {
                Some(file) => return Some((Arc::clone(file), place)),
                None => (number, segment.path.clone()),
            }
        };
        // Without the lock: other threads go on reading.
        let opened = opened_for_use(&path);
        let mut known = self.known_mut();
        match opened {
            Ok(Some(file)) => known.keep_open(number, Arc::new(file)),
            Ok(None) => known.segments[number as usize].gone = true,
            // For want of open files or the like. The sample is read from its source, this time.
            Err(error) => {
                tracing::debug!(path = %path.display(), %error, "a file of the cache");
                return None;
            }
        }
        let file = known.segments[number as usize].file.clone()?;
        let (_, place) = known.place(key)?;
        Some((file, place))
    }

    /// Reads a sample. Whether it is there, and whole; `into` holds nothing of use otherwise.
    pub fn read(&self, key: Key, into: &mut SampleBytes) -> bool {
        let Some((file, place)) = self.place(key) else {
            return false;
        };
        let into = into.refill_with(place.length as usize);
        let whole = file.read_exact_at(into, place.at).is_ok() && crc32fast::hash(into) == place.crc;
        if !whole {
            let mut known = self.known_mut();
            // Another thread may have put a good one in its place.
            if known.samples.get(&key).is_some_and(|(_, now)| *now == place) {
                known.samples.remove(&key);
            }
            self.damaged.fetch_add(1, Ordering::Relaxed);
        }
        whole
    }

    /// Has the system read a sample into its cache. Whether it is in this one.
    pub fn expect(&self, key: Key) -> bool {
        let Some((file, place)) = self.place(key) else {
            return false;
        };
        // Only a hint; ignore the result.
        #[cfg(target_os = "linux")]
        let _ = rustix::fs::fadvise(
            &*file,
            place.at,
            std::num::NonZeroU64::new(u64::from(place.length)),
            rustix::fs::Advice::WillNeed,
        );
        #[cfg(not(target_os = "linux"))]
        let _ = (file, place);
        true
    }

    /// Learns what other processes have added, if that was not done in the last second.
    pub fn follow(&self) {
        {
            let mut looked = held(&self.looked);
            if looked.elapsed() < LOOK {
                return;
            }
            *looked = Instant::now();
        }
        // What cannot be read now is not used now.
        let _ = self.look();
    }

    /// Looks through the folder for segments that are new, and reads on in those that others write.
    fn look(&self) -> io::Result<()> {
        let mut paths = segments(&self.dir)?;
        // Names begin with the time: of a sample that is there twice, the later copy counts, which may have replaced a damaged one.
        paths.sort();
        {
            let known = self.known();
            paths.retain(|path| !known.paths.contains(path));
        }
        if !paths.is_empty() {
            let mut known = self.known_mut();
            // Another thread may have looked in between.
            paths.retain(|path| !known.paths.contains(path));
            for path in paths {
                known.push(path, None, 0);
            }
        }
        self.read_on();
        Ok(())
    }

    /// Reads on in the segments that others write.
    pub fn read_on(&self) {
        let own = self.own.load(Ordering::Acquire);
        let growing: Vec<(u32, PathBuf, Option<Arc<File>>, u64)> = (0..)
            .zip(&self.known().segments)
            .filter(|(number, segment)| !segment.gone && *number != own)
            .filter_map(|(number, segment)| match segment.read {
                Scanned::UpTo(from) => Some((number, segment.path.clone(), segment.file.clone(), from)),
                Scanned::All => None,
            })
            .collect();
        for (number, path, file, from) in growing {
            let mut found = Vec::new();
            match found_in(&path, file, from, &mut found) {
                Ok(None) => continue,
                Ok(Some(read)) => {
                    let mut known = self.known_mut();
                    known.segments[number as usize].read = read;
                    known
                        .samples
                        .extend(found.into_iter().map(|(key, place)| (key, (number, place))));
                }
                // One that cannot be read does not keep the others from being read.
                Err(error) => {
                    tracing::debug!(path = %path.display(), %error, "a file of the cache");
                    self.known_mut().segments[number as usize].gone = true;
                }
            }
        }
    }

    /// Adds a sample. What goes wrong ends the adding for a while, and is said once.
    pub fn add(&self, key: Key, file: &[u8]) -> Added {
        if self.rests() || self.has(key) {
            return Added::No;
        }
        let most = SEGMENT.max(self.limit / 256).min(self.limit / 8);
        if segment::START + with_index(file.len(), 1) > most {
            return Added::TooLarge;
        }
        let mut writing = held(&self.writing);
        // Another thread may have found no room while this one waited for the lock.
        if self.rests() {
            return Added::No;
        }
        match self.add_to(&mut writing, key, file, most) {
            Ok(()) => {
                self.go_on();
                Added::Yes
            }
            Err(why) => {
                // One that has samples is gone on with when there is room. An empty one would be left by each attempt on a full disk.
                if let Some(begun) = writing.take_if(|begun| begun.places.is_empty()) {
                    self.own.store(NONE, Ordering::Release);
                    let mut known = self.known_mut();
                    let segment = &mut known.segments[begun.number as usize];
                    (segment.gone, segment.file) = (true, None);
                    let _ = fs::remove_file(&segment.path);
                }
                self.stop(why, Some(Instant::now() + self.retry));
                Added::No
            }
        }
    }

    fn add_to(&self, writing: &mut Option<Writing>, key: Key, file: &[u8], most: u64) -> Result<(), String> {
        let fits = |to: &Writing| to.at + with_index(file.len(), to.places.len() + 1) <= to.most;
        if writing.as_ref().is_some_and(|writing| !fits(writing)) {
            self.complete(writing).map_err(|error| said(&error))?;
        }
        if writing
            .as_ref()
            .is_none_or(|to| to.at / ASKED != (to.at + file.len() as u64) / ASKED)
        {
            self.require_free(file.len() as u64)?;
        }
        let to = match writing {
            Some(to) => to,
            None => writing.insert(self.begin(most)?),
        };
        let mut bytes = Vec::with_capacity(file.len() + segment::HEAD as usize);
        let place = segment::record(key, file, &mut bytes);
        #[cfg(test)]
        if self.full.load(Ordering::Relaxed) {
            return Err("a test's disk is full".to_owned());
        }
        if let Err(error) = to.file.write_all_at(&bytes, to.at) {
            // Readers ignore half a record. Truncating gives its bytes back to a full disk.
            let _ = to.file.set_len(to.at);
            return Err(said(&error));
        }
        let place = Place {
            at: to.at + place.at,
            ..place
        };
        to.places.push((key, place));
        to.at += bytes.len() as u64;
        self.added.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let number = to.number;
        self.known_mut().samples.insert(key, (number, place));
        Ok(())
    }

    /// The error says that the disk would be nearly full with so many bytes more.
    fn require_free(&self, more: u64) -> Result<(), String> {
        let disk = rustix::fs::statvfs(&self.dir).map_err(|error| said(&error.into()))?;
        let (part, most) = RESERVE;
        let reserve = (disk.f_blocks.saturating_mul(disk.f_frsize) / part).min(most);
        match disk.f_bavail.saturating_mul(disk.f_frsize) >= reserve.saturating_add(more) {
            true => Ok(()),
            false => Err("its disk is nearly full".to_owned()),
        }
    }

    /// Ends the segment that is written.
    fn complete(&self, writing: &mut Option<Writing>) -> io::Result<()> {
        let Some(writing) = writing.take() else {
            return Ok(());
        };
        self.known_mut().segments[writing.number as usize].read = Scanned::All;
        self.own.store(NONE, Ordering::Release);
        let end = segment::end(&writing.places, writing.at);
        let written = writing.file.write_all_at(&end, writing.at);
        if written.is_err() {
            // Whoever meets a segment without an end that nobody writes gives it one.
            let _ = writing.file.set_len(writing.at);
            self.known_mut().segments[writing.number as usize].file = None;
        }
        written
    }

    /// Begins a segment, for which others that nobody uses are removed if need be. The error says why there is no room.
    fn begin(&self, most: u64) -> Result<Writing, String> {
        let _lock = lock::open(&self.dir.join(LOCK), Duration::from_secs(10))
            .map_err(|error| said(&error))?
            .ok_or("another process has held its lock for 10 s")?;
        self.make_room(most).map_err(|error| said(&error))?;
        let path = self.dir.join(new_name());
        let file = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .and_then(|file| {
                file.lock_shared()?;
                file.write_all_at(&segment::start(), 0)?;
                Ok(Arc::new(file))
            });
        let file = file.map_err(|error| {
            // Nothing is in it.
            let _ = fs::remove_file(&path);
            said(&error)
        })?;
        let mut known = self.known_mut();
        let number = known.push(path, Some(Arc::clone(&file)), segment::START);
        self.own.store(number, Ordering::Release);
        drop(known);
        Ok(Writing {
            file,
            number,
            at: segment::START,
            most,
            places: Vec::new(),
        })
    }

    /// Removes segments that nobody uses, those first that were used longest ago, until `more` bytes fit.
    fn make_room(&self, more: u64) -> io::Result<()> {
        let (mut sum, mut free) = (0, Vec::new());
        for path in segments(&self.dir)? {
            // To write, for network file systems lock no other files. What this user may not write stays.
            let opened = File::options().read(true).write(true).open(&path);
            let (file, locked) = match opened {
                Ok(file) => {
                    let locked = file.try_lock();
                    (file, locked)
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(_) => {
                    sum += if_there(fs::metadata(&path))?.map_or(0, |facts| facts.len());
                    continue;
                }
            };
            let facts = file.metadata()?;
            match locked {
                Ok(()) => {
                    sum += facts.len();
                    // It is closed again: there may be more of them than files may be open.
                    free.push((facts.modified()?, path, facts.len()));
                }
                // Whoever writes it may make it as large as they get.
                Err(TryLockError::WouldBlock) => {
                    sum += match segment::is_complete(&file)? {
                        true => facts.len(),
                        false => facts.len().max(more),
                    };
                }
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
        free.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        for (_, path, size) in free {
            if sum + more <= self.limit {
                break;
            }
            // Somebody may have begun to use it.
            let Some(file) = if_there(File::options().read(true).write(true).open(&path))? else {
                sum -= size;
                continue;
            };
            if file.try_lock().is_ok() {
                if_there(fs::remove_file(&path))?;
                self.removed.fetch_add(size, Ordering::Relaxed);
                sum -= size;
            }
        }
        match sum + more <= self.limit {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::QuotaExceeded,
                format!("it is full: its limit is {} MB", self.limit / 1_000_000),
            )),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        // Without its index it is read record by record.
        let _ = self.complete(&mut held(&self.writing).take());
    }
}

/// Makes the folder, if it is not there, and finds its one path.
pub(crate) fn made(dir: &Path) -> Result<PathBuf, CacheError> {
    let made = match dir.is_file() {
        true => Err(io::Error::other("this is a file")),
        false if dir.exists() => {
            if let Some(image) = image_in(dir) {
                let dir = dir.to_owned();
                return Err(CacheError::Images { dir, image });
            }
            mark(dir);
            fs::canonicalize(dir)
        }
        false => make(dir).and_then(|()| fs::canonicalize(dir)),
    };
    made.map_err(|source| CacheError::Io {
        path: dir.to_owned(),
        source,
    })
}

/// The name of an image among the first thousand entries of a folder: it is somebody's data, and no place for a cache.
fn image_in(dir: &Path) -> Option<String> {
    let entries = fs::read_dir(dir).ok()?.take(1000).flatten();
    let mut names = entries.map(|entry| entry.file_name());
    let image = names.find(|name| stokehold_storage::is_image_name(name))?;
    Some(image.to_string_lossy().into_owned())
}

/// Makes a folder where there is none, for its user alone: images of a private bucket are nobody else's.
fn make(dir: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(dir)?;
    mark(dir);
    Ok(())
}

/// Marks a folder as a cache that has nothing but ours in it: programs that make backups leave such a folder out, and a class tree does
/// not take it for a class. A folder that cannot be written, or a full disk, serves without the mark.
fn mark(dir: &Path) {
    let is_ours =
        |name: &std::ffi::OsStr| name == LOCK || name.as_encoded_bytes().ends_with(SUFFIX.as_bytes());
    let mut names = fs::read_dir(dir).into_iter().flatten();
    if !names.all(|entry| entry.is_ok_and(|entry| is_ours(&entry.file_name()))) {
        return;
    }
    let tag = dir.join(TAG);
    if let Err(error) = fs::write(&tag, "Signature: 8a477f597d28d172789f06886806bc55\n") {
        tracing::debug!(path = %tag.display(), %error, "the mark of a cache");
        let _ = fs::remove_file(tag);
    }
}

/// The segments of a folder.
fn segments(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.as_encoded_bytes().ends_with(SUFFIX.as_bytes()) && entry.file_type()?.is_file() {
            all.push(entry.path());
        }
    }
    Ok(all)
}

/// A name that no other process takes.
fn new_name() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let seed = mix(now as u64 ^ mix(u64::from(std::process::id()) << 32 | count));
    format!("{now:x}-{seed:016x}{SUFFIX}")
}

/// A record of a file of so many bytes, with the end of a segment of so many records.
fn with_index(file: usize, records: usize) -> u64 {
    segment::HEAD * (records as u64 + 2) + file as u64 + segment::TRAILER
}

/// What is new in a segment from `from` on; `None` if nothing is.
fn found_in(
    path: &Path,
    file: Option<Arc<File>>,
    from: u64,
    found: &mut Vec<(Key, Place)>,
) -> io::Result<Option<Scanned>> {
    let mut abandoned = false;
    let file = match file {
        Some(file) => file,
        None => {
            let writable = File::options().read(true).write(true).open(path);
            let file = writable.or_else(|_| File::open(path))?;
            // Its writer would hold a lock: one that nobody holds has all that it will ever have.
            abandoned = file.metadata()?.len() >= segment::START && file.try_lock().is_ok();
            Arc::new(file)
        }
    };
    // Most of the time nothing has happened.
    if from > 0 && file.metadata()?.len() <= from {
        return Ok(None);
    }
    let scanned = segment::find(&file, from, |key, place| found.push((key, place)))?;
    match scanned {
        Scanned::UpTo(at) if abandoned => {
            // With its end it takes no more room than it has, also while others read from it. If it cannot be written, it is as before.
            if from == 0 {
                let _ = file
                    .set_len(at)
                    .and_then(|()| file.write_all_at(&segment::end(found, at), at));
            }
            Ok(Some(Scanned::All))
        }
        scanned => Ok(Some(scanned)),
    }
}

/// Opens a segment to read from it, and keeps others from removing it; `None` if it is not there any more.
fn opened_for_use(path: &Path) -> io::Result<Option<File>> {
    let Some(file) = if_there(File::open(path))? else {
        return Ok(None);
    };
    match file.try_lock_shared() {
        Ok(()) => {}
        Err(TryLockError::Error(error)) => return Err(error),
        // Somebody is about to remove it, or looks whether he may.
        Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
    }
    // It may have been removed just before it was locked.
    if file.metadata()?.nlink() == 0 {
        return Ok(None);
    }
    // When it was used last; in a read-only folder nobody removes it.
    let _ = File::options()
        .append(true)
        .open(path)
        .and_then(|file| file.set_modified(SystemTime::now()));
    Ok(Some(file))
}

/// Bytes of the segments of a folder.
fn size(dir: &Path) -> io::Result<u64> {
    let mut size = 0;
    for path in segments(dir)? {
        size += if_there(fs::metadata(path))?.map_or(0, |facts| facts.len());
    }
    Ok(size)
}

/// What a cache in the folder has and its disk has free. The folder need not be there yet, but the one above it.
pub(crate) fn room(dir: &Path) -> io::Result<u64> {
    let size = if_there(size(dir))?;
    let there = if size.is_some() { Some(dir) } else { dir.parent() };
    let disk = rustix::fs::statvfs(there.unwrap_or(dir))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    Ok(size.unwrap_or_default().saturating_add(free))
}

/// Four fifths of that.
fn default_limit(dir: &Path) -> io::Result<u64> {
    Ok((room(dir)? / 5 * 4).max(LEAST))
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied
    )
}

fn said(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull => "its disk is full".to_owned(),
        io::ErrorKind::ReadOnlyFilesystem => "its disk is read-only".to_owned(),
        io::ErrorKind::NotFound => "its folder was removed".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::thread;

    const LIMIT: u64 = 4 << 20;

    fn size(dir: &Path) -> u64 {
        super::size(dir).unwrap()
    }

    /// Each has a share of the bound that the others cannot see in sizes of files yet: what its segment may still become.
    #[test]
    fn several_writers_stay_within_the_bound() {
        let folder = tempfile::tempdir().unwrap();
        let dir = made(folder.path()).unwrap();
        let done = AtomicBool::new(false);
        let most = thread::scope(|scope| {
            let watching = scope.spawn(|| {
                let mut most = 0;
                while !done.load(Ordering::Relaxed) {
                    most = most.max(size(&dir));
                }
                most
            });
            let writers: Vec<_> = (0..4u8)
                .map(|writer| {
                    let dir = &dir;
                    scope.spawn(move || {
                        let store = Store::open(dir.clone(), Some(LIMIT)).unwrap();
                        let added = (0..60u128).map(|number| {
                            let key = number << 8 | u128::from(writer) | 1 << 100;
                            store.add(key, &vec![writer; 50_000 + number as usize])
                        });
                        let added = added.filter(|added| *added == Added::Yes).count();
                        (store, added)
                    })
                })
                .collect();
            let writers: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
            done.store(true, Ordering::Relaxed);
            let added: usize = writers.iter().map(|(_, added)| added).sum();
            assert!((60..=80).contains(&added), "{added}");
            assert!(writers.iter().any(|(store, _)| store.stopped().is_some()));
            watching.join().unwrap()
        });
        assert!(most <= LIMIT && size(&dir) <= LIMIT, "{most}");
        // What nobody uses makes room.
        let store = Store::open(dir.clone(), Some(LIMIT)).unwrap();
        assert_eq!(store.add(1 << 101, &[7; 50_000]), Added::Yes);
        assert!(size(&dir) <= LIMIT);
    }

    /// Nobody may remove a segment that is read; when its reader is gone, the writer that had no room goes on.
    #[test]
    fn who_found_no_room_looks_again() {
        let folder = tempfile::tempdir().unwrap();
        let dir = made(folder.path()).unwrap();
        let open = || Store::open(dir.clone(), Some(LIMIT)).unwrap();
        let readers: Vec<_> = (1..=8u128)
            .map(|number| {
                let store = open();
                assert_eq!(store.add(number, &[7; 400_000]), Added::Yes);
                store
            })
            .collect();
        let mut writer = open();
        writer.retry = Duration::from_millis(50);
        assert_eq!(writer.add(100, &[7; 1000]), Added::No);
        assert!(writer.rests() && !writer.ended());
        assert!(writer.stopped().unwrap().contains("full"));
        drop(readers);
        thread::sleep(writer.retry);
        assert_eq!(writer.add(100, &[7; 1000]), Added::Yes);
        assert!(!writer.rests() && writer.stopped().is_none());
        assert!(size(&dir) <= LIMIT);
    }

    /// A disk that is full now and then, as beside checkpoints.
    #[test]
    fn pauses_take_no_room_and_no_open_files() {
        let folder = tempfile::tempdir().unwrap();
        let dir = made(folder.path()).unwrap();
        let mut store = Store::open(dir.clone(), Some(LIMIT)).unwrap();
        store.retry = Duration::ZERO;
        let open = || fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let mut key = 0;
        let mut add = |store: &Store| {
            key += 1;
            store.add(key, &[7; 20_000])
        };
        for full in 0..20 {
            store.full.store(true, Ordering::Relaxed);
            assert_eq!(add(&store), Added::No, "{full}");
            assert!(store.stopped().is_some());
            store.full.store(false, Ordering::Relaxed);
            assert_eq!(add(&store), Added::Yes, "{full}");
        }
        // Where there was nothing yet, each attempt begins a segment, whose first write fails.
        let before = open();
        for _ in 0..20 {
            *held(&store.writing) = None;
            store.full.store(true, Ordering::Relaxed);
            assert_eq!(add(&store), Added::No);
        }
        assert!(open() <= before + 10, "{before} files were open, {} are", open());
        store.full.store(false, Ordering::Relaxed);
        drop(store);
        assert!(segments(&dir).unwrap().len() <= 2);
        let other = Store::open(dir.clone(), Some(LIMIT)).unwrap();
        let all = (1000..1150).filter(|&key| other.add(key, &[7; 20_000]) == Added::Yes);
        assert!(all.count() > 120, "{:?}", other.stopped());
    }

    /// As killed processes leave them, each with half a record at its end.
    #[test]
    fn segments_of_killed_processes_do_not_fill_the_cache_while_they_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let dir = made(folder.path()).unwrap();
        for number in 0..10 {
            let mut bytes = segment::start().to_vec();
            segment::record(number + 1, b"sample", &mut bytes);
            segment::record(77, &[7; 100], &mut bytes);
            bytes.truncate(bytes.len() - 1);
            fs::write(dir.join(new_name()), bytes).unwrap();
        }
        let reader = Store::open(dir.clone(), Some(LIMIT)).unwrap();
        let mut bytes = SampleBytes::new();
        for number in 0..10 {
            assert!(reader.read(number + 1, &mut bytes));
            assert_eq!(bytes.file(), b"sample");
        }
        assert!(!reader.has(77));
        let writer = Store::open(dir.clone(), Some(LIMIT)).unwrap();
        assert_eq!(writer.add(100, b"another"), Added::Yes, "{:?}", writer.stopped());
        assert!((0..10).all(|number| writer.has(number + 1)));
    }

    #[test]
    fn a_smaller_limit_takes_effect_when_something_is_added() {
        let folder = tempfile::tempdir().unwrap();
        let dir = made(folder.path()).unwrap();
        for run in 0..6u8 {
            let store = Store::open(dir.clone(), Some(LIMIT)).unwrap();
            assert_eq!(store.add(u128::from(run) + 1, &[run; 400_000]), Added::Yes);
        }
        assert!(size(&dir) > LIMIT / 2);
        let store = Store::open(dir.clone(), Some(LIMIT / 2)).unwrap();
        assert!(size(&dir) > LIMIT / 2 && store.stopped().is_none());
        assert_eq!(store.add(100, &[7; 100_000]), Added::Yes);
        assert!(size(&dir) <= LIMIT / 2, "{}", size(&dir));
        let (_, _, removed) = store.counts();
        assert!(removed > 400_000, "{removed}");
    }

    #[test]
    fn a_folder_of_its_own_is_marked_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let (empty, full) = (folder.path().join("empty"), folder.path().join("full"));
        fs::create_dir(&empty).unwrap();
        fs::create_dir(&full).unwrap();
        fs::write(full.join("notes"), "").unwrap();
        made(&empty).unwrap();
        made(&full).unwrap();
        fs::write(full.join("1.JPG"), "").unwrap();
        let refused = made(&full).unwrap_err().to_string();
        assert!(refused.contains("holds images (1.JPG)"), "{refused}");
        assert!(empty.join(TAG).exists() && !full.join(TAG).exists());
    }

    /// For want of open files a sample is read from its source this time, and from the cache the next.
    #[test]
    fn a_segment_that_cannot_be_opened_now_is_not_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let dir = made(folder.path()).unwrap();
        drop({
            let store = Store::open(dir.clone(), Some(LIMIT)).unwrap();
            assert_eq!(store.add(5, b"sample"), Added::Yes);
            store
        });
        let store = Store::open(dir.clone(), Some(LIMIT)).unwrap();
        let mut bytes = SampleBytes::new();
        {
            // As somebody holds it who looks whether it may be removed.
            let held = File::options()
                .read(true)
                .write(true)
                .open(&segments(&dir).unwrap()[0])
                .unwrap();
            held.try_lock().unwrap();
            assert!(!store.read(5, &mut bytes));
        }
        assert!(store.read(5, &mut bytes));
        assert_eq!(bytes.file(), b"sample");
    }
}
