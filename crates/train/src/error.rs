//! Errors that end a training run.

use std::path::PathBuf;

use stokehold_base::fault::Fault;
use stokehold_base::lock::Holder;
use stokehold_cache::CacheError;
use stokehold_gpu::GpuError;
use stokehold_loader::{Address, LoaderError};
use stokehold_pipeline::PipelineError;
use stokehold_profile::ProfileError;
use stokehold_ranks::RanksError;

use crate::checkpoint::CheckpointError;
use crate::device::DeviceError;
use crate::optim::OptimizerError;
use crate::schedule::ScheduleError;
use crate::weights::WeightsError;

/// Why a run could not be started or continued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A number of the configuration is out of its range.
    #[error("{field}: {problem}")]
    Config {
        /// The field.
        field: &'static str,
        /// What is wrong, and the allowed range.
        problem: String,
    },
    /// A constant of the optimiser, or its saved state, is invalid.
    #[error(transparent)]
    Optimizer(#[from] OptimizerError),
    /// A number of the schedule is invalid.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    /// A pipeline is invalid.
    #[error(transparent)]
    Pipeline(#[from] PipelineError),
    /// The cache cannot be opened.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The device is missing or failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The executor `gpu` was requested but cannot work here.
    #[error("the executor gpu: {0}; or choose the executor fused")]
    NoGpu(String),
    /// The executor `gpu` failed, or ran out of its budget.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// Weights could not be loaded or saved.
    #[error(transparent)]
    Weights(#[from] Box<WeightsError>),
    /// The loader cannot continue.
    #[error(transparent)]
    Loader(#[from] LoaderError),
    /// No server of batches can be used.
    #[error("{0}")]
    Servers(Box<dyn Fault + Send + Sync>),
    /// Servers were named, and no one has called [`connect_servers_with`](crate::connect_servers_with).
    #[error(
        "{address}: this program takes no batches from servers; build one that calls `stokehold_train::connect_servers_with`"
    )]
    NoServers {
        /// The first of the servers.
        address: Address,
    },
    /// The validation set's loader cannot continue.
    #[error("validation: {0}; check all validation images")]
    Validation(LoaderError),
    /// A checkpoint could not be written or read.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The other ranks are gone, silent or unreachable.
    #[error(transparent)]
    Ranks(#[from] RanksError),
    /// Ranks were started otherwise than rank 0.
    #[error(
        "the ranks are not of one run: {}; start all ranks with the same options and data",
        differences.join("; ")
    )]
    Disagree {
        /// The differences, a phrase for each.
        differences: Vec<String>,
    },
    /// Ranks that trained together have different weights.
    #[error(
        "after {step} steps the weights of rank {rank} are not those of rank 0: their machines compute differently, or their memory \
         fails; the checkpoints are rank 0's"
    )]
    Apart {
        /// The lowest rank whose weights differ.
        rank: usize,
        /// Steps made.
        step: u64,
    },
    /// The system samples could not be written.
    #[error(transparent)]
    Profile(#[from] ProfileError),
    /// The folder already has a run.
    #[error("{}: there is a run in this folder; resume it, or give another name", path.display())]
    RunExists {
        /// The run's folder.
        path: PathBuf,
    },
    /// Another process trains in the folder.
    #[error(
        "{}: {holder} trains in this folder; wait until it ends, or give another name",
        path.display()
    )]
    InUse {
        /// The run's folder.
        path: PathBuf,
        /// The other process.
        holder: Holder,
    },
    /// The folder has a different run.
    #[error(
        "{}: this run cannot be continued with other settings: {}; give the run's own settings, \
         or start another run",
        path.display(),
        changes.join("; ")
    )]
    Changed {
        /// The run's folder.
        path: PathBuf,
        /// The differences, a phrase for each field.
        changes: Vec<String>,
    },
    /// A file of the run is invalid.
    #[error("{}: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A model's file does not say something that predictions need.
    #[error("{}: this file does not say {missing}; give it", path.display())]
    NotDescribed {
        /// The file.
        path: PathBuf,
        /// What it does not say.
        missing: &'static str,
    },
    /// A model's file says one thing, and the caller another.
    #[error(
        "{}: {what} in this file is {file}, and {given} is given; leave it out, or give the right file",
        path.display()
    )]
    Contradicted {
        /// The file.
        path: PathBuf,
        /// What differs.
        what: &'static str,
        /// Its value in the file.
        file: String,
        /// The caller's value.
        given: String,
    },
    /// The classes of a data set are not those of the model.
    #[error(
        "{}: its classes are not the model's: {differences}; give the data of this model, or the model of these data",
        data.display()
    )]
    OtherClasses {
        /// The data set.
        data: PathBuf,
        /// The classes that only one of the two has.
        differences: String,
    },
    /// A model made NaN or infinite numbers of an image.
    #[error("{image}: {}; take another checkpoint", crate::infer::Flaw::NotFinite)]
    NotFinite {
        /// The image.
        image: String,
    },
    /// A file of the run could not be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The loss became NaN or infinite.
    #[error(
        "the loss of step {step} is {loss}: the training diverged at a learning rate of {lr}; \
         lower it, add warm-up or clip the gradients"
    )]
    Diverged {
        /// The step, from 1.
        step: u64,
        /// The loss.
        loss: f32,
        /// The step's learning rate.
        lr: f64,
    },
}

impl From<WeightsError> for TrainError {
    fn from(error: WeightsError) -> Self {
        Self::Weights(Box::new(error))
    }
}

impl TrainError {
    /// Whether all ranks have the same error, so that one may say it.
    pub fn is_of_all_ranks(&self) -> bool {
        matches!(
            self,
            Self::Disagree { .. } | Self::Apart { .. } | Self::Diverged { .. } | Self::Config { .. }
        )
    }
}

impl Fault for TrainError {
    fn is_input(&self) -> bool {
        match self {
            Self::Config { .. }
            | Self::Schedule(_)
            | Self::Pipeline(_)
            | Self::Weights(_)
            | Self::RunExists { .. }
            | Self::InUse { .. }
            | Self::Changed { .. }
            | Self::Disagree { .. }
            | Self::NoGpu(_)
            | Self::Malformed { .. }
            | Self::NotDescribed { .. }
            | Self::Contradicted { .. }
            | Self::OtherClasses { .. }
            | Self::NotFinite { .. } => true,
            Self::Optimizer(error) => matches!(error, OptimizerError::Range(_)),
            Self::Device(error) => !matches!(error, DeviceError::Failed(_)),
            Self::Gpu(error) => error.is_input(),
            Self::Loader(error) | Self::Validation(error) => error.is_input(),
            Self::Servers(error) => error.is_input(),
            Self::NoServers { .. } => true,
            Self::Cache(error) => error.is_input(),
            Self::Ranks(error) => {
                matches!(
                    error,
                    RanksError::WithoutMpi { .. } | RanksError::NoInterface { .. }
                )
            }
            Self::Apart { .. }
            | Self::Checkpoint(_)
            | Self::Profile(_)
            | Self::Io { .. }
            | Self::Diverged { .. } => false,
        }
    }
}
