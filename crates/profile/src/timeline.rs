//! Spans of a program, recorded while it runs.
//!
//! ```text
//!  Recorder (one a thread) ──► channel ─┐                        ┌─► events::Writer   trace files
//!  Recorder                ──► channel ─┼─► thread: totals, thin ─┤
//!  Server ◄── lines ◄── any process     ┘                        └─► Client           lines to another recorder
//! ```
//!
//! A [`SpanRecorder`] puts spans into its own channel, which has room for [`ROOM`] of them. It never waits: if
//! there is no room, the span is counted in the totals but missing from the files, and the [`Outcome`]
//! reports the number of such spans. A thread empties the channels every 20 ms and writes. So recording a
//! span costs two readings of the clock and a store, memory is bounded, and a stalled disk blocks no thread
//! of the program.
//!
//! Totals by name are exact: they count every span, written or not. The files have every span, except for
//! names that were announced as [details](Timeline::detail), which may have hundreds of spans a step: they
//! keep the first [`DETAILS`] spans of such a name, then as many of every second step, of every fourth, and
//! so on. So the details grow with the logarithm of the run's length, and a step has all of its details or
//! none. Everything else is limited by [`events::Options::limit_bytes`].
//!
//! Other processes send lines; see [`Server`], [`Client`] and [`mod@line`]. A line may carry a number instead
//! of a span: such [`Metrics`] are not part of the recording; the caller takes them.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::recording::Span;
use crate::{ProfileError, events};

mod client;
pub mod line;
#[cfg(unix)]
mod metrics;
#[cfg(unix)]
mod private;
#[cfg(unix)]
mod server;
#[cfg(unix)]
mod spans;
mod thin;

pub use client::Client;
#[cfg(unix)]
pub use metrics::{Metric, Metrics};
#[cfg(unix)]
pub use server::Server;
#[cfg(unix)]
pub use spans::Spans;
pub use thin::DETAILS;

use thin::Thinner;

/// The environment variable with the address for other processes' spans: a socket with a server, or a file.
pub const VARIABLE: &str = "STOKEHOLD_TIMELINE";
/// The most spans of a recorder that wait to be written.
pub const ROOM: usize = 8192;
/// At most this many names are kept apart; spans with further names are counted as `other`.
pub const NAMES: usize = 1024;
/// How often the thread empties the channels.
const PERIOD: Duration = Duration::from_millis(20);
/// How often the buffer is written out.
const FLUSH: Duration = Duration::from_millis(900);

/// A name of spans in one timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name(u16);

/// What a span has besides its time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Args {
    /// The step or epoch it belongs to.
    pub step: Option<u64>,
    /// The loader's worker that did it; `None` for the trainer.
    pub worker: Option<u32>,
    /// Bytes that were read.
    pub bytes: Option<u64>,
}

/// The sum over all spans of a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Total {
    /// Number of spans.
    pub spans: u64,
    /// Their duration together, seconds; spans of several workers overlap in time.
    pub seconds: f64,
}

/// The result of a timeline.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The exact totals, by name.
    pub totals: BTreeMap<String, Total>,
    /// Notes for readers of the files, one sentence each.
    pub notes: Vec<String>,
    /// Why some spans were not written.
    pub failed: Option<ProfileError>,
}

/// Writes spans into files. Dropping it is [`finish`](Self::finish) without the outcome.
pub struct Timeline {
    shared: Arc<Shared>,
    /// Dropped to end the thread.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<Outcome>>,
}

/// Records spans into a timeline. Use one per thread. A clone has its own channel.
pub struct SpanRecorder {
    shared: Arc<Shared>,
    spans: Sender<Raw>,
}

struct Shared {
    names: Mutex<Names>,
    /// New channels that the thread has not taken over yet.
    joining: Mutex<Vec<Receiver<Raw>>>,
    /// Spans that found no room, by name.
    lost: Vec<Lost>,
    totals: Mutex<Vec<Total>>,
}

#[derive(Default)]
struct Names {
    places: HashMap<String, u16>,
    names: Vec<String>,
    details: Vec<bool>,
}

