//! What is compared: the trials, the trainer, the data's treatment, and how long to measure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stokehold_base::hash::Fnv;
use stokehold_cache::CachePlace;
use stokehold_loader::{Address, BadImagePolicy, Workers};
use stokehold_pipeline::{Executor, Pipeline};
use stokehold_storage::{Dataset, Images, Source, StorageError};
use stokehold_train::device::DeviceChoice;
use stokehold_train::mix::Mix;
use stokehold_train::model::Arch;
use stokehold_train::optim::{OptimizerConfig, Undecayed};
use stokehold_train::sampling::SamplerConfig;
use stokehold_train::schedule::{ScheduleConfig, ScheduleKind};
use stokehold_train::{GpuOptions, TrainConfig, TrainerChoice};

use crate::CompareError;

/// A way to load images.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Trial {
    /// Our loader, operation after operation, as torchvision.
    PerOp,
    /// Our loader, one resampling an image.
    Fused,
    /// Our loader, on the device that trains.
    Gpu,
    /// Our loader `fused`, whose batches servers make.
    Remote,
    /// Our loader `fused`, whose images a cache keeps packed.
    Cached,
    /// torchvision's classic transforms on PIL images in PyTorch's DataLoader.
    Torchvision,
    /// The same, with images of Pillow that `stokehold.pillow` makes.
    FastImages,
    /// torchvision's v2 transforms in PyTorch's DataLoader.
    TorchvisionV2,
    /// Albumentations.
    Albumentations,
    /// NVIDIA DALI with all operators on the CPU.
    Dali,
    /// NVIDIA DALI with all operators on the GPU.
    DaliGpu,
    /// FFCV. It has no rotation, so only load 0.
    Ffcv,
    /// FFCV from a file of decoded pixels.
    FfcvRaw,
    /// Meta's SPDL.
    Spdl,
    /// Our Python package.
    Stokehold,
    /// Our Python package, which makes the batches on a CUDA device and lends them to PyTorch.
    StokeholdGpu,
}

impl Trial {
    /// All trials, in the order in which help texts name them.
    pub const ALL: [Self; 16] = [
        Self::PerOp,
        Self::Fused,
        Self::Gpu,
        Self::Remote,
        Self::Cached,
        Self::Torchvision,
        Self::FastImages,
        Self::TorchvisionV2,
        Self::Albumentations,
        Self::Dali,
        Self::DaliGpu,
        Self::Ffcv,
        Self::FfcvRaw,
        Self::Spdl,
        Self::Stokehold,
        Self::StokeholdGpu,
    ];

    /// Its name, as the command line takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::PerOp => "per-op",
            Self::Fused => "fused",
            Self::Gpu => "gpu",
            Self::Remote => "remote",
            Self::Cached => "cached",
            Self::Torchvision => "torchvision",
            Self::FastImages => "fast-images",
            Self::TorchvisionV2 => "torchvision-v2",
            Self::Albumentations => "albumentations",
            Self::Dali => "dali",
            Self::DaliGpu => "dali-gpu",
            Self::Ffcv => "ffcv",
            Self::FfcvRaw => "ffcv-raw",
            Self::Spdl => "spdl",
            Self::Stokehold => "stokehold",
            Self::StokeholdGpu => "stokehold-gpu",
        }
    }

    /// The executor of a native trial; `None` for a trial in Python.
    pub fn executor(self) -> Option<Executor> {
        match self {
            Self::PerOp => Some(Executor::PerOp),
            Self::Fused | Self::Remote | Self::Cached => Some(Executor::Fused),
            Self::Gpu => Some(Executor::Gpu),
            _ => None,
        }
    }
}

impl fmt::Display for Trial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Trial {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|trial| trial.name() == text)
            .ok_or_else(|| {
                let names: Vec<&str> = Self::ALL.map(Self::name).into();
                format!("there is no trial '{text}'; there are {}", names.join(", "))
            })
    }
}

/// At least this many samples are put in order; then the order begins again.
const ORDERED: usize = 1 << 20;

/// What the trials feed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrainerPlan {
    /// Burn trains on this device.
    Burn {
        /// The device.
        device: DeviceChoice,
        /// Options of the trial `gpu`.
        gpu: GpuOptions,
    },
    /// An emulated accelerator of this speed for each network.
    Emulated(Vec<(Arch, TrainerChoice)>),
    /// PyTorch trains torchvision's networks.
    Torch(TorchOptions),
}

