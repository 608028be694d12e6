//! Objects with several possible writers: a writer reads an object with its version, or asks for its version,
//! and overwrites only that version.

use futures_util::TryStreamExt;
use object_store::{ObjectStoreExt, PutMode, PutOptions, UpdateVersion};

use crate::bucket::described;
use crate::runtime::block_on;
use crate::{Bucket, Cause, Object, ObjectError, Scheme};

/// The version of an object's contents; it changes with every write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version(pub(crate) UpdateVersion);

impl Version {
    /// The ETag, if the server has one.
    pub fn etag(&self) -> Option<&str> {
        self.0.e_tag.as_deref()
    }
}

/// The size limit of an object that is read with its version; a larger one is an error.
const MOST: u64 = 1 << 20;

impl Bucket {
    /// An object as it is now, and its version; `None` if it does not exist.
    ///
    /// # Errors
    /// The server's error.
    pub fn look_up(&self, key: &str) -> Result<Option<(Object, Version)>, ObjectError> {
        let inner = &self.inner;
        block_on(async {
            let _permit = inner.permit().await;
            match inner.store.head(&inner.path(key)?).await {
                Ok(found) => {
                    let version = Version(UpdateVersion {
                        e_tag: found.e_tag.clone(),
                        version: found.version.clone(),
                    });
                    Ok(Some((described(key.to_owned(), found), version)))
                }
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(inner.error(key, &error)),
            }
        })?
    }

    /// A small object and its version; `None` if it does not exist.
    ///
    /// # Errors
    /// The server's error; an object of more than 1 MiB.
    pub fn read_version(&self, key: &str) -> Result<Option<(Vec<u8>, Version)>, ObjectError> {
        let inner = &self.inner;
        block_on(async {
            let _permit = inner.permit().await;
            let got = match inner.store.get(&inner.path(key)?).await {
                Ok(got) => got,
                Err(object_store::Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(inner.error(key, &error)),
            };
            if got.meta.size > MOST {
                let reason = format!("{} bytes, and at most {MOST} were expected", got.meta.size);
                return Err(ObjectError::new(inner.location.uri(key), Cause::Other, reason));
            }
            let version = Version(UpdateVersion {
                e_tag: got.meta.e_tag.clone(),
                version: got.meta.version.clone(),
            });
            let chunks: Vec<_> = got
                .into_stream()
                .try_collect()
                .await
                .map_err(|error| inner.error(key, &error))?;
            Ok(Some((chunks.concat(), version)))
        })?
    }

    /// Writes an object if it still has the version `expected` or, with `None`, if it does not exist. Returns
    /// its new version; `None` if another writer was faster, and then nothing is written.
    ///
    /// On a local folder, the comparison and the write are two operations: of two simultaneous writers, both
    /// may succeed. Servers do both at once.
    ///
    /// # Errors
    /// The server's error.
    pub fn put_if(
        &self,
        key: &str,
        bytes: impl Into<bytes::Bytes>,
        expected: Option<&Version>,
    ) -> Result<Option<Version>, ObjectError> {
        use object_store::Error::{AlreadyExists, Precondition};
        let (inner, bytes) = (&self.inner, bytes.into());
        block_on(async {
            let _permit = inner.permit().await;
            let path = inner.path(key)?;
            let mode = match expected {
                None => PutMode::Create,
                Some(expected) if inner.location.scheme == Scheme::Local => {
                    let found = inner.store.head(&path).await.ok();
                    if found.and_then(|found| found.e_tag) != expected.0.e_tag {
                        return Ok(None);
                    }
                    PutMode::Overwrite
                }
                Some(expected) => PutMode::Update(expected.0.clone()),
            };
            match inner
                .store
                .put_opts(&path, bytes.into(), PutOptions::from(mode))
                .await
            {
                Ok(put) => Ok(Some(Version(put.into()))),
                Err(AlreadyExists { .. } | Precondition { .. }) => Ok(None),
                Err(error) => Err(inner.error(key, &error)),
            }
        })?
    }
}
