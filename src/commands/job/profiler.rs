//! `stokehold job profiler`: changes what is recorded of a job that runs.

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args as ClapArgs, ValueEnum};
use stokehold_jobs::Store;
use stokehold_profile::{Change, FOLDER};

use super::at_sagemaker::At;
use crate::failure::Usage;
use crate::terminal;

/// Turn the profiler of a job that runs on or off, or give it another interval.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The job's name
    name: String,
    /// Whether it takes samples
    switch: Option<Switch>,
    /// Time between two samples: 100ms to 60s; on SageMaker one of 100ms, 200ms, 500ms, 1s, 5s and 60s
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    interval: Option<Duration>,
    #[command(flatten)]
    at: At,
}

/// Whether a recording takes samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Switch {
    On,
    Off,
}

/// Runs the subcommand.
///
/// # Errors
/// Nothing is to be changed, there is no such job, or it does not run (exit code 2).
pub fn run(
    args: &Args,
    store: &dyn Fn() -> Result<Store, Box<dyn Error>>,
) -> Result<ExitCode, Box<dyn Error>> {
    let on = args.switch.map(|switch| switch == Switch::On);
    let interval = args.interval.map(|interval| interval.as_millis());
    let name = &args.name;
    match (on, interval) {
        (None, None) => {
            return Err(Usage("what to change? Give on, off or --interval TIME".to_owned()).into());
        }
        (Some(false), Some(_)) => {
            return Err(
                Usage("a profiler that is off has no interval; leave --interval out".to_owned()).into(),
            );
        }
        _ => {}
    }
    let Some(client) = args.at.client()? else {
        let store = store()?;
        let record = store.get(name)?;
        if record.status.is_final() {
            let text = format!(
                "job {name} is {:?}; only the profiler of a job that runs can be changed",
                record.secondary
            );
            return Err(Usage(text).into());
        }
        let change = Change {
            on,
            interval_ms: interval.map(|ms| u64::try_from(ms).unwrap_or(u64::MAX)),
        };
        change.send(&store.path(name).join(FOLDER))?;
        return Ok(ExitCode::SUCCESS);
    };
    // An interval that is too long for the request is refused there, too.
    let interval = interval.map(|ms| u32::try_from(ms).unwrap_or(u32::MAX));
    let now = client.switch_profiler(name, on, interval)?;
    let mut err = terminal::err();
    match (now.disable_profiler, now.s3_output_path) {
        (false, Some(place)) => {
            let place = place.trim_end_matches('/');
            writeln!(err, "job {name} is recorded below {place}/{name}/profiler-output")?;
        }
        _ => writeln!(err, "job {name} is not recorded any more")?,
    }
    Ok(ExitCode::SUCCESS)
}
