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
//! A file that a process has mapped (shared and writable) counts as open. A store to a mapped page need not change
//! the file's times. So when the script has ended by itself, each file that was ever found mapped is compared with
//! what was sent of it.
//!
//! A name that is not UTF-8, a folder more than 64 deep, and a link to nothing or to a folder that it lies in cannot be
//! kept: the log names it, all else is kept, and the job fails at its end.
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
//! **When the place fails**, requests are retried with growing pauses while the script continues; the log and
//! the job's state say so. Files that still cannot be sent `stop-seconds` after the script's end make the job
//! fail; they stay in the job's folder.
//!
//! When a job is resumed, its checkpoint folder is filled from the place, not from what the job left in it.
//! Files that could not be sent are then put aside in the job's folder. Empty folders are not kept, and links
//! become the files that they lead to.

mod lease;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stokehold_objects::{Bucket, Cause, LeftOut, Object, Options};

use crate::data::open::{ask, open_with};
use crate::mirror::watch::{Found, Name, Stamp, Unfit, Watch};
use crate::mirror::{self, Eyes, Mirror, NotSent, Place, RETRY, Sum, plain};
use crate::{Job, JobError};
use lease::Lease;

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
    /// Why files are waiting, if the place failed, or else why one cannot be kept.
    pub trouble: Option<String>,
}

/// Mirrors a job's checkpoints.
pub(crate) type Keeper<'a> = Mirror<'a, Checkpoints<'a>>;

/// A job's place for checkpoints, and what is there.
pub(crate) struct Checkpoints<'a> {
    bucket: Bucket,
    lease: Lease,
    say: &'a (dyn Fn(&str) + Sync),
    there: BTreeMap<String, Sum>,
    /// What the last look found that cannot be kept.
    unfit: Vec<Unfit>,
    /// Files whose names are no keys of the place, and why.
    refused: BTreeMap<Name, String>,
}

fn open(job: &Job, uri: &str, retry: Duration) -> Result<Bucket, JobError> {
    if !uri.contains("://") {
        fs::create_dir_all(uri).map_err(JobError::io(Path::new(uri)))?;
    }
    open_with(job, uri, retry).map_err(JobError::Checkpoints)
}

impl Kept {
    /// Whether the folders may have something that the place does not have.
    pub(crate) fn is_behind(&self) -> bool {
        self.waiting > 0 || self.trouble.is_some()
    }
}

impl<'a> Mirror<'a, Checkpoints<'a>> {
    /// Takes the place for a job, and holds it until the keeper is dropped. `folders` are the checkpoint folders of
    /// the instances.
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
        let place = Checkpoints {
            bucket,
            lease,
            say,
            there: BTreeMap::new(),
            unfit: Vec::new(),
            refused: BTreeMap::new(),
        };
        Ok(Self::new(place, Eyes::new(folders, true, Vec::new()), say))
    }

    /// Downloads everything at the place into the empty folders of all instances.
    pub fn restore(&mut self, job: &Job, stop: &AtomicBool) -> Result<(), JobError> {
        // Retries as long as for channels: without its checkpoints the script would start over.
        let uri = self.place.bucket.location().to_string();
        let bucket = open(job, &uri, Options::default().retry)?;
        let listing = bucket.clone();
        let listed = ask(&uri, stop, move || listing.list()).map_err(JobError::Checkpoints)?;
        for text in LeftOut::told(&listed.left_out, &uri) {
            (self.place.say)(&format!("checkpoints: {text}"));
        }
        let mut objects = listed.objects;
        objects.retain(|object| object.key != lease::KEY);
        self.forget();
        self.place.there.clear();
        self.place.unfit.clear();
        self.place.refused.clear();
        for (rank, folder) in self.eyes.folders.iter().enumerate() {
            let copied = bucket.copy(&objects, folder, &AtomicU64::new(0), stop);
            copied.map_err(JobError::Checkpoints)?;
            for Object { key, .. } in &objects {
                let path = folder.join(key);
                let stamp = Stamp::of(&fs::metadata(&path).map_err(JobError::io(&path))?);
                self.eyes.watch.brought((rank, key.clone()), stamp);
                if rank == 0 {
                    let sum = mirror::read(&path, stamp, true, &mut |_| Ok(())).map_err(|error| {
                        let reason = match error {
                            NotSent::Failed(reason) => reason,
                            _ => format!("{}: it was changed while it was read", path.display()),
                        };
                        JobError::Input(format!("checkpoints: {reason}"))
                    })?;
                    self.place.there.insert(key.clone(), sum);
                }
            }
        }
        if !objects.is_empty() {
            let bytes: u64 = objects.iter().map(|object| object.size).sum();
            (self.place.say)(&format!(
                "checkpoints: {} objects, {bytes} bytes, came from {}",
                objects.len(),
                bucket.location()
            ));
        }
        Ok(())
    }
}

