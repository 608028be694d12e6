//! All objects of a channel one after the other, with concurrent readers and read-ahead.
//!
//! The objects in the order of their keys form a tape; a place on it is a number of bytes from its beginning.
//! Each object is cut into pieces of [`PIECE`] bytes, so a small object is one piece, and a request fetches
//! one piece.
//!
//! The readers are unknown; only their reads are seen. A read that begins where an earlier one ended belongs
//! to the same **stream**. What follows on the tape is then requested in advance, as far ahead as the stream
//! has read already. Read-ahead stops at the end of the stream's object, until the stream has gone from one
//! object to the next: so a script that reads large files in any order does not pay for their neighbours. A
//! read that belongs to no stream begins one. If it begins in the middle of a large object, it is a jump, and
//! only its bytes are fetched.
//!
//! Memory is bounded by [`BUDGET`] bytes of pieces, plus the pieces that readers wait for. A piece is dropped
//! when all of it has been handed out, because then the kernel has it, or when it is the oldest one and there
//! is no room. Pieces that were handed out are not read ahead again until one is requested a second time:
//! then the kernel has dropped it, or an epoch has begun.
//!
//! In mode Cache a piece is first looked for on the disk. There are no jumps then: whole pieces are always
//! fetched. The first reader of a piece writes it to the disk, after its own read was answered: so there are
//! as many writers as readers, and pieces that were read ahead in vain are not kept.
//!
//! No read waits for ever: a request has its own deadlines, and [`Tape::close`] fails all pending reads.

mod state;

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use stokehold_objects::{Bucket, Cause, Object, ObjectError, Part};

use super::disk::Disk;
use state::{BUDGET, Cell, Span, State, WINDOW};

/// The largest request, bytes: large enough that the latency of a request does not count.
const PIECE: u64 = 4 << 20;

/// Concurrent requests for read-ahead. A bucket allows 64 in all, and those that readers wait for come first.
const AHEAD: usize = 48;

/// The objects of a channel.
pub struct Tape {
    bucket: Bucket,
    objects: Vec<Object>,
    /// The start of each object, and the end of the tape.
    starts: Vec<u64>,
    /// ETags that the list did not have: that of the first answer is used.
    versions: Vec<OnceLock<String>>,
    kept: Option<Kept>,
    state: Mutex<State>,
}

/// Where pieces are kept, and the server that they come from.
pub struct Kept {
    pub disk: Disk,
    pub server: String,
}

/// The result of a read.
#[derive(Debug, Default)]
pub struct Read {
    /// The bytes.
    pub bytes: Bytes,
    /// To be passed to [`Tape::keep`] after the read was answered.
    pub fresh: Vec<Fresh>,
}

/// A piece from the bucket that had not been read before.
#[derive(Debug)]
pub struct Fresh {
    span: Span,
    bytes: Bytes,
}

