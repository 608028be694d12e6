//! `stokehold advise`: predicts the gain of each change from a run's measurements, and can try the best one.
//!
//! Measurements that the run could not make while it trained are made here: other executors, shards and batch
//! sizes, on the run's own images ([`measure`]). The results are stored in the run's `recording.json`, where
//! a report finds them, and are not measured again.
//!
//! Of a PyTorch script the hook has recorded what predictions need ([`stokehold_script`]). With a command instead of a run,
//! the script is run for a while as it is, and again with each change ([`script`]).

pub mod measure;
mod script;
mod show;
mod trial;

use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args as ClapArgs;
use stokehold_diagnose::advice::{Advice, Machines, Prices, advise, machines, misfit, verdict};
use stokehold_profile::workload::Workload;
use stokehold_profile::{About, FOLDER, Machine, Recording};
use stokehold_train::run::{RunFolder, RunRecord};

use crate::failure::Usage;
use crate::interrupt;
use crate::local::Local;
use crate::terminal::{self, note};
use measure::Remote;

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
    /// What machines cost and how fast GPUs are, as TOML [default: a small table of EC2's, in docs/machines.md]
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

/// Everything to report about a run.
pub struct Advised {
    run: PathBuf,
    /// `None` of a script.
    record: Option<RunRecord>,
    workload: Workload,
    verdict: String,
    advice: Vec<Advice>,
    prices: Prices,
    /// Epochs of the whole training.
    epochs: u64,
    /// The whole training here and elsewhere; `None` where nothing is predicted.
    machines: Option<Machines>,
    /// What could not be measured, and why.
    notes: Vec<String>,
}

/// Runs the subcommand.
pub fn run(args: Args) -> Result<ExitCode, Box<dyn Error>> {
    let prices = match &args.prices {
        Some(path) => Prices::load(path).map_err(|error| Usage(error.to_string()))?,
        None => Prices::built_in(),
    };
    let run = match (&args.run, args.try_best, args.command.as_slice()) {
        (Some(run), _, _) => run.to_path_buf(),
        (None, true, _) => return script::run(&args, prices),
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
    let advised = Advised::of(run, prices, args.epochs)?;
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
            tried = trial::run(&advised, best, args.out.as_deref(), stop)?;
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

impl Advised {
    /// Reads a run, makes missing measurements, and predicts.
    ///
    /// # Errors
    /// [`Usage`] if there is no such run, or one without data for predictions; the message says what to do.
    fn of(run: &Path, prices: Prices, epochs: Option<u64>) -> Result<Self, Box<dyn Error>> {
        let why = match fs::metadata(run) {
            Ok(found) if found.is_dir() => None,
            Ok(_) => Some("a file; a run is a folder".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Some("there is no such folder".to_owned())
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = why {
            return Err(Usage(format!("{}: {why}", run.display())).into());
        }
        let record = RunFolder::new(run).read_record()?;
        let recording = run.join(FOLDER);
        let Some(record) = record else {
            return Self::of_script(run, &recording, prices, epochs);
        };
        let missing = |what: &str| Usage(format!("{}: {what}", run.display()));
        let unmeasured = || {
            missing(
                "it has left no measurements: it still trains, or was killed; finish it, with --resume where it was killed, or \
                 train again",
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
        let machine = about.machine;
        let workload = about.workload.ok_or_else(unmeasured)?;
        let prices = prices.on(&machine);
        let epochs = epochs.unwrap_or(record.config.epochs);
        let advice = advise(&workload, &prices);
        // A misfit is reported by the verdict.
        if advice.is_empty() && misfit(&workload).is_none() {
            notes.push("its measurements do not suffice for a prediction".to_owned());
        }
        Ok(Self {
            run: run.to_owned(),
            verdict: verdict(&Recording::default(), &[], Some(&workload), &advice),
            record: Some(record),
            machines: machines(&workload, Some(&machine), epochs, &prices),
            epochs,
            workload,
            advice,
            prices,
            notes,
        })
    }

    /// The same of a PyTorch script that was recorded.
    fn of_script(
        run: &Path,
        recording: &Path,
        prices: Prices,
        epochs: Option<u64>,
    ) -> Result<Self, Box<dyn Error>> {
        let about = About::read(recording).map_err(|error| Usage(error.to_string()))?;
        let (workload, machine, notes) = about.map_or_else(
            || (None, Machine::default(), Vec::new()),
            |about| (about.workload, about.machine, about.notes),
        );
        let Some(workload) = workload.filter(|workload| workload.script.is_some()) else {
            let found = format!(
                "{}: neither a run of stokehold train, which has a run.json, nor one of a PyTorch script that trained under `stokehold \
                 profile`; `stokehold report` reads any recording",
                run.display()
            );
            let reasons = notes.iter().map(|note| format!("the recording says: {note}"));
            return Err(Usage([found].into_iter().chain(reasons).collect::<Vec<_>>().join("\n")).into());
        };
        Ok(Self::of_watched(run, workload, &machine, notes, prices, epochs))
    }

    /// Predicts from what the hook has counted.
    fn of_watched(
        run: &Path,
        mut workload: Workload,
        machine: &Machine,
        mut notes: Vec<String>,
        prices: Prices,
        epochs: Option<u64>,
    ) -> Self {
        let prices = prices.on(machine);
        let epochs = epochs.unwrap_or(1);
        if let Err(reason) = measure::of_script(&mut workload) {
            notes.push(format!("Stokehold's loader is not predicted: {reason}"));
        }
        let advice = advise(&workload, &prices);
        if advice.is_empty() && misfit(&workload).is_none() {
            notes.push("too little was measured for a prediction".to_owned());
        }
        Self {
            run: run.to_owned(),
            verdict: verdict(&Recording::default(), &[], Some(&workload), &advice),
            record: None,
            machines: machines(&workload, Some(machine), epochs, &prices),
            epochs,
            workload,
            advice,
            prices,
            notes,
        }
    }
}
