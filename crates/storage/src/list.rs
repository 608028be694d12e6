//! Files and objects that the caller names one by one, each with its class.

use std::path::Path;
use std::sync::Arc;

use crate::bucket::Objects;
use crate::folder::{read_ahead, read_file, version_of_file};
use crate::{SampleBytes, Source, StorageError};

/// A list of image files and their classes, in the order in which they were added. A path with a scheme, such as
/// `s3://bucket/a.jpg`, is an object in a bucket.
///
/// All paths lie one after the other in one piece of memory, so a sample costs its path and 12 bytes: ten million paths
/// of 50 bytes are 620 MB.
///
/// ```
/// use stokehold_storage::{ImageList, Source};
/// let mut list = ImageList::default();
/// list.push("a.jpg", 0);
/// list.push("b.jpg", 7);
/// assert_eq!((list.len(), list.class(1), list.name(1).as_str()), (2, 7, "b.jpg"));
/// ```
#[derive(Clone, Default)]
pub struct ImageList {
    paths: Vec<u8>,
    /// Where each path ends in `paths`.
    ends: Vec<u64>,
    classes: Vec<u32>,
    /// Whether there are objects in it.
    remote: bool,
    objects: Arc<Objects>,
}

impl std::fmt::Debug for ImageList {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ImageList({} samples)", self.len())
    }
}

/// The URI that a path is, if it is one.
fn as_uri(path: &Path) -> Option<&str> {
    path.to_str().filter(|text| text.contains("://"))
}

impl ImageList {
    /// Adds a file. Whether it is there shows when it is read.
    pub fn push(&mut self, path: impl AsRef<Path>, class: u32) {
        self.paths
            .extend_from_slice(path.as_ref().as_os_str().as_encoded_bytes());
        self.ends.push(self.paths.len() as u64);
        self.classes.push(class);
        self.remote |= as_uri(path.as_ref()).is_some();
    }

    fn path(&self, sample: usize) -> &Path {
        let start = sample.checked_sub(1).map_or(0, |before| self.ends[before]);
        as_path(&self.paths[start as usize..self.ends[sample] as usize])
    }
}

#[cfg(unix)]
fn as_path(bytes: &[u8]) -> &Path {
    use std::os::unix::ffi::OsStrExt;
    Path::new(std::ffi::OsStr::from_bytes(bytes))
}

/// A path that is not Unicode counts as missing: the file is not found.
#[cfg(not(unix))]
fn as_path(bytes: &[u8]) -> &Path {
    Path::new(std::str::from_utf8(bytes).unwrap_or_default())
}

impl Source for ImageList {
    fn len(&self) -> usize {
        self.classes.len()
    }

    fn class(&self, sample: usize) -> u32 {
        self.classes[sample]
    }

    fn name(&self, sample: usize) -> String {
        self.path(sample).display().to_string()
    }

    fn read(&self, sample: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        if sample >= self.len() {
            let len = self.len();
            return Err(StorageError::NoSuchSample { sample, len });
        }
        let path = self.path(sample);
        match as_uri(path) {
            Some(uri) => self.objects.read(uri, into.refill()),
            None => read_file(path, into.refill()),
        }
    }

    fn expect(&self, sample: usize) {
        if sample >= self.len() {
            return;
        }
        let path = self.path(sample);
        match as_uri(path) {
            Some(uri) => self.objects.expect(uri),
            None => read_ahead(path),
        }
    }

    /// Objects have none here: they are not listed, so nothing is known of them before they are read.
    fn version(&self, sample: usize, into: &mut Vec<u8>) -> bool {
        if sample >= self.len() {
            return false;
        }
        let path = self.path(sample);
        as_uri(path).is_none() && version_of_file(path, into)
    }

    fn reach(&self) -> usize {
        if self.remote { Objects::REACH } else { 0 }
    }
}
