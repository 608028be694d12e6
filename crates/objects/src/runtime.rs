//! The threads that wait for sockets.

use std::future::Future;
use std::sync::OnceLock;

use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

use crate::{Cause, ObjectError};

/// One for the whole process: two threads carry thousands of requests, and threads of its own per bucket would only
/// take cores from the loader.
fn runtime() -> Result<&'static Runtime, ObjectError> {
    static RUNTIME: OnceLock<std::io::Result<Runtime>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        // Only the first call has an effect; whoever chose another before us has chosen.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("objects")
            .enable_all()
            .build()
    });
    made.as_ref().map_err(|error| {
        ObjectError::new(
            "objects",
            Cause::Other,
            format!("no threads for requests: {error}"),
        )
    })
}

/// Makes what clients are built on: to be called before the first.
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
