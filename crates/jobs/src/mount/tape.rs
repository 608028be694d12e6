//! All objects one after the other, read by many and ahead of them.
//!
//! The objects in the order of their keys are a tape; a place on it is a number of bytes from its beginning. Each object is
//! cut into pieces of [`PIECE`] bytes, so a small one is one piece, and a request is for one piece.
//!
//! Who reads is not known, only what. A read that begins where an earlier one ended is taken for the same **stream**, and
//! what comes next on the tape is asked for before it is wanted, as far ahead as was read already. Ahead of a stream is read to
//! the end of its object, and on into the next ones as soon as it has gone from one object to the next: who
//! takes large files in any order does not pay for their neighbours. A read that belongs to no stream begins one. Where it begins in
//! the middle of a large object, it is a jump, and just its bytes are fetched.
//!
//! Memory is bounded: [`BUDGET`] bytes of pieces, and those that are waited for. A piece is dropped when all of it was handed
//! out, because the kernel has it then, or as the oldest one when there is no room. What was handed out is not read ahead
//! again, until something is asked for a second time: then the kernel has lost it, or an epoch has begun.
//!
//! Nobody waits for ever: a request ends by its own deadlines, and [`Tape::close`] sends all away.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use stokehold_objects::{Begun, Bucket, Cause, Object, ObjectError, Part};

/// What is asked for at once at most: large enough that the latency of a request does not count.
const PIECE: u64 = 4 << 20;

/// Bytes that are held for later at most.
const BUDGET: u64 = 256 << 20;

/// Requests at once for what nobody waits for yet; a bucket allows 64 in all, and those that are waited for come first.
const AHEAD: usize = 48;

/// Streams that are followed at once; the one that was idle for longest makes room.
const STREAMS: usize = 32;

/// How far ahead of a stream is read at least and at most. The reads of several threads come out of order by less than this.
const WINDOW: Range<u64> = 1 << 20..32 << 20;

/// The objects of a channel.
pub struct Tape {
    bucket: Bucket,
    objects: Vec<Object>,
    /// Where each object begins, and the end.
    starts: Vec<u64>,
    /// ETags that the list did not have: that of the first answer counts.
    versions: Vec<OnceLock<String>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    slots: HashMap<Span, Slot>,
    /// The slots by age.
    ages: BTreeMap<u64, Span>,
    next_age: u64,
    /// Bytes of all slots, also of those that are on their way.
    bytes: u64,
    /// Requests for what nobody waits for yet.
    ahead: usize,
    /// The one that was read last comes last.
    streams: Vec<Stream>,
    /// Where the pieces begin that were handed out whole.
    done: HashSet<u64>,
    closed: bool,
}

/// Bytes of the tape, all of one object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Span {
    start: u64,
    end: u64,
}

/// What comes for a span, and where is waited for it.
#[derive(Default)]
struct Cell {
    answer: OnceLock<Result<Bytes, ObjectError>>,
    came: Condvar,
}

/// A span that is on its way or there.
struct Slot {
    cell: Arc<Cell>,
    age: u64,
    /// Bytes that were not handed out yet.
    left: u64,
    /// The request, given up with the slot.
    _request: Option<Begun>,
}

/// Reads that follow each other.
struct Stream {
    /// Where it began.
    from: u64,
    /// The end of the furthest read.
    at: u64,
    /// The end of what was asked for.
    begun: u64,
    /// Whether a second read followed the first.
    goes_on: bool,
    /// Whether it went from one object to another.
    crossed: bool,
}

impl Tape {
    pub fn new(bucket: Bucket, objects: Vec<Object>) -> Arc<Self> {
        let mut end = 0;
        let mut starts = vec![0];
        for object in &objects {
            end += object.size;
            starts.push(end);
        }
        Arc::new(Self {
            versions: objects.iter().map(|_| OnceLock::new()).collect(),
            bucket,
            objects,
            starts,
            state: Mutex::default(),
        })
    }

