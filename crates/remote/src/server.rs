//! The server of batches.
//!
//! One thread speaks HTTP, and the threads of a [`WorkerPool`] make batches, in the order in which they were asked for. At most
//! as many batches as there are threads, and two more, are in work or on their way out; further requests wait. So a
//! trainer that does not read costs one batch of memory for each of its requests until the connection is found dead, or the
//! batch has been on its way for a minute.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::mem;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use serde_json::json;
use stokehold_base::fault::Fault;
use stokehold_listen::{Guest, Tls, accept, same};
use stokehold_loader::{Batch, Loader, LoaderError, NumberedEpoch, WorkerPool, Workers};
use stokehold_pipeline::Pipeline;
use stokehold_storage::{Images, Source as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::spawn_blocking;

use crate::client::check_token;
use crate::spec::VERSION;
use crate::{DataPart, DatasetSplit, Encoded, Facts, Made, RemoteError, Spec, encode};

/// The loaders that a server keeps, one for each rank of each trainer; it drops the one that was not asked for longest.
pub const LOADERS: usize = 1024;

/// The most bytes of the specs of all loaders that a server keeps, but for the latest.
const SPECS: usize = 2 * LONGEST_SPEC;

/// The data sets that it keeps open; ranks and trainers share them.
const DATA_SETS: usize = 4;

/// The epochs that it keeps of each loader.
const EPOCHS: usize = 2;

/// The most bytes of the orders of all epochs that it keeps, but for the latest.
const ORDERS: usize = 1 << 30;

/// The samples of an epoch may be so many times those of the data set.
const MOST_EPOCHS: usize = 16;

/// The most connections; as many fewer as this process may open fewer files.
const CONNECTIONS: usize = 4096;

/// Open files that are for images.
const FILES: usize = 256;

/// The longest spec, 256 MiB: weights of ten million samples. One at a time is read that is longer than a usual one.
const LONGEST_SPEC: usize = 256 << 20;
const USUAL_SPEC: u64 = 1 << 20;

/// How long an answer may be on its way; trainers wait no longer.
const SENDING: Duration = Duration::from_secs(60);

/// How long a request's body may be on its way; its head, and an idle connection, twice as long.
const DEAD: Duration = Duration::from_secs(30);

/// How a server serves.
#[derive(Debug, Clone)]
pub struct Options {
    /// The data set's folder, or its place in a bucket.
    pub data: PathBuf,
    /// The pipeline of loaders that name none.
    pub pipeline: Pipeline,
    /// Where to listen, `HOST:PORT`; port 0 for a free one.
    pub listen: String,
    /// Threads that make batches.
    pub workers: Workers,
    /// What requests must have, if anything.
    pub token: Option<String>,
    /// The files of the certificates and of their key, in PEM, for TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
}

/// A server that listens.
pub struct Server {
    listener: StdListener,
    tls: Option<Tls>,
    state: Arc<State>,
}

impl Server {
    /// Opens the data set, and begins to listen.
    ///
    /// # Errors
    /// The data set cannot be opened; the pipeline, the token, the certificate or the address cannot be used.
    pub fn bind(options: Options) -> Result<Self, RemoteError> {
        if let Some(token) = &options.token {
            check_token(token)?;
        }
        let tls = match &options.tls {
            Some((certificate, key)) => {
                let read = Tls::read(certificate, key);
                Some(read.map_err(|(path, reason)| RemoteError::Secret { path, reason })?)
            }
            None => None,
        };
        let listener = StdListener::bind(&options.listen)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(|error| RemoteError::Listen {
                address: options.listen.clone(),
                error,
            })?;
        let pool = WorkerPool::start(options.workers)?;
        let state = State {
            authorization: options.token.as_ref().map(|token| format!("Bearer {token}")),
            pool,
            places: Arc::new(Semaphore::new(options.workers.resolve() + 2)),
            loaders: Mutex::default(),
            images: Mutex::default(),
            numbering: tokio::sync::Mutex::new(()),
            long_spec: tokio::sync::Mutex::new(()),
            opening: tokio::sync::Mutex::new(()),
            batches: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            options,
        };
        // So that what is wrong with the data set is said now. A tree may have no labels.
        let of = |part| {
            let data = DataPart {
                part,
                ..DataPart::default()
            };
            let spec = Spec {
                data,
                ..Spec::default()
            };
            state.open(&spec, 0)
        };
        let known = match of(DatasetSplit::Train) {
            Ok(known) => known,
            Err(Unopened::Failed(error)) => of(DatasetSplit::Unlabelled).map_err(|_| error)?,
            Err(Unopened::Differs(reason)) => return Err(RemoteError::None { said: vec![reason] }),
        };
        state.keep(DEFAULT.to_owned(), known);
        Ok(Self {
            listener,
            tls,
            state: Arc::new(state),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The system does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What it says about itself, from another thread while it serves.
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.state))
    }

    /// Answers requests until `stop`; those in progress are broken off then.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn run(self, stop: &AtomicBool) -> Result<(), RemoteError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| RemoteError::System {
            what: "cannot start to serve",
            error,
        })?;
        let Self { listener, tls, state } = self;
        let serve = |stream, guest| serve(Arc::clone(&state), stream, guest, tls.clone());
        let served = runtime.block_on(accept(listener, connections(), stop, serve));
        // Opening a large data set may take long, and no one waits for it.
        runtime.shutdown_background();
        served.map_err(|error| RemoteError::System {
            what: "cannot serve",
            error,
        })
    }
}

