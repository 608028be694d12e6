//! What the profiler promises, by theme.

mod nvml;
mod smdebug;
#[cfg(unix)]
mod timeline;
