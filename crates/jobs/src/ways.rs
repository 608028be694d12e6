//! Compares the places where a data set lies, and the ways to get it from there to a training, on the user's own data.
//!
//! ```text
//!  this process                                    the job's process
//!  list, manifest of the images ─► job, a channel ─► loader, fused ─► batches, taken at the trainer's rate
//!  copies, mounts, feeds pipes                        or the loader reads the bucket itself
//! ```
//!
//! Every way is a real job, one after the other, and the loader reads the data, so the measurement is what a training would
//! get. All ways of a place read the same images. The file that the job runs is one line that starts this program again,
//! which hands a [`Reader`] its [`Reading`].
//!
//! A folder of this machine, on its disk or mounted, has one way: it is used as it is. What the kernel holds of its files in
//! memory is dropped first, so that the first epoch reads from the storage.

mod place;
mod read;
mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cpu_time::ProcessTime;
use serde_json::Value;
use stokehold_diagnose::advice::Prices;
use stokehold_loader::Workers;
use stokehold_objects::{Traffic, traffic};

use crate::{Channel, EntryPoint, Job, JobError, News, Status, Store};

pub use place::Place;
pub use read::{Reader, Said};
pub use report::{Epoch, Measured, Report, Row};

/// How the images of a place are read.
#[derive(Debug, Clone, Copy)]
pub struct Reading {
    /// At most this many images, evenly spaced over all.
    pub max_images: usize,
    /// Width and height of the images in a batch, pixels.
    pub image_size: u32,
    /// Images per batch.
    pub batch_size: usize,
    /// The loader's threads.
    pub workers: Workers,
    /// Images per second that the trainer takes; `None` if it takes batches as fast as they come.
    pub trainer_images_per_s: Option<f64>,
}

/// A way to get data to a training.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Mode File: all is copied first.
    File,
    /// The copy of mode File, read once more.
    Disk,
    /// Mode FastFile.
    FastFile,
    /// Mode Pipe, as RecordIO.
    Pipe,
    /// Mode Cache, with an empty cache.
    Cache,
    /// Mode Cache, with what the job before has left.
    CacheAgain,
    /// No channel: the loader reads the bucket.
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

    /// Its name in a table.
    pub fn name(self) -> &'static str {
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

/// Every image is read this many times.
pub const EPOCHS: u64 = 2;

/// Measures all ways of a place, one after the other, and ends with the way in which `stop` was set. `begins` hears of each way
/// before it is measured. Jobs, copies and caches are made in the folder `work`, which has to be empty.
///
/// # Errors
/// `work` cannot be written, or has a path that is not UTF-8; a job cannot be described or started. A job that fails is a
/// [`Row`] with the reason.
pub fn measure(
    place: &Place,
    reading: &Reading,
    prices: &Prices,
    work: &Path,
    stop: &AtomicBool,
    begins: &mut dyn FnMut(Way),
) -> Result<Measured, JobError> {
    let bench = Bench::new(reading, place, work, stop)?;
    let mut measured = Measured::of(place, reading.trainer_images_per_s, prices);
    for &way in place.ways() {
        begins(way);
        measured.rows.push(bench.measure(way)?);
        if stop.load(Ordering::SeqCst) {
            break;
        }
    }
    Ok(measured)
}

/// The common parts of all measurements of a place.
struct Bench<'a> {
    reading: &'a Reading,
    place: &'a Place,
    stop: &'a AtomicBool,
    store: Store,
    work: &'a Path,
}

impl<'a> Bench<'a> {
    fn new(
        reading: &'a Reading,
        place: &'a Place,
        work: &'a Path,
        stop: &'a AtomicBool,
    ) -> Result<Self, JobError> {
        let write = |name: &str, text: String| {
            let path = work.join(name);
            fs::write(&path, text).map_err(JobError::io(&path))
        };
        if let Some(names) = &place.manifest {
            let first = serde_json::json!({ "prefix": place.uri });
            let manifest: Vec<Value> = std::iter::once(first).chain(names.iter().cloned()).collect();
            write("images.manifest", Value::from(manifest).to_string())?;
        }
        let source = work.join("source");
        fs::create_dir(&source).map_err(JobError::io(&source))?;
        write(
            "source/read.sh",
            "exec \"$STOKEHOLD\" bench storage-reader $STOKEHOLD_READ\n".to_owned(),
        )?;
        Ok(Self {
            reading,
            place,
            stop,
            store: Store::new(&work.join("jobs"))?,
            work,
        })
    }

    fn measure(&self, way: Way) -> Result<Row, JobError> {
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
        let record = crate::run(self.store.claim(&name)?, self.stop, &see)?;
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

    fn job(&self, way: Way) -> Result<Job, JobError> {
        let mut job = Job::new(EntryPoint::parse("read.sh").map_err(JobError::Way)?);
        job.name = Some(way.name().replace([' ', ','], "").to_lowercase());
        job.source_dir = Some(self.work.join("source"));
        job.profile = false;
        // Its script is this program, which only reads and needs no /opt/ml.
        job.opt_ml = false;
        job.stop_seconds = 5;
        job.cache_dir = Some(self.work.join("cache"));
        let manifest = self.work.join("images.manifest");
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
            job.channels.insert(
                "images".to_owned(),
                Channel::parse(&channel).map_err(JobError::Way)?,
            );
        }
        let reading = self.reading;
        let mut words = vec![
            format!("--images {}", self.place.images),
            format!("--max-images {}", reading.max_images),
            format!("--image-size {}", reading.image_size),
            format!("--batch-size {}", reading.batch_size),
            format!("--workers {}", reading.workers),
        ];
        words.extend(
            reading
                .trainer_images_per_s
                .map(|rate| format!("--trainer-images-per-s {rate}")),
        );
        words.extend((way == Way::Pipe).then(|| "--pipe".to_owned()));
        let program = std::env::current_exe().map_err(JobError::io(Path::new("this program")))?;
        let mut set = |name: &str, value: &Path| {
            let text = value
                .to_str()
                .ok_or_else(|| JobError::Input(format!("{} is not UTF-8", value.display())))?;
            job.environment.insert(name.to_owned(), text.to_owned());
            Ok::<(), JobError>(())
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
        let Ok(said) = serde_json::from_str::<Said>(line) else {
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
