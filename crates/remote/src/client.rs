//! The trainer's side: servers, and the threads that ask them.

use std::env::VarError;
use std::fmt;
use std::io::Read;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use stokehold_loader::{
    Address, Batch, Elsewhere, Loader, LoaderError, NumberedEpoch, Span, Stage, Supply, TOKEN, WorkerPool,
    Workers,
};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body, http};

use crate::board::Board;
use crate::spec::VERSION;
use crate::wire::{check, decode, largest};
use crate::{DataPart, Facts, Made, RemoteError, Spec};

/// Connections of a trainer to a server, and so the most batches that it has in work there.
pub const CONNECTIONS: usize = 3;

/// The time without a batch after which an epoch ends, if every server has failed.
pub const GIVE_UP: Duration = Duration::from_secs(60);

/// The token of this process's environment, if it has one.
///
/// # Errors
/// [`RemoteError::Token`] if it can be no header's value.
pub fn token() -> Result<Option<String>, RemoteError> {
    match std::env::var(TOKEN) {
        Ok(token) => check_token(&token).map(|()| Some(token)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => Err(RemoteError::Token),
    }
}

/// The longest time for one batch, for a question about the server, and for a connection to be made.
const REQUEST: Duration = Duration::from_secs(60);
const QUESTION: Duration = Duration::from_secs(5);
/// The longest time for a server to open its data set.
const REGISTER: Duration = Duration::from_secs(600);
const CONNECT: Duration = Duration::from_secs(3);

/// The pause after a failure, which doubles with each one up to the longest.
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The most letters of a server's reason.
const REASON: usize = 500;

/// The servers of a trainer, which make the batches of its loader.
pub struct Servers {
    servers: Vec<Arc<Server>>,
    data: DataPart,
    /// Threads of this machine that take part.
    local: Option<NonZeroUsize>,
    pool: OnceLock<Arc<WorkerPool>>,
    made_here: Arc<AtomicU64>,
}

impl Servers {
    /// Asks each server what it is; at least one has to answer. Those that do not are asked again while batches are made.
    ///
    /// `data` says which images of their data sets are meant, and `token` is what they ask for, if they do. With `tls` in an address
    /// the system's certificates count, or those in the file `SSL_CERT_FILE`.
    ///
    /// # Errors
    /// No server can be used; the token cannot be sent; there are no certificates.
    pub fn connect(
        addresses: &[Address],
        data: DataPart,
        token: Option<String>,
    ) -> Result<Self, RemoteError> {
        if let Some(token) = &token {
            check_token(token)?;
        }
        let agent = agent(addresses.iter().any(|address| address.is_tls()))?;
        let servers: Vec<Arc<Server>> = addresses
            .iter()
            .map(|address| Arc::new(Server::new(address, agent.clone(), token.as_deref())))
            .collect();
        let mut said = Vec::new();
        for server in &servers {
            match server.facts() {
                Ok(facts) => {
                    tracing::info!(server = %server.name, workers = facts.workers, "a server of batches");
                }
                Err(failure) => {
                    server.note(&failure);
                    said.push(format!("{}: {}", server.name, failure.reason()));
                }
            }
        }
        if said.len() == servers.len() {
            return Err(RemoteError::None { said });
        }
        Ok(Self {
            servers,
            data,
            local: None,
            pool: OnceLock::new(),
            made_here: Arc::default(),
        })
    }

    /// With a number of threads of this machine that make batches, too; none for [`Workers::Auto`].
    #[must_use]
    pub fn with_local(self, workers: Workers) -> Self {
        let local = match workers {
            Workers::Auto => None,
            Workers::Count(workers) => Some(workers),
        };
        Self { local, ..self }
    }

    /// The threads of this machine.
    fn pool(&self, workers: NonZeroUsize) -> Result<Arc<WorkerPool>, LoaderError> {
        if let Some(pool) = self.pool.get() {
            return Ok(Arc::clone(pool));
        }
        let pool = Arc::new(WorkerPool::start(Workers::Count(workers))?);
        Ok(Arc::clone(self.pool.get_or_init(|| pool)))
    }

    fn makers(&self, loader: &Loader, epoch: u64) -> Result<Vec<Box<dyn BatchMaker>>, LoaderError> {
        let mut makers: Vec<Box<dyn BatchMaker>> = Vec::new();
        let spec = Spec::of(loader, self.data.clone());
        let text = serde_json::to_string(&spec).map_err(|error| failed(error.to_string(), true))?;
        let spec = Arc::new((spec.key(), text));
        let numbered = Arc::new(loader.numbered(epoch));
        for server in &self.servers {
            for number in 0..CONNECTIONS {
                makers.push(Box::new(Connection {
                    server: Arc::clone(server),
                    spec: Arc::clone(&spec),
                    loader: loader.clone(),
                    epoch,
                    numbered: Arc::clone(&numbered),
                    first: number == 0,
                    body: Vec::new(),
                }));
            }
        }
        if let Some(workers) = self.local {
            let pool = self.pool(workers)?;
            // One that is being finished, and one for the threads that have no place in it.
            for _ in 0..2 {
                makers.push(Box::new(Local {
                    pool: Arc::clone(&pool),
                    epoch: Arc::clone(&numbered),
                    made: Arc::clone(&self.made_here),
                }));
            }
        }
        Ok(makers)
    }
}

impl fmt::Debug for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.servers.iter().map(|server| &server.name))
            .finish()
    }
}

