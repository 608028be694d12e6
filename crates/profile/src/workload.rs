//! What a Stokehold training run did and how fast, as its recording stores it: the input of predictions.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ranks::RanksSummary;

/// What a Stokehold training run did and how fast: the input of predictions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Workload {
    /// Training images per epoch.
    pub images: u64,
    /// Images per step.
    pub batch_size: u64,
    /// Loader workers.
    pub num_workers: u64,
    /// Cores that the run could use.
    pub cores: u64,
    /// The cores that a cgroup's quota left it, such as 0.5; `None` without a quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<f64>,
    /// The number of cores that other programs kept busy, on average; `None` if the platform does not provide
    /// it.
    pub others_cores: Option<f64>,
    /// The pipeline's executor: `per-op`, `fused`, `gpu`.
    pub executor: String,
    /// Whether the images came from prepared shards.
    pub shards: bool,
    /// The device that computed: `cpu`, `cuda`, ..
    pub device: String,
    /// Mean wall time of an epoch's training, seconds; `None` before the first has ended.
    pub seconds_per_epoch: Option<f64>,
    /// Share of the time in which the trainer waited for batches, 0 to 1.
    pub wait_share: f64,
    /// Images per second that the loader delivers by itself; `None` if it was not measured.
    pub loader_ceiling: Option<f64>,
    /// Images per second that the trainer processes when it never waits for batches; `None` if it was not
    /// measured.
    pub trainer_ceiling: Option<f64>,
    /// CPU time of all threads per image while the loader's ceiling was measured, seconds; `None` if it was
    /// not measured.
    pub loader_cpu_seconds: Option<f64>,
    /// CPU time of all threads per image while the trainer's ceiling was measured, seconds; `None` if it was
    /// not measured.
    pub trainer_cpu_seconds: Option<f64>,
    /// Time per image for which other programs kept the trainer from a core while its ceiling was measured, seconds; 0 if
    /// it was not measured. Of a script that of the thread that trains, and otherwise the sum over all threads.
    pub trainer_delay_seconds: f64,
    /// Time per step that the trainer spent between two steps without waiting for a batch: records, messages, log.
    /// Seconds; `None` if it was not measured.
    pub between_seconds: Option<f64>,
    /// CPU time of a loader worker per image while the run trained, seconds; `None` if it was not measured.
    pub worker_cpu_seconds: Option<f64>,
    /// Time per image that a loader worker spent in a read without computing while the run trained, seconds; `None`
    /// if it was not measured.
    pub read_wait_seconds: Option<f64>,
    /// Why there are as many workers as `num_workers` says; `None` if an option said how many.
    pub workers_why: Option<String>,
    /// Bytes of an image and its mask in a batch; 0 if that is not known.
    pub batch_bytes: u64,
    /// Where the time of the ranks went; only in runs of several, and in those whose batches are computed in pieces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<RanksSummary>,
    /// Seconds of a worker's time per image, by stage: `read`, `decode`, `augment`. This is wall time next to
    /// the trainer, so on a busy machine it is more than the stage's cost.
    pub stage_seconds: BTreeMap<String, f64>,
    /// Costs of other settings, measured on the run's own images.
    pub alternatives: Vec<Alternative>,
    /// The loader of a PyTorch script that was only watched; `None` of a run of Stokehold's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<ScriptLoader>,
}

