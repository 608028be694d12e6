//! `stokehold bench storage`: compares the places where a data set lies, and the ways to get it from there to a training, on
//! the user's own data.
//!
//! ```text
//!  this process                                    the job's process
//!  list, manifest of the images ─► job, a channel ─► loader, fused ─► batches, taken at the trainer's rate
//!  copies, mounts, feeds pipes                        or the loader reads the bucket itself
//! ```
//!
//! Every way is a real job of `stokehold-jobs`, one after the other, and the loader reads the data, so the
//! measurement is what a training would get. All ways of a place read the same images. The file that the job runs is one
//! line that starts this program again.
//!
//! A folder of this machine, on its disk or mounted, has one way: it is used as it is. What the kernel holds of its files in
//! memory is dropped first, so that the first epoch reads from the storage.

mod place;
mod read;
mod report;

use crate::terminal::{self, note};
use std::error::Error;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Args as ClapArgs;
use cpu_time::ProcessTime;
use serde_json::Value;
use stokehold_diagnose::advice::Prices;
use stokehold_jobs::{Channel, EntryPoint, Job, News, Status, Store};
use stokehold_objects::{Traffic, traffic};

use crate::failure::Usage;
use crate::interrupt;
use crate::loader::{BatchArgs, WorkerArgs};
use crate::local::Local;
use place::Place;
use report::{Epoch, Measured, Report, Row};

pub use read::{ReadArgs, read};

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
    /// What requests and reads cost, as TOML [default: a small table, in docs/machines.md]
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

/// A way to get data to a training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    File,
    Disk,
    FastFile,
    Pipe,
    Cache,
    CacheAgain,
    Streaming,
    /// A folder of this machine.
    Dir,
}

impl Way {
    /// Those of files in a bucket. File comes first, because its copy is the local disk that the others are compared with.
    const OF_FILES: [Self; 7] = [
        Self::File,
        Self::Disk,
        Self::FastFile,
        Self::Pipe,
        Self::Cache,
        Self::CacheAgain,
        Self::Streaming,
    ];

    /// Those of shards in a bucket. Copying them would copy all, and not what is measured.
    const OF_SHARDS: [Self; 4] = [Self::FastFile, Self::Cache, Self::CacheAgain, Self::Streaming];

    fn name(self) -> &'static str {
        match self {
            Self::File => "File",
            Self::Disk => "local disk",
            Self::FastFile => "FastFile",
            Self::Pipe => "Pipe",
            Self::Cache => "Cache",
            Self::CacheAgain => "Cache, next job",
            Self::Streaming => "streaming",
            Self::Dir => "as it is",
        }
    }
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
    for place in &places {
        let bench = Bench::new(args, place, stop)?;
        let mut measured = Measured::of(place, args.trainer_images_per_s, &prices);
        for &way in place.ways() {
            note!("measuring {}", bench.said(way, places.len()));
            measured.rows.push(bench.measure(way)?);
            if stop.load(Ordering::SeqCst) {
                return Ok(ExitCode::from(interrupt::EXIT_CODE));
            }
        }
        report.places.push(measured);
    }
    match args.json {
        true => terminal::json(&report.json())?,
        false => writeln!(terminal::out(), "{}", report.to_string().trim_end())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The common parts of all measurements of a place.
struct Bench<'a> {
    args: &'a StorageArgs,
    place: &'a Place,
    stop: &'a AtomicBool,
    store: Store,
    /// Removed at the end, with everything in it.
    work: tempfile::TempDir,
}

/// Every image is read twice.
const EPOCHS: u64 = 2;

impl<'a> Bench<'a> {
    fn new(args: &'a StorageArgs, place: &'a Place, stop: &'a AtomicBool) -> Result<Self, Box<dyn Error>> {
        let mut folder = tempfile::Builder::new();
        folder.prefix("stokehold-storage-");
        let work = match &args.work_dir {
            Some(dir) => folder.tempdir_in(dir).map_err(|error| {
                Usage(format!(
                    "--work-dir {}: {error}; give a folder that can be written",
                    dir.display()
                ))
            })?,
            None => folder.tempdir()?,
        };
        if let Some(names) = &place.manifest {
            let first = serde_json::json!({ "prefix": place.uri });
            let manifest: Vec<Value> = std::iter::once(first).chain(names.iter().cloned()).collect();
            fs::write(
                work.path().join("images.manifest"),
                serde_json::to_vec(&manifest)?,
            )?;
        }
        fs::create_dir(work.path().join("source"))?;
        fs::write(
            work.path().join("source/read.sh"),
            "exec \"$STOKEHOLD\" bench storage-reader $STOKEHOLD_READ\n",
        )?;
        Ok(Self {
            args,
            place,
            stop,
            store: Store::new(&work.path().join("jobs"))?,
            work,
        })
    }

    /// The way in words, with its place where there are several.
    fn said(&self, way: Way, places: usize) -> String {
        match places {
            1 => way.name().to_owned(),
            _ => format!("{}, {}", self.place.uri, way.name()),
        }
    }