#[derive(Default)]
struct Lost {
    spans: AtomicU64,
    nanos: AtomicU64,
}

/// A span that waits to be written.
struct Raw {
    name: Name,
    start: Start,
    duration: Duration,
    args: Args,
}

enum Start {
    Here(Instant),
    /// Unix seconds of another process's clock.
    There(f64),
}

impl Timeline {
    /// Starts the thread. Spans go to the files, to the other recorder, to both, or only into the totals.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub fn start(files: Option<events::Writer>, client: Option<Client>) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            names: Mutex::default(),
            joining: Mutex::default(),
            lost: (0..NAMES).map(|_| Lost::default()).collect(),
            totals: Mutex::default(),
        });
        let mut writer = Writing {
            shared: Arc::clone(&shared),
            clock: Clock::new(Instant::now(), SystemTime::now()),
            channels: Vec::new(),
            names: Vec::new(),
            thin: Vec::new(),
            totals: Vec::new(),
            files,
            client,
            outcome: Outcome::default(),
        };
        let (stop, stopped) = mpsc::channel::<()>();
        let work = move || {
            let mut flushed = Instant::now();
            loop {
                // The sender is only ever dropped: that is the signal to stop.
                let over = stopped.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout);
                let now = writer.empty();
                if over {
                    return writer.finish();
                }
                if flushed.elapsed() >= FLUSH {
                    writer.flush(now);
                    flushed = Instant::now();
                }
            }
        };
        let thread = std::thread::Builder::new().name("timeline".into()).spawn(work)?;
        Ok(Self {
            shared,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// A name for spans; the same text gives the same name.
    pub fn name(&self, name: &str) -> Name {
        self.shared.name(name)
    }

    /// A name for spans that occur many times a step: in long runs the files have them for some steps only.
    /// Call this before the first span of the name; a later call may have no effect.
    pub fn detail(&self, name: &str) -> Name {
        let name = self.shared.name(name);
        lock(&self.shared.names).details[usize::from(name.0)] = true;
        name
    }

    /// A recorder for one more thread.
    pub fn recorder(&self) -> SpanRecorder {
        SpanRecorder::new(Arc::clone(&self.shared))
    }

    /// The totals of the spans recorded until 20 ms ago.
    pub fn totals(&self) -> BTreeMap<String, Total> {
        self.shared.totals()
    }

    /// Writes all pending spans and closes the files. Spans that are recorded later are dropped.
    pub fn finish(mut self) -> Outcome {
        match self.join() {
            Some(Ok(outcome)) => outcome,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Outcome::default(),
        }
    }

    fn join(&mut self) -> Option<std::thread::Result<Outcome>> {
        drop(self.stop.take());
        Some(self.thread.take()?.join())
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        // The outcome is dropped here; a caller that needs it calls `finish`.
        let _ = self.join();
    }
}

impl SpanRecorder {
    fn new(shared: Arc<Shared>) -> Self {
        let (spans, channel) = bounded(ROOM);
        lock(&shared.joining).push(channel);
        Self { shared, spans }
    }

    /// Records a span. It never waits.
    pub fn record(&self, name: Name, start: Instant, duration: Duration, args: Args) {
        self.put(Raw {
            name,
            start: Start::Here(start),
            duration,
            args,
        });
    }

    /// Records a span that begins at `start` and ends now.
    pub fn record_since(&self, name: Name, start: Instant, args: Args) {
        self.record(name, start, start.elapsed(), args);
    }

    /// Records a span with another process's times, unix seconds. [`Span::name`] is ignored. It never waits.
    fn record_span(&self, name: Name, span: &Span) {
        self.put(Raw {
            name,
            start: Start::There(span.start),
            duration: Duration::try_from_secs_f64(span.duration).unwrap_or_default(),
            args: Args {
                step: span.step,
                worker: span.worker,
                bytes: span.bytes,
            },
        });
    }

    fn put(&self, span: Raw) {
        if let Err(full) = self.spans.try_send(span) {
            let span = full.into_inner();
            let lost = &self.shared.lost[usize::from(span.name.0)];
            lost.spans.fetch_add(1, Ordering::Relaxed);
            let nanos = u64::try_from(span.duration.as_nanos()).unwrap_or(u64::MAX);
            lost.nanos.fetch_add(nanos, Ordering::Relaxed);
        }
    }
}

impl Clone for SpanRecorder {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.shared))
    }
}

