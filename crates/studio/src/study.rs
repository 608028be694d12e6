//! A study for its page: its trials, what was best, and which parameters matter. And how it continues with more jobs.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use stokehold_trials::Plan;
use stokehold_trials::report::{self, WAYS};
use stokehold_tune::{Direction, History, Insight, Outcome, Study, Trial, in_words};

use crate::places::FolderEntry;
use crate::text;

/// What a tuner says that was started here, in the study's folder.
pub const LOG: &str = "tune.log";
/// How long a tuner is watched that begins.
const BEGINS: Duration = Duration::from_secs(20);
/// The most characters of what one says that did not begin.
const WHY: usize = 1000;

/// The trials that are sent; those of larger studies are the latest.
const TRIALS: usize = 1000;
/// The most reports of a trial; every so many one is sent of more.
const REPORTS: usize = 200;

/// Studies whose importances are kept.
const KEPT: usize = 8;
/// An importance of fewer results is shown for this many times as long as it took to make.
const SHARE: u32 = 20;

/// What share of the objective's variation each parameter explains, of the studies that somebody looks at. It takes seconds of a
/// study of thousands of trials, and changes with their results alone.
#[derive(Debug, Default)]
pub struct Importances(Mutex<VecDeque<CachedImportance>>);

#[derive(Debug)]
struct CachedImportance {
    key: String,
    /// When the study was made, which tells it from another one in the same folder.
    created: f64,
    results: usize,
    made: Instant,
    took: Duration,
    shares: Option<Vec<(String, f64)>>,
}

impl Importances {
    /// That of a study; `None` of too few results.
    pub fn of(&self, key: &str, history: &History) -> Option<Vec<(String, f64)>> {
        let results = history.counts().completed;
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_kept = |kept: &&CachedImportance| {
            kept.key == key
                && kept.created == history.created
                && (kept.results == results || kept.made.elapsed() < SHARE * kept.took)
        };
        if let Some(kept) = lock().iter().find(is_kept) {
            return kept.shares.clone();
        }
        let began = Instant::now();
        let shares = Insight::of(history).and_then(|insight| insight.importance());
        let mut all = lock();
        all.retain(|kept| kept.key != key);
        all.push_back(CachedImportance {
            key: key.to_owned(),
            created: history.created,
            results,
            made: Instant::now(),
            took: began.elapsed(),
            shares: shares.clone(),
        });
        if all.len() > KEPT {
            all.pop_front();
        }
        shares
    }
}

/// Everything that the page shows.
pub fn page(history: &History, importance: Option<Vec<(String, f64)>>) -> Value {
    let spec = &history.spec;
    let counts = history.counts();
    let skipped = history.trials.len().saturating_sub(TRIALS);
    let names = history.names();
    json!({
        "objective": text::short(&spec.objective, 100),
        "direction": format!("{:?}", spec.direction).to_lowercase(),
        "strategy": format!("{:?}", spec.strategy),
        "created": history.created,
        "most": spec.limits.max_jobs,
        "counts": {
            "completed": counts.completed,
            "stopped": counts.stopped,
            "failed": counts.failed,
            "running": counts.running,
        },
        "names": names.iter().map(|name| text::short(name, 100)).collect::<Vec<_>>(),
        "best": history.best().map(|best| json!({
            "number": best.number,
            "value": best.objective(),
            "values": text::short(&in_words(&best.values), 400),
        })),
        "parents": history.parents.iter().map(|parent| text::short(&parent.name, 100)).collect::<Vec<_>>(),
        "importance": importance,
        "parallel": report::parallel(history).map(|picture| json!({"picture": picture, "about": WAYS})),
        "skipped": skipped,
        // What the line of the best so far begins with.
        "best_before": best_of(history, skipped),
        "trials": history.trials.iter().skip(skipped).map(|trial| self::trial(trial, &names)).collect::<Vec<_>>(),
    })
}