    /// An object's facts. `number` must be below [`objects`](Self::objects).
    pub fn object(&self, number: usize) -> &Object {
        &self.objects[number]
    }

    /// How many objects there are.
    pub fn objects(&self) -> usize {
        self.objects.len()
    }

    /// Bytes of all objects.
    pub fn len(&self) -> u64 {
        self.starts[self.objects.len()]
    }

    /// The bytes of an object in a range, which is cut at its end. `number` must be below [`objects`](Self::objects).
    ///
    /// # Errors
    /// They cannot be had; the object is not the one that was listed; the tape was closed.
    pub fn read(self: &Arc<Self>, number: usize, range: Range<u64>) -> Result<Bytes, ObjectError> {
        let size = self.objects[number].size;
        let range = range.start.min(size)..range.end.min(size);
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let start = self.starts[number];
        let wanted = Span {
            start: start + range.start,
            end: start + range.end,
        };
        let mut state = self.state();
        let is_new = state.follow(wanted, start);
        let pieces = self.pieces(number, range.clone());
        let is_jump =
            is_new && range.start > 0 && !pieces.iter().any(|piece| state.slots.contains_key(piece));
        if is_jump {
            return self.bytes(state, wanted, wanted).1;
        }
        // What is waited for goes first.
        for piece in &pieces {
            if state.done.contains(&piece.start) {
                state.done.clear();
            }
            self.begin(&mut state, *piece, false)?;
        }
        self.run_ahead(&mut state);
        let mut whole = Vec::new();
        for piece in &pieces {
            let part = Span {
                start: wanted.start.max(piece.start),
                end: wanted.end.min(piece.end),
            };
            let bytes;
            (state, bytes) = self.bytes(state, *piece, part);
            match bytes? {
                bytes if pieces.len() == 1 => return Ok(bytes),
                bytes => whole.extend_from_slice(&bytes),
            }
        }
        Ok(whole.into())
    }

