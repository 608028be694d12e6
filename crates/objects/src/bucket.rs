//! An opened place.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::keys::decoded;
use crate::options::{Opening, Options};
use crate::runtime::{block_on, prepare, spawn};
use crate::secrets::Secrets;
use crate::{Cause, LeftOut, Listed, Location, Object, ObjectError, Scheme};

/// An object of this name, as an answer describes it.
pub(crate) fn described(key: String, meta: ObjectMeta) -> Object {
    Object {
        key,
        size: meta.size,
        etag: meta.e_tag,
        modified: meta.last_modified.timestamp(),
    }
}

/// A file that a folder's list refuses for its name.
fn refused(path: &str) -> Object {
    Object {
        key: path.trim_start_matches('/').to_owned(),
        size: 0,
        etag: None,
        modified: 0,
    }
}

/// A range of a listed object.
#[derive(Debug, Clone)]
pub struct Part {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The server's identifier of their version, if it has one; a list may omit it.
    pub etag: Option<String>,
}

/// The traffic of this process with remote places since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Requests for objects and ranges of objects; retries and lists are not counted.
    pub requests: u64,
    /// Bytes of objects received.
    pub bytes: u64,
}

static REQUESTS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);

/// The traffic of this process.
pub fn traffic() -> Traffic {
    Traffic {
        requests: REQUESTS.load(Ordering::Relaxed),
        bytes: BYTES.load(Ordering::Relaxed),
    }
}

/// An opened place. Clones share its connections and its limit of requests.
#[derive(Clone)]
pub struct Bucket {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub location: Location,
    pub store: Box<dyn ObjectStore>,
    /// What keys stand below.
    prefix: Path,
    /// Values that no message may contain.
    secrets: Secrets,
    /// One permit per request in flight.
    pub gate: Semaphore,
}

/// The size limit of an object that is fetched whole: a larger one is an error, so that it does not exhaust
/// the memory.
const WHOLE: u64 = 1 << 30;

impl Bucket {
    /// Opens a URI or a path with the default options; the crate's front page describes where credentials
    /// come from. Makes no request.
    ///
    /// # Errors
    /// [`Cause::BadUri`] for an invalid URI or setting, [`Cause::NotFound`] for a local folder that does not
    /// exist.
    pub fn open(uri: &str) -> Result<Self, ObjectError> {
        Self::with_options(uri, Options::default())
    }

