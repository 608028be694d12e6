//! What the profiler promises, by theme.

mod rules;
mod smdebug;
#[cfg(unix)]
mod timeline;
