//! The options of `stokehold train`, and the run they describe.

use std::error::Error;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as ClapArgs, ValueEnum};
use serde::de::DeserializeOwned;
use stokehold_loader::{Address, BadImagePolicy};
use stokehold_pipeline::op::Size;
use stokehold_pipeline::{Executor, Pipeline, SampleType};
use stokehold_profile::Machine;
use stokehold_train::device::DeviceChoice;
use stokehold_train::ema::EmaConfig;
use stokehold_train::mix::Mix;
use stokehold_train::model::Arch;
use stokehold_train::optim::{OptimizerConfig, Undecayed};
use stokehold_train::sampling::SamplerConfig;
use stokehold_train::schedule::{ScheduleConfig, ScheduleKind};
use stokehold_train::{ClassWeights, Precision, TrainConfig, TrainerChoice, executor_or_auto};

use super::augment::AugmentOptions;
use super::rules::RulesOptions;
use crate::failure::Usage;
use crate::gpu::GpuArgs;
use crate::loader::{CacheArgs, WorkerArgs};
use crate::local::Local;
use crate::progress;
use crate::trainer::TrainerArgs;

/// Parses the names of a library's type, as its files have them.
pub(super) fn one_of<T>(names: &'static [&'static str]) -> impl TypedValueParser<Value = T>
where
    T: DeserializeOwned + Clone + Send + Sync + 'static,
{
    PossibleValuesParser::new(names)
        .map(|name| serde_json::from_value(name.into()).expect("a name of the type"))
}

/// `None` for `auto`. Under another name, so that clap does not take the option for one without a default.
type OrAuto = Option<Executor>;

/// Train a classifier on a folder of images, or a segmenter on pairs of images and masks.
#[derive(Debug, Clone, ClapArgs)]
#[command(allow_negative_numbers = true)]
pub struct Args {
    /// The data set: DATA/train/<class>/.. and DATA/val/.., or class folders with --val-split; for a segmenter images and
    /// masks (see docs/guide/segmentation.md). Without it, generated images from the user's cache folder.
    pub data: Option<PathBuf>,

    /// Continue from the run's latest checkpoint. `--resume RUN`, with the run's folder in the place of the data set, needs no
    /// other option; with the data set, the other options say which run it is. More --epochs train a finished run further.
    /// Otherwise the result is the same as without the interruption.
    #[arg(long)]
    pub resume: bool,
    /// In a job of Slurm: after SIGUSR1 (sbatch --signal=USR1@120), put the job back into the queue when the checkpoint is
    /// written. With --resume the job continues by itself when it starts again.
    #[arg(long, requires = "resume")]
    pub requeue: bool,

    /// Set the options of a recipe, and say which: torchvision (its new one, of its ResNet-50 V2), or a .toml file of your own.
    /// Options of the command line replace the recipe's. See docs/reference/recipes.md.
    #[arg(long, value_name = "NAME|FILE")]
    pub recipe: Option<String>,

    #[command(flatten)]
    data_options: DataOptions,
    #[command(flatten)]
    augment: AugmentOptions,
    #[command(flatten)]
    model: ModelOptions,
    #[command(flatten)]
    optimizer: OptimizerOptions,
    #[command(flatten)]
    machine: MachineOptions,
    #[command(flatten)]
    ranks: RanksOptions,
    #[command(flatten)]
    record: RecordOptions,
    #[command(flatten)]
    pub rules: RulesOptions,
}

