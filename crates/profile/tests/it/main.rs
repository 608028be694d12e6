//! What the profiler promises, by theme.

mod nvml;
mod rules;
mod smdebug;
#[cfg(unix)]
mod timeline;
