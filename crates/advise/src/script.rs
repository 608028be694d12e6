//! Runs a PyTorch script as it is and with each change, in alternation, for a while each.
//!
//! The changes are made by the hook, so the script stays as it is. What a script writes in its first steps, it writes in each run.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;
use stokehold_base::shell;
use stokehold_diagnose::advice::{Advice, Prices, beside_others, misfit};
use stokehold_profile::Machine;
use stokehold_profile::workload::{Change, Workload};
use stokehold_script::{Changes, Recorded};

use crate::trial::in_the_way;
use crate::{AdviseError, Advised};

/// How long a run trains, where no number of steps is given, seconds.
const SECONDS: f64 = 20.0;
/// How often each side runs.
const ROUNDS: usize = 2;
/// The end of a failed script's output that is shown, bytes.
const TAIL: usize = 2000;

/// What was tried.
#[derive(Debug, Default, Serialize)]
pub struct Trials {
    /// Rounds that were finished, in each of which every side ran once.
    pub rounds: usize,
    /// Mean time of an epoch as the script is, extrapolated from a run, seconds.
    pub unchanged_seconds: f64,
    /// The changes, the quickest first.
    pub changes: Vec<Tried>,
    /// Changes that could not be tried, and why.
    pub problems: Vec<String>,
    /// Whether it was stopped before its end.
    pub interrupted: bool,
}

/// A change that was tried.
#[derive(Debug, Serialize)]
pub struct Tried {
    /// The change in words.
    pub title: String,
    /// The predicted time of an epoch, as a share of that of the script as it is; `None` where nothing is predicted.
    pub predicted_ratio: Option<f64>,
    /// The measured one: the mean over rounds.
    pub measured_ratio: f64,
    /// The least and the largest of a round.
    pub measured_range: [f64; 2],
    /// What makes the change for good.
    pub keep: String,
}

/// A change on trial.
struct Candidate {
    title: String,
    changes: Changes,
    predicted_ratio: Option<f64>,
    keep: String,
    ratios: Vec<f64>,
}

/// Where the runs go, and what they are. `E` is the error of a recording.
pub struct Bench<'a, E> {
    /// The script, with its arguments; at least one word.
    pub command: &'a [OsString],
    /// The folder of the runs.
    pub out: PathBuf,
    /// Whether the folder stays.
    pub is_kept: bool,
    /// Batches after which a run ends; `None` for as many as take 20 s.
    pub steps: Option<u64>,
    /// Runs a command and records it into a folder, with changes to its loaders.
    pub record: &'a mut dyn FnMut(Command, &Path, &Changes) -> Result<Recorded, E>,
    /// Hears what is tried before it begins, and why nothing is.
    pub say: &'a mut dyn FnMut(&str),
}

