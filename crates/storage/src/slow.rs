//! A source with latency.

use std::thread;
use std::time::Duration;

use crate::shard::Baked;
use crate::{PixelClasses, SampleBytes, Source, StorageError};

/// Any source, with a wait before every read, like a network file system or an object store.
///
/// Only the latency is simulated, so reads of several threads overlap as they do on a network.
#[derive(Debug, Clone)]
pub struct SlowSource<S> {
    source: S,
    latency: Duration,
}

impl<S: Source> SlowSource<S> {
    /// Wraps `source`; every [`Source::read`] and [`Source::read_mask`] takes `latency` longer.
    pub fn new(source: S, latency: Duration) -> Self {
        Self { source, latency }
    }
}

impl<S: Source> Source for SlowSource<S> {
    fn len(&self) -> usize {
        self.source.len()
    }

    fn class(&self, sample: usize) -> u32 {
        self.source.class(sample)
    }

    fn name(&self, sample: usize) -> String {
        self.source.name(sample)
    }

    fn read(&self, sample: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        thread::sleep(self.latency);
        self.source.read(sample, into)
    }

    fn version(&self, sample: usize, into: &mut Vec<u8>) -> bool {
        self.source.version(sample, into)
    }

    fn rest(&self, threads: isize) {
        self.source.rest(threads);
    }

    fn baked(&self) -> Option<&Baked> {
        self.source.baked()
    }

    fn pixel_classes(&self) -> Option<&PixelClasses> {
        self.source.pixel_classes()
    }

    fn mask_name(&self, sample: usize) -> String {
        self.source.mask_name(sample)
    }

    fn read_mask(&self, sample: usize, into: &mut Vec<u8>) -> Result<(), StorageError> {
        thread::sleep(self.latency);
        self.source.read_mask(sample, into)
    }
}
