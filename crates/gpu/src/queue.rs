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
/// CubeCL runs its work in a thread of the device. There it catches a panic, logs it and continues as if the
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
    #[cfg(feature = "cuda")]
    let _relaxed = crate::capture::Relaxed::new();
    match catch_unwind(AssertUnwindSafe(ask)) {
        Ok(answer) => answer.map_err(|error| causes(&format!("{error:?}"))),
        Err(panic) => Err(format!("CubeCL panicked: {}", panic_message(&*panic))),
    }
}

/// The innermost causes of CubeCL's error, in one line. CubeCL writes each cause with a backtrace, the launches that it skipped and the
/// kernel's source; only the causes are kept.
fn causes(error: &str) -> String {
    let said = |cause: &str| {
        let ends = ["Backtrace:", "No backtrace", "Asked at:", "[Source]"];
        let lines = cause.lines().map(str::trim);
        let lines = lines.take_while(|line| !ends.iter().any(|end| line.starts_with(end)));
        let lines: Vec<&str> = lines
            .filter(|line| !line.is_empty() && !line.starts_with("skipped `"))
            .collect();
        lines.join(" ")
    };
    let causes: Vec<String> = error.split("Caused by:").map(said).collect();
    causes[causes.len().saturating_sub(2)..].join(": ")
}

/// The queue that all loaders of the process make their batches on, from any thread. There is only one,
/// because each queue has its own memory on the device, which is never freed: here the next loader reuses the
/// memory of one that has ended.
pub(crate) fn queue() -> StreamId {
    static QUEUE: OnceLock<StreamId> = OnceLock::new();
    *QUEUE.get_or_init(StreamId::allocate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_told_in_one_line() {
        let refused = "Several failures at once\nCaused by:\n  The bytes were never written (failure #16)\n  skipped `Decode`: it \
                       needed memory\nCaused by:\n  A launch error happened\nCaused by:\n  An error caused the compilation to \
                       fail\nCaused by:\n  [Compilation Error] \n    nvrtc: error: invalid value\n[Source]  \nint x;\n\n\
                       Backtrace:\nNo backtrace available\nAsked at:\nNo backtrace available";
        assert_eq!(
            causes(refused),
            "An error caused the compilation to fail: [Compilation Error] nvrtc: error: invalid value"
        );
        assert_eq!(causes("no such thing"), "no such thing");
    }
}
