//! Checkpoints that outlive the machine: the checkpoint folders are mirrored to a bucket or a folder, "the
//! place".
//!
//! ```text
//!  start     place ──► algo-1/checkpoints, algo-2/checkpoints, ..      all objects, before the script runs
//!  meanwhile a poll a second:  new, complete files ──► place           oldest first; then what is gone is removed there
//!  end       what is left ──► place                                    before the job has its final state
//! ```
//!
//! A file is **complete** when two polls saw it the same (inode, size, times) and no process has it open for
//! writing. A file that is renamed into place is complete at the second poll. A file that is written for
//! minutes, with pauses, is complete only when it is closed, so a half-written file never replaces a whole
//! one. (A file that stays open, such as a log, is kept at the end.) When the script has ended by itself,
//! everything that it left is complete. When the script was killed, only the files that two polls had found
//! complete are sent: the log names the files that the script was writing, and the place keeps what it has
//! under those names.
//!
//! **Order.** Files are sent one after the other, in the order in which they were last written. When a file
//! is removed from the folder, it is removed from the place only after all files that were closed at that
//! time have been sent. So at every moment the place holds what the folder held a moment before, and a script
//! that writes a new checkpoint and then removes the old one always has at least one there. A file with the
//! size and the SHA-256 of the object that is there already is not sent again.
//!
//! **Several instances** keep their files at the same place, as in SageMaker: every instance gets all objects
//! at the start, and where several files have the same name, the place has the one that was written last.
//! Scripts should give each instance's files their own names, or let one instance write. An object that an
//! instance has sent is removed when that instance removes its file.
//!
//! **When the place fails**, requests are retried with growing pauses while the script goes on; the log and
//! the job's state say so. Files that still cannot be sent `stop-seconds` after the script's end make the job
//! fail; they stay in the job's folder.
//!
//! When a job is resumed, its checkpoint folder is filled from the place, not from what the job left in it.
//! Files that could not be sent are then put aside in the job's folder. Empty folders are not kept, and links
//! become the files that they lead to.

mod lease;
mod watch;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ring::digest::{Context, SHA256};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stokehold_objects::{Bucket, Object, ObjectError, Options};

use crate::{Job, JobError};
use lease::Lease;
pub(crate) use watch::End;
use watch::{Look, Name, Seen, Stamp, Watch, Work};

/// Time between two polls of the folders.
const LOOK: Duration = Duration::from_secs(1);

/// How long one request is retried before it counts as failed. Pauses after that are this module's.
const RETRY: Duration = Duration::from_secs(5);

/// The longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The state of a job's checkpoints at their place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Kept {
    /// The place that the checkpoint folder is mirrored to.
    pub uri: String,
    /// Number of objects there.
    pub files: u64,
    /// Bytes of these objects.
    pub bytes: u64,
    /// Number of complete files that are not at the place yet, or not in their latest version.
    pub waiting: u64,
    /// Why files are waiting, if the place failed.
    pub trouble: Option<String>,
}

/// Identifies the contents of an object: size and checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sum {
    size: u64,
    sha256: [u8; 32],
}

/// A job's place for checkpoints, and what is there.
pub(crate) struct Keeper<'a> {
    bucket: Bucket,
    lease: Lease,
    /// The checkpoint folder of each instance.
    folders: Vec<PathBuf>,
    say: &'a (dyn Fn(&str) + Sync),
    watch: Watch,
    there: BTreeMap<String, Sum>,
    waiting: u64,
    trouble: Option<Trouble>,
    looked: Instant,
}

/// The failure of a place.
struct Trouble {
    reason: String,
    since: Instant,
    pause: Duration,
    next: Instant,
}

/// Why a file was not sent.
enum NotSent {
    /// The file has changed since it was complete; the next poll finds it.
    Changed,
    Failed(String),
}

impl From<ObjectError> for NotSent {
    fn from(error: ObjectError) -> Self {
        Self::Failed(error.to_string())
    }
}

fn open(job: &Job, uri: &str, retry: Duration) -> Result<Bucket, JobError> {
    if !uri.contains("://") {
        fs::create_dir_all(uri).map_err(JobError::io(Path::new(uri)))?;
    }
    let options = Options {
        settings: job.environment.clone().into_iter().collect(),
        retry,
        ..Options::default()
    };
    Bucket::with_options(uri, options).map_err(JobError::Checkpoints)
}

impl Kept {
    /// Whether the folders may have something that the place does not have.
    pub(crate) fn is_behind(&self) -> bool {
        self.waiting > 0 || self.trouble.is_some()
    }
}

