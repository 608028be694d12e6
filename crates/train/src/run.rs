//! A run's folder.
//!
//! ```text
//! runs/<name>/run.json           what is needed to repeat the run: configuration, data, version, machine
//!             metrics.jsonl      a line per logging interval ("train") and per epoch ("epoch")
//!             profiler-output/   the recording of the run: where its time went, step by step, and what the machine did meanwhile
//!             checkpoints/
//!             model.safetensors  the final model, torchvision's names
//!             ema.safetensors    the moving average of its weights, if there is one
//!             summary.json       and summary.txt, the same on one screen
//!             ranks/N/           the lock and the recording of rank N, where several ranks train
//!             lock               held by the process that trains
//! ```
//!
//! When a run is resumed, lines of metrics after its checkpoint are removed, because they will be written
//! again.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use stokehold_base::hash::Fnv;
use stokehold_base::lock::{Lock, Refused};
use stokehold_base::there::if_there;
use stokehold_base::{regular, whole};
use stokehold_profile::{Machine, ProfileError};
use stokehold_storage::{Dataset, Source};

use crate::config::TrainConfig;
use crate::executor::Chosen;
use crate::progress::{EpochRecord, Progress, Sums, Validation};
use crate::world::RankFacts;
use crate::{RunSummary, TrainError, pixels};

/// The folder of a run and its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder(PathBuf);

impl RunRecord {
    /// What keeps a run with this configuration and this data from being the same run, a phrase each; the fields in
    /// [`TrainConfig::FREE`] may differ.
    ///
    /// # Errors
    /// A configuration cannot be compared.
    pub fn changes(&self, config: &TrainConfig, dataset: &DatasetFacts) -> Result<Vec<String>, TrainError> {
        let mut changes = self
            .config
            .changes(config)
            .map_err(|error| malformed(&RunFolder::new(&config.run_dir).record(), &error))?;
        changes.extend(self.dataset.changes(dataset));
        Ok(changes)
    }
}

impl RunFolder {
    /// The run in `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The folder of another rank than the first, with its recording.
    pub fn of_rank(&self, rank: usize) -> Self {
        Self(self.0.join("ranks").join(rank.to_string()))
    }

    /// `run.json`: what is needed to repeat the run.
    pub fn record(&self) -> PathBuf {
        self.0.join("run.json")
    }

    /// Losses, learning rates, accuracies and speeds.
    pub fn metrics(&self) -> PathBuf {
        self.0.join("metrics.jsonl")
    }

    /// Timeline and system samples ([`stokehold_profile::Recording`]).
    pub fn recording(&self) -> PathBuf {
        self.0.join(stokehold_profile::FOLDER)
    }

    /// The checkpoints ([`crate::checkpoint`]).
    pub fn checkpoints(&self) -> PathBuf {
        self.0.join("checkpoints")
    }

    /// The final model.
    pub fn model(&self) -> PathBuf {
        self.0.join("model.safetensors")
    }

    /// The moving average of the final model's weights, if the run has one.
    pub fn ema(&self) -> PathBuf {
        self.0.join("ema.safetensors")
    }

    /// The summary as data ([`RunSummary`]).
    pub fn summary(&self) -> PathBuf {
        self.0.join("summary.json")
    }

    fn summary_text(&self) -> PathBuf {
        self.0.join("summary.txt")
    }

    /// What a run writes besides `run.json` and checkpoints, as far as it is there. A recording that another
    /// program makes at this moment is not the run's.
    pub(crate) fn results(&self) -> Vec<PathBuf> {
        let files = [
            self.metrics(),
            self.model(),
            self.ema(),
            self.summary(),
            self.summary_text(),
        ];
        let mut results = Vec::from(files);
        if !matches!(
            stokehold_profile::check_free(&self.recording()),
            Err(ProfileError::Recording { .. })
        ) {
            results.push(self.recording());
        }
        // A link counts, wherever it leads.
        results.retain(|path| path.symlink_metadata().is_ok());
        results
    }

    /// Reads `run.json`; `None` if there is no run.
    ///
    /// # Errors
    /// If it exists and cannot be read, or is not a record of a run.
    pub fn read_record(&self) -> Result<Option<RunRecord>, TrainError> {
        read_json(&self.record())
    }

    /// Reads `summary.json`; `None` if no run was finished or interrupted.
    ///
    /// # Errors
    /// If it exists and cannot be read, or is not a summary.
    pub fn read_summary(&self) -> Result<Option<RunSummary>, TrainError> {
        read_json(&self.summary())
    }

