//! What the processes of a script have counted.

use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

/// A file of counters larger than this is none.
const LARGEST: u64 = 16 << 20;

/// A process that has imported torch.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// The version of torch.
    pub torch: String,
    /// Its rank, as torchrun says it.
    pub rank: u64,
    /// The number of ranks.
    pub world: u64,
    /// Those of its machine.
    pub local_world: u64,
    /// `cpu` or `cuda`.
    pub device: String,
    /// The batches that it trained on.
    pub train_steps: u64,
    /// Time in which its steps kept the device busy, seconds.
    pub device_busy_seconds: Option<f64>,
    /// Time in which the device had nothing to do between two steps, seconds.
    pub device_idle_seconds: Option<f64>,
    /// The number of copies to the device from memory that was not pinned.
    pub unpinned_transfers: u64,
    /// The number of copies to the device of batches of images as numbers of 32 bits.
    pub float_transfers: u64,
    /// Why it has no fast images to try; `None` where it has, and where no one asked.
    pub fast_images_refused: Option<String>,
    /// The loaders that it has iterated over.
    pub loaders: Vec<LoaderFacts>,
    /// What it made as a loader's worker.
    pub fetching: Option<Fetching>,
    /// What the hook could not do.
    pub problems: Vec<String>,
}

/// A `DataLoader`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoaderFacts {
    /// Its place among the loaders of its process.
    pub number: u64,
    /// Loaders of one kind that are counted here, each of which a script made again.
    pub loaders: u64,
    /// Worker processes.
    pub num_workers: u64,
    /// Images of a batch, if it makes batches.
    pub batch_size: Option<u64>,
    /// Whether batches lie in pinned memory.
    pub pin_memory: bool,
    /// Whether its workers live longer than an iteration.
    pub persistent_workers: bool,
    /// Batches that a worker makes ahead.
    pub prefetch_factor: Option<u64>,
    /// The class of its data set.
    pub dataset: String,
    /// Whether samples have no numbers.
    pub iterable: bool,
    /// Batches of an epoch, if it says that.
    pub batches: Option<u64>,
    /// The folder of the data set, if it has a `root`.
    pub root: Option<String>,
    /// Whether Stokehold made its batches.
    pub swapped: bool,
    /// Whether another thread than the one that trains took its batches, so that no wait of training was seen.
    pub elsewhere: bool,
    /// Why Stokehold cannot make its batches; `None` where it can, or no one asked.
    pub swap_refused: Option<String>,
    /// Its transform as a pipeline of Stokehold's, if that was asked for and is possible.
    pub pipeline: Option<Value>,
    /// What the process itself made, without workers.
    pub fetching: Option<Fetching>,
    /// Batches that were trained on.
    pub train: Times,
    /// All other batches.
    pub evaluate: Times,
}

/// Sums over batches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Times {
    /// Passes over the loader that were begun.
    pub iterations: u64,
    /// Those that came to the end.
    pub finished: u64,
    /// Batches.
    pub batches: u64,
    /// Images, or whatever a batch is made of.
    pub images: u64,
    /// Waits for batches, seconds.
    pub wait_seconds: f64,
    /// The part of the first wait of each pass.
    pub first_wait_seconds: f64,
    /// Starts of workers, seconds.
    pub start_seconds: f64,
    /// From a batch's arrival to the end of the optimizer's step, seconds.
    pub step_seconds: f64,
    /// From there to the next demand, seconds.
    pub between_seconds: f64,
    /// CPU time of the process in these two, seconds.
    pub cpu_seconds: f64,
    /// Time in these for which the thread that trains could run and had no core, seconds; 0 where the system does not count it.
    pub delay_seconds: f64,
    /// Copies to the device in these, as the script saw them, seconds.
    pub transfer_seconds: f64,
    /// Images of the passes that came to the end.
    pub finished_images: u64,
    /// From the demand that found a pass's end until the program knew of it, in which workers are ended, seconds.
    pub end_seconds: f64,
}

