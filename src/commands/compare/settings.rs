//! The common settings of both trials of all cells, and the configuration of a run.

use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use stokehold_loader::{BadImagePolicy, Workers};
use stokehold_pipeline::Pipeline;
use stokehold_train::device::DeviceChoice;
use stokehold_train::model::Arch;
use stokehold_train::optim::OptimizerConfig;
use stokehold_train::schedule::{ScheduleConfig, ScheduleKind};
use stokehold_train::{AnyExecutor, ExecutorChoice, GpuOptions, TrainConfig, TrainError, TrainerChoice};

/// Batches over which each ceiling is measured after a run.
const CEILING_BATCHES: usize = 8;

/// The two executors to compare; parses from `per-op,fused`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trials(pub [AnyExecutor; 2]);

impl FromStr for Trials {
    type Err = Box<dyn Error + Send + Sync>;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let executors: Vec<AnyExecutor> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
        let two = executors.try_into().map_err(|found: Vec<AnyExecutor>| {
            format!(
                "{} trials: give two, A and B, each per-op, fused or gpu",
                found.len()
            )
        })?;
        Ok(Self(two))
    }
}

/// Everything that determines a comparison's numbers, except its list of cells.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The version of Stokehold.
    pub stokehold: String,
    /// The data set's folder.
    pub data: PathBuf,
    /// Share of each class that was split off for validation.
    pub val_split: Option<f64>,
    /// The most training images to use.
    pub max_images: Option<usize>,
    /// The executors of A and B.
    pub trials: Trials,
    pub epochs: u64,
    pub batch_size: usize,
    /// Width and height of the images that the network sees.
    pub image_size: u32,
    pub workers: Workers,
    pub seed: u64,
    pub lr: f64,
    pub momentum: f64,
    pub device: DeviceChoice,
    /// Options of the executor `gpu`, if it is one of the two.
    #[serde(default, skip_serializing_if = "is_default")]
    pub gpu: GpuOptions,
    /// The emulated accelerator of each network; none where Burn trains.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub emulated: Vec<(Arch, TrainerChoice)>,
}

/// Default options are not stored, so that older comparisons keep their folder's name.
fn is_default(options: &GpuOptions) -> bool {
    *options == GpuOptions::default()
}

impl Settings {
    /// Checks every range that can be checked without reading the data.
    pub fn check(&self, models: &[Arch], loads: &[u32]) -> Result<(), TrainError> {
        for &model in models {
            for &load in loads {
                for executor in self.trials.0 {
                    self.config(model, load, executor, PathBuf::new()).check()?;
                }
            }
        }
        Ok(())
    }

    /// A run of the comparison.
    pub fn config(&self, model: Arch, load: u32, executor: AnyExecutor, run_dir: PathBuf) -> TrainConfig {
        let size = self.image_size;
        // 256 for 224, as usual.
        let resize = (f64::from(size) * 256.0 / 224.0).round() as u32;
        TrainConfig {
            data: self.data.clone(),
            val_split: self.val_split,
            max_images: self.max_images,
            arch: model,
            trainer: self
                .emulated
                .iter()
                .find(|(known, _)| *known == model)
                .map_or(TrainerChoice::Burn, |(_, trainer)| trainer.clone()),
            weights: None,
            freeze_backbone: false,
            pipeline: Pipeline::published(load, size),
            eval_pipeline: Pipeline::imagenet_eval(resize, size),
            executor: ExecutorChoice::Of(executor),
            gpu: self.gpu,
            exif: false,
            epochs: self.epochs,
            batch_size: self.batch_size,
            drop_last: false,
            seed: self.seed,
            optimizer: OptimizerConfig::Sgd {
                momentum: self.momentum,
                weight_decay: 0.0,
                nesterov: false,
            },
            lr: self.lr,
            schedule: ScheduleConfig {
                kind: ScheduleKind::Constant,
                warmup_epochs: 0.0,
            },
            label_smoothing: 0.0,
            clip_norm: None,
            topk: 5,
            bad_images: BadImagePolicy::Skip,
            bad_image_limit: 100,
            workers: self.workers,
            prefetch: 0,
            device: self.device,
            keep_checkpoints: 1,
            checkpoint_steps: None,
            log_every: 10,
            ceiling_batches: CEILING_BATCHES,
            run_dir,
        }
    }

