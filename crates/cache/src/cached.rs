//! A source with a cache before it.

use std::collections::HashSet;
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use stokehold_jpeg::{PackTables, packed_is_fast};
use stokehold_storage::shard::Baked;
use stokehold_storage::{PixelClasses, SampleBytes, Source, StorageError};
use xxhash_rust::xxh3::xxh3_128;

use crate::packing::{Fresh, Waiting, may_pack};
use crate::segment::Key;
use crate::store::Store;
use crate::{Cache, CacheError};

/// A source whose samples are read from a [`Cache`] where they are in it, and are added to it otherwise.
pub struct Cached {
    cache: Arc<Cache>,
    progress: Arc<Progress>,
    /// Announced samples that the source fetches. They are read from it, or its buffer would fill up.
    fetched: Mutex<HashSet<usize>>,
    /// In a fork of this process, threads and locks are in no known state.
    process: u32,
}

/// Which samples of a source wait to be packed or cannot be.
pub(crate) struct Progress {
    source: Arc<dyn Source>,
    states: Vec<AtomicU8>,
}

const NEW: u8 = 0;
const WAITS: u8 = 1;
const REFUSED: u8 = 2;

impl Progress {
    pub fn new(source: Arc<dyn Source>) -> Self {
        let states = (0..source.len()).map(|_| AtomicU8::new(NEW)).collect();
        Self { source, states }
    }

    pub fn source(&self) -> &dyn Source {
        &*self.source
    }

    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Reads a sample that the store does not have; `None` if it has it, or if the sample cannot be read or changes meanwhile.
    pub fn read(&self, sample: usize, store: &Store) -> Option<Fresh> {
        let (mut scratch, mut bytes) = (Vec::new(), SampleBytes::new());
        let key = key_of(self.source(), sample, &mut scratch)?;
        if store.has(key) {
            return None;
        }
        self.source.read(sample, &mut bytes).ok()?;
        let same = key_of(self.source(), sample, &mut scratch) == Some(key);
        let file = bytes.file().to_vec();
        same.then_some(Fresh { key, file })
    }

    /// A sample does not wait any more; it is offered again if it is read from its source again.
    pub fn again(&self, sample: usize) {
        self.states[sample].store(NEW, Ordering::Relaxed);
    }

    /// A sample is not for the cache, as long as this process lives. Whether that is new.
    pub fn refuse(&self, sample: usize) -> bool {
        let state = self.states.get(sample);
        state.is_some_and(|state| state.swap(REFUSED, Ordering::Relaxed) != REFUSED)
    }
}

/// The key of a sample as it is now. `scratch` is for its version.
fn key_of(source: &dyn Source, sample: usize, scratch: &mut Vec<u8>) -> Option<Key> {
    key_of_version(|into| source.version(sample, into), scratch)
}

/// The key of a version, which `write` writes.
pub(crate) fn key_of_version(write: impl FnOnce(&mut Vec<u8>) -> bool, scratch: &mut Vec<u8>) -> Option<Key> {
    scratch.clear();
    // Images that were packed with other tables cannot be read. Version 1 also packed files without their end.
    scratch.extend(PackTables::built_in().id().to_le_bytes());
    scratch.push(2);
    write(scratch).then(|| xxh3_128(scratch))
}

impl Cached {
    pub(crate) fn new(cache: Arc<Cache>, source: Arc<dyn Source>) -> Self {
        Self {
            cache,
            progress: Arc::new(Progress::new(source)),
            fetched: Mutex::default(),
            process: process::id(),
        }
    }

    /// Reads all samples that the cache does not have, and adds them, on all cores and without regard to others: what an epoch does
    /// in spare moments. Ends early when `stop` becomes true. Returns how many it has then.
    ///
    /// # Errors
    /// [`CacheError::Stopped`]: it lacks samples, and takes no more.
    pub fn fill(&self, stop: &AtomicBool) -> Result<usize, CacheError> {
        let packing = &self.cache.packing;
        packing.fill(&self.progress, stop)?;
        let has = |&sample: &usize| self.key(sample).is_some_and(|key| packing.store().has(key));
        Ok((0..self.len()).filter(has).count())
    }

