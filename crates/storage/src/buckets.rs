//! What storage asks of buckets. Whoever implements it tells [`open_buckets_with`] once, so this crate has no HTTP client, no TLS and
//! no C code; `stokehold_objects::register` does.

use std::ops::Range;
use std::sync::OnceLock;

use crate::StorageError;

/// An object of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its name below the place.
    pub key: String,
    /// Its size in bytes.
    pub size: u64,
    /// The server's identifier of this version, if it has one.
    pub etag: Option<String>,
    /// When it was last changed, unix seconds.
    pub modified: i64,
}

impl Object {
    /// Whether another answer about an object of this name is of the same version: by the ETags, or, if one has
    /// none, by the times of the last change, which servers give in seconds; and by the sizes.
    pub fn is_version_of(&self, other: &Self) -> bool {
        self.is_same(other.size, other.etag.as_deref(), other.modified)
    }

    /// Whether an answer of this size and with this ETag is of this version; without an ETag the size decides.
    pub fn is_of(&self, size: u64, etag: Option<&str>) -> bool {
        self.is_same(size, etag, self.modified)
    }

    fn is_same(&self, size: u64, etag: Option<&str>, modified: i64) -> bool {
        // Azure's lists leave out the quotes that its answers have.
        let bare = |etag: &str| etag.trim_start_matches("W/").trim_matches('"').to_owned();
        let same = match (self.etag.as_deref(), etag) {
            (Some(listed), Some(now)) => bare(listed) == bare(now),
            _ => self.modified == modified,
        };
        same && self.size == size
    }
}

/// An opened place in a bucket.
pub trait Place: Send + Sync {
    /// Its URI.
    fn uri(&self) -> String;

    /// Every object below the place, sorted by the bytes of its key.
    ///
    /// # Errors
    /// The server's error.
    fn list(&self) -> Result<Vec<Object>, StorageError>;

    /// Fetches an object, or a range of it, into `into`, which drops its contents. Returns the ETag of a whole object, if it
    /// has one.
    ///
    /// # Errors
    /// The server's error; an object that ends before the range does.
    fn fetch(
        &self,
        key: &str,
        range: Option<Range<u64>>,
        into: &mut Vec<u8>,
    ) -> Result<Option<String>, StorageError>;

    /// Begins to fetch an object, or a range of it, in the background.
    ///
    /// # Errors
    /// It cannot be begun; everything else is reported by the [`Fetch`].
    fn begin(&self, key: &str, range: Option<Range<u64>>) -> Result<Fetch, StorageError>;
}

/// A fetch in progress. Its call waits for the bytes, as [`Place::fetch`] does; dropping it cancels the fetch.
pub type Fetch = Box<dyn FnOnce(&mut Vec<u8>) -> Result<Option<String>, StorageError> + Send>;

/// Opens places in buckets.
pub trait Buckets: Send + Sync {
    /// Opens the place that a URI names.
    ///
    /// # Errors
    /// The URI or a setting is wrong.
    fn open(&self, uri: &str) -> Result<Box<dyn Place>, StorageError>;

    /// Divides an object's URI into that of its bucket and its key there.
    ///
    /// # Errors
    /// The URI is wrong.
    fn split(&self, uri: &str) -> Result<(String, String), StorageError>;
}

static BUCKETS: OnceLock<&'static dyn Buckets> = OnceLock::new();

/// Says what opens the URIs that this process is given: `s3://bucket/prefix` and the like. The first call counts.
pub fn open_buckets_with(buckets: &'static dyn Buckets) {
    BUCKETS.get_or_init(|| buckets);
}

/// What opens this URI.
pub(crate) fn buckets(uri: &str) -> Result<&'static dyn Buckets, StorageError> {
    let missing = || StorageError::NoBuckets { uri: uri.to_owned() };
    BUCKETS.get().copied().ok_or_else(missing)
}
