//! Uploads objects in parts.

use std::mem;

use object_store::{ObjectStoreExt, PutResult, WriteMultipart};

use crate::runtime::{block_on, spawn};
use crate::{Bucket, ObjectError, Version};

/// Objects above this are written in parts of at least this size.
const PART: u64 = 16 << 20;

/// S3 takes at most 10,000 parts.
const MOST_PARTS: u64 = 9_000;

/// The number of parts of one object in flight; one more is being filled.
const AT_ONCE: usize = 4;

/// An upload in progress. The object appears whole with [`finish`](Self::finish), or not at all.
///
/// At most five parts are in memory: 80 MiB, and more only above 140 GiB. Dropping it cancels the upload.
pub struct Upload {
    bucket: Bucket,
    key: String,
    part: u64,
    /// All bytes so far, as long as they fit into one part.
    small: Vec<u8>,
    large: Option<WriteMultipart>,
}

impl Bucket {
    /// Starts the upload of an object of about `size` bytes. Sends nothing until there is more than one part.
    ///
    /// # Errors
    /// The key is invalid.
    pub fn upload(&self, key: &str, size: u64) -> Result<Upload, ObjectError> {
        self.inner.path(key)?;
        Ok(Upload {
            bucket: self.clone(),
            key: key.to_owned(),
            part: PART.max(size / MOST_PARTS),
            small: Vec::new(),
            large: None,
        })
    }

    /// Writes an object, in parts where it is large; it appears whole or not at all.
    ///
    /// # Errors
    /// The server's error.
    pub fn put(&self, key: &str, bytes: impl Into<bytes::Bytes>) -> Result<(), ObjectError> {
        let bytes = bytes.into();
        let mut upload = self.upload(key, bytes.len() as u64)?;
        upload.write(&bytes)?;
        upload.finish()
    }
}

impl Upload {
    /// Adds bytes. Waits while too many parts are in flight.
    ///
    /// # Errors
    /// The server's error, for these bytes or for earlier ones. The object will not appear.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), ObjectError> {
        let (inner, part) = (&self.bucket.inner, self.part as usize);
        if self.large.is_none() && self.small.len() + bytes.len() <= part {
            self.small.extend_from_slice(bytes);
            return Ok(());
        }
        let (small, large) = (mem::take(&mut self.small), &mut self.large);
        let sent = block_on(async {
            let large = match large {
                Some(large) => large,
                None => {
                    let _permit = inner.permit().await;
                    let begun = inner.store.put_multipart(&inner.path(&self.key)?).await;
                    let begun = begun.map_err(|error| inner.error(&self.key, &error))?;
                    large.insert(WriteMultipart::new_with_chunk_size(begun, part))
                }
            };
            for piece in small.chunks(part).chain(bytes.chunks(part)) {
                let waited = large.wait_for_capacity(AT_ONCE).await;
                waited.map_err(|error| inner.error(&self.key, &error))?;
                large.write(piece);
            }
            Ok(())
        });
        sent?
    }

    /// Makes the object appear.
    ///
    /// # Errors
    /// The server's error. The object has not appeared.
    pub fn finish(mut self) -> Result<(), ObjectError> {
        if self.large.is_some() {
            return self.complete().map(drop);
        }
        let (inner, small) = (&self.bucket.inner, mem::take(&mut self.small));
        block_on(async {
            let _permit = inner.permit().await;
            let put = inner.store.put(&inner.path(&self.key)?, small.into()).await;
            put.map(drop).map_err(|error| inner.error(&self.key, &error))
        })?
    }

    /// Makes the object appear if the one that is there still has the version `expected` or, with `None`, if there
    /// is none. Returns its version; `None` if another writer was faster, and then it has not appeared.
    ///
    /// An object of one part is compared and written by the server at once, as by [`Bucket::put_if`]. Of an object
    /// of several parts (more than 16 MiB), the version is asked for right before: a writer that comes between the
    /// two requests is overwritten.
    ///
    /// # Errors
    /// The server's error. The object has not appeared.
    pub fn finish_if(mut self, expected: Option<&Version>) -> Result<Option<Version>, ObjectError> {
        if self.large.is_none() {
            return self
                .bucket
                .put_if(&self.key, mem::take(&mut self.small), expected);
        }
        let found = self.bucket.look_up(&self.key)?;
        if found.as_ref().map(|(_, version)| version) != expected {
            return Ok(None);
        }
        let put = self.complete()?;
        Ok(put.map(|put| Version(put.into())))
    }

    /// Completes an object of several parts.
    fn complete(&mut self) -> Result<Option<PutResult>, ObjectError> {
        let Some(large) = self.large.take() else {
            return Ok(None);
        };
        let inner = &self.bucket.inner;
        let finished = block_on(large.finish())?;
        finished.map(Some).map_err(|error| inner.error(&self.key, &error))
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(large) = self.large.take() {
            // Parts that cannot be removed now are left to the bucket's own lifecycle rule.
            let _ = spawn(large.abort());
        }
    }
}