/// Looks at a server while it serves.
pub struct Watch(Arc<State>);

impl Watch {
    /// What it says about itself.
    pub fn facts(&self) -> Facts {
        self.0.facts()
    }
}

/// The key of the server's own loader.
const DEFAULT: &str = "default";

struct State {
    options: Options,
    authorization: Option<String>,
    pool: WorkerPool,
    /// For batches in work and on their way out.
    places: Arc<Semaphore>,
    /// The latest last.
    loaders: Mutex<VecDeque<(String, Known)>>,
    /// Open data sets, the latest last.
    images: Mutex<VecDeque<(DataPart, Arc<Images>)>>,
    /// One at a time makes the order of an epoch, and one reads a long spec.
    numbering: tokio::sync::Mutex<()>,
    long_spec: tokio::sync::Mutex<()>,
    /// One at a time opens a data set: trainers ask on several connections for the same.
    opening: tokio::sync::Mutex<()>,
    batches: AtomicU64,
    /// Images of these batches.
    sent: AtomicU64,
}

/// A loader that a server has.
#[derive(Clone)]
struct Known {
    loader: Loader,
    /// Bytes of its spec.
    spec: usize,
    epochs: VecDeque<(u64, Arc<NumberedEpoch>)>,
}

impl Known {
    fn epoch(&self, epoch: u64) -> Option<Arc<NumberedEpoch>> {
        let (_, numbered) = self.epochs.iter().find(|(own, _)| *own == epoch)?;
        Some(Arc::clone(numbered))
    }

    /// The bytes of its epochs' orders, at most.
    fn orders(&self) -> usize {
        let samples = self
            .loader
            .options()
            .epoch_samples
            .unwrap_or(self.loader.images());
        12 * samples * self.epochs.len()
    }

    fn made(&self, key: &str) -> Made {
        Made {
            loader: key.to_owned(),
            batches_per_epoch: self.loader.batches_per_epoch(),
            shape: self.loader.shape(),
        }
    }
}

/// Why there is no loader of a spec.
enum Unopened {
    Failed(RemoteError),
    Differs(String),
}

impl<E: Into<RemoteError>> From<E> for Unopened {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// An answer that is an error.
struct Refusal {
    status: StatusCode,
    reason: String,
}

impl Refusal {
    fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self {
            status,
            reason: reason.into(),
        }
    }
}

type ApiReply = Response<Pieces>;

async fn serve(state: Arc<State>, stream: TcpStream, guest: Guest, tls: Option<Tls>) -> Result<(), String> {
    match tls {
        None => speak(state, stream, guest).await,
        Some(tls) => speak(state, tls.greet(stream).await?, guest).await,
    }
}

/// The most connections: those of this process's files that are not for images.
fn connections() -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let files = files.map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
    // Half of few: a server with hardly any files still answers.
    CONNECTIONS.min(files.saturating_sub(FILES).max(files / 2)).max(1)
}

/// When the batch that a connection sends was ready, until it is sent.
type Sending = Arc<Mutex<Option<Instant>>>;

