//! The items of a loader.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use stokehold_pipeline::PreparedSample;

use crate::ImageBuffer;

/// Images ready to train on, their labels, and how they were made.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The images, N·3·H·W numbers: NCHW, in the value range that the pipeline ends with. Dropping the batch
    /// returns their memory to the loader.
    pub images: ImageBuffer,
    /// If workers only prepare samples, the N prepared samples; then `images` is empty. For an executor on a
    /// device.
    #[doc(hidden)]
    pub prepared: Vec<PreparedSample>,
    /// [N, 3, H, W]. N is at least 1, except of [`Parts`](crate::Parts).
    pub shape: [usize; 4],
    /// The class of each image, N numbers.
    pub labels: Vec<u32>,
    /// The class of each pixel of each image, N·H·W numbers, [`IGNORE`](stokehold_storage::IGNORE) where it has none; empty
    /// unless the source has [masks](stokehold_storage::Source::pixel_classes). Then all labels are 0.
    pub masks: Vec<u8>,
    /// The number of each image in its source, N numbers. A substitute has its own number.
    pub samples: Vec<u64>,
    /// For each place, how often the epoch had its sample before, N numbers. For an executor on a device.
    #[doc(hidden)]
    pub again: Vec<u32>,
    /// Samples that were found to be bad after workers had prepared them: they stand in for no other of this batch.
    pub(crate) rejected: Vec<u64>,
    /// Bad images found on the way to this batch that this loader had not reported before.
    /// [`Batches::unreported`](crate::Batches::unreported) has those after the epoch's last batch.
    pub bad: Vec<BadImage>,
    /// The workers' spans: read, decode and augment for each image, batch for the whole.
    pub spans: Vec<Span>,
    /// How long the consumer waited for this batch.
    pub wait: Duration,
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
