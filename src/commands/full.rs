//! The subcommands of the feature `full`.

use std::error::Error;
use std::process::ExitCode;

use clap::Subcommand;
use stokehold_jobs::JobError;
use stokehold_objects::ObjectError;
use stokehold_remote::RemoteError;
use stokehold_sagemaker::{ImportError, SageMakerError};
use stokehold_scale::ScaleError;
use stokehold_studio::StudioError;
use stokehold_transform::TransformError;
use stokehold_trials::TrialsError;
use stokehold_tune::TuneError;

use super::{job, scale, serve, studio, transform, tune};
use crate::failure;

/// What a build without the feature leaves out.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a training script as SageMaker would, and look at what was run.
    Job(job::Args),
    /// Find the hyperparameters of a job.
    Tune(tune::Args),
    /// Show runs, jobs and studies in a browser, live.
    Studio(studio::Args),
    /// Make batches for trainers on other machines.
    Serve(Box<serve::Args>),
    /// Predict many images, by the contract of SageMaker's batch transform.
    Transform(Box<transform::Args>),
    /// Predict what a recorded run would take and cost on more machines.
    Scale(scale::Args),
}

/// Runs a subcommand.
///
/// # Errors
/// As the subcommand.
pub fn run(command: Command) -> Result<ExitCode, Box<dyn Error>> {
    match command {
        Command::Job(args) => job::run(args),
        Command::Tune(args) => tune::run(args),
        Command::Studio(args) => studio::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Transform(args) => transform::run(&args),
        Command::Scale(args) => scale::run(&args),
    }
}

/// Whether the input is at fault for an error of these subcommands' crates; none if it is not one.
pub fn is_input(error: &(dyn Error + 'static)) -> Option<bool> {
    let asked = [
        failure::ask::<ImportError>,
        failure::ask::<JobError>,
        failure::ask::<ObjectError>,
        failure::ask::<RemoteError>,
        failure::ask::<SageMakerError>,
        failure::ask::<ScaleError>,
        failure::ask::<StudioError>,
        failure::ask::<TransformError>,
        failure::ask::<TrialsError>,
        failure::ask::<TuneError>,
    ];
    asked.into_iter().find_map(|ask| ask(error))
}
