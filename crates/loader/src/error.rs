//! Why a loader cannot go on.

use std::any::Any;
use std::io;

use stokehold_base::fault::Fault;
use stokehold_pipeline::PipelineError;

use crate::BadImage;

/// Why a loader cannot be made, or why an epoch ends early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoaderError {
    /// An option is out of its range.
    #[error("{reason}")]
    Options {
        /// Which one, and what is allowed.
        reason: String,
    },
    /// The source has no samples.
    #[error("there are no images to load")]
    Empty,
    /// With `drop_last`, nothing is left of the epoch.
    #[error(
        "{samples} images on {world_size} rank(s) fill no batch of {batch_size}; \
         use a smaller batch size or keep the last partial batch"
    )]
    NoFullBatch {
        /// Samples in the source.
        samples: usize,
        /// Processes that share them.
        world_size: usize,
        /// Images in a batch.
        batch_size: usize,
    },
    /// The pipeline is not valid, or its images differ in size.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// An image is bad and the policy is to stop.
    #[error("{}: {}", .0.name, .0.reason)]
    BadImage(BadImage),
    /// More bad images than allowed.
    #[error(
        "more than {limit} bad images, the last one {}: {}; repair the data set or raise the limit",
        last.name, last.reason
    )]
    TooManyBadImages {
        /// How many were allowed.
        limit: usize,
        /// The one too many.
        last: BadImage,
    },
    /// Every image of a class is bad, so none can stand in for another.
    #[error("{}: {}; no other image of its class can be read to take its place", .0.name, .0.reason)]
    NoSubstitute(BadImage),
    /// Every image was skipped.
    #[error("not one image of an epoch could be read and decoded")]
    AllBad {
        /// The epoch, from 0.
        epoch: u64,
    },
    /// The state was saved over other data or with other options.
    #[error("cannot resume: {what} was {saved} when the state was saved and is {now} now")]
    State {
        /// What differs.
        what: String,
        /// Its value in the state.
        saved: String,
        /// Its value in this loader.
        now: String,
    },
    /// The loader is used in a process that was forked from the one that made it, without its threads.
    #[error(
        "this loader was made by process {made_by}, and its threads are not in this fork of it; \
         make the loader in the process that uses it, or start that process by spawn"
    )]
    Forked {
        /// The process that made the loader.
        made_by: u32,
    },
    /// A worker thread could not be started.
    #[error("cannot start a worker thread: {0}; use fewer workers")]
    Spawn(io::Error),
    /// A worker thread panicked, which is a fault of this program.
    #[error("a worker thread failed: {message}; this is a bug in stokehold, please report it")]
    WorkerPanicked {
        /// What it said.
        message: String,
    },
}

impl LoaderError {
    /// What becomes of a panic that was caught in a thread which makes batches.
    pub fn panicked(panic: &(dyn Any + Send)) -> Self {
        let message = panic_message(panic).to_owned();
        Self::WorkerPanicked { message }
    }
}

impl Fault for LoaderError {
    fn is_input(&self) -> bool {
        !matches!(self, Self::Spawn(_) | Self::WorkerPanicked { .. })
    }
}

/// What a panic that was caught said.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