    /// Locks the folder, which is created if needed, against training by other processes.
    pub(crate) fn lock(&self) -> Result<Lock, TrainError> {
        let failed = |source| TrainError::Io {
            path: self.0.clone(),
            source,
        };
        fs::create_dir_all(&self.0).map_err(failed)?;
        let lock = Lock::take(&self.0.join("lock"));
        tracing::info!(folder = %self.0.display(), taken = lock.is_ok(), "the run's lock");
        lock.map_err(|refused| match refused {
            Refused::Held(holder) => TrainError::InUse {
                path: self.0.clone(),
                holder,
            },
            Refused::Io(source) => failed(source),
        })
    }

    pub(crate) fn write_record(&self, record: &RunRecord) -> Result<(), TrainError> {
        write_json(&self.record(), record)
    }

    pub(crate) fn write_summary(&self, summary: &RunSummary) -> Result<(), TrainError> {
        write_json(&self.summary(), summary)?;
        let path = self.summary_text();
        whole::write(&path, format!("{summary}\n")).map_err(|source| TrainError::Io { path, source })
    }
}

/// The contents of `run.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The version of Stokehold.
    pub stokehold: String,
    /// When the run was first started, unix seconds.
    pub created: u64,
    /// What it computes.
    pub config: TrainConfig,
    /// The data.
    pub dataset: DatasetFacts,
    /// The machine.
    pub machine: Machine,
    /// The device.
    pub device: String,
    /// The executor of the pipelines, and the reason if the run chose it.
    pub executor: Chosen,
    /// Which training images an epoch has, in words, with a hash of what a file says.
    pub sampler: String,
    /// The loader's threads, and the reason; `None` if an option said how many, and before the run's end.
    pub workers: Option<ChosenWorkers>,
    /// The ranks that trained together since the last start or resume; empty for one alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankFacts>,
}

/// Loader threads that a loader chose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChosenWorkers {
    /// Their number at the end of the training.
    pub workers: usize,
    /// The reason.
    pub why: String,
}

/// What identifies a data set without its images.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatasetFacts {
    /// The classes of images, or of pixels, by number.
    pub classes: Vec<String>,
    /// Training images.
    pub train: usize,
    /// Validation images; `None` without validation.
    pub val: Option<usize>,
    /// How the validation images were split off, if they were.
    pub split: Option<String>,
    /// A hash (FNV-1a, 64 bits) of the names of all images below their folders and of their classes, in
    /// order.
    pub names: String,
}

impl DatasetFacts {
    /// The facts of `dataset`.
    pub fn of(dataset: &Dataset) -> Self {
        let mut hash = Fnv::default();
        for images in std::iter::once(&dataset.train).chain(&dataset.val) {
            images.add_names(&mut hash);
        }
        Self {
            classes: pixels::classes(&dataset.train).to_vec(),
            train: dataset.train.len(),
            val: dataset.val.as_ref().map(|val| val.len()),
            split: dataset.split.as_ref().map(ToString::to_string),
            names: format!("{:016x}", hash.finish()),
        }
    }

    /// The differences from `now`, a phrase for each fact.
    pub(crate) fn changes(&self, now: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        if self.classes != now.classes {
            changes.push(format!(
                "the classes were {} and are {} now",
                self.classes.join(", "),
                now.classes.join(", ")
            ));
        }
        if self.train != now.train {
            changes.push(format!(
                "there were {} training images and are {} now",
                self.train, now.train
            ));
        }
        if self.val != now.val {
            let count = |val: Option<usize>| val.map_or("no".to_owned(), |count| count.to_string());
            changes.push(format!(
                "there were {} validation images and are {} now",
                count(self.val),
                count(now.val)
            ));
        }
        if changes.is_empty() && self.names != now.names {
            changes.push("the names of the images are other ones".to_owned());
        }
        changes
    }
}

