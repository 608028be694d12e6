//! `stokehold explain`: shows the plan of one sample in words and as a picture.

use crate::failure::Usage;
use crate::files;
use crate::local::Local;
use crate::terminal;
use clap::Args as ClapArgs;
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use stokehold_loader::{input, remaining};
use stokehold_pipeline::{DecodeOptions, DrawKey, Pipeline, PipelineError, explain, picture};
use stokehold_storage::shard::Baked;
use stokehold_storage::{Dataset, Images, SampleBytes, Source};

/// Options of `explain`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// A preset (imagenet-train, imagenet-eval, published, caltech) or a pipeline file, TOML or JSON
    pipeline: String,
    /// An image: JPEG, PNG or WebP; or prepared shards, of whose first part --sample is explained
    image: Local,
    /// File to draw the plan to
    #[arg(long, value_name = "FILE", default_value = "explain.png")]
    out: Local,
    /// Repetitions of flip, flip and rotation in the preset published
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=1000))]
    load: u32,
    /// Seed of the draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Epoch of the draws
    #[arg(long, default_value_t = 0)]
    epoch: u64,
    /// The sample's number in the data set, which determines the draws
    #[arg(long, default_value_t = 0)]
    sample: u64,
    /// Turn the image upright as its EXIF orientation says
    #[arg(long)]
    exif: bool,
    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let pipeline = pipeline(args)?;
    pipeline.check_before_images()?;
    let options = DecodeOptions { exif: args.exif };
    let key = DrawKey {
        seed: args.seed,
        epoch: args.epoch,
        sample: args.sample,
    };
    let wrong = |error: &dyn Error| Usage(format!("{}: {error}", args.image.display()));
    let mut bytes = SampleBytes::new();
    let pipeline = remaining(pipeline, read(args, &mut bytes)?.as_ref(), options.exif)?;
    let image = input(&bytes);
    let plan = explain(&pipeline, image.bytes, &options, key).map_err(|e| wrong(&e))?;
    let picture = picture::of_plan(&plan, image).map_err(|e| wrong(&e))?;
    files::write(&args.out, &picture)?;
    let mut out = terminal::out();
    match args.json {
        true => terminal::json(&plan)?,
        false => writeln!(out, "{plan}\npicture   {}", args.out.display())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the image, or the sample of a data set; the operations that it has behind it.
fn read(args: &Args, into: &mut SampleBytes) -> Result<Option<Baked>, Box<dyn Error>> {
    let path = &args.image;
    if !path.is_dir() {
        let file = std::fs::read(path).map_err(|e| Usage(format!("{}: {e}", path.display())))?;
        into.refill().extend(file);
        return Ok(None);
    }
    let images = match Dataset::open(path, None, 0) {
        Ok(dataset) => dataset.train,
        Err(_) => Images::unlabelled(path)?,
    };
    let sample = usize::try_from(args.sample)
        .ok()
        .filter(|&sample| sample < images.len());
    let Some(sample) = sample else {
        return Err(Box::new(Usage(format!(
            "{}: it has no sample {}; the last one is {}",
            path.display(),
            args.sample,
            images.len().saturating_sub(1)
        ))));
    };
    images.read(sample, into)?;
    Ok(images.baked().cloned())
}

fn pipeline(args: &Args) -> Result<Pipeline, PipelineError> {
    match args.pipeline.as_str() {
        "published" => Ok(Pipeline::published(args.load, 224)),
        name => Pipeline::named(name),
    }
}
