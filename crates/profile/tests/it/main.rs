//! What the profiler promises, by theme.

mod rules;