/// A line of `metrics.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum MetricsLine {
    /// A logging interval.
    Train {
        /// The epoch, from 1.
        epoch: u64,
        /// Steps made since the start of the run.
        step: u64,
        /// Mean loss of the interval's images; `None` where nothing is trained.
        loss: Option<f64>,
        /// Learning rate of the last step.
        lr: f64,
        /// Images trained on per second, including waits.
        images_per_second: f64,
        /// Share of the time in which the trainer waited for batches, 0 to 1.
        wait_share: f64,
        /// The number of images in the loss.
        images: u64,
    },
    /// A finished epoch.
    Epoch {
        /// The epoch, from 1.
        epoch: u64,
        /// Steps made since the start of the run.
        step: u64,
        /// Mean loss of the training images; `None` where nothing is trained.
        loss: Option<f64>,
        /// Learning rate of the last step.
        lr: f64,
        /// Images trained on per second, including waits.
        images_per_second: f64,
        /// Share of the time in which the trainer waited for batches, 0 to 1.
        wait_share: f64,
        /// Wall time of the training steps, seconds.
        seconds: f64,
        /// Mean loss of the validation images, without label smoothing; `None` without validation images.
        val_loss: Option<f64>,
        /// Share of validation images whose class is the top guess, 0 to 1; `None` without validation images,
        /// and of a segmenter.
        top1: Option<f64>,
        /// Share of validation images whose class is among the first k guesses, 0 to 1; `None` without
        /// validation images, and of a segmenter. The k is in `summary.json`.
        topk: Option<f64>,
        /// The number of training images in the loss.
        images: u64,
        /// The number of validation images in `val_loss` and the scores; `None` without validation images.
        val_images: Option<u64>,
        /// Mean intersection over union of the classes of validation pixels, 0 to 1; only of a segmenter with validation
        /// images.
        #[serde(skip_serializing_if = "Option::is_none")]
        miou: Option<f64>,
        /// Share of the validation pixels that have a class whose class is the top guess, 0 to 1; only of a segmenter with
        /// validation images.
        #[serde(skip_serializing_if = "Option::is_none")]
        pixel_accuracy: Option<f64>,
        /// `val_loss` of the moving average of the weights; only in runs that have one.
        #[serde(skip_serializing_if = "Option::is_none")]
        ema_loss: Option<f64>,
        /// `top1` of the moving average of the weights; only in runs that have one.
        #[serde(skip_serializing_if = "Option::is_none")]
        ema_top1: Option<f64>,
        /// `topk` of the moving average of the weights; only in runs that have one.
        #[serde(skip_serializing_if = "Option::is_none")]
        ema_topk: Option<f64>,
        /// `miou` of the moving average of the weights; only in runs of a segmenter that have one.
        #[serde(skip_serializing_if = "Option::is_none")]
        ema_miou: Option<f64>,
        /// `pixel_accuracy` of the moving average of the weights; only in runs of a segmenter that have one.
        #[serde(skip_serializing_if = "Option::is_none")]
        ema_pixel_accuracy: Option<f64>,
    },
}

impl MetricsLine {
    /// The same line of a run that trains nothing.
    pub(crate) fn without_loss(mut self) -> Self {
        match &mut self {
            Self::Train { loss, .. } | Self::Epoch { loss, .. } => *loss = None,
        }
        self
    }

    pub(crate) fn train(epoch: u64, step: u64, lr: f64, sums: &Sums) -> Self {
        Self::Train {
            epoch,
            step,
            loss: Some(sums.mean_loss()),
            lr,
            images_per_second: sums.images_per_second(),
            wait_share: sums.wait_share(),
            images: sums.images,
        }
    }

    pub(crate) fn epoch(record: &EpochRecord) -> Self {
        let images = |validation: Option<Validation>| validation.and_then(|own| own.scores.of_images());
        let pixels = |validation: Option<Validation>| validation.and_then(|own| own.scores.of_pixels());
        let [top1, topk] = [0, 1].map(|at| images(record.validation).map(|scores| scores[at]));
        let [ema_top1, ema_topk] = [0, 1].map(|at| images(record.ema).map(|scores| scores[at]));
        let [miou, pixel_accuracy] = [0, 1].map(|at| pixels(record.validation).map(|scores| scores[at]));
        let [ema_miou, ema_pixel_accuracy] = [0, 1].map(|at| pixels(record.ema).map(|scores| scores[at]));
        Self::Epoch {
            epoch: record.epoch,
            step: record.step,
            loss: Some(record.sums.mean_loss()),
            lr: record.lr,
            images_per_second: record.sums.images_per_second(),
            wait_share: record.sums.wait_share(),
            seconds: record.sums.seconds,
            val_loss: record.validation.map(|validation| validation.loss),
            top1,
            topk,
            miou,
            pixel_accuracy,
            images: record.sums.images,
            val_images: record.validation.map(|validation| validation.images),
            ema_loss: record.ema.map(|validation| validation.loss),
            ema_top1,
            ema_topk,
            ema_miou,
            ema_pixel_accuracy,
        }
    }

