//! What pages do: each action has a line of the audit, and a read-only studio refuses all.

use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use stokehold_base::fault::Fault;
use stokehold_profile::{Change, FOLDER, ProfileError};
use stokehold_trials::run::{job_name, jobs};
use stokehold_tune::{JOURNAL, Study, TuneError};

use super::look::{OfKey, job_of, row_of};
use super::{JsonResult, Refusal, Shared, Site, blocking};
use crate::notes::Notes;
use crate::server::{Action, Peer};
use crate::{study, text};

/// The most jobs that are added to a study at once.
const MOST_ADDED: usize = 10_000;

pub async fn stop(
    State(site): Shared,
    Extension(peer): Extension<Peer>,
    Json(OfKey { key }): Json<OfKey>,
) -> JsonResult {
    act(site, peer, format!("stop {key}"), move |site| {
        let found = site.find(&key)?;
        let no_job = || Refusal::conflict("only jobs can be stopped from here");
        let store = found.store().ok_or_else(no_job)?;
        let record = store.stop(found.name).map_err(|error| Refusal::failed(&error))?;
        match record.status.is_final() {
            true => Err(Refusal::conflict("the job has ended already")),
            false => Ok(()),
        }
    })
    .await
}

#[derive(Debug, Deserialize)]
pub struct ToSwitch {
    key: String,
    on: Option<bool>,
    interval_ms: Option<u64>,
}

pub async fn profiler(
    State(site): Shared,
    Extension(peer): Extension<Peer>,
    Json(change): Json<ToSwitch>,
) -> JsonResult {
    let mut what = format!("profiler {}", change.key);
    if let Some(on) = change.on {
        what += if on { " on" } else { " off" };
    }
    if let Some(ms) = change.interval_ms {
        what += &format!(" every {ms} ms");
    }
    act(site, peer, what, move |site| {
        let ToSwitch { key, on, interval_ms } = change;
        let found = site.find(&key)?;
        if on.is_none() && interval_ms.is_none() {
            return Err(Refusal(
                StatusCode::BAD_REQUEST,
                "say `on` or `interval_ms`".to_owned(),
            ));
        }
        let sent = Change { on, interval_ms }.send(&found.folder.join(FOLDER));
        sent.map_err(|error| match error {
            ProfileError::NotRecording { .. } | ProfileError::Interval { .. } => {
                Refusal::conflict(&error.to_string())
            }
            error => Refusal::failed(&error),
        })
    })
    .await
}

pub async fn resume(
    State(site): Shared,
    Extension(peer): Extension<Peer>,
    Json(OfKey { key }): Json<OfKey>,
) -> JsonResult {
    act(site, peer, format!("resume {key}"), move |site| {
        let found = site.find(&key)?;
        let store = found
            .store()
            .ok_or_else(|| Refusal::conflict("only jobs can be resumed from here"))?;
        let record = store.get(found.name).map_err(|error| Refusal::failed(&error))?;
        if record.slurm.is_some() {
            return Err(Refusal::conflict(
                "it ran on Slurm: resume it with `stokehold job run --on slurm --resume`",
            ));
        }
        let program = site
            .program
            .as_deref()
            .ok_or_else(|| Refusal::conflict("this studio has no program that could run it"))?;
        let runner = store.start(found.name, program, true);
        let runner = runner.map_err(|error| match error.is_input() {
            true => Refusal::conflict(&error.to_string()),
            false => Refusal::failed(&error),
        })?;
        take_note_of_the_end(runner);
        Ok(())
    })
    .await
}

#[derive(Debug, Deserialize)]
pub struct ToNote {
    key: String,
    /// What their writer saw before.
    was: Option<Notes>,
    #[serde(flatten)]
    notes: Notes,
}

pub async fn note(
    State(site): Shared,
    Extension(peer): Extension<Peer>,
    Json(ToNote { key, was, notes }): Json<ToNote>,
) -> JsonResult {
    act_for(site, peer, format!("notes {key}"), move |site| {
        let found = site.find(&key)?;
        // Only what has a row can be marked.
        row_of(&found, &key)?;
        let notes = notes
            .checked()
            .map_err(|reason| Refusal(StatusCode::BAD_REQUEST, reason))?;
        let is_kept = notes.replace(was.as_ref(), &found.folder);
        if !is_kept.map_err(|error| Refusal::failed(&error))? {
            return Err(Refusal::conflict(
                "somebody has changed them meanwhile: copy what you typed, load the page again, and add it",
            ));
        }
        Ok(("done".to_owned(), json!({"notes": notes})))
    })
    .await
}

#[derive(Debug, Deserialize)]
pub struct ToStopTrial {
    key: String,
    trial: usize,
}

pub async fn stop_trial(
    State(site): Shared,
    Extension(peer): Extension<Peer>,
    Json(ToStopTrial { key, trial }): Json<ToStopTrial>,
) -> JsonResult {
    act(site, peer, format!("stop trial {trial} of {key}"), move |site| {
        let found = site.find(&key)?;
        if found.file(JOURNAL).is_none() {
            return Err(Refusal::conflict("only a study has trials"));
        }
        let history = Study::look(&found.folder).map_err(|error| Refusal::failed(&error))?;
        if !history.running().any(|running| running.number == trial) {
            return Err(Refusal::conflict(&format!("trial {trial} does not run")));
        }
        if found.below(&job_of(trial)).is_none() {
            return Err(Refusal::conflict(&format!(
                "trial {trial} is no job of this folder: stop it where it runs"
            )));
        }
        // The process that runs the study sees that its job was stopped, and counts the trial as stopped early.
        let store = jobs(&found.folder).map_err(|error| Refusal::failed(&error))?;
        let record = store
            .stop(&job_name(trial))
            .map_err(|error| Refusal::failed(&error))?;
        match record.status.is_final() {
            true => Err(Refusal::conflict(&format!(
                "the job of trial {trial} has ended already"
            ))),
            false => Ok(()),
        }
    })
    .await
}

