//! The command line from outside: what it makes, says and exits with.

mod advise;
mod at_sagemaker;
mod bench;
mod bucket;
mod cache;
mod compare;
#[cfg(feature = "cuda")]
mod cuda;
mod dataset;
mod devices;
mod explain;
// Its outputs are those of the CPU.
#[cfg(not(any(feature = "cuda", feature = "vulkan")))]
mod guide;
mod help;
mod house;
mod image;
mod job;
mod local;
mod log;
mod predict;
mod prepare;
mod profile;
mod ranks;
mod reference;
mod report;
mod runs;
mod sagemaker;
mod sagemaker_follows;
mod sagemaker_tune;
mod scale;
mod script;
mod serve;
mod slurm;
mod spot;
mod storage;
mod studio;
mod top;
mod train;
mod transform;
mod tune;
#[cfg(feature = "vulkan")]
mod vulkan;
