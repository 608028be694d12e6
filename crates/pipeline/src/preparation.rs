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

    /// Prepares a sample that is to stand in for a bad one: whatever is wrong with it has to be found now, so that one that is
    /// bad too does not take its place.
    ///
    /// # Errors
    /// As there.
    fn prepare_checked(&mut self, input: Input<'_>, key: DrawKey) -> Result<PreparedSample, ImageError> {
        self.prepare(input, key)
    }
}

/// A sample as [`Prepare`] left it.
pub type PreparedSample = Arc<dyn Any + Send + Sync>;
