//! Objects that are written piece by piece.

use std::mem;

use object_store::{ObjectStoreExt, WriteMultipart};

use crate::runtime::{block_on, spawn};
use crate::{Bucket, ObjectError};

/// Objects above this are written in parts of at least this size.
const PART: u64 = 16 << 20;

/// S3 takes at most 10,000 parts.
const MOST_PARTS: u64 = 9_000;

/// Parts of one object that are on their way at once; one more is being filled.
const AT_ONCE: usize = 4;

/// An object on its way up: it appears whole with [`finish`](Self::finish), or not at all.
///
/// At most five parts are in memory: 80 MiB, and more only above 140 GiB. Dropping it gives the upload up.
pub struct Upload {
    bucket: Bucket,
    key: String,
    part: u64,
    /// Everything, as long as it is not more than a part.
    small: Vec<u8>,
    large: Option<WriteMultipart>,
}

impl Bucket {
    /// Begins to write an object that will have about `size` bytes. Nothing is sent before more than a part has come.
    ///
    /// # Errors
    /// A key that cannot be.
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
    /// What the server reports.
    pub fn put(&self, key: &str, bytes: impl Into<bytes::Bytes>) -> Result<(), ObjectError> {
        let bytes = bytes.into();
        let mut upload = self.upload(key, bytes.len() as u64)?;
        upload.write(&bytes)?;
        upload.finish()
    }
}

impl Upload {
    /// Adds bytes; waits while too many are on their way.
    ///
    /// # Errors
    /// What the server reports, of these bytes or of earlier ones. The object will not appear.
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
    /// What the server reports. The object has not appeared.
    pub fn finish(mut self) -> Result<(), ObjectError> {
        let (inner, small) = (&self.bucket.inner, mem::take(&mut self.small));
        let large = self.large.take();
        block_on(async {
            let finished = match large {
                Some(large) => large.finish().await,
                None => {
                    let _permit = inner.permit().await;
                    inner.store.put(&inner.path(&self.key)?, small.into()).await
                }
            };
            finished.map(drop).map_err(|error| inner.error(&self.key, &error))
        })?
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if let Some(large) = self.large.take() {
            // What cannot be removed now is for the bucket's own rule about parts that were left.
            let _ = spawn(large.abort());
        }
    }
}
