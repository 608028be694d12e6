//! The batches of one epoch, in order.
//!
//! The consumer opens batches for the workers and receives them in the order in which they are done; early
//! ones wait here for their turn. A batch is opened only while fewer than `prefetch` are with the workers or
//! waiting, and that alone bounds the memory.
//!
//! Every worker gets every batch, in order, over its own channel, claims places of it until there are none,
//! and goes to the next. A channel has room for `prefetch` batches. That is enough to never wait for a busy
//! worker: its batch is unfinished, so at most `prefetch - 1` are open after it.
//!
//! The batches of an epoch may be [given](Loader::given) while it runs: it is as long as what has come, until the giver ends it.
//!
//! An epoch can have a [`Supply`] instead of workers: then the batches come from elsewhere, and everything behind that, such
//! as the policy for bad images and the position, is the same code.
//!
//! With [`Workers::Auto`](crate::Workers::Auto) the consumer looks, while it waits for a batch, whether more workers
//! would help, and starts them at once; they take part in the batches that are open.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use stokehold_pipeline::{Pipeline, Preparation};

use crate::loader::check_memory;
use crate::order::Order;
use crate::shared::Shared;
use crate::worker::{Done, Flight, Worker};
use crate::{BadImage, BadImagePolicy, Batch, BatchStream, Loader, LoaderError, State};

/// A device that makes the batches of a loader, of samples that its workers prepare.
pub trait Device: fmt::Debug + Send + Sync {
    /// How workers prepare samples for it.
    fn preparation(&self) -> Arc<dyn Preparation>;

    /// Checks that the device can make batches of a loader's pipeline, which is valid and ends in the loader's sample type.
    ///
    /// # Errors
    /// It cannot.
    fn check(&self, pipeline: &Pipeline) -> Result<(), LoaderError>;

    /// The batches of an epoch with images on the device, of those with prepared samples. `given` says whether the batches are
    /// [given](Loader::given) one by one, so that the consumer may wait for an empty one before it gives another.
    fn epoch(&self, loader: &Loader, prepared: Batches, given: bool) -> Box<dyn BatchStream>;
}

/// Who makes the batches of a loader in place of its own workers, such as other machines.
pub trait Elsewhere: fmt::Debug + Send + Sync {
    /// Begins with these batches of an epoch. `loader` is the one that asks; the sampler, the policy for bad images and the
    /// positions are its own.
    fn begin(&self, loader: &Loader, epoch: u64, batches: Range<u64>) -> Box<dyn Supply>;

    /// Who has made how many batches so far.
    fn made(&self) -> Vec<(String, u64)>;
}

/// An epoch's batches from elsewhere.
///
/// A batch is what [`NumberedEpoch`](crate::NumberedEpoch) says of its number. Dropping the supply ends its work.
pub trait Supply: Send + Sync {
    /// The batch of a number: they are asked for in order, each once, from the first on to the last. Waits for it, until
    /// `deadline` if there is one; `None` if that has passed, and then the same number is asked for again.
    ///
    /// # Errors
    /// The batch cannot be made; the epoch ends.
    fn take(&mut self, batch: u64, deadline: Option<Instant>) -> Result<Option<Batch>, LoaderError>;

    /// Batches in work or ready.
    fn in_flight(&self) -> usize;

    /// Batches in work.
    fn loading(&self) -> usize;
}

/// The batches of one epoch that the workers make or prepare, or that come from a [`Supply`].
pub struct Batches {
    shared: Arc<Shared>,
    epoch: u64,
    order: Order,
    /// The next batch to open.
    opened: u64,
    /// The next batch to announce to a source that wants to know more than the next one.
    announced: u64,
    /// The samples of batches that are announced and not open.
    ahead: usize,
    /// The next batch that the consumer takes.
    taken: u64,
    /// The end of the epoch, or of the batches that have been given.
    end: u64,
    prefetch: u64,
    /// Batches that are done before their turn.
    early: BTreeMap<u64, Result<Batch, LoaderError>>,
    /// The batches that are open, for workers that begin later; empty if there will be none.
    open: VecDeque<Arc<Flight>>,
    /// Bad images of batches that became empty, to be reported with the next one or by
    /// [`BatchStream::unreported`].
    bad: Vec<BadImage>,
    /// Whether this epoch has had a batch that is not empty; batches before a resume count as one.
    any: bool,
    /// An error before the first batch.
    failed: Option<LoaderError>,
    /// Since when the consumer has been waiting for the next batch.
    waiting: Option<Instant>,
    /// Since when the consumer has had the last batch, and its images.
    had: Option<(Instant, usize)>,
    ended: bool,
    crew: Option<Crew>,
    /// In place of the crew.
    supply: Option<Box<dyn Supply>>,
}