async fn speak(
    state: Arc<State>,
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    guest: Guest,
) -> Result<(), String> {
    let sending = Sending::default();
    let answer = |request: Request<Incoming>| {
        let checked = state.check(&request);
        if checked.is_ok() {
            guest.trust();
        }
        let (state, sending) = (Arc::clone(&state), Arc::clone(&sending));
        async move { Ok::<_, Infallible>(answer(state, request, checked, sending).await) }
    };
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        // Longer than trainers keep a connection that they do not use.
        .header_read_timeout(2 * DEAD)
        .serve_connection(TokioIo::new(stream), service_fn(answer));
    let mut connection = std::pin::pin!(connection);
    let mut look = tokio::time::interval(Duration::from_secs(1));
    loop {
        tokio::select! {
            done = &mut connection => return done.map_err(|error| error.to_string()),
            _ = look.tick() => {
                let since = *sending.lock().unwrap_or_else(PoisonError::into_inner);
                if since.is_some_and(|since| since.elapsed() > SENDING) {
                    return Err("a batch was not read in time".to_owned());
                }
            }
        }
    }
}

async fn answer(
    state: Arc<State>,
    request: Request<Incoming>,
    checked: Result<(), Refusal>,
    sending: Sending,
) -> ApiReply {
    let answer = match checked {
        Ok(()) => route(state, request, sending).await,
        Err(refusal) => Err(refusal),
    };
    answer.unwrap_or_else(|Refusal { status, reason }| {
        tracing::debug!(%status, "{reason}");
        let mut answer = json_answer(&json!({ "error": reason }));
        *answer.status_mut() = status;
        answer
    })
}

async fn route(state: Arc<State>, request: Request<Incoming>, sending: Sending) -> Result<ApiReply, Refusal> {
    let path = request.uri().path().to_owned();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    match (request.method(), &parts[..]) {
        (&Method::GET, ["v1", "facts"]) => Ok(json_answer(&state.facts())),
        (&Method::POST, ["v1", "loaders"]) => loader(state, request).await,
        (&Method::GET, ["v1", "batches", key, epoch, number]) => {
            let parse = |text: &str, what: &str| {
                text.parse::<u64>().map_err(|_| {
                    Refusal::new(
                        StatusCode::BAD_REQUEST,
                        format!("{text:?} is no number of {what}"),
                    )
                })
            };
            let (epoch, number) = (parse(epoch, "an epoch")?, parse(number, "a batch")?);
            batch(state, key, (epoch, number), sending).await
        }
        (_, ["v1", "facts"] | ["v1", "batches", _, _, _]) => {
            Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "use GET here"))
        }
        (_, ["v1", "loaders"]) => Err(Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "use POST here")),
        _ => Err(Refusal::new(
            StatusCode::NOT_FOUND,
            format!(
                "{path}: there is GET /v1/facts, POST /v1/loaders and GET /v1/batches/LOADER/EPOCH/NUMBER, as \
                 /v1/batches/{DEFAULT}/0/0"
            ),
        )),
    }
}

async fn loader(state: Arc<State>, request: Request<Incoming>) -> Result<ApiReply, Refusal> {
    // Unless it says that it is short.
    let is_long = request
        .body()
        .size_hint()
        .upper()
        .is_none_or(|bytes| bytes > USUAL_SPEC);
    let body = Limited::new(request.into_body(), LONGEST_SPEC).collect();
    let body = tokio::time::timeout(DEAD, async {
        let _one = match is_long {
            true => Some(state.long_spec.lock().await),
            false => None,
        };
        body.await
    });
    let body = body.await;
    let body =
        body.map_err(|_| Refusal::new(StatusCode::REQUEST_TIMEOUT, "the spec did not come in time"))?;
    let text = body.map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    // The version first: another one may have other fields.
    #[derive(serde::Deserialize)]
    struct OfVersion {
        version: Option<String>,
    }
    let text = text.to_bytes();
    let unread = |error: serde_json::Error| {
        Refusal::new(
            StatusCode::BAD_REQUEST,
            format!("the spec of a loader cannot be read: {error}"),
        )
    };
    let theirs: OfVersion = serde_json::from_slice(&text).map_err(unread)?;
    if let Some(theirs) = theirs.version.filter(|theirs| theirs != VERSION) {
        let reason = format!(
            "it has version {VERSION} of Stokehold, and the trainer {theirs}; use the same on both sides"
        );
        return Err(Refusal::new(StatusCode::CONFLICT, reason));
    }
    let spec: Spec = serde_json::from_slice(&text).map_err(unread)?;
    let key = spec.key();
    // A task of its own continues where the trainer does not wait for it, so that the next request finds the loader.
    let (opener, own) = (Arc::clone(&state), key.clone());
    let opened = tokio::spawn(async move {
        let _one = opener.opening.lock().await;
        if let Some(known) = opener.known(&own) {
            return Ok(Ok(known));
        }
        let state = Arc::clone(&opener);
        spawn_blocking(move || {
            let known = state.open(&spec, text.len())?;
            tracing::info!(loader = %own, images = known.loader.images(), "a new loader");
            state.keep(own, known.clone());
            Ok(known)
        })
        .await
    });
    let opened = opened.await.and_then(|opened| opened);
    let opened =
        opened.map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
    let known = opened.map_err(|why| match why {
        Unopened::Differs(reason) => Refusal::new(StatusCode::CONFLICT, reason),
        Unopened::Failed(error) => {
            let status = match error.is_input() {
                true => StatusCode::BAD_REQUEST,
                false => StatusCode::INTERNAL_SERVER_ERROR,
            };
            Refusal::new(status, error.to_string())
        }
    })?;
    Ok(json_answer(&known.made(&key)))
}

