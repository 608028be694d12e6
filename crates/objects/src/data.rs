//! Data sets in buckets: what `stokehold-storage` asks, answered.

use std::ops::Range;

use stokehold_storage::{Buckets, Fetch, Place, StorageError, open_buckets_with};

use crate::{Bucket, Location, Object, ObjectError};

/// Lets everything of this process that opens data sets, images or lists of `stokehold-storage` open those in buckets, too.
pub fn register() {
    open_buckets_with(&Opener);
}

struct Opener;

impl Buckets for Opener {
    fn open(&self, uri: &str) -> Result<Box<dyn Place>, StorageError> {
        Ok(Box::new(Bucket::open(uri)?))
    }

    fn split(&self, uri: &str) -> Result<(String, String), StorageError> {
        let object = Location::parse(uri)?;
        let bucket = Location {
            prefix: String::new(),
            ..object.clone()
        };
        Ok((bucket.to_string(), object.prefix))
    }
}

impl Place for Bucket {
    fn uri(&self) -> String {
        self.location().to_string()
    }

    fn list(&self) -> Result<Vec<Object>, StorageError> {
        Ok(Self::list(self)?)
    }

    fn fetch(
        &self,
        key: &str,
        range: Option<Range<u64>>,
        into: &mut Vec<u8>,
    ) -> Result<Option<String>, StorageError> {
        let Some(range) = range else {
            return Ok(Self::fetch(self, key, into)?);
        };
        into.resize((range.end - range.start) as usize, 0);
        self.fetch_range(key, range.start, into)?;
        Ok(None)
    }

    fn begin(&self, key: &str, range: Option<Range<u64>>) -> Result<Fetch, StorageError> {
        let fetch = Self::begin(self, key, range)?;
        Ok(Box::new(|into| {
            let part = fetch.wait_for_part()?;
            *into = part.bytes;
            Ok(part.etag)
        }))
    }
}

impl From<ObjectError> for StorageError {
    fn from(error: ObjectError) -> Self {
        Self::Object {
            uri: error.uri.clone(),
            error: Box::new(error),
        }
    }
}