impl Elsewhere for Servers {
    fn begin(&self, loader: &Loader, epoch: u64, batches: Range<u64>) -> Box<dyn Supply> {
        let nobody = |error| RemoteEpoch {
            board: Arc::new(Board::new(0..0, 1)),
            servers: Vec::new(),
            failed: Some(error),
            since: None,
        };
        let makers = match self.makers(loader, epoch) {
            Ok(makers) => makers,
            Err(error) => return Box::new(nobody(error)),
        };
        let window = loader.prefetch().max(makers.len() + 1) as u64;
        let board = Arc::new(Board::new(batches, window));
        for (who, mut maker) in makers.into_iter().enumerate() {
            let own = Arc::clone(&board);
            let thread = Builder::new()
                .name(format!("remote-{who}"))
                .spawn(move || work(&mut *maker, who, &own));
            if let Err(error) = thread {
                board.stop();
                return Box::new(nobody(LoaderError::Spawn(error)));
            }
        }
        Box::new(RemoteEpoch {
            board,
            servers: match self.local {
                Some(_) => Vec::new(),
                None => self.servers.clone(),
            },
            failed: None,
            since: None,
        })
    }

    /// Each server's, and `here` those of this machine's threads, if there are any.
    fn made(&self) -> Vec<(String, u64)> {
        let servers = self.servers.iter();
        let mut made: Vec<_> = servers
            .map(|server| (server.name.clone(), server.made.load(Ordering::Relaxed)))
            .collect();
        if self.local.is_some() {
            made.push(("here".to_owned(), self.made_here.load(Ordering::Relaxed)));
        }
        made
    }
}

fn failed(reason: String, input: bool) -> LoaderError {
    LoaderError::Supply { reason, input }
}

/// The batches of an epoch. Its threads are not waited for: a request may last, and no one needs it.
struct RemoteEpoch {
    board: Arc<Board>,
    /// Those that all have to fail before the epoch does; none where this machine takes part.
    servers: Vec<Arc<Server>>,
    failed: Option<LoaderError>,
    /// When the consumer began to wait for the next batch.
    since: Option<Instant>,
}

/// How often the consumer looks whether every server has failed.
const LOOK: Duration = Duration::from_millis(200);

impl Supply for RemoteEpoch {
    fn take(&mut self, batch: u64, deadline: Option<Instant>) -> Result<Option<Batch>, LoaderError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let since = *self.since.get_or_insert_with(Instant::now);
        loop {
            let look = Instant::now() + LOOK;
            let until = deadline.map_or(look, |deadline| deadline.min(look));
            match self.board.take(batch, until) {
                Ok(outcome) => {
                    self.since = None;
                    return outcome.map(Some);
                }
                Err(quiet) => self.check(quiet.min(since.elapsed()))?,
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Ok(None);
            }
        }
    }

    fn in_flight(&self) -> usize {
        let (working, ready) = self.board.counts();
        working + ready
    }

    fn loading(&self) -> usize {
        self.board.counts().0
    }
}

