//! The loader from outside, over a source in memory.

mod bad_images;
#[cfg(target_os = "linux")]
mod memory;
mod numbered;
mod order;
mod pairs;
mod preparation;
mod sampler;
mod sizes;
mod source;
mod threads;
mod workers;