/// The `DataLoader` of a PyTorch script that was watched.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ScriptLoader {
    /// The version of torch.
    pub torch: String,
    /// The class of the data set.
    pub dataset: String,
    /// The folder of the data set, if it has one.
    pub root: Option<String>,
    /// The data set's transform as a pipeline of Stokehold's, JSON, if it was asked for and can be one.
    pub pipeline: Option<String>,
    /// Why Stokehold cannot make its batches; `None` where it can, or where that was not asked.
    pub swap_refused: Option<String>,
    /// Why what fast images would save was not measured although workers open JPEGs; `None` where it was, or they do not.
    #[serde(default)]
    pub fast_images_refused: Option<String>,
    /// Bytes of an image's tensors in a batch; 0 if that is not known.
    #[serde(default)]
    pub image_bytes: f64,
    /// Whether each worker may have all samples, so that another number of workers makes another epoch.
    pub iterable: bool,
    /// Whether its workers live longer than an epoch.
    pub persistent_workers: bool,
    /// Whether its batches lie in pinned memory.
    pub pin_memory: bool,
    /// How long the script took to start the workers of an epoch, seconds.
    pub start_seconds: f64,
    /// From the start of a worker's process until it made batches like its later ones, on a core of its own, seconds: imports,
    /// unpickling, `worker_init_fn`, and what its first batch took longer, such as opening files.
    #[serde(default)]
    pub worker_start_seconds: f64,
    /// What it computed until then, seconds of CPU time.
    #[serde(default)]
    pub worker_start_cpu_seconds: f64,
    /// How long the script took to end the workers of an epoch, seconds.
    #[serde(default)]
    pub end_seconds: f64,
    /// How unequally long batches take to make: the standard deviation of an image's time in them, over its mean.
    #[serde(default)]
    pub variation: f64,
    /// Passes over a loader for which workers were started although it had had some before: in these persistent ones would not start.
    #[serde(default)]
    pub restarts: u64,
    /// Bytes that a fetch read per image, by calls or from disks; `None` where the system does not count them.
    #[serde(default)]
    pub read_bytes: Option<f64>,
    /// Threads that compute for a worker on average, its own among them; 0 without workers.
    #[serde(default)]
    pub worker_threads: f64,
    /// Copies to the device per image, as the script saw them, seconds.
    pub transfer_seconds: f64,
    /// Whether these came from memory that was not pinned.
    pub unpinned_transfers: bool,
    /// Whether batches of images were copied as numbers of 32 bits.
    pub float_transfers: bool,
    /// Batches that a worker makes ahead, if it has workers.
    pub prefetch_factor: Option<u64>,
    /// The number of ranks; the figures are those of the first.
    pub ranks: u64,
}

impl Workload {
    /// The use of the cores by other programs, in words; `None` if it was too small to matter, or is not
    /// known.
    pub fn others(&self) -> Option<String> {
        others_in_words(self.others_cores, self.cores)
    }
}

/// The use of the cores by other programs, in words; `None` if it was too small to matter, or is not known.
pub fn others_in_words(others_cores: Option<f64>, cores: u64) -> Option<String> {
    let others = others_cores.filter(|others| *others >= 0.1 * cores as f64)?;
    Some(format!("other programs took {others:.1} of {cores} cores"))
}

/// Another setting of the run, measured on the run's images in alternation with its own setting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Alternative {
    /// The difference: another executor, shards, another batch size, or another precision.
    pub change: Change,
    /// The loader's CPU time per image, relative to the run's own setting, above 0.
    pub loader: f64,
    /// The trainer's time per image, relative to the run's own setting, above 0.
    pub trainer: f64,
}

/// A possible change of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Change {
    /// Another number of loader workers.
    Workers {
        /// Their number.
        workers: u64,
        /// Whether they also live longer than an epoch, as they did not.
        #[serde(default, skip_serializing_if = "is_false")]
        persistent: bool,
    },
    /// Another executor of the pipeline.
    Executor {
        /// Its name.
        executor: String,
    },
    /// Training from prepared shards.
    Shards,
    /// Training from prepared shards of images that have the head of the pipeline behind them.
    Baked {
        /// The names of its operations.
        operations: Vec<String>,
        /// Bytes of the shards, relative to the files.
        bytes: f64,
    },
    /// More images per step.
    BatchSize {
        /// Their number.
        batch_size: u64,
    },
    /// Training steps that compute with numbers of fewer bits.
    Precision {
        /// Their type: `bf16`.
        precision: String,
    },
    /// JPEGs that Stokehold decodes under Pillow, into the same pixels.
    FastImages,
    /// Workers that live longer than an epoch.
    PersistentWorkers,
    /// Batches in pinned memory, which is copied to a device faster and meanwhile.
    PinnedMemory,
    /// Batches that are copied to a device as bytes, and made floats there.
    BytesToDevice,
    /// More batches made ahead.
    Prefetch {
        /// Those of a worker.
        batches: u64,
    },
    /// Storage so fast that the loader never waits for it.
    Storage,
    /// Batches made by other machines, without accelerators.
    Servers {
        /// Their name in the price table.
        name: String,
        /// The cores of each.
        cores: u64,
        /// Their number.
        count: u64,
    },
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Workers { workers, persistent } => {
                let persistent = if *persistent { " persistent" } else { "" };
                let plural = if *workers == 1 { "" } else { "s" };
                write!(f, "{workers}{persistent} worker{plural}")
            }
            Change::Executor { executor } => f.write_str(executor),
            Change::Shards => f.write_str("prepared shards"),
            Change::Baked { operations, .. } => write!(f, "{} performed once", operations.join(", ")),
            Change::BatchSize { batch_size } => write!(f, "batches of {batch_size}"),
            Change::Precision { precision } => f.write_str(precision),
            Change::FastImages => f.write_str("fast images"),
            Change::PersistentWorkers => f.write_str("persistent workers"),
            Change::PinnedMemory => f.write_str("pinned memory"),
            Change::BytesToDevice => f.write_str("batches made floats on the device"),
            Change::Prefetch { batches: 1 } => f.write_str("1 batch a worker made ahead"),
            Change::Prefetch { batches } => write!(f, "{batches} batches a worker made ahead"),
            Change::Storage => f.write_str("storage without waits"),
            Change::Servers { name, cores, count } => {
                write!(f, "batches made by {count} {name} ({cores} cores each)")
            }
        }
    }
}