impl<E: From<AdviseError>> Bench<'_, E> {
    /// What was tried; `None` if somebody has stopped the first run. `epochs` is how many the whole training has, for its
    /// cost; 1 if not given.
    ///
    /// # Errors
    /// A folder is in the way or cannot be written; a run cannot be recorded; the script as it is fails, or trains nothing.
    ///
    /// # Panics
    /// The command is empty.
    pub fn tried(mut self, prices: Prices, epochs: Option<u64>) -> Result<Option<(Advised, Trials)>, E> {
        let reading = Changes {
            convert: true,
            compare_images: true,
            ..Changes::default()
        };
        let first = self.once("unchanged-1", &reading)?;
        if first.interrupted {
            return Ok(None);
        }
        let workload = self.worked(&first, "unchanged-1")?;
        let run = match self.is_kept {
            true => self.out.join("unchanged-1"),
            false => self.command.join(OsStr::new(" ")).into(),
        };
        let advised = Advised::of_watched(&run, workload, &Machine::here(), first.notes, prices, epochs);
        let mut trials = Trials::default();
        let mut candidates = candidates(&advised, self.command, &mut trials.problems);
        match misfit(&advised.workload) {
            Some(misfit) if candidates.is_empty() => (self.say)(&format!("nothing is tried: {misfit}")),
            Some(misfit) => (self.say)(&format!(
                "{misfit}; what usually helps is tried all the same, in turns"
            )),
            None if advised.advice.is_empty() => {
                (self.say)(
                    "nothing is tried: too little was measured for a prediction; --steps N has the script train for longer",
                );
            }
            None if candidates.is_empty() => {
                (self.say)("there is nothing to try: no change is predicted to gain enough");
            }
            None => {}
        }
        let mut seconds = Vec::new();
        for round in 1..=ROUNDS {
            let unchanged = match round {
                1 => advised.workload.clone(),
                _ if candidates.is_empty() => break,
                _ => {
                    let name = format!("unchanged-{round}");
                    let run = self.once(&name, &reading)?;
                    if run.interrupted {
                        trials.interrupted = true;
                        break;
                    }
                    self.worked(&run, &name)?
                }
            };
            let Some(as_it_is) = unchanged.seconds_per_epoch else {
                trials
                    .problems
                    .push("the script as it is trained too little to compare with".to_owned());
                break;
            };
            for (number, candidate) in candidates.iter_mut().enumerate() {
                let name = format!("change{}-{round}", number + 1);
                (self.say)(&format!("trying {}, round {round} of {ROUNDS}", candidate.title));
                let run = self.once(&name, &candidate.changes)?;
                trials.interrupted = run.interrupted;
                if trials.interrupted {
                    break;
                }
                let changed = self.worked(&run, &name).map_err(|error| error.to_string());
                match changed.map(|workload| checked(candidate, &workload)) {
                    Ok(Ok(seconds)) => candidate.ratios.push(seconds / as_it_is),
                    Ok(Err(reason)) | Err(reason) => {
                        let problem = format!("{}: {reason}", candidate.title);
                        if !trials.problems.contains(&problem) {
                            trials.problems.push(problem);
                        }
                    }
                }
            }
            if trials.interrupted {
                break;
            }
            seconds.push(as_it_is);
            trials.rounds = round;
        }
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let now = advised.workload.seconds_per_epoch.unwrap_or(f64::NAN);
        trials.unchanged_seconds = if seconds.is_empty() { now } else { mean(&seconds) };
        let measured = candidates
            .into_iter()
            .filter(|candidate| !candidate.ratios.is_empty());
        trials.changes = measured
            .map(|candidate| Tried {
                measured_ratio: mean(&candidate.ratios),
                measured_range: [
                    candidate.ratios.iter().copied().fold(f64::INFINITY, f64::min),
                    candidate.ratios.iter().copied().fold(0.0, f64::max),
                ],
                title: candidate.title,
                predicted_ratio: candidate.predicted_ratio,
                keep: candidate.keep,
            })
            .collect();
        trials
            .changes
            .sort_by(|a, b| a.measured_ratio.total_cmp(&b.measured_ratio));
        Ok(Some((advised, trials)))
    }

    /// Runs the script for a while, recorded. Its output goes into a file.
    fn once(&mut self, name: &str, changes: &Changes) -> Result<Recorded, E> {
        let run = self.out.join(name);
        if run.exists() {
            return Err(in_the_way(&run).into());
        }
        let log = new_log(&run).map_err(AdviseError::System)?;
        let changes = Changes {
            steps: self.steps,
            seconds: self.steps.is_none().then_some(SECONDS),
            ..changes.clone()
        };
        let mut command = Command::new(&self.command[0]);
        command
            .args(&self.command[1..])
            .stdout(log.try_clone().map_err(AdviseError::System)?)
            .stderr(log);
        (self.record)(command, &run, &changes)
    }

    /// What the script did in a run.
    fn worked(&self, run: &Recorded, name: &str) -> Result<Workload, AdviseError> {
        let log = log_of(&self.out.join(name));
        if !run.started() {
            return Err(AdviseError::Input("the script did not start".to_owned()));
        }
        if run.code != 0 {
            let said = fs::read(&log).unwrap_or_default();
            let end = String::from_utf8_lossy(&said[said.len().saturating_sub(TAIL)..]).into_owned();
            let wrote = match end.trim_end() {
                "" => "it wrote nothing".to_owned(),
                end => format!("its output ended with:\n{end}"),
            };
            return Err(AdviseError::Failed(format!(
                "the script ended with exit code {}; {wrote}",
                run.code
            )));
        }
        run.workload.clone().ok_or_else(|| {
            let why = match run.notes.is_empty() {
                true => "no process of it iterated over a DataLoader of torch and made an optimizer's step"
                    .to_owned(),
                false => run.notes.join("; "),
            };
            AdviseError::Input(format!("nothing was seen that trains: {why}"))
        })
    }
}

/// The log of a run, in a folder that is made for it.
fn new_log(run: &Path) -> io::Result<File> {
    fs::create_dir_all(run)?;
    File::create(log_of(run))
}

fn log_of(run: &Path) -> PathBuf {
    run.join("output.log")
}

/// The time of an epoch, if the change was made.
fn checked(candidate: &Candidate, workload: &Workload) -> Result<f64, String> {
    if candidate.changes.swap && workload.executor != "stokehold" {
        let refused = workload
            .script
            .as_ref()
            .and_then(|script| script.swap_refused.clone());
        return Err(refused.unwrap_or_else(|| "the loader was not taken over".to_owned()));
    }
    workload
        .seconds_per_epoch
        .ok_or_else(|| "the script trained too little to tell".to_owned())
}

/// A change to try, and what is known of it.
struct Wish {
    change: Change,
    title: String,
    /// The argument of the script's `DataLoader` that makes it.
    argument: String,
    /// The predicted share of an epoch's time that is left; `None` where nothing is predicted.
    predicted_ratio: Option<f64>,
    is_worth_it: bool,
}

