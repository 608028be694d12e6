//! `stokehold bench`: how many images per second the loader delivers by itself, how much it slows a trainer
//! down, how fast the network between ranks is, and each way of reading data from a bucket.

mod disturbance;
#[cfg(feature = "full")]
mod network;
mod serve;
#[cfg(feature = "full")]
mod storage;

use crate::failure::Usage;
use crate::gpu::GpuArgs;
use crate::loader::{BatchArgs, CacheArgs};
use crate::local::Local;
use crate::servers::{self, Connect};
use crate::terminal::{self, note};
use crate::{damage, progress};
use clap::{Args as ClapArgs, Subcommand};
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use stokehold_loader::{Address, BadImage, Loader, LoaderOptions, Workers};
use stokehold_pipeline::op::Op;
use stokehold_pipeline::{Executor, Pipeline, SampleType};
use stokehold_storage::{Dataset, Images, SlowSource, Source};
use stokehold_train::device::{self, DeviceChoice};
use stokehold_train::sweep::{Bench, Pass, Report, Sweep};
use stokehold_train::{TrainError, open_device};

/// Measure a part of Stokehold by itself.
#[derive(Debug, Subcommand)]
pub enum Args {
    /// Measure the loader alone: read, decode, augment, batch.
    Loader(LoaderBenchArgs),
    /// Measure how much loading slows a training step down: a step next to a loader that loads, against a step
    /// alone.
    Disturbance(disturbance::DisturbanceArgs),
    #[cfg(feature = "full")]
    /// Measure the network between ranks, for `stokehold scale`: how long it takes to sum gradients.
    Network(network::NetworkArgs),
    #[cfg(feature = "full")]
    /// Measure the ways to get data from a bucket to a training: copied, mounted, piped, cached, streamed.
    Storage(storage::StorageArgs),
    #[cfg(feature = "full")]
    /// The reading process of `bench storage`.
    #[command(hide = true)]
    StorageReader(storage::ReadArgs),
}