impl<'a> Keeper<'a> {
    /// Takes the place for a job, and holds it until the keeper is dropped.
    pub fn take(
        job: &Job,
        uri: &str,
        folder: &Path,
        folders: Vec<PathBuf>,
        say: &'a (dyn Fn(&str) + Sync),
        stop: &AtomicBool,
    ) -> Result<Self, JobError> {
        let bucket = open(job, uri, RETRY)?;
        let lease = Lease::take(&bucket, job.name.as_deref().unwrap_or_default(), folder, stop)?;
        Ok(Self {
            bucket,
            lease,
            folders,
            say,
            watch: Watch::default(),
            there: BTreeMap::new(),
            waiting: 0,
            trouble: None,
            looked: Instant::now(),
        })
    }

    /// Downloads everything at the place into the empty folders of all instances.
    pub fn restore(&mut self, job: &Job, stop: &AtomicBool) -> Result<(), JobError> {
        // Retries as long as for channels: without its checkpoints the script would start over.
        let bucket = open(job, &self.bucket.location().to_string(), Options::default().retry)?;
        let mut objects = bucket.list().map_err(JobError::Checkpoints)?;
        objects.retain(|object| object.key != lease::KEY);
        (self.watch, self.waiting, self.trouble) = (Watch::default(), 0, None);
        self.there.clear();
        for (rank, folder) in self.folders.iter().enumerate() {
            let copied = bucket.copy(&objects, folder, &AtomicU64::new(0), stop);
            copied.map_err(JobError::Checkpoints)?;
            for Object { key, .. } in &objects {
                let path = folder.join(key);
                let mut file = File::open(&path).map_err(JobError::io(&path))?;
                let stamp = Stamp::of(&file.metadata().map_err(JobError::io(&path))?);
                self.watch.brought((rank, key.clone()), stamp);
                if rank == 0 {
                    let sum = sum(&mut file, &mut |_| Ok(())).map_err(JobError::io(&path))?;
                    self.there.insert(key.clone(), sum);
                }
            }
        }
        if !objects.is_empty() {
            let bytes: u64 = objects.iter().map(|object| object.size).sum();
            (self.say)(&format!(
                "checkpoints: {} objects, {bytes} bytes, came from {}",
                objects.len(),
                bucket.location()
            ));
        }
        Ok(())
    }

    /// The current state.
    pub fn kept(&self) -> Kept {
        Kept {
            uri: self.bucket.location().to_string(),
            files: self.there.len() as u64,
            bytes: self.there.values().map(|sum| sum.size).sum(),
            waiting: self.waiting,
            trouble: self.trouble.as_ref().map(|trouble| trouble.reason.clone()),
        }
    }

