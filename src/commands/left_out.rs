//! Stands in for the subcommands of the feature `full`: says how to get them.

use std::error::Error;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::failure::{FULL, Usage};

/// The subcommands that this build leaves out.
#[derive(Debug, Subcommand)]
pub enum Command {
    #[command(hide = true, disable_help_flag = true)]
    Job(Words),
    #[command(hide = true, disable_help_flag = true)]
    Tune(Words),
    #[command(hide = true, disable_help_flag = true)]
    Studio(Words),
    #[command(hide = true, disable_help_flag = true)]
    Serve(Words),
    #[command(hide = true, disable_help_flag = true)]
    Transform(Words),
    #[command(hide = true, disable_help_flag = true)]
    Scale(Words),
}

/// Whatever follows the subcommand.
#[derive(Debug, Args)]
pub struct Words {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    _words: Vec<OsString>,
}

/// Refuses a subcommand.
///
/// # Errors
/// Always.
pub fn run(command: Command) -> Result<ExitCode, Box<dyn Error>> {
    let name = match command {
        Command::Job(_) => "job",
        Command::Tune(_) => "tune",
        Command::Studio(_) => "studio",
        Command::Serve(_) => "serve",
        Command::Transform(_) => "transform",
        Command::Scale(_) => "scale",
    };
    Err(Usage(format!(
        "`stokehold {name}` is not in this build; to get it: {FULL}"
    ))
    .into())
}

/// No error is one of theirs.
pub fn is_input(_: &(dyn Error + 'static)) -> Option<bool> {
    None
}
