//! Whole runs, of a network that learns two classes of tiny images in seconds.

mod disk;
mod resume;
mod tiny;
mod whole;
