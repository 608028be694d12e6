//! The `stokehold` command line: one thin module per subcommand.
//!
//! Exit codes: 0 success; 1 the work failed (or broken images were found); 2 wrong usage or input; 130
//! stopped by Ctrl-C, with the last checkpoint kept. `profile` ends with the exit code of its command; for
//! `job`, see its help.

// The help texts are doc comments, and the <class> of a path is not HTML.
#![allow(rustdoc::invalid_html_tags)]
// Some helpers serve only commands of the feature `full`; lints look at that build.
#![cfg_attr(not(feature = "full"), allow(dead_code))]

#[cfg(feature = "full")]
mod asked;
mod commands;
mod damage;
#[cfg(feature = "full")]
mod elsewhere;
#[cfg(not(feature = "full"))]
#[path = "local_recording.rs"]
mod elsewhere;
mod failure;
mod files;
mod gpu;
mod interrupt;
mod loader;
mod local;
mod log;
mod model;
mod progress;
mod python;
mod ranks;
mod servers;
mod supervise;
mod terminal;
mod trainer;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Parser, Subcommand};
use std::process::ExitCode;

/// Finds the bottleneck of vision training, removes it, and proves the gain.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110, arg_required_else_help = true)]
struct Cli {
    /// Log decisions to standard error (data sets, locks, caches, resumed checkpoints, retries); repeat for more. STOKEHOLD_LOG
    /// sets the level of each part: stokehold_loader=debug,object_store=info.
    #[arg(short, long, global = true, action = ArgAction::Count)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Feed the same trainer with different loaders, and show which keeps it busy.
    Compare(Box<commands::compare::Args>),
    /// A native trial of compare, which starts it.
    #[command(name = commands::compare::TRIAL, hide = true)]
    CompareTrial,
    /// Train a model on folders of images.
    Train(Box<commands::train::Args>),
    /// Start a command on several ranks, which train together.
    Launch(commands::launch::Args),
    /// Say which classes a model sees in images.
    Predict(Box<commands::predict::Args>),
    /// Say how often a model is right on labelled images, class by class.
    Evaluate(Box<commands::evaluate::Args>),
    /// List, show, compare and remove runs.
    #[command(subcommand)]
    Runs(commands::runs::Args),
    /// Explain a recorded run on one page, or put two runs side by side.
    Report(commands::report::Args),
    /// Watch a run, or this machine, live in the terminal.
    Top(commands::top::Args),
    /// Make shards of a data set, which load faster and lose nothing.
    Prepare(Box<commands::prepare::Args>),
    /// Record what the machine does while a command runs.
    Profile(commands::profile::Args),
    /// Say what each change would gain a run or a PyTorch script, and try it.
    Advise(commands::advise::Args),
    /// Say what Stokehold can do for each loader of a PyTorch script, and why not.
    Check(commands::check::Args),
    /// Run a PyTorch script with fast images, another loader, or other arguments of its own.
    Run(commands::run::Args),
    /// Measure a part of Stokehold by itself.
    #[command(subcommand)]
    Bench(commands::bench::Args),
    /// Make a data set, or look through one.
    #[command(subcommand)]
    Dataset(commands::dataset::Args),
    /// List the GPUs that can be used, and why the rest cannot.
    Devices(commands::devices::Args),
    /// Say and draw what the fused executor does with one image.
    Explain(commands::explain::Args),
    #[command(flatten)]
    Full(commands::full::Command),
}

/// Tells who gives `advise` a script without -- how it takes one.
fn with_dashes(mut error: clap::Error) -> clap::Error {
    if error.kind() == ErrorKind::UnknownArgument
        && std::env::args_os().nth(1).is_some_and(|word| word == "advise")
    {
        let tip = "to try a script, put -- before it: stokehold advise --try -- python3 train.py";
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

fn main() -> ExitCode {
    interrupt::survive_limits();
    #[cfg(feature = "full")]
    {
        stokehold_objects::register(|text| terminal::note_line(&format!("warning: {text}")));
        stokehold_train::connect_servers_with(servers::connect);
    }
    let cli = Cli::try_parse().unwrap_or_else(|error| with_dashes(error).exit());
    if let Err(error) = log::start(cli.verbose) {
        return failure::report(&error);
    }
    let done = match cli.command {
        Command::Compare(args) => commands::compare::run(&args),
        Command::CompareTrial => commands::compare::trial(),
        Command::Train(args) => commands::train::run(*args),
        Command::Launch(args) => commands::launch::run(&args),
        Command::Predict(args) => commands::predict::run(&args),
        Command::Evaluate(args) => commands::evaluate::run(&args),
        Command::Runs(args) => commands::runs::run(&args),
        Command::Report(args) => commands::report::run(&args),
        Command::Top(args) => commands::top::run(&args),
        Command::Prepare(args) => commands::prepare::run(*args),
        Command::Profile(args) => commands::profile::run(args),
        Command::Advise(args) => commands::advise::run(args),
        Command::Check(args) => commands::check::run(&args),
        Command::Run(args) => commands::run::run(&args),
        Command::Bench(args) => commands::bench::run(args),
        Command::Dataset(args) => commands::dataset::run(args),
        Command::Devices(args) => commands::devices::run(&args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Full(command) => commands::full::run(command),
    };
    done.unwrap_or_else(|error| failure::report(error.as_ref()))
}
