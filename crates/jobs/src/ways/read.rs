//! The process of a measurement's job: a loader that reads from its channel, and a consumer with a trainer's
//! pace.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use cpu_time::ProcessTime;
use serde::{Deserialize, Serialize};
use stokehold_loader::{Loader, LoaderOptions};
use stokehold_objects::{Traffic, traffic};
use stokehold_pipeline::Pipeline;
use stokehold_storage::{Images, SampleBytes, Source, StorageError};

use super::{Reading, step};
use crate::JobError;

/// The report of the reading process after an epoch.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Said {
    /// The number of images, unreadable ones included.
    pub images: usize,
    /// From the start of the process to the first batch of this epoch.
    pub first_batch_seconds: f64,
    /// From the demand for the first batch to the end of the epoch.
    pub seconds: f64,
    /// In that time.
    pub images_per_second: f64,
    /// CPU time of this process so far.
    pub cpu_seconds: f64,
    requests: u64,
    bytes: u64,
}

impl Said {
    pub(super) fn traffic(&self) -> Traffic {
        Traffic {
            requests: self.requests,
            bytes: self.bytes,
        }
    }
}

/// The loader of the reading process, and a consumer with the trainer's pace.
pub struct Reader {
    loader: Loader,
    trainer_images_per_s: Option<f64>,
    begin: Instant,
    cpu: ProcessTime,
}

impl Reader {
    /// Opens what the job of this process has brought; `piped` is the number of images in a pipe, where the channel is one.
    ///
    /// # Errors
    /// This is no job of [`measure`](super::measure); the images cannot be listed, or the loader does not take them.
    pub fn of_job(reading: &Reading, piped: Option<usize>) -> Result<Self, JobError> {
        let (begin, cpu) = (Instant::now(), ProcessTime::now());
        let set = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let data = set("STOKEHOLD_READ_URI").or_else(|| set("SM_CHANNEL_IMAGES"));
        let data = data.ok_or_else(|| {
            JobError::Input("storage-reader is for jobs of `stokehold bench storage`".to_owned())
        })?;
        let source: Arc<dyn Source> = match piped {
            Some(images) => Arc::new(Piped::new(&data, images)),
            None => {
                let mut images = Images::unlabelled(&data).map_err(JobError::Images)?;
                images.limit(reading.max_images);
                Arc::new(images)
            }
        };
        let options = LoaderOptions {
            batch_size: reading.batch_size,
            workers: reading.workers,
            shuffle: piped.is_none(),
            bad_image_limit: usize::MAX,
            ..LoaderOptions::default()
        };
        let loader = Loader::new(source, Pipeline::published(0, reading.image_size), options);
        Ok(Self {
            loader: loader.map_err(JobError::Loader)?,
            trainer_images_per_s: reading.trainer_images_per_s,
            begin,
            cpu,
        })
    }

    /// Reads all images once, for the epoch of this number, counted from 0.
    ///
    /// # Errors
    /// As the loader's; an image that cannot be decoded is counted, and no error.
    pub fn epoch(&self, epoch: u64) -> Result<Said, JobError> {
        let (mut first, mut images) = (None, 0);
        let asked = Instant::now();
        let mut trained = asked;
        let mut batches = self.loader.epoch(epoch);
        for batch in &mut batches {
            let batch = batch.map_err(JobError::Loader)?;
            let count = batch.labels.len() + batch.bad.len();
            images += count;
            first.get_or_insert_with(Instant::now);
            if let Some(rate) = self.trainer_images_per_s {
                // The step begins when both batch and trainer are ready; wait for its end.
                trained = trained.max(Instant::now()) + step(count, rate);
                std::thread::sleep(trained.saturating_duration_since(Instant::now()));
            }
        }
        images += batches.unreported().len();
        let first = first.unwrap_or(asked);
        let seconds = asked.elapsed().as_secs_f64();
        let traffic = traffic();
        Ok(Said {
            images,
            first_batch_seconds: (first - self.begin).as_secs_f64(),
            seconds,
            images_per_second: images as f64 / seconds.max(1e-9),
            cpu_seconds: self.cpu.elapsed().as_secs_f64(),
            requests: traffic.requests,
            bytes: traffic.bytes,
        })
    }
}

/// Images from a channel's pipes, one RecordIO record each, in the order of the pipe: sample numbers are
/// ignored.
struct Piped {
    channel: PathBuf,
    images: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The pipe of this epoch.
    pipe: Option<BufReader<File>>,
    /// Records left in it.
    left: usize,
    /// The number of the next pipe.
    next: u64,
}

impl Piped {
    fn new(channel: &Path, images: usize) -> Self {
        Self {
            channel: channel.to_owned(),
            images,
            state: Mutex::default(),
        }
    }

    fn record(&self, into: &mut Vec<u8>) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.left == 0 {
            let mut path = self.channel.clone().into_os_string();
            path.push(format!("_{}", state.next));
            state.pipe = Some(BufReader::with_capacity(1 << 20, File::open(path)?));
            state.left = self.images;
            state.next += 1;
        }
        state.left -= 1;
        let Some(pipe) = &mut state.pipe else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let mut head = [0; 8];
        pipe.read_exact(&mut head)?;
        if head[..4] != [0x0A, 0x23, 0xD7, 0xCE] {
            return Err(io::Error::other("this is not a RecordIO record"));
        }
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        into.resize(length, 0);
        pipe.read_exact(into)?;
        pipe.read_exact(&mut [0; 3][..length.next_multiple_of(4) - length])
    }
}

impl Source for Piped {
    fn len(&self) -> usize {
        self.images
    }

    fn class(&self, _: usize) -> u32 {
        0
    }

    fn name(&self, _: usize) -> String {
        format!("a record of {}", self.channel.display())
    }

    fn read(&self, _: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        self.record(into.refill()).map_err(|source| StorageError::Read {
            path: self.channel.clone(),
            source,
        })
    }
}
