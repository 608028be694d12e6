//! Servers: connections that are accepted until somebody ends the server, at most so many at a time, with TLS or without.

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::net::sockopt;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// How long TLS's greeting may take.
const GREETING: Duration = Duration::from_secs(20);
/// How often it looks whether it is to end, and how long it waits when the system has no connection for it.
const LOOK: Duration = Duration::from_millis(50);

/// After how long a connection ends whose other side takes nothing, or is gone.
const DEAD: Duration = Duration::from_secs(30);

/// Accepts connections until `stop`, and serves each in a task of its own. Those beyond `most` are closed at once; so is, after 30
/// seconds, one whose other side takes nothing of what is sent to it.
///
/// # Errors
/// The system's, of a listener that cannot be used: it has to be non-blocking.
pub async fn accept<F: Future<Output = Result<(), String>> + Send + 'static>(
    listener: StdListener,
    most: usize,
    stop: &AtomicBool,
    serve: impl Fn(TcpStream, SocketAddr) -> F,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let connections = Arc::new(Semaphore::new(most));
    let mut look = tokio::time::interval(LOOK);
    while !stop.load(Ordering::Relaxed) {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = look.tick() => continue,
        };
        let Ok((stream, peer)) = accepted else {
            // Too many open files, or a connection that is gone already: others may go on.
            tokio::time::sleep(LOOK).await;
            continue;
        };
        let Ok(place) = Arc::clone(&connections).try_acquire_owned() else {
            tracing::warn!(%peer, "refused: {most} connections are open");
            continue;
        };
        if let Err(error) = prepare(&stream) {
            tracing::debug!(%peer, "the connection ended: {error}");
            continue;
        }
        let served = serve(stream, peer);
        tokio::spawn(async move {
            if let Err(error) = served.await {
                tracing::debug!(%peer, "the connection ended: {error}");
            }
            drop(place);
        });
    }
    Ok(())
}

/// Makes the system send at once, and find out that the other side is gone also where nothing is being sent.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    sockopt::set_tcp_user_timeout(stream, DEAD.as_millis() as u32)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, DEAD)?;
    Ok(sockopt::set_tcp_keepintvl(stream, DEAD / 3)?)
}

/// A certificate with its key.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

/// Why a certificate cannot be used: the file, and what is wrong with it.
pub type Unusable = (PathBuf, String);

impl Tls {
    /// Reads the file of a certificate and those that it rests on, and that of its key, both in PEM.
    ///
    /// # Errors
    /// A file cannot be read, has none, or one does not fit the other.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, Unusable> {
        let refuse = |path: &Path, reason: String| (path.to_owned(), reason);
        let read = |path: &Path| {
            stokehold_base::regular::read(path).map_err(|error| refuse(path, error.to_string()))
        };
        let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(certificate)?).collect();
        let certificates =
            certificates.map_err(|error| refuse(certificate, format!("no certificate: {error}")))?;
        let own = PrivateKeyDer::from_pem_slice(&read(key)?);
        let own = own.map_err(|error| refuse(key, format!("no key: {error}")))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(certificates, own));
        let config = config.map_err(|error| {
            refuse(
                certificate,
                format!("cannot be used with {}: {error}", key.display()),
            )
        })?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// The stream behind TLS's greeting, which has 20 seconds.
    ///
    /// # Errors
    /// Why there is none.
    pub async fn greet(
        &self,
        stream: TcpStream,
    ) -> Result<impl AsyncRead + AsyncWrite + Unpin + use<>, String> {
        let greeted = tokio::time::timeout(GREETING, self.0.accept(stream)).await;
        let stream = greeted.map_err(|_| "no greeting of TLS in time")?;
        stream.map_err(|error| error.to_string())
    }
}

/// Whether two secrets are the same; the time does not depend on where they differ.
pub fn same(given: &[u8], expected: &[u8]) -> bool {
    let pairs = given.iter().zip(expected);
    let differ = pairs.fold(0, |differ, (a, b)| differ | (a ^ b));
    given.len() == expected.len() && differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_the_same_or_not() {
        assert!(same(b"secret", b"secret") && same(b"", b""));
        for other in ["", "secre", "secret1", "sEcret", "tecret"] {
            assert!(!same(other.as_bytes(), b"secret"), "{other}");
        }
    }

    #[test]
    fn a_certificate_that_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (certificate, key) = (dir.path().join("cert.pem"), dir.path().join("key.pem"));
        std::fs::write(&certificate, "no certificate").unwrap();
        let (path, reason) = Tls::read(&certificate, &key).unwrap_err();
        assert_eq!(path, key, "{reason}");
        std::fs::write(&key, "no key").unwrap();
        let (path, reason) = Tls::read(&certificate, &key).unwrap_err();
        assert!(path == key && reason.starts_with("no key"), "{path:?} {reason}");
    }
}
