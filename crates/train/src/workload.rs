//! Stores the input of predictions: a run's [`Workload`], in `recording.json`.

use stokehold_loader::Costs;
use stokehold_profile::timeline::Total;
use stokehold_profile::workload::Workload;
use stokehold_profile::{About, Machine};

use crate::config::TrainConfig;
use crate::run::{ChosenWorkers, RunFolder};
use crate::stage::Stage;
use crate::{RunSummary, TrainError, device};

/// The workload of a run that has ended, with the workers that its loader chose and what they spent while it trained.
/// `images` is the number of images per epoch.
pub(crate) fn of(
    config: &TrainConfig,
    summary: &RunSummary,
    (workers, costs): (Option<&ChosenWorkers>, Costs),
    num_workers: usize,
    shards: bool,
    images: u64,
) -> Workload {
    // A stage has one span per image.
    let stage_seconds = [Stage::Read, Stage::Decode, Stage::Augment]
        .into_iter()
        .filter_map(|stage| {
            let total = summary.stages.get(&stage).filter(|total| total.spans > 0)?;
            Some((stage.to_string(), total.seconds / total.spans as f64))
        })
        .collect();
    let seconds = |stage| {
        summary
            .stages
            .get(&stage)
            .map_or(0.0, |total: &Total| total.seconds)
    };
    // A resumed run has the stages of its latest part only.
    let between =
        (summary.images as f64 / summary.images_per_second - seconds(Stage::Wait) - seconds(Stage::Step))
            / summary.steps as f64;
    let step = seconds(Stage::Step) / summary.steps as f64;
    // The batch of the ceiling is in the caches; those of the run were not.
    let copying = summary.emulated.map(|used| used.cpu_seconds / used.images as f64);
    Workload {
        images,
        batch_size: config.batch_size as u64,
        num_workers: num_workers as u64,
        cores: summary.cores,
        // Ranks may be on several machines.
        quota: Machine::here().quota.filter(|_| summary.ranks.is_none()),
        others_cores: summary.others_cores,
        executor: summary.executor.to_string(),
        shards,
        device: device::kind(&summary.device),
        seconds_per_epoch: summary.seconds_per_epoch,
        wait_share: summary.wait_share,
        loader_ceiling: summary.loader_ceiling,
        trainer_ceiling: summary.trainer_ceiling,
        loader_cpu_seconds: summary.loader_cpu_seconds,
        trainer_cpu_seconds: summary.trainer_cpu_seconds.map(|cpu| copying.unwrap_or(cpu)),
        between_seconds: Some(between).filter(|between| (0.0..step).contains(between)),
        trainer_delay_seconds: summary.trainer_delay_seconds,
        worker_cpu_seconds: costs.cpu_seconds(),
        read_wait_seconds: costs.wait_seconds(),
        workers_why: workers.map(|workers| workers.why.clone()),
        batch_bytes: batch_bytes(config),
        ranks: summary.ranks.clone(),
        stage_seconds,
        alternatives: Vec::new(),
        script: None,
    }
}

/// Bytes of an image and its mask in a batch; 0 for a pipeline without an output size.
fn batch_bytes(config: &TrainConfig) -> u64 {
    let (width, height) = config.pipeline.check().unwrap_or_default();
    let mask = usize::from(config.arch.segments());
    let pixel = 3 * config.sample_type.bytes() + mask;
    u64::from(width) * u64::from(height) * pixel as u64
}

/// Stores it in `recording.json`, if the run was recorded.
///
/// The recorder stops before the ceilings are measured, which are not part of the run, so it cannot store it
/// itself.
pub(crate) fn store(folder: &RunFolder, workload: Workload) -> Result<(), TrainError> {
    let recording = folder.recording();
    if let Some(mut about) = About::read(&recording)? {
        about.workload = Some(workload);
        about.write(&recording)?;
    }
    Ok(())
}
