//! Advice: what each change would gain.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What a training run of Stokehold's did and how fast: what predictions start from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Workload {
    /// Training images of an epoch.
    pub images: u64,
    /// Images of a step.
    pub batch_size: u64,
    /// Loader workers.
    pub num_workers: u64,
    /// Cores the run could use.
    pub cores: u64,
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
    /// Seconds of a worker's time per image, by stage: `read`, `decode`, `augment`.
    pub stage_seconds: BTreeMap<String, f64>,
}
