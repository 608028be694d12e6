//! The options of `stokehold compare`, and the plan that they describe.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use stokehold_cache::CachePlace;
use stokehold_compare::{Plan, TorchOptions, TrainerPlan, Trial};
use stokehold_loader::Address;
use stokehold_pipeline::{Pipeline, PipelineError};
use stokehold_profile::{Machine, ProfileError, check_interval};
use stokehold_train::device::{self, DeviceChoice};
use stokehold_train::model::Arch;
use stokehold_train::{TrainError, open_device};

use crate::failure::Usage;
use crate::gpu::GpuArgs;
use crate::loader::WorkerArgs;
use crate::local::Local;
use crate::python;
use crate::trainer::SpeedArgs;

/// The accelerator that is emulated unless another one is given.
const ACCELERATOR: &str = "H100";
/// Images of this size are quick enough for a CPU to leave preprocessing its share of an epoch.
const SMALL: u32 = 32;
/// The published size.
const PUBLISHED: u32 = 224;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TrainerKind {
    /// Burn where a GPU is found or --device is given, else emulated.
    Auto,
    /// An accelerator of a stated speed, which takes batches and computes nothing.
    Emulated,
    /// Burn trains, fed by native trials.
    Burn,
    /// PyTorch trains, fed by trials in Python.
    Torch,
}

/// Feed the same trainer with different loaders, and show which keeps it busy.
///
/// Trials take turns in short rounds on the same images. Native trials are per-op (operation after operation, as
/// torchvision), fused, gpu, remote (fused, made by servers) and cached (fused, from a cache that is filled first); trials in
/// Python are torchvision, fast-images, torchvision-v2, albumentations, dali, dali-gpu, ffcv, ffcv-raw, spdl, stokehold and stokehold-gpu. Without DATA, generated images are used. The same command continues after an interruption.
/// Finished cells are kept; a cell in which a trial failed is measured again.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The data set: DATA/train/<class>/.. or class folders.
    pub data: Option<PathBuf>,
    /// The trials, two or more; the first is A, which the others are compared with. The same one twice shows the noise.
    #[arg(
        long,
        value_name = "A,B,..",
        value_delimiter = ',',
        default_value = "per-op,fused"
    )]
    trials: Vec<Trial>,
    /// What the trials feed.
    #[arg(long, value_enum, default_value_t = TrainerKind::Auto)]
    trainer: TrainerKind,
    #[command(flatten)]
    speed: SpeedArgs,
    /// The networks: resnet18, resnet34, resnet50, resnet101 or resnet152 [default: resnet18,resnet50 emulated, else resnet18].
    #[arg(long, value_name = "MODEL,..", value_delimiter = ',')]
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
    /// The cells of the published table: ResNet-18, -50 and -152 at loads 1, 4, 8, 12 on an emulated V100.
    #[arg(long, conflicts_with_all = ["models", "loads", "accelerator", "images_per_second", "pipeline", "trainer"])]
    as_published: bool,
    /// A pipeline of your own in place of the loads, TOML or JSON; native trials only.
    #[arg(long, value_name = "FILE", conflicts_with = "loads")]
    pipeline: Option<Local>,
    /// Width and height of the images that the network sees, at least 32 [default: 224; 32 where Burn or PyTorch
    /// trains on the CPU].
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(32..=4096))]
    image_size: Option<u32>,
    /// Images per batch, at least 1.
    #[arg(long, value_name = "IMAGES", default_value_t = 32)]
    batch_size: usize,
    #[command(flatten)]
    threads: WorkerArgs,
    /// Servers that make the batches of the trial remote, as for train; they serve DATA. Servers are not paused while other
    /// trials have their turn.
    #[arg(long, value_name = "SERVERS", value_delimiter = ',')]
    loader: Vec<Address>,
    /// The cache of the trial cached: its folder and, after a colon, its size.
    #[arg(long, value_name = "DIR[:SIZE]")]
    cache: Option<CachePlace>,
    /// Use at most N images, evenly over the classes.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    images: Option<u64>,
    /// Seed of the order, the initial weights and the native trials' random operations.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Learning rate of SGD, whose momentum is 0.5 as published.
    #[arg(long, default_value_t = 0.001)]
    lr: f64,
    /// Device that Burn (auto, cpu, cuda, vulkan or such as cuda:1) or PyTorch (auto, cpu or cuda) trains on [default: auto].
    #[arg(long)]
    device: Option<DeviceChoice>,
    #[command(flatten)]
    gpu: GpuArgs,
    /// With --trainer torch, train with automatic mixed precision.
    #[arg(long)]
    amp: bool,
    /// The Python of the trials in Python; or of one, as dali=PATH. May be given several times [default: the Python
    /// of the wheel that this program came in, else python3].
    #[arg(long, value_name = "[TRIAL=]PATH")]
    python: Vec<String>,
    /// The length of the slowest trial's rounds.
    #[arg(long, value_name = "SECONDS", default_value_t = 1.5)]
    round: f64,
    /// The rounds of a cell end when the 95 % interval of every gain is narrower than this.
    #[arg(long, value_name = "PERCENT", default_value_t = 5.0)]
    precision: f64,
    /// The rounds of a cell end after this time, but not before six pairs, which a verdict needs.
    #[arg(long, value_name = "SECONDS", default_value_t = 20.0)]
    time_limit: f64,
    /// Time between two samples of the machine, 100ms to 60s.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = humantime::parse_duration)]
    interval: Duration,
    /// The comparison's folder [default: a name made of the data and the settings, below compare/].
    #[arg(long, value_name = "DIR")]
    pub out: Option<Local>,
}

