//! A recorded run, as far as a prediction needs it.

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stokehold_base::regular;
use stokehold_base::stats::percentile;
use stokehold_profile::{FOLDER, Node, Recording, Span, span};

use crate::ScaleError;

/// Fewer recorded steps, without those of the warm-up, say too little about how long steps take.
pub const LEAST_STEPS: usize = 10;

/// The first steps of a recording compile kernels and allocate memory; they are left out.
const WARM_UP: usize = 5;

/// A trainer that waited for more than this share of its time had all that its loader makes.
const WAITED: f64 = 0.05;

/// Batches that a loader has in work or ready unless the run says otherwise, as Stokehold's and PyTorch's do.
const PREFETCH: usize = 2;

/// Files have whole microseconds, so moments that are one may differ by so many seconds.
const SLACK: f64 = 2e-6;

/// What is known of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    /// Images of an epoch, at least 1.
    pub images: u64,
    /// Images of a rank's step, at least 1.
    pub batch: u64,
    /// Seconds of the recorded steps: a rank's own computing, without waits for the loader and for other ranks, and
    /// without reduce.
    #[serde(skip)]
    pub step_seconds: Vec<f64>,
    /// Seconds between two steps in which a rank neither computes nor waits: logs and the like.
    pub between_seconds: f64,
    /// Numbers in the gradients of a step.
    pub parameters: u64,
    /// Whether gradients are reduced while the backward pass continues.
    pub overlap: bool,
    /// Images per second that a rank's loader makes; `None` for one that is never waited for.
    pub loader_rate: Option<f64>,
    /// The most batches that a loader has in work or ready, at least 1.
    pub prefetch: usize,
    /// Bytes of an image in storage; `None` if no one knows.
    pub image_bytes: Option<f64>,
    /// Checkpoints.
    pub checkpoints: Option<Checkpoints>,
    /// Seconds of a recorded epoch without validation; `None` where it is not known, or was of several ranks.
    pub recorded_seconds: Option<f64>,
}

/// Checkpoints, which rank 0 writes while the others wait.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Checkpoints {
    /// Their number in an epoch, which is the same on any number of machines.
    pub per_epoch: f64,
    /// Seconds of one.
    pub seconds: f64,
}

impl Default for Run {
    fn default() -> Self {
        Self {
            images: 1,
            batch: 1,
            step_seconds: Vec::new(),
            between_seconds: 0.0,
            parameters: 0,
            overlap: false,
            loader_rate: None,
            prefetch: PREFETCH,
            image_bytes: None,
            checkpoints: None,
            recorded_seconds: None,
        }
    }
}

/// What a caller knows of a run, before what the recording says.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Settings {
    /// Images of an epoch.
    pub images: Option<u64>,
    /// Images of a rank's step.
    pub batch: Option<u64>,
    /// Parameters that are trained.
    pub parameters: Option<u64>,
    /// Images per second of a rank's loader.
    pub loader_rate: Option<f64>,
    /// Bytes of an image in storage.
    pub image_bytes: Option<f64>,
    /// Whether gradients are reduced while the backward pass continues; `None` for no in runs of `stokehold train`, which
    /// reduces after it, and yes in others, as PyTorch's `DistributedDataParallel` does.
    pub overlap: Option<bool>,
}

/// What a recording may not say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// [`Settings::images`].
    Images,
    /// [`Settings::batch`].
    Batch,
    /// [`Settings::parameters`].
    Parameters,
    /// [`Settings::image_bytes`].
    ImageBytes,
}

impl fmt::Display for Fact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Images => "how many images an epoch has",
            Self::Batch => "how many images a step has",
            Self::Parameters => "how many parameters are trained",
            Self::ImageBytes => "how many bytes an image has",
        })
    }
}

/// What is needed of `run.json`.
#[derive(Debug, Default, Deserialize)]
struct Record {
    config: Config,
    dataset: Dataset,
    #[serde(default)]
    ranks: Vec<Value>,
}

