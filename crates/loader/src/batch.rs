//! The items of a loader, and the stream that they come in.

use std::any::Any;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use stokehold_pipeline::PreparedSample;
use stokehold_pipeline::op::Normalize;

use crate::shared::Shared;
use crate::{BatchNumbers, Floats, ImageBuffer, LoaderError, State};

/// Images ready to train on, their labels, and how they were made.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The images. Dropping the last clone returns their memory to the loader.
    pub pixels: Pixels,
    /// [N, 3, H, W]. N is at least 1, except of [`Parts`](crate::Parts) and of batches that were [given](crate::Loader::given).
    pub shape: [usize; 4],
    /// What is still to be done with pixels that are bytes: [`LoaderOptions::normalize`](crate::LoaderOptions::normalize).
    pub normalize: Option<Normalize>,
    /// The class of each image, N numbers.
    pub labels: Vec<u32>,
    /// The class of each pixel of each image, N·H·W numbers, [`IGNORE`](stokehold_storage::IGNORE) where it has none; empty
    /// unless the source has [masks](stokehold_storage::Source::pixel_classes). Then all labels are 0.
    pub masks: Vec<u8>,
    /// The number of each image in its source, N numbers. A substitute has its own number.
    pub samples: Vec<u64>,
    /// For each place, how often the epoch had its sample before, N numbers. For a [`Device`](crate::Device).
    #[doc(hidden)]
    pub again: Vec<u32>,
    /// Samples that were found to be bad after workers had prepared them: they stand in for no other of this batch.
    pub(crate) rejected: Vec<u64>,
    /// Bad images found on the way to this batch. An epoch names each once in the life of a loader, and
    /// [`BatchStream::unreported`] has those after the epoch's last batch; a [numbered](crate::Loader::numbered) batch names all.
    pub bad: Vec<BadImage>,
    /// The workers' spans: read, decode and augment for each image, batch for the whole.
    pub spans: Vec<Span>,
    /// How long the consumer waited for this batch.
    pub wait: Duration,
}

/// The images of a batch.
#[derive(Debug, Clone)]
pub enum Pixels {
    /// N·3·H·W numbers in main memory: NCHW, in the value range that the pipeline ends with. Clones share the memory.
    Host(ImageBuffer),
    /// N samples that workers have prepared, for a [`Device`](crate::Device) to make images of.
    #[doc(hidden)]
    Prepared(Vec<PreparedSample>),
    /// Images in the memory of a [`Device`](crate::Device), whose crate knows the type. Clones share the memory.
    Device(Arc<dyn Any + Send + Sync>),
}

/// The batches of one epoch, in order, wherever they are made: an iterator that ends after an error. Dropping it ends its
/// threads and waits for them: for the longest of the reads, decodes and batches on a device in progress.
pub trait BatchStream: Iterator<Item = Result<Batch, LoaderError>> + Send {
    /// As [`Iterator::next`], but waits at most `patience`: [`Poll::Pending`] means not yet, and changes nothing.
    ///
    /// For consumers that must check for other events meanwhile, such as Ctrl-C.
    fn next_within(&mut self, patience: Duration) -> Poll<Option<Result<Batch, LoaderError>>>;

    /// Bad images that no batch has reported, because none came after them: those after the last nonempty
    /// batch of the epoch, or before an error. Call it when there are no more batches; the images that it
    /// returns count as reported.
    fn unreported(&mut self) -> Vec<BadImage>;

    /// The position of the consumer: after the batches yielded so far.
    fn state(&self) -> State;

    /// Batches in work or ready.
    fn in_flight(&self) -> usize;

    /// Batches in work: 0 when nothing more can be done before the next batch is taken.
    fn loading(&self) -> usize;

    /// Of an epoch whose batches are [given](crate::Loader::given), the number after the last one that was not yielded because
    /// it has no images; 0 if there was none.
    fn passed(&self) -> u64 {
        0
    }
}

impl Batch {
    /// A batch without images.
    pub(crate) fn empty(shared: &Shared) -> Self {
        let [channels, height, width] = shared.shape;
        // Memory of the pool is for the batches with images.
        let none = ImageBuffer::from(BatchNumbers::new(shared.options.sample_type, 0));
        Self::new(Pixels::Host(none), [0, channels, height, width])
    }

    /// A batch with these pixels, and nothing else.
    pub fn new(pixels: Pixels, shape: [usize; 4]) -> Self {
        Self {
            pixels,
            shape,
            normalize: None,
            labels: Vec::new(),
            masks: Vec::new(),
            samples: Vec::new(),
            again: Vec::new(),
            rejected: Vec::new(),
            bad: Vec::new(),
            spans: Vec::new(),
            wait: Duration::ZERO,
        }
    }
}

impl Pixels {
    /// The numbers in main memory; `None` of images that are on a device.
    pub fn numbers(&self) -> Option<&BatchNumbers> {
        match self {
            Self::Host(images) => Some(images),
            Self::Prepared(_) | Self::Device(_) => None,
        }
    }

    /// The numbers in main memory as [`ImageBuffer::into_f32`] has them; `None` of images that are on a device.
    pub fn into_f32(self) -> Option<Floats> {
        match self {
            Self::Host(images) => Some(images.into_f32()),
            Self::Prepared(_) | Self::Device(_) => None,
        }
    }

    /// The images as the type of the device's crate; `None` if they are somewhere else.
    pub fn on_device<T: Any>(&self) -> Option<&T> {
        match self {
            Self::Device(images) => images.downcast_ref(),
            Self::Host(_) | Self::Prepared(_) => None,
        }
    }

    /// The prepared samples; none of images that are made.
    pub(crate) fn prepared_mut(&mut self) -> Option<&mut Vec<PreparedSample>> {
        match self {
            Self::Prepared(samples) => Some(samples),
            Self::Host(_) | Self::Device(_) => None,
        }
    }
}

/// An image that could not be read or decoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BadImage {
    /// Its number in the source.
    pub sample: u64,
    /// Its path.
    pub name: String,
    /// What is wrong with it.
    pub reason: String,
}

/// An interval of a worker's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The worker, 0..workers; for a batch the one that finished it.
    pub worker: usize,
    /// What it did.
    pub stage: Stage,
    /// When it began.
    pub start: Instant,
    /// How long it took.
    pub duration: Duration,
    /// For a read, the bytes of the file.
    pub bytes: Option<u64>,
}

/// The activity of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Reading the bytes of one image.
    Read,
    /// Decoding the bytes of one image to pixels.
    Decode,
    /// Applying the operations to the pixels of one image.
    Augment,
    /// A whole batch: from the start of its first image to the end of its last. Several workers fill it, and
    /// begin the next one before it is complete.
    Batch,
}