#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Data")]
struct DataOptions {
    /// Share of each class to split off for validation where there is no val/, above 0 and below 1.
    #[arg(long, value_name = "SHARE")]
    val_split: Option<f64>,
    /// Use at most N training images, balanced over the classes, and the same share for validation.
    #[arg(long, value_name = "N")]
    max_images: Option<usize>,
    /// Draw an epoch's images so that all classes are equally likely: with replacement, weighted by 1 / (images of the
    /// class).
    #[arg(long, group = "sampler")]
    class_balanced: bool,
    /// Draw an epoch's images with weights, with replacement. Each line of the file has an image's path below the folder of
    /// the training images, a space and its weight, 0 or more.
    #[arg(long, value_name = "FILE", group = "sampler")]
    sample_weights: Option<Local>,
    /// Train on these images only: a file with the path of one below the folder of the training images in each line.
    #[arg(long, value_name = "FILE", group = "sampler")]
    subset: Option<Local>,
    /// Repeated augmentation: K augmented versions of each image in a row. An epoch keeps its length, and so has 1/K of the
    /// images.
    #[arg(long, value_name = "K", group = "sampler")]
    aug_repeats: Option<NonZeroUsize>,
    /// With --class-balanced or --sample-weights: an epoch has an image once at most.
    #[arg(long)]
    without_replacement: bool,
    /// Training images in an epoch [default: as many as there are; without replacement, as many as have a weight above 0].
    #[arg(long, value_name = "N")]
    epoch_images: Option<usize>,
    /// Width and height of the images that the network sees, at least 32; for a segmenter also height x width: 360x480.
    #[arg(long, value_name = "PIXELS", default_value = "224")]
    image_size: ImageSize,
    /// Width and height of the images in validation, at least 32 [default: as in training].
    #[arg(long, value_name = "PIXELS", conflicts_with = "eval_pipeline")]
    eval_size: Option<ImageSize>,
    /// Length of the shorter edge before the centre crop in validation [default: 8/7 of --eval-size].
    #[arg(long, value_name = "PIXELS")]
    eval_resize: Option<u32>,
    /// Pipeline of training images: imagenet-train, imagenet-eval, published, caltech, or a .toml or .json
    /// file. A file and caltech have their own size [default: imagenet-train; for a segmenter a resized crop of a quarter to
    /// all of the image, and a flip].
    #[arg(long, value_name = "NAME|FILE")]
    pipeline: Option<String>,
    /// The published augmentation load instead of --pipeline: N times flip, flip, rotate before the random crop.
    #[arg(long, value_name = "N", conflicts_with = "pipeline")]
    load: Option<u32>,
    /// Pipeline of validation images, as --pipeline [default: resize, centre crop, and normalise as training; for a
    /// segmenter without the crop].
    #[arg(long, value_name = "NAME|FILE")]
    eval_pipeline: Option<Local>,
    /// Executor of the pipeline: fused (one resampling per image), per-op (operation after operation), gpu
    /// (as fused, on the device that trains), or auto (fused or gpu, whichever trains faster here).
    #[arg(long, value_name = "EXECUTOR", default_value = "fused", value_parser = executor_or_auto)]
    executor: OrAuto,
    /// Apply the EXIF orientation of photos (torchvision does not).
    #[arg(long)]
    exif: bool,
    /// What to do about an image that cannot be read: error, skip or substitute.
    #[arg(long, value_name = "POLICY", default_value_t = BadImagePolicy::Skip)]
    bad_images: BadImagePolicy,
    /// Stop at more than N bad images.
    #[arg(long, value_name = "N", default_value_t = 100)]
    bad_image_limit: usize,
}

/// The size of images for a network: one number is a square, two are height and width.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ImageSize(Size);

impl FromStr for ImageSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok();
        let size = match text.split_once('x') {
            None => number(text).map(Size::Side),
            Some((height, width)) => number(height)
                .zip(number(width))
                .map(|(height, width)| Size::HeightWidth([height, width])),
        };
        size.map(Self)
            .ok_or_else(|| "give a number of pixels, or height x width: 360x480".to_owned())
    }
}

impl ImageSize {
    /// The side of a square.
    fn side(self) -> Result<u32, Usage> {
        match self.0.height_width() {
            [height, width] if height == width => Ok(height),
            [height, width] => Err(Usage(format!(
                "the size {height}x{width} is for the usual pipelines of a segmenter; give one number, or a pipeline's file"
            ))),
        }
    }
}

