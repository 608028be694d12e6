//! Receives spans of other processes.

use std::fs;
use std::io::{ErrorKind, Read};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::line::{self, Said};
use super::metrics::Metrics;
use super::{SpanRecorder, Timeline};
use crate::ProfileError;
use crate::system::io_error;

/// The most connections at a time; further ones are closed at once.
const CONNECTIONS: usize = 256;
/// At most this many bytes are read of a connection before the next one's turn.
const CHUNK: usize = 64 << 10;
/// How often an idle server polls.
const PERIOD: Duration = Duration::from_millis(10);
/// How long a stopped server continues reading what was sent before.
const LAST: Duration = Duration::from_secs(1);

/// Receives the lines of any number of processes on a Unix socket.
///
/// Lines are processed as they arrive, whole lines only. Invalid lines are counted, and the first one is
/// reported. The unfinished last line of a process that ends is invalid, because half a number is a number
/// too. Memory is one line for each of at most 256 connections, plus the [`Metrics`] that were not taken yet.
/// Dropping the server is [`stop`](Self::stop) without the notes.
pub struct Server {
    path: PathBuf,
    metrics: Arc<Metrics>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl Server {
    /// Listens on the socket `path`, which must not exist, and records into the timeline.
    ///
    /// # Errors
    /// [`ProfileError::Io`] if the socket cannot be created (a socket's path has at most about 100 bytes), or
    /// no thread started.
    pub fn listen(path: &Path, timeline: &Timeline) -> Result<Self, ProfileError> {
        Self::start(path, timeline, || {
            let end = Instant::now() + LAST;
            move || Instant::now() >= end
        })
    }

    /// As [`listen`](Self::listen). When the server is stopped, it calls `last` once to start the time in
    /// which it continues reading; the function that this returns says whether that time is over.
    fn start<Over: FnMut() -> bool>(
        path: &Path,
        timeline: &Timeline,
        last: impl FnOnce() -> Over + Send + 'static,
    ) -> Result<Self, ProfileError> {
        let error = |source| io_error(path, source);
        let listener = UnixListener::bind(path).map_err(error)?;
        listener.set_nonblocking(true).map_err(error)?;
        let stop = Arc::new(AtomicBool::new(false));
        let metrics = Arc::<Metrics>::default();
        let serving = Serving {
            listener,
            recorder: timeline.recorder(),
            metrics: Arc::clone(&metrics),
            connections: Vec::new(),
            buffer: vec![0; CHUNK],
            refused: 0,
            bad: 0,
            first: None,
        };
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("timeline-server".into())
            .spawn(move || serving.serve(&stopped, last))
            .map_err(error)?;
        Ok(Self {
            path: path.to_owned(),
            metrics,
            stop,
            thread: Some(thread),
        })
    }

    /// The metrics that processes send.
    pub fn metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.metrics)
    }

    /// Reads what was sent until now, for at most a second, and ends. Returns notes for readers of the
    /// recording. Finish the timeline after this, not before.
    pub fn stop(mut self) -> Vec<String> {
        match self.join() {
            Some(Ok(notes)) => notes,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Vec::new(),
        }
    }

    fn join(&mut self) -> Option<std::thread::Result<Vec<String>>> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take()?.join();
        // Processes that connect from now on must see that there is no server.
        let _ = fs::remove_file(&self.path);
        Some(ended)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.join();
    }
}

/// The thread's state.
struct Serving {
    listener: UnixListener,
    recorder: SpanRecorder,
    metrics: Arc<Metrics>,
    connections: Vec<Connection>,
    buffer: Vec<u8>,
    refused: u64,
    /// The number of invalid lines, and what is wrong with the first.
    bad: u64,
    first: Option<String>,
}

struct Connection {
    stream: UnixStream,
    /// The beginning of an unfinished line.
    rest: Vec<u8>,
    /// Whether that line is too long, and so dropped.
    long: bool,
}

impl Serving {
    fn serve<Over: FnMut() -> bool>(mut self, stop: &AtomicBool, last: impl FnOnce() -> Over) -> Vec<String> {
        while !stop.load(Ordering::Relaxed) {
            if !self.turn() {
                std::thread::sleep(PERIOD);
            }
        }
        let mut over = last();
        while self.turn() && !over() {}
        self.notes()
    }