/// Images per second that a trainer would process if other programs left it the cores, from its measured
/// rate, its CPU time per image, and the time per image, summed over threads, for which they were kept from a core.
///
/// With n threads that compute or wait for a core all the time, n = (CPU time + delay) x rate, the delay
/// lengthened an image by delay / n. A trainer on a device has less than one: its thread mostly sleeps, and the
/// delay lengthened an image by no more than itself. What is left is limited by what all cores allow.
pub fn undisturbed(rate: f64, cpu_seconds: f64, delay_seconds: f64, cores: u64) -> f64 {
    let threads = ((cpu_seconds + delay_seconds) * rate).max(1.0);
    undelayed(rate, cpu_seconds, delay_seconds / threads, cores)
}

/// The same, if the delay is that of the one thread that the others work for, which lengthened an image by all of it.
pub fn undelayed(rate: f64, cpu_seconds: f64, delay_seconds: f64, cores: u64) -> f64 {
    if !positive(rate) || !positive(cpu_seconds) || !positive(delay_seconds) {
        return rate;
    }
    let most = rate.max(cores as f64 / cpu_seconds);
    match 1.0 / rate - delay_seconds {
        left if left * most > 1.0 => 1.0 / left,
        _ => most,
    }
}

/// serde's attribute wants a function of a reference.
fn is_false(value: &bool) -> bool {
    !value
}

fn positive(value: f64) -> bool {
    value.is_finite() && value > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_taken_off_no_more_than_once() {
        let close = |rate: f64, expected: f64| (rate / expected - 1.0).abs() < 1e-3;
        // 20 ms of CPU time on two cores, and half as much again without a core: 10 ms an image at best.
        assert!(close(undisturbed(66.7, 0.02, 0.01, 2), 100.0));
        // An accelerator's thread sleeps: 2.5 ms an image, of which 0.05 ms were a delay.
        assert!(close(undisturbed(400.0, 8e-6, 5e-5, 2), 408.2));
        // One thread, without a pause between the two: both formulas are the same.
        assert!(close(undisturbed(100.0, 0.006, 0.004, 8), 1.0 / 0.006));
        // Not more than all cores allow, not less than was measured.
        assert!(close(undisturbed(66.7, 0.02, 1.0, 2), 100.0));
        assert!(close(undisturbed(120.0, 0.02, 1.0, 2), 120.0));
        for (cpu, delay) in [(0.0, 1.0), (0.01, 0.0), (0.01, f64::NAN), (f64::NAN, 0.1)] {
            assert!(close(undisturbed(50.0, cpu, delay, 2), 50.0));
        }
        // A loop that sleeps for most of 100 ms, and wanted a core for 10 of them in vain.
        assert!(close(undelayed(10.0, 0.005, 0.01, 2), 1.0 / 0.09));
        // No more than all cores allow, whatever is taken off.
        for delay in [0.015, 0.05, 1.0] {
            assert!(close(undelayed(66.7, 0.02, delay, 2), 100.0));
        }
    }
}