/// How PyTorch trains.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TorchOptions {
    /// `auto`, `cpu` or `cuda`.
    pub device: String,
    /// Automatic mixed precision.
    pub amp: bool,
}

/// Everything that determines a comparison's numbers, except the data's content and the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The version of Stokehold.
    pub stokehold: String,
    /// The data set's folder.
    pub data: PathBuf,
    /// The most images to use.
    pub images: Option<usize>,
    /// The trials; the first is A, which the others are compared with.
    pub trials: Vec<Trial>,
    /// What they feed.
    pub trainer: TrainerPlan,
    /// The networks.
    pub models: Vec<Arch>,
    /// The augmentation loads; empty with a pipeline of the user's own.
    pub loads: Vec<u32>,
    /// A pipeline in place of the published one.
    pub pipeline: Option<Pipeline>,
    /// Images a step.
    pub batch_size: usize,
    /// Width and height of the images that the network sees.
    pub image_size: u32,
    /// Threads or processes that load, in every trial.
    pub workers: usize,
    /// Seed of the order, the initial weights and the native trials' random operations.
    pub seed: u64,
    /// Learning rate of SGD, whose momentum is 0.5 as published.
    pub lr: f64,
    /// Servers that make the batches of the trial `remote`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<Address>,
    /// The cache of the trial `cached`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<CachePlace>,
    /// Pythons of the trials: of all under the name "", of one under its name.
    pub pythons: BTreeMap<String, PathBuf>,
    /// Seconds: the length of the slowest trial's rounds.
    pub round: f64,
    /// Percent: the rounds of a cell end when the interval of every gain is narrower.
    pub precision: f64,
    /// Seconds: a cell ends after this time, but not before six pairs.
    pub time_limit: f64,
}

impl Plan {
    /// SGD's momentum, as published.
    pub const MOMENTUM: f64 = 0.5;