    /// As [`open`](Self::open), with other options.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn with_options(uri: &str, options: Options) -> Result<Self, ObjectError> {
        let location = Location::parse(uri)?;
        prepare()?;
        let (store, secrets) = Opening::new(uri, &location, &options).store()?;
        let prefix = match location.scheme {
            Scheme::Local => Path::default(),
            _ => Path::parse(&location.prefix)
                .map_err(|error| ObjectError::new(uri, Cause::BadUri, error.to_string()))?,
        };
        Ok(Self {
            inner: Arc::new(Inner {
                location,
                store,
                prefix,
                secrets,
                gate: Semaphore::new(options.requests.max(1)),
            }),
        })
    }

    /// The place.
    pub fn location(&self) -> &Location {
        &self.inner.location
    }

    /// What is below the place; makes as many requests as the server's pages need.
    ///
    /// # Errors
    /// The server's error. A prefix without objects is an empty list.
    pub fn list(&self) -> Result<Listed, ObjectError> {
        use object_store::Error::InvalidPath as Refused;
        use object_store::path::Error::{BadSegment, NonUnicode};
        let inner = &self.inner;
        let place = &inner.location;
        // Lists of these servers have encoded keys, and those of a folder and of WebDAV have paths.
        let is_encoded = matches!(place.scheme, Scheme::S3 | Scheme::Google | Scheme::Azure);
        let prefix = (!inner.prefix.as_ref().is_empty()).then_some(&inner.prefix);
        // Outside of the runtime: a folder's list then continues after a file whose name is refused.
        let mut found = inner.store.list(prefix);
        let mut not_utf8 = Vec::new();
        let objects = block_on(async {
            let mut objects = Vec::new();
            while let Some(meta) = found.next().await {
                let meta = match meta {
                    Ok(meta) => meta,
                    Err(Refused {
                        source: BadSegment { path, .. },
                    }) => {
                        objects.push(refused(&path));
                        continue;
                    }
                    Err(Refused {
                        source: NonUnicode { path, .. },
                    }) => {
                        not_utf8.push(LeftOut {
                            object: refused(&path),
                            reason: "it is not UTF-8",
                        });
                        continue;
                    }
                    Err(error) => return Err(inner.error("", &error)),
                };
                let key = match is_encoded {
                    true => decoded(&meta.location),
                    false => meta.location.as_ref().to_owned(),
                };
                let below = match prefix {
                    None => Some(key.as_str()),
                    Some(prefix) => key.strip_prefix(prefix.as_ref()).and_then(|below| match below {
                        "" => Some(""),
                        below => below.strip_prefix('/'),
                    }),
                };
                if let Some(below) = below {
                    objects.push(described(below.to_owned(), meta));
                }
            }
            Ok(objects)
        })??;
        let mut listed = Listed::of(objects);
        listed.left_out.append(&mut not_utf8);
        tracing::info!(%place, objects = listed.objects.len(), left_out = listed.left_out.len(), "listed");
        Ok(listed)
    }

    /// Fetches a whole object into `into`, which drops its contents and keeps its capacity. Returns its ETag, if it has one.
    ///
    /// # Errors
    /// The server's error; an object of more than 1 GiB.
    pub fn fetch(&self, key: &str, into: &mut Vec<u8>) -> Result<Option<String>, ObjectError> {
        block_on(self.inner.get(key, None, None, into))?
    }

    /// Fills `into` with the bytes of an object from `offset` on.
    ///
    /// # Errors
    /// The server's error; an object that is shorter.
    pub fn fetch_range(&self, key: &str, offset: u64, into: &mut [u8]) -> Result<(), ObjectError> {
        let mut bytes = Vec::new();
        let range = offset..offset + into.len() as u64;
        block_on(self.inner.get(key, Some(range), None, &mut bytes))??;
        into.copy_from_slice(&bytes);
        Ok(())
    }

    /// The size of an object, bytes.
    ///
    /// # Errors
    /// The server's error.
    pub fn size(&self, key: &str) -> Result<u64, ObjectError> {
        let inner = &self.inner;
        let head = block_on(async {
            let _permit = inner.permit().await;
            inner
                .store
                .head(&inner.path(key)?)
                .await
                .map_err(|error| inner.error(key, &error))
        })??;
        Ok(head.size)
    }

    /// Fetches a range of a listed object in the background, and calls `then` with the result, on a thread
    /// that must not be blocked. Dropping the return value cancels the fetch; `then` is not called then.
    ///
    /// The bytes are of the listed version: an object that was overwritten meanwhile is an error. A version
    /// is identified by its ETag, or, if the list has none, by the time of its last change and its size.
    ///
    /// # Errors
    /// No threads for requests; everything else is reported to `then`.
    pub fn begin_of(
        &self,
        object: &Object,
        range: Range<u64>,
        then: impl FnOnce(Result<Part, ObjectError>) + Send + 'static,
    ) -> Result<Begun, ObjectError> {
        let (inner, object) = (Arc::clone(&self.inner), object.clone());
        let task = spawn(async move {
            let mut bytes = Vec::new();
            let got = inner
                .get(&object.key, Some(range), Some(&object), &mut bytes)
                .await;
            then(got.map(|etag| Part { bytes, etag }));
        })?;
        Ok(Begun { task })
    }

    /// Begins to fetch an object, or a range of it, in the background.
    ///
    /// # Errors
    /// No threads for requests; everything else is reported by [`Fetch::wait`].
    pub fn begin(&self, key: &str, range: Option<Range<u64>>) -> Result<Fetch, ObjectError> {
        let (inner, key) = (Arc::clone(&self.inner), key.to_owned());
        let uri = inner.location.uri(&key);
        let task = spawn(async move {
            let mut bytes = Vec::new();
            let got = inner.get(&key, range, None, &mut bytes).await;
            got.map(|etag| Part { bytes, etag })
        })?;
        Ok(Fetch { uri, task })
    }

    /// Removes an object; one that does not exist counts as removed.
    ///
    /// # Errors
    /// The server's error.
    pub fn delete(&self, key: &str) -> Result<(), ObjectError> {
        let inner = &self.inner;
        block_on(async {
            let _permit = inner.permit().await;
            match inner.store.delete(&inner.path(key)?).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(inner.error(key, &error)),
            }
        })?
    }
}

