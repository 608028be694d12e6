//! `stokehold job trainer`: Stokehold's own trainer as the script of a job. It finds data, options and folders in the
//! variables of the contract, so it runs in a job here and in an image on SageMaker (examples/sagemaker).

use std::collections::BTreeMap;
use std::env;
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde_json::Value;
use stokehold_train::run::RunFolder;

use crate::failure::Usage;
use crate::files::named;
use crate::supervise::{self, Signals};

/// Options of `stokehold train` that a job determines.
const OF_THE_JOB: [&str; 7] = [
    "data",
    "resume",
    "requeue",
    "runs",
    "name",
    "help",
    "rank-timeout",
];

/// The run's folder below the checkpoints.
const RUN: &str = "run";

/// Trains, and leaves the model in `SM_MODEL_DIR` and the run without its checkpoints in `SM_OUTPUT_DATA_DIR`.
///
/// # Errors
/// A variable is missing, a channel or a hyperparameter is none of the trainer's; a file cannot be written.
pub fn run() -> Result<ExitCode, Box<dyn Error>> {
    let runs = PathBuf::from(variable("SM_CHECKPOINT_DIR")?);
    let (model, output) = (variable("SM_MODEL_DIR")?, variable("SM_OUTPUT_DATA_DIR")?);
    let signals = Signals::block()?;
    let mut command = Command::new(env::current_exe()?);
    command
        .arg("train")
        .arg(data()?)
        .arg("--resume")
        .arg("--runs")
        .arg(&runs)
        .args(["--name", RUN])
        .args(options(&json("SM_HPS")?)?);
    let child = signals.restore_in(&mut command).spawn()?;
    let ended = supervise::follow(&child, &signals)?;
    if ended.code == 0 {
        let run = RunFolder::new(runs.join(RUN));
        for file in [run.model(), run.ema()] {
            if let Some(name) = file.file_name().filter(|_| file.exists()) {
                copy(&file, &Path::new(&model).join(name))?;
            }
        }
        let kept = Path::new(&output).join(RUN);
        for entry in fs::read_dir(run.path()).map_err(|error| named(run.path(), &error))? {
            let entry = entry?;
            if entry.path() != run.checkpoints() && entry.file_name() != crate::files::LOCK {
                copy(&entry.path(), &kept.join(entry.file_name()))?;
            }
        }
    }
    Ok(ExitCode::from(ended.code))
}

fn variable(name: &str) -> Result<String, Usage> {
    env::var(name).map_err(|_| {
        Usage(format!(
            "{name} is not set: this is the script of a job; run it by `stokehold job run`, or in an image as in examples/sagemaker"
        ))
    })
}

fn json<T: serde::de::DeserializeOwned>(name: &str) -> Result<T, Usage> {
    serde_json::from_str(&variable(name)?).map_err(|error| Usage(format!("{name}: {error}")))
}

/// The data set: the folder of the channels train and val, or the channel train alone.
fn data() -> Result<PathBuf, Box<dyn Error>> {
    let channels: Vec<String> = json("SM_CHANNELS")?;
    let has = |name: &str| channels.iter().any(|known| known == name);
    if !has("train") {
        let there = match channels.is_empty() {
            true => "none".to_owned(),
            false => channels.join(", "),
        };
        let text =
            format!("the trainer reads the channel train, and val if there is one; this job has {there}");
        return Err(Usage(text).into());
    }
    let facts: BTreeMap<String, Value> = json("SM_INPUT_DATA_CONFIG")?;
    for name in ["train", "val"] {
        if facts
            .get(name)
            .is_some_and(|facts| facts["TrainingInputMode"] == "Pipe")
        {
            let text = format!(
                "channel {name}: the trainer reads files, in any order; take the mode File or FastFile"
            );
            return Err(Usage(text).into());
        }
    }
    let train = PathBuf::from(variable("SM_CHANNEL_TRAIN")?);
    Ok(match (has("val"), train.parent()) {
        (true, Some(folder)) => folder.to_owned(),
        _ => train,
    })
}

/// Hyperparameters as options of `stokehold train`: `batch_size` or `batch-size`; true for an option without a value.
fn options(hyperparameters: &BTreeMap<String, Value>) -> Result<Vec<String>, Usage> {
    let mut words = Vec::new();
    for (name, value) in hyperparameters {
        let option = name.replace('_', "-");
        if OF_THE_JOB.contains(&option.as_str()) {
            return Err(Usage(format!(
                "hyperparameter {name}: the job determines it; leave it out"
            )));
        }
        match value {
            Value::Null | Value::Bool(false) => {}
            Value::Bool(true) => words.push(format!("--{option}")),
            Value::String(text) => words.push(format!("--{option}={text}")),
            Value::Number(number) => words.push(format!("--{option}={number}")),
            Value::Array(_) | Value::Object(_) => {
                return Err(Usage(format!(
                    "hyperparameter {name}: is no number, text or truth value; write it as `stokehold train` takes it"
                )));
            }
        }
    }
    Ok(words)
}

/// Copies a file, or a folder with all files in it.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if !from.is_dir() {
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).map_err(|error| named(folder, &error))?;
        }
        return fs::copy(from, to).map(drop).map_err(|error| named(from, &error));
    }
    for entry in fs::read_dir(from).map_err(|error| named(from, &error))? {
        let entry = entry?;
        copy(&entry.path(), &to.join(entry.file_name()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn hyperparameters_are_options() {
        let of = |value: Value| options(&serde_json::from_value(value).unwrap());
        let all = json!({"batch_size": 4, "lr": 0.5, "drop-last": true, "nesterov": false, "topk": null, "model": "resnet18"});
        assert_eq!(
            of(all).unwrap(),
            ["--batch-size=4", "--drop-last", "--lr=0.5", "--model=resnet18"]
        );
        for (wrong, says) in [
            (
                json!({"resume": true}),
                "hyperparameter resume: the job determines it",
            ),
            (json!({"runs": "/x"}), "hyperparameter runs"),
            (json!({"lr": [1]}), "hyperparameter lr: is no number"),
        ] {
            let found = of(wrong).unwrap_err().to_string();
            assert!(found.starts_with(says), "{found}");
        }
    }
}
