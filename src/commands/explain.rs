//! `stokehold explain`: shows the plan of one sample in words and as a picture.

mod picture;

use crate::failure::Usage;
use crate::files;
use crate::local::Local;
use crate::terminal;
use clap::Args as ClapArgs;
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use stokehold_pipeline::{DecodeOptions, DrawKey, Pipeline, PipelineError, explain};

/// Options of `explain`.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// A preset (imagenet-train, imagenet-eval, published, caltech) or a pipeline file, TOML or JSON
    pipeline: String,
    /// An image: JPEG, PNG or WebP
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
    pipeline.check()?;
    let options = DecodeOptions { exif: args.exif };
    let key = DrawKey {
        seed: args.seed,
        epoch: args.epoch,
        sample: args.sample,
    };
    let wrong = |error: &dyn Error| Usage(format!("{}: {error}", args.image.display()));
    let bytes = std::fs::read(&args.image).map_err(|e| wrong(&e))?;
    let plan = explain(&pipeline, &bytes, &options, key).map_err(|e| wrong(&e))?;
    let picture = picture::draw(&plan, &bytes).map_err(|e| wrong(&*e))?;
    files::write(&args.out, &picture)?;
    let mut out = terminal::out();
    match args.json {
        true => terminal::json(&plan)?,
        false => writeln!(out, "{plan}\npicture   {}", args.out.display())?,
    }
    Ok(ExitCode::SUCCESS)
}

fn pipeline(args: &Args) -> Result<Pipeline, PipelineError> {
    match args.pipeline.as_str() {
        "published" => Ok(Pipeline::published(args.load, 224)),
        name => Pipeline::named(name),
    }
}
