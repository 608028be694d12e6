//! Mounted channels: a read-only view of the objects, as files.
//!
//! ```text
//!  script ──► kernel ──► view (64 threads) ──► tape ──► pieces in memory ◄── requests ◄── bucket
//!   open, read  page      names, sizes, from     │        4 MiB at most,       many at
//!               cache     the list of the start  │        dropped when read    once
//!                                                └──────► pieces on disk, in mode Cache
//! ```
//!
//! - The objects are listed once, at the start. Names and sizes are answered from the list, and the kernel
//!   may cache them.
//! - All objects one after the other, in the order of their keys, form a **tape**, which is cut into pieces.
//!   Sequential reads, within a file or from file to file, are followed and read ahead of; a jump is answered
//!   by a ranged request ([`tape`]).
//! - A piece is bound to the version that was listed. If an object is overwritten meanwhile, reading it is an
//!   error; two versions are never mixed.
//! - If bytes cannot be fetched, the script gets `EIO`, and the job's log gets a line with the object and the
//!   cause.
//!
//! The kernel caches what was read in free memory, as it does for a disk. Mode Cache also keeps it on disk,
//! for the next epoch and the next job ([`disk`]).
//!
//! A view is always read-only. What a script writes to a channel of mode Cache goes to a layer above its view
//! (`writes.rs`).
//!
//! # Ends
//! Dropping the [`Mount`] unmounts the view by force: pending reads fail, and nothing waits. A runner that is
//! killed leaves a mount without a server, where every call fails at once; [`clear`] removes it when the job
//! is next read or run. This process never accesses a file below its own mount: it would wait for itself.

mod disk;
mod fs;
mod stale;
mod tape;
mod tree;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use stokehold_objects::{Cause, Object, ObjectError};

use crate::data::{Found, Objects, link};
use crate::mirror::plain;
use crate::{Channel, Job, JobError, Mode, Sharing, writes};
use disk::Disk;
use fs::View;
use stokehold_cache::CachePlace;
use tape::{Kept, Tape};
use tree::Tree;

pub(crate) use stale::clear;

/// Errors of scripts' reads, kept until the runner writes them to the log.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    lines: Mutex<(Vec<String>, String)>,
}

/// At most this many are kept between two polls.
const MOST_COMPLAINTS: usize = 100;

impl Complaints {
    /// A script that retries the same read adds one line.
    fn add(&self, line: String) {
        let line = plain(&line);
        let mut lines = self.lines.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let (lines, last) = &mut *lines;
        if *last != line && lines.len() < MOST_COMPLAINTS {
            last.clone_from(&line);
            lines.push(line);
        }
    }

    pub fn take(&self) -> Vec<String> {
        let mut lines = self.lines.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        std::mem::take(&mut lines.0)
    }
}

/// A mounted view. Dropping it unmounts.
pub(crate) struct Mount {
    folder: PathBuf,
    tape: Arc<Tape>,
    session: Option<fuser::BackgroundSession>,
}

/// The mounted channels of a job.
pub(crate) struct Mounts {
    pub complaints: Arc<Complaints>,
    /// The objects of the channels that the script may write to.
    pub listed: BTreeMap<String, Vec<Object>>,
    /// Dropping these unmounts them.
    _all: Vec<Mount>,
}

impl Mounts {
    /// Mounts the channels of mode `FastFile` and `Cache` for all instances, whose data folders are given. A
    /// replicated channel is mounted once, for the first instance; the others have links to it.
    pub fn new(
        job: &Job,
        folders: &[PathBuf],
        say: &dyn Fn(&str),
        stop: &AtomicBool,
    ) -> Result<Self, JobError> {
        let complaints = Arc::new(Complaints::default());
        let (mut all, mut listed) = (Vec::new(), BTreeMap::new());
        for (name, channel) in &job.channels {
            if !matches!(channel.mode(), Mode::FastFile | Mode::Cache) {
                continue;
            }
            let failed = |source| JobError::Channel {
                channel: name.clone(),
                source,
            };
            for (rank, data) in folders.iter().enumerate() {
                let folder = data.join(name);
                if rank > 0 && channel.distribution == Sharing::FullyReplicated {
                    link(&folders[0].join(name), &folder)?;
                    continue;
                }
                let found = Objects::unless(stop, job, (name, channel), rank, say).map_err(failed)?;
                std::fs::create_dir_all(&folder).map_err(JobError::io(&folder))?;
                let kept = match channel.mode() {
                    Mode::Cache => Some(kept(job)?),
                    _ => None,
                };
                let is_lower = writes::is_written_back(channel);
                if is_lower {
                    let all = found.objects.iter().chain(&found.folders).cloned();
                    listed.insert(name.clone(), all.collect());
                }
                let mount = Mount::new(found, kept, &folder, (name, is_lower), &complaints);
                all.push(mount.map_err(failed)?);
            }
        }
        if let Some(Err(reason)) = image_cache(job) {
            complaints.add(format!("the script's loader keeps no packed images: {reason}"));
        }
        Ok(Self {
            complaints,
            listed,
            _all: all,
        })
    }
}