impl Wish {
    /// Next to other programs predictions are those of free cores, and not of a trial.
    fn of(advice: &Advice, shared: bool) -> Self {
        let now = advice.seconds_per_epoch + advice.gain_seconds;
        Self {
            change: advice.change.clone(),
            title: advice.title.clone(),
            argument: advice.flags.join(" "),
            predicted_ratio: (!shared).then_some(advice.seconds_per_epoch / now),
            is_worth_it: advice.is_worth_it(),
        }
    }

    /// What usually helps a loader, where nothing is predicted: trials in turns show all the same what it is worth.
    fn usual(workload: &Workload) -> Vec<Self> {
        let Some(script) = &workload.script else {
            return Vec::new();
        };
        let wish = |change: Change, title: String, argument: String| Self {
            change,
            title,
            argument,
            predicted_ratio: None,
            is_worth_it: true,
        };
        let mut wishes = Vec::new();
        let (cores, workers) = (workload.cores, workload.num_workers);
        if !script.iterable && cores != workers && script.ranks <= 1 {
            let change = Change::Workers {
                workers: cores,
                persistent: false,
            };
            let title = format!("{change} instead of {workers}");
            wishes.push(wish(change, title, format!("num_workers={cores}")));
        }
        if workers > 0 && script.restarts > 0 {
            let argument = "persistent_workers=True".to_owned();
            wishes.push(wish(
                Change::PersistentWorkers,
                "persistent workers".to_owned(),
                argument,
            ));
        }
        let of_images = workload
            .alternatives
            .iter()
            .find(|one| one.change == Change::FastImages);
        if of_images.is_some_and(|one| one.loader < 1.0) {
            let argument = "import stokehold.pillow, stokehold.decoders".to_owned();
            wishes.push(wish(Change::FastImages, "fast images".to_owned(), argument));
        }
        if script.pipeline.is_some() && script.swap_refused.is_none() {
            let executor = "stokehold".to_owned();
            wishes.push(wish(
                Change::Executor { executor },
                "Stokehold's loader".to_owned(),
                "stokehold.torch.DataLoader".to_owned(),
            ));
        }
        wishes
    }
}

/// The changes that are worth a trial.
fn candidates(advised: &Advised, command: &[OsString], problems: &mut Vec<String>) -> Vec<Candidate> {
    let mut candidates = Vec::new();
    let Some(script) = &advised.workload.script else {
        return candidates;
    };
    let mut offer = |wish: &Wish, title: &str, changes: Changes, option: &str, argument: &str| {
        let words = option.split(' ').map(OsString::from);
        let words = ["run".into()].into_iter().chain(words).chain(["--".into()]);
        let again = shell::again(words.chain(command.iter().cloned()));
        candidates.push(Candidate {
            title: title.to_owned(),
            changes,
            predicted_ratio: wish.predicted_ratio,
            keep: format!("{argument}, or {again}"),
            ratios: Vec::new(),
        });
    };
    let wishes: Vec<Wish> = match misfit(&advised.workload) {
        Some(_) => Wish::usual(&advised.workload),
        None => {
            let shared = beside_others(&advised.workload).is_some();
            let advice = advised.advice.iter();
            advice.map(|advice| Wish::of(advice, shared)).collect()
        }
    };
    let mut workers = false;
    for wish in &wishes {
        let changes = Changes::default();
        let argument = &wish.argument;
        match &wish.change {
            // The best number.
            Change::Workers {
                workers: number,
                persistent,
            } if wish.is_worth_it && !workers => {
                workers = true;
                let changes = Changes {
                    workers: Some(*number),
                    persistent: *persistent,
                    ..changes
                };
                let kept = if *persistent { " --persistent-workers" } else { "" };
                let option = format!("--workers {number}{kept}");
                offer(wish, &wish.title, changes, &option, argument);
            }
            Change::Executor { .. } => {
                let changes = Changes {
                    swap: true,
                    ..changes
                };
                offer(
                    wish,
                    "Stokehold's loader",
                    changes,
                    "--swap-loader",
                    "from stokehold.torch import DataLoader",
                );
            }
            Change::PersistentWorkers if wish.is_worth_it => {
                let changes = Changes {
                    persistent: true,
                    ..changes
                };
                offer(
                    wish,
                    "persistent workers",
                    changes,
                    "--persistent-workers",
                    argument,
                );
            }
            Change::Prefetch { batches } => {
                let changes = Changes {
                    prefetch: Some(*batches),
                    ..changes
                };
                let option = format!("--prefetch {batches}");
                offer(wish, &wish.title, changes, &option, argument);
            }
            Change::FastImages if wish.is_worth_it => {
                let changes = Changes {
                    images: true,
                    ..changes
                };
                offer(wish, "fast images", changes, "--fast-images", argument);
            }
            Change::PinnedMemory => {
                let changes = Changes { pin: true, ..changes };
                offer(wish, "pinned memory", changes, "--pin-memory", argument);
            }
            _ => {}
        }
    }
    if let Some(reason) = &script.swap_refused {
        problems.push(format!("Stokehold's loader: {reason}"));
    }
    candidates
}
