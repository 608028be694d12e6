//! How the program says what went wrong, and with which exit code it ends.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use stokehold_diagnose::rules::ParameterError;
use stokehold_jobs::JobError;
use stokehold_loader::LoaderError;
use stokehold_objects::ObjectError;
use stokehold_pipeline::PipelineError;
use stokehold_prepare::PrepareError;
use stokehold_profile::ProfileError;
use stokehold_storage::StorageError;
use stokehold_train::TrainError;
use stokehold_tune::TuneError;

use crate::terminal::note;

/// What was given on the command line does not make sense, found after it was parsed.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Usage {}

/// Prints an error, and returns 2 where the input is at fault and 1 where the work failed. A reader of the output that
/// went away is no failure.
pub fn report(error: &(dyn Error + 'static)) -> ExitCode {
    if error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    {
        return ExitCode::SUCCESS;
    }
    note!("error: {error}");
    ExitCode::from(if is_input(error) { 2 } else { 1 })
}

fn is_input(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<TrainError>() {
        return error.is_input();
    }
    if let Some(error) = error.downcast_ref::<JobError>() {
        return error.is_input();
    }
    if let Some(error) = error.downcast_ref::<PrepareError>() {
        return error.is_input();
    }
    if let Some(error) = error.downcast_ref::<LoaderError>() {
        return !matches!(error, LoaderError::Spawn(_) | LoaderError::WorkerPanicked { .. });
    }
    if let Some(error) = error.downcast_ref::<StorageError>() {
        return error.is_input();
    }
    if let Some(error) = error.downcast_ref::<ObjectError>() {
        return error.is_input();
    }
    if let Some(error) = error.downcast_ref::<ProfileError>() {
        return error.is_input();
    }
    if let Some(error) = error.downcast_ref::<TuneError>() {
        return error.is_input();
    }
    error.is::<Usage>() || error.is::<ParameterError>() || error.is::<PipelineError>()
}
