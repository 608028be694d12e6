//! What a loader yields.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use stokehold_pipeline::PreparedSample;

use crate::ImageBuffer;

/// Images ready to train on, their labels, and how they came to be.
#[derive(Debug, Clone)]
pub struct Batch {
    /// The images, N·3·H·W numbers: NCHW, in the value range the pipeline ends with. Their memory goes back to the
    /// loader with the batch.
    pub images: ImageBuffer,
    /// Where workers only prepare samples, these, N of them; then there are no numbers in `images`.
    pub prepared: Vec<PreparedSample>,
    /// [N, 3, H, W]. N is at least 1.
    pub shape: [usize; 4],
    /// The class of each image, N numbers.
    pub labels: Vec<u32>,
    /// The number of each image in its source, N numbers. A substitute has its own number.
    pub samples: Vec<u64>,
    /// Bad images found on the way to this batch that this loader had not reported before. Those behind the epoch's last batch
    /// are [`Batches::unreported`](crate::Batches::unreported).
    pub bad: Vec<BadImage>,
    /// What the workers did when: read, decode and augment for each image, batch for the whole.
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

/// One piece of a worker's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// The worker, 0..workers; of a batch the one who finished it.
    pub worker: usize,
    /// What it did.
    pub stage: Stage,
    /// When it began.
    pub start: Instant,
    /// How long it took.
    pub duration: Duration,
    /// Of a read, the bytes of the file.
    pub bytes: Option<u64>,
}

/// What a worker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Fetching the bytes of one image.
    Read,
    /// Bytes of one image to pixels.
    Decode,
    /// The operations on the pixels of one image.
    Augment,
    /// A whole batch: from the beginning of its first image to the end of its last. Several workers fill it, and
    /// begin the next one before it is whole.
    Batch,
}