async fn batch(
    state: Arc<State>,
    key: &str,
    (epoch, number): (u64, u64),
    sending: Sending,
) -> Result<ApiReply, Refusal> {
    let unknown = || {
        let reason = format!("this server knows no loader {key}; send its spec to /v1/loaders");
        Refusal::new(StatusCode::NOT_FOUND, reason)
    };
    let known = state.known(key).ok_or_else(unknown)?;
    let numbered = match known.epoch(epoch) {
        Some(numbered) => numbered,
        None => {
            let _one = state.numbering.lock().await;
            // Another connection may have waited for the same.
            let known = state.known(key).ok_or_else(unknown)?;
            match known.epoch(epoch) {
                Some(numbered) => numbered,
                None => {
                    let loader = known.loader.clone();
                    let numbered = spawn_blocking(move || Arc::new(loader.numbered(epoch))).await;
                    let numbered = numbered.map_err(|error| {
                        Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
                    })?;
                    state.keep_epoch(key, epoch, &numbered);
                    numbered
                }
            }
        }
    };
    let place = Arc::clone(&state.places).acquire_owned().await;
    let place = place.map_err(|error| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string()))?;
    let (send, made) = oneshot::channel();
    let shape = known.loader.shape();
    let asked = state.pool.make(&numbered, number, move |batch| {
        let _ = send.send(packed(batch, shape, (place, sending)));
    });
    asked.map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))?;
    let packed = made
        .await
        .map_err(|_| Refusal::new(StatusCode::SERVICE_UNAVAILABLE, "the server is ending"))??;
    state.batches.fetch_add(1, Ordering::Relaxed);
    state.sent.fetch_add(packed.images, Ordering::Relaxed);
    let mut answer = Response::new(packed.body);
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    if let Ok(sum) = HeaderValue::from_str(&format!("{:08x}", packed.sum)) {
        headers.insert("stokehold-crc32", sum);
    }
    Ok(answer)
}

/// A batch on its way out.
struct Packed {
    /// It keeps its place until it is sent.
    body: Pieces,
    sum: u32,
    images: u64,
}

/// The images of a batch, which hold its place.
struct Held {
    batch: Encoded,
    sending: Sending,
    _place: OwnedSemaphorePermit,
}

impl Drop for Held {
    fn drop(&mut self) {
        *self.sending.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        self.batch.image_bytes()
    }
}

/// A body of a known length, in pieces.
struct Pieces(VecDeque<Bytes>);

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.iter().map(|piece| piece.len() as u64).sum())
    }
}

fn packed(
    batch: Result<Batch, LoaderError>,
    shape: [usize; 3],
    (place, sending): (OwnedSemaphorePermit, Sending),
) -> Result<Packed, Refusal> {
    let batch = batch.map_err(|error| {
        let status = match error.is_input() {
            true => StatusCode::UNPROCESSABLE_ENTITY,
            false => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Refusal::new(status, error.to_string())
    })?;
    let images = batch.labels.len() as u64;
    let mut batch =
        encode(batch, shape).map_err(|reason| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, reason))?;
    let mut sum = crc32fast::Hasher::new();
    for piece in [&batch.head, batch.image_bytes(), &batch.masks] {
        sum.update(piece);
    }
    let (head, masks) = (mem::take(&mut batch.head), mem::take(&mut batch.masks));
    *sending.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    let numbers = Bytes::from_owner(Held {
        batch,
        sending,
        _place: place,
    });
    let mut pieces = VecDeque::from([Bytes::from(head), numbers, Bytes::from(masks)]);
    pieces.retain(|piece| !piece.is_empty());
    Ok(Packed {
        sum: sum.finalize(),
        images,
        body: Pieces(pieces),
    })
}

fn json_answer(value: &impl Serialize) -> ApiReply {
    // Facts are texts and numbers, which always have JSON.
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut answer = Response::new(Pieces([Bytes::from(text)].into()));
    let json = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(CONTENT_TYPE, json);
    answer
}

