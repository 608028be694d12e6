//! A cache of training images that fills itself.
//!
//! The first epoch reads files, here or in a bucket, as they are. Next to it, threads of this crate pack their JPEGs (the form that
//! `stokehold prepare` makes: the same coefficients in nine tenths of the bytes, which are read two to three times as fast), and append
//! them to files in a folder. The next epochs, and other trainings of the same data, read those.
//!
//! ```text
//!            read(sample)                       hit: the packed image
//!  loader ─────────────────► Cached ───────────────────────────────────────► loader
//!                              │ miss           the file, as it is                ▲
//!                              ├──────────────► Source ───────────────────────────┤
//!                              └─ the file ─► queue ─► threads pack ─► segments in the folder
//! ```
//!
//! * **Every batch is the same** as without it: a packed image has the same pixels to the bit, and is checked by its CRC-32 at every
//!   read. What is damaged is read from its source again, and replaced.
//! * **It follows content.** A sample's key is a hash of its [version](stokehold_storage::Source::version): of a file here its name,
//!   its number in the file system, its size, and when it and its entry were changed, to the nanosecond; of an object in a bucket its
//!   server, URI, ETag and size. What was changed is another sample. What was changed in the last two seconds, or while it was read,
//!   waits for the next epoch. Nothing has to be cleared by hand.
//! * **It is bounded.** The folder stays below its limit. If it is full, segments that no process has open are removed, those that
//!   were opened longest ago first; if all are in use, none are added until there is room ([`CacheFacts::stopped`]).
//! * **It is shared**, by threads, processes and jobs: each appends to files of its own and reads those of all, also while they grow.
//!   Two processes may pack an image at the same moment; then it is there twice.
//! * **It may be killed** at any moment: half of a record is no record.
//! * **It leaves room**: a 20th of its disk, at most 1 GiB, stays free for others, such as checkpoints.
//! * **It works in spare moments.** Packing takes about one and a half times the work of loading an image once. Threads of the lowest
//!   priority do it while less than half of the cores' time is used, by this process and all others, or while workers have nothing to do
//!   and 15 % of the cores' time is free. It always takes a share of the time that the process gets ([`SHARE`]). So a
//!   training that never stops waiting for its loader is slowed down by that share, and is packed over several epochs.
//!
//! A program that opens files itself asks for each by its [key](Cache::key_of_file), and offers those that the cache lacks. A sample of a
//! source has the same key, so both share one packed image.
//!
//! Images that cannot be packed, have no end, or would be half as large again, stay files: files of buckets are kept as they are, files of
//! this machine are not kept. Without AVX2 all images stay files: packed images were measured to be faster with AVX2 only. Samples of
//! [shards](stokehold_storage::shard) are not cached: they are prepared already. Masks are read from their files.
//!
//! ```no_run
//! use std::sync::Arc;
//! use stokehold_cache::{Cache, SHARE};
//! use stokehold_storage::{Dataset, Source};
//!
//! let dataset = Dataset::open("s3://bucket/photos", None, 0)?;
//! let cache = Cache::open(&"/fast/disk:200GB".parse()?, SHARE)?;
//! let source: Arc<dyn Source> = cache.of(Arc::new(dataset.train));
//! # let _ = source;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The folder may be on a network file system that has locks (`flock`). Nothing else may write to it; files that are not
//! called `*.skcache` or `lock` are left alone. A folder that is new or empty is marked as a cache (`CACHEDIR.TAG`), and no class of a data
//! set that it lies in.

mod cached;
mod error;
mod folder;
mod known;
mod lease;
mod pace;
mod packing;
mod segment;
mod store;
mod writer;

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use serde::{Deserialize, Serialize};
use stokehold_base::size::parse_size;
use stokehold_jpeg::packed_is_fast;
use stokehold_storage::{SampleBytes, Source, file_version};

pub use cached::Cached;
pub use error::CacheError;
pub use folder::LEAST;
use packing::Packing;

/// The environment variable with the [`CachePlace`] of a program that is given none. Jobs with a channel of mode Cache set it for their
/// scripts.
pub const VARIABLE: &str = "STOKEHOLD_IMAGE_CACHE";

/// The folder of a cache and its limit: `DIR` or `DIR:SIZE` in text, such as `/fast/disk:200GB`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CachePlace {
    /// The folder; it is made if it is not there.
    pub dir: PathBuf,
    /// The most bytes that it takes, at least 1 MiB. Default: four fifths of what it has and its disk has free, when it is opened.
    pub limit: Option<u64>,
}

impl CachePlace {
    /// The place that is given, or none where none is wanted, or else that of the environment; its folder as an absolute path.
    ///
    /// # Errors
    /// What is wrong with the environment's.
    pub fn chosen(given: Option<Self>, no_cache: bool) -> Result<Option<Self>, CacheError> {
        let chosen = match given {
            Some(given) => Some(given),
            None if no_cache => None,
            None => Self::of_environment()?,
        };
        // A run that is resumed elsewhere finds it again.
        Ok(chosen.map(|place| Self {
            dir: std::path::absolute(&place.dir).unwrap_or(place.dir),
            ..place
        }))
    }

