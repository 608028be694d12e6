//! A batch in work, and the threads that fill its places.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use crossbeam_channel::{Receiver, RecvError, Sender, TryRecvError};
use stokehold_base::random::mix;
use stokehold_pipeline::{DrawKey, ImageError, Input, PreparedSample, SampleMut, run_mask};
use stokehold_storage::{SampleBytes, StorageError};

use crate::delay;
use crate::error::panic_message;
use crate::images::Pool;
use crate::order::SampleOccurrence;
use crate::shared::{Shared, Tools};
use crate::slots::{Slot, Slots};
use crate::{BadImage, BadImagePolicy, Batch, BatchNumbers, ImageBuffer, LoaderError, Pixels, Span, Stage};

/// A batch that workers are filling.
pub(crate) struct Flight {
    /// Its number in the epoch.
    batch: u64,
    /// The sample of each place.
    places: Vec<SampleOccurrence>,
    /// The samples of the next batch.
    next: Vec<usize>,
    slots: Slots<Outcome>,
    /// The first place that has failed; later places are skipped.
    failed: AtomicUsize,
}

/// The result of a place.
#[derive(Default)]
struct Outcome {
    /// The times; `None` if nothing was done.
    times: Option<Times>,
    /// The sample whose image is there; `None` if it was skipped.
    taken: Option<usize>,
    /// How often the epoch had the sample of the place before.
    again: u32,
    /// That sample, if workers only prepare.
    prepared: Option<PreparedSample>,
    /// The classes of its pixels; empty without masks.
    mask: Vec<u8>,
    /// Bad images found on the way.
    bad: Vec<BadImage>,
    /// Why the batch failed.
    failed: Option<LoaderError>,
}

/// A worker's time for one place, summed over the images that it tried there.
struct Times {
    worker: usize,
    start: Instant,
    read: Duration,
    decode: Duration,
    augment: Duration,
    /// Bytes of the files.
    bytes: u64,
}

/// A batch as a worker hands it over.
pub(crate) struct Done {
    pub batch: u64,
    pub outcome: Result<Batch, LoaderError>,
}

impl Flight {
    /// A new batch of `places`, of `size` numbers each; `next` has the next batch's samples.
    pub(crate) fn new(batch: u64, places: Vec<SampleOccurrence>, next: Vec<usize>, size: usize) -> Self {
        Self {
            batch,
            slots: Slots::new(places.len(), size),
            places,
            next,
            failed: AtomicUsize::new(usize::MAX),
        }
    }

    /// Combines the finished places: closes the gaps of skipped images and collects the reports. The first
    /// place that failed, if any, fails the batch.
    fn assemble(
        &self,
        images: BatchNumbers,
        outcomes: Vec<Outcome>,
        worker: usize,
        shared: &Shared,
    ) -> Result<Batch, LoaderError> {
        let count = outcomes.len();
        let size = images.len() / count;
        let mut filled = Batch {
            labels: Vec::with_capacity(count),
            samples: Vec::with_capacity(count),
            again: Vec::with_capacity(count),
            spans: Vec::with_capacity(3 * count + 1),
            ..Batch::empty(shared)
        };
        // Returns its memory also where a place has failed.
        let mut buffer = ImageBuffer::new(images, Arc::clone(&shared.pool));
        let images = buffer.images_mut();
        let mut prepared = Vec::new();
        let mut begun: Option<Instant> = None;
        for (place, outcome) in outcomes.into_iter().enumerate() {
            if let Some(error) = outcome.failed {
                return Err(error);
            }
            if let Some(times) = &outcome.times {
                begun = Some(begun.map_or(times.start, |begun| begun.min(times.start)));
                times.spans(outcome.taken.is_some(), &mut filled.spans);
            }
            filled.bad.extend(outcome.bad);
            let Some(sample) = outcome.taken else { continue };
            let place_of_next = filled.samples.len();
            if place_of_next != place {
                images.shift(place * size, place_of_next * size, size);
            }
            prepared.extend(outcome.prepared);
            if filled.masks.is_empty() {
                filled.masks.reserve_exact(outcome.mask.len() * count);
            }
            filled.masks.extend_from_slice(&outcome.mask);
            filled.labels.push(shared.source.class(sample));
            filled.samples.push(sample as u64);
            filled.again.push(outcome.again);
        }
        images.truncate(filled.samples.len() * size);
        filled.shape[0] = filled.samples.len();
        filled.pixels = match shared.options.device {
            Some(_) => Pixels::Prepared(prepared),
            None => Pixels::Host(buffer),
        };
        if let Some(start) = begun {
            filled.spans.push(Span {
                worker,
                stage: Stage::Batch,
                start,
                duration: start.elapsed(),
                bytes: None,
            });
        }
        Ok(filled)
    }
}

