//! Predicts the gain of each change from a run's measurements, measures what is missing, and tries changes.
//!
//! ```text
//!  run.json, recording.json ──► Advised::of ──► advice, verdict, machines ──► trial: fit, without the change and with it
//!                                  │ measure: other executors, shards, batches, precisions, on the run's own images
//!  a PyTorch script's counters ──► Advised ──► advice ──► script: the script again, with each change
//! ```
//!
//! Measurements that a run could not make while it trained are made here: other executors, shards and batch
//! sizes, on the run's own images ([`measure`]). The results are stored in the run's `recording.json`, where
//! a report finds them, and are not measured again.
//!
//! Of a PyTorch script the hook has recorded what predictions need ([`stokehold_script`]). With a command instead of a run,
//! the script is run for a while as it is, and again with each change ([`script`]).

mod error;
pub mod measure;
pub mod script;
pub mod trial;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use stokehold_diagnose::advice::{Advice, Machines, Prices, advise, machines, misfit, verdict};
use stokehold_profile::workload::Workload;
use stokehold_profile::{About, FOLDER, Machine, Recording};
use stokehold_train::run::{RunFolder, RunRecord};

pub use error::AdviseError;
use measure::Remote;

/// Everything to report about a run.
#[derive(Debug)]
pub struct Advised {
    /// The run's folder, or the command of a script whose runs go away.
    pub run: PathBuf,
    /// `None` of a script.
    pub record: Option<RunRecord>,
    /// What the run has measured, and what was measured since.
    pub workload: Workload,
    /// The main result, in a sentence.
    pub verdict: String,
    /// The changes, in the order of [`advise`]: the largest gain on this machine first.
    pub advice: Vec<Advice>,
    /// What machines cost; where the table has the run's own machine, it is the one that the others are compared with.
    pub prices: Prices,
    /// Epochs of the whole training.
    pub epochs: u64,
    /// The whole training here and elsewhere; `None` where nothing is predicted.
    pub machines: Option<Machines>,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
}

impl Advised {
    /// Reads a run, makes missing measurements, and predicts. `epochs` is how many the whole training has, for its cost; the
    /// run's, or 1 of a script, if not given. `say` hears what is measured before it is.
    ///
    /// # Errors
    /// There is no such run, or one without data for predictions; the message says what to do.
    pub fn of(
        run: &Path,
        prices: Prices,
        epochs: Option<u64>,
        say: &mut dyn FnMut(&str),
    ) -> Result<Self, AdviseError> {
        let why = match fs::metadata(run) {
            Ok(found) if found.is_dir() => None,
            Ok(_) => Some("a file; a run is a folder".to_owned()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Some("there is no such folder".to_owned())
            }
            Err(error) => Some(error.to_string()),
        };
        if let Some(why) = why {
            return Err(AdviseError::Input(format!("{}: {why}", run.display())));
        }
        let record = RunFolder::new(run).read_record()?;
        let recording = run.join(FOLDER);
        let Some(record) = record else {
            return Self::of_script(run, &recording, prices, epochs);
        };
        let missing = |what: &str| AdviseError::Input(format!("{}: {what}", run.display()));
        let unmeasured = || {
            missing(
                "it has left no measurements: it still trains, or was killed; finish it, with --resume where it was killed, or \
                 train again",
            )
        };
        let about = About::read(&recording).map_err(|error| AdviseError::Input(error.to_string()))?;
        let mut about = about.ok_or_else(unmeasured)?;
        let workload = about.workload.as_ref().ok_or_else(unmeasured)?;
        if workload.seconds_per_epoch.is_none() {
            return Err(missing(
                "it has not finished an epoch; the same command with --resume continues it",
            ));
        }
        if !measure::can_be_predicted(workload) {
            return Err(missing(
                "the ceilings of its loader and its trainer were not measured: a run that was interrupted measures them when it is \
                 resumed to its end, one that had --ceiling-batches 0 does not; train again without that option",
            ));
        }
        let notes = measure::once(&record, &recording, &mut about, Remote::Read, say);
        let machine = about.machine;
        let workload = about.workload.ok_or_else(unmeasured)?;
        let epochs = epochs.unwrap_or(record.config.epochs);
        let measured = (workload, &machine, notes);
        Ok(Self::predicted(run, Some(record), measured, prices, epochs))
    }

    /// The same of a PyTorch script that was recorded.
    fn of_script(
        run: &Path,
        recording: &Path,
        prices: Prices,
        epochs: Option<u64>,
    ) -> Result<Self, AdviseError> {
        let about = About::read(recording).map_err(|error| AdviseError::Input(error.to_string()))?;
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
            return Err(AdviseError::Input(
                [found].into_iter().chain(reasons).collect::<Vec<_>>().join("\n"),
            ));
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
        if let Err(reason) = measure::of_script(&mut workload) {
            notes.push(format!("Stokehold's loader is not predicted: {reason}"));
        }
        let measured = (workload, machine, notes);
        Self::predicted(run, None, measured, prices, epochs.unwrap_or(1))
    }

    /// Predicts from what was measured, on which machine, and adds to the notes.
    fn predicted(
        run: &Path,
        record: Option<RunRecord>,
        (workload, machine, mut notes): (Workload, &Machine, Vec<String>),
        prices: Prices,
        epochs: u64,
    ) -> Self {
        let prices = prices.on(machine);
        let advice = advise(&workload, &prices);
        // A misfit is reported by the verdict.
        if advice.is_empty() && misfit(&workload).is_none() {
            let lacking = match record {
                Some(_) => "its measurements do not suffice for a prediction",
                None => "too little was measured for a prediction",
            };
            notes.push(lacking.to_owned());
        }
        Self {
            run: run.to_owned(),
            verdict: verdict(&Recording::default(), &[], Some(&workload), &advice),
            record,
            machines: machines(&workload, Some(machine), epochs, &prices),
            epochs,
            workload,
            advice,
            prices,
            notes,
        }
    }
}

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
