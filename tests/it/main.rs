//! The command line from outside: what it makes, says and exits with.

mod advise;
#[cfg(feature = "full")]
mod at_sagemaker;
mod bench;
#[cfg(feature = "full")]
mod bucket;
mod cache;
mod compare;
#[cfg(feature = "cuda")]
mod cuda;
mod dataset;
mod devices;
mod explain;
// Its outputs are those of the CPU.
#[cfg(all(feature = "full", not(any(feature = "cuda", feature = "vulkan"))))]
mod guide;
#[cfg(feature = "full")]
mod help;
mod house;
#[cfg(feature = "full")]
mod job;
#[cfg(not(feature = "full"))]
mod left_out;
mod limits;
#[cfg(feature = "full")]
mod local;
mod log;
mod predict;
mod prepare;
mod profile;
#[cfg(feature = "full")]
mod ranks;
#[cfg(feature = "full")]
mod reference;
mod report;
mod runs;
#[cfg(feature = "full")]
mod sagemaker;
#[cfg(feature = "full")]
mod sagemaker_follows;
#[cfg(feature = "full")]
mod sagemaker_tune;
#[cfg(feature = "full")]
mod scale;
mod script;
#[cfg(feature = "full")]
mod serve;
#[cfg(feature = "full")]
mod slurm;
#[cfg(feature = "full")]
mod spot;
#[cfg(feature = "full")]
mod storage;
// What the tests of the crate need, and these do not.
#[cfg(feature = "full")]
#[allow(dead_code)]
#[path = "../../crates/sagemaker/tests/it/stub.rs"]
mod stub;
#[cfg(feature = "full")]
mod studio;
mod top;
mod train;
#[cfg(feature = "full")]
mod transform;
#[cfg(feature = "full")]
mod tune;
#[cfg(feature = "vulkan")]
mod vulkan;