impl RemoteEpoch {
    /// Ends the epoch if all servers have failed, and no batch has come for long.
    fn check(&self, quiet: Duration) -> Result<(), LoaderError> {
        if self.servers.is_empty() {
            return Ok(());
        }
        let failures: Vec<Failure> = self
            .servers
            .iter()
            .filter_map(|server| server.failure())
            .collect();
        let left_out = |failure: &Failure| matches!(failure, Failure::Refuses(_));
        let all = failures.len() == self.servers.len();
        if !all || (quiet < GIVE_UP && !failures.iter().all(left_out)) {
            return Ok(());
        }
        let said: Vec<String> = self
            .servers
            .iter()
            .zip(&failures)
            .map(|(server, failure)| format!("{}: {}", server.name, failure.reason()))
            .collect();
        let input = failures.iter().all(left_out);
        Err(failed(
            format!("no server makes batches: {}", said.join("; ")),
            input,
        ))
    }
}

impl Drop for RemoteEpoch {
    fn drop(&mut self) {
        self.board.stop();
    }
}

/// Why a batch has not come.
#[derive(Debug, Clone)]
enum Failure {
    /// Another server may make it, or the same one later.
    Passing(String),
    /// The server will not make any.
    Refuses(String),
    /// The batch cannot be made.
    Batch(String),
    /// The work ended.
    Ended,
}

impl Failure {
    fn reason(&self) -> &str {
        match self {
            Self::Passing(reason) | Self::Refuses(reason) | Self::Batch(reason) => reason,
            Self::Ended => "the end",
        }
    }
}

/// What makes batches, one at a time.
trait BatchMaker: Send {
    fn make(&mut self, number: u64, who: usize, board: &Board) -> Result<Batch, Failure>;

    /// How many of its batches have been the first of their number.
    fn counted(&self) -> &AtomicU64;

    /// Whether it should make nothing now, because another one finds out whether it can.
    fn holds_back(&self) -> bool {
        false
    }
}

/// The work of one thread.
fn work(maker: &mut dyn BatchMaker, who: usize, board: &Board) {
    let (mut pause, mut usual) = (PAUSE, Duration::ZERO);
    loop {
        if maker.holds_back() {
            match board.pause(PAUSE) {
                true => continue,
                false => return,
            }
        }
        let Some(number) = board.next(who, usual) else {
            return;
        };
        let begun = Instant::now();
        match maker.make(number, who, board) {
            Ok(batch) => {
                pause = PAUSE;
                usual = (usual * 3 + begun.elapsed()) / 4;
                board.made(who, number, Ok(batch), maker.counted());
            }
            Err(Failure::Batch(reason)) => {
                board.made(who, number, Err(failed(reason, true)), maker.counted());
            }
            Err(Failure::Passing(_)) => {
                board.failed(who, number);
                if !board.pause(pause) {
                    return;
                }
                pause = (2 * pause).min(LONGEST_PAUSE);
            }
            Err(Failure::Refuses(_) | Failure::Ended) => {
                board.failed(who, number);
                return;
            }
        }
    }
}

/// Threads of this machine.
struct Local {
    pool: Arc<WorkerPool>,
    epoch: Arc<NumberedEpoch>,
    made: Arc<AtomicU64>,
}

impl BatchMaker for Local {
    fn make(&mut self, number: u64, _: usize, board: &Board) -> Result<Batch, Failure> {
        let (send, made) = mpsc::sync_channel(1);
        let asked = self.pool.make(&self.epoch, number, move |batch| {
            let _ = send.send(batch);
        });
        asked.map_err(|error| Failure::Batch(error.to_string()))?;
        loop {
            match made.recv_timeout(LOOK) {
                Ok(Ok(batch)) => return Ok(batch),
                Ok(Err(error)) => return Err(Failure::Batch(error.to_string())),
                Err(RecvTimeoutError::Timeout) if !board.is_stopped() => {}
                Err(_) => return Err(Failure::Ended),
            }
        }
    }

    fn counted(&self) -> &AtomicU64 {
        &self.made
    }
}

/// A server.
#[derive(Debug)]
struct Server {
    /// As it was given.
    name: String,
    /// `http://HOST:PORT`.
    root: String,
    agent: Agent,
    /// The header's value.
    token: Option<String>,
    /// What it failed with last, if it failed.
    failure: Mutex<Option<Failure>>,
    failing: AtomicBool,
    made: AtomicU64,
}

