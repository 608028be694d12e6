//! The loader from outside, over a source in memory.

mod bad_images;
mod memory;
mod order;
mod source;
mod threads;
