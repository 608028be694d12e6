//! Recordings in buckets.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};

use stokehold_base::uri;
use stokehold_objects::{Bucket, Copied, Object, ObjectError};
use stokehold_profile::Recording;

use crate::failure::Usage;
use crate::progress;

/// Opens the recording that an argument names. If that is a URI, its files are downloaded, and removed once
/// they are read; only the recording's own files, not checkpoints and models next to them.
///
/// # Errors
/// There is no recording; the objects cannot be fetched; `stop` was set.
pub fn recording(run: &Path, stop: &AtomicBool) -> Result<Recording, Box<dyn Error>> {
    let Some(uri) = uri::remote(run) else {
        return Ok(Recording::open(run)?);
    };
    let bucket = Bucket::open(uri)?;
    let mut objects = bucket.list()?.objects;
    let all = objects.len();
    objects.retain(|object| is_of_recording(&object.key));
    if objects.is_empty() {
        return Err(Box::new(Usage(format!(
            "{uri}: none of the {all} objects there is of a recording; give the place of a job's output, with \
             profiler-output/ below it"
        ))));
    }
    let dir = tempfile::Builder::new()
        .prefix("stokehold-recording-")
        .tempdir()?;
    copy(&bucket, &objects, dir.path(), FETCHING, stop)?;
    let mut recording = Recording::open(dir.path())?;
    recording.path = run.to_owned();
    Ok(recording)
}

/// The bar of a recording that is fetched.
pub const FETCHING: &str = "fetching the recording {bar:40} {bytes}/{total_bytes} {eta}";

/// Copies objects into a folder, with a bar.
///
/// # Errors
/// As [`Bucket::copy`].
pub fn copy(
    bucket: &Bucket,
    objects: &[Object],
    into: &Path,
    template: &str,
    stop: &AtomicBool,
) -> Result<Copied, ObjectError> {
    let bar = progress::bar(objects.iter().map(|object| object.size).sum(), template);
    let done = AtomicU64::new(0);
    progress::counted(&bar, &done, || bucket.copy(objects, into, &done, stop))
}

/// Whether an object's key is that of a recording's file.
pub fn is_of_recording(key: &str) -> bool {
    let folders: Vec<&str> = key.split('/').collect();
    let (Some(file), folders) = (folders.last(), &folders[..folders.len() - 1]) else {
        return false;
    };
    let within = folders
        .iter()
        .any(|folder| ["system", "framework"].contains(folder));
    let kind = [".json", ".json.gz", ".timeline"]
        .iter()
        .any(|end| file.ends_with(end));
    (within && kind) || *file == "recording.json"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_recording_is_brought() {
        let is = [
            "job/profiler-output/system/incremental/2020060500/1591315200.algo-1.json",
            "profiler-output/framework/pevents/2020060500/1_2-algo-1_pythontimeline.json",
            "system/x/1591315200.algo-1.json.gz",
            "profiler-output/recording.json",
        ];
        let is_not = [
            "job/output/model.tar.gz",
            "job/checkpoints/1.json",
            "system",
            "source/system/x.py",
            "",
        ];
        assert!(is.iter().all(|key| is_of_recording(key)));
        assert!(!is_not.iter().any(|key| is_of_recording(key)));
    }
}