    /// The fields that a comparison may change when it continues: which cells it has, and how long it measures them.
    pub const FREE: [&'static str; 4] = ["models", "loads", "precision", "time_limit"];

    /// Checks what can be checked without the data.
    ///
    /// # Errors
    /// A value is out of range, a trial cannot feed the trainer, or there are fewer than two trials.
    pub fn check(&self) -> Result<(), CompareError> {
        let wrong = |text: String| Err(CompareError::Plan(text));
        if self.trials.len() < 2 {
            return wrong("a comparison takes at least two trials, such as per-op,fused".to_owned());
        }
        if self.trials.contains(&Trial::Remote) == self.servers.is_empty() {
            return wrong(
                "the trial remote takes batches of servers, and no other one does: give both, remote among the trials and the \
                 servers' addresses"
                    .to_owned(),
            );
        }
        if self.trials.contains(&Trial::Cached) != self.cache.is_some() {
            return wrong(
                match self.cache.is_some() {
                    true => "--cache is for the trial cached: add it to --trials, or leave --cache out",
                    false => "the trial cached reads a cache: add --cache DIR[:SIZE], or leave the trial out",
                }
                .to_owned(),
            );
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = self.trials.iter().find(|trial| !seen.insert(**trial))
            && self.trials.len() > 2
        {
            return wrong(format!(
                "{twice} is given twice; to measure the noise, give it twice and nothing else"
            ));
        }
        for trial in &self.trials {
            match (&self.trainer, trial.executor()) {
                (TrainerPlan::Burn { .. }, None) => {
                    return wrong(format!(
                        "{trial} cannot feed Burn, it is written in Python; choose an emulated accelerator or PyTorch as the trainer"
                    ));
                }
                (TrainerPlan::Torch(_), Some(_)) => {
                    return wrong(format!(
                        "{trial} cannot feed PyTorch; 'stokehold' is our loader in Python, and an emulated accelerator takes both"
                    ));
                }
                (TrainerPlan::Emulated(_), Some(Executor::Gpu)) => {
                    return wrong(
                        "executor gpu needs a device, and the emulated accelerator has none; train with Burn"
                            .to_owned(),
                    );
                }
                (TrainerPlan::Emulated(_), None) if *trial == Trial::StokeholdGpu => {
                    return wrong("stokehold-gpu needs a CUDA device, and the emulated accelerator has none; train with PyTorch".to_owned());
                }
                (TrainerPlan::Torch(torch), None)
                    if *trial == Trial::StokeholdGpu && torch.device == "cpu" =>
                {
                    return wrong("stokehold-gpu makes images on the CUDA device that trains; let PyTorch train on cuda".to_owned());
                }
                _ => {}
            }
            if self.pipeline.is_some() && trial.executor().is_none() {
                return wrong(format!(
                    "{trial} makes the published pipeline only; a pipeline of your own goes with per-op, fused and gpu"
                ));
            }
        }
        if !(self.round >= 0.01 && self.round <= 60.0) {
            return wrong(format!("rounds of {} s: they must be 0.01 to 60 s", self.round));
        }
        if !(self.precision > 0.0 && self.precision <= 100.0) {
            return wrong(format!(
                "a precision of {} %: it must be above 0 and at most 100",
                self.precision
            ));
        }
        if !(self.time_limit > 0.0 && self.time_limit <= 1e6) {
            return wrong(format!(
                "a time limit of {} s: it must be above 0 and at most 1000000",
                self.time_limit
            ));
        }
        for (model, load) in self.cells() {
            self.config(model, load, Trial::Fused, Executor::Fused).check()?;
        }
        Ok(())
    }

    /// The cells in order: a network at a load, each once.
    pub fn cells(&self) -> Vec<(Arch, u32)> {
        let loads: &[u32] = match self.pipeline {
            Some(_) => &[0],
            None => &self.loads,
        };
        let mut cells = Vec::new();
        for &model in &self.models {
            for &load in loads {
                if !cells.contains(&(model, load)) {
                    cells.push((model, load));
                }
            }
        }
        cells
    }

    /// The trainer of a network, for the native trials.
    pub fn trainer_of(&self, model: Arch) -> TrainerChoice {
        match &self.trainer {
            TrainerPlan::Emulated(each) => each
                .iter()
                .find(|(known, _)| *known == model)
                .map_or(TrainerChoice::Burn, |(_, trainer)| trainer.clone()),
            TrainerPlan::Burn { .. } | TrainerPlan::Torch(_) => TrainerChoice::Burn,
        }
    }

    /// The epochs of this many images after which the order of the samples begins again.
    pub(crate) fn period(&self, images: usize) -> NonZeroU64 {
        let epoch = (images / self.batch_size * self.batch_size).max(1);
        NonZeroU64::new(ORDERED.div_ceil(epoch) as u64).unwrap_or(NonZeroU64::MIN)
    }

    /// Whether the trials load the masks of images that have masks: those in Python load images alone, and so does everything
    /// that is compared with them.
    pub(crate) fn loads_masks(&self) -> bool {
        self.trials.iter().all(|trial| trial.executor().is_some())
    }

    /// Opens the data: all images, without a split for validation. An emulated accelerator also takes images that have no
    /// class folders, as images of one class, and images with masks.
    ///
    /// # Errors
    /// There are no images, they do not fill a batch, or a network is to learn classes and there are none.
    pub fn open_data(&self) -> Result<Dataset, CompareError> {
        let learns = !matches!(self.trainer, TrainerPlan::Emulated(_));
        let mut dataset = open_data(&self.data, self.images, self.seed, learns)?;
        if !self.loads_masks() {
            dataset.train = dataset.train.without_masks();
        }
        let images = dataset.train.len();
        if images < self.batch_size {
            return Err(CompareError::Plan(format!(
                "{}: {images} images do not fill a batch of {}; give a smaller batch size, or more images",
                self.data.display(),
                self.batch_size
            )));
        }
        Ok(dataset)
    }

    /// What a native trial does, with its executor.
    pub fn config(&self, model: Arch, load: u32, trial: Trial, executor: Executor) -> TrainConfig {
        // No thread of this machine makes batches next to the servers.
        let (servers, workers) = match trial {
            Trial::Remote => (self.servers.clone(), Workers::Auto),
            _ => (
                Vec::new(),
                Workers::Count(NonZeroUsize::new(self.workers).unwrap_or(NonZeroUsize::MIN)),
            ),
        };
        let (device, gpu) = match &self.trainer {
            TrainerPlan::Burn { device, gpu } => (*device, *gpu),
            TrainerPlan::Emulated(_) | TrainerPlan::Torch(_) => (DeviceChoice::Cpu, GpuOptions::default()),
        };
        TrainConfig {
            data: self.data.clone(),
            val_split: None,
            max_images: self.images,
            sampler: SamplerConfig::default(),
            epoch_images: None,
            class_weights: Default::default(),
            arch: model,
            trainer: self.trainer_of(model),
            weights: None,
            freeze_backbone: false,
            pipeline: match &self.pipeline {
                Some(pipeline) => pipeline.clone(),
                None => Pipeline::published(load, self.image_size),
            },
            eval_pipeline: Pipeline::imagenet_eval(self.image_size, self.image_size),
            executor: Some(executor),
            gpu,
            exif: false,
            epochs: 1,
            batch_size: self.batch_size,
            // Every step has equally many images, in every trial.
            drop_last: true,
            seed: self.seed,
            optimizer: OptimizerConfig::Sgd {
                momentum: Self::MOMENTUM,
                weight_decay: 0.0,
                nesterov: false,
            },
            undecayed: Undecayed::None,
            lr: self.lr,
            schedule: ScheduleConfig {
                kind: ScheduleKind::Constant,
                warmup_epochs: 0.0,
            },
            accumulate: 1,
            sync_batch_norm: false,
            mix: Mix::default(),
            precision: Default::default(),
            sample_type: Default::default(),
            label_smoothing: 0.0,
            clip_norm: None,
            ema: None,
            topk: 5,
            // A trial that leaves an image out would do less work than the others.
            bad_images: BadImagePolicy::Substitute,
            bad_image_limit: 100,
            servers,
            workers,
            cache: self.cache.clone().filter(|_| trial == Trial::Cached),
            cache_share: 0.0,
            prefetch: 0,
            device,
            keep_checkpoints: 0,
            checkpoint_steps: None,
            log_every: 1,
            ceiling_batches: 0,
            run_dir: PathBuf::new(),
        }
    }

    /// `compare/<data>-<hash of the plan>`, so that a plan that differs in more than [`Plan::FREE`] gets another folder.
    pub fn default_folder(&self) -> PathBuf {
        let mut text = serde_json::to_value(self).unwrap_or_default();
        if let Some(fields) = text.as_object_mut() {
            Self::FREE.iter().for_each(|field| drop(fields.remove(*field)));
        }
        let text = text.to_string();
        let hash = Fnv::of(text.as_bytes()) as u32;
        Path::new("compare").join(format!("{}-{hash:08x}", self.data_name()))
    }

    /// The last part of the data set's path.
    pub fn data_name(&self) -> String {
        let name = self.data.file_name();
        name.map_or_else(|| "data".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// The differences from `now` in what must not change, a phrase for each field.
    ///
    /// # Errors
    /// A value cannot be written as JSON.
    pub fn changes(&self, now: &Self) -> Result<Vec<String>, serde_json::Error> {
        let (before, now) = (serde_json::to_value(self)?, serde_json::to_value(now)?);
        let (Some(before), Some(now)) = (before.as_object(), now.as_object()) else {
            return Ok(Vec::new());
        };
        let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        let changed = names.into_iter().filter_map(|name| {
            let (value, other) = (before.get(name)?, now.get(name)?);
            if value == other || Self::FREE.contains(&name.as_str()) {
                return None;
            }
            let name = name.replace('_', " ");
            // A whole pipeline is too long for a message.
            let short = |value: &Value| Some(value.to_string()).filter(|text| text.len() <= 120);
            Some(match (short(value), short(other)) {
                (Some(value), Some(other)) => format!("{name} was {value} and is {other} now"),
                _ => format!("{name} is another one"),
            })
        });
        Ok(changed.collect())
    }
}

/// As [`Plan::open_data`].
pub(crate) fn open_data(
    data: &Path,
    images: Option<usize>,
    seed: u64,
    learns: bool,
) -> Result<Dataset, StorageError> {
    let mut dataset = match Dataset::open(data, None, seed) {
        Err(StorageError::Flat { .. } | StorageError::Unlabelled { .. }) if !learns => {
            // Other folders next to it hold other images: for validation, or masks.
            let train = data.join("train");
            let folder = if train.is_dir() { &train } else { data };
            Dataset {
                train: Images::unlabelled(folder)?,
                val: None,
                split: None,
            }
        }
        Ok(Dataset { train, .. }) if train.pixel_classes().is_some() => {
            if learns {
                return Err(StorageError::Pairs {
                    path: data.to_owned(),
                    reason: "its images have masks, and a comparison trains classifiers; choose an emulated accelerator as the trainer"
                        .into(),
                });
            }
            Dataset {
                train,
                val: None,
                split: None,
            }
        }
        opened => opened?,
    };
    if let Some(images) = images {
        dataset.limit(images);
    }
    Ok(dataset)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub fn plan() -> Plan {
        Plan {
            stokehold: "0.1.0".to_owned(),
            data: "photos".into(),
            images: None,
            trials: vec![Trial::PerOp, Trial::Fused],
            trainer: TrainerPlan::Emulated(
                Arch::CLASSIFIERS
                    .map(|model| {
                        let label = format!("2 of the 14 cores beside H100, 2/14 of its speed: {model}");
                        (
                            model,
                            TrainerChoice::Emulated {
                                label,
                                images_per_second: 1000.0,
                                read_latency_ms: 0.0,
                            },
                        )
                    })
                    .into(),
            ),
            models: vec![Arch::Resnet18, Arch::Resnet50],
            loads: vec![1, 12],
            pipeline: None,
            batch_size: 32,
            image_size: 224,
            workers: 2,
            cache: None,
            seed: 0,
            lr: 0.001,
            servers: Vec::new(),
            pythons: BTreeMap::new(),
            round: 1.5,
            precision: 5.0,
            time_limit: 20.0,
        }
    }

    #[test]
    fn names_are_unique_and_read_back() {
        for trial in Trial::ALL {
            assert_eq!(trial.name().parse(), Ok(trial));
            assert_eq!(serde_json::to_value(trial).unwrap(), trial.name());
        }
        assert!("jax".parse::<Trial>().unwrap_err().contains("torchvision-v2"));
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        plan().check().unwrap();
        let mut remote = plan();
        remote.trials.push(Trial::Remote);
        remote.servers = vec!["tcp://a:7000".parse().unwrap()];
        remote.check().unwrap();
        let config = |trial| remote.config(Arch::Resnet18, 1, trial, Executor::Fused);
        assert_eq!(config(Trial::Remote).servers, remote.servers);
        assert!(config(Trial::Fused).servers.is_empty());
        let refused = |change: fn(&mut Plan)| {
            let mut plan = plan();
            change(&mut plan);
            plan.check().unwrap_err().to_string()
        };
        let burn = |device| TrainerPlan::Burn {
            device,
            gpu: GpuOptions::default(),
        };
        assert!(refused(|plan| plan.trials.truncate(1)).contains("at least two"));
        assert!(refused(|plan| plan.trials = vec![Trial::Gpu, Trial::Fused]).contains("train with Burn"));
        let on_gpu = |plan: &mut Plan| plan.trials = vec![Trial::StokeholdGpu, Trial::Torchvision];
        assert!(refused(on_gpu).contains("train with PyTorch"));
        assert!(
            refused(|plan| plan.trials = vec![Trial::Dali, Trial::Fused, Trial::Dali])
                .contains("dali is given twice")
        );
        assert!(refused(|plan| plan.precision = 0.0).contains("a precision of 0 %"));
        assert!(refused(|plan| plan.time_limit = f64::NAN).contains("a time limit of NaN s"));
        assert!(refused(|plan| plan.batch_size = 0).contains("batch size"));
        let mut torch = plan();
        torch.trainer = TrainerPlan::Torch(TorchOptions {
            device: "auto".into(),
            amp: false,
        });
        assert!(
            torch
                .check()
                .unwrap_err()
                .to_string()
                .contains("per-op cannot feed PyTorch")
        );
        torch.trials = vec![Trial::Torchvision, Trial::Stokehold];
        torch.check().unwrap();
        torch.trainer = burn(DeviceChoice::Cpu);
        assert!(
            torch
                .check()
                .unwrap_err()
                .to_string()
                .contains("torchvision cannot feed Burn")
        );
        let mut own = plan();
        own.pipeline = Some(Pipeline::imagenet_train(64));
        own.check().unwrap();
        assert_eq!(own.cells().len(), 2);
        own.trials[0] = Trial::Torchvision;
        assert!(
            own.check()
                .unwrap_err()
                .to_string()
                .contains("published pipeline only")
        );
    }

    #[test]
    fn another_plan_has_another_folder_and_says_what_changed() {
        let before = plan();
        assert_eq!(
            before.cells(),
            [
                (Arch::Resnet18, 1),
                (Arch::Resnet18, 12),
                (Arch::Resnet50, 1),
                (Arch::Resnet50, 12)
            ]
        );
        let mut now = before.clone();
        assert_eq!(before.changes(&now).unwrap(), Vec::<String>::new());
        now.loads.push(20);
        now.precision = 1.0;
        assert_eq!(before.changes(&now).unwrap(), Vec::<String>::new());
        assert_eq!(before.default_folder(), now.default_folder());
        now.batch_size = 16;
        now.pipeline = Some(Pipeline::imagenet_train(64));
        assert_ne!(before.default_folder(), now.default_folder());
        let changes = before.changes(&now).unwrap();
        assert_eq!(
            changes,
            ["batch size was 32 and is 16 now", "pipeline is another one"]
        );
    }
}