impl State {
    fn facts(&self) -> Facts {
        Facts {
            version: VERSION.to_owned(),
            data: self.options.data.display().to_string(),
            workers: self.pool.workers(),
            batches: self.batches.load(Ordering::Relaxed),
            images: self.sent.load(Ordering::Relaxed),
        }
    }

    /// Checks the token.
    fn check(&self, request: &Request<Incoming>) -> Result<(), Refusal> {
        let Some(expected) = &self.authorization else {
            return Ok(());
        };
        let given = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
        match given {
            Some(given) if same(given, expected.as_bytes()) => Ok(()),
            Some(_) => Err(Refusal::new(
                StatusCode::UNAUTHORIZED,
                "the token is another one than the server's",
            )),
            None => Err(Refusal::new(
                StatusCode::UNAUTHORIZED,
                "a token is missing: send `Authorization: Bearer TOKEN`",
            )),
        }
    }

    /// The loader of a spec of this many bytes.
    fn open(&self, spec: &Spec, bytes: usize) -> Result<Known, Unopened> {
        let images = self.images(&spec.data)?;
        let pipeline = spec
            .pipeline
            .clone()
            .unwrap_or_else(|| self.options.pipeline.clone());
        // The order of an epoch is kept, and a short spec may ask for one of any length.
        let most = MOST_EPOCHS * images.len();
        if let Some(samples) = spec.epoch_samples.filter(|samples| *samples > most) {
            let reason = format!(
                "epoch_samples {samples}: a server makes epochs of at most {most}, {MOST_EPOCHS} times its images"
            );
            return Err(LoaderError::Options { reason }.into());
        }
        let loader = Loader::new(images, pipeline, spec.options())?;
        Ok(Known {
            loader,
            spec: bytes,
            epochs: VecDeque::new(),
        })
    }

    /// The images of a part of the data set. Those that are kept have the names that the trainer has, if it says these.
    fn images(&self, data: &DataPart) -> Result<Arc<Images>, Unopened> {
        let all = || self.images.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, images)) = all().iter().find(|(own, _)| own == data) {
            return Ok(Arc::clone(images));
        }
        let (images, differs) = data.open(&self.options.data)?;
        if let Some(reason) = differs {
            return Err(Unopened::Differs(reason));
        }
        let images = Arc::new(images);
        if data.names.is_none() {
            // Without them no one knows whether the folder is still the same.
            return Ok(images);
        }
        let mut all = all();
        all.push_back((data.clone(), Arc::clone(&images)));
        if all.len() > DATA_SETS {
            all.pop_front();
        }
        Ok(images)
    }

    fn loaders(&self) -> MutexGuard<'_, VecDeque<(String, Known)>> {
        // Code under the lock changes the list only.
        self.loaders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The loader of a key, which becomes the latest.
    fn known(&self, key: &str) -> Option<Known> {
        let mut loaders = self.loaders();
        let at = loaders.iter().position(|(own, _)| own == key)?;
        let found = loaders.remove(at)?;
        let known = found.1.clone();
        loaders.push_back(found);
        Some(known)
    }

    fn keep(&self, key: String, known: Known) {
        let mut loaders = self.loaders();
        loaders.push_back((key, known));
        let bytes =
            |loaders: &VecDeque<(String, Known)>| loaders.iter().map(|(_, known)| known.spec).sum::<usize>();
        while loaders.len() > LOADERS || (loaders.len() > 2 && bytes(&loaders) > SPECS) {
            // The server's own one stays.
            let oldest = loaders.iter().position(|(key, _)| key != DEFAULT);
            let Some(oldest) = oldest else { break };
            loaders.remove(oldest);
        }
    }

    fn keep_epoch(&self, key: &str, epoch: u64, numbered: &Arc<NumberedEpoch>) {
        let mut loaders = self.loaders();
        let Some((_, known)) = loaders.iter_mut().find(|(own, _)| own == key) else {
            return;
        };
        if known.epochs.iter().all(|(own, _)| *own != epoch) {
            known.epochs.push_back((epoch, Arc::clone(numbered)));
        }
        while known.epochs.len() > EPOCHS {
            known.epochs.pop_front();
        }
        let latest = loaders.len().saturating_sub(1);
        for place in 0..latest {
            let orders: usize = loaders.iter().map(|(_, known)| known.orders()).sum();
            if orders <= ORDERS {
                break;
            }
            loaders[place].1.epochs.clear();
        }
    }
}