    fn is_within(&self, progress: &Progress) -> bool {
        match self {
            // The current interval is not written at a checkpoint.
            Self::Train { step, .. } => {
                *step < progress.step || (*step == progress.step && progress.interval.images == 0)
            }
            Self::Epoch { epoch, .. } => *epoch <= progress.epochs.len() as u64,
        }
    }
}

/// Reads `metrics.jsonl`; skips a last line that a killed process left incomplete.
///
/// # Errors
/// If the file cannot be read, or another line is not a line of metrics.
pub fn read_metrics(path: &Path) -> Result<Vec<MetricsLine>, TrainError> {
    let text = regular::read_to_string(path).map_err(|source| TrainError::Io {
        path: path.to_owned(),
        source,
    })?;
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let parse = |(number, line)| {
        serde_json::from_str(line).map_err(|error| TrainError::Malformed {
            path: path.to_owned(),
            reason: format!("line {} is not a line of metrics: {error}", number + 1),
        })
    };
    whole.lines().enumerate().map(parse).collect()
}

/// `metrics.jsonl` while it grows.
pub(crate) struct MetricsLog {
    path: PathBuf,
    file: File,
}

impl MetricsLog {
    /// Opens the log of a run that stands at `progress`, and removes later lines. Lines that cannot be read
    /// are removed too, because a checkpoint is worth more than they are; then the old file is kept next to
    /// the new one, and the returned sentence says so.
    pub(crate) fn open(path: PathBuf, progress: &Progress) -> Result<(Self, Option<String>), TrainError> {
        let failed = |source| TrainError::Io {
            path: path.clone(),
            source,
        };
        let bytes = if_there(regular::read(&path))
            .map_err(failed)?
            .unwrap_or_default();
        let end = bytes
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |end| end + 1);
        let (mut kept, mut epochs, mut unread) = (Vec::new(), 0, Vec::new());
        for (number, bytes) in (1..).zip(bytes[..end].split_inclusive(|byte| *byte == b'\n')) {
            match serde_json::from_slice::<MetricsLine>(bytes) {
                Ok(line) if line.is_within(progress) => {
                    kept.extend(bytes);
                    epochs += usize::from(matches!(line, MetricsLine::Epoch { .. }));
                }
                Ok(_) => {}
                Err(error) => unread.push((number, error)),
            }
        }
        let mut warning = None;
        if let Some((number, error)) = unread.first() {
            let numbered = |number: u32| match number {
                0 => path.with_extension("jsonl.damaged"),
                number => path.with_extension(format!("jsonl.damaged-{number}")),
            };
            let aside = (0..)
                .map(numbered)
                .find(|aside| !aside.exists())
                .unwrap_or_else(|| numbered(0));
            whole::write(&aside, &bytes).map_err(failed)?;
            warning = Some(format!(
                "{}: {} damaged, the first is line {number} ({error}); the run continues without, and the whole file is kept as {}",
                path.display(),
                match unread.len() {
                    1 => "1 line is".to_owned(),
                    lines => format!("{lines} lines are"),
                },
                aside.display()
            ));
        }
        if warning.is_none() && epochs < progress.epochs.len() {
            warning = Some(format!(
                "{}: has {epochs} of the {} epochs that were trained; the run continues, and what is missing stays missing",
                path.display(),
                progress.epochs.len()
            ));
        }
        whole::write(&path, kept).map_err(failed)?;
        let file = OpenOptions::new().append(true).open(&path).map_err(failed)?;
        Ok((Self { path, file }, warning))
    }

    pub(crate) fn write(&mut self, line: &MetricsLine) -> Result<(), TrainError> {
        let mut text = serde_json::to_string(line).map_err(|error| malformed(&self.path, &error))?;
        text.push('\n');
        // In one write, so that a process that follows the file sees whole lines.
        self.file
            .write_all(text.as_bytes())
            .map_err(|source| TrainError::Io {
                path: self.path.clone(),
                source,
            })
    }
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Option<T>, TrainError> {
    let text = if_there(regular::read(path)).map_err(|source| TrainError::Io {
        path: path.to_owned(),
        source,
    })?;
    let Some(text) = text else { return Ok(None) };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|error| malformed(path, &error))
}

fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<(), TrainError> {
    let text = serde_json::to_vec_pretty(value).map_err(|error| malformed(path, &error))?;
    whole::write(path, text).map_err(|source| TrainError::Io {
        path: path.to_owned(),
        source,
    })
}

