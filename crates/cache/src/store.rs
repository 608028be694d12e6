//! A cache's samples: read from the segments of all processes, added to one of this process's own, below the bound.
//!
//! A process writes segments of its own, and reads those of all. Who may remove one says `lease`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use stokehold_base::lock;
use stokehold_storage::SampleBytes;

use crate::CacheError;
use crate::folder::{self, LOCK};
use crate::known::{self, Known};
use crate::lease;
use crate::segment::{self, FileExtent, Key, Scanned};
use crate::writer::Writer;

/// How large a segment gets, unless a 256th of the limit is more or an eighth of it is less. Each takes an open file of every reader.
const SEGMENT: u64 = 256 << 20;
/// After how long a store that found no room looks again: others may have made some.
const RETRY: Duration = Duration::from_secs(30);
/// How often the folder is looked through for segments of other processes.
const LOOK: Duration = Duration::from_secs(1);

/// An open folder.
pub(crate) struct Store {
    dir: PathBuf,
    limit: u64,
    known: RwLock<Known>,
    looked: Mutex<Instant>,
    writing: Mutex<Option<Writing>>,
    /// The number of the segment that this process adds to, or [`NONE`]: known without waiting for the writer.
    own: AtomicU32,
    /// Why adding is paused; none while it continues.
    stopped: Mutex<Option<Stopped>>,
    /// Bytes that may be added before the disk is asked what it has free; used by who writes alone.
    allowed: AtomicU64,
    notices: Mutex<Notices>,
    pub(crate) retry: Duration,
    /// The disk counts as full.
    #[cfg(test)]
    full: std::sync::atomic::AtomicBool,
    added: AtomicU64,
    damaged: AtomicU64,
    removed: AtomicU64,
    /// A fork of it must not write to its segment.
    process: u32,
}

/// What users have to know and no one has said yet.
#[derive(Default)]
struct Notices {
    unsaid: Vec<String>,
    /// Reasons that were said.
    said: BTreeSet<String>,
}

struct Stopped {
    why: String,
    /// When adding is tried again; never, if this user may not.
    until: Option<Instant>,
}

