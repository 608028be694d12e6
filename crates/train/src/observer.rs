//! What a run tells whoever watches it: the library itself prints nothing.

use std::path::Path;

use stokehold_loader::BadImage;

use crate::executor::AnyExecutor;
use crate::progress::EpochRecord;

/// Watches a run. Events come on the thread that trains, which waits meanwhile.
pub trait Observer {
    /// Something happened.
    fn event(&mut self, event: Event<'_>);
}

/// An observer that looks away.
impl Observer for () {
    fn event(&mut self, _: Event<'_>) {}
}

/// What can happen in a run. Epochs, batches and steps count from 1.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event<'a> {
    /// All is set up, and training begins.
    Started {
        /// Epochs of the whole run.
        epochs: u64,
        /// Batches in each.
        batches: usize,
        /// Training images.
        images: usize,
        /// Validation images; `None` where there are none to validate on.
        val_images: Option<usize>,
        /// Classes.
        classes: usize,
        /// Loader threads.
        workers: usize,
        /// The device that computes.
        device: &'a str,
        /// The initial weights were for this many classes, and the last layer starts from random ones.
        replaced_head: Option<usize>,
    },
    /// The run chose between executors.
    Chosen {
        /// Which one.
        executor: AnyExecutor,
        /// Why.
        why: &'a str,
    },
    /// The run goes on from a checkpoint.
    Resumed {
        /// The checkpoint.
        checkpoint: &'a Path,
        /// Steps made before.
        step: u64,
    },
    /// A resume was asked for, and there is no checkpoint to go on from: the run begins at its start.
    NothingToResume,
    /// A training step was made.
    Step {
        /// The epoch.
        epoch: u64,
        /// Which batch of the epoch it was.
        batch: u64,
        /// The loss of the step.
        loss: f32,
        /// Images in the step.
        images: usize,
    },
    /// An interval of the log is over.
    Logged {
        /// The epoch.
        epoch: u64,
        /// Steps since the start of the run.
        step: u64,
        /// Mean loss of the interval's images.
        loss: f64,
        /// The learning rate of its last step.
        lr: f64,
        /// Images trained on in a second.
        images_per_second: f64,
        /// Share of the time that the trainer waited, 0 to 1.
        wait_share: f64,
    },
    /// An image could not be read or decoded; each is told once.
    BadImage(&'a BadImage),
    /// A batch was validated.
    Validated {
        /// Which one.
        batch: usize,
        /// Of how many.
        batches: usize,
    },
    /// An epoch is over, validation included.
    EpochDone {
        /// What came of it.
        record: &'a EpochRecord,
        /// Whether it is the best one so far.
        best: bool,
    },
    /// A checkpoint was written.
    Checkpoint(&'a Path),
    /// The ceilings are being measured; nothing is trained any more.
    MeasuringCeilings,
    /// Something is not as it should be, such as a damaged checkpoint or a record that lacks something, and what the run makes
    /// of it.
    Warning(String),
}