/// The worker threads and the channels to and from them.
struct Crew {
    /// One for each worker; empty once the last batch of the epoch is open, so that workers end by
    /// themselves.
    flights: Vec<Sender<Arc<Flight>>>,
    done: Receiver<Done>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    /// For workers that begin later; `None` if there will be none, so that the consumer sees when the last one has
    /// ended.
    to_consumer: Option<Sender<Done>>,
    /// The most batches that can be open at a time.
    most_open: usize,
}

/// How often a waiting consumer looks whether more workers would help.
const LOOK: Duration = Duration::from_millis(2);

impl Batches {
    /// Starts the threads for the batches from `first` on.
    pub(crate) fn start(shared: Arc<Shared>, epoch: u64, order: Order, first: u64) -> Self {
        let workers = shared.begin_epoch();
        let mut batches = Self::new(shared, epoch, order, first, workers);
        if let Err(refused) = batches.receive() {
            batches.failed = Some(refused);
            return batches;
        }
        if let Err(forked) = batches.shared.check_process() {
            batches.failed = Some(forked);
            return batches;
        }
        // More workers than open places would have nothing to do.
        let places = batches.part_size().saturating_mul(batches.prefetch as usize);
        match Crew::start(&batches.shared, workers.min(places), batches.left(), epoch) {
            Ok(crew) => batches.crew = Some(crew),
            Err(error) => batches.failed = Some(error),
        }
        batches.open();
        batches
    }

    /// The batches from `first` on, which `supply` makes.
    pub(crate) fn supplied(
        shared: Arc<Shared>,
        epoch: u64,
        order: Order,
        first: u64,
        supply: Box<dyn Supply>,
    ) -> Self {
        let mut batches = Self::new(shared, epoch, order, first, 0);
        batches.supply = Some(supply);
        batches
    }

    fn new(shared: Arc<Shared>, epoch: u64, order: Order, first: u64, workers: usize) -> Self {
        let end = order.yields();
        let prefetch = shared.prefetch(workers) as u64;
        let prefetch = match order.is_given() {
            true => prefetch,
            false => prefetch.min(end - first),
        };
        Self {
            order,
            shared,
            epoch,
            opened: first,
            announced: first,
            ahead: 0,
            taken: first,
            end,
            prefetch,
            early: BTreeMap::new(),
            open: VecDeque::new(),
            bad: Vec::new(),
            any: first > 0,
            failed: None,
            waiting: None,
            had: None,
            ended: false,
            crew: None,
            supply: None,
        }
    }

    /// The batches that may still be taken.
    fn left(&self) -> u64 {
        match self.order.grows() {
            true => u64::MAX,
            false => self.end.saturating_sub(self.taken),
        }
    }

    /// The most samples of a batch; of one that is given, any number.
    fn part_size(&self) -> usize {
        match self.order.is_given() {
            true => usize::MAX,
            false => self.shared.layout().part_size(),
        }
    }

    /// Takes in the batches that have been given.
    ///
    /// # Errors
    /// One of them cannot be made; the epoch ends.
    fn receive(&mut self) -> Result<(), LoaderError> {
        self.order.receive();
        let [_, height, width] = self.shared.shape;
        for batch in self.end..self.order.yields() {
            let samples = self.order.batch(batch);
            check_memory(
                samples.len(),
                self.shared.options.sample_type,
                (width as u64, height as u64),
            )?;
            let count = self.shared.source.len();
            if let Some(beyond) = samples.iter().find(|&&sample| sample >= count) {
                return Err(LoaderError::Options {
                    reason: format!("batch {batch}: sample {beyond}: must be below {count}"),
                });
            }
        }
        self.end = self.order.yields();
        self.order.forget(self.opened);
        Ok(())
    }

