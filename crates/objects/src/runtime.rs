//! The asynchronous runtime: threads that wait for sockets.

use std::future::Future;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::{Cause, ObjectError};

/// One runtime for the whole process: two threads carry thousands of requests. More threads per bucket would
/// only take cores from the loader.
fn runtime() -> Result<&'static Runtime, ObjectError> {
    static RUNTIME: OnceLock<(u32, std::io::Result<Runtime>)> = OnceLock::new();
    let (process, made) = RUNTIME.get_or_init(|| {
        // Only the first call has an effect; a provider that the program installed before stays.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let made = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("objects")
            .enable_all()
            .build();
        (std::process::id(), made)
    });
    // A fork has the memory of the threads but not the threads: it would wait for ever.
    if *process != std::process::id() {
        return Err(ObjectError::new(
            "objects",
            Cause::Other,
            format!(
                "process {process} made the threads for requests, and this fork of it has none; \
                 start this process by spawn, or use no bucket before the fork"
            ),
        ));
    }
    made.as_ref().map_err(|error| {
        ObjectError::new(
            "objects",
            Cause::Other,
            format!("no threads for requests: {error}"),
        )
    })
}

/// Starts the runtime. Call this before the first client is built.
pub(crate) fn prepare() -> Result<(), ObjectError> {
    runtime().map(drop)
}

/// Runs a future to its end, on the calling thread. Must not be called from within an asynchronous task.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> Result<T, ObjectError> {
    Ok(runtime()?.block_on(future))
}

/// Starts a future in the background.
pub(crate) fn spawn<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Result<JoinHandle<T>, ObjectError> {
    Ok(runtime()?.spawn(future))
}
