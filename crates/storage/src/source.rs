//! The interface between loader and storage.

use std::sync::Arc;

use crate::shard::Baked;
use crate::{PixelClasses, SampleBytes, StorageError};

/// A numbered list of labelled files.
///
/// Samples are numbered `0..len()`. The list does not change while the source lives. Several threads read at once.
pub trait Source: Send + Sync {
    /// The number of samples.
    fn len(&self) -> usize;

    /// Whether there is no sample at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The class of a sample, `0..number of classes`. `sample` must be below [`Source::len`].
    fn class(&self, sample: usize) -> u32;

    /// The sample's path, for messages. `sample` must be below [`Source::len`].
    fn name(&self, sample: usize) -> String;

    /// Reads the sample into `into`, which drops its contents and keeps its capacity.
    fn read(&self, sample: usize, into: &mut SampleBytes) -> Result<(), StorageError>;

    /// Announces that the sample will be read soon: an implementation may start to fetch it, without waiting.
    /// Errors are reported by the read. Does nothing by default.
    fn expect(&self, sample: usize) {
        let _ = sample;
    }

    /// Appends to `into` what tells the sample's file, as it is now, from every other file and from what it was before or will be
    /// after a change: its name without folders, its number, size and times, or its version in a bucket. For a file here it asks the
    /// file system, and reads nothing. `false` where nothing tells them apart, and for samples of shards, which are prepared already.
    fn version(&self, sample: usize, into: &mut Vec<u8>) -> bool {
        let _ = (sample, into);
        false
    }

    /// Says that so many more (or, below 0, fewer) of the threads that read have nothing to do for now. Work that can wait is for
    /// such moments. Does nothing by default.
    fn rest(&self, threads: isize) {
        let _ = threads;
    }

    /// What the images have behind them, all of them: the head of a pipeline that was performed when they were prepared.
    fn baked(&self) -> Option<&Baked> {
        None
    }

    /// What the classes of pixels are, of a source of pairs: each of its samples has an image and a mask. None for a source
    /// whose images have classes.
    fn pixel_classes(&self) -> Option<&PixelClasses> {
        None
    }

    /// The path of the sample's mask, for messages. `sample` must be below [`Source::len`]. Empty without masks.
    fn mask_name(&self, sample: usize) -> String {
        let _ = sample;
        String::new()
    }

    /// Reads the file of the sample's mask into `into`, which drops its contents and keeps its capacity. How its values become
    /// classes is in [`Source::pixel_classes`].
    ///
    /// # Errors
    /// The file cannot be read, or the source has no masks.
    fn read_mask(&self, sample: usize, into: &mut Vec<u8>) -> Result<(), StorageError> {
        let _ = into;
        Err(StorageError::NoMasks {
            path: self.name(sample).into(),
        })
    }

    /// How many samples in advance it should be told about; 0 if the next batch, after slow reads, is enough.
    /// An object store needs as many as it has requests in flight.
    fn reach(&self) -> usize {
        0
    }
}

impl<S: Source + ?Sized> Source for Arc<S> {
    fn len(&self) -> usize {
        (**self).len()
    }

    fn class(&self, sample: usize) -> u32 {
        (**self).class(sample)
    }

    fn name(&self, sample: usize) -> String {
        (**self).name(sample)
    }

    fn read(&self, sample: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        (**self).read(sample, into)
    }

    fn expect(&self, sample: usize) {
        (**self).expect(sample);
    }

    fn reach(&self) -> usize {
        (**self).reach()
    }

    fn version(&self, sample: usize, into: &mut Vec<u8>) -> bool {
        (**self).version(sample, into)
    }

    fn rest(&self, threads: isize) {
        (**self).rest(threads);
    }

    fn baked(&self) -> Option<&Baked> {
        (**self).baked()
    }

    fn pixel_classes(&self) -> Option<&PixelClasses> {
        (**self).pixel_classes()
    }

    fn mask_name(&self, sample: usize) -> String {
        (**self).mask_name(sample)
    }

    fn read_mask(&self, sample: usize, into: &mut Vec<u8>) -> Result<(), StorageError> {
        (**self).read_mask(sample, into)
    }
}
