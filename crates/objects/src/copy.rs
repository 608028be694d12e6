//! Copies many objects into a folder.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use futures_util::{StreamExt, TryStreamExt, stream};
use stokehold_base::whole::Writing;

use crate::runtime::block_on;
use crate::{Bucket, Cause, Object, ObjectError};

/// The result of a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Copied {
    /// Objects that were fetched.
    pub fetched: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects that an earlier copy had already fetched.
    pub kept: u64,
}

impl Bucket {
    /// Copies objects into `folder`, each to the path that its key gives: several at once, with a few chunks
    /// of each in memory.
    ///
    /// Each file is written under a temporary name, gets the object's time, and is renamed when it is
    /// complete. A file with the object's size and time is kept, so a killed copy continues where it was.
    /// `done` counts bytes as they arrive; `stop` ends the copy early.
    ///
    /// # Errors
    /// The first object that cannot be fetched or written; too little room on the disk, before anything is fetched;
    /// [`Cause::Other`] when it was stopped. Files that are complete stay.
    pub fn copy(
        &self,
        objects: &[Object],
        folder: &Path,
        done: &AtomicU64,
        stop: &AtomicBool,
    ) -> Result<Copied, ObjectError> {
        let disk = |path: &Path, error: &io::Error| {
            ObjectError::new(path.display().to_string(), Cause::Disk, error.to_string())
        };
        fs::create_dir_all(folder).map_err(|error| disk(folder, &error))?;
        let missing: Vec<(Object, PathBuf)> = objects
            .iter()
            .map(|object| (object.clone(), folder.join(&object.key)))
            .filter(|(object, path)| !is_there(object, path))
            .collect();
        let bytes = missing.iter().map(|(object, _)| object.size).sum();
        let room = room(folder).map_err(|error| disk(folder, &error))?;
        if bytes > room {
            let reason = format!(
                "{} objects of {} take {bytes} bytes and the disk has room for {room}; free some, or stream them",
                missing.len(),
                self.location()
            );
            return Err(ObjectError::new(
                folder.display().to_string(),
                Cause::Disk,
                reason,
            ));
        }
        let inner = &self.inner;
        let fetch = |(object, path): (Object, PathBuf)| async move {
            let key = &object.key;
            let _permit = inner.permit().await;
            let got = inner.request(key, None).await?;
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent).map_err(|error| disk(parent, &error))?;
            }
            let mut file = Writing::begin(&path).map_err(|error| disk(&path, &error))?;
            let mut size = 0;
            let mut chunks = got.into_stream();
            while let Some(chunk) = chunks
                .try_next()
                .await
                .map_err(|error| inner.error(key, &error))?
            {
                if stop.load(Ordering::Relaxed) {
                    return Err(ObjectError::new(
                        inner.location.uri(key),
                        Cause::Other,
                        "the copy was stopped",
                    ));
                }
                file.write_all(&chunk).map_err(|error| disk(&path, &error))?;
                size += chunk.len() as u64;
                done.fetch_add(chunk.len() as u64, Ordering::Relaxed);
                inner.count(0, chunk.len() as u64);
            }
            if size != object.size {
                let reason = format!("{size} bytes came and the list says {}", object.size);
                return Err(ObjectError::new(inner.location.uri(key), Cause::Changed, reason));
            }
            let modified = UNIX_EPOCH + seconds(&object);
            let finished = file.file().set_modified(modified).and_then(|()| file.finish());
            finished.map_err(|error| disk(&path, &error))
        };
        let fetched = missing.len() as u64;
        block_on(async {
            let mut fetches = stream::iter(missing)
                .map(fetch)
                .buffer_unordered(self.inner.gate.available_permits().max(1));
            while let Some(()) = fetches.try_next().await? {
                if stop.load(Ordering::Relaxed) {
                    return Err(ObjectError::new(
                        self.location().to_string(),
                        Cause::Other,
                        "the copy was stopped",
                    ));
                }
            }
            Ok(())
        })??;
        Ok(Copied {
            fetched,
            bytes,
            kept: objects.len() as u64 - fetched,
        })
    }
}

fn seconds(object: &Object) -> Duration {
    Duration::from_secs(object.modified.max(0) as u64)
}

fn is_there(object: &Object, path: &Path) -> bool {
    let Ok(facts) = fs::metadata(path) else {
        return false;
    };
    let same_time = facts
        .modified()
        .is_ok_and(|time| time == UNIX_EPOCH + seconds(object));
    facts.is_file() && facts.len() == object.size && same_time
}

/// The free space on the folder's disk, bytes.
fn room(folder: &Path) -> io::Result<u64> {
    let facts = rustix::fs::statvfs(folder)?;
    Ok(facts.f_bavail.saturating_mul(facts.f_frsize))
}
