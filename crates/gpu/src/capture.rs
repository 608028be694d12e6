//! Graphs that other libraries of the process capture while batches are made.
//!
//! A stream that is captured records its work for a graph and does not do it. In the capture mode `global`, the
//! default of PyTorch's `torch.cuda.graph`, CUDA then refuses calls of every thread of the process that might wait
//! for that work: to allocate, to load a kernel, to query an event. Such a call fails, and the capture with it.
//! A thread of the mode `relaxed` is not refused. Batches are made in streams of their own, which no one
//! captures, so the threads that make them have that mode: the device's own for good, others while they call it.
//! Source: `cuThreadExchangeStreamCaptureMode` in the CUDA Driver API.

use cudarc::driver::sys::{CUstreamCaptureMode, cuThreadExchangeStreamCaptureMode};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a CUDA device was opened. Without one the driver's library may be missing.
static HAS_DRIVER: AtomicBool = AtomicBool::new(false);

/// Gives this thread the mode `relaxed`, until it is dropped.
pub(crate) struct Relaxed {
    before: Option<CUstreamCaptureMode>,
    /// The mode is of this thread.
    _not_sent: PhantomData<*const ()>,
}

impl Relaxed {
    /// Does nothing before a CUDA device is opened.
    pub fn new() -> Relaxed {
        let relaxed = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        let has_driver = HAS_DRIVER.load(Ordering::Acquire);
        Relaxed {
            before: has_driver.then(|| exchange(relaxed)),
            _not_sent: PhantomData,
        }
    }
}

impl Drop for Relaxed {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            exchange(before);
        }
    }
}

/// Gives this thread, which is the device's, the mode for good.
pub(crate) fn relax_for_good() {
    HAS_DRIVER.store(true, Ordering::Release);
    std::mem::forget(Relaxed::new());
}

/// Gives this thread a mode, and returns the one before.
fn exchange(mut mode: CUstreamCaptureMode) -> CUstreamCaptureMode {
    // SAFETY: the driver reads a mode and writes one. It fails only if it was not initialised, and leaves the mode then.
    unsafe { cuThreadExchangeStreamCaptureMode(&mut mode) };
    mode
}
