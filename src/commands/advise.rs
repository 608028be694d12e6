//! `stokehold advise`: predicts the gain of each change from a run's measurements, and can try the best one.
//!
//! Measurements that the run could not make while it trained are made here: other executors, shards and batch
//! sizes, on the run's own images ([`measure`]). The results are stored in the run's `recording.json`, where
//! a report finds them, and are not measured again.

pub mod measure;
mod show;
mod trial;

use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args as ClapArgs;
use stokehold_diagnose::advice::{Advice, Prices, advise, misfit, verdict};
use stokehold_profile::workload::Workload;
use stokehold_profile::{About, FOLDER, Recording};
use stokehold_train::run::{RunFolder, RunRecord};

use crate::failure::Usage;
use crate::interrupt;
use crate::local::Local;
use crate::terminal::{self, note};
use measure::Remote;

/// Say what each change would gain a run: other numbers of workers, another executor, shards, batches, machines.
#[derive(Debug, ClapArgs)]
pub struct Args {
    /// The folder of a run of `stokehold train`
    run: Local,
    /// What machines cost, as TOML [default: a small table of on-demand prices]
    #[arg(long, value_name = "FILE")]
    prices: Option<Local>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    /// Try the best change: train a little without it and with it, and compare with the prediction
    #[arg(long = "try")]
    try_best: bool,
    /// Where the runs of --try go [default: a temporary folder]
    #[arg(long, short, value_name = "DIR", requires = "try_best")]
    out: Option<Local>,
}

/// Everything to report about a run.
pub struct Advised {
    run: PathBuf,
    record: RunRecord,
    workload: Workload,
    verdict: String,
    advice: Vec<Advice>,
    prices: Prices,
    /// What could not be measured, and why.
    notes: Vec<String>,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    let prices = match &args.prices {
        Some(path) => Prices::load(path).map_err(|error| Usage(error.to_string()))?,
        None => Prices::built_in(),
    };
    let advised = Advised::of(&args.run, prices)?;
    let mut tried = None;
    if args.try_best {
        let stop = interrupt::flag_for("stopping the trial; press Ctrl-C again to end at once")?;
        let best = advised
            .advice
            .iter()
            .find(|advice| trial::can_be_tried(&advice.change));
        if let Some(best) = best.filter(|best| best.is_worth_it()) {
            tried = Some(trial::run(&advised, best, args.out.as_deref(), stop)?);
        } else {
            note!("there is nothing to try: no option of stokehold train would gain anything worth having");
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

impl Advised {
    /// Reads a run, makes missing measurements, and predicts.
    ///
    /// # Errors
    /// [`Usage`] if there is no such run, or one without data for predictions; the message says what to do.
    fn of(run: &Path, prices: Prices) -> Result<Self, Box<dyn Error>> {
        let record = RunFolder::new(run).read_record()?.ok_or_else(|| {
            Usage(format!(
                "{}: not a run of stokehold train: it has no run.json; `stokehold report` reads any recording",
                run.display()
            ))
        })?;
        let recording = run.join(FOLDER);
        let missing = |what: &str| Usage(format!("{}: {what}", run.display()));
        let unmeasured = || {
            missing(
                "it has left no measurements: it still trains, was killed, or is of an older version; finish it, with \
                 --resume where it was killed, or train again",
            )
        };
        let about = About::read(&recording).map_err(|error| Usage(error.to_string()))?;
        let mut about = about.ok_or_else(unmeasured)?;
        let workload = about.workload.as_ref().ok_or_else(unmeasured)?;
        if workload.seconds_per_epoch.is_none() {
            return Err(
                missing("it has not finished an epoch; the same command with --resume continues it").into(),
            );
        }
        if !measure::can_be_predicted(workload) {
            return Err(missing(
                "the ceilings of its loader and its trainer were not measured: a run that was interrupted measures them when it is \
                 resumed to its end, one that had --ceiling-batches 0 does not; train again without that option",
            )
            .into());
        }
        let mut notes = measure::once(&record, &recording, &mut about, Remote::Read);
        let workload = about.workload.ok_or_else(unmeasured)?;
        let advice = advise(&workload, &prices);
        // A misfit is reported by the verdict.
        if advice.is_empty() && misfit(&workload).is_none() {
            notes.push("its measurements do not suffice for a prediction".to_owned());
        }
        Ok(Self {
            run: run.to_owned(),
            verdict: verdict(&Recording::default(), &[], Some(&workload), &advice),
            record,
            workload,
            advice,
            prices,
            notes,
        })
    }
}