/// Where the loader of a script keeps packed images ([`VARIABLE`](stokehold_cache::VARIABLE)), in a job with a channel of mode Cache: a
/// folder next to the objects. `cache-gigabytes` is the limit of each of the two; without it this one gets an eighth of the free disk,
/// for objects take four fifths. None where the user has set the variable, here or for the job.
///
/// The error says why there is none.
pub(crate) fn image_cache(job: &Job) -> Option<Result<String, String>> {
    let caches = |channel: &Channel| channel.mode() == Mode::Cache;
    let variable = stokehold_cache::VARIABLE;
    let is_set = std::env::var_os(variable).is_some() || job.environment.contains_key(variable);
    if is_set || !job.channels.values().any(caches) {
        return None;
    }
    let place = || {
        let dir = folder(job).map_err(|error| error.to_string())?.join("images");
        let limit = match job.cache_gigabytes {
            Some(size) => (size * 1e9) as u64,
            None => stokehold_cache::room(&dir).map_err(|error| format!("{}: {error}", dir.display()))? / 8,
        };
        let limit = Some(limit.max(stokehold_cache::LEAST));
        let place = CachePlace { dir, limit };
        let text = place.to_string();
        match text.parse() {
            Ok(same) if place == same => Ok(text),
            Ok(_) => Err(format!("{text} reads as another folder and a size")),
            Err(reason) => Err(format!("{text}: {reason}")),
        }
    };
    Some(place())
}

/// The cache's folder.
fn folder(job: &Job) -> Result<PathBuf, JobError> {
    let set = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    let user = || set("XDG_CACHE_HOME").or_else(|| Some(std::env::home_dir()?.join(".cache")));
    let folder = job
        .cache_dir
        .clone()
        .or_else(|| set("STOKEHOLD_CACHE"))
        .or_else(|| Some(user()?.join("stokehold")));
    // Scripts run in folders of their own.
    folder
        .map(|folder| std::path::absolute(&folder).unwrap_or(folder))
        .ok_or_else(|| {
            JobError::Input(
                "no home folder for mode=Cache; set STOKEHOLD_CACHE or cache-dir to a folder".to_owned(),
            )
        })
}

/// Opens the cache of a job.
fn kept(job: &Job) -> Result<Kept, JobError> {
    let folder = folder(job)?;
    let most = job.cache_gigabytes.map(|size| (size * 1e9) as u64);
    // Two servers may have buckets of the same name.
    let names = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
    let ours = names.iter().find_map(|name| job.environment.get(*name).cloned());
    let server = ours.or_else(|| names.iter().find_map(|name| std::env::var(name).ok()));
    Ok(Kept {
        disk: Disk::open(&folder, most).map_err(JobError::io(&folder))?,
        server: server.unwrap_or_default(),
    })
}

/// Reads that may wait at the same time: 64 requests of 20 ms each are 3,200 a second.
const THREADS: usize = 64;

/// How long to wait for the threads of a view to end. They end at once, unless the system refused to unmount
/// by force and a process that outlived its job still has a file open. Then the threads stay, and answer
/// every read with an error.
const PATIENCE: Duration = Duration::from_secs(5);