    /// Accepts connections and reads what was sent. Returns `false` if there was nothing.
    fn turn(&mut self) -> bool {
        let mut busy = false;
        // The system queues at most this many. An error concerns one connection, or is gone in the next turn.
        for _ in 0..CONNECTIONS {
            let Ok((stream, _)) = self.listener.accept() else {
                break;
            };
            busy = true;
            if self.connections.len() == CONNECTIONS || stream.set_nonblocking(true).is_err() {
                self.refused += 1;
                continue;
            }
            self.connections.push(Connection {
                stream,
                rest: Vec::new(),
                long: false,
            });
        }
        let mut connections = std::mem::take(&mut self.connections);
        let mut buffer = std::mem::take(&mut self.buffer);
        connections.retain_mut(|connection| match connection.stream.read(&mut buffer) {
            Ok(0) => {
                busy = true;
                if connection.long || !connection.rest.is_empty() {
                    self.bad(&connection.rest, "the connection ended before the line did");
                }
                false
            }
            Ok(len) => {
                busy = true;
                self.take(connection, &buffer[..len]);
                true
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        });
        self.connections = connections;
        self.buffer = buffer;
        busy
    }

    /// Processes the lines that end in `bytes`, and keeps the beginning of the next line.
    fn take(&mut self, connection: &mut Connection, mut bytes: &[u8]) {
        while let Some(end) = bytes.iter().position(|&byte| byte == b'\n') {
            let (head, tail) = (&bytes[..end], &bytes[end + 1..]);
            if connection.long || connection.rest.len() + head.len() >= line::LONGEST {
                connection
                    .rest
                    .extend_from_slice(&head[..head.len().min(line::LONGEST)]);
                self.bad(&connection.rest, "the line is longer than 1024 bytes");
            } else if connection.rest.is_empty() {
                self.line(head);
            } else {
                connection.rest.extend_from_slice(head);
                self.line(&connection.rest);
            }
            connection.rest.clear();
            connection.long = false;
            bytes = tail;
        }
        let room = line::LONGEST - connection.rest.len().min(line::LONGEST);
        connection.rest.extend_from_slice(&bytes[..bytes.len().min(room)]);
        connection.long |= bytes.len() > room;
    }

    fn line(&mut self, line: &[u8]) {
        match line::parse(line) {
            Ok(Said::Span(name, span)) => {
                self.metrics.span();
                let name = self.recorder.shared.name(name);
                self.recorder.record_span(name, &span);
            }
            Ok(Said::Metric { name, value, step }) => self.metrics.put(name, value, step),
            Err(reason) => self.bad(line, reason),
        }
    }

    fn bad(&mut self, line: &[u8], reason: &str) {
        self.bad += 1;
        self.first.get_or_insert_with(|| {
            let start = String::from_utf8_lossy(&line[..line.len().min(60)]);
            format!("{start:?}: {reason}")
        });
    }

    fn notes(self) -> Vec<String> {
        let bad = self
            .first
            .map(|first| format!("timeline: {} lines say nothing; the first: {first}", self.bad));
        let refused = (self.refused > 0).then(|| {
            format!(
                "timeline: {} connections were refused, because {CONNECTIONS} were open",
                self.refused
            )
        });
        bad.into_iter()
            .chain(refused)
            .chain(self.metrics.note())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Client, Outcome};
    use std::io::Write;

    struct Stand {
        dir: tempfile::TempDir,
        timeline: Timeline,
        server: Server,
    }

    impl Stand {
        /// A server that takes all that has been sent when it is stopped, however long that takes.
        fn new() -> Self {
            Self::with_turns(usize::MAX)
        }

        /// A server that stops after this many turns.
        fn with_turns(mut turns: usize) -> Self {
            let dir = tempfile::tempdir().unwrap();
            let timeline = Timeline::start(None, None).unwrap();
            let over = move || {
                turns -= 1;
                turns == 0
            };
            let server = Server::start(&dir.path().join("socket"), &timeline, move || over).unwrap();
            Self {
                dir,
                timeline,
                server,
            }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("socket")
        }

        fn connect(&self) -> UnixStream {
            UnixStream::connect(self.path()).unwrap()
        }

        fn stop(self) -> (Outcome, Vec<String>) {
            let notes = self.server.stop();
            assert!(!self.dir.path().join("socket").exists());
            (self.timeline.finish(), notes)
        }
    }

    #[test]
    fn takes_lines_however_they_are_cut() {
        let stand = Stand::new();
        let mut stream = stand.connect();
        for part in [
            "step 1 2 st",
            "ep=1\nwait 2 2",
            ".5\nst",
            "",
            "ep 3 4\nstep 4 ",
            "5\n",
        ] {
            stream.write_all(part.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(15));
        }
        let (outcome, notes) = stand.stop();
        assert_eq!(notes, [""; 0]);
        assert_eq!(outcome.totals["Step:ModeKeys.TRAIN"].spans, 3);
        assert_eq!(outcome.totals["DataLoaderIter"].seconds, 0.5);
    }

    #[test]
    fn what_says_nothing_is_counted_and_told_once() {
        let stand = Stand::new();
        let mut stream = stand.connect();
        let long = [b'x'; 5000];
        for text in [
            &b"GET / HTTP/1.1\r\n"[..],
            b"\xff\xfe\n",
            &long,
            b"\nstep 1 2\n",
            &long[..1023],
            b"\n",
            &long[..1024],
            b"\nstep 1 2\nstep 2 ",
        ] {
            stream.write_all(text).unwrap();
        }
        drop(stream);
        let (outcome, notes) = stand.stop();
        assert_eq!(outcome.totals["Step:ModeKeys.TRAIN"].spans, 2);
        let first =
            "timeline: 6 lines say nothing; the first: \"GET / HTTP/1.1\\r\": start or end is not a number";
        assert_eq!(notes, [first]);
    }

    #[test]
    fn metrics_are_there_for_whoever_takes_them() {
        let stand = Stand::new();
        let metrics = stand.server.metrics();
        let mut stream = stand.connect();
        stream
            .write_all(b"metric loss 0.5 step=1\nstep 1 2\nmetric loss nan\n")
            .unwrap();
        let (outcome, notes) = stand.stop();
        assert_eq!((notes.len(), outcome.totals.len()), (0, 1));
        let taken = metrics.take();
        assert_eq!(
            (taken[0].name.as_str(), taken[0].value, taken[0].step),
            ("loss", 0.5, Some(1))
        );
        assert!(taken[1].value.is_nan() && taken[1].step.is_none() && taken[1].time >= taken[0].time);
        assert!(taken.len() == 2 && metrics.take().is_empty());
    }

    /// Connections come, go, break off in a line and flood, all at once, and the server ends though some stay.
    #[test]
    fn many_connections() {
        let stand = Stand::new();
        let idle: Vec<_> = (0..CONNECTIONS - 20).map(|_| stand.connect()).collect();
        std::thread::scope(|scope| {
            for number in 0..10 {
                let mut stream = stand.connect();
                scope.spawn(move || {
                    let line = format!("phase{number} 1 2\n").repeat(2000);
                    stream.write_all(line.as_bytes()).unwrap();
                    stream.write_all(b"phase 1").unwrap();
                });
            }
        });
        let (outcome, notes) = stand.stop();
        assert_eq!(outcome.totals.len(), 10);
        assert!(
            outcome.totals.values().all(|total| total.spans == 2000),
            "{outcome:?}"
        );
        assert!(
            notes[0].starts_with("timeline: 10 lines say nothing"),
            "{notes:?}"
        );
        drop(idle);
    }

    #[test]
    fn too_many_connections_are_refused() {
        let stand = Stand::new();
        let mut first = stand.connect();
        let more: Vec<_> = (0..CONNECTIONS + 9).map(|_| stand.connect()).collect();
        first.write_all(b"x 1 2\n").unwrap();
        let (outcome, notes) = stand.stop();
        assert_eq!(outcome.totals["x"].spans, 1);
        assert!(notes[0].contains("10 connections were refused"), "{notes:?}");
        drop(more);
    }

    /// Somebody who never stops sending does not keep the server from ending.
    #[test]
    fn a_flood_ends_with_the_server() {
        let stand = Stand::with_turns(3);
        let mut stream = stand.connect();
        let flood = std::thread::spawn(move || {
            let lines = "x 1 2\n".repeat(1000);
            let mut sent = 0u64;
            while stream.write_all(lines.as_bytes()).is_ok() {
                sent += 1000;
            }
            sent
        });
        while stand
            .timeline
            .totals()
            .get("x")
            .is_none_or(|total| total.spans < 1000)
        {
            assert!(!flood.is_finished(), "it cannot send");
            std::thread::yield_now();
        }
        let (outcome, _) = stand.stop();
        let sent = flood.join().unwrap();
        let taken = outcome.totals["x"].spans;
        assert!(taken >= 1000 && taken <= sent + 1000, "{taken} of {sent}");
    }

    #[test]
    fn a_client_is_heard_and_told_when_nobody_listens() {
        let stand = Stand::new();
        let path = stand.path();
        let client = Client::open(&path).unwrap();
        let sender = Timeline::start(None, Some(client)).unwrap();
        let name = sender.name("x");
        sender
            .recorder()
            .record_since(name, Instant::now(), crate::timeline::Args::default());
        assert!(sender.finish().failed.is_none());
        let (outcome, notes) = stand.stop();
        assert_eq!((outcome.totals["x"].spans, notes.len()), (1, 0));

        let stand = Stand::new();
        let mut client = Client::open(&stand.path()).unwrap();
        stand.stop();
        let Ok(Said::Span(_, span)) = line::parse(b"x 1 2") else {
            panic!()
        };
        let gone = (0..100).find_map(|_| client.write("x", &span).and_then(|()| client.flush()).err());
        assert!(gone.unwrap().to_string().contains("socket"));
    }

    #[test]
    fn a_socket_that_cannot_be_is_an_error() {
        let timeline = Timeline::start(None, None).unwrap();
        let long = format!("/tmp/{}", "x".repeat(200));
        let error = Server::listen(Path::new(&long), &timeline).err().unwrap();
        assert!(error.to_string().contains("xxx"), "{error}");
    }
}