    fn measure(&self, way: Way) -> Result<Row, Box<dyn Error>> {
        let mut row = Row::new(way.name());
        if way == Way::Disk && !self.copied().is_dir() {
            row.failed = Some("there is no copy to read: mode File could not be measured".to_owned());
            return Ok(row);
        }
        let job = self.job(way)?;
        if way == Way::Dir {
            row.problem = self.place.forget();
        }
        let (cpu, before) = (ProcessTime::now(), traffic());
        let name = self.store.create(&job)?;
        let seen = Mutex::new(Seen::new(before));
        let see = |news: News<'_>| {
            let News::Line(line) = news else { return };
            let mut seen = seen.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            seen.take(line.text);
        };
        let record = stokehold_jobs::run(self.store.claim(&name)?, self.stop, &see)?;
        let seen = seen.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        if way != Way::File {
            self.store.remove(&name)?;
        }
        if record.status != Status::Completed || seen.epochs.len() != EPOCHS as usize {
            let reason = record
                .failure_reason
                .unwrap_or_else(|| "it was stopped".to_owned());
            row.failed = Some(reason);
            return Ok(row);
        }
        row.startup_seconds = record.training_started.unwrap_or(record.created) - record.created;
        row.first_batch_seconds = seen.first_batch;
        row.cpu_seconds = cpu.elapsed().as_secs_f64() + seen.cpu_seconds;
        row.epochs = seen.epochs;
        Ok(row)
    }

    /// The folder with the copy of mode File.
    fn copied(&self) -> PathBuf {
        self.store.path("file").join("algo-1/input/data/images")
    }

    fn job(&self, way: Way) -> Result<Job, Box<dyn Error>> {
        let mut job = Job::new(EntryPoint::parse("read.sh")?);
        job.name = Some(way.name().replace([' ', ','], "").to_lowercase());
        job.source_dir = Some(self.work.path().join("source"));
        job.profile = false;
        // Its script is this program, which only reads and needs no /opt/ml.
        job.opt_ml = false;
        job.stop_seconds = 5;
        job.cache_dir = Some(self.work.path().join("cache"));
        let manifest = self.work.path().join("images.manifest");
        let brought = |mode: &str| match self.place.manifest {
            Some(_) => format!("{},mode={mode},kind=ManifestFile", manifest.display()),
            None => format!("{},mode={mode}", self.place.uri),
        };
        let channel = match way {
            Way::File => Some(brought("File")),
            Way::Disk => Some(format!("{},mode=Dir,access=rw", self.copied().display())),
            Way::Dir => Some(format!("{},mode=Dir,access=rw", self.place.uri)),
            Way::FastFile => Some(brought("FastFile")),
            Way::Pipe => Some(brought("Pipe") + ",wrapper=RecordIO"),
            Way::Cache | Way::CacheAgain => Some(brought("Cache")),
            Way::Streaming => None,
        };
        if let Some(channel) = channel {
            job.channels
                .insert("images".to_owned(), Channel::parse(&channel)?);
        }
        let args = self.args;
        let mut words = vec![
            format!("--images {}", self.place.images),
            format!("--max-images {}", args.max_images),
            format!("--image-size {}", args.batch.image_size),
            format!("--batch-size {}", args.batch.batch_size),
            format!("--workers {}", args.threads.workers),
        ];
        words.extend(
            args.trainer_images_per_s
                .map(|rate| format!("--trainer-images-per-s {rate}")),
        );
        words.extend((way == Way::Pipe).then(|| "--pipe".to_owned()));
        let program = std::env::current_exe()?;
        let mut set = |name: &str, value: &Path| {
            let text = value
                .to_str()
                .ok_or_else(|| Usage(format!("{} is not UTF-8", value.display())))?;
            job.environment.insert(name.to_owned(), text.to_owned());
            Ok::<(), Usage>(())
        };
        set("STOKEHOLD", &program)?;
        set("STOKEHOLD_READ", Path::new(&words.join(" ")))?;
        if way == Way::Streaming {
            set("STOKEHOLD_READ_URI", Path::new(&self.place.uri))?;
        }
        Ok(job)
    }
}

/// What the reading process has reported so far.
struct Seen {
    /// The traffic of this process at the last check.
    before: Traffic,
    /// The traffic of the reading process.
    there: Traffic,
    first_batch: f64,
    cpu_seconds: f64,
    epochs: Vec<Epoch>,
}

impl Seen {
    fn new(before: Traffic) -> Self {
        Self {
            before,
            there: Traffic::default(),
            first_batch: 0.0,
            cpu_seconds: 0.0,
            epochs: Vec::new(),
        }
    }

    /// Parses a line, if it is one of the reader's.
    fn take(&mut self, line: &str) {
        let Ok(said) = serde_json::from_str::<read::Said>(line) else {
            return;
        };
        let (here, there) = (traffic(), said.traffic());
        if self.epochs.is_empty() {
            self.first_batch = said.first_batch_seconds;
        }
        self.cpu_seconds = said.cpu_seconds;
        self.epochs.push(Epoch {
            images: said.images,
            seconds: said.seconds,
            images_per_second: said.images_per_second,
            bytes: here.bytes - self.before.bytes + there.bytes - self.there.bytes,
            requests: here.requests - self.before.requests + there.requests - self.there.requests,
        });
        (self.before, self.there) = (here, there);
    }
}

/// How long a trainer with this many images per second computes on a batch.
fn step(images: usize, rate: f64) -> Duration {
    Duration::from_secs_f64(images as f64 / rate)
}