fn malformed(path: &Path, error: &serde_json::Error) -> TrainError {
    TrainError::Malformed {
        path: path.to_owned(),
        reason: format!("not of the form that this version of Stokehold writes: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: u64) -> MetricsLine {
        let mut sums = Sums::default();
        sums.add(1.25, 2, 1.0, 0.5);
        MetricsLine::train(step.div_ceil(10), step, 0.1, &sums)
    }

    #[test]
    fn lines_beyond_the_checkpoint_are_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let (mut log, _) = MetricsLog::open(path.clone(), &Progress::default()).unwrap();
        for step in 1..=5 {
            log.write(&line(step)).unwrap();
        }
        // The process was killed within a line.
        log.file.write_all(b"{\"kind\":\"tra").unwrap();
        let progress = Progress {
            step: 3,
            ..Progress::default()
        };
        let (mut log, warning) = MetricsLog::open(path.clone(), &progress).unwrap();
        assert_eq!(warning, None);
        log.write(&line(4)).unwrap();
        assert_eq!(read_metrics(&path).unwrap(), [1, 2, 3, 4].map(line));
    }

    #[test]
    fn a_damaged_line_is_left_out_and_its_file_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.jsonl");
        let progress = Progress {
            step: 3,
            ..Progress::default()
        };
        let (mut log, _) = MetricsLog::open(path.clone(), &progress).unwrap();
        for step in 1..=3 {
            log.write(&line(step)).unwrap();
        }
        let mut bytes = fs::read(&path).unwrap();
        let second = bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        bytes[second] ^= 0x80;
        fs::write(&path, &bytes).unwrap();
        let (mut log, warning) = MetricsLog::open(path.clone(), &progress).unwrap();
        let warning = warning.unwrap();
        assert!(
            warning.contains("1 line is damaged, the first is line 2"),
            "{warning}"
        );
        log.write(&line(4)).unwrap();
        assert_eq!(read_metrics(&path).unwrap(), [1, 3, 4].map(line));
        assert_eq!(fs::read(dir.path().join("metrics.jsonl.damaged")).unwrap(), bytes);
    }

    #[test]
    fn another_data_set_is_told_by_its_names() {
        let folder = |name: &str| {
            stokehold_storage::Images::Folder(stokehold_storage::ImageFolder {
                root: "data/train".into(),
                classes: vec!["cat".into(), "dog".into()],
                samples: vec![stokehold_storage::Sample {
                    path: Path::new("data/train").join(name),
                    class: 0,
                }],
                besides: Default::default(),
            })
        };
        let facts = |name| {
            DatasetFacts::of(&Dataset {
                train: folder(name),
                val: None,
                split: None,
            })
        };
        assert_eq!(
            facts("cat/1.jpg").changes(&facts("cat/1.jpg")),
            Vec::<String>::new()
        );
        assert_eq!(
            facts("cat/1.jpg").changes(&facts("cat/2.jpg")),
            ["the names of the images are other ones"]
        );
        let val = DatasetFacts {
            val: Some(3),
            ..facts("cat/1.jpg")
        };
        assert_eq!(
            facts("cat/1.jpg").changes(&val),
            ["there were no validation images and are 3 now"]
        );
    }

    #[test]
    #[cfg(unix)]
    fn rejects_files_that_are_not_regular_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::new(dir.path());
        for path in [folder.record(), folder.summary(), folder.metrics()] {
            let made = std::process::Command::new("mkfifo").arg(path).status();
            assert!(made.unwrap().success());
        }
        // On another thread: a reader that waits must not keep the test waiting.
        let (done, wait) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let errors = [
                folder.read_record().err(),
                folder.read_summary().err(),
                read_metrics(&folder.metrics()).err(),
                MetricsLog::open(folder.metrics(), &Progress::default()).err(),
            ];
            done.send(errors.map(|error| error.map(|error| error.to_string())))
        });
        let limit = std::time::Duration::from_secs(60);
        let errors = wait.recv_timeout(limit).expect("the reader waits for a writer");
        let names = ["run.json", "summary.json", "metrics.jsonl", "metrics.jsonl"];
        for (error, name) in errors.iter().zip(names) {
            let error = error.as_deref().unwrap_or("no error");
            assert!(
                error.contains(name) && error.contains("a FIFO"),
                "{name}: {error}"
            );
        }
    }
}
