//! `stokehold train`: train a classifier on a folder of images, or a segmenter on pairs of images and masks.
//!
//! Ctrl-C (or SIGTERM and SIGUSR1, which clusters send) finishes the step, writes a checkpoint and exits with 130; a second one
//! exits at once.

mod again;
mod augment;
mod options;
mod recipe;
mod rules;
mod watch;

use crate::terminal::{self, note};
use std::error::Error;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use stokehold_base::shell;
use stokehold_pipeline::Executor;
use stokehold_ranks::{RequeueError, requeue};
use stokehold_storage::Dataset;
use stokehold_train::run::RunFolder;
use stokehold_train::{Ranks, TrainError, TrainerChoice};

use crate::failure::Usage;
use crate::{damage, interrupt, ranks};

pub use options::Args;

/// Runs the subcommand.
///
/// # Errors
/// Errors of the options, the data or the run. `is_input` of [`stokehold_train::TrainError`] says whether the
/// user's input is at fault (exit code 2) or the work failed (1).
pub fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    ranks::together(args.rank_timeout()?, |ranks| train(args, ranks))
}

/// Trains, alone or with other ranks.
fn train(args: Args, ranks: &Ranks) -> Result<ExitCode, Box<dyn Error>> {
    let again = again::named(&args)?;
    let args = recipe::follow(args)?;
    let resuming = args.resume;
    let requeue = args.requeue;
    let rules = args.rules.live()?.filter(|_| ranks.is_first());
    let tensorboard = args.rules.tensorboard && ranks.is_first();
    // The first rank of a machine generates the default data set, and the others find it.
    if !ranks.is_first() {
        ranks.gather(Vec::new()).map_err(TrainError::from)?;
    }
    let config = match again {
        Some(run) => again::config(args, run)?,
        None => args.into_config()?,
    };
    let may_be_gpu = matches!(config.executor, None | Some(Executor::Gpu));
    crate::gpu::check(config.gpu, may_be_gpu)?;
    let resume = resume_command(&config.run_dir);
    if ranks.is_first() {
        ranks.gather(Vec::new()).map_err(TrainError::from)?;
    }
    if ranks.is_first() && config.schedule.warmup_epochs > config.epochs as f64 {
        note!(
            "the warm-up ({} epochs) is longer than the run ({}): the learning rate reaches only {:.0} % of {}",
            config.schedule.warmup_epochs,
            config.epochs,
            100.0 * config.epochs as f64 / config.schedule.warmup_epochs,
            config.lr
        );
    }
    let mut dataset = Dataset::open(&config.data, config.val_split, config.seed)?;
    if ranks.is_first() {
        damage::warn_of(&dataset);
    }
    if let Some(max_images) = config.max_images {
        dataset.limit(max_images);
    }
    let stop = match config.trainer {
        TrainerChoice::Burn => interrupt::flag_of_checkpoints()?,
        TrainerChoice::Emulated { .. } => {
            interrupt::flag_for("stopping after this step; press Ctrl-C again to end at once")?
        }
    };
    let mut watch = rules::Judging::new(rules, config.run_dir.clone(), tensorboard, stop);
    if ranks.is_first() && resuming && !RunFolder::new(&config.run_dir).record().exists() {
        note!(
            "{}: there is no run to resume; starting it",
            config.run_dir.display()
        );
    }
    let work = if resuming {
        stokehold_train::resume_on
    } else {
        stokehold_train::fit_on
    };
    let summary = match work(ranks, &config, dataset, &mut watch, stop) {
        Err(error) => {
            if let TrainError::Diverged { loss, .. } = &error {
                watch.diverged(*loss);
            }
            return Err(error.into());
        }
        Ok(summary) => summary,
    };
    let stopped_by = watch.stopped_by().map(str::to_owned);
    drop(watch);
    if !ranks.is_first() {
        return Ok(match summary.interrupted {
            true => ExitCode::from(interrupt::EXIT_CODE),
            false => ExitCode::SUCCESS,
        });
    }
    writeln!(terminal::out(), "{summary}")?;
    if let Some(rule) = stopped_by.filter(|_| summary.interrupted) {
        return Err(format!("{rule}; to continue all the same: {resume}").into());
    }
    if summary.interrupted {
        if requeue && interrupt::by_limit() {
            requeue_job()?;
        }
        match config.trainer {
            TrainerChoice::Burn if config.keep_checkpoints > 0 => {
                note!("interrupted; this continues the run: {resume}");
            }
            TrainerChoice::Burn => {}
            TrainerChoice::Emulated { .. } => {
                note!("interrupted; an emulated run has no checkpoint: this begins it again: {resume}");
            }
        }
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    }
    Ok(ExitCode::SUCCESS)
}

/// The command that continues with a run, in the same folder.
fn resume_command(run: &Path) -> String {
    // What `launch` was called with, up to this command.
    let launched = std::env::var(super::launch::CALLED).unwrap_or_default();
    let launched = launched
        .split('\n')
        .filter(|word| !word.is_empty())
        .map(OsString::from);
    let words = ["train".into(), "--resume".into(), run.as_os_str().to_owned()];
    shell::again(launched.chain(words))
}

/// Puts this job of Slurm back into the queue.
fn requeue_job() -> Result<(), Box<dyn Error>> {
    match requeue() {
        Ok(job) => note!(
            "the job {job} is back in Slurm's queue, and continues from the checkpoint when it starts again"
        ),
        Err(error @ RequeueError::NoJob) => {
            return Err(Usage(format!("--requeue: {error}; the checkpoint is kept")).into());
        }
        Err(error) => return Err(format!("{error}; the checkpoint is kept").into()),
    }
    Ok(())
}
