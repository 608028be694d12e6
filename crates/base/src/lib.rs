//! The ground floor: what several crates need and none owns. No dependencies.
//!
//! - [`whole`] writes files that are there as a whole or not at all.
//! - [`lock`] keeps a folder for one process and says which process has it.
//! - [`clock`] reads and prints the time of day.
//! - [`student`] tells a difference from chance.
//! - [`fault`] says of an error whether the input is at fault.
//! - [`stats`] has the one definition of a percentile.
//! - [`random`] and [`mod@hash`] give numbers that are a function of their key, the same everywhere.

pub mod clock;
pub mod fault;
pub mod hash;
pub mod lock;
pub mod random;
pub mod stats;
pub mod student;
pub mod whole;
