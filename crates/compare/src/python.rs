//! The files of the trials in Python: the programs, the samples and their order.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;
use serde_json::{Value, json};
use stokehold_base::there::if_there;
use stokehold_loader::{Loader, LoaderOptions};
use stokehold_storage::{Images, Source};
use stokehold_train::TrainerChoice;
use stokehold_train::model::Arch;
use tempfile::TempDir;

use crate::CompareError;
use crate::output::WORK;
use crate::plan::{Plan, TrainerPlan, Trial};
use crate::process::{Ended, TrialProcess};

/// What says of a Python which of its trials' packages it lacks.
const NEEDS: &str = include_str!("../trials/needs.py");
/// The most Pythons whose lacks are said.
const SAID: usize = 5;

/// The programs, which lie next to this crate's sources.
const PROGRAMS: [(&str, &str); 13] = [
    (
        "albumentations_cv2.py",
        include_str!("../trials/albumentations_cv2.py"),
    ),
    ("dali.py", include_str!("../trials/dali.py")),
    ("emulated.py", include_str!("../trials/emulated.py")),
    ("fast_images.py", include_str!("../trials/fast_images.py")),
    ("ffcv_jpeg.py", include_str!("../trials/ffcv_jpeg.py")),
    ("needs.py", NEEDS),
    ("spdl_threads.py", include_str!("../trials/spdl_threads.py")),
    ("spec.py", include_str!("../trials/spec.py")),
    (
        "stokehold_python.py",
        include_str!("../trials/stokehold_python.py"),
    ),
    ("torch_trainer.py", include_str!("../trials/torch_trainer.py")),
    ("torchvision_pil.py", include_str!("../trials/torchvision_pil.py")),
    ("torchvision_v2.py", include_str!("../trials/torchvision_v2.py")),
    ("trial.py", include_str!("../trials/trial.py")),
];

/// Asks every Python of the plan for what it lacks of what its trials need. A plan of native trials needs none.
///
/// # Errors
/// A Python does not start, does not answer, or lacks a package: all of them, in one message.
pub fn check_pythons(plan: &Plan, stop: &AtomicBool) -> Result<(), CompareError> {
    let mut trials: BTreeMap<PathBuf, Vec<Trial>> = BTreeMap::new();
    for &trial in plan.trials.iter().filter(|trial| trial.executor().is_none()) {
        let of_python = trials.entry(python(plan, trial)).or_default();
        if !of_python.contains(&trial) {
            of_python.push(trial);
        }
    }
    let torch = matches!(plan.trainer, TrainerPlan::Torch(_));
    let mut problems = Vec::new();
    for (python, trials) in &trials {
        match lacks(python, trials, torch, stop) {
            Ok(None) => {}
            // The caller sees the flag, too.
            Err(Ended::Stopped) => return Ok(()),
            Ok(Some(lacks)) => problems.push(format!("{} lacks {lacks}", python.display())),
            Err(Ended::Failed(failure)) => {
                problems.push(format!("{} cannot be used: {}", python.display(), failure.text()));
            }
        }
    }
    let more = problems.len().saturating_sub(SAID);
    problems.truncate(SAID);
    if more > 0 {
        problems.push(format!("and {more} more Pythons"));
    }
    match &problems[..] {
        [] => Ok(()),
        problems => Err(CompareError::Plan(format!(
            "the trials in Python cannot run: {}; install what is missing, or name a Python that has it: --python PATH, or of one trial \
             --python TRIAL=PATH",
            problems.join("; ")
        ))),
    }
}

/// What a Python lacks, in words; `None` if it has all that its trials import.
fn lacks(python: &Path, trials: &[Trial], torch: bool, stop: &AtomicBool) -> Result<Option<String>, Ended> {
    let mut command = Command::new(python);
    command.args(["-c", NEEDS]);
    let asked = json!({"trials": trials, "torch": torch}).to_string();
    let lacks = TrialProcess::start(command, &asked, None)
        .map_err(Ended::Failed)?
        .lacks(stop)?;
    let of = |needing: &[String]| match needing.len() == trials.len() {
        true => String::new(),
        false => format!(" (for {})", needing.join(", ")),
    };
    let modules: Vec<String> = lacks
        .modules
        .iter()
        .map(|(module, needing)| format!("{module}{}", of(needing)))
        .collect();
    Ok((!modules.is_empty()).then(|| format!("{} ({})", modules.join(", "), lacks.install.join("; "))))
}

/// A folder with everything that a trial in Python reads, which is there as long as this is.
pub(crate) struct Files {
    dir: TempDir,
}

#[derive(Serialize)]
struct Samples<'a> {
    files: Vec<&'a Path>,
    labels: Vec<u32>,
    classes: usize,
}

/// The first line of a trial's input.
#[derive(Serialize)]
struct Spec<'a> {
    trial: Trial,
    samples: &'a Path,
    order: &'a Path,
    load: u32,
    image_size: u32,
    batch_size: usize,
    workers: usize,
    seed: u64,
    model: Arch,
    scratch: &'a Path,
    trainer: Value,
}

