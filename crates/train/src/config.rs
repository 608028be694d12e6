//! Everything that determines what a run computes: the contents of `run.json`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use stokehold_cache::{Cache, CachePlace};
use stokehold_loader::{Address, BadImagePolicy, Device, Elsewhere, Loader, LoaderOptions, Parts, Workers};
use stokehold_pipeline::op::Op;
use stokehold_pipeline::{DecodeOptions, Executor, Pipeline, SampleType};
use stokehold_storage::{Images, SlowSource, Source};

use crate::TrainError;
use crate::device::DeviceChoice;
use crate::ema::EmaConfig;
use crate::emulated::TrainerChoice;
use crate::executor::{GpuOptions, or_auto};
use crate::learner::Objective;
use crate::mix::Mix;
use crate::model::Arch;
use crate::optim::{OptimizerConfig, Undecayed};
use crate::pixels::ClassWeights;
use crate::precision::Precision;
use crate::sampling::SamplerConfig;
use crate::schedule::ScheduleConfig;
use crate::servers;

/// A training run as data.
///
/// The fields in [`TrainConfig::FREE`] change where, how fast and how safely a run is made, and may differ
/// when it is resumed; all others change its results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrainConfig {
    /// The data set's folder, as it was given.
    pub data: PathBuf,
    /// Share of each class split off for validation, where the data set has no `val/`.
    pub val_split: Option<f64>,
    /// The most training images to use.
    pub max_images: Option<usize>,
    /// Which training images an epoch has.
    pub sampler: SamplerConfig,
    /// The training images of an epoch; `None` for as many as the sampler usually has.
    pub epoch_images: Option<usize>,
    /// The network.
    pub arch: Arch,
    /// What trains.
    pub trainer: TrainerChoice,
    /// Weights to start from instead of random ones.
    pub weights: Option<PathBuf>,
    /// Train the last layer only.
    pub freeze_backbone: bool,
    /// The pipeline of training images.
    pub pipeline: Pipeline,
    /// The pipeline of validation images.
    pub eval_pipeline: Pipeline,
    /// The executor of both pipelines; `None` (`auto`) for `fused` or `gpu`, whichever trains faster, measured before the first step.
    #[serde(with = "or_auto")]
    pub executor: Option<Executor>,
    /// Options of the executor `gpu`.
    pub gpu: GpuOptions,
    /// Apply the EXIF orientation.
    pub exif: bool,
    /// Epochs, at least 1.
    pub epochs: u64,
    /// Images per step, of all ranks together, at least 1.
    pub batch_size: usize,
    /// Pieces in which each rank computes its share of a batch, one after the other, at least 1 (gradient accumulation).
    pub accumulate: usize,
    /// Whether batch normalisation is over all ranks' images.
    pub sync_batch_norm: bool,
    /// Leave out the images that do not fill the last batch of an epoch.
    pub drop_last: bool,
    /// The seed of the initial weights, of the order and of every random operation.
    pub seed: u64,
    /// The weights of classes in the loss of pixels.
    pub class_weights: ClassWeights,
    /// The optimiser and its constants.
    pub optimizer: OptimizerConfig,
    /// The parameters without weight decay.
    pub undecayed: Undecayed,
    /// Base learning rate, above 0.
    pub lr: f64,
    /// The schedule of the learning rate.
    pub schedule: ScheduleConfig,
    /// How training batches are mixed.
    pub mix: Mix,
    /// The type of the numbers that training steps compute with.
    pub precision: Precision,
    /// The type of the numbers of batches on their way to the device.
    pub sample_type: SampleType,
    /// Label smoothing of the training loss, 0 up to below 1; the validation loss is never smoothed.
    pub label_smoothing: f32,
    /// Largest global norm of the gradients, above 0; `None` does not clip.
    pub clip_norm: Option<f64>,
    /// The moving average of the weights; `None` for none.
    pub ema: Option<EmaConfig>,
    /// The k of top-k accuracy, at least 1; limited to the number of classes.
    pub topk: usize,
    /// What to do about bad images.
    pub bad_images: BadImagePolicy,
    /// The number of different bad images that are tolerated; one more is an error.
    pub bad_image_limit: usize,
    /// Servers that make the training batches.
    pub servers: Vec<Address>,
    /// Loader threads. Next to servers a number of threads makes training batches, too, and `auto` stands for none.
    pub workers: Workers,
    /// Where JPEGs are kept packed for the next epochs.
    pub cache: Option<CachePlace>,
    /// The share of the cores that packing may take when none is idle, 0 to 1.
    pub cache_share: f64,
    /// The most batches in work or ready; 0 for as few as keep all workers busy.
    pub prefetch: usize,
    /// The device that computes.
    pub device: DeviceChoice,
    /// The number of latest checkpoints to keep, besides the best one; 0 writes none, and the run cannot be
    /// resumed.
    pub keep_checkpoints: usize,
    /// Steps between checkpoints within an epoch; `None` for one at the end of every epoch only.
    pub checkpoint_steps: Option<u64>,
    /// Steps between two lines of `metrics.jsonl`, at least 1.
    pub log_every: u64,
    /// Batches over which each ceiling is measured at the end, within 10 s; 0 skips the measurement.
    pub ceiling_batches: usize,
    /// The run's folder.
    pub run_dir: PathBuf,
}