/// A file or folder that cannot be kept, and why.
fn named(unfit: &Unfit) -> String {
    format!("algo-{}: {}: {}", unfit.rank + 1, unfit.name(), unfit.reason)
}

impl Checkpoints<'_> {
    fn tell(&self, text: &str) {
        (self.say)(&plain(&format!("checkpoints: {text}")));
    }

    /// The first file that cannot be kept, and why.
    fn not_kept(&self) -> Option<String> {
        let unfit = self.unfit.first().map(named);
        Some(plain(&unfit.or_else(|| self.refused.values().next().cloned())?))
    }
}

impl Place for Checkpoints<'_> {
    type State = Kept;

    fn name(&self) -> &str {
        "checkpoints"
    }

    fn state(&self, waiting: u64, trouble: Option<String>) -> Kept {
        Kept {
            uri: self.bucket.location().to_string(),
            files: self.there.len() as u64,
            bytes: self.there.values().map(|sum| sum.size).sum(),
            waiting,
            trouble: trouble.or_else(|| self.not_kept()),
        }
    }

    fn before(&mut self, found: &Found, _: &mut Watch) -> Result<(), String> {
        for unfit in found.unfit.iter().filter(|unfit| !self.unfit.contains(unfit)) {
            self.tell(&format!("not kept: {}", named(unfit)));
        }
        self.unfit.clone_from(&found.unfit);
        self.refused.retain(|name, _| found.files.contains_key(name));
        Ok(())
    }

    fn complete(&mut self, _: &[(Name, Stamp)]) -> Result<(), String> {
        Ok(())
    }

    fn blocked(&self) -> Option<String> {
        self.lease.trouble()
    }

    fn is_lost(&self) -> bool {
        self.lease.is_lost()
    }

    fn has(&self, key: &str) -> bool {
        self.there.contains_key(key)
    }

    fn send(
        &mut self,
        name: &Name,
        path: &Path,
        stamp: Stamp,
        meanwhile: &mut dyn FnMut(),
    ) -> Result<(), NotSent> {
        let (_, key) = name;
        let there = self.there.get(key).copied();
        if there.is_some_and(|there| there.size == stamp.size)
            && there == Some(mirror::read(path, stamp, true, &mut |_| Ok(()))?)
        {
            return Ok(());
        }
        let mut upload = match self.bucket.upload(key, stamp.size) {
            Ok(upload) => upload,
            Err(error) if error.cause == Cause::BadUri => {
                let reason = error.to_string();
                if self.refused.insert(name.clone(), reason.clone()).is_none() {
                    self.tell(&format!("not kept: {reason}"));
                }
                return Err(NotSent::Refused);
            }
            Err(error) => return Err(error.into()),
        };
        let sum = mirror::read(path, stamp, true, &mut |bytes| {
            meanwhile();
            Ok(upload.write(bytes)?)
        })?;
        upload.finish()?;
        self.there.insert(key.clone(), sum);
        self.tell(&format!("kept {key} ({} bytes)", sum.size));
        Ok(())
    }

    fn remove(&mut self, key: &str) -> Result<(), NotSent> {
        if self.there.contains_key(key) {
            self.bucket.delete(key)?;
            self.there.remove(key);
            self.tell(&format!("removed {key}"));
        }
        Ok(())
    }
}