/// Why the trials of a study cannot continue from here; `None` if they can.
pub fn elsewhere(found: &FolderEntry<'_>) -> Option<&'static str> {
    let has = |name: &str| found.file(name).is_some();
    match () {
        () if has("sagemaker.json") => Some(
            "its trials are jobs on SageMaker: add some with `stokehold tune resume --on sagemaker --max-jobs N`",
        ),
        () if has("slurm.sh") => {
            Some("its trials run on Slurm: add some with `stokehold tune resume --on slurm --max-jobs N`")
        }
        () if Plan::load(&found.folder).is_err() => {
            Some("its trials are no jobs: the program that asks for them decides how many there are")
        }
        () => None,
    }
}

/// Starts a process that continues with a study up to this many jobs, and outlives the studio. `None` if it has ended already, because
/// nothing was left to do.
///
/// # Errors
/// Why it does not begin.
pub fn go_on(folder: &Path, program: &Path, jobs: usize) -> Result<Option<Child>, String> {
    let log = folder.join(LOG);
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", log.display());
    // What an earlier one said stays.
    let out = File::options().append(true).create(true).open(&log);
    let out = out.map_err(|error| failed(&error))?;
    let before = out.metadata().map_err(|error| failed(&error))?.len() as usize;
    let errors = out.try_clone().map_err(|error| failed(&error))?;
    let mut tuner = Command::new(program)
        .args(["tune", "resume"])
        .arg(folder)
        .args(["--max-jobs", &jobs.to_string()])
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(errors)
        // Ctrl-C in the studio's terminal is not for it.
        .process_group(0)
        .spawn()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    let began = Instant::now();
    while began.elapsed() < BEGINS {
        let works = |history| Study::is_worked_on(folder, &history).unwrap_or(false);
        match tuner.try_wait().map_err(|error| failed(&error))? {
            Some(status) if status.success() => return Ok(None),
            Some(status) => {
                let said = fs::read(&log).unwrap_or_default();
                let said = String::from_utf8_lossy(said.get(before..).unwrap_or_default());
                let reason = said.trim().lines().last().unwrap_or_default();
                let reason = text::short(reason.strip_prefix("error: ").unwrap_or(reason), WHY);
                return Err(format!("the study did not continue ({status}): {reason}"));
            }
            None if Study::look(folder).is_ok_and(works) => break,
            None => std::thread::sleep(Duration::from_millis(50)),
        }
    }
    Ok(Some(tuner))
}

/// The best result of the first trials.
fn best_of(history: &History, trials: usize) -> Option<f64> {
    let is_better = |a: f64, b: f64| match history.spec.direction {
        Direction::Minimize => a < b,
        Direction::Maximize => a > b,
    };
    let completed = |trial: &&Trial| matches!(trial.outcome, Some(Outcome::Completed { .. }));
    let results = history.trials[..trials]
        .iter()
        .filter(completed)
        .filter_map(Trial::objective);
    results.reduce(|best, one| if is_better(one, best) { one } else { best })
}

fn trial(trial: &Trial, names: &[&str]) -> Value {
    let every = trial.reports.len().div_ceil(REPORTS).max(1);
    let last = trial.reports.len().saturating_sub(1);
    let reports = trial.reports.iter().enumerate();
    let reports = reports.filter(|(number, _)| number % every == 0 || *number == last);
    let (state, why) = match &trial.outcome {
        None => ("running", String::new()),
        Some(Outcome::Completed { .. }) => ("finished", String::new()),
        Some(Outcome::Stopped { .. }) => ("stopped", String::new()),
        Some(Outcome::Failed { reason }) => ("failed", text::short(reason, 300)),
    };
    let values = names.iter().map(|name| trial.values.get(*name).cloned());
    json!({
        "number": trial.number,
        "state": state,
        "why": why,
        "value": trial.objective().or(match &trial.outcome {
            Some(Outcome::Stopped { value }) => *value,
            _ => None,
        }),
        "asked": trial.asked,
        "ended": trial.ended,
        "values": values.collect::<Vec<_>>(),
        "reports": reports.flat_map(|(_, report)| [
            json!(report.step),
            json!(Some(report.value).filter(|value| value.is_finite())),
        ]).collect::<Vec<_>>(),
    })
}
