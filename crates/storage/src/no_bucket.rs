//! What stands in the place of buckets where the feature `buckets` is off: nothing can be in one.

use std::convert::Infallible;
use std::path::Path;

use crate::shard::{Manifest, ShardFolder};
use crate::{ImageFolder, Images, SampleBytes, Source, StorageError};

/// A place in a bucket, of which there is none.
pub(crate) struct Remote(Infallible);

impl Remote {
    /// Nothing, or an error where `path` names a place elsewhere.
    pub fn of(path: &Path) -> Result<Option<Self>, StorageError> {
        match stokehold_base::uri::remote(path) {
            Some(uri) => Err(StorageError::NoBuckets { uri: uri.to_owned() }),
            None => Ok(None),
        }
    }

    pub fn uri(&self) -> &Path {
        match self.0 {}
    }

    pub fn has(&self, _: &str) -> bool {
        match self.0 {}
    }

    pub fn has_file(&self, _: &str) -> bool {
        match self.0 {}
    }

    pub fn manifest(&self) -> Result<Option<Manifest>, StorageError> {
        match self.0 {}
    }

    pub fn shards(&self, _: &str, _: &Manifest) -> Result<ShardFolder, StorageError> {
        match self.0 {}
    }

    pub fn unlabelled(&self) -> Result<Images, StorageError> {
        match self.0 {}
    }

    pub fn folder(&self, _: &str) -> Result<BucketFolder, StorageError> {
        match self.0 {}
    }
}

/// Objects of buckets, which cannot be read.
#[derive(Default)]
pub(crate) struct Objects;

impl Objects {
    /// Nothing is read in advance.
    pub const REACH: usize = 0;

    pub fn read(&self, uri: &str, _: &mut Vec<u8>) -> Result<(), StorageError> {
        Err(StorageError::NoBuckets { uri: uri.to_owned() })
    }

    pub fn expect(&self, _: &str) {}
}

/// A folder in a bucket, of which there is none without the feature `buckets`.
#[derive(Debug, Clone)]
pub struct BucketFolder(Infallible);

impl BucketFolder {
    pub(crate) fn names(&self) -> &ImageFolder {
        match self.0 {}
    }

    pub(crate) fn into_names(self) -> ImageFolder {
        match self.0 {}
    }

    pub(crate) fn names_mut(&mut self) -> &mut ImageFolder {
        match self.0 {}
    }

    pub(crate) fn with_names(&self, _: ImageFolder) -> Self {
        match self.0 {}
    }

    pub(crate) fn size(&self, _: usize) -> Option<u64> {
        match self.0 {}
    }
}

impl Source for BucketFolder {
    fn len(&self) -> usize {
        match self.0 {}
    }

    fn class(&self, _: usize) -> u32 {
        match self.0 {}
    }

    fn name(&self, _: usize) -> String {
        match self.0 {}
    }

    fn read(&self, _: usize, _: &mut SampleBytes) -> Result<(), StorageError> {
        match self.0 {}
    }
}
