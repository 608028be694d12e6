//! An address that stays, before a server that goes and comes.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Passes connections on to where it leads, and cuts them while it leads nowhere. Its port is its own for the whole test,
/// which a server's that is started again would not be.
pub(crate) struct Front {
    address: SocketAddr,
    way: Arc<Mutex<Way>>,
}

#[derive(Default)]
struct Way {
    to: Option<SocketAddr>,
    open: Vec<TcpStream>,
}

impl Front {
    pub(crate) fn new(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let front = Self {
            address: listener.local_addr().unwrap(),
            way: Arc::default(),
        };
        front.lead_to(to);
        let way = Arc::clone(&front.way);
        // Ends with the test's process.
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let mut way = way.lock().unwrap();
                // A server that is gone: the connection is dropped, and the client sees it.
                let Some(server) = way.to.and_then(|to| TcpStream::connect(to).ok()) else {
                    continue;
                };
                pass_on(&socket, &server);
                pass_on(&server, &socket);
                way.open.extend([socket, server]);
            }
        });
        front
    }

    /// A server's variables, with this address.
    pub(crate) fn settings<N: Into<String>>(
        &self,
        server: impl IntoIterator<Item = (N, N)>,
    ) -> Vec<(String, String)> {
        let keys = server
            .into_iter()
            .map(|(name, value)| (name.into(), value.into()));
        let address = ("AWS_ENDPOINT_URL".to_owned(), format!("http://{}", self.address));
        keys.chain([address]).collect()
    }

    pub(crate) fn lead_to(&self, address: SocketAddr) {
        self.way.lock().unwrap().to = Some(address);
    }

    /// Leads nowhere from now on, and breaks what is open.
    pub(crate) fn cut(&self) {
        let mut way = self.way.lock().unwrap();
        way.to = None;
        for socket in way.open.drain(..) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

fn pass_on(from: &TcpStream, to: &TcpStream) {
    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
}
