//! A study whose trials run on the nodes of a Slurm cluster: an array of workers, of which each runs one trial after the other.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use stokehold_jobs::slurm::{SCRIPT, State, Submitted, output};
use stokehold_trials::run::StudyEvent;
use stokehold_tune::{History, Study, Trial};

use super::{finished_here, interrupted, watch};
use crate::{files, interrupt, terminal};

/// How often the journal is read: it is on a network file system.
const LOOK: Duration = Duration::from_secs(1);

/// How often Slurm is asked, in readings of the journal.
const ASK: usize = 5;

/// Hands the workers of a study to Slurm, and shows the study until they have ended.
pub fn run(folder: &Path, options: &[String]) -> Result<ExitCode, Box<dyn Error>> {
    let folder = &std::path::absolute(folder)?;
    let history = Study::look(folder)?;
    let limits = &history.spec.limits;
    let script = folder.join("slurm.sh");
    files::write(&script, SCRIPT)?;
    let mut all = vec![
        format!("--job-name={}", super::name(folder)),
        format!("--array=1-{}", limits.max_parallel_jobs.min(limits.max_jobs)),
        // The number of the worker.
        output(folder)? + "/slurm-%a.log",
        "--open-mode=append".to_owned(),
        "--nodes=1".to_owned(),
        "--ntasks=1".to_owned(),
        // To the worker alone, when its time limit is near: its trial gets its time to end, and continues elsewhere.
        "--signal=B:TERM@180".to_owned(),
    ];
    all.extend_from_slice(options);
    let program = std::env::current_exe()?.display().to_string();
    let study = folder.display().to_string();
    let words = [&program, "tune", "resume", &study, "--one-at-a-time"].map(str::to_owned);
    let submitted = Submitted::new(&all, &script, &words)?;
    writeln!(terminal::err(), "its workers are Slurm's job {}", submitted.id)?;
    follow(folder, &submitted)
}

fn follow(folder: &Path, submitted: &Submitted) -> Result<ExitCode, Box<dyn Error>> {
    let stop = interrupt::flag_for("stopping; press Ctrl-C again to leave the workers alone")?;
    let (mut watch, mut seen) = (watch::Watch::new(), ShownTrials::default());
    let mut cancelled = false;
    let mut turn = 0;
    loop {
        turn += 1;
        // Asked before reading the journal, so that its last events are not missed.
        let state = (turn % ASK == 0 || cancelled).then(|| submitted.look());
        let history = Study::look(folder)?;
        seen.show(&history, &mut watch);
        let how = match state {
            // It may answer the next time.
            None | Some(Ok(State::Alive(_)) | Err(_)) => None,
            Some(Ok(State::Ended(how))) => Some(how),
            Some(Ok(State::Forgotten)) => Some("forgotten".to_owned()),
        };
        if let Some(how) = how {
            drop(watch);
            return match how.as_str() {
                _ if cancelled => interrupted(folder, &["--on", "slurm"]),
                "COMPLETED" if history.trials.iter().all(Trial::is_over) => finished_here(folder, &history, "over"),
                "FAILED" if history.best().is_none() => finished_here(folder, &history, "its workers failed"),
                how => Err(format!(
                    "Slurm's job {} ended as {how} before the study was over; {}/slurm-*.log may say why, and `tune resume` continues",
                    submitted.id,
                    folder.display()
                )
                .into()),
            };
        }
        if stop.load(Ordering::SeqCst) && !cancelled {
            submitted.cancel()?;
            cancelled = true;
        }
        thread::sleep(LOOK);
    }
}

/// What was shown of a study.
#[derive(Default)]
struct ShownTrials {
    /// Of each trial who ran it last, its reports, and whether it has ended.
    trials: BTreeMap<usize, (String, usize, bool)>,
}

impl ShownTrials {
    /// Shows what has happened since the last call.
    fn show(&mut self, history: &History, watch: &mut watch::Watch) {
        for trial in &history.trials {
            let now = (trial.worker.clone(), trial.reports.len(), trial.is_over());
            let before = self.trials.insert(trial.number, now.clone());
            let (worker, reports, was_over) = before.clone().unwrap_or_default();
            if worker != now.0 && !now.0.is_empty() {
                // Its first reports may have come since it began.
                let fresh = (before.is_none() && trial.attempt == 1).then(|| Trial {
                    reports: Vec::new(),
                    ..trial.clone()
                });
                watch.see(&StudyEvent::Started(fresh.as_ref().unwrap_or(trial)), history);
            }
            if reports != now.1 {
                watch.see(&StudyEvent::Reported(trial), history);
            }
            if now.2 && !was_over {
                watch.see(&StudyEvent::Ended(trial), history);
            }
        }
        watch.see(&StudyEvent::Tick, history);
    }
}