impl Shared {
    fn name(&self, name: &str) -> Name {
        let names = &mut *lock(&self.names);
        if let Some(&place) = names.places.get(name) {
            return Name(place);
        }
        let name = if names.names.len() < NAMES - 1 {
            name
        } else {
            "other"
        };
        let next = names.names.len() as u16;
        let place = *names.places.entry(name.to_owned()).or_insert(next);
        if place == next {
            names.names.push(name.to_owned());
            names.details.push(false);
        }
        Name(place)
    }

    fn totals(&self) -> BTreeMap<String, Total> {
        let totals = lock(&self.totals).clone();
        let names = lock(&self.names);
        let all = names.names.iter().enumerate().map(|(place, name)| {
            let lost = &self.lost[place];
            let written = totals.get(place).copied().unwrap_or_default();
            let total = Total {
                spans: written.spans + lost.spans.load(Ordering::Relaxed),
                seconds: written.seconds + lost.nanos.load(Ordering::Relaxed) as f64 / 1e9,
            };
            (name.clone(), total)
        });
        all.filter(|(_, total)| total.spans > 0).collect()
    }
}

/// The thread's state.
struct Writing {
    shared: Arc<Shared>,
    clock: Clock,
    channels: Vec<Receiver<Raw>>,
    /// The names so far, and whether each is a detail.
    names: Vec<(String, bool)>,
    thin: Vec<Thinner>,
    totals: Vec<Total>,
    files: Option<events::Writer>,
    client: Option<Client>,
    outcome: Outcome,
}

impl Writing {
    /// Takes all spans from the channels. Returns the current time, unix seconds.
    fn empty(&mut self) -> f64 {
        let here = Instant::now();
        let (now, jump) = self.clock.time(here, SystemTime::now());
        self.outcome.notes.extend(jump);
        self.channels.append(&mut lock(&self.shared.joining));
        let mut any = false;
        let mut channels = std::mem::take(&mut self.channels);
        channels.retain(|channel| {
            // At most one channel's capacity, so that a channel that fills as fast as it is emptied does not
            // block the others.
            for _ in 0..ROOM {
                match channel.try_recv() {
                    Ok(span) => self.span(&span, now, here),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => return false,
                }
                any = true;
            }
            true
        });
        self.channels = channels;
        if any {
            lock(&self.shared.totals).clone_from(&self.totals);
        }
        now
    }

    fn span(&mut self, span: &Raw, now: f64, here: Instant) {
        let place = usize::from(span.name.0);
        if place >= self.names.len() {
            let known = lock(&self.shared.names);
            let new = known.names.iter().zip(&known.details).skip(self.names.len());
            self.names
                .extend(new.map(|(name, detail)| (name.clone(), *detail)));
            self.thin.resize_with(self.names.len(), Thinner::default);
            self.totals.resize(self.names.len(), Total::default());
        }
        let seconds = span.duration.as_secs_f64();
        self.totals[place].spans += 1;
        self.totals[place].seconds += seconds;
        let (name, detail) = &self.names[place];
        if *detail && !self.thin[place].keeps(span.args.step) {
            return;
        }
        let start = match span.start {
            Start::Here(start) if start <= here => now - (here - start).as_secs_f64(),
            Start::Here(start) => now + (start - here).as_secs_f64(),
            Start::There(start) => start,
        };
        let Args { step, worker, bytes } = span.args;
        let span = Span {
            name: 0,
            start,
            duration: seconds,
            step,
            worker,
            bytes,
        };
        let outcome = &mut self.outcome;
        give_up(&mut self.files, outcome, |files| files.write(name, &span));
        give_up(&mut self.client, outcome, |client| client.write(name, &span));
    }

    fn flush(&mut self, now: f64) {
        give_up(&mut self.files, &mut self.outcome, |files| files.flush(now));
        give_up(&mut self.client, &mut self.outcome, Client::flush);
    }