    /// Sends everybody away who waits, gives up every request, and forgets all bytes.
    pub fn close(&self) {
        let mut state = self.state();
        for slot in state.slots.values() {
            slot.cell.came.notify_all();
        }
        *state = State {
            closed: true,
            ..State::default()
        };
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock leaves the lists half-changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pieces that a range of an object lies in.
    fn pieces(&self, number: usize, range: Range<u64>) -> Vec<Span> {
        let (start, end) = (self.starts[number], self.starts[number + 1]);
        let firsts = range.start / PIECE..range.end.div_ceil(PIECE);
        let piece = |n: u64| Span {
            start: start + n * PIECE,
            end: end.min(start + (n + 1) * PIECE),
        };
        firsts.map(piece).collect()
    }

    /// The object that a place lies in; `place` must be below [`len`](Self::len).
    fn object_at(&self, place: u64) -> usize {
        // Empty objects begin at the same place as the one after them.
        self.starts.partition_point(|start| *start <= place) - 1
    }

    /// Waits for a span and takes a part of it.
    fn bytes<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
        span: Span,
        part: Span,
    ) -> (MutexGuard<'a, State>, Result<Bytes, ObjectError>) {
        if let Err(error) = self.begin(&mut state, span, false) {
            return (state, Err(error));
        }
        let Some(cell) = state.slots.get(&span).map(|slot| Arc::clone(&slot.cell)) else {
            return (state, Err(self.closed(span)));
        };
        while cell.answer.get().is_none() && !state.closed {
            state = cell.came.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let bytes = match cell.answer.get() {
            Some(Ok(bytes)) => {
                Ok(bytes.slice((part.start - span.start) as usize..(part.end - span.start) as usize))
            }
            Some(Err(error)) => Err(error.clone()),
            None => Err(self.closed(span)),
        };
        if bytes.is_ok() {
            state.handed_out(span, &cell, part.end - part.start);
            self.run_ahead(&mut state);
        }
        (state, bytes)
    }

    fn closed(&self, span: Span) -> ObjectError {
        ObjectError {
            uri: self.uri(span),
            cause: Cause::Other,
            reason: "the job has ended".to_owned(),
        }
    }

    fn uri(&self, span: Span) -> String {
        let object = &self.objects[self.object_at(span.start)];
        self.bucket.location().uri(&object.key)
    }

    /// Asks for a span, unless it is there or on its way.
    fn begin(self: &Arc<Self>, state: &mut State, span: Span, ahead: bool) -> Result<(), ObjectError> {
        if state.closed || state.slots.contains_key(&span) {
            return Ok(());
        }
        let number = self.object_at(span.start);
        let mut object = self.objects[number].clone();
        if object.etag.is_none() {
            object.etag = self.versions[number].get().cloned();
        }
        // What is waited for comes in any case, and what was read ahead makes room for it.
        if !state.make_room(span.end - span.start) && ahead {
            return Ok(());
        }
        let start = self.starts[number];
        let cell = Arc::new(Cell::default());
        let (tape, known) = (Arc::clone(self), Arc::clone(&cell));
        let request = self
            .bucket
            .begin_of(&object, span.start - start..span.end - start, move |answer| {
                tape.take(number, span, &known, ahead, answer)
            })?;
        state.ahead += usize::from(ahead);
        state.add(span, cell, Some(request));
        Ok(())
    }

    /// Takes what came.
    fn take(
        self: &Arc<Self>,
        number: usize,
        span: Span,
        cell: &Arc<Cell>,
        ahead: bool,
        answer: Result<Part, ObjectError>,
    ) {
        let answer = answer.and_then(|part| match part.etag {
            Some(etag) if *self.versions[number].get_or_init(|| etag.clone()) != etag => Err(ObjectError {
                uri: self.uri(span),
                cause: Cause::Changed,
                reason: "it was written anew since it was first read".to_owned(),
            }),
            _ => Ok(Bytes::from(part.bytes)),
        });
        let failed = answer.is_err();
        let mut state = self.state();
        // It is set once, here.
        let _ = cell.answer.set(answer);
        cell.came.notify_all();
        if state.closed {
            return;
        }
        state.ahead -= usize::from(ahead);
        // Who reads it again asks again.
        if failed
            && state
                .slots
                .get(&span)
                .is_some_and(|slot| Arc::ptr_eq(&slot.cell, cell))
        {
            state.remove(span);
        }
        self.run_ahead(&mut state);
    }

    /// Asks for what comes next on the tape, ahead of every stream.
    fn run_ahead(self: &Arc<Self>, state: &mut State) {
        let going = state.streams.iter().filter(|stream| stream.goes_on).count() as u64;
        let most = WINDOW.end.min(BUDGET / going.max(1));
        for i in (0..state.streams.len()).rev() {
            loop {
                let stream = &state.streams[i];
                let end = match stream.crossed {
                    true => self.len(),
                    false => self.starts[self.object_at(stream.at - 1) + 1],
                };
                let place = stream.begun;
                let window = (stream.at - stream.from).clamp(WINDOW.start, most);
                if !stream.goes_on || state.ahead >= AHEAD || place >= end.min(stream.at + window) {
                    break;
                }
                let number = self.object_at(place);
                let offset = place - self.starts[number];
                let Some(&piece) = self.pieces(number, offset..offset + 1).first() else {
                    break;
                };
                state.streams[i].begun = piece.end;
                // What cannot be begun is fetched, or fails, when it is read.
                if !state.done.contains(&piece.start) && self.begin(state, piece, true).is_err() {
                    break;
                }
            }
        }
    }
}

impl State {
    /// Finds the stream that a read belongs to, or begins one; whether it did. `object` is where its object begins.
    fn follow(&mut self, read: Span, object: u64) -> bool {
        let of = |stream: &Stream| {
            let from = stream.at.saturating_sub(WINDOW.end);
            let to = stream.begun.max(stream.at + WINDOW.start);
            (from..=to).contains(&read.start)
        };
        let Some(i) = self.streams.iter().rposition(of) else {
            if self.streams.len() >= STREAMS {
                self.streams.remove(0);
            }
            self.streams.push(Stream {
                from: read.start,
                at: read.end,
                begun: read.end,
                goes_on: false,
                crossed: false,
            });
            return true;
        };
        let mut stream = self.streams.remove(i);
        if read.end > stream.at {
            stream.crossed |= stream.at <= object;
            stream.at = read.end;
            stream.begun = stream.begun.max(read.end);
            stream.goes_on = true;
        }
        self.streams.push(stream);
        false
    }