impl Args {
    /// What the options describe.
    ///
    /// # Errors
    /// They do not go together, or a device or a file cannot be opened.
    pub fn plan(&self) -> Result<Plan, Box<dyn Error>> {
        check_interval(self.interval).map_err(|error: ProfileError| Usage(error.to_string()))?;
        let trainer = self.trainer_plan()?;
        let computes_on_cpu = match &trainer {
            TrainerPlan::Burn { device, gpu } => {
                let opened = device::open(*device).map_err(TrainError::from)?;
                for executor in self.trials.iter().filter_map(|trial| trial.executor()) {
                    open_device(executor, *gpu, &opened)?;
                }
                device::kind(&device::name(&opened)) == "cpu"
            }
            TrainerPlan::Emulated(_) => false,
            TrainerPlan::Torch(options) => match options.device.as_str() {
                "auto" => !has_gpu(),
                device => device == "cpu",
            },
        };
        let emulated = matches!(trainer, TrainerPlan::Emulated(_));
        if let Some(model) = self.models.iter().find(|model| model.segments()) {
            return Err(Usage(format!(
                "--models {model}: compare trains classifiers; give one of those"
            ))
            .into());
        }
        let models = match (self.models.is_empty(), self.as_published) {
            (false, _) => self.models.clone(),
            (true, true) => vec![Arch::Resnet18, Arch::Resnet50, Arch::Resnet152],
            (true, false) if emulated => vec![Arch::Resnet18, Arch::Resnet50],
            (true, false) => vec![Arch::Resnet18],
        };
        Ok(Plan {
            stokehold: env!("CARGO_PKG_VERSION").to_owned(),
            data: self.data.clone().unwrap_or_default(),
            images: self.images.map(|images| images as usize),
            trials: self.trials.clone(),
            trainer,
            models,
            loads: match self.pipeline {
                Some(_) => Vec::new(),
                None => self.loads.clone(),
            },
            pipeline: self
                .pipeline
                .as_ref()
                .map(|file| Pipeline::load(file))
                .transpose()
                .map_err(|error: PipelineError| Usage(error.to_string()))?,
            batch_size: self.batch_size,
            image_size: self.image_size.unwrap_or(match computes_on_cpu {
                true => SMALL,
                false => PUBLISHED,
            }),
            workers: self.threads.workers.resolve(),
            seed: self.seed,
            lr: self.lr,
            servers: self.loader.clone(),
            cache: self.cache.clone(),
            pythons: self.pythons()?,
            round: self.round,
            precision: self.precision,
            time_limit: self.time_limit,
        })
    }

