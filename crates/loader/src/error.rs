//! Errors of a loader.

use std::any::Any;
use std::io;

use stokehold_base::fault::Fault;
use stokehold_pipeline::PipelineError;

use crate::BadImage;

/// Why a loader cannot be made, or why an epoch ends early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoaderError {
    /// An option is out of range.
    #[error("{reason}")]
    Options {
        /// The option, and its allowed range.
        reason: String,
    },
    /// The source has no samples.
    #[error("there are no images to load")]
    Empty,
    /// With `drop_last`, the epoch has no batch.
    #[error(
        "{samples} images on {world_size} rank(s) fill no batch of {batch_size}; \
         use a smaller batch size or keep the last partial batch"
    )]
    NoFullBatch {
        /// Samples in the source.
        samples: usize,
        /// Processes that share them.
        world_size: usize,
        /// Images per batch.
        batch_size: usize,
    },
    /// The pipeline is not valid, or its images differ in size.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// An image is bad, and the policy is to stop.
    #[error("{}: {}", .0.name, .0.reason)]
    BadImage(BadImage),
    /// More bad images than allowed.
    #[error(
        "more than {limit} bad images, the last one {}: {}; repair the data set or raise the limit",
        last.name, last.reason
    )]
    TooManyBadImages {
        /// The limit.
        limit: usize,
        /// The image that exceeded the limit.
        last: BadImage,
    },
    /// Every image of a class is bad, so there is no substitute.
    #[error("{}: {}; no other image of its class can be read to take its place", .0.name, .0.reason)]
    NoSubstitute(BadImage),
    /// Every image was skipped.
    #[error("not one image of an epoch could be read and decoded")]
    AllBad {
        /// The epoch, from 0.
        epoch: u64,
    },
    /// The state was saved with other data or other options.
    #[error("cannot resume: {what} was {saved} when the state was saved and is {now} now")]
    State {
        /// The difference.
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
    /// The system lacks what reading an image takes; the image may be good.
    #[error("{name}: {reason}; raise the limit of open files (ulimit -n), or use less memory")]
    System {
        /// The image.
        name: String,
        /// What it lacks.
        reason: String,
    },
    /// A [`Supply`](crate::Supply) failed.
    #[error("{reason}")]
    Supply {
        /// What happened, where, and what to do.
        reason: String,
        /// Whether the caller's input is at fault.
        input: bool,
    },
    /// The [`Device`](crate::Device) cannot make the batches, or failed.
    #[error("{0}")]
    Device(Box<dyn Fault + Send + Sync>),
    /// A worker thread could not be started.
    #[error("cannot start a worker thread: {0}; use fewer workers")]
    Spawn(io::Error),
    /// A worker thread panicked, which is a bug of this program.
    #[error("a worker thread failed: {message}; this is a bug in stokehold, please report it")]
    WorkerPanicked {
        /// The panic's message.
        message: String,
    },
}

impl LoaderError {
    /// The error for a panic in a thread that makes batches.
    pub fn panicked(panic: &(dyn Any + Send)) -> Self {
        let message = panic_message(panic).to_owned();
        Self::WorkerPanicked { message }
    }
}

impl Fault for LoaderError {
    fn is_input(&self) -> bool {
        match self {
            Self::Supply { input, .. } => *input,
            Self::Device(error) => error.is_input(),
            Self::Spawn(_) | Self::WorkerPanicked { .. } | Self::System { .. } => false,
            _ => true,
        }
    }
}

/// The message of a caught panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}