    fn source(&self) -> &dyn Source {
        &*self.progress.source
    }

    /// The key of a sample that is for the cache. Where packed images are read slower than JPEGs, no file of this machine is, though
    /// another machine may have packed it.
    fn key(&self, sample: usize) -> Option<Key> {
        if self.source().reach() == 0 && !packed_is_fast() {
            return None;
        }
        let mut scratch = Vec::with_capacity(256);
        key_of(self.source(), sample, &mut scratch)
    }

    /// Whether the sample has been announced to the source since it was read last.
    fn was_fetched(&self, sample: usize) -> bool {
        self.source().reach() > 0 && self.fetched().remove(&sample)
    }

    fn fetched(&self) -> std::sync::MutexGuard<'_, HashSet<usize>> {
        self.fetched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Offers a file that was just read, and whose sample had the key before that.
    fn offer(&self, sample: usize, key: Key, file: &[u8]) {
        let packing = &self.cache.packing;
        if self.source().reach() == 0 && !may_pack(file) {
            return packing.refuse(&self.progress, sample);
        }
        let waits = |state: &AtomicU8| {
            state
                .compare_exchange(NEW, WAITS, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        };
        if !packing.store().is_paused() && self.progress.states.get(sample).is_some_and(waits) {
            // It may have changed while it was read. A file of this machine is read again, between two looks of its own.
            if self.source().reach() > 0 && self.key(sample) != Some(key) {
                return self.progress.again(sample);
            }
            let progress = Arc::clone(&self.progress);
            packing.offer(Waiting::Sample { progress, sample }, key, file);
        }
    }
}

impl Source for Cached {
    fn len(&self) -> usize {
        self.source().len()
    }

    fn class(&self, sample: usize) -> u32 {
        self.source().class(sample)
    }

    fn name(&self, sample: usize) -> String {
        self.source().name(sample)
    }

    fn read(&self, sample: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        if self.process != process::id() {
            return self.source().read(sample, into);
        }
        let packing = &self.cache.packing;
        let fetched = self.was_fetched(sample);
        // Asked for now, and not kept from when it was announced: that may be epochs ago.
        let Some(key) = self.key(sample) else {
            packing.pass();
            return self.source().read(sample, into);
        };
        let hit = !fetched && packing.store().read(key, into);
        packing.count(hit);
        if !hit {
            // Others may have added it.
            packing.store().follow();
            packing.store().lacks_one();
            self.source().read(sample, into)?;
            self.offer(sample, key, into.file());
        }
        Ok(())
    }

    fn expect(&self, sample: usize) {
        if self.process != process::id() {
            return self.source().expect(sample);
        }
        let key = self.key(sample);
        if key.is_none_or(|key| !self.cache.packing.store().expect(key)) {
            if self.source().reach() > 0 {
                self.fetched().insert(sample);
            }
            self.source().expect(sample);
        }
    }

    fn reach(&self) -> usize {
        self.source().reach()
    }

    fn version(&self, sample: usize, into: &mut Vec<u8>) -> bool {
        self.source().version(sample, into)
    }

    fn rest(&self, threads: isize) {
        self.cache.packing.rest(threads);
        self.source().rest(threads);
    }

    fn baked(&self) -> Option<&Baked> {
        self.source().baked()
    }

    fn pixel_classes(&self) -> Option<&PixelClasses> {
        self.source().pixel_classes()
    }

    fn mask_name(&self, sample: usize) -> String {
        self.source().mask_name(sample)
    }

    fn read_mask(&self, sample: usize, into: &mut Vec<u8>) -> Result<(), StorageError> {
        self.source().read_mask(sample, into)
    }
}