/// The answer to a request that failed.
#[derive(Deserialize)]
struct Refusal {
    error: String,
}

impl Server {
    fn new(address: &Address, agent: Agent, token: Option<&str>) -> Self {
        let scheme = if address.is_tls() { "https" } else { "http" };
        Self {
            name: address.to_string(),
            root: format!("{scheme}://{}", address.place()),
            agent,
            token: token.map(|token| format!("Bearer {token}")),
            failure: Mutex::default(),
            failing: AtomicBool::new(false),
            made: AtomicU64::new(0),
        }
    }

    fn failure(&self) -> Option<Failure> {
        self.failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Remembers that it failed. The first of several failures is logged.
    fn note(&self, failure: &Failure) {
        let mut own = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        if own.is_none() {
            tracing::warn!(server = %self.name, "{}", failure.reason());
        }
        *own = Some(failure.clone());
        self.failing.store(true, Ordering::Relaxed);
    }

    fn works(&self) {
        if self.failing.swap(false, Ordering::Relaxed) {
            tracing::info!(server = %self.name, "it makes batches again");
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    fn facts(&self) -> Result<Facts, Failure> {
        let answer = self.get("/v1/facts", QUESTION)?;
        let facts: Facts = self.read(answer)?;
        match facts.version == VERSION {
            true => Ok(facts),
            false => Err(Failure::Refuses(format!(
                "it has version {} of Stokehold, and this is {VERSION}; use the same on both sides",
                facts.version
            ))),
        }
    }

    fn get(&self, path: &str, time: Duration) -> Result<http::Response<Body>, Failure> {
        let request = self.agent.get(format!("{}{path}", self.root));
        let mut request = request.config().timeout_global(Some(time)).build();
        if let Some(token) = &self.token {
            request = request.header("authorization", token);
        }
        request.call().map_err(|error| passing(&error))
    }

    /// Makes the server know a loader.
    fn register(&self, spec: &str) -> Result<(), Failure> {
        let mut request = self.agent.post(format!("{}/v1/loaders", self.root));
        if let Some(token) = &self.token {
            request = request.header("authorization", token);
        }
        // A bucket of a million images takes minutes to be listed.
        let request = request.config().timeout_global(Some(REGISTER)).build();
        let sent = request.header("content-type", "application/json").send(spec);
        let made: Made = self.read(sent.map_err(|error| passing(&error))?)?;
        tracing::debug!(server = %self.name, loader = %made.loader, "it knows the loader");
        Ok(())
    }

    /// The JSON of an answer, if it is one of success.
    fn read<T: DeserializeOwned>(&self, mut answer: http::Response<Body>) -> Result<T, Failure> {
        let status = answer.status().as_u16();
        let text = answer.body_mut().with_config().limit(1 << 20).read_to_vec();
        let text = text.map_err(|error| passing(&error))?;
        if status == 200 {
            return serde_json::from_slice(&text)
                .map_err(|_| Failure::Refuses("its answer is not that of a server of batches".to_owned()));
        }
        let said = serde_json::from_slice(&text).map(|Refusal { error }| error);
        let reason = said.unwrap_or_else(|_| format!("it answered with the status {status}"));
        let reason: String = reason.chars().take(REASON).collect();
        Err(match status {
            401 if self.token.is_none() => {
                Failure::Refuses(format!("it asks for a token; set {TOKEN} to the one that it has"))
            }
            408 => Failure::Passing(reason),
            400..=421 => Failure::Refuses(reason),
            422 => Failure::Batch(reason),
            _ => Failure::Passing(reason),
        })
    }

    /// `body` is memory for the answer.
    fn batch(&self, path: &str, spec: &str, loader: &Loader, body: &mut Vec<u8>) -> Result<Batch, Failure> {
        let mut answer = self.get(path, REQUEST)?;
        if answer.status().as_u16() == 404 {
            self.register(spec)?;
            answer = self.get(path, REQUEST)?;
        }
        if answer.status().as_u16() == 404 {
            return Err(Failure::Passing(
                "it forgot the loader at once: too many trainers ask it".to_owned(),
            ));
        }
        if answer.status().as_u16() != 200 {
            return match self.read(answer) {
                Ok(()) => Err(Failure::Passing("an answer without a batch".to_owned())),
                Err(failure) => Err(failure),
            };
        }
        let sum = answer.headers().get("stokehold-crc32");
        let sum = sum.and_then(|sum| u32::from_str_radix(sum.to_str().ok()?, 16).ok());
        body.clear();
        let most = largest(loader);
        let read = answer.body_mut().as_reader().take(most + 1).read_to_end(body);
        read.map_err(|error| Failure::Passing(error.to_string()))?;
        if body.len() as u64 > most {
            return Err(Failure::Refuses(format!(
                "it sent more than a batch has, {most} bytes"
            )));
        }
        if sum != Some(crc32fast::hash(body)) {
            return Err(Failure::Passing("a batch came damaged".to_owned()));
        }
        decode(body, loader).map_err(|reason| Failure::Refuses(format!("it sent no batch: {reason}")))
    }
}

fn passing(error: &ureq::Error) -> Failure {
    Failure::Passing(match error {
        ureq::Error::Io(error) => error.to_string(),
        ureq::Error::Timeout(_) => "no answer in time".to_owned(),
        error => error.to_string(),
    })
}

/// One connection of an epoch.
struct Connection {
    server: Arc<Server>,
    /// The key of the loader, and the text that makes it known.
    spec: Arc<(String, String)>,
    loader: Loader,
    epoch: u64,
    numbered: Arc<NumberedEpoch>,
    /// Of the server's connections, the one that asks while the server fails.
    first: bool,
    /// Memory for an answer, which is used again.
    body: Vec<u8>,
}

impl BatchMaker for Connection {
    fn make(&mut self, number: u64, who: usize, board: &Board) -> Result<Batch, Failure> {
        let (key, text) = &*self.spec;
        let begun = Instant::now();
        let path = format!("/v1/batches/{key}/{}/{number}", self.epoch);
        let made = self.server.batch(&path, text, &self.loader, &mut self.body);
        let made = made.and_then(|mut batch| {
            let checked = check(&mut batch, &self.loader, &self.numbered.samples(number));
            let failure =
                |reason| Failure::Refuses(format!("it sent another batch than it was asked for: {reason}"));
            checked.map(|()| batch).map_err(failure)
        });
        match made {
            Ok(mut batch) => {
                self.server.works();
                batch.spans.push(Span {
                    worker: who,
                    stage: Stage::Batch,
                    start: begun,
                    duration: begun.elapsed(),
                    bytes: Some(self.body.len() as u64),
                });
                Ok(batch)
            }
            Err(failure) => {
                if !matches!(failure, Failure::Batch(_)) && !board.is_stopped() {
                    self.server.note(&failure);
                }
                Err(match failure {
                    Failure::Batch(reason) => Failure::Batch(format!("{}: {reason}", self.server.name)),
                    other => other,
                })
            }
        }
    }

    fn counted(&self) -> &AtomicU64 {
        &self.server.made
    }

    fn holds_back(&self) -> bool {
        !self.first && self.server.failing.load(Ordering::Relaxed)
    }
}

/// Whether a token can be a header's value.
pub(crate) fn check_token(token: &str) -> Result<(), RemoteError> {
    match !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(()),
        false => Err(RemoteError::Token),
    }
}

fn agent(tls: bool) -> Result<Agent, RemoteError> {
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .max_idle_connections(1024)
        .max_idle_connections_per_host(CONNECTIONS)
        .timeout_connect(Some(CONNECT))
        .timeout_global(Some(REQUEST))
        .user_agent(format!("stokehold/{VERSION}"));
    if tls {
        let found = rustls_native_certs::load_native_certs();
        if found.certs.is_empty() {
            let why = found.errors.first().map(|error| format!(": {error}"));
            return Err(RemoteError::Certificates {
                why: why.unwrap_or_default(),
            });
        }
        let roots = found
            .certs
            .iter()
            .map(|certificate| Certificate::from_der(certificate).to_owned());
        let tls = TlsConfig::builder()
            .root_certs(RootCerts::Specific(Arc::new(roots.collect())))
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .build();
        config = config.tls_config(tls);
    }
    Ok(config.build().new_agent())
}
