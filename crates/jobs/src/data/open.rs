//! Opens the places that a job names, and says what is wrong with them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use stokehold_objects::{Bucket, Cause, Location, ObjectError, Options, Scheme};

use crate::Job;

/// An error about a place or an object.
pub(crate) fn wrong(uri: &str, cause: Cause, reason: impl Into<String>) -> ObjectError {
    ObjectError {
        uri: uri.to_owned(),
        cause,
        reason: reason.into(),
    }
}

/// Opens a place with the job's variables.
pub(crate) fn open(job: &Job, uri: &str) -> Result<Bucket, ObjectError> {
    open_with(job, uri, Options::default().retry)
}

/// The same, with another time for which a request is retried.
pub(crate) fn open_with(job: &Job, uri: &str, retry: Duration) -> Result<Bucket, ObjectError> {
    let options = Options {
        settings: job.environment.clone().into_iter().collect(),
        retry,
        ..Options::default()
    };
    Bucket::with_options(uri, options)
}

/// Asks a place for something, until `stop` is set: a place that does not answer would be waited for up to a minute.
/// The request then ends by itself, and no one gets its answer.
///
/// # Errors
/// Those of the request; it was stopped.
pub(crate) fn ask<T: Send + 'static>(
    uri: &str,
    stop: &AtomicBool,
    request: impl FnOnce() -> Result<T, ObjectError> + Send + 'static,
) -> Result<T, ObjectError> {
    let (give, take) = mpsc::channel();
    let asking = thread::spawn(move || drop(give.send(request())));
    loop {
        match take.recv_timeout(Duration::from_millis(50)) {
            Ok(answer) => return answer,
            Err(RecvTimeoutError::Timeout) if stop.load(Ordering::SeqCst) => {
                return Err(wrong(uri, Cause::Other, "the job was stopped"));
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    // It ends without an answer only by a panic.
    match asking.join() {
        Err(panic) => std::panic::resume_unwind(panic),
        Ok(()) => Err(wrong(uri, Cause::Other, "there was no answer")),
    }
}

/// Refuses a URI with another scheme than its manifest's: a writer of a bucket may choose objects of buckets,
/// but not files of this machine or addresses that only this machine can reach.
pub(crate) fn check_scheme(manifest: &str, named: &str) -> Result<(), String> {
    let scheme = |uri: &str| Location::parse(uri).map(|location| location.scheme);
    let (from, to) = (scheme(manifest), scheme(named));
    match (from, to) {
        // A manifest on this machine is the user's own.
        (Ok(Scheme::Local), _) => Ok(()),
        (Ok(from), Ok(to)) if from == to => Ok(()),
        (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
        _ => Err(format!(
            "it names {named:?}, another kind of place than its own; copy the data, or the manifest to this machine"
        )),
    }
}
