//! Whole runs, of a network that learns two classes of tiny images in seconds.

mod disk;
mod pairs;
mod ranks;
mod resume;
pub mod tiny;
mod whole;