    /// Mirrors the folders to the place until `over` is set. Calls `report` when something has changed.
    pub fn follow(
        &mut self,
        over: &AtomicBool,
        report: &dyn Fn(Kept) -> Result<(), JobError>,
    ) -> Result<(), JobError> {
        let mut told = self.kept();
        while !over.load(Ordering::SeqCst) {
            if let Some(work) = self.look(None) {
                self.waiting = work.send.len() as u64;
                if self
                    .trouble
                    .as_ref()
                    .is_none_or(|trouble| trouble.next <= Instant::now())
                {
                    self.act(&work, over);
                }
            }
            if self.kept() != told {
                told = self.kept();
                report(told.clone())?;
            }
            while self.looked.elapsed() < LOOK && !over.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    /// Sends the remaining files after all scripts have ended. Gives up when nothing could be sent for
    /// `patience`.
    pub fn settle(&mut self, ends: &[End], patience: Duration) -> Kept {
        // `look` has recorded the failure; the caller gets it from `kept`.
        let Some(mut work) = self.look(Some(ends)) else {
            return self.kept();
        };
        for (_, name) in &work.doubtful {
            (self.say)(&format!(
                "checkpoints: {name} is not kept: its script was killed and may not have finished it"
            ));
        }
        let never = AtomicBool::new(false);
        let mut since = Instant::now();
        // First send everything, then remove what is gone.
        for step in 0..2 {
            loop {
                let before = work.send.len() + work.remove.len();
                self.act(&work, &never);
                work.send.retain(|(name, stamp)| !self.watch.has(name, *stamp));
                work.remove.retain(|(_, name)| self.there.contains_key(name));
                let left = work.send.len() + work.remove.len();
                self.waiting = work.send.len() as u64;
                if left < before {
                    since = Instant::now();
                }
                if left == 0 || self.trouble.is_none() || self.lease.is_lost() || since.elapsed() >= patience
                {
                    break;
                }
                let pause = self
                    .trouble
                    .as_ref()
                    .map_or(Duration::ZERO, |trouble| trouble.pause);
                std::thread::sleep(pause.min(patience.saturating_sub(since.elapsed())));
            }
            if self.trouble.is_some() || step == 1 {
                break;
            }
            match self.look(Some(ends)) {
                Some(Work { remove, .. }) => {
                    work = Work {
                        remove,
                        ..Work::default()
                    }
                }
                None => break,
            }
        }
        self.kept()
    }

    /// Polls all folders. Returns `None` if one cannot be read.
    fn look(&mut self, ends: Option<&[End]>) -> Option<Work> {
        self.looked = Instant::now();
        let files = match watch::files(&self.folders) {
            Ok(files) => files,
            Err(error) => {
                self.fail(error.to_string());
                return None;
            }
        };
        let idle = files.iter().all(|(name, stamp)| self.watch.has(name, *stamp));
        // Check for open files only when there is something to send.
        let open = if idle || ends.is_some() {
            Default::default()
        } else {
            watch::open_for_writing()
        };
        let seen = |stamp: Stamp| Seen {
            stamp,
            open: open.contains(&stamp.file),
        };
        let look: Look = files
            .into_iter()
            .map(|(name, stamp)| (name, seen(stamp)))
            .collect();
        Some(self.watch.look(look, ends))
    }

    /// Sends and removes files, up to the first failure.
    fn act(&mut self, work: &Work, over: &AtomicBool) {
        let idle = work.send.is_empty() && work.remove.is_empty();
        if let Some(reason) = self.lease.trouble().filter(|_| !idle) {
            return self.fail(reason);
        }
        for (name, stamp) in &work.send {
            if over.load(Ordering::SeqCst) {
                return;
            }
            match self.send(name, *stamp) {
                Ok(()) => {
                    self.watch.sent(name, *stamp);
                    self.waiting = self.waiting.saturating_sub(1);
                }
                Err(NotSent::Changed) => {}
                Err(NotSent::Failed(reason)) => return self.fail(reason),
            }
        }
        for name in &work.remove {
            if self.there.contains_key(&name.1) {
                if let Err(error) = self.bucket.delete(&name.1) {
                    return self.fail(error.to_string());
                }
                self.there.remove(&name.1);
                (self.say)(&format!("checkpoints: removed {}", name.1));
            }
            self.watch.removed(name);
        }
        if let Some(trouble) = self.trouble.take() {
            let seconds = trouble.since.elapsed().as_secs_f64();
            (self.say)(&format!("checkpoints: they are kept again, after {seconds:.0} s"));
        }
    }

    /// Makes the object equal to the file.
    fn send(&mut self, name: &Name, stamp: Stamp) -> Result<(), NotSent> {
        let path = self.folders[name.0].join(&name.1);
        let disk = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => NotSent::Changed,
            _ => NotSent::Failed(format!("{}: {error}", path.display())),
        };
        let unchanged = |facts: io::Result<fs::Metadata>| match facts {
            Ok(facts) if Stamp::of(&facts) == stamp => Ok(()),
            Ok(_) => Err(NotSent::Changed),
            Err(error) => Err(disk(error)),
        };
        let mut file = File::open(&path).map_err(disk)?;
        unchanged(file.metadata())?;
        let there = self.there.get(&name.1).copied();
        if there.is_some_and(|there| there.size == stamp.size) {
            let sum = sum(&mut file, &mut |_| Ok(())).map_err(disk)?;
            if there == Some(sum) {
                return unchanged(fs::metadata(&path));
            }
            file.rewind().map_err(disk)?;
        }
        let mut upload = self.bucket.upload(&name.1, stamp.size)?;
        let mut failed = None;
        let read = sum(&mut file, &mut |bytes| {
            // While a large file is on its way, keep polling: else changes would be seen too late.
            if self.looked.elapsed() >= LOOK {
                self.look(None);
            }
            upload.write(bytes).map_err(|error| {
                failed = Some(error);
                io::Error::other("the upload")
            })
        });
        if let Some(error) = failed {
            return Err(error.into());
        }
        let sum = read.map_err(disk)?;
        // A file that changed while it was read is not uploaded.
        unchanged(fs::metadata(&path))?;
        upload.finish()?;
        self.there.insert(name.1.clone(), sum);
        (self.say)(&format!("checkpoints: kept {} ({} bytes)", name.1, sum.size));
        Ok(())
    }

    /// Records that the place or a folder failed, and schedules the next try after a pause.
    fn fail(&mut self, reason: String) {
        let now = Instant::now();
        let pause = match &self.trouble {
            Some(trouble) => (trouble.pause * 2).min(LONGEST_PAUSE),
            None => {
                (self.say)(&format!("checkpoints: not kept, trying again: {reason}"));
                Duration::from_millis(500)
            }
        };
        self.trouble = Some(Trouble {
            reason,
            since: self.trouble.as_ref().map_or(now, |trouble| trouble.since),
            pause,
            next: now + pause,
        });
    }
}

/// The size and the checksum of a file from its current position. `each` gets its bytes.
fn sum(file: &mut File, each: &mut dyn FnMut(&[u8]) -> io::Result<()>) -> io::Result<Sum> {
    let (mut context, mut size) = (Context::new(&SHA256), 0);
    let mut chunk = vec![0; 1 << 20];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(n) => {
                context.update(&chunk[..n]);
                size += n as u64;
                each(&chunk[..n])?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let mut sha256 = [0; 32];
    sha256.copy_from_slice(context.finish().as_ref());
    Ok(Sum { size, sha256 })
}
