//! What a training run of Stokehold's did and how fast, as its recording keeps it: what predictions start from.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What a training run of Stokehold's did and how fast: what predictions start from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Training images of an epoch.
    pub images: u64,
    /// Images of a step.
    pub batch_size: u64,
    /// Loader workers.
    pub num_workers: u64,
    /// Cores the run could use.
    pub cores: u64,
    /// How many of them other programs kept busy meanwhile, on average; `None` where the platform does not tell.
    #[serde(default)]
    pub others_cores: Option<f64>,
    /// What performed the pipeline: `per-op`, `fused`, `gpu`.
    pub executor: String,
    /// Whether the images came from prepared shards.
    pub shards: bool,
    /// The device that computed: `cpu`, `cuda`, ..
    pub device: String,
    /// Mean wall time of an epoch's training, seconds; `None` before the first has ended.
    pub seconds_per_epoch: Option<f64>,
    /// Share of the time that the trainer waited for batches, 0 to 1.
    pub wait_share: f64,
    /// Images per second that the loader delivers alone; `None` where not measured.
    pub loader_ceiling: Option<f64>,
    /// Images per second that the trainer takes when batches are at hand; `None` where not measured.
    pub trainer_ceiling: Option<f64>,
    /// CPU time of all threads per image while the loader's ceiling was measured, seconds; `None` where not measured.
    #[serde(default)]
    pub loader_cpu_seconds: Option<f64>,
    /// CPU time of all threads per image while the trainer's ceiling was measured, seconds; `None` where not measured.
    #[serde(default)]
    pub trainer_cpu_seconds: Option<f64>,
    /// Time per image, summed over threads, that other programs kept the trainer from a core while its ceiling was measured,
    /// seconds; 0 where not measured.
    #[serde(default)]
    pub trainer_delay_seconds: f64,
    /// Seconds of a worker's time per image, by stage: `read`, `decode`, `augment`. Wall time beside the trainer, so on a
    /// full machine more than the stage costs.
    pub stage_seconds: BTreeMap<String, f64>,
    /// What other ways would cost, measured on the run's own images.
    #[serde(default)]
    pub alternatives: Vec<Alternative>,
}

impl Workload {
    /// What other programs took of the cores, in words; `None` where it was too little to matter, or is not known.
    pub fn others(&self) -> Option<String> {
        others_in_words(self.others_cores, self.cores)
    }
}

/// What other programs took of the cores, in words; `None` where it was too little to matter, or is not known.
pub fn others_in_words(others_cores: Option<f64>, cores: u64) -> Option<String> {
    let others = others_cores.filter(|others| *others >= 0.1 * cores as f64)?;
    Some(format!("other programs took {others:.1} of {cores} cores"))
}

/// Another way of the run, measured on its own images in turns with its own way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Alternative {
    /// What differs: [`Change::Executor`], [`Change::Shards`] or [`Change::BatchSize`].
    pub change: Change,
    /// The loader's CPU time per image as a multiple of the run's own way, above 0.
    pub loader: f64,
    /// The trainer's time per image as a multiple of the run's own way, above 0.
    pub trainer: f64,
}

/// Something that could be done differently.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Change {
    /// Another number of loader workers.
    Workers {
        /// How many.
        workers: u64,
    },
    /// Another executor of the pipeline.
    Executor {
        /// Its name.
        executor: String,
    },
    /// Training from prepared shards.
    Shards,
    /// More images in a step.
    BatchSize {
        /// How many.
        batch_size: u64,
    },
    /// The data set on storage that nobody waits for.
    Storage,
    /// Another machine.
    Machine {
        /// Its name in the price table.
        name: String,
        /// Its cores.
        cores: u64,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Workers { workers: 1 } => f.write_str("1 worker"),
            Change::Workers { workers } => write!(f, "{workers} workers"),
            Change::Executor { executor } => f.write_str(executor),
            Change::Shards => f.write_str("prepared shards"),
            Change::BatchSize { batch_size } => write!(f, "batches of {batch_size}"),
            Change::Storage => f.write_str("storage without waits"),
            Change::Machine { name, cores } => write!(f, "{name} ({cores} cores)"),
        }
    }
}

/// Images per second that a trainer takes where other programs leave it the cores, from what it took, its CPU time per image and the
/// time per image that its threads were kept from a core.
pub fn undisturbed(rate: f64, cpu_seconds: f64, delay_seconds: f64, cores: u64) -> f64 {
    // The time without a core stretched the steps, but no more than all cores could have shortened them.
    let delay = if positive(delay_seconds) {
        delay_seconds
    } else {
        0.0
    };
    if !positive(cpu_seconds) {
        return rate;
    }
    let most = cores as f64 / cpu_seconds;
    (rate * (1.0 + delay / cpu_seconds)).min(rate.max(most))
}

fn positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}