/// Options of `bench loader`.
#[derive(Debug, ClapArgs)]
pub struct LoaderBenchArgs {
    /// A folder of images, at any depth; labels do not matter, and the training images' masks are loaded where they have masks [default: generated photographs]
    data: Option<PathBuf>,
    /// Executor of the operations: per-op, fused, or gpu, whose batches stay on the device (auto is for `train` only)
    #[arg(long, default_value_t = Executor::default())]
    executor: Executor,
    /// The device of --executor gpu: auto, cuda, vulkan, or one that `stokehold devices` lists, such as cuda:1
    #[arg(long, default_value_t = DeviceChoice::Auto)]
    device: DeviceChoice,
    #[command(flatten)]
    gpu: GpuArgs,
    /// Repetitions of flip, flip and rotation before the crop (the published load experiment); 0 for none
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1000))]
    load: u32,
    /// A pipeline instead of the load experiment: a preset, or a .toml or .json file
    #[arg(long, value_name = "PIPELINE", conflicts_with_all = ["load", "image_size"])]
    pipeline: Option<Local>,
    #[command(flatten)]
    batch: BatchArgs,
    /// Worker threads: auto, a number, or several with commas for a sweep
    #[arg(long, default_value = "auto", value_delimiter = ',')]
    workers: Vec<Workers>,
    /// The type of the numbers in a batch: f32, f16, bf16 or u8 (without the normalisation of the load experiment)
    #[arg(long, value_name = "TYPE", default_value_t = SampleType::F32)]
    sample_type: SampleType,
    #[command(flatten)]
    cache: CacheArgs,
    /// Servers that make the batches, as for train; they serve DATA
    #[arg(long, value_name = "SERVERS", value_delimiter = ',')]
    loader: Vec<Address>,
    /// Most batches in work or ready; 0 for as few as keep all workers busy
    #[arg(long, value_name = "BATCHES", default_value_t = 0)]
    prefetch: usize,
    /// Timed passes over the images; one more warms up
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    passes: u32,
    /// Use at most this many images
    #[arg(long, value_name = "N")]
    max_images: Option<usize>,
    /// Delay every read by this time, as slow storage does: 20ms
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, default_value = "0s")]
    read_latency: Duration,
    /// Seed of the order and of every random operation
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Wait for lines `pass` on standard input, do one pass for each, and answer with a line of JSON
    #[arg(long, conflicts_with = "json")]
    serve: bool,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    let args = match args {
        Args::Loader(args) => args,
        Args::Disturbance(args) => return disturbance::run(args),
        #[cfg(feature = "full")]
        Args::Network(args) => return network::run(&args),
        #[cfg(feature = "full")]
        Args::Storage(args) => return storage::run(&args),
        #[cfg(feature = "full")]
        Args::StorageReader(args) => return storage::read(&args),
    };
    let data = match &args.data {
        Some(data) => data.clone(),
        None => progress::generated_data()?,
    };
    let mut pipeline = match &args.pipeline {
        Some(name) => Pipeline::named(&name.to_string_lossy())?,
        None => Pipeline::published(args.load, args.batch.image_size),
    };
    if args.pipeline.is_none() && args.sample_type == SampleType::U8 {
        pipeline.ops.retain(|op| !matches!(op, Op::Normalize(_)));
    }
    if !args.loader.is_empty() {
        if !args.read_latency.is_zero() {
            let reason = "--read-latency delays reads of this machine, and servers read; leave it out";
            return Err(Usage(reason.into()).into());
        }
        if args.executor == Executor::Gpu {
            return Err(Usage(
                "servers make batches with --executor fused or per-op; choose one of these".into(),
            )
            .into());
        }
    }
    if args.workers.len() > 1 && args.cache.place()?.is_some() {
        let reason = "a sweep of --workers would read files with the first number and the cache with the last; give one number, or \
                      --no-cache";
        return Err(Usage(reason.into()).into());
    }
    let (source, servers) = source(&data, &args)?;
    let cache = args.cache.open()?;
    let say_notices = |cache: &stokehold_cache::Cache| {
        for line in cache.notices() {
            note!("warning: {line}");
        }
    };
    cache.as_deref().inspect(|cache| say_notices(cache));
    let source = match &cache {
        Some(cache) => cache.of(source),
        None => source,
    };
    if args.serve {
        let [workers] = args.workers[..] else {
            return Err(Usage("--serve takes one number of workers".into()).into());
        };
        let mut bench = bench(source, pipeline, &args, workers, servers.as_ref())?;
        serve::serve(&mut bench)?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut reports = Vec::new();
    for &workers in &args.workers {
        let mut bench = bench(source.clone(), pipeline.clone(), &args, workers, servers.as_ref())?;
        let (first, passes) = passes(&mut bench, source.len(), args.passes)?;
        cache.as_deref().inspect(|cache| say_notices(cache));
        let facts = cache.as_ref().map(|cache| cache.facts());
        reports.push(Report::new(
            &data,
            args.executor,
            args.pipeline
                .is_none()
                .then_some([args.load, args.batch.image_size]),
            args.read_latency,
            bench.loader(),
            facts,
            (&first, &passes),
        ));
    }
    let sweep = Sweep::new(reports);
    match args.json {
        true => terminal::json_text(&sweep.json()?)?,
        false => writeln!(terminal::out(), "{}", sweep.to_string().trim_end())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The images, and a way to the servers that make their batches, if there are some.
type Opened = (Arc<dyn Source>, Option<Connect>);

fn source(data: &Path, args: &LoaderBenchArgs) -> Result<Opened, Box<dyn Error>> {
    // Masks are a part of the work; labels are not.
    let mut images = match Dataset::open(data, None, 0) {
        Ok(Dataset { train, .. }) if train.pixel_classes().is_some() => train,
        _ => Images::unlabelled(data)?,
    };
    damage::warn(&images);
    if let Some(max) = args.max_images {
        images.limit(max);
    }
    let servers = match args.loader.is_empty() {
        true => None,
        false => Some(servers::of(&args.loader, &images, args.max_images)?),
    };
    let source: Arc<dyn Source> = match args.read_latency.is_zero() {
        true => Arc::new(images),
        false => Arc::new(SlowSource::new(images, args.read_latency)),
    };
    Ok((source, servers))
}

fn warn_of(bad: &BadImage) {
    note!("warning: left out {}: {}", bad.name, bad.reason);
}

/// The first pass over this many images, and this many more, which are timed.
fn passes(bench: &mut Bench, images: usize, count: u32) -> Result<(Pass, Vec<Pass>), Box<dyn Error>> {
    let first = bench.pass(&mut warn_of)?;
    let left_out = images - first.images.min(images);
    if left_out > first.images {
        let reason = format!(
            "{left_out} of {images} images cannot be loaded (the warnings say why); a rate of the others says little"
        );
        return Err(reason.into());
    }
    let passes = (0..count)
        .map(|_| bench.pass(&mut warn_of))
        .collect::<Result<_, _>>()?;
    Ok((first, passes))
}

/// A loader with this number of workers.
fn bench(
    source: Arc<dyn Source>,
    pipeline: Pipeline,
    args: &LoaderBenchArgs,
    workers: Workers,
    servers: Option<&Connect>,
) -> Result<Bench, Box<dyn Error>> {
    let is_gpu = args.executor == Executor::Gpu;
    crate::gpu::check(args.gpu.options(), is_gpu)?;
    if !is_gpu && args.device != DeviceChoice::default() {
        let why = "--device is where --executor gpu makes its batches, and this one makes them on the CPU; give --executor gpu, or \
                   leave --device out";
        return Err(Usage(why.to_owned()).into());
    }
    let device = match args.executor {
        Executor::PerOp | Executor::Fused => DeviceChoice::Cpu,
        Executor::Gpu => args.device,
    };
    let device = device::open(device).map_err(TrainError::from)?;
    let elsewhere = servers.map(|connect| connect(workers)).transpose()?;
    let options = LoaderOptions {
        elsewhere,
        executor: args.executor,
        device: open_device(args.executor, args.gpu.options(), &device)?,
        batch_size: args.batch.batch_size,
        workers,
        shuffle: true,
        seed: args.seed,
        sample_type: args.sample_type,
        prefetch: args.prefetch,
        bad_image_limit: usize::MAX,
        ..LoaderOptions::default()
    };
    Ok(Bench::new(Loader::new(source, pipeline, options)?))
}