    /// Time between samples of the machine.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    fn trainer_plan(&self) -> Result<TrainerPlan, Box<dyn Error>> {
        let usage =
            |text: &str| -> Result<TrainerPlan, Box<dyn Error>> { Err(Box::new(Usage(text.to_owned()))) };
        crate::gpu::check(self.gpu.options(), self.trials.contains(&Trial::Gpu))?;
        let burn = |device| TrainerPlan::Burn {
            device,
            gpu: self.gpu.options(),
        };
        let native = self.trials.iter().all(|trial| trial.executor().is_some());
        let kind = match self.trainer {
            TrainerKind::Auto if self.as_published || self.speed.is_given() => TrainerKind::Emulated,
            TrainerKind::Auto if self.device.is_some() && native => TrainerKind::Burn,
            TrainerKind::Auto if self.trials.contains(&Trial::Gpu) => TrainerKind::Burn,
            TrainerKind::Auto if native => {
                let found = device::open(DeviceChoice::Auto).map_err(TrainError::from)?;
                match device::kind(&device::name(&found)).as_str() {
                    "cpu" => TrainerKind::Emulated,
                    _ => TrainerKind::Burn,
                }
            }
            TrainerKind::Auto => TrainerKind::Emulated,
            kind => kind,
        };
        if kind != TrainerKind::Emulated && self.speed.is_given() {
            return usage(
                "--accelerator, --share and --images-per-second are for --trainer emulated; give that",
            );
        }
        if kind != TrainerKind::Torch && self.amp {
            return usage("--amp is for --trainer torch; give that too");
        }
        match (kind, self.device) {
            (TrainerKind::Emulated | TrainerKind::Auto, Some(_)) => {
                usage("--device is for --trainer burn or torch; an emulated accelerator has none")
            }
            (TrainerKind::Emulated | TrainerKind::Auto, None) => {
                let cores = Machine::here().cores;
                let default = if self.as_published { "V100" } else { ACCELERATOR };
                let each = Arch::CLASSIFIERS
                    .map(|model| Ok((model, self.speed.emulated(Some(default), model, cores)?)));
                Ok(TrainerPlan::Emulated(
                    each.into_iter().collect::<Result<_, Usage>>()?,
                ))
            }
            (TrainerKind::Burn, device) => Ok(burn(device.unwrap_or(DeviceChoice::Auto))),
            (TrainerKind::Torch, Some(device @ (DeviceChoice::Vulkan(_) | DeviceChoice::Cuda(1..)))) => {
                usage(&format!(
                    "--device {device}: PyTorch trains on auto, cpu or cuda; CUDA_VISIBLE_DEVICES chooses which GPU is the first"
                ))
            }
            (TrainerKind::Torch, device) => Ok(TrainerPlan::Torch(TorchOptions {
                device: device.unwrap_or(DeviceChoice::Auto).to_string(),
                amp: self.amp,
            })),
        }
    }

    /// The Pythons by trial; "" is that of all others.
    fn pythons(&self) -> Result<BTreeMap<String, PathBuf>, Usage> {
        let mut pythons = BTreeMap::new();
        if self.trials.iter().all(|trial| trial.executor().is_some()) {
            return Ok(pythons);
        }
        for given in &self.python {
            let (trial, path) = match given.split_once('=') {
                Some((trial, path)) => {
                    let trial: Trial = trial
                        .parse()
                        .map_err(|error| Usage(format!("--python {given}: {error}")))?;
                    (trial.name(), path)
                }
                None => ("", given.as_str()),
            };
            if path.is_empty() {
                return Err(Usage(format!("--python {given}: give the path of a Python")));
            }
            pythons.insert(trial.to_owned(), PathBuf::from(path));
        }
        pythons.entry(String::new()).or_insert_with(python::default);
        Ok(pythons)
    }
}