    /// The place that the environment names ([`VARIABLE`]); none if it is not set, or empty.
    ///
    /// # Errors
    /// What is wrong with it.
    fn of_environment() -> Result<Option<Self>, CacheError> {
        let value = std::env::var_os(VARIABLE).filter(|value| !value.is_empty());
        let Some(value) = value else { return Ok(None) };
        let parsed = match value.to_str() {
            Some(text) => text.parse(),
            None => Err("it is not UTF-8".to_owned()),
        };
        parsed.map(Some).map_err(|reason| CacheError::Variable {
            name: VARIABLE,
            text: value.to_string_lossy().into_owned(),
            reason,
        })
    }
}

/// Bytes that a cache in the folder has and its disk has free: what a limit is a part of. The folder need not be there yet, but the one
/// above it.
///
/// # Errors
/// What the system says.
pub fn room(dir: &Path) -> io::Result<u64> {
    folder::room(dir)
}

impl FromStr for CachePlace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (dir, limit) = match text.rsplit_once(':') {
            Some((dir, size)) if !size.contains('/') => (
                dir,
                Some(parse_size(size).map_err(|reason| format!("the size {size:?} {reason}"))?),
            ),
            _ => (text, None),
        };
        let is_number = !dir.is_empty() && dir.bytes().all(|byte| byte.is_ascii_digit());
        if !dir.contains('/') && (is_number || parse_size(dir).is_ok()) {
            return Err(format!("it is DIR or DIR:SIZE; ./{dir} is a folder of that name"));
        }
        if dir.is_empty() || dir.ends_with(':') {
            return Err("it is DIR or DIR:SIZE, such as /fast/disk:200GB".to_owned());
        }
        if dir.contains("://") {
            return Err("the cache is a folder of this machine".to_owned());
        }
        if limit.is_some_and(|limit| limit < LEAST) {
            return Err("the size is at least 1MiB".to_owned());
        }
        let dir = PathBuf::from(dir);
        Ok(Self { dir, limit })
    }
}

stokehold_base::as_text!(CachePlace);

impl fmt::Display for CachePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            Some(limit) => write!(f, "{}:{limit}", self.dir.display()),
            None => self.dir.display().fmt(f),
        }
    }
}

/// The usual share of the process's CPU time that packing takes when no core is idle.
pub const SHARE: f64 = 0.02;

/// The environment variable with the share of a Python program that gives none.
pub const SHARE_VARIABLE: &str = "STOKEHOLD_IMAGE_CACHE_SHARE";

/// The share that the environment names ([`SHARE_VARIABLE`]), or [`SHARE`].
///
/// # Errors
/// It is no number from 0 to 1.
pub fn share_of_environment() -> Result<f64, CacheError> {
    let Some(value) = std::env::var_os(SHARE_VARIABLE).filter(|value| !value.is_empty()) else {
        return Ok(SHARE);
    };
    let text = value.to_string_lossy().into_owned();
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| CacheError::Variable {
        name: SHARE_VARIABLE,
        text,
        reason: "it is a number from 0 to 1".to_owned(),
    })
}

/// What a cache has done since it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CacheFacts {
    /// The folder.
    pub dir: PathBuf,
    /// Its limit in bytes.
    pub limit: u64,
    /// Samples that were read from it.
    pub hits: u64,
    /// Samples that were read from their source.
    pub misses: u64,
    /// Samples that were read past it: of shards, which are prepared already; URIs of a list; files that were changed less than two seconds before;
    /// and, on a processor without AVX2, all files of this machine.
    pub passed: u64,
    /// Samples that were added.
    pub added: u64,
    /// Samples that it does not keep: they cannot be packed, or packed they would be too large.
    pub refused: u64,
    /// Bytes of these files.
    pub file_bytes: u64,
    /// What they take in the cache.
    pub added_bytes: u64,
    /// Samples that wait to be packed.
    pub waiting: usize,
    /// Samples of the cache that were found damaged.
    pub damaged: u64,
    /// Bytes of the cache that were removed to make room, those that were used longest ago first.
    pub removed_bytes: u64,
    /// Why adding is paused; none while it continues. Unless it may not write at all, the cache tries again every 30 seconds.
    pub stopped: Option<String>,
}

