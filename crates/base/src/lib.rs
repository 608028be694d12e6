//! The ground floor: what several crates need and none owns. No dependencies.
//!
//! - [`whole`] writes files that are there as a whole or not at all.
//! - [`lock`] keeps a folder for one process and says which process has it.
//! - [`clock`] reads and prints the time of day.
//! - [`student`] tells a difference from chance.
//! - [`stats`] has the one definition of a percentile.

pub mod clock;
pub mod lock;
pub mod stats;
pub mod student;
pub mod whole;
