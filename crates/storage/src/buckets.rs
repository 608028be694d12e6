//! What storage asks of buckets. The crate that implements it tells [`open_buckets_with`] once, so this crate has no HTTP client, no TLS and
//! no C code; `stokehold_objects::register` does.

use std::fmt;
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

/// What is below a place.
///
/// A key is any text, and a file is not: a caller that reads objects as files takes [`objects`](Self::objects).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Listed {
    /// The objects that can be files, sorted by the bytes of their keys. None lies below another.
    pub objects: Vec<Object>,
    /// Empty objects that stand for folders: consoles and mounted buckets make them.
    pub markers: Vec<Object>,
    /// All others.
    pub left_out: Vec<LeftOut>,
}

/// An object that cannot be a file. Its `Display` is a sentence with its key and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// The object.
    pub object: Object,
    /// Why it cannot be a file.
    pub reason: &'static str,
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is left out: {}", self.object.key, self.reason)
    }
}

impl LeftOut {
    /// The reason of an object that has the name of a folder which others lie below.
    pub const FOLDER: &str = "other objects lie below a folder of its name";

    /// The most that are told of one place.
    const TOLD: usize = 10;

    /// A sentence for each of the first few of a place, with its URI, and one for the number of the others.
    pub fn told(all: &[Self], place: &str) -> Vec<String> {
        let sentence = |left: &Self| {
            let uri = format!("{}/{}", place.trim_end_matches('/'), left.object.key);
            format!("{uri:?} is left out: {}", left.reason)
        };
        let mut told: Vec<String> = all.iter().take(Self::TOLD).map(sentence).collect();
        if all.len() > Self::TOLD {
            told.push(format!("{place}: {} more are left out", all.len() - Self::TOLD));
        }
        told
    }
}

impl Listed {
    /// Sorts what a server listed into files, folders and the rest.
    pub fn of(mut all: Vec<Object>) -> Self {
        all.sort_by(|a, b| a.key.cmp(&b.key));
        let mut listed = Self::default();
        for object in all {
            match no_file(&object.key) {
                _ if object.size == 0 && (object.key.is_empty() || object.key.ends_with('/')) => {
                    listed.markers.push(object);
                }
                Some(reason) => listed.left_out.push(LeftOut { object, reason }),
                None => listed.objects.push(object),
            }
        }
        let is_folder: Vec<bool> = listed.objects.iter().map(|file| listed.is_folder(file)).collect();
        let mut is_folder = is_folder.into_iter();
        let folders = listed.objects.extract_if(.., |_| is_folder.next() == Some(true));
        for object in folders.collect::<Vec<_>>() {
            match object.size {
                0 => listed.markers.push(object),
                _ => listed.left_out.push(LeftOut {
                    object,
                    reason: LeftOut::FOLDER,
                }),
            }
        }
        listed
    }

    /// Whether other objects lie below a folder of an object's name, or mark one in place of an empty object.
    fn is_folder(&self, object: &Object) -> bool {
        let folder = format!("{}/", object.key);
        let has_below = |among: &[Object]| {
            let first = among.partition_point(|object| object.key < folder);
            among
                .get(first)
                .is_some_and(|object| object.key.starts_with(&folder))
        };
        has_below(&self.objects) || (object.size == 0 && has_below(&self.markers))
    }
}

/// Why no file can have a key as its path, if so.
fn no_file(key: &str) -> Option<&'static str> {
    /// The bytes of a name in the file systems of Linux.
    const LONGEST: usize = 255;
    let of_name = |name: &str| match name {
        "" => Some("one of its folders has no name"),
        "." | ".." => Some("one of its folders is called . or .."),
        name if name.len() > LONGEST => Some("a name in it has more than 255 bytes"),
        _ => None,
    };
    match key {
        key if key.chars().any(|letter| letter.is_ascii_control()) => Some("it has a control character"),
        key if key.is_empty() || key.ends_with('/') => Some("it has the name of a folder, and is not empty"),
        key => key.split('/').find_map(of_name),
    }
}

/// An opened prefix of a bucket, with the objects below it.
pub trait BucketPrefix: Send + Sync {
    /// Its URI.
    fn uri(&self) -> String;

    /// Everything below the prefix.
    ///
    /// # Errors
    /// The server's error.
    fn list(&self) -> Result<Listed, StorageError>;

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

/// A fetch in progress. Its call waits for the bytes, as [`BucketPrefix::fetch`] does; dropping it cancels the fetch.
pub type Fetch = Box<dyn FnOnce(&mut Vec<u8>) -> Result<Option<String>, StorageError> + Send>;

/// Opens prefixes of buckets.
pub trait Buckets: Send + Sync {
    /// Opens the prefix that a URI names.
    ///
    /// # Errors
    /// The URI or a setting is wrong.
    fn open(&self, uri: &str) -> Result<Box<dyn BucketPrefix>, StorageError>;

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
