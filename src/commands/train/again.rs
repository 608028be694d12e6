//! `stokehold train --resume RUN`: continues with a run by what its folder says of it.

use std::error::Error;
use std::path::{Path, PathBuf};

use clap::{ArgMatches, CommandFactory};
use stokehold_train::TrainConfig;
use stokehold_train::run::{RunFolder, RunRecord};

use super::Args;
use super::recipe::is_given;
use crate::Cli;
use crate::failure::Usage;

/// A run that `--resume` names in the place of a data set; `None` where it is a data set.
///
/// # Errors
/// Its record cannot be read, or is gone.
pub fn named(args: &Args) -> Result<Option<(PathBuf, RunRecord)>, Box<dyn Error>> {
    let Some(path) = args.data.as_ref().filter(|_| args.resume) else {
        return Ok(None);
    };
    let folder = RunFolder::new(path);
    if let Some(record) = folder.read_record()? {
        return Ok(Some((path.clone(), record)));
    }
    if folder.metrics().is_file() || folder.checkpoints().is_dir() {
        return Err(Usage(format!(
            "{}: this run has no run.json, which says how it was begun; restore the file, or begin another run",
            path.display()
        ))
        .into());
    }
    Ok(None)
}

/// The configuration with which the run continues: that of its record, with more epochs and with whatever does not change its results, if
/// the command line says so.
///
/// # Errors
/// [`Usage`] for an option that would make it another run.
pub fn config(mut args: Args, (path, record): (PathBuf, RunRecord)) -> Result<TrainConfig, Box<dyn Error>> {
    let command = Cli::command();
    let matches = command.clone().try_get_matches_from(std::env::args_os())?;
    let given = given(&command, &matches);
    let mut config = record.config;
    args.data = Some(config.data.clone());
    let mut own = args.into_config()?;
    // A resumed job may have another folder, which the environment names.
    let (asked, before) = (own.cache.take(), config.cache.take());
    let mut cache = asked.or(before);
    // The text of a file's name may not be the name, so the folders do not become text.
    (own.run_dir, config.run_dir) = Default::default();
    let (mut continued, own_fields) = (serde_json::to_value(&config)?, serde_json::to_value(&own)?);
    for option in given {
        let field = match option.as_str() {
            // These set nothing of the run.
            "data" | "cache" | "resume" | "requeue" | "rank_timeout" | "rules" | "on_fire"
            | "tensorboard" => continue,
            "epochs" if own.epochs < config.epochs => {
                return Err(fewer(&path, own.epochs, config.epochs).into());
            }
            "no_cache" => {
                cache = None;
                continue;
            }
            "loader" => "servers",
            "gpu_decode" | "gpu_memory_budget" => "gpu",
            other => other,
        };
        if field != "epochs" && !TrainConfig::FREE.contains(&field) {
            return Err(Usage(format!(
                "--{}: {} continues as it began; leave this out, or begin another run without --resume",
                option.replace('_', "-"),
                path.display()
            ))
            .into());
        }
        continued[field] = own_fields[field].clone();
    }
    Ok(TrainConfig {
        run_dir: path,
        cache,
        ..serde_json::from_value(continued)?
    })
}

fn fewer(path: &Path, asked: u64, has: u64) -> Usage {
    Usage(format!(
        "--epochs {asked}: {} is a run of {has}; give more, or leave it out",
        path.display()
    ))
}

/// The options of `train` that the command line has, by their ids.
fn given(command: &clap::Command, matches: &ArgMatches) -> Vec<String> {
    let Some((name, of_train)) = matches.subcommand() else {
        return Vec::new();
    };
    let Some(train) = command.find_subcommand(name) else {
        return Vec::new();
    };
    let ids = train.get_arguments().map(|argument| argument.get_id().as_str());
    ids.filter(|id| is_given(of_train, id))
        .map(str::to_owned)
        .collect()
}
