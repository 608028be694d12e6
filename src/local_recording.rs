//! Recordings on this machine; those in buckets are of the feature `full`.

use std::error::Error;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use stokehold_base::uri;
use stokehold_profile::Recording;
use stokehold_storage::StorageError;

/// Opens the recording that an argument names.
///
/// # Errors
/// There is no recording; the argument names a place in a bucket.
pub fn recording(run: &Path, _: &AtomicBool) -> Result<Recording, Box<dyn Error>> {
    match uri::remote(run) {
        Some(uri) => Err(StorageError::NoBuckets { uri: uri.to_owned() }.into()),
        None => Ok(Recording::open(run)?),
    }
}
