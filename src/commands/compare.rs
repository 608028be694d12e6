//! `stokehold compare`: feed the same trainer with different loaders, and show which keeps it busy.
//!
//! The crate `stokehold-compare` does the work; this module has the options, the progress and the printing.

mod options;
mod watch;

use std::error::Error;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use stokehold_compare::{Comparison, Report};
use stokehold_storage::Source;

use crate::terminal::{self, note};
use crate::{damage, files, interrupt, progress};
pub use options::Args;
use watch::Watch;

/// The hidden subcommand that is a native trial.
pub const TRIAL: &str = "compare-trial";

/// Runs the subcommand.
///
/// # Errors
/// Errors of the options or the data, and errors that end a comparison early.
pub fn run(args: &Args) -> Result<ExitCode, Box<dyn Error>> {
    let stop = interrupt::flag_for("stopping; finished pairs are kept; press Ctrl-C again to end at once")?;
    let mut plan = args.plan()?;
    // Before the slow parts.
    plan.check()?;
    stokehold_compare::check_pythons(&plan, stop)?;
    if args.data.is_none() {
        plan.data = progress::generated_data()?;
    }
    let dataset = plan.open_data()?;
    damage::warn_of(&dataset);
    if dataset.train.pixel_classes().is_some() {
        note!("the trials load the images with their masks");
    }
    if let Ok(absolute) = plan.data.canonicalize() {
        plan.data = absolute;
    }
    let out = args
        .out
        .clone()
        .map_or_else(|| plan.default_folder(), PathBuf::from);
    let program = std::env::current_exe()?;
    let native = || {
        let mut command = Command::new(&program);
        command.arg(TRIAL);
        command
    };
    stokehold_compare::refuse_other_files(&out)?;
    let _lock = files::lock(&out)?;
    let mut comparison = Comparison::open(plan, dataset, out.clone(), &native, args.interval())?;
    let mut watch = Watch::new(comparison.report(), &out);
    let done = comparison.run(&mut watch, stop)?;
    watch.finish();
    if !done {
        note!(
            "interrupted; run the same command to continue from here ({})",
            out.display()
        );
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    }
    print(comparison.report())?;
    writeln!(
        terminal::out(),
        "\nwritten: {}",
        out.join("compare.html").display()
    )?;
    // Without a figure of any trial but A, nothing was compared.
    let others = comparison
        .report()
        .cells
        .iter()
        .flat_map(|cell| cell.trials.iter().skip(1));
    let compared = others
        .into_iter()
        .any(|trial| trial.summary.is_some_and(|summary| summary.gain.is_some()));
    Ok(if compared {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs a native trial, as [`run`] starts it.
///
/// # Errors
/// The work fails.
pub fn trial() -> Result<ExitCode, Box<dyn Error>> {
    stokehold_compare::serve(std::io::stdin().lock(), std::io::stdout().lock())?;
    Ok(ExitCode::SUCCESS)
}

fn print(report: &Report) -> std::io::Result<()> {
    let mut to = terminal::out();
    for line in report.what() {
        writeln!(to, "{line}")?;
    }
    writeln!(to, "\n{}", report.result_table().text())?;
    for table in [report.failures_table(), report.details_table()] {
        if !table.is_empty() {
            writeln!(to, "{}", table.text())?;
        }
    }
    for line in report.headline().into_iter().chain(report.conclusion()) {
        writeln!(to, "{line}")?;
    }
    Ok(())
}