    fn finish(mut self) -> Outcome {
        let outcome = &mut self.outcome;
        give_up(&mut self.client, outcome, Client::flush);
        if let Some(files) = self.files.take() {
            match files.removed() {
                0 => {}
                removed => outcome.notes.push(format!(
                    "timeline: {removed} older files were removed to stay within the limit of disk space"
                )),
            }
            if let Err(error) = files.finish() {
                outcome.failed.get_or_insert(error);
            }
        }
        for ((name, _), thin) in self.names.iter().zip(&self.thin) {
            if thin.stride() > 1 {
                outcome.notes.push(format!(
                    "timeline: of {name} the files have every span at first, later those of every {}th step",
                    thin.stride()
                ));
            }
        }
        let lost: u64 = self
            .shared
            .lost
            .iter()
            .map(|lost| lost.spans.load(Ordering::Relaxed))
            .sum();
        if lost > 0 {
            outcome.notes.push(format!(
                "timeline: {lost} spans came faster than they could be written and are in the totals only"
            ));
        }
        outcome.totals = self.shared.totals();
        self.outcome
    }
}

/// Writes to one of the outputs, and closes it for good if that fails.
fn give_up<W>(
    out: &mut Option<W>,
    outcome: &mut Outcome,
    work: impl FnOnce(&mut W) -> Result<(), ProfileError>,
) {
    if let Some(Err(error)) = out.as_mut().map(work) {
        *out = None;
        outcome.failed.get_or_insert(error);
    }
}