/// A field that differs between two configurations, and both values where they are short.
pub(crate) type Difference = (String, Option<[String; 2]>);

impl TrainConfig {
    /// The fields that a resumed run may change. `data` may change because the data themselves are compared.
    pub const FREE: [&'static str; 14] = [
        "data",
        "bad_image_limit",
        "servers",
        "workers",
        "cache",
        "cache_share",
        "prefetch",
        "device",
        "gpu",
        "keep_checkpoints",
        "checkpoint_steps",
        "log_every",
        "ceiling_batches",
        "run_dir",
    ];

    /// Checks every range that can be checked without reading the data.
    ///
    /// # Errors
    /// The first field that is out of range, with the allowed range.
    pub fn check(&self) -> Result<(), TrainError> {
        let at_least_one = "must be at least 1";
        let above_zero = |x: f64| x.is_finite() && x > 0.0;
        let checks = [
            ("epochs", self.epochs >= 1, at_least_one),
            ("batch size", self.batch_size >= 1, at_least_one),
            (
                "pieces of a batch",
                (1..=self.batch_size.max(1)).contains(&self.accumulate),
                "must be at least 1, and no more than its images",
            ),
            ("learning rate", above_zero(self.lr), "must be above 0"),
            (
                "label smoothing",
                (0.0..1.0).contains(&self.label_smoothing),
                "must be 0 up to below 1",
            ),
            (
                "norm to clip to",
                self.clip_norm.is_none_or(above_zero),
                "must be above 0",
            ),
            (
                "alpha of MixUp",
                (0.0..=Mix::MOST).contains(&self.mix.mixup_alpha),
                "must be 0 to 4",
            ),
            (
                "alpha of CutMix",
                (0.0..=Mix::MOST).contains(&self.mix.cutmix_alpha),
                "must be 0 to 4",
            ),
            (
                "decay of the moving average",
                self.ema.is_none_or(|ema| (0.0..1.0).contains(&ema.decay)),
                "must be 0 up to below 1",
            ),
            (
                "steps between two averages",
                self.ema.is_none_or(|ema| ema.steps >= 1),
                at_least_one,
            ),
            (
                "batch size",
                !self.mix.mixes() || self.batch_size > self.sampler.repeats(),
                "must be above --aug-repeats (1 without it): MixUp and CutMix mix different images of a batch",
            ),
            (
                "MixUp and CutMix",
                !self.mix.mixes() || self.trainer.learns(),
                "need a real trainer: the emulated accelerator ignores pixels",
            ),
            (
                "precision",
                self.trainer.learns() || self.precision == Precision::F32,
                "must be f32 where the accelerator is emulated, which computes nothing",
            ),
            (
                "sample type",
                self.sample_type == SampleType::F32
                    || matches!(self.executor, Some(Executor::PerOp | Executor::Fused)),
                "must be f32 with the executors gpu and auto; choose fused or per-op",
            ),
            ("k of top-k", self.topk >= 1, at_least_one),
            (
                "steps between checkpoints",
                self.checkpoint_steps != Some(0),
                at_least_one,
            ),
            ("steps between log lines", self.log_every >= 1, at_least_one),
            (
                "images per second of the emulated accelerator",
                match &self.trainer {
                    TrainerChoice::Burn => true,
                    TrainerChoice::Emulated {
                        images_per_second, ..
                    } => (1.0..=1e6).contains(images_per_second),
                },
                "must be 1 to 1000000",
            ),
            (
                "read latency",
                match &self.trainer {
                    TrainerChoice::Burn => true,
                    TrainerChoice::Emulated { read_latency_ms, .. } => (0.0..=1e4).contains(read_latency_ms),
                },
                "must be 0 to 10 s",
            ),
            (
                "executor",
                self.servers.is_empty() || matches!(self.executor, Some(Executor::PerOp | Executor::Fused)),
                "must be fused or per-op where servers make the batches",
            ),
            (
                "executor",
                self.trainer.learns() || self.executor != Some(Executor::Gpu),
                "must not be gpu where the accelerator is emulated",
            ),
            (
                "moving average",
                self.trainer.learns() || self.ema.is_none(),
                "there are no weights to average where the accelerator is emulated",
            ),
            (
                "weights",
                self.trainer.learns() || (self.weights.is_none() && !self.freeze_backbone),
                "there are none, and nothing to freeze, where the accelerator is emulated",
            ),
        ];
        let pixels = [
            (
                "class weights",
                self.class_weights.are_in_range(),
                "must be 0 or more, and one of them above 0",
            ),
            (
                "class weights",
                self.class_weights == ClassWeights::Even || self.arch.segments(),
                "are those of pixels; for classes of images give --class-balanced or a segmenter",
            ),
            (
                "label smoothing",
                self.label_smoothing == 0.0 || !self.arch.segments(),
                "must be 0 for a segmenter",
            ),
            (
                "MixUp and CutMix",
                !(self.mix.mixes() && self.arch.segments()),
                "mix the classes of images, and a segmenter has those of pixels; leave them out",
            ),
            (
                "sampler",
                !(self.arch.segments() && matches!(self.sampler, SamplerConfig::ClassBalanced { .. })),
                "class-balanced draws by the classes of images, and a segmenter has those of pixels; give class weights",
            ),
            (
                "emulated accelerator",
                self.trainer.learns() || !self.arch.segments(),
                "has no speed of a segmenter; choose a classifier, or train",
            ),
        ];
        let mut checks = checks.into_iter().chain(pixels);
        if let Some((field, _, allowed)) = checks.find(|&(_, good, _)| !good) {
            return Err(TrainError::Config {
                field,
                problem: allowed.to_owned(),
            });
        }
        self.optimizer.check()?;
        self.schedule.check()?;
        for (field, pipeline) in [
            ("pipeline", &self.pipeline),
            ("evaluation pipeline", &self.eval_pipeline),
        ] {
            let (width, height) = pipeline.check()?;
            if width.min(height) < 32 {
                let problem = format!("makes images of {width}x{height}; the networks need 32x32 or more");
                return Err(TrainError::Config { field, problem });
            }
        }
        Ok(())
    }

