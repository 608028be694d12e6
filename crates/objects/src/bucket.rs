//! An opened place.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientConfigKey, ClientOptions, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore,
    ObjectStoreExt, RetryConfig,
};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::aws::{Surroundings, profile};
use crate::runtime::{block_on, prepare, spawn};
use crate::secrets::Secrets;
use crate::{Cause, Location, ObjectError, Scheme};

/// How to access a place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The most requests in flight; 64 reach a few thousand objects a second at 20 ms each.
    pub requests: usize,
    /// The time limit of a request, and of silence on its connection.
    pub timeout: Duration,
    /// How long a request is retried after transport errors, throttling and answers of 500 and above, with
    /// growing, jittered pauses.
    pub retry: Duration,
    /// Variables that take precedence over those of the environment: `AWS_ENDPOINT_URL`, ..
    pub settings: Vec<(String, String)>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            requests: 64,
            timeout: Duration::from_secs(30),
            retry: Duration::from_secs(60),
            settings: Vec::new(),
        }
    }
}

impl Options {
    fn variable(&self, name: &str) -> Option<String> {
        let own = self.settings.iter().find(|(known, _)| known == name);
        own.map(|(_, value)| value.clone())
            .or_else(|| std::env::var(name).ok())
    }

    /// The variables that begin with `prefix` and that a store knows, ours last so that they win.
    fn known<K: std::str::FromStr>(&self, prefix: &str) -> Vec<(K, String)> {
        let outer = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
        outer
            .chain(self.settings.iter().cloned())
            .filter(|(name, _)| name.starts_with(prefix))
            .filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value)))
            .collect()
    }
}

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
    /// Whether an answer is of this version.
    fn is(&self, answer: &ObjectMeta) -> bool {
        // Azure's lists leave out the quotes that its answers have.
        let bare = |etag: &str| etag.trim_start_matches("W/").trim_matches('"').to_owned();
        let same = match (&self.etag, &answer.e_tag) {
            (Some(listed), Some(now)) => bare(listed) == bare(now),
            _ => self.modified == answer.last_modified.timestamp(),
        };
        same && self.size == answer.size
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
        let built = |error: object_store::Error, secrets: &Secrets| {
            ObjectError::new(uri, Cause::BadUri, secrets.hide(&error.to_string()))
        };
        let client = ClientOptions::new()
            .with_timeout(options.timeout)
            .with_read_timeout(options.timeout)
            .with_connect_timeout(options.timeout.min(Duration::from_secs(5)))
            .with_pool_max_idle_per_host(options.requests);
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(50),
                max_backoff: Duration::from_secs(5),
                base: 2.0,
            },
            max_retries: 20,
            retry_timeout: options.retry,
        };
        let mut secrets = Secrets::default();
        let url = location.to_string();
        let store: Box<dyn ObjectStore> = match location.scheme {
            Scheme::S3 => {
                // The client's settings come first, so that the environment's (`AWS_ALLOW_HTTP`, proxies) stay.
                let mut builder = AmazonS3Builder::new()
                    .with_client_options(client)
                    .with_retry(retry);
                for (key, value) in options.known("AWS_") {
                    builder = builder.with_config(key, value);
                }
                let around = Surroundings {
                    variable: &|name| options.variable(name),
                    home: std::env::home_dir(),
                };
                for (key, value) in profile(&around)? {
                    builder = builder.with_config(key, value);
                }
                use object_store::aws::AmazonS3ConfigKey as Key;
                for key in [Key::SecretAccessKey, Key::Token] {
                    secrets.add(builder.get_config_value(&key));
                }
                // An http:// endpoint in the settings allows HTTP.
                let endpoint = builder.get_config_value(&Key::Endpoint);
                // The client would accept any text, and panic at its first request.
                if let Some(Err(error)) = endpoint.as_deref().map(reqwest::Url::parse) {
                    let reason = format!(
                        "the endpoint (AWS_ENDPOINT_URL, or endpoint_url of the profile) is no address such as \
                         http://127.0.0.1:9000: {error}"
                    );
                    return Err(ObjectError::new(uri, Cause::BadUri, reason));
                }
                let address = endpoint
                    .as_deref()
                    .and_then(|endpoint| reqwest::Url::parse(endpoint).ok());
                secrets.add(
                    address
                        .as_ref()
                        .and_then(reqwest::Url::password)
                        .map(str::to_owned),
                );
                if endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
                    builder = builder.with_config(Key::Client(ClientConfigKey::AllowHttp), "true");
                }
                Box::new(
                    builder
                        .with_bucket_name(&location.bucket)
                        .build()
                        .map_err(|error| built(error, &secrets))?,
                )
            }
            Scheme::Google => {
                let mut builder = GoogleCloudStorageBuilder::new()
                    .with_client_options(client)
                    .with_retry(retry);
                for (key, value) in options.known("GOOGLE_") {
                    builder = builder.with_config(key, value);
                }
                use object_store::gcp::GoogleConfigKey as Key;
                secrets.add_service_account(builder.get_config_value(&Key::ServiceAccountKey));
                secrets.add(builder.get_config_value(&Key::BearerToken));
                Box::new(
                    builder
                        .with_bucket_name(&location.bucket)
                        .build()
                        .map_err(|error| built(error, &secrets))?,
                )
            }
            Scheme::Azure => {
                let mut builder = MicrosoftAzureBuilder::new()
                    .with_client_options(client)
                    .with_retry(retry);
                for (key, value) in options.known("AZURE_") {
                    builder = builder.with_config(key, value);
                }
                use object_store::azure::AzureConfigKey as Key;
                for key in [
                    Key::AccessKey,
                    Key::ClientSecret,
                    Key::Token,
                    Key::FabricSessionToken,
                ] {
                    secrets.add(builder.get_config_value(&key));
                }
                secrets.add_signature(builder.get_config_value(&Key::SasKey));
                Box::new(
                    builder
                        .with_container_name(&location.bucket)
                        .build()
                        .map_err(|error| built(error, &secrets))?,
                )
            }
            Scheme::Http => {
                let client = client.with_allow_http(location.bucket.starts_with("http://"));
                let builder = HttpBuilder::new().with_client_options(client).with_retry(retry);
                Box::new(
                    builder
                        .with_url(&location.bucket)
                        .build()
                        .map_err(|error| built(error, &secrets))?,
                )
            }
            Scheme::Local => {
                let missing =
                    |error: object_store::Error| ObjectError::new(&url, Cause::NotFound, error.to_string());
                Box::new(LocalFileSystem::new_with_prefix(&location.prefix).map_err(missing)?)
            }
        };
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

    /// Every object below the place, sorted by the bytes of its key; makes as many requests as the server's
    /// pages need.
    ///
    /// # Errors
    /// The server's error. A prefix without objects is an empty list.
    pub fn list(&self) -> Result<Vec<Object>, ObjectError> {
        let inner = &self.inner;
        let prefix = (!inner.prefix.as_ref().is_empty()).then_some(&inner.prefix);
        let objects = block_on(async {
            let found = inner.store.list(prefix);
            found
                .try_filter_map(|meta| async move {
                    let key: String = match prefix {
                        Some(prefix) => match meta.location.prefix_match(prefix) {
                            Some(parts) => parts
                                .map(|part| part.as_ref().to_owned())
                                .collect::<Vec<_>>()
                                .join("/"),
                            None => return Ok(None),
                        },
                        None => meta.location.as_ref().to_owned(),
                    };
                    // A prefix may be an object itself: a folder's marker.
                    Ok((!key.is_empty()).then_some(Object {
                        key,
                        size: meta.size,
                        etag: meta.e_tag,
                        modified: meta.last_modified.timestamp(),
                    }))
                })
                .try_collect::<Vec<_>>()
                .await
        })?;
        let mut objects = objects.map_err(|error| inner.error("", &error))?;
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        tracing::info!(place = %inner.location, objects = objects.len(), "listed");
        Ok(objects)
    }

    /// Fetches a whole object into `into`, which drops its contents and keeps its capacity.
    ///
    /// # Errors
    /// The server's error; an object of more than 1 GiB.
    pub fn fetch(&self, key: &str, into: &mut Vec<u8>) -> Result<(), ObjectError> {
        block_on(self.inner.get(key, None, None, into))?.map(drop)
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
            got.map(|_| bytes)
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
        if expected.is_some_and(|object| !object.is(&got.meta)) {
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
    task: JoinHandle<Result<Vec<u8>, ObjectError>>,
}

impl Fetch {
    /// Waits for the bytes: until they are there, or all retries and deadlines have passed.
    ///
    /// # Errors
    /// As [`Bucket::fetch`].
    pub fn wait(mut self) -> Result<Vec<u8>, ObjectError> {
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