impl Files {
    /// Writes the programs, the samples and their order into a folder of the comparison's. What a call that was killed has left
    /// there is removed.
    ///
    /// # Errors
    /// The images are not files of a folder, or the folder cannot be written.
    pub fn write(plan: &Plan, images: &Images, out: &Path) -> Result<Self, CompareError> {
        let Images::Folder(folder) = images else {
            return Err(CompareError::Plan(format!(
                "{}: the trials in Python read a folder of image files, and this is none; compare native trials here",
                plan.data.display()
            )));
        };
        let path = out.join(WORK);
        let made = if_there(fs::remove_dir_all(&path))
            // The programs run in another folder than this process.
            .and_then(|_| fs::canonicalize(out))
            .and_then(|out| {
                tempfile::Builder::new()
                    .prefix(WORK)
                    .rand_bytes(0)
                    .tempdir_in(out)
            });
        let dir = made.map_err(|source| CompareError::Io { path, source })?;
        let files = Self { dir };
        for (name, text) in PROGRAMS {
            files.put(name, text.as_bytes())?;
        }
        let samples = Samples {
            files: folder
                .samples
                .iter()
                .map(|sample| sample.path.as_path())
                .collect(),
            labels: (0..images.len()).map(|sample| images.class(sample)).collect(),
            classes: folder.classes.len(),
        };
        let json = serde_json::to_vec(&samples).map_err(|error| {
            CompareError::Plan(format!(
                "{}: the trials in Python need names of files that are Unicode: {error}",
                plan.data.display()
            ))
        })?;
        files.put("samples.json", &json)?;
        files.put("order.u32", &order(plan, images)?)?;
        Ok(files)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), CompareError> {
        let path = self.dir.path().join(name);
        fs::write(&path, bytes).map_err(|source| CompareError::Io { path, source })
    }

    /// The command of a trial, its first line of input, and its folder for files, which is removed when it is dropped.
    pub fn command(
        &self,
        plan: &Plan,
        trial: Trial,
        model: Arch,
        load: u32,
    ) -> Result<(Command, String, TempDir), CompareError> {
        let here = self.dir.path();
        let scratch = TempDir::new_in(here).map_err(|source| CompareError::Io {
            path: here.to_owned(),
            source,
        })?;
        let trainer = match (&plan.trainer, plan.trainer_of(model)) {
            (TrainerPlan::Torch(options), _) => json!({"torch": {
                "device": options.device, "amp": options.amp, "lr": plan.lr, "momentum": Plan::MOMENTUM,
            }}),
            (
                _,
                TrainerChoice::Emulated {
                    images_per_second, ..
                },
            ) => {
                json!({"emulated": {"images_per_second": images_per_second}})
            }
            (_, TrainerChoice::Burn) => {
                return Err(CompareError::Plan(format!("{trial} cannot feed Burn")));
            }
        };
        let spec = serde_json::to_string(&Spec {
            trial,
            samples: &here.join("samples.json"),
            order: &here.join("order.u32"),
            load,
            image_size: plan.image_size,
            batch_size: plan.batch_size,
            workers: plan.workers,
            seed: plan.seed,
            model,
            scratch: scratch.path(),
            trainer,
        })
        .map_err(|error| {
            CompareError::Plan(format!(
                "{}: the trials in Python need a folder whose name is Unicode; give another one with --out: {error}",
                here.display()
            ))
        })?;
        let mut command = Command::new(python(plan, trial));
        command
            .arg("-B")
            .arg(here.join("trial.py"))
            .env("PYTHONUNBUFFERED", "1")
            // Of all trials, only the trial cached has a cache.
            .env_remove(stokehold_cache::VARIABLE);
        Ok((command, spec, scratch))
    }
}

/// The Python of a trial: its own, that of all, or `python3`.
fn python(plan: &Plan, trial: Trial) -> PathBuf {
    let named = plan.pythons.get(trial.name()).or_else(|| plan.pythons.get(""));
    named.cloned().unwrap_or_else(|| "python3".into())
}

/// The order of the native trials, epoch after epoch.
fn order(plan: &Plan, images: &Images) -> Result<Vec<u8>, CompareError> {
    let options = LoaderOptions {
        batch_size: plan.batch_size,
        shuffle: true,
        seed: plan.seed,
        drop_last: true,
        ..LoaderOptions::default()
    };
    let pipeline = stokehold_pipeline::Pipeline::published(1, plan.image_size);
    let loader = Loader::new(Arc::new(images.clone()), pipeline, options)?;
    let mut bytes = Vec::new();
    for epoch in 0..plan.period(images.len()).get() {
        for sample in loader.order(epoch) {
            bytes.extend_from_slice(&(sample as u32).to_le_bytes());
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_every_trial_needs_is_known() {
        for trial in Trial::ALL.into_iter().filter(|trial| trial.executor().is_none()) {
            assert!(NEEDS.contains(&format!("\"{trial}\"")), "{trial}");
        }
    }

    #[test]
    fn every_program_is_in_the_binary() {
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("trials");
        let mut there: Vec<String> = fs::read_dir(here)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".py") && !name.starts_with("test_"))
            .collect();
        there.sort();
        let mut known: Vec<&str> = PROGRAMS.iter().map(|(name, _)| *name).collect();
        known.sort_unstable();
        assert_eq!(known, there);
    }
}