/// Whether there is a device that PyTorch may train on: an NVIDIA or AMD GPU, or one in Windows' Linux.
fn has_gpu() -> bool {
    ["/dev/nvidiactl", "/dev/kfd", "/dev/dxg"]
        .iter()
        .any(|path| std::path::Path::new(path).exists())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn plan(words: &[&str]) -> Result<Plan, String> {
        let line =
            Line::try_parse_from(["compare"].iter().chain(words)).map_err(|error| error.to_string())?;
        line.args.plan().map_err(|error| error.to_string())
    }

    fn rate(plan: &Plan, model: Arch) -> f64 {
        match plan.trainer_of(model) {
            stokehold_train::TrainerChoice::Emulated {
                images_per_second, ..
            } => images_per_second,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_trainer_follows_from_what_is_given() {
        let published = plan(&["--as-published", "--share", "1"]).unwrap();
        assert_eq!(
            (published.cells().len(), rate(&published, Arch::Resnet152)),
            (12, 80.0)
        );
        let own = plan(&["--images-per-second", "500"]).unwrap();
        assert_eq!((rate(&own, Arch::Resnet18), own.image_size), (500.0, 224));
        let burn = plan(&["--device", "cpu"]).unwrap();
        assert!(matches!(burn.trainer, TrainerPlan::Burn { .. }));
        assert_eq!((burn.image_size, burn.models), (32, vec![Arch::Resnet18]));
        let torch = plan(&["--trainer", "torch", "--trials", "torchvision,stokehold", "--amp"]).unwrap();
        assert_eq!(
            torch.trainer,
            TrainerPlan::Torch(TorchOptions {
                device: "auto".into(),
                amp: true
            })
        );
    }

    #[test]
    fn pythons_are_given_for_all_or_for_one() {
        let given = plan(&[
            "--trials",
            "torchvision,dali",
            "--python",
            "/a/python",
            "--python",
            "dali=/b/python",
        ])
        .unwrap();
        let expected = |of_all| {
            let pythons = [("", of_all), ("dali", "/b/python")];
            BTreeMap::from(pythons.map(|(trial, path)| (trial.to_owned(), PathBuf::from(path))))
        };
        assert_eq!(given.pythons, expected("/a/python"));
        let one = plan(&["--trials", "torchvision,dali", "--python", "dali=/b/python"]).unwrap();
        assert_eq!(one.pythons, expected("python3"));
    }

    #[test]
    fn what_does_not_go_together_is_refused() {
        for (words, text) in [
            (
                &["--accelerator", "TPU"][..],
                "there is no accelerator 'TPU': choose one of V100, ",
            ),
            (
                &["--images-per-second", "3", "--trainer", "torch"],
                "are for --trainer emulated",
            ),
            (&["--share", "0"], "--share 0: give a number above 0, at most 1"),
            (
                &["--trainer", "emulated", "--device", "cpu"],
                "--device is for --trainer burn or torch",
            ),
            (
                &["--trainer", "torch", "--device", "vulkan"],
                "PyTorch trains on auto, cpu or cuda",
            ),
            (&["--amp"], "--amp is for --trainer torch"),
            (&["--trials", "fused,jax"], "there is no trial 'jax'"),
            (
                &["--trials", "dali,ffcv", "--python", "jax=/x"],
                "there is no trial 'jax'",
            ),
            (&["--as-published", "--loads", "1"], "cannot be used with"),
            (&["--interval", "1ms"], "100 ms"),
        ] {
            let error = plan(words).unwrap_err();
            assert!(error.contains(text), "{words:?}: {error}");
        }
    }
}