#[derive(Debug, Deserialize)]
pub struct ToAdd {
    key: String,
    /// How many jobs more than the study's limit.
    jobs: usize,
}

pub async fn add_jobs(
    State(site): Shared,
    Extension(peer): Extension<Peer>,
    Json(ToAdd { key, jobs }): Json<ToAdd>,
) -> JsonResult {
    act_for(site, peer, format!("add {jobs} jobs to {key}"), move |site| {
        let found = site.find(&key)?;
        let refused = |error: TuneError| match error.is_input() {
            true => Refusal::conflict(&error.to_string()),
            false => Refusal::failed(&error),
        };
        if found.file(JOURNAL).is_none() {
            return Err(Refusal::conflict("only a study has jobs that can be added"));
        }
        if !(1..=MOST_ADDED).contains(&jobs) {
            let reason = format!("{jobs} jobs cannot be added; add 1 to {MOST_ADDED}");
            return Err(Refusal(StatusCode::BAD_REQUEST, reason));
        }
        if let Some(reason) = study::elsewhere(&found) {
            return Err(Refusal::conflict(reason));
        }
        let program = site
            .program
            .as_deref()
            .ok_or_else(|| Refusal::conflict("this studio has no program that could run them"))?;
        // One after the other: each begins with the limit that the one before has set.
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut study = Study::open(&found.folder).map_err(refused)?;
        let mut limits = study.history().spec.limits.clone();
        limits.max_jobs = limits.max_jobs.saturating_add(jobs);
        let of = limits.max_jobs;
        let said = match Study::is_worked_on(&found.folder, study.history()).map_err(refused)? {
            true => {
                study.set_limits(limits).map_err(refused)?;
                format!("the study has {of} jobs now; whoever runs it continues with them")
            }
            false => {
                match study::go_on(&found.folder, program, of).map_err(|reason| Refusal::conflict(&reason))? {
                    Some(tuner) => {
                        take_note_of_the_end(tuner);
                        format!("the study has {of} jobs now, and continues in a process of its own")
                    }
                    None => format!(
                        "the study has {of} jobs now, but another of its limits has ended it; see {}",
                        study::LOG
                    ),
                }
            }
        };
        Ok((said.clone(), json!({"said": said})))
    })
    .await
}

pub async fn end_study(
    State(site): Shared,
    Extension(peer): Extension<Peer>,
    Json(OfKey { key }): Json<OfKey>,
) -> JsonResult {
    act_for(site, peer, format!("no more jobs for {key}"), move |site| {
        let found = site.find(&key)?;
        if let Some(reason) = study::elsewhere(&found) {
            return Err(Refusal::conflict(reason));
        }
        let failed = |error: TuneError| Refusal::failed(&error);
        let mut study = Study::open(&found.folder).map_err(failed)?;
        let mut limits = study.history().spec.limits.clone();
        // A limit is at least one job.
        limits.max_jobs = study.history().trials.len().max(1);
        let of = limits.max_jobs;
        study.set_limits(limits).map_err(failed)?;
        let said = format!(
            "the study ends with its {of} jobs; those that run continue to their end, unless you stop them"
        );
        Ok((said.clone(), json!({"said": said})))
    })
    .await
}

/// A process that was started lives on without the studio; while the studio is there, somebody has to take note of its end.
fn take_note_of_the_end(mut child: Child) {
    let waiting = std::thread::Builder::new().name("runner".to_owned());
    let _ = waiting.spawn(move || child.wait());
}

/// Does what changes something, and tells the audit how it ended.
async fn act(
    site: Arc<Site>,
    peer: Peer,
    what: String,
    work: impl FnOnce(&Site) -> Result<(), Refusal> + Send + 'static,
) -> JsonResult {
    let work = |site: &Site| work(site).map(|()| ("done".to_owned(), json!({"done": true})));
    act_for(site, peer, what, work).await
}

/// As [`act`], for work that has an outcome to tell and an answer.
pub async fn act_for(
    site: Arc<Site>,
    Peer(peer): Peer,
    what: String,
    work: impl FnOnce(&Site) -> Result<(String, Value), Refusal> + Send + 'static,
) -> JsonResult {
    let what = text::short(&what.replace(['\n', '\t'], " "), 300);
    blocking(move || {
        let done = match site.read_only {
            true => Err(Refusal(
                StatusCode::FORBIDDEN,
                "this studio is read-only (--read-only)".to_owned(),
            )),
            false => work(&site),
        };
        let outcome = done
            .as_ref()
            .map_or_else(|refusal| refusal.1.clone(), |(said, _)| said.clone());
        let outcome = text::short(&outcome.replace(['\n', '\t'], " "), 1000);
        (site.tell)(&Action::now(peer, what, outcome));
        site.index.hurry();
        done.map(|(_, answer)| answer)
    })
    .await?
    .map(Json)
}