    /// Opens batches up to the prefetch.
    fn open(&mut self) {
        let grows = self.order.grows();
        let Some(crew) = &mut self.crew else { return };
        let size = self.shared.image_size();
        while self.opened < self.end && self.opened - self.taken < self.prefetch {
            let samples = self.order.places(self.opened);
            let source = &self.shared.source;
            let reach = source.reach();
            if reach > 0 {
                while self.announced < self.end && self.ahead < samples.len() + reach {
                    for sample in self.order.batch(self.announced) {
                        source.expect(sample);
                        self.ahead += 1;
                    }
                    self.announced += 1;
                }
                self.ahead -= samples.len();
            }
            if samples.is_empty() {
                let empty = Batch::empty(&self.shared);
                self.early.insert(self.opened, Ok(empty));
                self.opened += 1;
                self.order.forget(self.opened);
                continue;
            }
            // Announce each batch only once, also for a slow consumer.
            let next = match self.opened + 1 {
                next if next < self.end && reach == 0 => self.order.batch(next),
                _ => Vec::new(),
            };
            let flight = Arc::new(Flight::new(self.opened, samples, next, size));
            for worker in &crew.flights {
                // A worker may be gone; if all are, taking the batch reports it.
                let _ = worker.send(Arc::clone(&flight));
            }
            if crew.to_consumer.is_some() {
                self.open.push_back(flight);
                // Those that were taken are behind.
                while self.open.len() as u64 > self.opened + 1 - self.taken {
                    self.open.pop_front();
                }
            }
            self.opened += 1;
            self.order.forget(self.opened);
        }
        if self.opened >= self.end && !grows {
            crew.flights.clear();
        }
    }

    /// Waits for the next batch in order, until `deadline` if there is one, and then opens another one.
    /// `None` if the deadline has passed.
    fn take(&mut self, deadline: Option<Instant>) -> Result<Option<Batch>, LoaderError> {
        if let Some(supply) = &mut self.supply {
            let filled = supply.take(self.taken, deadline)?;
            self.taken += u64::from(filled.is_some());
            return Ok(filled);
        }
        let outcome = loop {
            if let Some(outcome) = self.early.remove(&self.taken) {
                break outcome;
            }
            let look = self.may_grow().then(|| Instant::now() + LOOK);
            let until = look.into_iter().chain(deadline).min();
            let done = match (&self.crew, until) {
                (None, _) => Err(RecvTimeoutError::Disconnected),
                (Some(crew), Some(until)) => crew.done.recv_deadline(until),
                (Some(crew), None) => crew.done.recv().map_err(RecvTimeoutError::from),
            };
            match done {
                Ok(done) => self.early.insert(done.batch, done.outcome),
                Err(RecvTimeoutError::Timeout)
                    if deadline.is_none_or(|deadline| Instant::now() < deadline) =>
                {
                    self.grow();
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(LoaderError::WorkerPanicked {
                        message: "it ended without a result".into(),
                    });
                }
            };
        };
        let filled = outcome?;
        self.taken += 1;
        self.open();
        Ok(Some(filled))
    }

    /// Whether more workers may begin.
    fn may_grow(&self) -> bool {
        self.crew.as_ref().is_some_and(|crew| crew.to_consumer.is_some())
    }

    /// Starts the workers that are missing.
    fn grow(&mut self) {
        let (part_size, grows) = (self.part_size(), self.order.grows());
        let Some(crew) = &mut self.crew else { return };
        let wanted = self.shared.more_workers();
        let places = part_size.saturating_mul(self.shared.prefetch(wanted));
        let wanted = wanted.min(places);
        if crew.threads.len() < wanted {
            tracing::debug!(workers = wanted, why = "reads wait", "more workers");
            for _ in crew.threads.len()..wanted {
                // Without another thread those that there are continue.
                let Ok(worker) = crew.add(&self.shared, self.epoch) else {
                    crew.to_consumer = None;
                    break;
                };
                for flight in &self.open {
                    let _ = worker.send(Arc::clone(flight));
                }
                if self.opened < self.end || grows {
                    crew.flights.push(worker);
                }
            }
        }
        // No more come, or none of those that there are is left to say what is wanted: then waiting shows the end.
        if crew.threads.len() >= self.shared.most_workers || crew.threads.iter().all(JoinHandle::is_finished)
        {
            crew.to_consumer = None;
        }
        let prefetch = self.shared.prefetch(wanted) as u64;
        self.prefetch = prefetch.min(self.left()).max(self.prefetch);
        self.open();
    }