/// The number of no segment.
const NONE: u32 = u32::MAX;

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
    to: Writer,
    number: u32,
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Store {
    /// Opens the folder, whose path is the one that [`folder::made`] gave, and learns what is in it.
    pub fn open(dir: PathBuf, limit: Option<u64>) -> Result<Self, CacheError> {
        let limit = match limit {
            Some(limit) => limit,
            None => folder::default_limit(&dir).map_err(|source| CacheError::Io {
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
            allowed: AtomicU64::new(0),
            notices: Mutex::default(),
            retry: RETRY,
            #[cfg(test)]
            full: std::sync::atomic::AtomicBool::new(false),
            added: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            removed: AtomicU64::new(0),
            process: std::process::id(),
            dir,
        };
        let path = || store.dir.clone();
        // A folder without locks could lose its bound, or a segment in use.
        let locked = match lock::open(&store.dir.join(LOCK), lock::MOMENT) {
            Ok(locked) => locked,
            Err(error) if is_read_only(&error) => {
                store.stop(said(&error), None);
                None
            }
            Err(source) => return Err(CacheError::Lock { path: path(), source }),
        };
        let failed = |source| CacheError::Io { path: path(), source };
        store.look().map_err(failed)?;
        drop(locked);
        // Nothing is removed for a limit alone, which may be a slip of the pen, and others share the folder.
        let size = folder::size(&store.dir).map_err(failed)?;
        if size > store.limit && store.stopped().is_none() {
            let megabytes = |bytes: u64| bytes / 1_000_000;
            held(&store.notices).unsaid.push(format!(
                "the cache in {} has {} MB, more than its limit of {} MB: what was used longest ago is removed when images are added",
                store.dir.display(),
                megabytes(size),
                megabytes(store.limit)
            ));
        }
        Ok(store)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Why adding is paused; none while it continues.
    pub fn stopped(&self) -> Option<String> {
        held(&self.stopped).as_ref().map(|stopped| stopped.why.clone())
    }

    /// Whether adding is paused or has ended.
    pub fn is_paused(&self) -> bool {
        let stopped = held(&self.stopped);
        let goes_on = |until: Option<Instant>| until.is_some_and(|until| until <= Instant::now());
        stopped.as_ref().is_some_and(|stopped| !goes_on(stopped.until))
    }

    /// Whether nothing will be added.
    pub fn has_ended(&self) -> bool {
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

    /// A sample was read that is not there. Users have to know if it will not be added, once for each reason.
    pub fn lacks_one(&self) {
        let stopped = held(&self.stopped);
        let Some(Stopped { why, .. }) = &*stopped else {
            return;
        };
        let mut notices = held(&self.notices);
        // Of a full cache every miss comes here.
        if !notices.said.contains(why) {
            notices.said.insert(why.clone());
            notices.unsaid.push(format!(
                "the cache in {} takes no images now: {why}; those that it lacks are read as they are",
                self.dir.display()
            ));
        }
    }

    /// What users have to know, each sentence once.
    pub fn notices(&self) -> Vec<String> {
        std::mem::take(&mut held(&self.notices).unsaid)
    }

    fn stop(&self, why: impl Into<String>, until: Option<Instant>) {
        let why = why.into();
        let mut stopped = held(&self.stopped);
        // Said once, not at every attempt.
        if stopped.as_ref().is_none_or(|stopped| stopped.why != why) {
            tracing::info!(dir = %self.dir.display(), why, "the cache takes no samples now");
        }
        *stopped = Some(Stopped { why, until });
    }

    fn go_on(&self) {
        if held(&self.stopped).take().is_some() {
            tracing::info!(dir = %self.dir.display(), "the cache takes samples again");
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
    fn place(&self, key: Key) -> Option<(Arc<File>, FileExtent)> {
        let (number, path) = {
            let known = self.known();
            let (number, place) = known.place(key)?;
            let segment = &known.segments[number as usize];
            match &segment.file {
                Some(file) => return Some((Arc::clone(file), place)),
                None => (number, segment.path.clone()),
            }
        };
        // Without the lock: other threads continue reading.
        let opened = lease::of_reader(&path);
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
        let mut paths = folder::segments(&self.dir)?;
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
            match known::found_in(&path, file, from, &mut found) {
                Ok(None) => continue,
                Ok(Some(read)) => {
                    let mut known = self.known_mut();
                    if let (Scanned::All, Some(file)) = (read, &known.segments[number as usize].file) {
                        // It was opened while it grew. Without the lock it may be removed, which costs its samples' next reader time.
                        let _ = lease::has_writer(file);
                    }
                    known.segments[number as usize].read = read;
                    known
                        .samples
                        .extend(found.into_iter().map(|(key, place)| (key, (number, place))));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.known_mut().segments[number as usize].gone = true;
                }
                // For want of open files or the like. It is looked at again, and does not keep the others from being read.
                Err(error) => tracing::debug!(path = %path.display(), %error, "a file of the cache"),
            }
        }
    }

    /// Adds a sample. What goes wrong ends the adding for a while, and is said once.
    pub fn add(&self, key: Key, file: &[u8]) -> Added {
        if self.is_paused() || self.has(key) {
            return Added::No;
        }
        let most = SEGMENT.max(self.limit / 256).min(self.limit / 8);
        if !Writer::could_fit(file.len(), most) {
            return Added::TooLarge;
        }
        let mut writing = held(&self.writing);
        // Another thread may have found no room while this one waited for the lock.
        if self.is_paused() {
            return Added::No;
        }
        match self.add_to(&mut writing, key, file, most) {
            Ok(()) => {
                self.go_on();
                Added::Yes
            }
            Err(why) => {
                // One that has samples is gone on with when there is room. An empty one would be left by each attempt on a full disk.
                if let Some(begun) = writing.take_if(|begun| begun.to.is_empty()) {
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
        if writing
            .as_ref()
            .is_some_and(|writing| !writing.to.fits(file.len()))
        {
            self.complete(writing).map_err(|error| said(&error))?;
        }
        // With the record's head, and as much for its line in the index.
        let more = file.len() as u64 + 2 * segment::HEAD;
        let mut allowed = self.allowed.load(Ordering::Relaxed);
        if allowed < more || writing.is_none() {
            let asked = folder::allowed(&self.dir, more).map_err(|error| said(&error))?;
            allowed = asked.ok_or("its disk is nearly full")?;
        }
        self.allowed.store(allowed - more, Ordering::Relaxed);
        let Writing { to, number } = match writing {
            Some(writing) => writing,
            None => writing.insert(self.begin(most)?),
        };
        #[cfg(test)]
        if self.full.load(Ordering::Relaxed) {
            return Err("a test's disk is full".to_owned());
        }
        let (place, bytes) = to.append(key, file).map_err(|error| said(&error))?;
        self.added.fetch_add(bytes, Ordering::Relaxed);
        self.known_mut().samples.insert(key, (*number, place));
        Ok(())
    }

    /// Ends the segment that is written.
    fn complete(&self, writing: &mut Option<Writing>) -> io::Result<()> {
        let Some(writing) = writing.take() else {
            return Ok(());
        };
        self.known_mut().segments[writing.number as usize].read = Scanned::All;
        self.own.store(NONE, Ordering::Release);
        let finished = writing.to.finish();
        if finished.is_err() {
            self.known_mut().segments[writing.number as usize].file = None;
        }
        finished
    }

    /// Begins a segment, for which others that no one uses are removed if need be. The error says why there is no room.
    fn begin(&self, most: u64) -> Result<Writing, String> {
        let _lock = lock::open(&self.dir.join(LOCK), Duration::from_secs(10))
            .map_err(|error| said(&error))?
            .ok_or("another process has held its lock for 10 s")?;
        folder::make_room(&self.dir, self.limit, most, &self.removed).map_err(|error| said(&error))?;
        let path = self.dir.join(folder::new_name());
        let to = Writer::begin(&path, most).map_err(|error| said(&error))?;
        let mut known = self.known_mut();
        let number = known.push(path, Some(Arc::clone(to.file())), segment::START);
        self.own.store(number, Ordering::Release);
        drop(known);
        Ok(Writing { to, number })
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
        io::ErrorKind::PermissionDenied => "this user may not write to it".to_owned(),
        io::ErrorKind::NotFound => "its folder was removed".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::made;

    use std::sync::atomic::AtomicBool;
    use std::thread;

    const LIMIT: u64 = 4 << 20;

    fn size(dir: &Path) -> u64 {
        folder::size(dir).unwrap()
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
        // What no one uses makes room.
        let store = Store::open(dir.clone(), Some(LIMIT)).unwrap();
        assert_eq!(store.add(1 << 101, &[7; 50_000]), Added::Yes);
        assert!(size(&dir) <= LIMIT);
    }

    /// No one may remove a segment that is read; when its reader is gone, the writer that had no room continues.
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
        assert!(writer.is_paused() && !writer.has_ended());
        assert!(writer.stopped().unwrap().contains("full"));
        drop(readers);
        thread::sleep(writer.retry);
        assert_eq!(writer.add(100, &[7; 1000]), Added::Yes);
        assert!(!writer.is_paused() && writer.stopped().is_none());
        assert!(size(&dir) <= LIMIT);
    }

    /// A disk that is full now and then, as next to checkpoints.
    #[test]
    fn pauses_take_no_room_and_no_open_files() {
        let folder = tempfile::tempdir().unwrap();
        let dir = made(folder.path()).unwrap();
        let mut store = Store::open(dir.clone(), Some(LIMIT)).unwrap();
        store.retry = Duration::ZERO;
        // Other tests of this process open files of their own.
        let open = || {
            let files = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
            let paths = files.filter_map(|file| fs::read_link(file.path()).ok());
            paths.filter(|path| path.starts_with(&dir)).count()
        };
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
        assert!(open() <= before, "{before} files were open, {} are", open());
        store.full.store(false, Ordering::Relaxed);
        drop(store);
        assert!(folder::segments(&dir).unwrap().len() <= 2);
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
            fs::write(dir.join(folder::new_name()), bytes).unwrap();
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
        assert!(empty.join(folder::TAG).exists() && !full.join(folder::TAG).exists());
    }

    /// A reader that has met a segment while its writer lived keeps its lock, and the writer's end is seen all the same.
    #[test]
    fn a_writer_that_is_killed_while_others_read_leaves_room() {
        let folder = tempfile::tempdir().unwrap();
        let dir = made(folder.path()).unwrap();
        let reader = Store::open(dir.clone(), Some(LIMIT)).unwrap();
        let mut bytes = SampleBytes::new();
        for number in 0..10 {
            let mut writer = Store::open(dir.clone(), Some(LIMIT)).unwrap();
            assert_eq!(
                writer.add(number + 1, &[7; 1000]),
                Added::Yes,
                "{:?}",
                writer.stopped()
            );
            reader.look().unwrap();
            assert!(reader.read(number + 1, &mut bytes));
            // As if it were killed: the system gives its lock back.
            writer.process = 0;
        }
        assert!(size(&dir) < 20_000);
        let writer = Store::open(dir.clone(), Some(LIMIT)).unwrap();
        assert_eq!(writer.add(100, &[7; 1000]), Added::Yes, "{:?}", writer.stopped());
        reader.look().unwrap();
        for number in (0..10).chain([99]) {
            assert!(reader.read(number + 1, &mut bytes) && writer.has(number + 1));
        }
    }

    #[test]
    fn what_users_have_to_know_is_said_once() {
        let folder = tempfile::tempdir().unwrap();
        let dir = made(folder.path()).unwrap();
        let open = |limit| Store::open(dir.clone(), Some(limit)).unwrap();
        drop({
            let store = open(LIMIT);
            assert_eq!(store.add(1, &[7; 400_000]), Added::Yes);
            assert_eq!(store.add(2, &[7; 400_000]), Added::Yes);
            store
        });
        assert!(open(LIMIT).notices().is_empty());
        let store = open(LIMIT / 8);
        let notices = store.notices();
        assert!(
            notices.len() == 1 && notices[0].contains("more than its limit of 0 MB"),
            "{notices:?}"
        );
        let mut store = open(LIMIT);
        store.retry = Duration::ZERO;
        for _ in 0..3 {
            store.full.store(true, Ordering::Relaxed);
            assert_eq!(store.add(3, b"sample"), Added::No);
            // Nothing that is there is lacking.
            assert!(store.has(1) && store.notices().is_empty());
        }
        store.lacks_one();
        let notices = store.notices();
        assert!(
            notices.len() == 1 && notices[0].contains("takes no images now: a test's disk is full"),
            "{notices:?}"
        );
        store.lacks_one();
        assert!(store.notices().is_empty());
        store.full.store(false, Ordering::Relaxed);
        assert_eq!(store.add(3, b"sample"), Added::Yes);
        store.lacks_one();
        assert!(store.notices().is_empty());
    }
}
