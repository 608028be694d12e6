//! Data sets in buckets: what `stokehold-storage` asks, answered.

use std::ops::Range;
use std::sync::OnceLock;

use stokehold_storage::{BucketPrefix, Buckets, Fetch, StorageError, open_buckets_with};

use crate::{Bucket, LeftOut, Listed, Location, ObjectError};

/// Whom to tell what is left out of a place.
static TELL: OnceLock<fn(&str)> = OnceLock::new();

/// Lets everything of this process that opens data sets, images or lists of `stokehold-storage` open those in buckets, too.
///
/// `tell` gets a sentence for each of the first objects that a list leaves out, because no file can have their names. The
/// first call counts.
pub fn register(tell: fn(&str)) {
    TELL.get_or_init(|| tell);
    open_buckets_with(&Opener);
}

struct Opener;

impl Buckets for Opener {
    fn open(&self, uri: &str) -> Result<Box<dyn BucketPrefix>, StorageError> {
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

impl BucketPrefix for Bucket {
    fn uri(&self) -> String {
        self.location().to_string()
    }

    fn list(&self) -> Result<Listed, StorageError> {
        let listed = Self::list(self)?;
        if let Some(tell) = TELL.get() {
            let told = LeftOut::told(&listed.left_out, &self.location().to_string());
            told.iter().for_each(|text| tell(text));
        }
        Ok(listed)
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

#[cfg(test)]
mod tests {
    use stokehold_base::fault::Fault;
    use stokehold_storage::{Dataset, ImageList, SampleBytes, Source};

    use super::*;

    #[test]
    fn a_process_that_registers_buckets_opens_uris() {
        register(|_| {});
        let error = Dataset::open("ftp://host/set", None, 7).unwrap_err();
        assert!(error.to_string().contains("ftp:// is not known"), "{error}");
        assert!(
            error.is_input() && !error.reason().contains("ftp://host"),
            "{}",
            error.reason()
        );
        let mut list = ImageList::default();
        list.push("ftp://host/1.jpg", 0);
        let error = list.read(0, &mut SampleBytes::new()).unwrap_err();
        assert!(error.to_string().contains("ftp:// is not known"), "{error}");
    }
}