    /// Records the new bad images of a batch; more than the limit are an error.
    fn note_bad(&mut self, found: Vec<BadImage>) -> Result<(), LoaderError> {
        let limit = self.shared.options.bad_image_limit;
        let mut known = self.shared.bad();
        for bad in found {
            if known.contains_key(&bad.sample) {
                continue;
            }
            known.insert(bad.sample, bad.clone());
            if known.len() > limit {
                return Err(LoaderError::TooManyBadImages { limit, last: bad });
            }
            self.bad.push(bad);
        }
        Ok(())
    }

    /// The next batch that is not empty, `None` at the end of the epoch; pending if `deadline` comes first.
    fn next_batch(&mut self, deadline: Option<Instant>) -> Result<Poll<Option<Batch>>, LoaderError> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.shared.check_process()?;
        if let Some((since, images)) = self.had.take() {
            self.shared.demand.add(since.elapsed(), images);
        }
        let start = *self.waiting.get_or_insert_with(Instant::now);
        loop {
            if self.order.grows() {
                self.receive()?;
                self.open();
            }
            if self.taken >= self.end {
                match self.order.wait(deadline) {
                    _ if !self.order.grows() && self.order.yields() == self.end => break,
                    Poll::Pending => return Ok(Poll::Pending),
                    Poll::Ready(()) => continue,
                }
            }
            let Some(mut batch) = self.take(deadline)? else {
                return Ok(Poll::Pending);
            };
            self.note_bad(mem::take(&mut batch.bad))?;
            let whole = self.shared.options.parts.are_whole() && !self.order.is_given();
            if !batch.samples.is_empty() || !whole {
                self.any = true;
                batch.bad = mem::take(&mut self.bad);
                batch.normalize.clone_from(&self.shared.options.normalize);
                batch.wait = start.elapsed();
                self.waiting = None;
                self.had = Some((Instant::now(), batch.samples.len()));
                return Ok(Poll::Ready(Some(batch)));
            }
        }
        if self.any || self.order.is_given() {
            Ok(Poll::Ready(None))
        } else {
            Err(LoaderError::AllBad { epoch: self.epoch })
        }
    }
}

impl Batches {
    /// Removes samples from a batch of this epoch that were found to be bad only after the workers had
    /// prepared them: `found` has their places, in order, and the errors. The policy for bad images decides
    /// how the places are filled; the batch may become empty. Returns whether it has new samples.
    ///
    /// # Errors
    /// [`LoaderError::BadImage`], [`LoaderError::TooManyBadImages`] or [`LoaderError::NoSubstitute`],
    /// depending on the policy.
    ///
    /// # Panics
    /// If a place is beyond the batch, or the loader's workers do not prepare.
    #[doc(hidden)]
    pub fn reject(&mut self, batch: &mut Batch, found: &[(usize, String)]) -> Result<bool, LoaderError> {
        let source = Arc::clone(&self.shared.source);
        let (mut worker, mut substituted) = (None, false);
        let mut left_out = Vec::new();
        for (place, reason) in found {
            let sample = batch.samples[*place];
            let bad = BadImage {
                sample,
                name: source.name(sample as usize),
                reason: reason.clone(),
            };
            batch.rejected.push(sample);
            let mut met = vec![bad.clone()];
            match self.shared.options.bad_images {
                BadImagePolicy::Error => return Err(LoaderError::BadImage(bad)),
                BadImagePolicy::Skip => left_out.push(*place),
                BadImagePolicy::Substitute => {
                    let worker = match &mut worker {
                        Some(worker) => worker,
                        none => none.insert(Worker::new(0, self.epoch, &self.shared, &Arc::default())?),
                    };
                    let again = batch.again[*place];
                    let other = worker.prepare_instead(bad, again, &batch.rejected, &mut met)?;
                    match other {
                        Some((sample, prepared, mask)) => {
                            batch.samples[*place] = sample;
                            batch.labels[*place] = source.class(sample as usize);
                            if let Some(samples) = batch.pixels.prepared_mut() {
                                samples[*place] = prepared;
                            }
                            batch.masks[*place * mask.len()..][..mask.len()].copy_from_slice(&mask);
                            substituted = true;
                        }
                        None => left_out.push(*place),
                    }
                }
            }
            self.note_bad(met)?;
        }
        for place in left_out.into_iter().rev() {
            batch.samples.remove(place);
            batch.again.remove(place);
            batch.labels.remove(place);
            if let Some(samples) = batch.pixels.prepared_mut() {
                samples.remove(place);
            }
            let mask = batch.masks.len() / batch.shape[0];
            batch.masks.drain(place * mask..(place + 1) * mask);
            batch.shape[0] -= 1;
        }
        batch.bad.append(&mut self.bad);
        Ok(substituted)
    }

