//! The threads that pack, and what waits for them.

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use stokehold_base::random::mix;
use stokehold_jpeg::{Decoder, Header, Metadata, PackTables, Packer, TranscodeOptions, packed_is_fast};

use crate::cached::Progress;
use crate::pace::Pace;
use crate::segment::Key;
use crate::store::{Added, Store};
use crate::{CacheError, CacheFacts};

/// The most bytes of files from a network that wait in memory. Beyond that only a sample's number waits, and its file is read again.
const WAITING: usize = 64 << 20;
/// The most bytes of files from [`Packing::offer_file`] in memory; one larger file may wait alone. The others are packed in a later epoch.
const FILES: usize = 4 << 20;
/// How many of the samples whose numbers wait are candidates for the next one: those that were read last. The system still has their
/// files in memory.
const NEAR: usize = 1024;
/// This many files that cannot be packed are remembered.
const REFUSED: usize = 1 << 16;
/// How often a thread looks whether it may continue.
const PAUSE: Duration = Duration::from_millis(20);
/// How long to wait for the threads at the end.
const PATIENCE: Duration = Duration::from_secs(2);

/// The threads and their queue.
pub(crate) struct Packing {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Those that may take time from others.
    paid: usize,
    /// Those that pack the samples of a source in spare moments.
    spare: usize,
    /// A fork of it has no threads.
    process: u32,
}

struct Shared {
    store: Store,
    queue: Mutex<Queue>,
    wake: Condvar,
    stop: AtomicBool,
    pace: Mutex<Pace>,
    /// Workers that have nothing to do, minus the threads that pack in their place.
    resting: AtomicIsize,
    hits: AtomicU64,
    misses: AtomicU64,
    passed: AtomicU64,
    added: AtomicU64,
    refused: AtomicU64,
    /// Files of this machine that cannot be packed: at most [`REFUSED`].
    refused_files: Mutex<HashSet<Key>>,
    file_bytes: AtomicU64,
}

#[derive(Default)]
struct Queue {
    /// With the file's bytes.
    fresh: VecDeque<(Waiting, Fresh)>,
    bytes: usize,
    later: Vec<Waiting>,
    draws: u64,
}

impl Queue {
    fn add(&mut self, waiting: Waiting, fresh: Fresh) {
        self.bytes += fresh.file.len();
        self.fresh.push_back((waiting, fresh));
    }
}

/// What waits to be packed.
pub(crate) enum Waiting {
    /// A sample of a source.
    Sample { progress: Arc<Progress>, sample: usize },
    /// A file of this machine that the caller has read.
    File,
}

impl Waiting {
    /// Whether it comes over a network.
    fn is_distant(&self) -> bool {
        matches!(self, Self::Sample { progress, .. } if progress.source().reach() > 0)
    }
}

/// A file, and the key that it had before and after it was read.
pub(crate) struct Fresh {
    pub key: Key,
    pub file: Vec<u8>,
}

