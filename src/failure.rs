//! Reports errors, and chooses the exit code.

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use stokehold_advise::AdviseError;
use stokehold_base::fault::Fault;
use stokehold_cache::CacheError;
use stokehold_compare::CompareError;
use stokehold_diagnose::rules::ParameterError;
use stokehold_loader::LoaderError;
use stokehold_pipeline::PipelineError;
use stokehold_prepare::PrepareError;
use stokehold_profile::ProfileError;
use stokehold_storage::StorageError;
use stokehold_synth::SynthError;
use stokehold_train::TrainError;
use stokehold_train::device::DeviceError;
use stokehold_train::weights::WeightsError;

use crate::commands::full;
use crate::terminal::note;

/// The command line is invalid, as found after it was parsed.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Usage {}

impl Fault for Usage {
    fn is_input(&self) -> bool {
        true
    }
}

/// Prints an error. Returns 2 if the input is at fault, and 1 if the work failed. A closed output is no
/// failure.
pub fn report(error: &(dyn Error + 'static)) -> ExitCode {
    if error
        .downcast_ref::<std::io::Error>()
        .is_some_and(|e| e.kind() == std::io::ErrorKind::BrokenPipe)
    {
        return ExitCode::SUCCESS;
    }
    // Errors of files have their names.
    let full = |e: &&std::io::Error| e.kind() == std::io::ErrorKind::StorageFull;
    if let Some(error) = error.downcast_ref::<std::io::Error>().filter(full) {
        note!("error: standard output: {error}");
        return ExitCode::FAILURE;
    }
    match options_for(error) {
        Some(options) => note!("error: {error} ({options})"),
        None => note!("error: {error}"),
    }
    ExitCode::from(code(error))
}

/// 2 if the input is at fault, and 1 if the work failed.
pub fn code(error: &(dyn Error + 'static)) -> u8 {
    if is_input(error) { 2 } else { 1 }
}

/// What builds all that a build may leave out.
pub const FULL: &str = "cargo install --path . --locked --features full";

/// The options by which this command line does what a library's error advises.
fn options_for(error: &(dyn Error + 'static)) -> Option<&'static str> {
    match error.downcast_ref() {
        Some(AdviseError::Prepare(error)) => return options_for(error),
        Some(AdviseError::Storage(error)) => return options_for(error),
        Some(AdviseError::Train(error)) => return options_for(error),
        _ => {}
    }
    if let Some(PrepareError::BadImage { .. }) = error.downcast_ref() {
        return Some("--bad-images skip");
    }
    if let Some(StorageError::NoBuckets { .. }) = error.downcast_ref() {
        return Some(FULL);
    }
    Some(match error.downcast_ref::<TrainError>()? {
        TrainError::NoServers { .. } => FULL,
        TrainError::RunExists { .. } => "--resume, --name",
        TrainError::Device(DeviceError::NotCompiledIn { .. } | DeviceError::Absent { .. }) => "--device cpu",
        TrainError::Weights(error) if matches!(**error, WeightsError::Mismatch { .. }) => {
            "--model, --weights"
        }
        TrainError::NotDescribed { .. } => "--arch, --classes",
        TrainError::Validation(_) => "stokehold dataset info",
        _ => return None,
    })
}

/// Whether the input is at fault. An error that is not in the list, such as the system's, is not the input's
/// fault.
fn is_input(error: &(dyn Error + 'static)) -> bool {
    let asked = [
        ask::<Usage>,
        ask::<AdviseError>,
        ask::<CacheError>,
        ask::<CompareError>,
        ask::<LoaderError>,
        ask::<ParameterError>,
        ask::<PipelineError>,
        ask::<PrepareError>,
        ask::<ProfileError>,
        ask::<StorageError>,
        ask::<SynthError>,
        ask::<TrainError>,
    ];
    let asked = asked.into_iter().find_map(|ask| ask(error));
    asked.or_else(|| full::is_input(error)).unwrap_or(false)
}

/// Whether the input is at fault, if the error is one of this type.
pub fn ask<E: Fault + 'static>(error: &(dyn Error + 'static)) -> Option<bool> {
    error.downcast_ref::<E>().map(Fault::is_input)
}