impl Tape {
    pub fn new(bucket: Bucket, objects: Vec<Object>, kept: Option<Kept>) -> Arc<Self> {
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
            kept,
            state: Mutex::default(),
        })
    }

    /// The listed properties of an object. `number` must be below [`objects`](Self::objects).
    pub fn object(&self, number: usize) -> &Object {
        &self.objects[number]
    }

    /// How many objects there are.
    pub fn objects(&self) -> usize {
        self.objects.len()
    }

    /// The total number of bytes.
    pub fn len(&self) -> u64 {
        self.starts[self.objects.len()]
    }

    /// Reads a range of an object; the range is cut at the object's end. `number` must be below
    /// [`objects`](Self::objects).
    ///
    /// # Errors
    /// The bytes cannot be fetched; the object is not the one that was listed; the tape was closed.
    pub fn read(self: &Arc<Self>, number: usize, range: Range<u64>) -> Result<Read, ObjectError> {
        let size = self.objects[number].size;
        let range = range.start.min(size)..range.end.min(size);
        if range.is_empty() {
            return Ok(Read::default());
        }
        let start = self.starts[number];
        let wanted = Span {
            start: start + range.start,
            end: start + range.end,
        };
        let mut fresh = Vec::new();
        let mut state = self.state();
        let is_new = state.follow(wanted, start);
        let pieces = self.pieces(number, range.clone());
        let is_near = pieces.iter().any(|piece| state.slots.contains_key(piece));
        if is_new && range.start > 0 && !is_near && self.kept.is_none() {
            let bytes = self.bytes(state, wanted, wanted, &mut fresh).1?;
            return Ok(Read { bytes, fresh });
        }
        // First request the pieces that this read waits for.
        for piece in &pieces {
            if state.done.contains(&piece.start) {
                state.done.clear();
            }
            state = self.load(state, *piece);
        }
        self.run_ahead(&mut state);
        let mut whole = Vec::new();
        for piece in &pieces {
            let part = Span {
                start: wanted.start.max(piece.start),
                end: wanted.end.min(piece.end),
            };
            let bytes;
            (state, bytes) = self.bytes(state, *piece, part, &mut fresh);
            match bytes? {
                bytes if pieces.len() == 1 => return Ok(Read { bytes, fresh }),
                bytes => whole.extend_from_slice(&bytes),
            }
        }
        let bytes = whole.into();
        Ok(Read { bytes, fresh })
    }

    /// Writes the pieces that a read fetched from the bucket to the disk, in mode Cache.
    ///
    /// # Errors
    /// The disk is full, or cannot be written. No data is lost: the piece is fetched again when it is read
    /// again.
    pub fn keep(&self, fresh: Vec<Fresh>) -> Result<(), ObjectError> {
        let Some(kept) = &self.kept else {
            return Ok(());
        };
        for Fresh { span, bytes } in fresh {
            let put = kept.disk.put(&self.what(kept, span), &bytes);
            put.map_err(|error| ObjectError {
                uri: kept.disk.root().display().to_string(),
                cause: Cause::Disk,
                reason: format!("what is read cannot be kept, and is fetched again: {error}"),
            })?;
        }
        Ok(())
    }

    /// Fails all pending reads, cancels all requests, and drops all bytes.
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
        // No code that holds the lock leaves the lists in an inconsistent state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pieces that contain a range of an object.
    fn pieces(&self, number: usize, range: Range<u64>) -> Vec<Span> {
        let (start, end) = (self.starts[number], self.starts[number + 1]);
        let firsts = range.start / PIECE..range.end.div_ceil(PIECE);
        let piece = |n: u64| Span {
            start: start + n * PIECE,
            end: end.min(start + (n + 1) * PIECE),
        };
        firsts.map(piece).collect()
    }

    /// The object at a place; `place` must be below [`len`](Self::len).
    fn object_at(&self, place: u64) -> usize {
        // Empty objects begin at the same place as the next one.
        self.starts.partition_point(|start| *start <= place) - 1
    }

    /// The origin of a piece on the disk: server, object, version, place.
    fn what(&self, kept: &Kept, span: Span) -> String {
        let number = self.object_at(span.start);
        let start = span.start - self.starts[number];
        format!("{}\n{}\nfrom {start}", kept.server, self.version(number))
    }

    /// What tells an object, as it was listed, from others and from other versions of it.
    pub fn version(&self, number: usize) -> String {
        let object = &self.objects[number];
        let version = match &object.etag {
            Some(etag) => etag.clone(),
            None => format!("changed {}", object.modified),
        };
        let uri = self.bucket.location().uri(&object.key);
        format!("{uri}\n{version}\n{} bytes", object.size)
    }

    /// Makes sure that a piece is there or on its way, from the disk or from the bucket.
    fn load<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>, piece: Span) -> MutexGuard<'a, State> {
        let kept = self
            .kept
            .as_ref()
            .filter(|_| !state.closed && !state.slots.contains_key(&piece));
        let Some(kept) = kept else {
            self.begin(&mut state, piece, false);
            return state;
        };
        let cell = state.add(piece);
        // Other readers of this piece wait for this read, and none of them for the lock.
        drop(state);
        let found = kept.disk.get(&self.what(kept, piece), piece.end - piece.start);
        let mut state = self.state();
        match found {
            Some(bytes) => cell.tell(Ok(bytes)),
            None => self.request(&mut state, piece, &cell, false),
        }
        state
    }

    /// Waits for a span and takes a part of it.
    fn bytes<'a>(
        self: &'a Arc<Self>,
        mut state: MutexGuard<'a, State>,
        span: Span,
        part: Span,
        fresh: &mut Vec<Fresh>,
    ) -> (MutexGuard<'a, State>, Result<Bytes, ObjectError>) {
        // The span may have been read by others and dropped meanwhile.
        let Some(cell) = self.begin(&mut state, span, false) else {
            return (state, Err(self.closed(span)));
        };
        while cell.answer.get().is_none() && !state.closed {
            state = cell.came.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let bytes = match cell.answer.get() {
            Some(Ok(bytes)) => {
                if state.hand_out(span, &cell, part.end - part.start) {
                    let bytes = bytes.clone();
                    fresh.push(Fresh { span, bytes });
                }
                self.run_ahead(&mut state);
                Ok(bytes.slice((part.start - span.start) as usize..(part.end - span.start) as usize))
            }
            Some(Err(error)) => Err(error.clone()),
            None => Err(self.closed(span)),
        };
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

    /// Requests a span, unless it is there or on its way. Returns `None` if the tape is closed, or if there
    /// is no room for a span that no reader waits for.
    fn begin(self: &Arc<Self>, state: &mut State, span: Span, ahead: bool) -> Option<Arc<Cell>> {
        if state.closed {
            return None;
        }
        if let Some(slot) = state.slots.get(&span) {
            return Some(Arc::clone(&slot.cell));
        }
        if ahead && !state.make_room(span.end - span.start) {
            return None;
        }
        let cell = state.add(span);
        self.request(state, span, &cell, ahead);
        Some(cell)
    }

    /// Requests a span that has its slot from the bucket.
    fn request(self: &Arc<Self>, state: &mut State, span: Span, cell: &Arc<Cell>, ahead: bool) {
        let number = self.object_at(span.start);
        let mut object = self.objects[number].clone();
        if object.etag.is_none() {
            object.etag = self.versions[number].get().cloned();
        }
        let start = self.starts[number];
        let (tape, known) = (Arc::clone(self), Arc::clone(cell));
        let begun = self
            .bucket
            .begin_of(&object, span.start - start..span.end - start, move |answer| {
                tape.take(number, span, &known, ahead, answer)
            });
        match begun {
            Ok(request) => {
                state.ahead += usize::from(ahead);
                if let Some(slot) = state.slots.get_mut(&span) {
                    slot._request = Some(request);
                }
            }
            Err(error) => {
                cell.tell(Err(error));
                state.remove(span);
            }
        }
    }

    /// Stores the answer to a request.
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
        let came = answer.is_ok();
        let mut state = self.state();
        cell.tell(answer);
        if state.closed {
            return;
        }
        state.ahead -= usize::from(ahead);
        match state.slot(span, cell) {
            Some(slot) if came => slot.is_fresh = true,
            // The next read of it requests it again.
            Some(_) => state.remove(span),
            None => {}
        }
        self.run_ahead(&mut state);
    }

    /// Requests what follows on the tape, ahead of every stream.
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
                let on_disk = |kept: &Kept| kept.disk.has(&self.what(kept, piece));
                if !state.done.contains(&piece.start) && !self.kept.as_ref().is_some_and(on_disk) {
                    self.begin(state, piece, true);
                }
            }
        }
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
        let objects = bucket.list().unwrap().objects;
        Tape::new(bucket, objects, None)
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
        let objects = bucket.list().unwrap().objects;
        (server, folder, Tape::new(bucket, objects, None))
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
                        let bytes = tape.read(number, from as u64..to as u64).unwrap().bytes;
                        assert!(bytes == files[number][from..to.min(files[number].len()).max(from)]);
                    }
                    for (number, file) in files.iter().enumerate() {
                        for from in (0..file.len()).step_by(131_072) {
                            let bytes = tape
                                .read(number, from as u64..from as u64 + 131_072)
                                .unwrap()
                                .bytes;
                            assert!(bytes == file[from..file.len().min(from + 131_072)]);
                        }
                    }
                });
            }
        });
        let state = tape.state();
        assert!(state.bytes <= BUDGET && state.streams.len() <= state::STREAMS);
        let held: u64 = state.slots.keys().map(|span| span.end - span.start).sum();
        assert_eq!((held, state.ages.len()), (state.bytes, state.slots.len()));
    }

    #[test]
    fn an_object_that_is_written_anew_is_an_error_and_never_a_mixture() {
        let old = contents(1, 12 << 20);
        let (_server, folder, tape) = served(&old);
        let part = |from: usize| {
            tape.read(0, from as u64..from as u64 + 1000)
                .map(|read| read.bytes)
        };
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
}
