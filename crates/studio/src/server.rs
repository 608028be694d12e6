//! The server: it listens, lets in who may, and ends at once.

use std::fmt;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{CONNECTION, CONTENT_TYPE, HeaderValue, SET_COOKIE};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use stokehold_base::clock::{Utc, unix_now};
use stokehold_listen::{Guest, Tls, accept};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::StudioError;
use crate::api::{self, Site, Sources};
use crate::data::Data;
use crate::guard::{self, Guard};
use crate::index::Index;
use crate::machine::Here;
use crate::places::Places;

/// The most connections.
const CONNECTIONS: usize = 256;
/// How long the head of a request may take, and a connection may be idle.
const HEAD: Duration = Duration::from_secs(20);
/// The most threads that read files.
const THREADS: usize = 32;

/// What a studio shows, and where.
#[derive(Debug, Clone)]
pub struct Options {
    /// The folder of all jobs, which need not be there yet; `None` for no jobs.
    pub jobs: Option<PathBuf>,
    /// Folders of runs and studies.
    pub runs: Vec<PathBuf>,
    /// Folders of images: data sets, and folders that hold some.
    pub data: Vec<PathBuf>,
    /// The command line `stokehold`, whose `job runner` runs what is started or resumed; `None` if nothing can be.
    pub program: Option<PathBuf>,
    /// Where to listen, `HOST:PORT`; port 0 for a free one.
    pub listen: String,
    /// Whether nothing can be changed.
    pub read_only: bool,
    /// The files of a certificate and of its key, in PEM, for TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// A name that it is reached by, besides addresses, `localhost` and the machine's name: that of the certificate.
    pub host: Option<String>,
}

/// A studio that listens.
#[derive(Debug)]
pub struct Studio {
    listener: StdListener,
    address: SocketAddr,
    guard: Guard,
    tls: Option<Tls>,
    places: Arc<Places>,
    data: Data,
    program: Option<PathBuf>,
    read_only: bool,
}

/// Something that somebody has changed, for the audit. It shows itself as a line.
#[derive(Debug, Clone)]
pub struct Action {
    /// When, unix seconds.
    pub time: f64,
    /// From where.
    pub peer: SocketAddr,
    /// What: `stop jobs/one`.
    pub what: String,
    /// How it ended: `done`, or the reason why not.
    pub outcome: String,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {}: {}",
            Utc(self.time),
            self.peer,
            self.what,
            self.outcome
        )
    }
}

impl Action {
    pub(crate) fn now(peer: SocketAddr, what: String, outcome: String) -> Self {
        Self {
            time: unix_now(),
            peer,
            what,
            outcome,
        }
    }
}

/// Who sends a request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub SocketAddr);

impl Studio {
    /// Looks whether the folders are there, and begins to listen.
    ///
    /// # Errors
    /// A folder of runs or images cannot be read or is named twice; the certificate cannot be used; the address is in use or not this machine's.
    pub fn bind(options: Options) -> Result<Self, StudioError> {
        let places = Places::new(options.jobs.as_deref(), &options.runs)?;
        let data = Data::new(&options.data)?;
        let tls = options
            .tls
            .as_ref()
            .map(|(certificate, key)| Tls::read(certificate, key));
        let tls = tls
            .transpose()
            .map_err(|(path, reason)| StudioError::Certificate { path, reason })?;
        let failed = |error| StudioError::Listen {
            address: options.listen.clone(),
            error,
        };
        let listener = StdListener::bind(&options.listen)
            .and_then(|listener| listener.set_nonblocking(true).map(|()| listener))
            .map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let guard = Guard::new(tls.is_some(), options.host).map_err(|error| StudioError::System {
            what: "no random numbers for the token",
            error,
        })?;
        Ok(Self {
            listener,
            address,
            guard,
            tls,
            places: Arc::new(places),
            data,
            program: options.program,
            read_only: options.read_only,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The link that opens it. It has the token: anyone with it gets in.
    pub fn link(&self) -> String {
        // An address of all networks is none that a browser can open.
        let port = self.address.port();
        let host = match (self.guard.name(), self.address.ip()) {
            (Some(name), _) => format!("{name}:{port}"),
            (None, ip) if ip.is_unspecified() => format!("127.0.0.1:{port}"),
            _ => self.address.to_string(),
        };
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{host}/?token={}", self.guard.token())
    }

    /// Answers requests until `stop`, which ends open streams too. `tell` gets every action.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn run(
        self,
        stop: &AtomicBool,
        tell: impl Fn(&Action) + Send + Sync + 'static,
    ) -> Result<(), StudioError> {
        let failed = |what| move |error| StudioError::System { what, error };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(THREADS)
            .build()
            .map_err(failed("cannot start to serve"))?;
        let here = Arc::new(Here::default());
        let index = Index::start(Arc::clone(&self.places)).map_err(failed("cannot start to read"))?;
        let sources = Sources {
            places: self.places,
            data: self.data,
            index: Arc::clone(&index),
            here: Arc::clone(&here),
        };
        let site = Arc::new(Site::new(
            self.guard,
            sources,
            self.program,
            self.read_only,
            Box::new(tell),
        ));
        let layer = middleware::from_fn_with_state(Arc::clone(&site), admit);
        let router = api::router(site).layer(layer);
        let serve = |stream, guest: Guest| {
            let router = router.clone().layer(Extension(Peer(guest.peer())));
            serve(router.layer(Extension(guest)), stream, self.tls.clone())
        };
        let served = runtime.block_on(accept(self.listener, CONNECTIONS, stop, serve));
        index.end();
        here.end();
        // No one waits for files that are being read, nor for streams.
        runtime.shutdown_background();
        served.map_err(failed("cannot serve"))
    }
}

async fn serve(router: Router, stream: TcpStream, tls: Option<Tls>) -> Result<(), String> {
    match tls {
        None => speak(router, stream).await,
        Some(tls) => speak(router, tls.greet(stream).await?).await,
    }
}

async fn speak(router: Router, stream: impl AsyncRead + AsyncWrite + Unpin + 'static) -> Result<(), String> {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    connection.await.map_err(|error| error.to_string())
}

/// Answers only who may ask, and dresses every answer.
async fn admit(State(site): State<Arc<Site>>, request: Request, next: Next) -> Response {
    let checked = site
        .guard
        .check(request.method(), request.uri(), request.headers());
    let mut answer = match checked {
        Err((status, reason)) => plain(status, reason),
        Ok(by_link) => {
            if let Some(guest) = request.extensions().get::<Guest>() {
                guest.trust();
            }
            let mut answer = next.run(request).await;
            if by_link && let Ok(cookie) = HeaderValue::from_str(&site.guard.set_cookie()) {
                answer.headers_mut().insert(SET_COOKIE, cookie);
            }
            answer
        }
    };
    guard::dress(answer.headers_mut());
    answer
}

fn plain(status: StatusCode, reason: &'static str) -> Response {
    let mut answer = Response::new(Body::from(format!("{reason}\n")));
    *answer.status_mut() = status;
    let text = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, text);
    // A client that may not ask keeps no connection.
    answer
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}
