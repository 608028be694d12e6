//! Recordings in buckets.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use stokehold_objects::{Bucket, Location, Object, ObjectError};
use stokehold_profile::Recording;

use crate::failure::Usage;
use crate::progress;

/// Opens the recording that an argument names. If that is a URI, its files are downloaded, and removed once
/// they are read; only the recording's own files, not checkpoints and models next to them.
///
/// # Errors
/// There is no recording; the objects cannot be fetched; `stop` was set.
pub fn recording(run: &Path, stop: &AtomicBool) -> Result<Recording, Box<dyn Error>> {
    let Some(uri) = remote(run) else {
        return Ok(Recording::open(run)?);
    };
    let bucket = Bucket::open(uri)?;
    let mut objects = bucket.list()?;
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
    copy(&bucket, &objects, dir.path(), stop)?;
    let mut recording = Recording::open(dir.path())?;
    recording.path = run.to_owned();
    Ok(recording)
}

/// The URI, if the argument is one.
pub fn remote(run: &Path) -> Option<&str> {
    run.to_str().filter(|text| Location::is_remote(text))
}

fn copy(bucket: &Bucket, objects: &[Object], into: &Path, stop: &AtomicBool) -> Result<(), ObjectError> {
    let bytes = objects.iter().map(|object| object.size).sum();
    let bar = progress::bar(
        bytes,
        "fetching the recording {bar:40} {bytes}/{total_bytes} {eta}",
    );
    let done = AtomicU64::new(0);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                bar.set_position(done.load(Ordering::Relaxed));
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        let copied = bucket.copy(objects, into, &done, stop);
        ended.store(true, Ordering::Relaxed);
        copied
    })?;
    bar.finish_and_clear();
    Ok(())
}

fn is_of_recording(key: &str) -> bool {
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