    fn add(&mut self, span: Span, cell: Arc<Cell>, request: Option<Begun>) {
        let (age, left) = (self.next_age, span.end - span.start);
        self.next_age += 1;
        self.bytes += left;
        self.ages.insert(age, span);
        let slot = Slot {
            cell,
            age,
            left,
            _request: request,
        };
        self.slots.insert(span, slot);
    }

    fn remove(&mut self, span: Span) {
        if let Some(slot) = self.slots.remove(&span) {
            self.ages.remove(&slot.age);
            self.bytes -= span.end - span.start;
        }
    }

    fn handed_out(&mut self, span: Span, cell: &Arc<Cell>, bytes: u64) {
        // Another reader may have finished it, and a third one asked for it again.
        let slot = self.slots.get_mut(&span);
        let Some(slot) = slot.filter(|slot| Arc::ptr_eq(&slot.cell, cell)) else {
            return;
        };
        slot.left = slot.left.saturating_sub(bytes);
        if slot.left == 0 {
            self.remove(span);
            self.done.insert(span.start);
        }
    }

    /// Drops the oldest pieces that are there until so many bytes fit; false where what is on its way leaves no room.
    fn make_room(&mut self, bytes: u64) -> bool {
        while self.bytes + bytes > BUDGET {
            let there = |span: &&Span| {
                self.slots
                    .get(span)
                    .is_some_and(|slot| slot.cell.answer.get().is_some())
            };
            let Some(&oldest) = self.ages.values().find(there) else {
                return false;
            };
            self.remove(oldest);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::Ordering::SeqCst;
    use std::thread;
    use std::time::{Duration, Instant};

    use stokehold_objects::Options;
    use stokehold_s3_server::Server;
    use tempfile::TempDir;

    use super::*;

    fn contents(seed: u64, length: usize) -> Vec<u8> {
        let number = |i: usize| {
            (seed + 1)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .wrapping_mul(i as u64 + 7)
                >> 56
        };
        (0..length).map(|i| number(i) as u8).collect()
    }

    fn local(folder: &Path) -> Arc<Tape> {
        let bucket = Bucket::open(folder.to_str().unwrap()).unwrap();
        let objects = bucket.list().unwrap();
        Tape::new(bucket, objects)
    }

    fn served(file: &[u8]) -> (Server, TempDir, Arc<Tape>) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bucket")).unwrap();
        fs::write(folder.path().join("bucket/a"), file).unwrap();
        let server = Server::start(folder.path()).unwrap();
        let options = Options {
            settings: server.settings(),
            ..Options::default()
        };
        let bucket = Bucket::with_options("s3://bucket", options).unwrap();
        let objects = bucket.list().unwrap();
        (server, folder, Tape::new(bucket, objects))
    }

    #[test]
    fn any_reads_of_many_threads_get_the_right_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let sizes = [
            0,
            10,
            9_000_000,
            0,
            0,
            100_000,
            1,
            4 << 20,
            70_000,
            (4 << 20) + 1,
            0,
        ];
        let files: Vec<Vec<u8>> = (0..).zip(sizes).map(|(i, size)| contents(i, size)).collect();
        for (i, bytes) in files.iter().enumerate() {
            fs::write(folder.path().join(format!("{i:02}")), bytes).unwrap();
        }
        let tape = local(folder.path());
        assert_eq!(
            (tape.objects(), tape.len()),
            (11, sizes.iter().sum::<usize>() as u64)
        );
        thread::scope(|scope| {
            for seed in 0..4_u64 {
                let (tape, files) = (&tape, &files);
                scope.spawn(move || {
                    let mut state = seed + 1;
                    let mut draw = |below: usize| {
                        state = state
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        (state >> 33) as usize % below.max(1)
                    };
                    for _ in 0..300 {
                        let number = draw(files.len());
                        // Half of the reads are the next part of what a reader of whole files would read.
                        let from = draw(2) * draw(files[number].len());
                        let to = from + draw(300_000);
                        let bytes = tape.read(number, from as u64..to as u64).unwrap();
                        assert!(bytes == files[number][from..to.min(files[number].len()).max(from)]);
                    }
                    for (number, file) in files.iter().enumerate() {
                        for from in (0..file.len()).step_by(131_072) {
                            let bytes = tape.read(number, from as u64..from as u64 + 131_072).unwrap();
                            assert!(bytes == file[from..file.len().min(from + 131_072)]);
                        }
                    }
                });
            }
        });
        let state = tape.state();
        assert!(state.bytes <= BUDGET && state.streams.len() <= STREAMS);
        let held: u64 = state.slots.keys().map(|span| span.end - span.start).sum();
        assert_eq!((held, state.ages.len()), (state.bytes, state.slots.len()));
    }

