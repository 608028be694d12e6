//! A model and how images come to it, for the commands that use one.

use std::error::Error;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use indicatif::ProgressBar;
use stokehold_base::regular;
use stokehold_pipeline::{Executor, Pipeline};
use stokehold_train::TrainError;
use stokehold_train::device::DeviceChoice;
use stokehold_train::infer::{Classifier, Given, InferOptions};
use stokehold_train::model::Arch;
use stokehold_train::weights::WeightsError;

use crate::failure::Usage;
use crate::gpu::GpuArgs;
use crate::loader::WorkerArgs;
use crate::local::Local;
use crate::{files, progress};

/// The model.
#[derive(Debug, Clone, ClapArgs)]
pub struct ModelArgs {
    /// The model: a run's folder, a checkpoint's folder, or a .safetensors or .pth file. What `stokehold train` wrote
    /// needs no options; for other files give --arch and --classes.
    model: Local,
    /// The network of a file that does not say it: resnet18, resnet34, resnet50, resnet101, resnet152, fcn-resnet18,
    /// fcn-resnet50 or deeplabv3-resnet50.
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    arch: Option<Arch>,
    /// The classes of a file that does not say them: a text file, one name a line, in the order of the model.
    #[arg(long, value_name = "FILE", help_heading = "Model")]
    classes: Option<Local>,
    /// The pipeline of a file that does not say it: a preset, or a .toml or .json file [default: imagenet-eval; for a
    /// segmenter the whole image at 520 x 520].
    #[arg(long, value_name = "NAME|FILE", help_heading = "Model")]
    pipeline: Option<String>,
    /// Apply the EXIF orientation of photos, for a file that does not say whether to.
    #[arg(long, help_heading = "Model")]
    exif: bool,
}

/// How images come to the model, and what computes.
#[derive(Debug, Clone, Copy, ClapArgs)]
#[command(next_help_heading = "Machine")]
pub struct MachineArgs {
    /// Executor of the pipeline: fused (one resampling per image), per-op (operation after operation), or gpu (as
    /// fused, on the device that computes).
    #[arg(long, value_name = "EXECUTOR", default_value_t = Executor::default())]
    executor: Executor,
    /// Images per batch, at least 1.
    #[arg(long, value_name = "IMAGES", default_value_t = 32)]
    batch_size: usize,
    /// Device that computes: auto, cpu, cuda, vulkan, or one that `stokehold devices` lists, such as cuda:1.
    #[arg(long, default_value_t = DeviceChoice::Auto)]
    device: DeviceChoice,
    #[command(flatten)]
    threads: WorkerArgs,
    #[command(flatten)]
    gpu: GpuArgs,
}

impl ModelArgs {
    /// Opens the model on the device that these options name.
    ///
    /// # Errors
    /// A file cannot be read; the errors of [`Classifier::open`].
    pub fn open(&self, machine: &MachineArgs) -> Result<Classifier, Box<dyn Error>> {
        crate::gpu::check(machine.gpu.options(), machine.executor == Executor::Gpu)?;
        let pipeline = self.pipeline.as_deref().map(Pipeline::named).transpose()?;
        let given = Given {
            arch: self.arch,
            classes: self.classes.as_ref().map(read_classes).transpose()?,
            pipeline,
            exif: self.exif,
        };
        Classifier::open(&self.model, given, machine.device).map_err(|error| match error {
            TrainError::Weights(error) if matches!(*error, WeightsError::Mismatch { .. }) => {
                Usage(format!("{error} (--arch)")).into()
            }
            error => error.into(),
        })
    }

    /// The model's folder or file.
    pub fn path(&self) -> &Path {
        &self.model
    }

    /// The model's folder, pipeline and orientation for a script, which has no file that says them.
    ///
    /// # Errors
    /// The pipeline cannot be read; an option is given that scripts do not have.
    pub fn of_script(&self) -> Result<(PathBuf, Option<Pipeline>, bool), Box<dyn Error>> {
        if self.arch.is_some() || self.classes.is_some() {
            let reason = "--arch and --classes describe a model's file; a script knows its own";
            return Err(Usage(reason.to_owned()).into());
        }
        let pipeline = self.pipeline.as_deref().map(Pipeline::named).transpose()?;
        Ok((self.model.to_path_buf(), pipeline, self.exif))
    }
}

impl MachineArgs {
    /// The same for the library.
    pub fn options(&self) -> InferOptions {
        InferOptions {
            executor: self.executor,
            gpu: self.gpu.options(),
            batch_size: self.batch_size,
            workers: self.threads.workers,
        }
    }
}

/// A bar for the images that a model works on, with their rate and the time that is left.
pub fn bar(images: usize, what: &str) -> ProgressBar {
    progress::bar(
        images as u64,
        &format!("{what} {{bar:40}} {{pos}}/{{len}} {{per_sec}} {{eta}}"),
    )
}

fn read_classes(path: &Local) -> Result<Vec<String>, Usage> {
    let text =
        regular::read_to_string(path).map_err(|error| Usage(files::named(path, &error).to_string()))?;
    let names = text.lines().filter(|line| !line.is_empty());
    Ok(names.map(str::to_owned).collect())
}
