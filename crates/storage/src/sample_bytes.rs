//! The buffer that a sample is read into.

use std::sync::Arc;

/// The bytes of one sample as a source read them; each worker keeps one, so that reading allocates only for a larger
/// sample than before.
///
/// Sources that have packed JPEGs hand over the tables to read them with, too.
#[derive(Debug, Clone, Default)]
pub struct SampleBytes {
    pub(crate) buffer: Vec<u8>,
    /// Where the image file begins in `buffer`; before it stands what belongs to the source.
    pub(crate) start: usize,
    /// Those of the shard that the file was read from.
    pub(crate) tables: Option<Arc<[u8]>>,
}

impl SampleBytes {
    /// An empty buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// The bytes of the image file.
    pub fn file(&self) -> &[u8] {
        self.buffer.get(self.start..).unwrap_or_default()
    }

    /// The tables that the packed JPEGs of its source are read with, where they need others than every program has.
    pub fn tables(&self) -> Option<&[u8]> {
        self.tables.as_deref()
    }

    /// Forgets the sample, and lends the buffer, empty, to be filled with an image file. The buffer of a file above 64 MiB is
    /// given back first.
    pub fn refill(&mut self) -> &mut Vec<u8> {
        self.start = 0;
        self.tables = None;
        self.buffer.clear();
        self.buffer.shrink_to(64 << 20);
        &mut self.buffer
    }

    /// Forgets the sample, and lends the buffer with the length of an image file that is to be read over what it holds.
    pub fn refill_with(&mut self, length: usize) -> &mut [u8] {
        self.start = 0;
        self.tables = None;
        // Not cleared first: growing would zero what is read over anyway.
        self.buffer.resize(length, 0);
        self.buffer.shrink_to(64 << 20);
        &mut self.buffer
    }
}