impl Times {
    /// One span per stage, one after the other; a skipped image has been read at most.
    fn spans(&self, taken: bool, into: &mut Vec<Span>) {
        let mut start = self.start;
        for (stage, duration) in [
            (Stage::Read, self.read),
            (Stage::Decode, self.decode),
            (Stage::Augment, self.augment),
        ] {
            if stage == Stage::Read || taken {
                into.push(Span {
                    worker: self.worker,
                    stage,
                    start,
                    duration,
                    bytes: (stage == Stage::Read).then_some(self.bytes),
                });
            }
            start += duration;
        }
    }
}

/// The state of a worker thread.
pub(crate) struct Worker {
    number: usize,
    epoch: u64,
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    tools: Tools,
    /// The bytes of the current image; reused, so that reading allocates only for a file larger than all
    /// before.
    bytes: SampleBytes,
    /// The bytes of its mask.
    mask_bytes: Vec<u8>,
    /// Whether a panic may have left the fields above inconsistent: then they are replaced before their next
    /// use.
    spoiled: bool,
    /// The seed of the draws of the current place.
    seed: u64,
    /// The number of further images that are announced to the source.
    expecting: u32,
    /// Whether the latest read failed because the system lacks files or memory.
    exhausted: bool,
    /// Whether the latest image has not the size of the others, which no policy leaves out: nearly all may be so.
    unlike: bool,
}

/// After a slow read, this many images are announced to the source, one batch ahead. An announcement costs
/// about 1 % of the work on an image of a cached file, so there are none while reads are fast.
const EXPECT: u32 = 1024;

/// Slower than 2 GB/s plus 20 us: not a copy from memory.
fn is_slow(read: Duration, bytes: usize) -> bool {
    read > Duration::from_micros(20) + Duration::from_nanos(bytes as u64 / 2)
}