impl Mount {
    /// Mounts a view of the objects at an empty folder. Messages begin with the channel's name. The view may be the
    /// lower layer of an overlay.
    ///
    /// # Errors
    /// The system does not permit it; the message names alternatives.
    pub fn new(
        found: Objects,
        kept: Option<Kept>,
        folder: &Path,
        (channel, is_lower): (&str, bool),
        complaints: &Arc<Complaints>,
    ) -> Result<Self, ObjectError> {
        let uri = found.bucket.location().to_string();
        let tree = Tree::new(&found.objects);
        let tape = Tape::new(found.bucket, found.objects, kept);
        let view = View::new(
            tree,
            Arc::clone(&tape),
            (channel.to_owned(), is_lower),
            Arc::clone(complaints),
        );
        let mounted = mount(view, folder);
        let session = mounted.map_err(|reason| ObjectError {
            uri,
            cause: Cause::Other,
            reason: format!(
                "it cannot be mounted at {}: {reason}. Modes FastFile and Cache want FUSE: /dev/fuse, and either the right to \
                 mount (root, CAP_SYS_ADMIN) or the program fusermount3 (package fuse3). mode=File copies the data before \
                 the start and mode=Pipe streams it; neither wants FUSE",
                folder.display()
            ),
        })?;
        Ok(Self {
            folder: folder.to_owned(),
            tape,
            session: Some(session),
        })
    }
}

fn mount(view: View, folder: &Path) -> Result<fuser::BackgroundSession, String> {
    if !Path::new("/dev/fuse").exists() {
        return Err("there is no /dev/fuse".to_owned());
    }
    use fuser::MountOption::{DefaultPermissions, FSName, NoAtime, NoDev, NoSuid, RO, Subtype};
    let mut options = fuser::Config::default();
    options.mount_options = vec![
        RO,
        NoSuid,
        NoDev,
        NoAtime,
        DefaultPermissions,
        FSName("stokehold".to_owned()),
        Subtype("stokehold".to_owned()),
    ];
    options.n_threads = Some(THREADS);
    let session = fuser::Session::new(view, folder, &options);
    let spawned = session.and_then(fuser::Session::spawn);
    spawned.map_err(|error| error.to_string())
}

impl Drop for Mount {
    fn drop(&mut self) {
        // First release the readers that wait for bytes, then the kernel.
        self.tape.close();
        // A view that cannot be unmounted now is found and removed when the job is next read.
        let _ = stale::unmount(&self.folder);
        let Some(session) = self.session.take() else {
            return;
        };
        let started = Instant::now();
        while !session.guard.is_finished() && started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(2));
        }
        if session.guard.is_finished() {
            // The result only says how the session ended.
            let _ = session.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_mount_hears_what_else_there_is() {
        let folder = tempfile::tempdir().unwrap();
        let bucket = stokehold_objects::Bucket::open(folder.path().to_str().unwrap()).unwrap();
        let found = Objects {
            bucket,
            objects: Vec::new(),
            folders: Vec::new(),
            left_out: Vec::new(),
        };
        let missing = folder.path().join("missing");
        let error = Mount::new(found, None, &missing, ("train", false), &Arc::default())
            .err()
            .unwrap();
        let message = error.to_string();
        assert!(
            message.contains("mode=File") && message.contains("mode=Pipe"),
            "{message}"
        );
        assert!(
            message.contains("fusermount3") && message.contains("missing"),
            "{message}"
        );
    }

    #[test]
    fn objects_and_packed_images_have_room_on_one_disk() {
        let folder = tempfile::tempdir().unwrap();
        let mut job: Job = toml::from_str("entry-point = \"train.py\"").unwrap();
        job.cache_dir = Some(folder.path().to_owned());
        assert_eq!(image_cache(&job), None);
        let channel = "uri = \"s3://bucket/photos\"\nmode = \"Cache\"";
        job.channels
            .insert("train".to_owned(), toml::from_str(channel).unwrap());
        let limit = |job: &Job| {
            let place: CachePlace = image_cache(job).unwrap().unwrap().parse().unwrap();
            assert_eq!(place.dir, folder.path().join("images"));
            place.limit.unwrap()
        };
        let free = stokehold_cache::room(folder.path()).unwrap();
        assert!(limit(&job) <= free / 7 && limit(&job) >= free / 9);
        job.cache_gigabytes = Some(1.5);
        assert_eq!(limit(&job), 1_500_000_000);
        job.cache_gigabytes = Some(0.001);
        assert_eq!(limit(&job), stokehold_cache::LEAST);
        // What the user says goes before.
        let variable = stokehold_cache::VARIABLE.to_owned();
        job.environment.insert(variable, String::new());
        assert_eq!(image_cache(&job), None);
    }

    #[test]
    fn a_script_that_tries_again_and_again_is_told_once() {
        let complaints = Complaints::default();
        for line in ["a", "a", "b", "a"] {
            complaints.add(line.to_owned());
        }
        assert_eq!(complaints.take(), ["a", "b", "a"]);
        complaints.add("a".to_owned());
        assert!(complaints.take().is_empty());
    }
}