/// A panic of another thread leaves the state valid: every change is complete.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{Options, Writer, read_into};
    use crate::recording::{Node, Recording, span};
    use std::path::Path;
    use std::time::UNIX_EPOCH;

    fn unix_now() -> f64 {
        UNIX_EPOCH.elapsed().unwrap().as_secs_f64()
    }

    fn files(dir: &Path) -> Option<Writer> {
        Some(Writer::new(dir, Options::new(unix_now())))
    }

    fn node(dir: &Path) -> Node {
        let mut recording = Recording::default();
        read_into(dir, &mut recording);
        recording.sort();
        assert_eq!(recording.problems, [""; 0]);
        recording.nodes.pop().unwrap()
    }

    #[test]
    fn spans_of_many_threads_are_in_the_files_and_the_totals() {
        let dir = tempfile::tempdir().unwrap();
        let timeline = Timeline::start(files(dir.path()), None).unwrap();
        let before = unix_now();
        let (step, work) = (timeline.name(span::STEP), timeline.detail(span::DECODE));
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let recorder = timeline.recorder();
                scope.spawn(move || {
                    for number in 0..500 {
                        let args = Args {
                            step: Some(number),
                            worker: Some(worker),
                            bytes: None,
                        };
                        recorder.record(work, Instant::now(), Duration::from_millis(2), args);
                    }
                });
            }
        });
        let start = Instant::now();
        timeline.recorder().record_since(step, start, Args::default());
        let outcome = timeline.finish();
        assert!(
            outcome.failed.is_none() && outcome.notes.is_empty(),
            "{outcome:?}"
        );
        let decode = outcome.totals[span::DECODE];
        assert_eq!((decode.spans, outcome.totals[span::STEP].spans), (2000, 1));
        assert!((decode.seconds - 4.0).abs() < 1e-9);

        let node = node(dir.path());
        assert_eq!((node.spans_of(span::STEP).count(), node.spans.len()), (1, 2001));
        for worker in 0..4 {
            let steps: Vec<_> = node
                .spans_of(span::DECODE)
                .filter(|span| span.worker == Some(worker))
                .filter_map(|span| span.step)
                .collect();
            assert_eq!(steps, (0..500).collect::<Vec<_>>());
        }
        assert!(
            node.spans
                .iter()
                .all(|span| span.start > before - 0.1 && span.start < unix_now() + 0.1)
        );
    }

    /// Faster than anything is written: nothing waits, and the totals have it all.
    #[test]
    fn what_finds_no_room_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let timeline = Timeline::start(files(dir.path()), None).unwrap();
        let recorder = timeline.recorder();
        let name = timeline.name("x");
        let many = 20 * ROOM as u64;
        let begin = Instant::now();
        for step in 0..many {
            let args = Args {
                step: Some(step),
                ..Args::default()
            };
            recorder.record(name, begin, Duration::from_nanos(500), args);
        }
        let outcome = timeline.finish();
        assert_eq!(outcome.totals["x"].spans, many);
        assert!((outcome.totals["x"].seconds - many as f64 * 5e-7).abs() < 1e-6);
        let written = node(dir.path()).spans.len() as u64;
        let lost = many - written;
        let noted = outcome
            .notes
            .iter()
            .any(|note| note.starts_with(&format!("timeline: {lost} spans came faster")));
        assert_eq!(noted, lost > 0, "{:?}", outcome.notes);
        assert!(written >= ROOM as u64, "{written}");
    }

    #[test]
    fn totals_can_be_read_meanwhile_and_recorders_outlive_the_timeline() {
        let timeline = Timeline::start(None, None).unwrap();
        let recorder = timeline.recorder();
        let name = timeline.name("x");
        recorder.record(name, Instant::now(), Duration::from_secs(1), Args::default());
        let deadline = Instant::now() + Duration::from_secs(20);
        while timeline.totals().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(timeline.totals()["x"].spans, 1);
        drop(timeline);
        for _ in 0..3 * ROOM {
            recorder.record(name, Instant::now(), Duration::ZERO, Args::default());
        }
    }

    #[test]
    fn names_have_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let timeline = Timeline::start(files(dir.path()), None).unwrap();
        let recorder = timeline.recorder();
        for number in 0..2 * NAMES {
            let name = timeline.name(&format!("name{number}"));
            recorder.record(name, Instant::now(), Duration::ZERO, Args::default());
        }
        let totals = timeline.finish().totals;
        assert_eq!((totals.len(), totals["other"].spans), (NAMES, NAMES as u64 + 1));
        assert_eq!(node(dir.path()).names.len(), NAMES);
    }

    /// What a killed program leaves is a second old at most.
    #[test]
    fn the_files_are_never_more_than_a_second_behind() {
        let dir = tempfile::tempdir().unwrap();
        let timeline = Timeline::start(files(dir.path()), None).unwrap();
        let recorder = timeline.recorder();
        recorder.record(
            timeline.name("x"),
            Instant::now(),
            Duration::ZERO,
            Args::default(),
        );
        std::thread::sleep(Duration::from_millis(1500));
        assert_eq!(node(dir.path()).spans.len(), 1);
        drop(timeline);
    }

    #[test]
    #[cfg(unix)]
    fn what_cannot_be_written_is_told_and_holds_up_nobody() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("framework"), "no folder").unwrap();
        let client = Client::open(Path::new("/dev/full")).unwrap();
        let timeline = Timeline::start(files(dir.path()), Some(client)).unwrap();
        let recorder = timeline.recorder();
        recorder.record(
            timeline.name("x"),
            Instant::now(),
            Duration::ZERO,
            Args::default(),
        );
        let outcome = timeline.finish();
        assert_eq!(outcome.totals["x"].spans, 1);
        let failed = outcome.failed.unwrap().to_string();
        assert!(failed.contains("framework/pevents"), "{failed}");
    }

    #[test]
    fn lines_of_a_client_are_spans_of_a_line_file() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("framework")).unwrap();
        let path = dir.path().join("framework/here.timeline");
        let timeline = Timeline::start(None, Some(Client::open(&path).unwrap())).unwrap();
        let args = Args {
            step: Some(3),
            worker: Some(1),
            bytes: Some(4096),
        };
        let recorder = timeline.recorder();
        recorder.record(
            timeline.name("my phase"),
            Instant::now(),
            Duration::from_millis(250),
            args,
        );
        assert!(timeline.finish().failed.is_none());
        let node = node(dir.path());
        let [span] = node.spans[..] else { panic!() };
        assert_eq!(node.names, ["my_phase"]);
        assert!((span.duration - 0.25).abs() < 2e-6);
        assert_eq!(
            (span.step, span.worker, span.bytes),
            (Some(3), Some(1), Some(4096))
        );
    }
}
