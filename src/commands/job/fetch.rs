//! `stokehold job fetch`: the model of a job, unpacked into a folder.

use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use stokehold_base::words::plural;
use stokehold_jobs::{Store, unpack};
use stokehold_objects::{Bucket, Object, Options};
use stokehold_sagemaker::Client;

use crate::failure::Usage;
use crate::{elsewhere, files, interrupt, progress, terminal};

/// Unpacks the model of a job of this machine.
pub fn of_store(store: &Store, name: &str, into: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let record = store.get(name)?;
    let archive = store.path(name).join("output/model.tar.gz");
    if !archive.is_file() {
        let reason = match record.status.is_final() {
            true => "its script left nothing in SM_MODEL_DIR".to_owned(),
            false => format!("it is {:?}, and its model is packed at its end", record.secondary),
        };
        return Err(Usage(format!("job {name} has no model: {reason}")).into());
    }
    free(into)?;
    let stop = interrupt::flag_for("stopping; nothing is unpacked")?;
    unpacked(&archive, into, stop)
}

/// Downloads and unpacks the model of a job of SageMaker.
pub fn of_sagemaker(client: &Client, name: &str, into: &Path) -> Result<ExitCode, Box<dyn Error>> {
    let job = client.describe(name)?;
    if !job.training_job_status.is_final() {
        return Err(Usage(format!(
            "job {name} is {}, and its model is there at its end; wait for it with `stokehold job wait {name} --on sagemaker --region {}`",
            job.secondary_status,
            client.region()
        ))
        .into());
    }
    let Some(model) = job
        .model_artifacts
        .filter(|model| !model.s3_model_artifacts.is_empty())
    else {
        return Err(Usage(format!("job {name} has no model")).into());
    };
    free(into)?;
    let stop = interrupt::flag_for("stopping; nothing is unpacked")?;
    let uri = model.s3_model_artifacts;
    let (folder, key) = uri.rsplit_once('/').unwrap_or((&uri, ""));
    let bucket = Bucket::with_options(folder, Options::default().in_region(client.region()))?;
    let object = Object {
        key: key.to_owned(),
        size: bucket.size(key)?,
        etag: None,
        modified: 0,
    };
    writeln!(terminal::err(), "{uri}: {} bytes", object.size)?;
    // Next to the folder, where there has to be room for the model anyway.
    let beside = into.parent().filter(|parent| !parent.as_os_str().is_empty());
    let beside = beside.unwrap_or(Path::new("."));
    std::fs::create_dir_all(beside).map_err(|error| files::named(beside, &error))?;
    let fetched = tempfile::Builder::new()
        .prefix(".model-")
        .tempdir_in(beside)
        .map_err(|error| files::named(beside, &error))?;
    let template = "fetching the model {bar:40} {bytes}/{total_bytes} {eta}";
    if let Err(error) = elsewhere::copy(&bucket, &[object], fetched.path(), template, stop) {
        return match stop.load(Ordering::SeqCst) {
            true => Ok(ExitCode::from(interrupt::EXIT_CODE)),
            false => Err(error.into()),
        };
    }
    unpacked(&fetched.path().join(key), into, stop)
}

/// Refuses a folder that exists, before anything is downloaded.
fn free(into: &Path) -> Result<(), Usage> {
    match into.symlink_metadata() {
        Ok(_) => Err(Usage(format!(
            "{} is there already; give another folder",
            into.display()
        ))),
        Err(_) => Ok(()),
    }
}

fn unpacked(archive: &Path, into: &Path, stop: &AtomicBool) -> Result<ExitCode, Box<dyn Error>> {
    let done = AtomicU64::new(0);
    let size = archive.metadata().map(|facts| facts.len()).unwrap_or(0);
    // What it unpacks to is not known; weights hardly shrink.
    let bar = progress::bar(size, "unpacking the model {bar:40} {bytes}");
    let unpacked = progress::counted(&bar, &done, || unpack(archive, into, &done, stop));
    let unpacked = match unpacked {
        Ok(unpacked) => unpacked,
        Err(_) if stop.load(Ordering::SeqCst) => return Ok(ExitCode::from(interrupt::EXIT_CODE)),
        Err(error) => return Err(error.into()),
    };
    writeln!(
        terminal::err(),
        "{}, {} bytes",
        plural(usize::try_from(unpacked.files).unwrap_or(usize::MAX), "file"),
        unpacked.bytes
    )?;
    writeln!(terminal::out(), "{}", into.display())?;
    Ok(ExitCode::SUCCESS)
}