#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Model")]
struct ModelOptions {
    /// The network: resnet18, resnet34, resnet50, resnet101 or resnet152; for pairs of images and masks fcn-resnet18,
    /// fcn-resnet50 or deeplabv3-resnet50.
    #[arg(long, default_value_t = Arch::Resnet18)]
    model: Arch,
    /// Start from these weights (torchvision's .pth or .safetensors); the last layer starts from random
    /// weights if the classes differ. A segmenter takes a classifier's weights as its backbone.
    #[arg(long, value_name = "FILE")]
    weights: Option<Local>,
    /// Train the last layer only, of a segmenter its heads.
    #[arg(long)]
    freeze_backbone: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OptimizerName {
    Sgd,
    Adamw,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ScheduleName {
    Constant,
    Step,
    Cosine,
}

#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Optimisation")]
struct OptimizerOptions {
    /// Number of epochs, at least 1.
    #[arg(long, default_value_t = 10)]
    epochs: u64,
    /// Images per step, of all ranks together, at least 1.
    #[arg(long, default_value_t = 32)]
    batch_size: usize,
    /// Leave out the images that do not fill the last batch of an epoch.
    #[arg(long)]
    drop_last: bool,
    /// The optimiser, as PyTorch has it.
    #[arg(long, value_enum, default_value_t = OptimizerName::Sgd)]
    optimizer: OptimizerName,
    /// Learning rate [default: 0.01, with AdamW 0.001].
    #[arg(long)]
    lr: Option<f64>,
    /// Multiply the learning rate by the batch size / 256, the linear scaling rule (Goyal et al., 2017).
    #[arg(long)]
    scale_lr: bool,
    /// Momentum of SGD, 0 up to below 1 [default: 0.9].
    #[arg(long)]
    momentum: Option<f64>,
    /// Nesterov's momentum, for SGD.
    #[arg(long)]
    nesterov: bool,
    /// Weight decay, 0 or more [default: 0, with AdamW 0.01].
    #[arg(long)]
    weight_decay: Option<f64>,
    /// Parameters without weight decay: normalisation's (torchvision's --norm-weight-decay 0), or biases too
    /// (timm's default).
    #[arg(long, value_name = "PARAMETERS", default_value = "none", value_parser = one_of::<Undecayed>(&["none", "norm", "norm-and-bias"]))]
    no_decay_on: Undecayed,
    /// Schedule of the learning rate.
    #[arg(long, value_enum, default_value_t = ScheduleName::Constant)]
    schedule: ScheduleName,
    /// Epochs between two steps of the step schedule [default: 30].
    #[arg(long, value_name = "EPOCHS")]
    step_epochs: Option<u64>,
    /// Factor of each step of the step schedule [default: 0.1].
    #[arg(long, value_name = "FACTOR")]
    step_factor: Option<f64>,
    /// Epochs, or a part of one, over which the learning rate rises to its full value.
    #[arg(long, value_name = "EPOCHS", default_value_t = 0.0)]
    warmup_epochs: f64,
    /// Weights of the classes of pixels in the loss, for a segmenter: a number of 0 or more for each class in its order
    /// (1,0.5,2), or balanced, by their pixels in the training masks.
    #[arg(long, value_name = "LIST|balanced")]
    class_weights: Option<ClassWeights>,
    /// Mix the images of a batch by MixUp, with this alpha of the share's distribution, up to 4; 0 for not at all. With
    /// --cutmix-alpha one of the two is chosen for each batch.
    #[arg(long, value_name = "ALPHA", default_value_t = 0.0)]
    mixup_alpha: f64,
    /// Mix the images of a batch by CutMix, with this alpha of the share's distribution, up to 4; 0 for not at all.
    #[arg(long, value_name = "ALPHA", default_value_t = 0.0)]
    cutmix_alpha: f64,
    /// Label smoothing of the training loss, 0 up to below 1.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    label_smoothing: f32,
    /// Clip the gradients to this global norm, above 0.
    #[arg(long, value_name = "NORM")]
    clip_norm: Option<f64>,
    /// Keep a moving average of the weights next to the model, with this decay, 0 up to below 1, as torchvision's
    /// --model-ema-decay: the share (1 - decay) x batch size x --ema-steps / epochs of the model enters each time.
    #[arg(long, value_name = "DECAY")]
    ema_decay: Option<f64>,
    /// Steps between two averages, at least 1.
    #[arg(long, value_name = "STEPS", default_value_t = 32, requires = "ema_decay")]
    ema_steps: u64,
    /// The k of top-k accuracy [default: 5].
    #[arg(long, value_name = "K")]
    topk: Option<usize>,
    /// Seed of the initial weights, the order and every random operation.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Machine")]
struct MachineOptions {
    #[command(flatten)]
    trainer: TrainerArgs,
    /// With --trainer emulated: delay every read by this time, as slow storage does: 20ms [default: 0s].
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    read_latency: Option<Duration>,
    /// Device that computes: auto, cpu, cuda, vulkan, or one that `stokehold devices` lists, such as cuda:1.
    #[arg(long, default_value_t = DeviceChoice::Auto)]
    device: DeviceChoice,
    /// Numbers that training steps compute with: f32, bf16, or f16 on a GPU. Weights stay f32, and validation is in f32.
    #[arg(long, value_name = "TYPE", default_value_t = Precision::F32)]
    precision: Precision,
    /// Numbers of batches on their way to the device: f32, bf16, f16, or u8, which is normalised there.
    #[arg(long, value_name = "TYPE", default_value_t = SampleType::F32)]
    sample_type: SampleType,
    #[command(flatten)]
    threads: WorkerArgs,
    #[command(flatten)]
    cache: CacheArgs,
    /// Servers that make the training batches (`stokehold serve`): tcp://a:7000,tcp://b:7000; tls:// for TLS. Batches, order
    /// and resume stay the same. --workers 2 lets threads of this machine make some, too. STOKEHOLD_TOKEN has the token.
    #[arg(long, value_name = "SERVERS", value_delimiter = ',')]
    loader: Vec<Address>,
    /// Most batches in work or ready; 0 for as few as keep all workers busy.
    #[arg(long, value_name = "BATCHES", default_value_t = 0)]
    prefetch: usize,
    #[command(flatten)]
    gpu: GpuArgs,
}

#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Ranks (under mpirun, srun or stokehold launch)")]
struct RanksOptions {
    /// Compute a batch in this many pieces, one after the other (gradient accumulation); with several ranks, each rank its share.
    #[arg(long, value_name = "PIECES", default_value_t = 1)]
    accumulate: usize,
    /// Normalise batches by the images of all ranks, as torch.nn.SyncBatchNorm; on the CPU.
    #[arg(long)]
    sync_batch_norm: bool,
    /// End all ranks when one lets the others wait for so long.
    #[arg(long, value_name = "TIME", default_value = "25s", value_parser = humantime::parse_duration)]
    rank_timeout: Duration,
}

#[derive(Debug, Clone, ClapArgs)]
#[command(next_help_heading = "Record")]
struct RecordOptions {
    /// The run's name, a folder below --runs [default: the data set's and the model's].
    #[arg(long)]
    name: Option<Local>,
    /// Where runs are kept.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: Local,
    /// Number of checkpoints to keep besides the best; 0 writes none.
    #[arg(long, value_name = "N", default_value_t = 3)]
    keep_checkpoints: usize,
    /// Write a checkpoint every N steps too, not only after each epoch.
    #[arg(long, value_name = "N")]
    checkpoint_steps: Option<u64>,
    /// Steps between two lines of the log.
    #[arg(long, value_name = "STEPS", default_value_t = 10)]
    log_every: u64,
    /// Batches over which the loader's and the trainer's ceilings are measured at the end; 0 for none.
    #[arg(long, value_name = "N", default_value_t = 8)]
    ceiling_batches: usize,
}

impl Args {
    /// How long ranks wait for another one.
    pub fn rank_timeout(&self) -> Result<Duration, Usage> {
        match self.ranks.rank_timeout {
            patience if patience < Duration::from_secs(5) => {
                Err(Usage("--rank-timeout: must be at least 5s".into()))
            }
            patience => Ok(patience),
        }
    }

    /// The configuration of the run; generates the default data set if none is given.
    pub fn into_config(self) -> Result<TrainConfig, Box<dyn Error>> {
        let Self {
            data,
            data_options,
            augment,
            model,
            optimizer,
            machine,
            ranks,
            record,
            ..
        } = self;
        let data = match data {
            Some(data) => data,
            None => progress::generated_data()?,
        };
        let run_dir = record.runs.join(
            record
                .name
                .map_or_else(|| run_name(&data, model.model).into(), PathBuf::from),
        );
        let (pipeline, eval_pipeline) = match model.model.segments() {
            false => {
                let training = data_options.pipeline(&augment)?;
                let validation = data_options.eval_pipeline(&augment, &training)?;
                (training, validation)
            }
            true if optimizer.topk.is_some() => {
                return Err(Usage("--topk is for classifiers; leave it out".into()).into());
            }
            true => data_options.pipelines_of_pairs(&augment)?,
        };
        Ok(TrainConfig {
            val_split: data_options.val_split,
            max_images: data_options.max_images,
            sampler: data_options.sampler()?,
            epoch_images: data_options.epoch_images,
            arch: model.model,
            trainer: machine.trainer(model.model)?,
            weights: model.weights.map(PathBuf::from),
            freeze_backbone: model.freeze_backbone,
            pipeline,
            eval_pipeline,
            executor: data_options.executor,
            gpu: machine.gpu.options(),
            exif: data_options.exif,
            epochs: optimizer.epochs,
            batch_size: optimizer.batch_size,
            accumulate: ranks.accumulate,
            sync_batch_norm: ranks.sync_batch_norm,
            drop_last: optimizer.drop_last,
            seed: optimizer.seed,
            class_weights: optimizer.class_weights.clone().unwrap_or_default(),
            optimizer: optimizer.optimizer()?,
            undecayed: optimizer.no_decay_on,
            lr: optimizer.lr(),
            schedule: optimizer.schedule()?,
            mix: Mix {
                mixup_alpha: optimizer.mixup_alpha,
                cutmix_alpha: optimizer.cutmix_alpha,
            },
            precision: machine.precision,
            sample_type: machine.sample_type,
            label_smoothing: optimizer.label_smoothing,
            clip_norm: optimizer.clip_norm,
            ema: optimizer.ema(),
            topk: optimizer.topk.unwrap_or(5),
            bad_images: data_options.bad_images,
            bad_image_limit: data_options.bad_image_limit,
            servers: machine.loader,
            workers: machine.threads.workers,
            cache: machine.cache.place()?,
            cache_share: machine.cache.cache_share,
            prefetch: machine.prefetch,
            device: machine.device,
            keep_checkpoints: record.keep_checkpoints,
            checkpoint_steps: record.checkpoint_steps,
            log_every: record.log_every,
            ceiling_batches: record.ceiling_batches,
            data,
            run_dir,
        })
    }
}

impl MachineOptions {
    /// What trains, and how late its storage answers.
    fn trainer(&self, model: Arch) -> Result<TrainerChoice, Usage> {
        let mut choice = self.trainer.choice(model, Machine::here().cores)?;
        match (&mut choice, self.read_latency) {
            (_, None) => {}
            (TrainerChoice::Burn, Some(_)) => {
                return Err(Usage(
                    "--read-latency emulates slow storage, and is for --trainer emulated; give that too"
                        .into(),
                ));
            }
            (TrainerChoice::Emulated { read_latency_ms, .. }, Some(latency)) => {
                *read_latency_ms = 1e3 * latency.as_secs_f64();
            }
        }
        Ok(choice)
    }
}

impl DataOptions {
    fn sampler(&self) -> Result<SamplerConfig, Usage> {
        let replacement = !self.without_replacement;
        let path = |file: &Local| PathBuf::from(file.clone());
        let sampler = match (&self.sample_weights, &self.subset, self.aug_repeats) {
            (Some(weights), ..) => SamplerConfig::Weighted {
                weights: path(weights),
                replacement,
            },
            _ if self.class_balanced => SamplerConfig::ClassBalanced { replacement },
            _ if self.without_replacement => {
                return Err(Usage(
                    "--without-replacement is for --class-balanced and --sample-weights; give one of them too".into(),
                ));
            }
            (_, Some(images), _) => SamplerConfig::Subset { images: path(images) },
            (_, _, Some(times)) => SamplerConfig::Repeated { times },
            _ => SamplerConfig::Every,
        };
        Ok(sampler)
    }

    fn pipeline(&self, augment: &AugmentOptions) -> Result<Pipeline, Box<dyn Error>> {
        let size = self.image_size.side()?;
        let name = self.pipeline.as_deref().unwrap_or("imagenet-train");
        if (self.load, name) == (None, "imagenet-train") {
            return Ok(augment.training(Pipeline::imagenet_train(size))?);
        }
        augment.refuse()?;
        Ok(match (self.load, name) {
            (Some(load), _) => Pipeline::published(load, size),
            (None, "imagenet-eval") => Pipeline::imagenet_eval(self.eval_resize(size), size),
            (None, "published") => Pipeline::published(1, size),
            (None, name) => Pipeline::named(name)?,
        })
    }

    /// The validation pipeline for images of the size and the range that training has.
    fn eval_pipeline(
        &self,
        augment: &AugmentOptions,
        training: &Pipeline,
    ) -> Result<Pipeline, Box<dyn Error>> {
        let side = self.eval_side(training)?;
        Ok(
            match self
                .eval_pipeline
                .as_ref()
                .map(|name| name.to_string_lossy())
                .as_deref()
            {
                Some("imagenet-eval") => Pipeline::imagenet_eval(self.eval_resize(side), side),
                Some(name) => Pipeline::named(name)?,
                None => {
                    let validation = Pipeline::imagenet_eval(self.eval_resize(side), side);
                    augment.validation(validation).normalised_as(training)
                }
            },
        )
    }

    /// The pipelines of training and validation of a segmenter.
    fn pipelines_of_pairs(&self, augment: &AugmentOptions) -> Result<(Pipeline, Pipeline), Box<dyn Error>> {
        if self.eval_resize.is_some() {
            let reason =
                "--eval-resize is for classifiers: a segmenter sees the whole image; give --eval-size";
            return Err(Usage(reason.into()).into());
        }
        let training = match (&self.pipeline, self.load) {
            (None, None) => {
                augment.refuse()?;
                augment.validation(Pipeline::pairs_train(self.image_size.0))
            }
            _ => self.pipeline(augment)?,
        };
        let validation = match self
            .eval_pipeline
            .as_ref()
            .map(|name| name.to_string_lossy())
            .as_deref()
        {
            Some(name) => Pipeline::named(name)?,
            None => {
                let (width, height) = training.check()?;
                let size = self
                    .eval_size
                    .map_or(Size::HeightWidth([height, width]), |size| size.0);
                augment
                    .validation(Pipeline::pairs_eval(size))
                    .normalised_as(&training)
            }
        };
        Ok((training, validation))
    }

    /// The side of validation images: the option's, or else that of training images.
    fn eval_side(&self, training: &Pipeline) -> Result<u32, Box<dyn Error>> {
        if let Some(size) = self.eval_size {
            return Ok(size.side()?);
        }
        match (training.check()?, &self.eval_pipeline) {
            ((width, height), _) if width == height => Ok(width),
            (_, Some(name)) if name.as_os_str() != "imagenet-eval" => Ok(self.image_size.side()?),
            ((width, height), _) => Err(Usage(format!(
                "the training pipeline makes images of {width}x{height}: give --eval-size, or an --eval-pipeline"
            ))
            .into()),
        }
    }

    /// 256 for 224, as usual.
    fn eval_resize(&self, side: u32) -> u32 {
        self.eval_resize
            .unwrap_or_else(|| (f64::from(side) * 8.0 / 7.0).round() as u32)
    }
}

impl OptimizerOptions {
    fn optimizer(&self) -> Result<OptimizerConfig, Usage> {
        if self.optimizer != OptimizerName::Sgd && (self.momentum.is_some() || self.nesterov) {
            return Err(Usage(
                "--momentum and --nesterov are for --optimizer sgd; leave them out, or choose that".into(),
            ));
        }
        Ok(match self.optimizer {
            OptimizerName::Sgd => OptimizerConfig::Sgd {
                momentum: self.momentum.unwrap_or(0.9),
                weight_decay: self.weight_decay.unwrap_or(0.0),
                nesterov: self.nesterov,
            },
            OptimizerName::Adamw => OptimizerConfig::adamw(self.weight_decay.unwrap_or(0.01)),
        })
    }

    fn ema(&self) -> Option<EmaConfig> {
        let steps = self.ema_steps;
        self.ema_decay.map(|decay| EmaConfig { decay, steps })
    }

    fn lr(&self) -> f64 {
        let lr = self.lr.unwrap_or(match self.optimizer {
            OptimizerName::Sgd => 0.01,
            OptimizerName::Adamw => 0.001,
        });
        match self.scale_lr {
            true => lr * self.batch_size as f64 / 256.0,
            false => lr,
        }
    }

    fn schedule(&self) -> Result<ScheduleConfig, Usage> {
        if self.schedule != ScheduleName::Step && (self.step_epochs.is_some() || self.step_factor.is_some()) {
            return Err(Usage(
                "--step-epochs and --step-factor are for --schedule step; leave them out, or choose that"
                    .into(),
            ));
        }
        let kind = match self.schedule {
            ScheduleName::Constant => ScheduleKind::Constant,
            ScheduleName::Step => ScheduleKind::Step {
                every_epochs: self.step_epochs.unwrap_or(30),
                gamma: self.step_factor.unwrap_or(0.1),
            },
            ScheduleName::Cosine => ScheduleKind::Cosine { final_factor: 0.0 },
        };
        Ok(ScheduleConfig {
            kind,
            warmup_epochs: self.warmup_epochs,
        })
    }
}

/// `clothing-resnet18` for `data/clothing`.
fn run_name(data: &Path, arch: Arch) -> String {
    let folder = data.canonicalize().unwrap_or_else(|_| data.to_owned());
    let name = folder
        .file_name()
        .map_or_else(|| "data".into(), |name| name.to_string_lossy());
    format!("{name}-{arch}")
}
