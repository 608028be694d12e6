//! Servers: connections that are accepted until somebody ends the server, at most this many at a time, with TLS or without.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener as StdListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::sockopt;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

/// How long TLS's greeting may take.
const GREETING: Duration = Duration::from_secs(20);
/// How often it looks whether it is to end, and how long it waits when the system has no connection for it.
const LOOK: Duration = Duration::from_millis(50);

/// After how long a connection ends whose other side takes nothing, or is gone.
const DEAD: Duration = Duration::from_secs(30);

/// Accepts connections until `stop`, and serves each in a task of its own. A connection ends, after 30 seconds, if its other side takes
/// nothing of what is sent to it.
///
/// At most `most` are open. One that has not shown yet that it may ask ([`Guest::trust`]) makes room for a new one: the oldest of the
/// address that has most of these. Such connections of one address are at most half of `most`. If all may ask, a new one is closed
/// at once.
///
/// # Errors
/// The system's, of a listener that cannot be used: it has to be non-blocking.
pub async fn accept<F: Future<Output = Result<(), String>> + Send + 'static>(
    listener: StdListener,
    most: usize,
    stop: &AtomicBool,
    serve: impl Fn(TcpStream, Guest) -> F,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let guests = Guests::default();
    let mut look = tokio::time::interval(LOOK);
    for number in 0.. {
        let accepted = loop {
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            tokio::select! {
                accepted = listener.accept() => break accepted,
                _ = look.tick() => {}
            }
        };
        let Ok((stream, peer)) = accepted else {
            // Too many open files, or a connection that is gone already: others may continue.
            tokio::time::sleep(LOOK).await;
            continue;
        };
        let Some(closed) = guests.admit(number, peer, most) else {
            tracing::warn!(%peer, "refused: {most} connections are open");
            continue;
        };
        let guest = Guest {
            number,
            peer,
            guests: guests.clone(),
        };
        if let Err(error) = prepare(&stream) {
            tracing::debug!(%peer, "the connection ended: {error}");
            guests.leave(number);
            continue;
        }
        let served = serve(stream, guest);
        let guests = guests.clone();
        tokio::spawn(async move {
            let ended = tokio::select! {
                ended = served => ended,
                _ = closed => Err("it made room for another, and had not shown that it may ask".to_owned()),
            };
            if let Err(error) = ended {
                tracing::debug!(%peer, "the connection ended: {error}");
            }
            guests.leave(number);
        });
        // What has come of its first request is read before the next connection.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// The other side of a connection.
#[derive(Debug, Clone)]
pub struct Guest {
    number: u64,
    peer: SocketAddr,
    guests: Guests,
}

impl Guest {
    /// Its address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Keeps its connection whatever others come: it has shown that it may ask.
    pub fn trust(&self) {
        if let Some(open) = self.guests.lock().get_mut(&self.number) {
            open.is_trusted = true;
        }
    }
}

/// The open connections, by their numbers.
#[derive(Debug, Clone, Default)]
struct Guests(Arc<Mutex<BTreeMap<u64, Open>>>);

#[derive(Debug)]
struct Open {
    network: IpAddr,
    is_trusted: bool,
    /// Dropping it closes the connection.
    _close: oneshot::Sender<()>,
}

impl Guests {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Open>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a connection in, and closes another one for it if need be. It is to be closed when the receiver says so. `None` if
    /// there is no room.
    fn admit(&self, number: u64, peer: SocketAddr, most: usize) -> Option<oneshot::Receiver<()>> {
        let network = network(peer.ip());
        let mut open = self.lock();
        // How many of each address, and the oldest of them.
        let mut strangers: BTreeMap<IpAddr, (usize, Reverse<u64>)> = BTreeMap::new();
        for (number, one) in open.iter().filter(|(_, one)| !one.is_trusted) {
            strangers.entry(one.network).or_insert((0, Reverse(*number))).0 += 1;
        }
        let own = strangers.get(&network).copied();
        let leaves = match own.filter(|(own, _)| *own >= (most / 2).max(1)) {
            None if open.len() >= most => Some(strangers.into_values().max()?),
            own => own,
        };
        if let Some((_, Reverse(oldest))) = leaves {
            open.remove(&oldest);
        }
        let (close, closed) = oneshot::channel();
        let one = Open {
            network,
            is_trusted: false,
            _close: close,
        };
        open.insert(number, one);
        Some(closed)
    }

    fn leave(&self, number: u64) {
        self.lock().remove(&number);
    }
}

/// What counts as one address: of IPv6 the half that names a network, for one machine has all addresses below it.
fn network(ip: IpAddr) -> IpAddr {
    match ip.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() >> 64 << 64).into()),
        ip => ip,
    }
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

    /// The stream after TLS's greeting, which has 20 seconds.
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
    fn whoever_has_not_shown_that_it_may_ask_makes_room() {
        let guests = Guests::default();
        let peer = |address: &str| SocketAddr::new(address.parse().unwrap(), 1);
        let mut closed = Vec::new();
        // One address has half of the eight at most.
        for number in 0..6 {
            closed.push(guests.admit(number, peer("10.0.0.1"), 8).unwrap());
        }
        let is_open = |closed: &mut oneshot::Receiver<()>| {
            closed.try_recv() == Err(oneshot::error::TryRecvError::Empty)
        };
        let open: Vec<bool> = closed.iter_mut().map(is_open).collect();
        assert_eq!(open, [false, false, true, true, true, true]);
        let guest = |number| Guest {
            number,
            peer: peer("10.0.0.1"),
            guests: guests.clone(),
        };
        guest(2).trust();
        // Another one comes in, and the oldest of the address with most of them goes.
        for (number, address) in (6..).zip([
            "10.0.0.2",
            "10.0.0.3",
            "::ffff:10.0.0.4",
            "10.0.0.5",
            "2001:db8::1",
        ]) {
            closed.push(guests.admit(number, peer(address), 8).unwrap());
        }
        let open: Vec<bool> = closed.iter_mut().map(is_open).collect();
        assert_eq!(
            open,
            [
                false, false, true, false, true, true, true, true, true, true, true
            ]
        );
        assert_eq!(guests.lock().len(), 8);
        // If all may ask, there is no room; one that leaves makes some.
        let all: Vec<u64> = guests.lock().keys().copied().collect();
        all.iter().for_each(|number| guest(*number).trust());
        assert!(guests.admit(90, peer("10.0.0.9"), 8).is_none());
        guests.leave(all[0]);
        assert!(guests.admit(91, peer("10.0.0.9"), 8).is_some());
    }

    #[test]
    fn a_network_of_ipv6_is_one_address() {
        let of = |ip: &str| network(ip.parse().unwrap());
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:1:ffff::2"));
        assert_ne!(of("2001:db8:0:1::1"), of("2001:db8:0:2::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
    }

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