#[derive(Debug, Default, Deserialize)]
struct Config {
    batch_size: u64,
    prefetch: usize,
    drop_last: bool,
    freeze_backbone: bool,
    keep_checkpoints: usize,
    checkpoint_steps: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
struct Dataset {
    train: u64,
}

impl Run {
    /// Reads the folder of a run: one of `stokehold train`, alone or of several ranks, or any recording with steps.
    ///
    /// # Errors
    /// [`ScaleError::Profile`] if there is no recording, [`ScaleError::Missing`] for what it does not say and `settings`
    /// do not either, [`ScaleError::Run`] if it has too few steps or steps of several processes at once.
    pub fn read(path: &Path, settings: &Settings) -> Result<Self, ScaleError> {
        let unfit = |reason: String| ScaleError::Run {
            path: path.to_owned(),
            reason,
        };
        let recording = Recording::open(path)?;
        let folder = match recording.path.ends_with(FOLDER) {
            true => recording.path.parent().unwrap_or(path).to_owned(),
            false => recording.path.clone(),
        };
        let record = Record::read(&folder)?;
        let about = recording.about.clone();
        let workload = about.as_ref().and_then(|about| about.workload.as_ref());
        let ranks = record.as_ref().map_or(1, |record| record.ranks.len().max(1));
        let whole = record
            .as_ref()
            .map(|record| record.config.batch_size)
            .or(workload.map(|workload| workload.batch_size));
        let images = settings
            .images
            .or(workload.map(|workload| workload.images))
            .or(record.as_ref().map(|record| record.dataset.train));
        let batch = settings
            .batch
            .or(whole.map(|whole| (whole / ranks as u64).max(1)));
        let frozen = record
            .as_ref()
            .is_some_and(|record| record.config.freeze_backbone);
        let parameters = settings
            .parameters
            .or_else(|| parameters_of(&folder).filter(|_| !frozen));
        let facts = [
            (Fact::Images, images.is_none()),
            (Fact::Batch, batch.is_none()),
            (Fact::Parameters, parameters.is_none()),
        ];
        let facts: Vec<Fact> = facts
            .into_iter()
            .filter_map(|(fact, is_missing)| is_missing.then_some(fact))
            .collect();
        let (Some(images), Some(batch), Some(parameters)) = (images, batch, parameters) else {
            return Err(ScaleError::Missing { facts });
        };

        let mut recordings = vec![recording];
        // A rank on another machine may have left its recording there.
        let others = (1..ranks).map(|rank| folder.join("ranks").join(rank.to_string()));
        recordings.extend(others.filter_map(|folder| Recording::open(&folder).ok()));
        // The last batch of an epoch is smaller, and so is its time.
        let short = record.as_ref().and_then(|record| {
            let (images, whole) = (record.dataset.train, record.config.batch_size.max(1));
            let is_short = !record.config.drop_last && !images.is_multiple_of(whole);
            (is_short && images > whole).then(|| images.div_ceil(whole))
        });
        let mut measured = Measured::default();
        for node in recordings.iter().flat_map(|recording| &recording.nodes) {
            measured.add(node, ranks == 1, short).map_err(unfit)?;
        }
        let steps = measured.steps.len();
        if steps < LEAST_STEPS {
            return Err(unfit(format!(
                "{steps} steps are not enough to predict from: at least {LEAST_STEPS} are needed, after {WARM_UP} of warm-up; {}",
                match measured.recorded {
                    0 => "record one that marks its steps (docs/concepts/timeline.md says how)",
                    _ => "record a longer run",
                }
            )));
        }
        let mean = measured.steps.iter().sum::<f64>() / steps as f64;
        let between = percentile(&measured.gaps, 50.0).unwrap_or(0.0);
        let waited = measured.waited / steps as f64;
        // What the loader made while this run trained, and while its ranks waited for each other.
        let whole_step = mean + between + waited + measured.apart / steps as f64;
        let run_rate = batch as f64 / whole_step;
        let ceiling = workload
            .and_then(|workload| workload.loader_ceiling)
            .map(|rate| rate / ranks as f64);
        let loader_rate = match waited > WAITED * whole_step {
            true => Some(run_rate),
            false => ceiling.map(|rate| rate.max(run_rate)),
        };
        let batches = images as f64 / (batch as f64 * ranks as f64);
        let checkpoints = (measured.checkpoints > 0).then(|| Checkpoints {
            per_epoch: match &record {
                Some(record) if record.config.keep_checkpoints > 0 => {
                    let within = record.config.checkpoint_steps.filter(|steps| *steps > 0);
                    1.0 + within.map_or(0.0, |steps| (batches / steps as f64).floor())
                }
                _ => measured.checkpoints as f64 * batches / measured.recorded as f64,
            },
            seconds: measured.checkpoint_seconds / measured.checkpoints as f64,
        });
        let run = Self {
            images,
            batch,
            step_seconds: measured.steps,
            between_seconds: between,
            parameters,
            overlap: settings.overlap.unwrap_or(record.is_none()),
            loader_rate: settings.loader_rate.or(loader_rate),
            // 0 lets the loader choose.
            prefetch: record
                .as_ref()
                .map(|record| record.config.prefetch)
                .filter(|prefetch| *prefetch > 0)
                .unwrap_or(PREFETCH),
            image_bytes: settings
                .image_bytes
                .or((measured.reads > 0).then(|| measured.bytes as f64 / measured.reads as f64)),
            checkpoints,
            // An epoch of other images, batches or loaders was not recorded.
            recorded_seconds: workload
                .and_then(|workload| workload.seconds_per_epoch)
                .filter(|_| {
                    let other = (
                        settings.images.is_some(),
                        settings.batch.is_some(),
                        settings.loader_rate.is_some(),
                    );
                    ranks == 1 && other == (false, false, false)
                }),
        };
        run.check()?;
        Ok(run)
    }