    /// What its steps minimise.
    pub(crate) fn objective(&self, class_weights: Option<Vec<f32>>) -> Objective {
        Objective {
            label_smoothing: self.label_smoothing,
            clip_norm: self.clip_norm,
            precision: self.precision,
            mix: self.mix,
            mix_distance: self.sampler.repeats(),
            class_weights,
            seed: self.seed,
        }
    }

    /// What keeps a run of this configuration from continuing with `now`, a phrase for each field. More epochs do not: the run
    /// is longer, and its schedule is that of the longer run from there on.
    pub(crate) fn changes(&self, now: &TrainConfig) -> Result<Vec<String>, serde_json::Error> {
        let phrase = |(field, values): Difference| match values {
            Some([before, now]) => format!("{field} was {before} and is {now} now"),
            None => format!("{field} is another one"),
        };
        let longer = now.epochs > self.epochs;
        let differences = self.differences(now)?.into_iter();
        Ok(differences
            .filter(|(field, _)| !(longer && field == "epochs"))
            .map(phrase)
            .collect())
    }

    /// The fields that determine the results and differ from `other`'s, with both values where they are short.
    pub(crate) fn differences(&self, other: &TrainConfig) -> Result<Vec<Difference>, serde_json::Error> {
        let (own, other) = (serde_json::to_value(self)?, serde_json::to_value(other)?);
        let (Some(own), Some(other)) = (own.as_object(), other.as_object()) else {
            return Ok(Vec::new());
        };
        let differs = |(field, value): (&String, &serde_json::Value)| {
            let other = other.get(field)?;
            if value == other || Self::FREE.contains(&field.as_str()) {
                return None;
            }
            // A whole pipeline is too long for a message.
            let short = |value: &serde_json::Value| Some(value.to_string()).filter(|text| text.len() <= 120);
            let both = short(value).zip(short(other)).map(|(own, other)| [own, other]);
            Some((field.clone(), both))
        };
        Ok(own.iter().filter_map(differs).collect())
    }