    fn next_by(&mut self, deadline: Option<Instant>) -> Poll<Option<Result<Batch, LoaderError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let next = match self.next_batch(deadline) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(next)) => next.map(Ok),
            Err(error) => Some(Err(error)),
        };
        if !matches!(next, Some(Ok(_))) {
            self.ended = true;
            self.let_go();
        }
        Poll::Ready(next)
    }

    /// Ends the threads. A fork has none, and the channels to them may be locked for ever, so it leaves them
    /// alone.
    fn let_go(&mut self) {
        let crew = self.crew.take();
        if self.shared.check_process().is_err() {
            mem::forget(crew);
            mem::forget(self.supply.take());
        }
        self.supply = None;
        self.early.clear();
    }
}

impl BatchStream for Batches {
    fn next_within(&mut self, patience: Duration) -> Poll<Option<Result<Batch, LoaderError>>> {
        self.next_by(Instant::now().checked_add(patience))
    }

    fn unreported(&mut self) -> Vec<BadImage> {
        mem::take(&mut self.bad)
    }

    fn state(&self) -> State {
        self.shared.state(self.epoch, self.taken)
    }

    fn in_flight(&self) -> usize {
        match &self.supply {
            Some(supply) => supply.in_flight(),
            None => (self.opened - self.taken) as usize,
        }
    }

    fn loading(&self) -> usize {
        if let Some(supply) = &self.supply {
            return supply.loading();
        }
        let crew = self.crew.as_ref();
        crew.map_or(0, |crew| self.in_flight() - self.early.len() - crew.done.len())
    }
}

impl Iterator for Batches {
    type Item = Result<Batch, LoaderError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.next_by(None) {
            Poll::Ready(next) => next,
            Poll::Pending => unreachable!("there is no deadline"),
        }
    }
}

impl Drop for Batches {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Crew {
    /// Workers of an epoch that has `batches` batches left.
    fn start(shared: &Arc<Shared>, workers: usize, batches: u64, epoch: u64) -> Result<Self, LoaderError> {
        // As many batches as can ever be open.
        let most_open = usize::try_from(batches).unwrap_or(usize::MAX);
        let most_open = shared.prefetch(shared.most_workers).min(most_open).max(1);
        let (to_consumer, done) = bounded(most_open);
        let mut crew = Self {
            flights: Vec::with_capacity(workers),
            done,
            stop: Arc::default(),
            threads: Vec::with_capacity(workers),
            to_consumer: Some(to_consumer),
            most_open,
        };
        for _ in 0..workers {
            let worker = crew.add(shared, epoch)?;
            crew.flights.push(worker);
        }
        if !shared.may_grow() {
            crew.to_consumer = None;
        }
        Ok(crew)
    }

    /// Starts another worker; returns the way to it.
    fn add(&mut self, shared: &Arc<Shared>, epoch: u64) -> Result<Sender<Arc<Flight>>, LoaderError> {
        let number = self.threads.len();
        let worker = Worker::new(number, epoch, shared, &self.stop)?;
        let (to_worker, flights) = bounded(self.most_open);
        let done = self
            .to_consumer
            .clone()
            .expect("workers are added while there is a way back");
        let thread = Builder::new()
            .name(format!("loader-{number}"))
            .spawn(move || worker.work(&flights, &done))
            .map_err(LoaderError::Spawn)?;
        self.threads.push(thread);
        Ok(to_worker)
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Without a sender, workers that wait for a batch end.
        self.flights.clear();
        for thread in self.threads.drain(..) {
            // A worker catches its panics, so a failed join has nothing to report.
            let _ = thread.join();
        }
    }
}
