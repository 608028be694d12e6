//! `stokehold advise`: predicts the gain of each change from a run's measurements, and can try the best one, or every change of a
//! PyTorch script ([`stokehold_advise`]).

mod show;

use std::error::Error;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args as ClapArgs;
use stokehold_advise::script::Bench;
use stokehold_advise::{Advised, trial};
use stokehold_diagnose::advice::Prices;

use super::profile::{RecordingOptions, record};
use crate::failure::Usage;
use crate::interrupt;
use crate::local::Local;
use crate::supervise::Signals;
use crate::terminal::{self, note};

/// Say what each change would gain a run: other numbers of workers, another executor, shards, batches, machines.
///
/// With --try and a command, a PyTorch script is run for a while as it is, and then with each change, which is made from outside.
#[derive(Debug, ClapArgs)]
#[command(
    override_usage = "stokehold advise [OPTIONS] RUN\n       stokehold advise [OPTIONS] --try -- COMMAND .."
)]
pub struct Args {
    /// The folder of a run of `stokehold train`, or of a PyTorch script under `stokehold profile`
    #[arg(required_unless_present = "command", conflicts_with = "command")]
    run: Option<Local>,
    /// What machines cost and how fast GPUs are, as TOML [default: a small table of EC2's, in docs/guide/machines.md]
    #[arg(long, value_name = "FILE")]
    prices: Option<Local>,
    /// Epochs of the whole training, for its cost [default: the run's; 1 of a script]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    epochs: Option<u64>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Try the best change: train a little without it and with it, and compare with the prediction
    #[arg(long = "try")]
    try_best: bool,
    /// Where the runs of --try go [default: a temporary folder]
    #[arg(long, short, value_name = "DIR", requires = "try_best")]
    out: Option<Local>,
    /// Batches after which a trial of a script ends [default: as many as take 20 s, at least 10]
    #[arg(long, value_name = "N", requires = "command", value_parser = clap::value_parser!(u64).range(10..=1_000_000_000))]
    steps: Option<u64>,
    /// The script, with its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    let prices = match &args.prices {
        Some(path) => Prices::load(path).map_err(|error| Usage(error.to_string()))?,
        None => Prices::built_in(),
    };
    let run = match (&args.run, args.try_best, args.command.as_slice()) {
        (Some(run), _, _) => run.to_path_buf(),
        (None, true, _) => return try_script(&args, prices),
        // Whatever its name begins with.
        (None, false, [run]) => PathBuf::from(run),
        (None, false, _) => {
            return Err(Usage(
                "to try a command, put --try before it; to read a run, give its folder".to_owned(),
            )
            .into());
        }
    };
    let run = &run;
    let mut say = |text: &str| note!("{text}");
    let advised = Advised::of(run, prices, args.epochs, &mut say)?;
    let mut tried = None;
    if args.try_best && advised.record.is_none() {
        return Err(Usage(
            "--try runs a script again: give its command, as in `stokehold advise --try -- python train.py`"
                .to_owned(),
        )
        .into());
    }
    if args.try_best {
        let stop = interrupt::flag_for("stopping the trial; press Ctrl-C again to end at once")?;
        let best = advised
            .advice
            .iter()
            .find(|advice| trial::can_be_tried(&advice.change));
        if let Some(best) = best.filter(|best| best.is_worth_it()) {
            tried = trial::run(&advised, best, args.out.as_deref(), stop, &mut say)?;
        } else {
            note!("there is nothing to try: no option of stokehold train is predicted to gain enough");
        }
    }
    match args.json {
        true => terminal::json_text(&show::json(&advised, tried.as_ref())?)?,
        false => writeln!(
            terminal::out(),
            "{}",
            show::text(&advised, tried.as_ref()).trim_end()
        )?,
    }
    let interrupted = tried.is_some_and(|trial| trial.interrupted);
    Ok(ExitCode::from(if interrupted { interrupt::EXIT_CODE } else { 0 }))
}

/// Runs the trials of a script.
fn try_script(args: &Args, prices: Prices) -> Result<ExitCode, Box<dyn Error>> {
    // Before the first thread is started: threads inherit the blocked signals.
    let signals = Signals::block()?;
    let aside = tempfile::tempdir()?;
    let bench = Bench {
        command: &args.command,
        out: args.out.as_deref().unwrap_or(aside.path()).to_owned(),
        is_kept: args.out.is_some(),
        steps: args.steps,
        record: &mut |command, run, changes| {
            record(command, run, RecordingOptions::default(), Some(changes), &signals)
        },
        say: &mut |text| note!("{text}"),
    };
    let Some((advised, trials)) = bench.tried(prices, args.epochs)? else {
        note!("stopped before anything was tried");
        return Ok(ExitCode::from(interrupt::EXIT_CODE));
    };
    match args.json {
        true => terminal::json_text(&show::json_of_script(&advised, &trials)?)?,
        false => writeln!(
            terminal::out(),
            "{}",
            show::text_of_script(&advised, &trials).trim_end()
        )?,
    }
    Ok(ExitCode::from(if trials.interrupted {
        interrupt::EXIT_CODE
    } else {
        0
    }))
}
