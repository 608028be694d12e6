//! `stokehold bench disturbance`: a training step next to a loader that loads, against a step alone.

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args as ClapArgs;
use stokehold_base::stats::percentile;
use stokehold_loader::{Loader, LoaderOptions};
use stokehold_pipeline::{Executor, Pipeline};
use stokehold_storage::ImageFolder;
use stokehold_train::device::{self, DeviceChoice};
use stokehold_train::model::Arch;
use stokehold_train::{TrainError, disturbance, open_device};

use crate::failure::Usage;
use crate::gpu::GpuArgs;
use crate::loader::{BatchArgs, WorkerArgs};
use crate::progress;
use crate::terminal;

/// Options of `bench disturbance`.
#[derive(Debug, ClapArgs)]
#[command(mut_arg("image_size", |image_size| image_size.default_value("64").value_parser(clap::value_parser!(u32).range(32..=4096))))]
pub struct DisturbanceArgs {
    /// A folder of images, at any depth; labels do not matter [default: generated photographs]
    data: Option<PathBuf>,
    /// The network
    #[arg(long, default_value_t = Arch::Resnet18)]
    arch: Arch,
    /// Device that computes: auto, cpu, cuda, vulkan, or one that `stokehold devices` lists, such as cuda:1
    #[arg(long, default_value_t = DeviceChoice::Auto)]
    device: DeviceChoice,
    /// Executor of the operations: per-op, fused or gpu
    #[arg(long, default_value_t = Executor::default())]
    executor: Executor,
    #[command(flatten)]
    gpu: GpuArgs,
    /// Repetitions of flip, flip and rotation before the crop (the published load experiment); 0 for none
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    load: u32,
    #[command(flatten)]
    batch: BatchArgs,
    #[command(flatten)]
    threads: WorkerArgs,
    /// Pairs of steps that are timed; one more warms up
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pairs: u32,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: DisturbanceArgs) -> Result<ExitCode, Box<dyn Error>> {
    if args.arch.segments() {
        return Err(Usage(format!(
            "--arch {}: give a classifier; the images have no masks",
            args.arch
        ))
        .into());
    }
    crate::gpu::check(args.gpu.options(), args.executor == Executor::Gpu)?;
    let data = match &args.data {
        Some(data) => data.clone(),
        None => progress::generated_data()?,
    };
    let device = device::open(args.device).map_err(TrainError::from)?;
    let options = LoaderOptions {
        executor: args.executor,
        device: open_device(args.executor, args.gpu.options(), &device)?,
        batch_size: args.batch.batch_size,
        workers: args.threads.workers,
        ..LoaderOptions::default()
    };
    let source = Arc::new(ImageFolder::unlabelled(&data)?);
    let pipeline = Pipeline::published(args.load, args.batch.image_size);
    let loader = Loader::new(source, pipeline, options)?;
    // The number of classes of ImageNet; all images belong to the first.
    let found = disturbance(&loader, args.arch, 1000, &device, args.pairs as usize)?;
    let median = |seconds: &[f64]| percentile(seconds, 50.0).unwrap_or(0.0);
    let (beside, alone) = (median(&found.beside), median(&found.alone));
    let mut out = terminal::out();
    if args.json {
        let report = serde_json::json!({
            "data": data,
            "arch": args.arch,
            "executor": args.executor.to_string(),
            "load": args.load,
            "image_size": args.batch.image_size,
            "batch_size": args.batch.batch_size,
            "workers": loader.workers(),
            "step_seconds_beside": beside,
            "step_seconds_alone": alone,
            "found": found,
        });
        terminal::json(&report)?;
    } else {
        let [low, high] = found.spread;
        writeln!(
            out,
            "{} on {}, {} images of {}x{} a step, {} workers\n  step alone           {:.1} ms\n  beside the \
             loader    {:.1} ms, {:.3} times as long ({low:.3} to {high:.3})\n  loading one batch    {:.1} ms of the \
             workers\' time",
            args.arch,
            found.device,
            args.batch.batch_size,
            args.batch.image_size,
            args.batch.image_size,
            loader.workers(),
            alone * 1e3,
            beside * 1e3,
            found.slowdown,
            found.load_seconds * 1e3,
        )?;
    }
    Ok(ExitCode::SUCCESS)
}
