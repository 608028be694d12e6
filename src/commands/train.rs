//! `stokehold train`: train a classifier on a folder of images, or a segmenter on pairs of images and masks.
//!
//! Ctrl-C (or SIGTERM, which clusters send) finishes the step, writes a checkpoint and exits with 130; a second one
//! exits at once.

mod augment;
mod options;
mod recipe;
mod watch;

use crate::terminal::{self, note};
use std::error::Error;
use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use stokehold_storage::Dataset;
use stokehold_train::TrainerChoice;
use stokehold_train::run::RunFolder;

use crate::{damage, interrupt, shell};

pub use options::Args;

/// Runs the subcommand.
///
/// # Errors
/// Errors of the options, the data or the run. `is_input` of [`stokehold_train::TrainError`] says whether the
/// user's input is at fault (exit code 2) or the work failed (1).
pub fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    let args = recipe::follow(args);
    let resuming = args.resume;
    let resume = resume_command(resuming);
    let config = args.into_config()?;
    let mut dataset = Dataset::open(&config.data, config.val_split, config.seed)?;
    damage::warn_of(&dataset);
    if let Some(max_images) = config.max_images {
        dataset.limit(max_images);
    }
    let stop = match config.trainer {
        TrainerChoice::Burn => interrupt::flag()?,
        TrainerChoice::Emulated { .. } => {
            interrupt::flag_for("stopping after this step; press Ctrl-C again to end at once")?
        }
    };
    let mut watch = watch::Watch::new();
    if resuming && !RunFolder::new(&config.run_dir).record().exists() {
        note!(
            "{}: there is no run to resume; starting it",
            config.run_dir.display()
        );
    }
    let work = if resuming {
        stokehold_train::resume
    } else {
        stokehold_train::fit
    };
    let summary = work(&config, dataset, &mut watch, stop)?;
    drop(watch);
    writeln!(terminal::out(), "{summary}")?;
    if summary.interrupted {
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

/// This command with `--resume`; in the same folder it names the same run.
fn resume_command(resuming: bool) -> String {
    let mut words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if !resuming {
        // Directly after the subcommand, because words after `--` are not options.
        let behind = words
            .iter()
            .position(|word| word == "train")
            .map_or(0, |at| at + 1);
        words.insert(behind, "--resume".into());
    }
    shell::again(words)
}
