//! The ground floor: what several crates need and none owns. No dependencies.
//!
//! - [`whole`] writes files that are there as a whole or not at all.
//! - [`lock`] keeps a folder for one process and says which process has it.
//! - [`clock`] reads and prints the time of day.

pub mod clock;
pub mod lock;
pub mod whole;