    /// Puts all images into the cache, if there is one, before the first step. Ends early when `stop` becomes true. Returns how many of
    /// them the cache has then; none without a cache.
    ///
    /// # Errors
    /// The cache cannot be opened, or it did not take all that it should. What cannot be read is left to the loader.
    pub fn fill_cache(&self, images: &Images, stop: &AtomicBool) -> Result<Option<usize>, TrainError> {
        let Some(cache) = self.open_cache()? else {
            return Ok(None);
        };
        Ok(Some(cache.of(Arc::new(images.clone())).fill(stop)?))
    }

    /// The cache, if there is one; the same one as long as somebody has it open.
    pub(crate) fn open_cache(&self) -> Result<Option<Arc<Cache>>, TrainError> {
        Ok(Cache::open_if(self.cache.as_ref(), self.cache_share)?)
    }

    /// The loader of one part of the data set, with an executor and its device.
    pub(crate) fn loader(
        &self,
        images: Images,
        training: bool,
        parts: Parts,
        (executor, device): (Executor, Option<Arc<dyn Device>>),
    ) -> Result<Loader, TrainError> {
        let mut pipeline = match training {
            true => self.pipeline.clone(),
            false => self.eval_pipeline.clone(),
        };
        // Bytes become floats on the device that trains, which then does what comes after `ToFloat`.
        let normalize = match pipeline.ops.last() {
            Some(Op::Normalize(normalize)) if self.sample_type == SampleType::U8 => Some(normalize.clone()),
            _ => None,
        };
        pipeline
            .ops
            .truncate(pipeline.ops.len() - usize::from(normalize.is_some()));
        let (sampler, epoch_samples) = match training {
            true => (self.sampler.sampler(&images)?, self.epoch_images),
            false => Default::default(),
        };
        let elsewhere: Option<Arc<dyn Elsewhere>> = match training && !self.servers.is_empty() {
            true => Some(servers::connect(self, &images)?),
            false => None,
        };
        let options = LoaderOptions {
            sampler,
            epoch_samples,
            elsewhere,
            executor,
            device,
            sample_type: self.sample_type,
            normalize,
            batch_size: self.batch_size,
            parts,
            workers: self.workers,
            prefetch: self.prefetch,
            shuffle: training,
            seed: self.seed,
            drop_last: training && self.drop_last,
            decode: DecodeOptions { exif: self.exif },
            bad_images: self.bad_images,
            bad_image_limit: self.bad_image_limit,
            ..LoaderOptions::default()
        };
        let source: Arc<dyn Source> = match self.trainer {
            TrainerChoice::Emulated { read_latency_ms, .. } if read_latency_ms > 0.0 => Arc::new(
                SlowSource::new(images, Duration::from_secs_f64(read_latency_ms / 1e3)),
            ),
            _ => Arc::new(images),
        };
        let source = match self.open_cache()? {
            Some(cache) => cache.of(source),
            None => source,
        };
        Ok(Loader::new(source, pipeline, options)?)
    }
}
