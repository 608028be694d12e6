//! Trains for a short time with the run's own configuration, with and without a change, in
//! alternation.

use std::fmt::Display;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use stokehold_diagnose::advice::Advice;
use stokehold_loader::Workers;
use stokehold_profile::workload::Change;
use stokehold_storage::{Dataset, Source};
use stokehold_train::sampling::SamplerConfig;
use stokehold_train::{Precision, TrainConfig, fit};

use crate::{AdviseError, Advised};

/// The intended time of one side of the trial, in seconds.
const SECONDS: f64 = 15.0;
/// How often each side is trained; the first pair has cold caches.
const TURNS: usize = 2;

/// A prediction and the measured result. Times are for a whole epoch, extrapolated from the images of the
/// trial.
#[derive(Debug, Clone, Serialize)]
pub struct Trial {
    /// The change.
    pub title: String,
    /// Images that each side trained on per turn.
    pub images: usize,
    /// Mean time of an epoch without the change, seconds.
    pub unchanged_seconds: f64,
    /// Mean time of an epoch with the change, seconds.
    pub changed_seconds: f64,
    /// Predicted time with the change, as a share of the time without.
    pub predicted_ratio: f64,
    /// Measured share.
    pub measured_ratio: f64,
    /// Whether it was stopped early; then the numbers cover the finished part.
    pub interrupted: bool,
}

/// Whether a change is just an option of training.
pub fn can_be_tried(change: &Change) -> bool {
    matches!(
        change,
        Change::Workers { .. }
            | Change::Executor { .. }
            | Change::BatchSize { .. }
            | Change::Precision { .. }
    )
}

/// Trains both sides in alternation, in folders below `out`, or else in a temporary one; `None` of a script, whose trials are
/// others. `say` hears of each turn before it begins.
///
/// # Errors
/// The data set is gone, a folder is in the way, or the training fails.
pub fn run(
    advised: &Advised,
    best: &Advice,
    out: Option<&Path>,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> Result<Option<Trial>, AdviseError> {
    let Some(record) = &advised.record else {
        return Ok(None);
    };
    let aside = tempfile::tempdir()?;
    let out = out.unwrap_or(aside.path());
    let config = &record.config;
    let mut images = Dataset::open(&config.data, config.val_split, config.seed)?;
    // Without validation: only training is timed.
    images.val = None;
    let now = best.seconds_per_epoch + best.gain_seconds;
    let all = images.train.len().min(config.max_images.unwrap_or(usize::MAX));
    // Complete batches for either side.
    let step = 2 * config.batch_size;
    let most = (SECONDS * all as f64 / now) as usize / step * step;
    images.limit(most.clamp(3 * step, all.max(3 * step)));
    let mut seconds = [Vec::new(), Vec::new()];
    let mut interrupted = false;
    for turn in 1..=TURNS {
        for (side, name) in ["unchanged", "changed"].into_iter().enumerate() {
            let run_dir = out.join(format!("{name}-{turn}"));
            if run_dir.exists() {
                return Err(in_the_way(&run_dir));
            }
            let mut config = TrainConfig {
                epochs: 1,
                // A file may name images that the trial leaves out.
                sampler: SamplerConfig::default(),
                epoch_images: None,
                keep_checkpoints: 0,
                checkpoint_steps: None,
                ceiling_batches: 0,
                run_dir,
                ..config.clone()
            };
            if side == 1 {
                apply(&best.change, &mut config)?;
            }
            say(&format!(
                "trying {name}, turn {turn} of {TURNS}: {} images",
                images.train.len()
            ));
            let summary = fit(&config, images.clone(), &mut (), stop)?;
            interrupted |= summary.interrupted;
            if summary.images_per_second > 0.0 {
                seconds[side].push(all as f64 / summary.images_per_second);
            }
            if interrupted {
                break;
            }
        }
        if interrupted {
            break;
        }
    }
    let [unchanged, changed] = seconds.map(|turns| turns.iter().sum::<f64>() / turns.len() as f64);
    Ok(Some(Trial {
        title: best.title.clone(),
        images: images.train.len(),
        unchanged_seconds: unchanged,
        changed_seconds: changed,
        predicted_ratio: best.seconds_per_epoch / now,
        measured_ratio: changed / unchanged,
        interrupted,
    }))
}

/// The error of a folder that is to be made and is there.
pub(crate) fn in_the_way(folder: &Path) -> AdviseError {
    AdviseError::Input(format!(
        "{} exists; give an empty folder with -o",
        folder.display()
    ))
}

/// Makes the change.
fn apply(change: &Change, config: &mut TrainConfig) -> Result<(), AdviseError> {
    let wrong = |error: &dyn Display| AdviseError::Failed(error.to_string());
    match change {
        Change::Workers { workers, .. } => config.workers = workers.to_string().parse::<Workers>()?,
        Change::Executor { executor } => config.executor = Some(executor.parse()?),
        Change::BatchSize { batch_size } => {
            config.batch_size = usize::try_from(*batch_size).map_err(|error| wrong(&error))?
        }
        Change::Precision { precision } => {
            config.precision = precision.parse::<Precision>().map_err(|error| wrong(&error))?
        }
        Change::Shards
        | Change::Baked { .. }
        | Change::FastImages
        | Change::PersistentWorkers
        | Change::PinnedMemory
        | Change::BytesToDevice
        | Change::Prefetch { .. }
        | Change::Storage
        | Change::Servers { .. } => {}
    }
    Ok(())
}
