//! The queue of work for a device, its memory, and what comes back from it.

use cubecl::prelude::*;
use cubecl::server::ServerError;
use cubecl_environment::stream::StreamId;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use stokehold_loader::panic_message;

/// Device memory, and the number of elements in it.
#[derive(Debug, Clone)]
pub(crate) struct Buffer {
    pub handle: cubecl::server::Handle,
    pub len: usize,
}

impl Buffer {
    /// The buffer as a kernel's argument.
    pub fn arg(&self) -> BufferArg {
        // SAFETY: `len` is the number of elements that the buffer was made with: every maker of a `Buffer` takes its
        // size in bytes from `len`.
        unsafe { BufferArg::from_raw_parts(self.handle.clone(), self.len) }
    }
}

/// Queues the launches of `work`, and their memory; the error is the device's, or a panic of CubeCL's.
///
/// CubeCL runs its work in a thread of the device. There it catches a panic, logs it and goes on as if the
/// launch had been done: a caller that waits for the result then gets `Ok` and arbitrary memory. So the whole
/// of `work` runs in that thread, where each launch is carried out at once and a panic ends `work`.
pub(crate) fn queued<R: Send + 'static>(
    client: &Client,
    work: impl FnOnce() -> Result<R, ServerError> + Send,
) -> Result<R, String> {
    answered(|| client.exclusive(work)?)
}

/// Waits for a buffer and copies it; the error is the device's.
pub(crate) fn read(client: &Client, buffer: &Buffer) -> Result<Vec<u8>, String> {
    let read = answered(|| client.read_one(buffer.handle.clone()))?;
    Ok(read.to_vec())
}

/// Calls the device. CubeCL propagates a panic of the device's thread to the caller.
pub(crate) fn answered<R, E: fmt::Debug>(ask: impl FnOnce() -> Result<R, E>) -> Result<R, String> {
    match catch_unwind(AssertUnwindSafe(ask)) {
        Ok(answer) => answer.map_err(|error| format!("{error:?}")),
        Err(panic) => Err(format!("CubeCL panicked: {}", panic_message(&*panic))),
    }
}

/// The queue that all loaders of the process make their batches on, from any thread. There is only one,
/// because each queue has its own memory on the device, which is never freed: here the next loader reuses the
/// memory of one that has ended.
pub(crate) fn queue() -> StreamId {
    static QUEUE: OnceLock<StreamId> = OnceLock::new();
    *QUEUE.get_or_init(StreamId::allocate)
}
