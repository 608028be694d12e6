//! `stokehold bench storage`: compares the places where a data set lies, and the ways to get it from there to a training, on
//! the user's own data ([`ways`]).

use crate::terminal::{self, note};
use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::Args as ClapArgs;
use stokehold_diagnose::advice::Prices;
use stokehold_jobs::ways::{self, Place, Reader, Reading, Report};
use tempfile::TempDir;

use crate::failure::Usage;
use crate::interrupt;
use crate::loader::{BatchArgs, WorkerArgs};
use crate::local::Local;

/// Options of `bench storage`.
#[derive(Debug, ClapArgs)]
pub struct StorageArgs {
    /// Places of the same images, as files or as prepared shards: s3://bucket/prefix, gs://, az://, or a folder, also of a mounted
    /// file system
    #[arg(required = true, value_name = "PLACE")]
    places: Vec<String>,
    /// Take batches no faster than a trainer with this many images per second [default: as fast as they come]
    #[arg(long, value_name = "N")]
    trainer_images_per_s: Option<f64>,
    /// Measure with at most this many images, evenly spaced over all: every way reads them, and two store
    /// them on this machine
    #[arg(long, value_name = "N", default_value_t = 4000)]
    max_images: usize,
    /// Folder for copies and caches, on the disk to be measured [default: the system's temporary folder]
    #[arg(long, value_name = "DIR")]
    work_dir: Option<Local>,
    /// What requests and reads cost, as TOML [default: a small table, in docs/guide/machines.md]
    #[arg(long, value_name = "FILE")]
    prices: Option<Local>,
    #[command(flatten)]
    batch: BatchArgs,
    #[command(flatten)]
    threads: WorkerArgs,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// Runs the subcommand.
pub fn run(args: &StorageArgs) -> Result<ExitCode, Box<dyn Error>> {
    if args
        .trainer_images_per_s
        .is_some_and(|rate| !(rate > 0.0 && rate.is_finite()))
    {
        return Err(Usage("--trainer-images-per-s wants a number above 0".to_owned()).into());
    }
    let prices = match &args.prices {
        Some(path) => Prices::load(path).map_err(|error| Usage(error.to_string()))?,
        None => Prices::built_in(),
    };
    let stop = interrupt::flag_for("stopping; what was copied is removed")?;
    // Before the first is measured all are looked at.
    let mut places = Vec::new();
    for uri in &args.places {
        let place = Place::look(uri, args.max_images);
        if stop.load(Ordering::SeqCst) {
            return Ok(ExitCode::from(interrupt::EXIT_CODE));
        }
        places.push(place?);
    }
    let mut report = Report {
        trainer_images_per_second: args.trainer_images_per_s,
        currency: prices.currency.clone(),
        prices: prices.origin(),
        places: Vec::new(),
    };
    let reading = Reading {
        max_images: args.max_images,
        image_size: args.batch.image_size,
        batch_size: args.batch.batch_size,
        workers: args.threads.workers,
        trainer_images_per_s: args.trainer_images_per_s,
    };
    for place in &places {
        let work = work_dir(args)?;
        let measured = ways::measure(
            place,
            &reading,
            &prices,
            work.path(),
            stop,
            &mut |way| match places.len() {
                1 => note!("measuring {}", way.name()),
                _ => note!("measuring {}, {}", place.uri, way.name()),
            },
        )?;
        if stop.load(Ordering::SeqCst) {
            return Ok(ExitCode::from(interrupt::EXIT_CODE));
        }
        report.places.push(measured);
    }
    match args.json {
        true => terminal::json(&report.json())?,
        false => writeln!(terminal::out(), "{}", report.to_string().trim_end())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The folder of a place's copies, removed at its end with everything in it.
fn work_dir(args: &StorageArgs) -> Result<TempDir, Box<dyn Error>> {
    let mut folder = tempfile::Builder::new();
    folder.prefix("stokehold-storage-");
    match &args.work_dir {
        Some(dir) => folder.tempdir_in(dir).map_err(|error| {
            let reason = format!(
                "--work-dir {}: {error}; give a folder that can be written",
                dir.display()
            );
            Usage(reason).into()
        }),
        None => Ok(folder.tempdir()?),
    }
}

/// The arguments that `bench storage` passes to its reading process.
#[derive(Debug, ClapArgs)]
pub struct ReadArgs {
    #[arg(long)]
    images: usize,
    #[arg(long)]
    max_images: usize,
    #[command(flatten)]
    batch: BatchArgs,
    #[command(flatten)]
    threads: WorkerArgs,
    #[arg(long)]
    trainer_images_per_s: Option<f64>,
    /// Whether the channel is a pipe.
    #[arg(long)]
    pipe: bool,
}

/// Runs the reading process: a line for each epoch.
pub fn read(args: &ReadArgs) -> Result<ExitCode, Box<dyn Error>> {
    let reading = Reading {
        max_images: args.max_images,
        image_size: args.batch.image_size,
        batch_size: args.batch.batch_size,
        workers: args.threads.workers,
        trainer_images_per_s: args.trainer_images_per_s,
    };
    let reader = Reader::of_job(&reading, args.pipe.then_some(args.images))?;
    for epoch in 0..ways::EPOCHS {
        let said = serde_json::to_string(&reader.epoch(epoch)?)?;
        writeln!(io::stdout(), "{said}")?;
    }
    Ok(ExitCode::SUCCESS)
}
