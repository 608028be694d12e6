//! `stokehold bench storage`: compares the ways to get data from a bucket to a training, on the user's own
//! data.
//!
//! ```text
//!  this process                                    the job's process
//!  list, manifest of the images ─► job, a channel ─► loader, fused ─► batches, taken at the trainer's rate
//!  copies, mounts, feeds pipes                        or the loader reads the bucket itself
//! ```
//!
//! Every way is a real job of `stokehold-jobs`, one after the other, and the loader reads the data, so the
//! measurement is what a training would get. All ways read the same images. The file that the job runs is one
//! line that starts this program again.

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
use stokehold_jobs::{Channel, EntryPoint, Job, News, Status, Store};
use stokehold_objects::{Location, Traffic, traffic};
use stokehold_storage::{Images, Source};

use crate::failure::Usage;
use crate::interrupt;
use crate::loader::{BatchArgs, WorkerArgs};
use crate::local::Local;
use report::{Epoch, Report, Row};

pub use read::{ReadArgs, read};

/// Options of `bench storage`.
#[derive(Debug, ClapArgs)]
pub struct StorageArgs {
    /// The place of the images: s3://bucket/prefix, gs://, az://
    uri: String,
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
}

impl Way {
    /// File comes first, because its copy is the local disk that the others are compared with.
    const ALL: [Self; 7] = [
        Self::File,
        Self::Disk,
        Self::FastFile,
        Self::Pipe,
        Self::Cache,
        Self::CacheAgain,
        Self::Streaming,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::File => "File",
            Self::Disk => "local disk",
            Self::FastFile => "FastFile",
            Self::Pipe => "Pipe",
            Self::Cache => "Cache",
            Self::CacheAgain => "Cache, next job",
            Self::Streaming => "streaming",
        }
    }
}

/// Runs the subcommand.
pub fn run(args: &StorageArgs) -> Result<ExitCode, Box<dyn Error>> {
    if !Location::is_remote(&args.uri) {
        let says = format!(
            "{} is a folder of this machine; bench storage measures how data comes from a bucket (s3://bucket/prefix), and \
             `stokehold bench loader` measures a folder",
            args.uri
        );
        return Err(Usage(says).into());
    }
    if args
        .trainer_images_per_s
        .is_some_and(|rate| !(rate > 0.0 && rate.is_finite()))
    {
        return Err(Usage("--trainer-images-per-s wants a number above 0".to_owned()).into());
    }
    let stop = interrupt::flag_for("stopping; what was copied is removed")?;
    let mut images = Images::unlabelled(&args.uri)?;
    if matches!(images, Images::Shards(_)) {
        let says = format!("{} is a prepared data set; give a place of image files", args.uri);
        return Err(Usage(says).into());
    }
    let sizes = |images: &Images| {
        (0..images.len())
            .filter_map(|image| images.size(image))
            .sum::<u64>()
    };
    let (all_images, all_bytes) = (images.len(), sizes(&images));
    images.limit(args.max_images);
    let bench = Bench::new(args, &images, stop)?;
    let mut report = Report {
        uri: args.uri.clone(),
        images: images.len(),
        bytes: sizes(&images),
        all_images,
        all_bytes,
        trainer_images_per_second: args.trainer_images_per_s,
        rows: Vec::new(),
    };
    for way in Way::ALL {
        note!("measuring {}", way.name());
        report.rows.push(bench.measure(way)?);
        if stop.load(Ordering::SeqCst) {
            return Ok(ExitCode::from(interrupt::EXIT_CODE));
        }
    }
    match args.json {
        true => terminal::json(&report.json())?,
        false => writeln!(terminal::out(), "{}", report.to_string().trim_end())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The common parts of all measurements.
struct Bench<'a> {
    args: &'a StorageArgs,
    stop: &'a AtomicBool,
    store: Store,
    /// Removed at the end, with everything in it.
    work: tempfile::TempDir,
    images: usize,
}

/// Every image is read twice.
const EPOCHS: u64 = 2;

impl<'a> Bench<'a> {
    fn new(args: &'a StorageArgs, images: &Images, stop: &'a AtomicBool) -> Result<Self, Box<dyn Error>> {
        let mut folder = tempfile::Builder::new();
        folder.prefix("stokehold-storage-");
        let work = match &args.work_dir {
            Some(dir) => folder.tempdir_in(dir),
            None => folder.tempdir(),
        }?;
        let below = |image: usize| Value::from(String::from_utf8_lossy(images.below(image)));
        let first = serde_json::json!({ "prefix": args.uri });
        let manifest: Vec<Value> = std::iter::once(first)
            .chain((0..images.len()).map(below))
            .collect();
        fs::write(
            work.path().join("images.manifest"),
            serde_json::to_vec(&manifest)?,
        )?;
        fs::create_dir(work.path().join("source"))?;
        fs::write(
            work.path().join("source/read.sh"),
            "exec \"$STOKEHOLD\" bench storage-reader $STOKEHOLD_READ\n",
        )?;
        Ok(Self {
            args,
            stop,
            store: Store::new(&work.path().join("jobs"))?,
            images: images.len(),
            work,
        })
    }

    fn measure(&self, way: Way) -> Result<Row, Box<dyn Error>> {
        let mut row = Row::new(way.name());
        if way == Way::Disk && !self.copied().is_dir() {
            row.failed = Some("there is no copy to read: mode File could not be measured".to_owned());
            return Ok(row);
        }
        let job = self.job(way)?;
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
        let brought = |mode: &str| format!("{},mode={mode},kind=ManifestFile", manifest.display());
        let channel = match way {
            Way::File => Some(brought("File")),
            Way::Disk => Some(format!("{},mode=Dir,access=rw", self.copied().display())),
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
            format!("--images {}", self.images),
            format!("--max-images {}", args.max_images),
            format!("--image-size {}", args.batch.image_size),
            format!("--batch-size {}", args.batch.batch_size),
            format!("--workers {}", args.threads.workers.resolve()),
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
            set("STOKEHOLD_READ_URI", Path::new(&args.uri))?;
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