    /// Checks the ranges.
    ///
    /// # Errors
    /// [`ScaleError::Range`] with the number and what is allowed.
    pub fn check(&self) -> Result<(), ScaleError> {
        let range = |field, problem: String| Err(ScaleError::Range { field, problem });
        let amount = |value: f64| value.is_finite() && value >= 0.0;
        let positive = |value: f64| value.is_finite() && value > 0.0;
        for (field, value) in [
            ("images of an epoch", self.images),
            ("images of a step", self.batch),
        ] {
            // Beyond it numbers of images are not exact.
            if !(1..=1 << 53).contains(&value) {
                return range(field, format!("is {value}, and must be 1 to 2^53"));
            }
        }
        if self.parameters > 1 << 53 {
            return range("parameters", format!("{} are more than 2^53", self.parameters));
        }
        if self.step_seconds.is_empty() || !self.step_seconds.iter().all(|&seconds| amount(seconds)) {
            return range(
                "steps",
                "there are none, or their times are no numbers".to_owned(),
            );
        }
        if !positive(self.step_seconds.iter().sum::<f64>() + self.between_seconds) {
            return range("steps", "all of them take no time".to_owned());
        }
        if !amount(self.between_seconds) {
            return range("time between steps", format!("is {} s", self.between_seconds));
        }
        for (field, value) in [
            ("loader's rate", self.loader_rate),
            ("bytes of an image", self.image_bytes),
        ] {
            // Beyond it times are no numbers.
            if let Some(value) = value.filter(|value| !(1e-6..=1e15).contains(value)) {
                return range(field, format!("is {value}, and must be 1e-6 to 1e15"));
            }
        }
        let is_odd =
            |checkpoints: &Checkpoints| !(amount(checkpoints.per_epoch) && amount(checkpoints.seconds));
        if self.checkpoints.as_ref().is_some_and(is_odd) {
            return range("checkpoints", "their number or time is no number".to_owned());
        }
        Ok(())
    }
}

impl Record {
    fn read(folder: &Path) -> Result<Option<Self>, ScaleError> {
        let path = folder.join("run.json");
        match regular::read(&path) {
            Ok(text) => serde_json::from_slice(&text)
                .map(Some)
                .map_err(|error| ScaleError::Run {
                    reason: format!("not the record of a run: {error}"),
                    path,
                }),
            Err(_) if !path.exists() => Ok(None),
            Err(source) => Err(ScaleError::Io { path, source }),
        }
    }
}

/// What the spans of all ranks say.
#[derive(Debug, Default)]
struct Measured {
    /// Seconds of steps, without those of the warm-up.
    steps: Vec<f64>,
    /// Seconds between two steps that no span explains.
    gaps: Vec<f64>,
    /// Seconds that trainers waited for these steps' batches.
    waited: f64,
    /// Seconds in which several ranks waited for each other, and reduced.
    apart: f64,
    /// All steps of the first rank.
    recorded: usize,
    checkpoints: usize,
    checkpoint_seconds: f64,
    reads: u64,
    bytes: u64,
}

/// A step, which may be computed in several pieces.
struct Step {
    number: Option<u64>,
    begin: f64,
    end: f64,
    seconds: f64,
}

impl Measured {
    /// Adds what a rank did, which is `alone` if it reduces with no one: then reduce is the update of its weights. Each
    /// `short`-th step has a smaller batch.
    fn add(&mut self, node: &Node, alone: bool, short: Option<u64>) -> Result<(), String> {
        for span in node.spans_of(span::READ) {
            if let Some(bytes) = span.bytes {
                self.reads += 1;
                self.bytes += bytes;
            }
        }
        for span in node.spans_of(span::CHECKPOINT) {
            self.checkpoints += 1;
            self.checkpoint_seconds += span.duration;
        }
        let named = |span: &Span| node.names.get(span.name as usize).map_or("", String::as_str);
        let mut steps: Vec<Step> = Vec::new();
        for span in &node.spans {
            let is_step = named(span) == span::STEP;
            if !(is_step || alone && named(span) == span::REDUCE) {
                continue;
            }
            match steps.last_mut() {
                Some(last) if last.number.is_some() && last.number == span.step => {
                    last.seconds += span.duration;
                    last.end = last.end.max(span.end());
                }
                _ if is_step => steps.push(Step {
                    number: span.step,
                    begin: span.start,
                    end: span.end(),
                    seconds: span.duration,
                }),
                _ => {}
            }
        }
        if self.recorded == 0 {
            self.recorded = steps.len();
        }
        let overlapping = steps
            .windows(2)
            .filter(|pair| pair[1].begin < pair[0].end - 1e-3)
            .count();
        if overlapping * 10 > steps.len() {
            return Err(format!(
                "{overlapping} of {} steps begin before the one before has ended, so several processes recorded theirs together; \
                 record a run of one process",
                steps.len()
            ));
        }
        let kept = steps.get(WARM_UP..).unwrap_or_default();
        let Some(first) = kept.first() else {
            return Ok(());
        };
        let is_short =
            |step: &&Step| short.is_some_and(|every| step.number.is_some_and(|n| n.is_multiple_of(every)));
        self.steps.extend(
            kept.iter()
                .filter(|step| !is_short(step))
                .map(|step| step.seconds),
        );
        let waits = node
            .spans_of(span::WAIT)
            .filter(|wait| wait.end() > first.begin - SLACK);
        self.waited += waits.map(|wait| wait.duration).sum::<f64>();
        if !alone {
            let apart = [span::RANKS_WAIT, span::REDUCE]
                .into_iter()
                .flat_map(|name| node.spans_of(name));
            let apart = apart.filter(|span| span.end() > first.begin - SLACK);
            self.apart += apart.map(|span| span.duration).sum::<f64>();
        }
        self.gaps.extend(gaps(node, kept));
        Ok(())
    }
}

/// Seconds between steps that no span explains. Where a phase lies between two steps, there is no gap to see.
fn gaps(node: &Node, steps: &[Step]) -> Vec<f64> {
    let named = |span: &&Span, names: &[&str]| {
        let name = node.names.get(span.name as usize);
        name.is_some_and(|name| names.contains(&name.as_str()))
    };
    let waits = [span::WAIT, span::RANKS_WAIT, span::REDUCE];
    let phases = [
        span::CHECKPOINT,
        span::VALIDATION,
        span::LOADER_START,
        span::EVAL_STEP,
    ];
    let mut spans = node
        .spans
        .iter()
        .filter(|span| span.worker.is_none() && (named(span, &waits) || named(span, &phases)))
        .peekable();
    let mut gaps = Vec::new();
    for pair in steps.windows(2) {
        let (from, to) = (pair[0].end - SLACK, pair[1].begin);
        while spans.next_if(|span| span.start < from).is_some() {}
        let (mut gap, mut is_whole) = (pair[1].begin - pair[0].end, true);
        while let Some(span) = spans.next_if(|span| span.start < to) {
            gap -= span.duration;
            is_whole &= named(&span, &waits);
        }
        if is_whole {
            gaps.push(gap.max(0.0));
        }
    }
    gaps
}

/// The numbers that are trained in the run's model, or in its latest checkpoint; `None` if there is none.
fn parameters_of(folder: &Path) -> Option<u64> {
    let mut checkpoints: Vec<PathBuf> = fs::read_dir(folder.join("checkpoints"))
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    checkpoints.sort();
    let folders = std::iter::once(folder.to_owned()).chain(checkpoints.into_iter().rev());
    folders
        .map(|folder| folder.join("model.safetensors"))
        .find_map(|path| count(&path))
}

/// The numbers in a file of safetensors: its head has the shape of each array.
fn count(path: &Path) -> Option<u64> {
    /// The format's own limit for the head.
    const MOST: u64 = 100_000_000;
    // What a link or a pipe leads to is not read.
    let mut file = path
        .symlink_metadata()
        .ok()?
        .is_file()
        .then(|| File::open(path).ok())??;
    let mut length = [0; 8];
    file.read_exact(&mut length).ok()?;
    let length = Some(u64::from_le_bytes(length)).filter(|length| *length <= MOST)?;
    let mut head = Vec::new();
    file.take(length).read_to_end(&mut head).ok()?;
    let head: serde_json::Map<String, Value> = serde_json::from_slice(&head).ok()?;
    let mut sum = 0_u64;
    for (name, array) in &head {
        // Statistics of batch normalisation are not trained; notes about the file are no array.
        let kept = ["running_mean", "running_var", "num_batches_tracked"];
        if name == "__metadata__" || kept.iter().any(|end| name.ends_with(end)) {
            continue;
        }
        let shape = array.get("shape")?.as_array()?;
        let numbers = shape
            .iter()
            .try_fold(1_u64, |numbers, side| numbers.checked_mul(side.as_u64()?))?;
        sum = sum.checked_add(numbers)?;
    }
    Some(sum).filter(|sum| *sum > 0)
}
