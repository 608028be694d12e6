//! Where a script's code comes from: a folder or an archive (SageMaker's `sourcedir.tar.gz`), on this machine
//! or in a bucket.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};

use stokehold_base::there::if_there;

use flate2::read::MultiGzDecoder;
use stokehold_objects::{Cause, Object, ObjectError};

use crate::data::open::{ask, open, wrong};
use crate::{Job, JobError};

pub(crate) use stokehold_base::uri::remote;

pub(crate) fn is_archive(source: &Path) -> bool {
    source
        .to_str()
        .is_some_and(|text| [".tar.gz", ".tgz"].iter().any(|end| text.ends_with(end)))
}

/// Brings the code to a folder on this machine: the source folder itself, or one below the job's folder.
pub(crate) fn bring(job: &Job, source: &Path, folder: &Path, stop: &AtomicBool) -> Result<PathBuf, JobError> {
    if remote(source).is_none() && !is_archive(source) {
        return Ok(source.to_owned());
    }
    let (code, fetched) = (folder.join("source"), folder.join("fetched"));
    // The code of an earlier run may be outdated.
    for path in [&code, &fetched] {
        if_there(fs::remove_dir_all(path)).map_err(JobError::io(path))?;
    }
    match remote(source) {
        Some(uri) if is_archive(source) => {
            let archive = fetch_archive(job, uri, &fetched, stop).map_err(JobError::Source)?;
            unpack(&archive, uri, &code)?;
            fs::remove_dir_all(&fetched).map_err(JobError::io(&fetched))?;
        }
        Some(uri) => fetch_folder(job, uri, &code, stop).map_err(JobError::Source)?,
        None => unpack(source, &source.display().to_string(), &code)?,
    }
    Ok(code)
}

fn fetch_folder(job: &Job, uri: &str, into: &Path, stop: &AtomicBool) -> Result<(), ObjectError> {
    let bucket = open(job, uri)?;
    let listing = bucket.clone();
    let objects = ask(uri, stop, move || listing.list())?.objects;
    if objects.is_empty() {
        return Err(wrong(uri, Cause::NotFound, "there are no objects below it"));
    }
    bucket.copy(&objects, into, &AtomicU64::new(0), stop).map(drop)
}

fn fetch_archive(job: &Job, uri: &str, into: &Path, stop: &AtomicBool) -> Result<PathBuf, ObjectError> {
    let (parent, name) = uri.rsplit_once('/').unwrap_or((".", uri));
    let bucket = open(job, parent)?;
    let (asked, key) = (bucket.clone(), name.to_owned());
    let size = ask(uri, stop, move || asked.size(&key))?;
    let object = Object {
        key: name.to_owned(),
        size,
        etag: None,
        modified: 0,
    };
    bucket.copy(&[object], into, &AtomicU64::new(0), stop)?;
    Ok(into.join(name))
}

/// Unpacks an archive. Entries that lead out of the folder are skipped.
fn unpack(archive: &Path, named: &str, into: &Path) -> Result<(), JobError> {
    let file = File::open(archive).map_err(JobError::io(archive))?;
    let unpacked =
        fs::create_dir_all(into).and_then(|()| tar::Archive::new(MultiGzDecoder::new(file)).unpack(into));
    unpacked.map_err(|error| {
        // The innermost error is the cause, the outer ones say where.
        let mut cause: &dyn std::error::Error = &error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        JobError::Input(format!(
            "source-dir: {named} cannot be unpacked: {error}: {cause}"
        ))
    })
}