    #[test]
    fn an_object_that_is_written_anew_is_an_error_and_never_a_mixture() {
        let old = contents(1, 12 << 20);
        let (_server, folder, tape) = served(&old);
        let part = |from: usize| tape.read(0, from as u64..from as u64 + 1000);
        assert!(part(9_000_000).unwrap() == old[9_000_000..9_001_000]);
        // The same size, perhaps in the same second: only the ETag tells.
        fs::write(folder.path().join("bucket/a"), contents(2, 12 << 20)).unwrap();
        for from in [0, 6_000_000] {
            let error = part(from).unwrap_err();
            assert_eq!(error.cause, Cause::Changed, "{error}");
            assert!(
                error.to_string().contains("s3://bucket/a: it was written anew"),
                "{error}"
            );
        }
    }

    #[test]
    fn closing_sends_everybody_away() {
        let (server, _folder, tape) = served(&contents(1, 1000));
        server.faults().silent.store(u64::MAX, SeqCst);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| tape.read(0, 0..1000));
            let started = Instant::now();
            // The list was the first request.
            while server.faults().requests.load(SeqCst) < 2 {
                assert!(
                    started.elapsed() < Duration::from_secs(60),
                    "nothing was asked for"
                );
                thread::sleep(Duration::from_millis(5));
            }
            tape.close();
            assert!(waiting.join().unwrap().unwrap_err().reason.contains("has ended"));
        });
        assert!(tape.read(0, 0..1000).is_err());
    }

    #[test]
    fn the_oldest_makes_room_and_what_is_on_its_way_stays() {
        let mut state = State::default();
        let span = |i: u64| Span {
            start: i * (BUDGET / 4),
            end: (i + 1) * (BUDGET / 4),
        };
        for i in 0..4 {
            let cell = Arc::new(Cell::default());
            if i > 0 {
                cell.answer.set(Ok(Bytes::new())).unwrap();
            }
            state.add(span(i), cell, None);
        }
        assert!(state.make_room(BUDGET / 2));
        let mut left: Vec<u64> = state.slots.keys().map(|span| span.start).collect();
        left.sort_unstable();
        assert_eq!(left, [span(0).start, span(3).start]);
        assert!(!state.make_room(BUDGET), "the first is on its way");
        assert_eq!((state.bytes, state.ages.len()), (BUDGET / 4, 1));
    }
}
