//! The events of a run. The library itself prints nothing.

use std::path::Path;

use stokehold_loader::BadImage;
use stokehold_pipeline::Executor;

use crate::progress::EpochRecord;

/// Receives the events of a run. They are sent on the thread that trains, which waits meanwhile.
pub trait Observer {
    /// Handles an event.
    fn event(&mut self, event: Event<'_>);
}

/// An observer that ignores all events.
impl Observer for () {
    fn event(&mut self, _: Event<'_>) {}
}

/// An event of a run. Epochs, batches and steps count from 1.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Setup is complete, and training begins.
    Started {
        /// Epochs of the whole run.
        epochs: u64,
        /// Batches in each.
        batches: usize,
        /// Training images.
        images: usize,
        /// Validation images; `None` without validation.
        val_images: Option<usize>,
        /// Classes.
        classes: usize,
        /// Loader threads.
        workers: usize,
        /// The device that computes.
        device: &'a str,
        /// Whether a network is trained; losses of an emulated accelerator are 0 and mean nothing.
        learns: bool,
        /// The initial weights were for this many classes, and the last layer starts from random ones.
        replaced_head: Option<usize>,
    },
    /// The run chose an executor.
    Chosen {
        /// The executor.
        executor: Executor,
        /// The reason.
        why: &'a str,
    },
    /// The loader changed the number of its threads.
    Workers {
        /// Their number now.
        workers: usize,
        /// The reason.
        why: &'a str,
    },
    /// The run continues from a checkpoint.
    Resumed {
        /// The checkpoint.
        checkpoint: &'a Path,
        /// Steps made before.
        step: u64,
    },
    /// A resume was requested, but there is no checkpoint: the run starts from the beginning.
    NothingToResume,
    /// A training step was made.
    Step {
        /// The epoch.
        epoch: u64,
        /// The batch of the epoch.
        batch: u64,
        /// The loss of the step.
        loss: f32,
        /// Images in the step.
        images: usize,
    },
    /// A logging interval has ended.
    Logged {
        /// The epoch.
        epoch: u64,
        /// Steps since the start of the run.
        step: u64,
        /// Mean loss of the interval's images.
        loss: f64,
        /// The learning rate of its last step.
        lr: f64,
        /// Images trained on per second.
        images_per_second: f64,
        /// Share of the time in which the trainer waited, 0 to 1.
        wait_share: f64,
    },
    /// An image could not be read or decoded; reported once per image.
    BadImage(&'a BadImage),
    /// A batch was validated.
    Validated {
        /// The batch.
        batch: usize,
        /// The number of batches.
        batches: usize,
    },
    /// An epoch has ended, validation included.
    EpochDone {
        /// Its results.
        record: &'a EpochRecord,
        /// Whether it is the best one so far.
        best: bool,
    },
    /// A checkpoint was written.
    Checkpoint(&'a Path),
    /// Training has ended, and the ceilings are being measured.
    MeasuringCeilings,
    /// A problem that does not end the run, such as a damaged checkpoint or an incomplete record, and its
    /// consequence.
    Warning(String),
}
