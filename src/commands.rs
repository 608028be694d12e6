//! The subcommands.

pub mod advise;
pub mod bench;
pub mod compare;
pub mod dataset;
pub mod devices;
pub mod evaluate;
pub mod explain;
pub mod job;
pub mod predict;
pub mod prepare;
pub mod profile;
pub mod report;
pub mod top;
pub mod train;
pub mod transform;
pub mod tune;
