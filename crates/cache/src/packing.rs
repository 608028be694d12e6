//! The threads that pack, and what waits for them.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cpu_time::ThreadTime;
use stokehold_base::random::mix;
use stokehold_jpeg::{Decoder, Metadata, PackTables, Packer, TranscodeOptions, packed_is_fast};
use stokehold_storage::SampleBytes;

use crate::CacheFacts;
use crate::cached::{Progress, key_of};
use crate::pace::Pace;
use crate::segment::Key;
use crate::store::Store;

/// The most bytes of files that wait in memory. Of others the number waits, and they are read again.
const WAITING: usize = 64 << 20;
/// How often a thread looks whether it may go on.
const PAUSE: Duration = Duration::from_millis(5);

/// The threads and their queue.
pub(crate) struct Packing {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    share: f64,
    /// A fork of it has no threads.
    process: u32,
}

struct Shared {
    store: Store,
    queue: Mutex<Queue>,
    wake: Condvar,
    stop: AtomicBool,
    pace: Mutex<Pace>,
    /// Workers that have nothing to do, less the threads that pack in their stead.
    resting: AtomicIsize,
    hits: AtomicU64,
    misses: AtomicU64,
    added: AtomicU64,
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

/// A sample that waits to be packed.
pub(crate) struct Waiting {
    pub progress: Arc<Progress>,
    pub sample: usize,
}

/// A file that was just read, and the key that it had then.
struct Fresh {
    key: Key,
    file: Vec<u8>,
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
                added: AtomicU64::new(0),
                file_bytes: AtomicU64::new(0),
            }),
            threads: Mutex::default(),
            share,
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

    pub fn facts(&self) -> CacheFacts {
        let shared = &*self.shared;
        let (added_bytes, damaged) = shared.store.counts();
        let queue = shared.queue();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CacheFacts {
            dir: shared.store.dir().to_owned(),
            limit: shared.store.limit(),
            hits: count(&shared.hits),
            misses: count(&shared.misses),
            added: count(&shared.added),
            file_bytes: count(&shared.file_bytes),
            added_bytes,
            waiting: queue.fresh.len() + queue.later.len(),
            damaged,
            stopped: shared.store.stopped().map(str::to_owned),
        }
    }

    /// Has a sample packed whose file was just read.
    pub fn offer(&self, waiting: Waiting, key: Key, file: &[u8]) {
        {
            let mut queue = self.shared.queue();
            match queue.bytes + file.len() <= WAITING {
                true => {
                    queue.bytes += file.len();
                    let file = file.to_vec();
                    queue.fresh.push_back((waiting, Fresh { key, file }));
                }
                false => queue.later.push(waiting),
            }
        }
        self.shared.wake.notify_one();
        self.start();
    }

    /// Packs all samples that are not there yet, on all cores.
    pub fn fill(&self, progress: &Arc<Progress>, stop: &AtomicBool) {
        let next = AtomicUsize::new(0);
        let threads = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut tools = Tools::new();
                    loop {
                        let sample = next.fetch_add(1, Ordering::Relaxed);
                        if sample >= progress.len() || self.shared.stops() || stop.load(Ordering::Relaxed) {
                            return;
                        }
                        let progress = Arc::clone(progress);
                        tools = self.shared.pack(tools, &Waiting { progress, sample }, None);
                    }
                });
            }
        });
    }

    /// Starts the threads, if they are not there yet.
    fn start(&self) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        if !threads.is_empty() {
            return;
        }
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let spare = (cores / 2).clamp(1, 16);
        let paid = (self.share * cores as f64).ceil() as usize;
        for number in 0..spare + paid {
            let shared = Arc::clone(&self.shared);
            let thread = thread::Builder::new()
                .name("stokehold-pack".to_owned())
                .spawn(move || shared.work(number >= spare));
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
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.wake.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            // It catches panics of its images; another one has been printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.store.stopped().is_some()
    }

    /// Packs until the cache is closed; `pays` for one that may take time from others, up to the share.
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
                self.store.follow();
                tools = self.pack(tools, &waiting, read);
            }
            match pays {
                true => {
                    let took = begin.and_then(|begin| begin.try_elapsed().ok());
                    self.pace().took(took.unwrap_or_default());
                }
                false => {
                    self.resting.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there is something to pack; `false` if the cache is closed or takes no more.
    fn wait(&self) -> bool {
        let mut queue = self.queue();
        while queue.fresh.is_empty() && queue.later.is_empty() && !self.stops() {
            queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        !self.stops()
    }

    /// The next one, in the order in which they came. Of those whose bytes are not kept any one: processes that read the same samples
    /// in the same order should not pack the same ones.
    fn next(&self) -> Option<(Waiting, Option<Fresh>)> {
        let mut queue = self.queue();
        if let Some((waiting, Fresh { key, file })) = queue.fresh.pop_front() {
            queue.bytes -= file.len();
            return Some((waiting, Some(Fresh { key, file })));
        }
        if queue.later.is_empty() {
            return None;
        }
        queue.draws = mix(queue.draws ^ u64::from(std::process::id()));
        let any = (queue.draws % queue.later.len() as u64) as usize;
        Some((queue.later.swap_remove(any), None))
    }

    /// Packs a sample and adds it.
    fn pack(&self, mut tools: Tools, waiting: &Waiting, read: Option<Fresh>) -> Tools {
        let Waiting { progress, sample } = waiting;
        let source = progress.source();
        let Fresh { key, file } = match read {
            Some(fresh) => fresh,
            None => {
                let mut bytes = SampleBytes::new();
                let Some(key) = key_of(source, *sample, &mut Vec::new()) else {
                    return tools;
                };
                // What is wrong with it is said when it is loaded again.
                if self.store.has(key) || source.read(*sample, &mut bytes).is_err() {
                    progress.done(*sample, true);
                    return tools;
                }
                let file = bytes.file().to_vec();
                Fresh { key, file }
            }
        };
        if self.store.has(key) {
            progress.done(*sample, true);
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
        let kept = match packed {
            Some(packed) => Some(packed),
            None => (source.reach() > 0).then_some(file.clone()),
        };
        if let Some(kept) = &kept
            && self.store.add(key, kept)
        {
            self.added.fetch_add(1, Ordering::Relaxed);
            self.file_bytes.fetch_add(file.len() as u64, Ordering::Relaxed);
        }
        progress.done(*sample, kept.is_some());
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

    /// The packed form of a JPEG, if there is one that is smaller and quicker to read.
    fn pack(&mut self, file: &[u8]) -> Option<Vec<u8>> {
        if !file.starts_with(&[0xFF, 0xD8]) || !packed_is_fast() {
            return None;
        }
        let options = TranscodeOptions {
            metadata: Metadata::Drop,
        };
        let packed = self.decoder.pack(file, &mut self.packer, &options).ok()?;
        (packed.len() < file.len()).then_some(packed)
    }
}

/// This thread runs when no other wants to.
fn lowest_priority() {
    // Only of this thread, on Linux. Where it is refused, the pace holds it back all the same.
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(None, 19);
}