/// One line for people.
impl fmt::Display for CacheFacts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reads = self.hits + self.misses;
        write!(
            f,
            "{} of {reads} reads were from {}",
            self.hits,
            self.dir.display()
        )?;
        if self.passed > 0 {
            let why = match packed_is_fast() {
                true => {
                    "of shards, which are prepared already, of a list's URIs, or of files that were just changed"
                }
                false => {
                    "of shards, or of files of this machine, whose processor is not known to read packed ones faster"
                }
            };
            write!(f, "; {} reads past it: {why}", self.passed)?;
        }
        if self.added > 0 {
            write!(
                f,
                "; {} added, {:.1} MB for {:.1} MB of files",
                images(self.added),
                self.added_bytes as f64 / 1e6,
                self.file_bytes as f64 / 1e6
            )?;
        }
        if self.refused > 0 {
            write!(f, "; {} not for it", images(self.refused))?;
        }
        if self.waiting > 0 {
            write!(
                f,
                "; {} not packed yet{}",
                images(self.waiting as u64),
                match self.stopped {
                    Some(_) => "",
                    None => ", sooner with a larger cache share",
                }
            )?;
        }
        if self.damaged > 0 {
            write!(f, "; {} damaged in it and read from files", images(self.damaged))?;
        }
        if self.removed_bytes > 0 {
            write!(
                f,
                "; {:.1} MB removed to make room",
                self.removed_bytes as f64 / 1e6
            )?;
        }
        match &self.stopped {
            Some(why) => write!(f, "; it takes none now: {why}"),
            None => Ok(()),
        }
    }
}

/// A number of images in words.
fn images(count: u64) -> String {
    format!("{count} image{}", if count == 1 { "" } else { "s" })
}

/// An open cache, for any number of sources.
pub struct Cache {
    packing: Packing,
}

impl Cache {
    /// Opens the folder, which is made if it is not there. A folder that this process has open already is the same cache, with the
    /// limit and the share that it was opened with first. `share` is the share of the process's CPU time that packing may take when no core is
    /// idle, 0 to 1, usually [`SHARE`].
    ///
    /// # Errors
    /// The folder cannot be made or read, or its file system has no locks; a share outside 0 to 1.
    pub fn open(place: &CachePlace, share: f64) -> Result<Arc<Self>, CacheError> {
        if !(0.0..=1.0).contains(&share) {
            return Err(CacheError::Share { share });
        }
        // A fork of the process that opened it has no threads for it.
        static OPEN: Mutex<Vec<(u32, Weak<Cache>)>> = Mutex::new(Vec::new());
        let dir = folder::made(&place.dir)?;
        let open = || OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let known = || {
            let mut open = open();
            open.retain(|(_, cache)| cache.strong_count() > 0);
            let own = open.iter().filter(|(process, _)| *process == std::process::id());
            own.filter_map(|(_, cache)| cache.upgrade())
                .find(|cache| cache.dir() == dir)
        };
        if let Some(cache) = known() {
            return Ok(cache);
        }
        // Without the lock, which a fork meanwhile would keep.
        let store = store::Store::open(dir.clone(), place.limit)?;
        if let Some(cache) = known() {
            return Ok(cache);
        }
        let packing = Packing::new(store, share);
        let cache = Arc::new(Self { packing });
        open().push((std::process::id(), Arc::downgrade(&cache)));
        Ok(cache)
    }

    /// As [`Cache::open`], where a place is given.
    ///
    /// # Errors
    /// As there.
    pub fn open_if(place: Option<&CachePlace>, share: f64) -> Result<Option<Arc<Self>>, CacheError> {
        place.map(|place| Self::open(place, share)).transpose()
    }

    /// The source with this cache before it.
    pub fn of(self: &Arc<Self>, source: Arc<dyn Source>) -> Arc<Cached> {
        Arc::new(Cached::new(Arc::clone(self), source))
    }

    /// The key of an open regular file, from its name and its six [numbers](file_version). The file has the same key as a sample
    /// of a source, so all readers share its packed image. `None` if the file cannot be cached.
    pub fn key_of_file(name: &OsStr, numbers: [i64; 6]) -> Option<u128> {
        if !packed_is_fast() {
            return None;
        }
        cached::key_of_version(|into| file_version(name, numbers, || true, into), &mut Vec::new())
    }

    /// Reads the packed image with this key to `into`. Returns whether the cache has it.
    pub fn read(&self, key: u128, into: &mut SampleBytes) -> bool {
        let store = self.packing.store();
        let hit = store.read(key, into);
        self.packing.count(hit);
        if !hit {
            store.follow();
            store.lacks_one();
        }
        hit
    }

    /// Offers a file that had this key before and after it was read. The threads that take the share pack it, or one thread in
    /// spare moments. If too many files wait, it is dropped.
    pub fn offer(&self, key: u128, file: &[u8]) {
        self.packing.offer_file(key, file);
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        self.packing.store().dir()
    }

    /// What its users have to know, in sentences, each once: its limit is smaller than what is there, or images are read that it
    /// lacks and does not take.
    pub fn notices(&self) -> Vec<String> {
        self.packing.store().notices()
    }

    /// What it has done since it was opened.
    pub fn facts(&self) -> CacheFacts {
        self.packing.facts()
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({})", self.dir().display())
    }
}

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
