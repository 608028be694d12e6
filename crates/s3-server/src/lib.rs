//! A real server of the S3 protocol on the loopback interface, over a folder. It is slow, fails or lies on
//! request.
//!
//! For tests and benchmarks only. The crate `s3s` implements the protocol; this crate adds faults: [`Faults`]
//! determines what happens to the next requests.

#![cfg(feature = "server")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

/// The key that the server knows.
pub const ACCESS_KEY: &str = "AKIDTEST";
/// Its secret.
pub const SECRET_KEY: &str = "a-secret-that-no-message-may-show";

/// What happens to requests; each request that a count applies to decrements it.
#[derive(Debug, Default)]
pub struct Faults {
    /// The delay of every answer, milliseconds.
    pub latency_ms: AtomicU64,
    /// This many requests get 503 Slow Down.
    pub unavailable: AtomicU64,
    /// This many requests for objects get half of the bytes, and then a broken connection.
    pub truncated: AtomicU64,
    /// This many requests get the error that their token has expired.
    pub expired: AtomicU64,
    /// This many requests are never answered.
    pub silent: AtomicU64,
    /// The number of requests received, of any kind.
    pub requests: AtomicU64,
    /// Keys, and sizes in bytes, of objects that lists have besides the folder's: those that no file can be. They cannot be
    /// fetched.
    pub listed: Mutex<Vec<(String, u64)>>,
}

impl Faults {
    /// The elements of a list for a query's prefix.
    fn elements(&self, query: &str) -> String {
        let prefix = query.split('&').find_map(|part| part.strip_prefix("prefix="));
        let prefix = prefix.unwrap_or_default().replace("%2F", "/");
        let listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let with_prefix = listed.iter().filter(|(key, _)| key.starts_with(&prefix));
        let element = |(key, size): &(String, u64)| {
            let key: String = key
                .chars()
                .map(|letter| format!("&#{};", u32::from(letter)))
                .collect();
            format!(
                "<Contents><Key>{key}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>\
                 <ETag>&quot;0&quot;</ETag><Size>{size}</Size></Contents>"
            )
        };
        with_prefix.map(element).collect()
    }

    fn take(count: &AtomicU64) -> bool {
        count
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok()
    }
}

/// A running server. Dropping it breaks every connection.
pub struct Server {
    address: SocketAddr,
    faults: Arc<Faults>,
    runtime: Option<Runtime>,
}

impl Server {
    /// Serves a folder, whose subfolders are the buckets, on a free port.
    ///
    /// # Errors
    /// The folder does not exist, or there is no free port, or no thread can be started.
    pub fn start(folder: &Path) -> std::io::Result<Self> {
        Self::start_at(folder, SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// As [`start`](Self::start), at a given address, such as that of a server that was dropped.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_at(folder: &Path, address: SocketAddr) -> std::io::Result<Self> {
        let files =
            s3s_fs::FileSystem::new(folder).map_err(|error| std::io::Error::other(format!("{error:?}")))?;
        let mut builder = S3ServiceBuilder::new(files);
        builder.set_auth(SimpleAuth::from_single(ACCESS_KEY, SECRET_KEY));
        let service = builder.build();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind(address))?;
        let address = listener.local_addr()?;
        let faults = Arc::new(Faults::default());
        let shared = Arc::clone(&faults);
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (service, faults) = (service.clone(), Arc::clone(&shared));
                tokio::spawn(async move {
                    let answer = |request| answer(service.clone(), Arc::clone(&faults), request);
                    let io = TokioIo::new(socket);
                    // Some tests break connections on purpose; ignore the error.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(io, service_fn(answer))
                        .await;
                });
            }
        });
        Ok(Self {
            address,
            faults,
            runtime: Some(runtime),
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The faults of this server.
    pub fn faults(&self) -> &Faults {
        &self.faults
    }

    /// The environment variables that make a client use it.
    pub fn settings(&self) -> Vec<(String, String)> {
        let pairs = [
            ("AWS_ENDPOINT_URL", format!("http://{}", self.address)),
            ("AWS_ACCESS_KEY_ID", ACCESS_KEY.to_owned()),
            ("AWS_SECRET_ACCESS_KEY", SECRET_KEY.to_owned()),
            ("AWS_REGION", "us-east-1".to_owned()),
        ];
        pairs.map(|(name, value)| (name.to_owned(), value)).to_vec()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_timeout(Duration::from_secs(1));
        }
    }
}

type S3Response = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

async fn answer(
    service: S3Service,
    faults: Arc<Faults>,
    request: Request<Incoming>,
) -> Result<S3Response, Infallible> {
    faults.requests.fetch_add(1, Ordering::SeqCst);
    if Faults::take(&faults.silent) {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(Duration::from_millis(faults.latency_ms.load(Ordering::SeqCst))).await;
    if Faults::take(&faults.unavailable) {
        return Ok(refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "SlowDown",
            "Please reduce your request rate.",
        ));
    }
    if Faults::take(&faults.expired) {
        let message = "The provided token has expired.";
        return Ok(refusal(StatusCode::BAD_REQUEST, "ExpiredToken", message));
    }
    // A list is a GET of the bucket; an object's path has a key after it.
    let of_object =
        request.method() == hyper::Method::GET && request.uri().path().trim_matches('/').contains('/');
    let of_list = request
        .uri()
        .query()
        .filter(|query| query.contains("list-type=2"));
    let listed = of_list.map(|query| faults.elements(query)).unwrap_or_default();
    let request = request.map(s3s::Body::from);
    let response = match service.call(request).await {
        Ok(response) => response,
        Err(error) => {
            return Ok(refusal(
                StatusCode::INTERNAL_SERVER_ERROR,
                "InternalError",
                &format!("{error:?}"),
            ));
        }
    };
    if !listed.is_empty() {
        let (mut head, body) = response.into_parts();
        let page = body
            .collect()
            .await
            .map(|body| body.to_bytes())
            .unwrap_or_default();
        let end = "</ListBucketResult>";
        let page = String::from_utf8_lossy(&page).replace(end, &format!("{listed}{end}"));
        head.headers.remove(hyper::header::CONTENT_LENGTH);
        let body = Full::new(Bytes::from(page)).map_err(|never| match never {});
        return Ok(Response::from_parts(head, body.boxed_unsync()));
    }
    if of_object && Faults::take(&faults.truncated) {
        let (head, body) = response.into_parts();
        let bytes = body
            .collect()
            .await
            .map(|body| body.to_bytes())
            .unwrap_or_default();
        let half = bytes.slice(..bytes.len() / 2);
        let frames = [
            Ok(Frame::data(half)),
            Err(std::io::Error::other("broken on request")),
        ];
        let body = StreamBody::new(futures_util::stream::iter(frames));
        return Ok(Response::from_parts(head, body.boxed_unsync()));
    }
    Ok(response.map(|body| body.map_err(std::io::Error::other).boxed_unsync()))
}

fn refusal(status: StatusCode, code: &str, message: &str) -> S3Response {
    let page =
        format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{message}</Message></Error>");
    let body = Full::new(Bytes::from(page)).map_err(|never| match never {});
    let mut response = Response::new(body.boxed_unsync());
    *response.status_mut() = status;
    response
}
