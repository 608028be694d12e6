//! Samples that somebody else finishes.
//!
//! Where images are made elsewhere, such as on a GPU, a loader's workers do only what the CPU has to do for them. What
//! comes of it passes through the loader unseen; order, draws, prefetch, resume and the policy for bad images are the
//! same.

use crate::{DecodeOptions, DrawKey, ImageError, Input, Pipeline, PipelineError};
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

/// What workers do to samples instead of making images of them.
pub trait Preparation: Debug + Send + Sync {
    /// What one worker works with.
    ///
    /// # Errors
    /// Where the pipeline cannot be prepared for.
    fn begin(
        &self,
        pipeline: &Arc<Pipeline>,
        decode: DecodeOptions,
    ) -> Result<Box<dyn Prepare>, PipelineError>;
}

/// One worker's way from files to prepared samples.
pub trait Prepare: Send {
    /// Prepares one sample.
    ///
    /// # Errors
    /// Where the bytes are broken or the image does not fit the pipeline: a bad image.
    fn prepare(&mut self, input: Input<'_>, key: DrawKey) -> Result<PreparedSample, ImageError>;
}

/// A sample as [`Prepare`] left it.
pub type PreparedSample = Arc<dyn Any + Send + Sync>;
