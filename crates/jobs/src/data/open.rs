//! Opens the places that a job names, and says what is wrong with them.

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
    let settings = job
        .environment
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()));
    Bucket::with_options(
        uri,
        Options {
            settings: settings.collect(),
            ..Options::default()
        },
    )
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