/// The making of batches in one process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Fetching {
    /// The loader, by its place.
    pub loader: Option<u64>,
    /// The worker's number; `None` in the process that trains.
    pub worker: Option<u64>,
    /// The number of the process that the loader is of; `None` in that process.
    pub owner: Option<u32>,
    /// From the start of a worker's process until it could make batches: what it imports and unpickles, and `worker_init_fn`. Seconds.
    pub start_seconds: f64,
    /// What its process had computed by then, seconds.
    pub start_cpu_seconds: f64,
    /// What the first fetch took and computed, seconds, without the time for which its thread lacked a core.
    pub first_seconds: f64,
    /// CPU time of the thread in it, seconds.
    pub first_cpu_seconds: f64,
    /// Its fetches but the first.
    pub later: u64,
    /// The sum of an image's time in these, seconds.
    pub later_seconds: f64,
    /// The sum of its squares.
    pub later_squares: f64,
    /// Bytes of the tensors in the first batch.
    pub batch_bytes: u64,
    /// The images of all fetches but the first.
    pub plain_images: u64,
    /// CPU time of the thread that fetched them, seconds.
    pub plain_cpu_seconds: f64,
    /// Images that were fetched with fast images, which nothing else here counts.
    pub fast_images: u64,
    /// CPU time of the thread that fetched them, seconds.
    pub fast_cpu_seconds: f64,
    /// JPEGs that were opened or decoded there.
    pub fast_opened: u64,
    /// Whether the process has loaded what opens JPEGs in Pillow; it may have opened others.
    pub opens_jpegs: bool,
    /// Batches.
    pub batches: u64,
    /// Samples.
    pub images: u64,
    /// What fetches took beyond the time for which their thread ran, or could run and had no core, seconds. Where the system does
    /// not count the latter, it is part of the wait.
    pub wait_seconds: f64,
    /// The part of the wait in which other threads or processes may have computed what the fetch waited for, seconds.
    pub doubt_seconds: f64,
    /// The part of the wait in fetches whose thread read any bytes, seconds.
    pub reading_seconds: f64,
    /// Bytes that fetches read, by calls or from disks; `None` where the system does not count them.
    pub read_bytes: Option<u64>,
    /// CPU time of the thread that fetches, while it fetched, seconds.
    pub cpu_seconds: f64,
    /// CPU time of the whole process since the first batch, seconds.
    pub process_cpu_seconds: f64,
    /// Threads of a worker that are not Python's: those of OpenMP, BLAS, OpenCV.
    pub library_threads: u64,
    /// Their CPU time, seconds.
    pub library_cpu_seconds: f64,
}

/// The name of a file next to the counters: the hook has started in some process.
const STARTED: &str = "started";

/// Whether the hook has started in any process that has its counters in this folder.
pub(crate) fn started(folder: &Path) -> bool {
    folder.join(STARTED).exists()
}

/// Removes that file.
pub(crate) fn unmark(folder: &Path) {
    // It may never have been there.
    let _ = fs::remove_file(folder.join(STARTED));
}

/// What all processes have counted in a folder, by process number; and what could not be read.
pub fn read(folder: &Path) -> (Vec<Process>, Vec<String>) {
    let (mut processes, mut problems) = (Vec::new(), Vec::new());
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let is_counters = path.extension().is_some_and(|extension| extension == "json");
        if !is_counters {
            continue;
        }
        let read = fs::metadata(&path).and_then(|about| match about.len() {
            0..=LARGEST => fs::read(&path),
            _ => Err(std::io::Error::other("it is too large")),
        });
        let parsed = read.map_err(|error| error.to_string());
        let parsed = parsed.and_then(|text| serde_json::from_slice(&text).map_err(|error| error.to_string()));
        match parsed {
            Ok(process) => processes.push(process),
            Err(error) => problems.push(format!("{}: {error}", path.display())),
        }
    }
    processes.sort_by_key(|process: &Process| process.pid);
    (processes, problems)
}