    /// `compare/<data>-<hash of the settings>`, so that other settings get another folder.
    pub fn default_folder(&self) -> PathBuf {
        let text = serde_json::to_string(self).unwrap_or_else(|_| format!("{self:?}"));
        // FNV-1a, 32 bits.
        let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        Path::new("compare").join(format!("{}-{hash:08x}", self.data_name()))
    }

    /// The last part of the data set's path.
    pub fn data_name(&self) -> String {
        let name = self.data.file_name();
        name.map_or_else(|| "data".to_owned(), |name| name.to_string_lossy().into_owned())
    }

    /// The differences from `now`, a phrase for each setting.
    pub fn changes(&self, now: &Self) -> Result<Vec<String>, serde_json::Error> {
        let (before, now) = (serde_json::to_value(self)?, serde_json::to_value(now)?);
        let (Some(before), Some(now)) = (before.as_object(), now.as_object()) else {
            return Ok(Vec::new());
        };
        // A setting that is not stored has its default.
        let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
        let words = |value: Option<&Value>| value.map_or("the default".to_owned(), Value::to_string);
        let changed = names.into_iter().filter_map(|name| {
            let (value, other) = (before.get(name), now.get(name));
            if name == "emulated" {
                // Five networks with their speeds are too long for a message.
                return (value != other).then(|| "the emulated accelerator is another one".to_owned());
            }
            (value != other).then(|| {
                let (value, other) = (words(value), words(other));
                format!("{} was {value} and is {other} now", name.replace('_', " "))
            })
        });
        Ok(changed.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stokehold_pipeline::Executor;

    const PER_OP: AnyExecutor = AnyExecutor::Cpu(Executor::PerOp);
    const FUSED: AnyExecutor = AnyExecutor::Cpu(Executor::Fused);

    #[test]
    fn trials_are_two_executors() {
        let parse = |text: &str| text.parse::<Trials>().map_err(|error| error.to_string());
        assert_eq!(parse("fused,per-op"), Ok(Trials([FUSED, PER_OP])));
        assert_eq!(
            parse("fused"),
            Err("1 trials: give two, A and B, each per-op, fused or gpu".to_owned())
        );
        assert!(parse("fused,slow").unwrap_err().contains("slow"));
    }

    #[test]
    fn a_setting_that_is_not_stored_has_changed_from_its_default() {
        use super::super::report::tests::settings;
        let plain = settings();
        let mut gpu = settings();
        gpu.gpu.budget = Some(1 << 30);
        for (before, now) in [(&plain, &gpu), (&gpu, &plain)] {
            let changes = before.changes(now).unwrap();
            assert!(
                changes.len() == 1 && changes[0].starts_with("gpu was "),
                "{changes:?}"
            );
        }
    }

    #[test]
    fn trials_differ_in_the_executor_only() {
        let settings = crate::commands::compare::report::tests::settings();
        let [a, b] =
            [PER_OP, FUSED].map(|executor| settings.config(Arch::Resnet18, 4, executor, "runs/one".into()));
        assert_ne!(a, b);
        assert_eq!(
            TrainConfig {
                executor: ExecutorChoice::Of(FUSED),
                ..a
            },
            b
        );
    }

    #[test]
    fn other_settings_are_named_and_have_another_folder() {
        let settings = crate::commands::compare::report::tests::settings();
        let other = Settings {
            batch_size: 8,
            ..settings.clone()
        };
        assert_eq!(settings.changes(&settings).unwrap(), Vec::<String>::new());
        assert_eq!(
            settings.changes(&other).unwrap(),
            ["batch size was 32 and is 8 now"]
        );
        assert_ne!(settings.default_folder(), other.default_folder());
        assert!(settings.default_folder().starts_with("compare"));
    }
}