impl Inner {
    pub fn path(&self, key: &str) -> Result<Path, ObjectError> {
        let bad = |error: object_store::path::Error| {
            ObjectError::new(self.location.uri(key), Cause::BadUri, error.to_string())
        };
        let below = Path::parse(key).map_err(bad)?;
        Ok(self.prefix.parts().chain(below.parts()).collect())
    }

    pub fn error(&self, key: &str, error: &object_store::Error) -> ObjectError {
        ObjectError::of(self.location.uri(key), error, &self.secrets)
    }

    pub async fn permit(&self) -> Option<tokio::sync::SemaphorePermit<'_>> {
        // The gate is never closed, so there is always one in the end.
        self.gate.acquire().await.ok()
    }

    /// Counts the traffic with places that are not folders of this machine.
    pub fn count(&self, requests: u64, bytes: u64) {
        if self.location.scheme != Scheme::Local {
            REQUESTS.fetch_add(requests, Ordering::Relaxed);
            BYTES.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Asks for an object; the caller holds a permit.
    pub async fn request(&self, key: &str, range: Option<Range<u64>>) -> Result<GetResult, ObjectError> {
        let options = GetOptions {
            range: range.map(GetRange::Bounded),
            ..GetOptions::default()
        };
        let path = self.path(key)?;
        self.count(1, 0);
        self.store
            .get_opts(&path, options)
            .await
            .map_err(|error| self.error(key, &error))
    }

    /// The bytes of an object, or of a range of it; if one is expected, of that version. Returns the ETag.
    async fn get(
        &self,
        key: &str,
        range: Option<Range<u64>>,
        expected: Option<&Object>,
        into: &mut Vec<u8>,
    ) -> Result<Option<String>, ObjectError> {
        into.clear();
        if range.as_ref().is_some_and(Range::is_empty) {
            return Ok(None);
        }
        let _permit = self.permit().await;
        let wanted = range.as_ref().map(|range| range.end - range.start);
        let got = self.request(key, range).await?;
        let length = got.range.end - got.range.start;
        let wrong = |cause, reason: String| Err(ObjectError::new(self.location.uri(key), cause, reason));
        if expected.is_some_and(|object| !object.is_version_of(&described(key.to_owned(), got.meta.clone())))
        {
            return wrong(
                Cause::Changed,
                "it was written anew since it was listed".to_owned(),
            );
        }
        let etag = got.meta.e_tag.clone();
        if wanted.is_some_and(|wanted| wanted != length) {
            return wrong(
                Cause::Changed,
                format!("it has {} bytes, fewer than were asked for", got.meta.size),
            );
        }
        if wanted.is_none() && length > WHOLE {
            return wrong(
                Cause::Other,
                format!("{length} bytes are more than the {WHOLE} that are fetched whole"),
            );
        }
        into.reserve(length as usize);
        let mut chunks = got.into_stream();
        while let Some(chunk) = chunks.try_next().await.map_err(|error| self.error(key, &error))? {
            into.extend_from_slice(&chunk);
        }
        self.count(0, into.len() as u64);
        match into.len() as u64 == length {
            true => Ok(etag),
            false => wrong(
                Cause::Unreachable,
                format!("only {} of {length} bytes came", into.len()),
            ),
        }
    }
}

impl fmt::Debug for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bucket({})", self.inner.location)
    }
}

/// A fetch in progress. Dropping it cancels the fetch.
#[derive(Debug)]
pub struct Fetch {
    uri: String,
    task: JoinHandle<Result<Part, ObjectError>>,
}

impl Fetch {
    /// Waits for the bytes: until they are there, or all retries and deadlines have passed.
    ///
    /// # Errors
    /// As [`Bucket::fetch`].
    pub fn wait(self) -> Result<Vec<u8>, ObjectError> {
        self.wait_for_part().map(|part| part.bytes)
    }

    /// As [`Fetch::wait`], with the version of the bytes.
    ///
    /// # Errors
    /// As there.
    pub fn wait_for_part(mut self) -> Result<Part, ObjectError> {
        let ended = block_on(&mut self.task)?;
        ended.unwrap_or_else(|error| Err(ObjectError::new(&self.uri, Cause::Other, error.to_string())))
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A fetch with a callback. Dropping it cancels the fetch.
#[derive(Debug)]
pub struct Begun {
    task: JoinHandle<()>,
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.task.abort();
    }
}
