//! `stokehold compare`: train the same models with two ways of preprocessing, and show what the second one saves.
//!
//! A cell is a model at an augmentation load. Each cell is trained twice, trial A and then trial B, as two
//! ordinary runs whose configurations differ only in the executor: same images, order, random draws, initial
//! weights, optimiser. A and B alternate, so that a machine that becomes slower slows both down.
//!
//! ```text
//! compare/<name>/compare.json          settings, machine, and all numbers
//!                compare.csv .md .html the same for spreadsheets, documents, people
//!                runs/<model>-load<n>-a/   the run of trial A; its timeline and samples stay, its network does not
//!                runs/<model>-load<n>-b/
//!                lock                      held by the process that compares
//! ```
//!
//! The runs themselves record what is finished, so the same command continues after an interruption.

mod cell;
mod conclusion;
mod html;
mod output;
mod report;
mod settings;
mod table;
mod verdict;
mod watch;

use crate::terminal::{self, note};
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use stokehold_profile::Machine;
use stokehold_storage::{Dataset, SampleBytes, Source, StorageError};
use stokehold_train::device::{self, DeviceChoice};
use stokehold_train::model::Arch;
use stokehold_train::run::DatasetFacts;
use stokehold_train::{AnyExecutor, GpuOptions, Maker, TrainError};

use crate::failure::Usage;
use crate::gpu::GpuArgs;
use crate::loader::{BatchArgs, WorkerArgs};
use crate::local::Local;
use crate::trainer::TrainerArgs;
use crate::{damage, files, interrupt, progress};
use cell::Cells;
use report::Report;
use settings::{Settings, Trials};
use watch::Watch;

/// Share of each class that is split off for validation if the data set has no `val/`.
const VAL_SPLIT: f64 = 0.2;

const IMAGE_SIZE: &str = "Width and height of the images that the network sees, at least 32. The published experiment \
    had 224 and a GPU; a network on 32 pixels is quick enough for a CPU to leave preprocessing its share of an epoch. With --trainer emulated \
    the default is 224";

/// Train the same models with two ways of preprocessing, and show what the second one saves.
///
/// Without DATA, generated images are used. The same command continues after an interruption, and repeats
/// nothing that is finished.
#[derive(Debug, clap::Args)]
#[command(mut_arg("image_size", |image_size| {
    image_size
        .default_value("32")
        .default_value_if("trainer", "emulated", "224")
        .help(IMAGE_SIZE)
}))]
pub struct Args {
    /// The data set: DATA/train/<class>/.. and DATA/val/.., or class folders, of which a fifth is split off for
    /// validation.
    data: Option<PathBuf>,
    /// The two trials: executors of the preprocessing, each per-op, fused or gpu. The same one twice shows the noise.
    #[arg(long, value_name = "A,B", default_value = "per-op,fused")]
    trials: Trials,
    /// The networks: resnet18, resnet34, resnet50, resnet101 or resnet152.
    #[arg(
        long,
        value_name = "MODEL,..",
        value_delimiter = ',',
        default_value = "resnet18"
    )]
    models: Vec<Arch>,
    /// The augmentation loads: how often flip, flip, rotate come before the random crop, 0 to 1000 each.
    #[arg(
        long,
        value_name = "N,..",
        value_delimiter = ',',
        default_value = "1,4,8,12",
        value_parser = clap::value_parser!(u32).range(0..=1000)
    )]
    loads: Vec<u32>,
    /// Epochs of each run, at least 1. With --trainer emulated the default is 5.
    #[arg(long, default_value_t = 2, default_value_if("trainer", "emulated", "5"))]
    epochs: u64,
    #[command(flatten)]
    batch: BatchArgs,
    #[command(flatten)]
    threads: WorkerArgs,
    /// Use at most N training images, evenly over the classes, and the same share for validation.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_images: Option<u64>,
    /// Seed of the initial weights, the order and every random operation.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Learning rate of SGD, whose momentum is 0.5 as published.
    #[arg(long, default_value_t = 0.001)]
    lr: f64,
    /// Device that computes: auto, cpu, cuda or vulkan.
    #[arg(long, default_value_t = DeviceChoice::Auto)]
    device: DeviceChoice,
    #[command(flatten)]
    gpu: GpuArgs,
    #[command(flatten)]
    trainer: TrainerArgs,
    /// The comparison's folder [default: a name made of the data and the settings, below compare/].
    #[arg(long, value_name = "DIR")]
    out: Option<Local>,
}