impl Packing {
    pub fn new(store: Store, share: f64) -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            shared: Arc::new(Shared {
                store,
                queue: Mutex::default(),
                wake: Condvar::new(),
                stop: AtomicBool::new(false),
                pace: Mutex::new(Pace::new(cores, share)),
                resting: AtomicIsize::new(0),
                hits: AtomicU64::new(0),
                misses: AtomicU64::new(0),
                passed: AtomicU64::new(0),
                added: AtomicU64::new(0),
                refused: AtomicU64::new(0),
                refused_files: Mutex::default(),
                file_bytes: AtomicU64::new(0),
            }),
            threads: Mutex::default(),
            paid: (share * cores as f64).ceil() as usize,
            spare: (cores / 2).clamp(1, 16),
            process: std::process::id(),
        }
    }

    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    pub fn rest(&self, threads: isize) {
        self.shared.resting.fetch_add(threads, Ordering::Relaxed);
    }

    pub fn count(&self, hit: bool) {
        let counter = if hit {
            &self.shared.hits
        } else {
            &self.shared.misses
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// A sample was read that has no key.
    pub fn pass(&self) {
        self.shared.passed.fetch_add(1, Ordering::Relaxed);
    }

    pub fn facts(&self) -> CacheFacts {
        let shared = &*self.shared;
        let (added_bytes, damaged, removed_bytes) = shared.store.counts();
        let queue = shared.queue();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheFacts {
            dir: shared.store.dir().to_owned(),
            limit: shared.store.limit(),
            hits: count(&shared.hits),
            misses: count(&shared.misses),
            passed: count(&shared.passed),
            added: count(&shared.added),
            refused: count(&shared.refused),
            file_bytes: count(&shared.file_bytes),
            added_bytes,
            waiting: queue.fresh.len() + queue.later.len(),
            damaged,
            removed_bytes,
            stopped: shared.store.stopped(),
        }
    }

    /// A sample is not for the cache.
    pub fn refuse(&self, progress: &Progress, sample: usize) {
        self.shared.refuse(progress, sample);
    }

    /// Has a sample packed whose file was just read. A file of this machine is not copied: that costs the loader more than it costs
    /// the packing thread to read it again.
    pub fn offer(&self, waiting: Waiting, key: Key, file: &[u8]) {
        let fits = |queue: &Queue| queue.bytes + file.len() <= WAITING;
        // Copied without the lock, which other loader threads wait for.
        let copy = (waiting.is_distant() && fits(&self.shared.queue())).then(|| file.to_vec());
        match copy {
            Some(file) => self.shared.queue().add(waiting, Fresh { key, file }),
            None => self.shared.queue().later.push(waiting),
        }
        self.start(self.spare);
    }

    /// Has a file packed that the caller has read, unless too many wait.
    pub fn offer_file(&self, key: Key, file: &[u8]) {
        let shared = &self.shared;
        let fits = |queue: &Queue| queue.bytes == 0 || queue.bytes + file.len() <= FILES;
        if shared.store.is_paused() || !may_pack(file) || !fits(&shared.queue()) {
            return;
        }
        if shared.refused_files().contains(&key) {
            return;
        }
        let file = file.to_vec();
        shared.queue().add(Waiting::File, Fresh { key, file });
        // Other processes, such as a DataLoader's other workers, pack too.
        self.start(1);
    }

    /// Packs all samples that are not there yet, on all cores.
    ///
    /// # Errors
    /// Samples are not there, and none are taken.
    pub fn fill(&self, progress: &Arc<Progress>, stop: &AtomicBool) -> Result<(), CacheError> {
        let (next, lacks) = (AtomicUsize::new(0), AtomicBool::new(false));
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut tools = Tools::new();
                    loop {
                        let sample = next.fetch_add(1, Ordering::Relaxed);
                        let ends = self.shared.stop.load(Ordering::Relaxed) || stop.load(Ordering::Relaxed);
                        if ends || sample >= progress.len() || lacks.load(Ordering::Relaxed) {
                            return;
                        }
                        if self.shared.store.is_paused() {
                            let lacking = progress.read(sample, &self.shared.store);
                            let is_wanted = |fresh: &Fresh| self.shared.wants(progress, &fresh.file);
                            lacks.fetch_or(lacking.as_ref().is_some_and(is_wanted), Ordering::Relaxed);
                            continue;
                        }
                        let progress = Arc::clone(progress);
                        tools = self
                            .shared
                            .pack(tools, &Waiting::Sample { progress, sample }, None);
                        // It may have been the one for which there was no room.
                        if self.shared.store.is_paused() {
                            next.fetch_min(sample, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        match self.shared.store.stopped() {
            Some(why) if lacks.into_inner() => Err(CacheError::Stopped { why }),
            _ => Ok(()),
        }
    }

    /// Wakes the threads and starts the missing ones: those that take the share, and `spare` that pack only in spare moments.
    fn start(&self, spare: usize) {
        // All of them: a single one might be a thread that has to wait.
        self.shared.wake.notify_all();
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for number in threads.len()..spare + self.paid {
            let (shared, pays) = (Arc::clone(&self.shared), number < self.paid);
            let thread = thread::Builder::new()
                .name("stokehold-pack".to_owned())
                .spawn(move || shared.work(pays));
            match thread {
                Ok(thread) => threads.push(thread),
                Err(error) => {
                    tracing::warn!(%error, "no thread that packs images for the cache");
                    return;
                }
            }
        }
    }
}

impl Drop for Packing {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        {
            // With the queue's lock: no thread is between its look at `stop` and its wait.
            let _queue = self.shared.queue();
            self.shared.stop.store(true, Ordering::Relaxed);
        }
        self.shared.wake.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        // Most end at once. One that reads from a bucket may take long; it ends by itself, and holds what it needs.
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE && !threads.iter().all(JoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.store.has_ended()
    }

    /// Packs until the cache is closed or may take no more; `pays` for a thread that may take time from others, up to the share.
    fn work(&self, pays: bool) {
        if !pays {
            lowest_priority();
        }
        let mut tools = Tools::new();
        while self.wait() {
            let begin = ThreadTime::try_now().ok();
            let goes = match pays {
                true => self.pace().may_take(),
                false => self.pace().spare(self.resting.load(Ordering::Relaxed)),
            };
            if !goes {
                thread::sleep(PAUSE);
                continue;
            }
            if !pays {
                self.resting.fetch_sub(1, Ordering::Relaxed);
            }
            if let Some((waiting, read)) = self.next() {
                self.store.read_on();
                tools = self.pack(tools, &waiting, read);
            }
            if pays {
                let took = begin.and_then(|begin| begin.try_elapsed().ok());
                self.pace().took(took.unwrap_or_default());
            } else {
                self.resting.fetch_add(1, Ordering::Relaxed);
            }
        }
        // Nothing waits any more.
        *self.queue() = Queue::default();
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something to pack, and room for it; `false` if the cache is closed or may take no more.
    fn wait(&self) -> bool {
        let mut queue = self.queue();
        while !self.stops() {
            if self.store.is_paused() {
                let woken = self.wake.wait_timeout(queue, Duration::from_secs(1));
                queue = woken.unwrap_or_else(PoisonError::into_inner).0;
            } else if queue.fresh.is_empty() && queue.later.is_empty() {
                queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            } else {
                return true;
            }
        }
        false
    }

    /// The next one. Files that are in memory go first, in order. Otherwise the sample is a random one of those that were read last, so
    /// that two processes that read the same samples in the same order rarely pack the same one.
    fn next(&self) -> Option<(Waiting, Option<Fresh>)> {
        let mut queue = self.queue();
        if let Some((waiting, fresh)) = queue.fresh.pop_front() {
            queue.bytes -= fresh.file.len();
            return Some((waiting, Some(fresh)));
        }
        if queue.later.is_empty() {
            return None;
        }
        queue.draws = mix(queue.draws ^ u64::from(std::process::id()));
        let near = queue.later.len().min(NEAR);
        let any = queue.later.len() - near + (queue.draws % near as u64) as usize;
        Some((queue.later.swap_remove(any), None))
    }

    fn refuse(&self, progress: &Progress, sample: usize) {
        let new = u64::from(progress.refuse(sample));
        self.refused.fetch_add(new, Ordering::Relaxed);
    }

    fn refused_files(&self) -> MutexGuard<'_, HashSet<Key>> {
        self.refused_files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a file is for the cache, as far as its first bytes say.
    fn wants(&self, progress: &Progress, file: &[u8]) -> bool {
        progress.source().reach() > 0 || may_pack(file)
    }

    /// Packs a sample and adds it.
    fn pack(&self, mut tools: Tools, waiting: &Waiting, read: Option<Fresh>) -> Tools {
        let again = || match waiting {
            Waiting::Sample { progress, sample } => progress.again(*sample),
            Waiting::File => {}
        };
        let read = read.or_else(|| match waiting {
            Waiting::Sample { progress, sample } => progress.read(*sample, &self.store),
            Waiting::File => None,
        });
        let Some(Fresh { key, file }) = read else {
            // It is there, or what is wrong with it is said when it is loaded again.
            again();
            return tools;
        };
        if self.store.has(key) {
            again();
            return tools;
        }
        let packed = match catch_unwind(AssertUnwindSafe(|| tools.pack(&file))) {
            Ok(packed) => packed,
            Err(_) => {
                // The loader will meet the same file, and say what is wrong.
                tools = Tools::new();
                None
            }
        };
        // Without packing, only what comes over a network gains.
        let kept = match &packed {
            Some(packed) => Some(packed),
            None => waiting.is_distant().then_some(&file),
        };
        match kept.map(|kept| self.store.add(key, kept)) {
            Some(Added::Yes) => {
                self.added.fetch_add(1, Ordering::Relaxed);
                self.file_bytes.fetch_add(file.len() as u64, Ordering::Relaxed);
                again();
            }
            Some(Added::No) => again(),
            Some(Added::TooLarge) | None => match waiting {
                Waiting::Sample { progress, sample } => self.refuse(progress, *sample),
                Waiting::File => {
                    let mut refused = self.refused_files();
                    let new = u64::from(refused.len() < REFUSED && refused.insert(key));
                    self.refused.fetch_add(new, Ordering::Relaxed);
                }
            },
        }
        tools
    }
}

/// What one thread packs with.
struct Tools {
    decoder: Decoder,
    packer: Packer,
}

impl Tools {
    fn new() -> Self {
        Self {
            decoder: Decoder::new(),
            packer: Packer::new(PackTables::built_in()),
        }
    }

    /// The packed form of a whole JPEG, if there is one, and packed images are read faster here. One photo in twenty
    /// grows. It is read faster all the same, so up to one and a half times the file's size is kept.
    fn pack(&mut self, file: &[u8]) -> Option<Vec<u8>> {
        // Pillow raises an exception for a file without its end, and a packed image would hide that.
        if !may_pack(file) || Header::parse_whole(file).is_err() {
            return None;
        }
        let options = TranscodeOptions {
            metadata: Metadata::Drop,
        };
        let packed = self.decoder.pack(file, &mut self.packer, &options).ok()?;
        (packed.len() <= file.len() + file.len() / 2).then_some(packed)
    }
}

/// Whether a file is a JPEG, and packed ones are read faster here.
pub(crate) fn may_pack(file: &[u8]) -> bool {
    file.starts_with(&[0xFF, 0xD8]) && packed_is_fast()
}

/// This thread runs when no other wants to.
fn lowest_priority() {
    // Only of this thread, on Linux. Where it is refused, the pace holds it back all the same.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, 19);
}

#[cfg(test)]
mod tests {
    use super::*;
    use jpeg_encoder::{ColorType, Encoder};
    use stokehold_storage::{SampleBytes, Source, StorageError};

    /// A sample in a bucket, whose bytes are always given.
    struct Given;

    impl Source for Given {
        fn len(&self) -> usize {
            1
        }

        fn class(&self, _: usize) -> u32 {
            0
        }

        fn name(&self, sample: usize) -> String {
            sample.to_string()
        }

        fn read(&self, sample: usize, _: &mut SampleBytes) -> Result<(), StorageError> {
            unreachable!("sample {sample} was given")
        }

        fn reach(&self) -> usize {
            1
        }
    }

    #[test]
    fn what_waits_for_room_is_packed_when_there_is_some() {
        const LIMIT: u64 = 1 << 20;
        let folder = tempfile::tempdir().unwrap();
        let dir = crate::folder::made(folder.path()).unwrap();
        let open = || Store::open(dir.clone(), Some(LIMIT)).unwrap();
        let readers: Vec<_> = (1..=8u128)
            .map(|number| {
                let store = open();
                assert_eq!(store.add(number, &[7; 100_000]), Added::Yes);
                store
            })
            .collect();
        let mut store = open();
        store.retry = Duration::from_millis(50);
        assert_eq!(store.add(9, b"no room"), Added::No);
        let packing = Packing::new(store, 1.0);
        let mut file = Vec::new();
        let pixels = [90; 64 * 64 * 3];
        let encoder = Encoder::new(&mut file, 85);
        encoder.encode(&pixels, 64, 64, ColorType::Rgb).unwrap();
        let progress = Arc::new(Progress::new(Arc::new(Given)));
        packing.offer(Waiting::Sample { progress, sample: 0 }, 10, &file);
        thread::sleep(Duration::from_millis(300));
        assert!(!packing.store().has(10) && packing.store().stopped().is_some());
        drop(readers);
        let begin = Instant::now();
        while !packing.store().has(10) {
            assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", packing.facts());
            // As the loader does it: one that was given up meanwhile is offered again.
            let progress = Arc::new(Progress::new(Arc::new(Given)));
            if packing.facts().waiting == 0 {
                packing.offer(Waiting::Sample { progress, sample: 0 }, 10, &file);
            }
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(packing.store().stopped(), None);
    }
}