impl Worker {
    pub(crate) fn new(
        number: usize,
        epoch: u64,
        shared: &Arc<Shared>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, LoaderError> {
        let (tools, bytes) = shared.tools()?;
        Ok(Self {
            number,
            epoch,
            shared: Arc::clone(shared),
            stop: Arc::clone(stop),
            tools,
            bytes,
            mask_bytes: Vec::new(),
            spoiled: false,
            seed: shared.options.seed,
            expecting: 0,
            exhausted: false,
            unlike: false,
        })
    }

    /// Fills places of one batch after the other until there are no more batches or the consumer stops.
    ///
    /// A worker continues after an error: the batch fails as a whole, the consumer takes no later batch, and
    /// every earlier batch is claimed already.
    pub(crate) fn work(mut self, flights: &Receiver<Arc<Flight>>, done: &Sender<Done>) {
        self.fill_all(flights, done);
        self.retire();
    }

    fn fill_all(&mut self, flights: &Receiver<Arc<Flight>>, done: &Sender<Done>) {
        while let Ok(flight) = self.next_flight(flights) {
            let batch = flight.batch;
            let outcome = match self.fill_flight(&flight) {
                ControlFlow::Continue(None) => continue,
                ControlFlow::Continue(Some(outcome)) => outcome,
                ControlFlow::Break(()) => return,
            };
            if done.send(Done { batch, outcome }).is_err() {
                return;
            }
        }
    }

    /// The next batch to fill. While there is none, the source knows that this thread has nothing to do.
    fn next_flight(&self, flights: &Receiver<Arc<Flight>>) -> Result<Arc<Flight>, RecvError> {
        match flights.try_recv() {
            Ok(flight) => Ok(flight),
            Err(TryRecvError::Disconnected) => Err(RecvError),
            Err(TryRecvError::Empty) => {
                self.shared.source.rest(1);
                let flight = flights.recv();
                self.shared.source.rest(-1);
                flight
            }
        }
    }

    /// Fills places of a batch until there is none left: the batch, if this worker finished its last place. Breaks off if the
    /// consumer stops.
    pub(crate) fn fill_flight(
        &mut self,
        flight: &Flight,
    ) -> ControlFlow<(), Option<Result<Batch, LoaderError>>> {
        let pool: Arc<Pool> = Arc::clone(&self.shared.pool);
        while let Some(mut slot) = flight.slots.claim(|len| pool.take(len)) {
            if self.stop.load(Ordering::Relaxed) {
                return ControlFlow::Break(());
            }
            self.fill(flight, &mut slot);
            // The worker that finishes the last place knows that all are claimed.
            if let Some((images, outcomes)) = slot.finish() {
                let outcome = no_panic(|| flight.assemble(images, outcomes, self.number, &self.shared));
                return ControlFlow::Continue(Some(outcome));
            }
        }
        ControlFlow::Continue(None)
    }

    /// Whether it makes images of this loader.
    pub(crate) fn is_of(&self, shared: &Arc<Shared>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Continues with images of another epoch.
    pub(crate) fn turn_to(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// Ends, and leaves its tools to the next worker.
    pub(crate) fn retire(self) {
        if !self.spoiled {
            self.shared.keep_tools(self.tools, self.bytes);
        }
    }

    /// Does the work of one place, and finishes it in every case.
    fn fill(&mut self, flight: &Flight, slot: &mut Slot<'_, Outcome>) {
        let place = slot.place();
        // The batch reports its first failure, so the reported one does not depend on the workers.
        if place > flight.failed.load(Ordering::Relaxed) {
            return;
        }
        let (image, outcome) = slot.parts();
        let done = no_panic(|| {
            if self.expecting > 0
                && let Some(&sample) = flight.next.get(place)
            {
                self.expecting -= 1;
                self.shared.source.expect(sample);
            }
            let SampleOccurrence { sample, again } = flight.places[place];
            outcome.again = again;
            self.seed = seed_of(self.shared.options.seed, again);
            self.place(sample, image, outcome)
        });
        if let Err(error) = done {
            self.spoiled |= matches!(error, LoaderError::WorkerPanicked { .. });
            outcome.failed = Some(error);
            flight.failed.fetch_min(place, Ordering::Relaxed);
        }
    }

    /// Puts a sample, or its replacement by the policy, into a place.
    fn place(
        &mut self,
        sample: usize,
        mut place: SampleMut<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), LoaderError> {
        let bad = match self.image(sample, place.reborrow(), outcome, false) {
            Ok(()) => {
                outcome.taken = Some(sample);
                return Ok(());
            }
            Err(bad) => self.unless_fatal(bad)?,
        };
        match self.shared.options.bad_images {
            BadImagePolicy::Error => Err(LoaderError::BadImage(bad)),
            BadImagePolicy::Skip => {
                outcome.bad.push(bad);
                Ok(())
            }
            BadImagePolicy::Substitute => {
                outcome.bad.push(bad.clone());
                self.substitute(bad, &[], place, outcome)
            }
        }
    }

    /// The bad image, unless it ends the epoch by every policy.
    fn unless_fatal(&mut self, bad: BadImage) -> Result<BadImage, LoaderError> {
        if std::mem::take(&mut self.unlike) {
            return Err(LoaderError::BadImage(bad));
        }
        match std::mem::take(&mut self.exhausted) {
            false => Ok(bad),
            true => Err(LoaderError::System {
                name: bad.name,
                reason: bad.reason,
            }),
        }
    }

    /// Reads and processes one image into `place`, or into the outcome if it is only prepared; a substitute
    /// must be good. A panic counts as the image's error: the worker loses only this image.
    fn image(
        &mut self,
        sample: usize,
        place: SampleMut<'_>,
        outcome: &mut Outcome,
        stands_in: bool,
    ) -> Result<(), BadImage> {
        let made = catch_unwind(AssertUnwindSafe(|| self.make(sample, place, outcome, stands_in)));
        let made = made.unwrap_or_else(|panic| {
            self.spoiled = true;
            let message = panic_message(&*panic);
            Err(format!(
                "{message} (a panic, which is a bug in stokehold: please report it with the file)"
            ))
        });
        made.map_err(|reason| BadImage {
            sample: sample as u64,
            name: self.shared.source.name(sample),
            reason,
        })
    }

    /// Does the work of [`Worker::image`]; the error says what is wrong with the image.
    fn make(
        &mut self,
        sample: usize,
        place: SampleMut<'_>,
        outcome: &mut Outcome,
        stands_in: bool,
    ) -> Result<(), String> {
        if self.spoiled {
            (self.tools, self.bytes) = self.shared.tools().map_err(text)?;
            self.spoiled = false;
        }
        let source = &self.shared.source;
        // Before and after the read's own clock, so that no wait for a core counts as one for storage.
        let delayed = delay::of_this_thread();
        let (start, cpu) = (Instant::now(), ThreadTime::try_now().ok());
        let times = outcome.times.get_or_insert(Times {
            worker: self.number,
            start,
            read: Duration::ZERO,
            decode: Duration::ZERO,
            augment: Duration::ZERO,
            bytes: 0,
        });
        let read = source.read(sample, &mut self.bytes);
        self.exhausted = read.as_ref().is_err_and(StorageError::is_exhaustion);
        let mut read = read.map_err(text);
        if self.shared.mask_table.is_some() && read.is_ok() {
            let of_mask =
                |error: StorageError| format!("its mask {}: {}", source.mask_name(sample), error.reason());
            let of_file = source.read_mask(sample, &mut self.mask_bytes);
            self.exhausted = of_file.as_ref().is_err_and(StorageError::is_exhaustion);
            read = of_file.map_err(of_mask);
        }
        let took = start.elapsed();
        let read_cpu = cpu.and_then(|cpu| cpu.try_elapsed().ok());
        times.read += took;
        let took = took.saturating_sub(delay::of_this_thread().saturating_sub(delayed));
        if is_slow(took, self.bytes.file().len()) {
            self.expecting = EXPECT;
        }
        read?;
        times.bytes += (self.bytes.file().len() + self.mask_bytes.len()) as u64;
        let key = DrawKey {
            seed: self.seed,
            epoch: self.epoch,
            sample: sample as u64,
        };
        let bytes = input(&self.bytes);
        let unlike = &mut self.unlike;
        let mut of_image = |error| match error {
            ImageError::Mask(error) => format!("its mask {}: {error}", source.mask_name(sample)),
            error => {
                *unlike = matches!(error, ImageError::OtherSize { .. });
                error.to_string()
            }
        };
        let _turn = self.shared.turn();
        let mask = self
            .shared
            .mask_table
            .as_ref()
            .map(|table| (&self.mask_bytes[..], table));
        match &mut self.tools {
            Tools::Making(runner) => {
                let took = match mask {
                    Some(mask) => {
                        outcome.mask.resize(runner.output_len() / 3, 0);
                        runner.run_pair(bytes, mask, key, place, &mut outcome.mask)
                    }
                    None => runner.run(bytes, key, place),
                };
                let took = took.map_err(of_image)?;
                times.decode += took.decode;
                times.augment += took.augment;
            }
            Tools::Preparing(preparer) => {
                let begin = Instant::now();
                if let Some(mask) = mask {
                    let options = &self.shared.options.decode;
                    let mask = run_mask(bytes.bytes, mask, &self.shared.pipeline, options, key);
                    outcome.mask = mask.map_err(&mut of_image)?.data;
                }
                let prepared = match stands_in {
                    true => preparer.prepare_checked(bytes, key),
                    false => preparer.prepare(bytes, key),
                };
                outcome.prepared = Some(prepared.map_err(of_image)?);
                times.decode += begin.elapsed();
            }
        }
        if let (Some(read_cpu), Some(cpu)) = (read_cpu, cpu.and_then(|cpu| cpu.try_elapsed().ok())) {
            self.shared.meter.add(cpu, took.saturating_sub(read_cpu));
        }
        Ok(())
    }

    /// Prepares another image of the same class and none of `but`, for a place whose sample the epoch had `again` times
    /// before. Adds further bad images to `met`; `None` if they are too many.
    pub(crate) fn prepare_instead(
        &mut self,
        bad: BadImage,
        again: u32,
        but: &[u64],
        met: &mut Vec<BadImage>,
    ) -> Result<Option<(u64, PreparedSample, Vec<u8>)>, LoaderError> {
        let mut outcome = Outcome::default();
        self.seed = seed_of(self.shared.options.seed, again);
        no_panic(|| self.substitute(bad, but, SampleMut::U8(&mut []), &mut outcome))?;
        met.append(&mut outcome.bad);
        let taken = outcome.taken.map(|sample| sample as u64);
        Ok(taken
            .zip(outcome.prepared)
            .map(|(taken, prepared)| (taken, prepared, outcome.mask)))
    }

    /// Another image of the same class and none of `but`: the first good one from a drawn position on.
    fn substitute(
        &mut self,
        bad: BadImage,
        but: &[u64],
        mut place: SampleMut<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), LoaderError> {
        let shared = Arc::clone(&self.shared);
        let limit = shared.options.bad_image_limit;
        let class = &shared.by_class[&shared.source.class(bad.sample as usize)];
        let draw = mix(mix(mix(self.seed) ^ self.epoch) ^ bad.sample);
        let first = (draw % class.len() as u64) as usize;
        let others = class[first..]
            .iter()
            .chain(&class[..first])
            .filter(|&&other| other as u64 != bad.sample && !but.contains(&(other as u64)));
        for (tries, &other) in others.enumerate() {
            // The consumer would stop at the limit too, but only after this search through the class.
            if tries >= limit || self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            match self.image(other, place.reborrow(), outcome, true) {
                Ok(()) => {
                    outcome.taken = Some(other);
                    return Ok(());
                }
                Err(also_bad) => outcome.bad.push(self.unless_fatal(also_bad)?),
            }
        }
        Err(LoaderError::NoSubstitute(bad))
    }
}

/// The seed of the draws of a sample that the epoch had `again` times before: other draws each time.
fn seed_of(seed: u64, again: u32) -> u64 {
    /// Keeps these draws apart from others of the same seed.
    const KEY: u64 = 0x6167_6169_6e21_0000;
    match again {
        0 => seed,
        again => mix(mix(seed ^ KEY) ^ u64::from(again)),
    }
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

/// A sample as a pipeline's input, with all that its source knows of it.
pub fn input(bytes: &SampleBytes) -> Input<'_> {
    Input {
        bytes: bytes.file(),
        tables: bytes.tables(),
    }
}

/// The result of `work`, or an error if it panics.
///
/// These are panics outside of making one image. They may leave only the worker's and this batch's state
/// inconsistent, and no later batch is handed over.
fn no_panic<T>(work: impl FnOnce() -> Result<T, LoaderError>) -> Result<T, LoaderError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(LoaderError::panicked(&*panic)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_from_memory_are_not_slow_and_disks_are() {
        assert!(!is_slow(Duration::from_micros(30), 110_000));
        assert!(is_slow(Duration::from_micros(300), 110_000));
        assert!(!is_slow(Duration::from_millis(1), 10_000_000));
        assert!(is_slow(Duration::from_micros(60), 0));
    }
}