/// Runs the subcommand.
///
/// # Errors
/// Errors of the options or the data, and errors that end a run early.
pub fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    let stop = interrupt::flag()?;
    let mut settings = args.settings()?;
    // Before the slow parts.
    settings.check(&args.models, &args.loads)?;
    let device = device::open(settings.device).map_err(TrainError::from)?;
    for executor in settings.trials.0 {
        Maker::open(executor, settings.gpu, &device)?;
    }

    if args.data.is_none() {
        settings.data = progress::generated_data()?;
    }
    let dataset = open(&mut settings)?;
    let out = args
        .out
        .clone()
        .map_or_else(|| settings.default_folder(), PathBuf::from);
    report::refuse_other_files(&out)?;
    let _lock = files::lock(&out)?;
    let mut report = Report::open(&out, settings, (DatasetFacts::of(&dataset), bytes_of(&dataset)))?;
    let mut cells = Cells::new(&report, &args.models, &args.loads, &out, &dataset);
    let mut watch = Watch::new(cells.len(), cells.steps_of_a_run(), &report, &out);
    let kept = cells.kept()?;
    if let Some(since) = kept.since {
        watch.say(&format!(
            "{} of {} runs are kept from {since} and not measured again; remove {}, or give another --out, to measure anew",
            kept.runs,
            cells.runs(),
            out.display()
        ));
    }
    if !stop.load(Ordering::Relaxed) && kept.runs < cells.runs() {
        watch.say("reading the images once, so that no trial finds the files colder than the other");
        read_once(&dataset, stop);
    }
    for number in 0..cells.len() {
        let Some(cell) = cells.run(number, &mut watch, stop)? else {
            watch.finish();
            note!(
                "interrupted; the same command again goes on from here{}",
                args.again(&out)
            );
            return Ok(ExitCode::from(interrupt::EXIT_CODE));
        };
        report.cells.push(cell);
        output::write(&report, &out)?;
    }
    watch.finish();
    print(&report, &out)?;
    Ok(ExitCode::SUCCESS)
}

impl Args {
    fn settings(&self) -> Result<Settings, Usage> {
        let cores = Machine::here().cores;
        let trainers = Arch::ALL.map(|model| Ok((model, self.trainer.choice(model, cores)?)));
        let trainers = trainers.into_iter().collect::<Result<Vec<_>, Usage>>()?;
        Ok(Settings {
            stokehold: env!("CARGO_PKG_VERSION").to_owned(),
            data: self.data.clone().unwrap_or_default(),
            val_split: None,
            max_images: self.max_images.map(|images| images as usize),
            trials: self.trials,
            epochs: self.epochs,
            batch_size: self.batch.batch_size,
            image_size: self.batch.image_size,
            workers: self.threads.workers,
            seed: self.seed,
            lr: self.lr,
            momentum: 0.5,
            device: self.device,
            gpu: match self.trials.0.contains(&AnyExecutor::Gpu) {
                true => self.gpu.options(),
                false => GpuOptions::default(),
            },
            emulated: trainers
                .into_iter()
                .filter(|(_, trainer)| !trainer.learns())
                .collect(),
        })
    }

    /// How to find the interrupted comparison, unless the user chose the folder.
    fn again(&self, out: &Path) -> String {
        match self.out {
            Some(_) => String::new(),
            None => format!(" ({})", out.display()),
        }
    }
}

/// Opens the data set of the settings, and records in them how it was split.
fn open(settings: &mut Settings) -> Result<Dataset, StorageError> {
    let mut dataset = Dataset::open(&settings.data, None, settings.seed)?;
    if dataset.val.is_none() {
        match Dataset::open(&settings.data, Some(VAL_SPLIT), settings.seed) {
            Ok(split) => {
                dataset = split;
                settings.val_split = Some(VAL_SPLIT);
            }
            // With one image per class there is no validation, but still a time to compare.
            Err(StorageError::NothingToSplit { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    damage::warn_of(&dataset);
    if let Some(max_images) = settings.max_images {
        dataset.limit(max_images);
    }
    if let Ok(absolute) = settings.data.canonicalize() {
        settings.data = absolute;
    }
    Ok(dataset)
}

/// Bytes of all images; `None` if the storage does not know without reading them.
fn bytes_of(dataset: &Dataset) -> Option<u64> {
    let images = std::iter::once(&dataset.train).chain(&dataset.val);
    images
        .flat_map(|images| (0..images.len()).map(|sample| images.size(sample)))
        .sum()
}

/// Makes the system read every file once. The trials report unreadable ones.
fn read_once(dataset: &Dataset, stop: &AtomicBool) {
    let mut bytes = SampleBytes::new();
    for images in std::iter::once(&dataset.train).chain(&dataset.val) {
        for sample in 0..images.len() {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let _ = images.read(sample, &mut bytes);
        }
    }
}

fn print(report: &Report, out: &Path) -> std::io::Result<()> {
    let mut to = terminal::out();
    for line in report.what() {
        writeln!(to, "{line}")?;
    }
    writeln!(to, "\n{}", table::published(report).text())?;
    writeln!(to, "{}", table::details(report).text())?;
    for line in conclusion::of(report) {
        writeln!(to, "{line}")?;
    }
    writeln!(to, "\nwritten: {}", out.join("compare.html").display())
}

/// `A` for the first trial, `B` for the second.
const LETTERS: [char; 2] = ['A', 'B'];

/// A trial's name in sentences: `A (per-op)`.
fn trial_name(trial: usize, executor: AnyExecutor) -> String {
    format!("{} ({executor})", LETTERS[trial])
}
