//! What pages look at: rows, a run, its curves and verdict, its log and files, comparisons and studies.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde_json::{Value, json};
use stokehold_diagnose::runs::{Run, differing, flatten};
use stokehold_profile::{FOLDER, ProfileError, check_free};
use stokehold_trials::run::job_name;
use stokehold_tune::{JOURNAL, Study, Trial};

use super::{JsonResult, Refusal, Shared, Site, blocking};
use crate::index::{self, Row, RowKind};
use crate::live::At;
use crate::notes::Notes;
use crate::places::{FolderEntry, Lost};
use crate::{files, log, start, study, text};

/// Runs that continue, on the first page.
const RUNNING: usize = 12;
/// Things that failed, on the first page.
const FAILED: usize = 8;
/// Runs that are compared at once.
pub const COMPARED: usize = 8;

pub async fn runs(State(site): Shared, Query(query): Query<index::Query>) -> JsonResult {
    blocking(move || site.index.snapshot().page(&query))
        .await
        .map(Json)
}

pub async fn home(State(site): Shared) -> JsonResult {
    blocking(move || overview(&site)).await.map(Json)
}

/// What runs and what failed.
pub fn overview(site: &Site) -> Value {
    let snapshot = site.index.snapshot();
    let mut running: Vec<&Arc<Row>> = snapshot
        .rows
        .iter()
        .filter(|row| row.state == "running")
        .collect();
    let began = |row: &Row| row.began.unwrap_or(0.0);
    running.sort_by(|a, b| began(b).total_cmp(&began(a)));
    let mut failed: Vec<&Arc<Row>> = snapshot
        .rows
        .iter()
        .filter(|row| matches!(row.state, "failed" | "cut off" | "unreadable"))
        .collect();
    let ended = |row: &Row| row.ended.or(row.began).unwrap_or(0.0);
    failed.sort_by(|a, b| ended(b).total_cmp(&ended(a)));
    let mut latest: Vec<&Arc<Row>> = snapshot
        .rows
        .iter()
        .filter(|row| matches!(row.state, "finished" | "stopped" | "interrupted"))
        .collect();
    latest.sort_by(|a, b| ended(b).total_cmp(&ended(a)));
    let mut states: BTreeMap<&str, usize> = BTreeMap::new();
    for row in &snapshot.rows {
        *states.entry(row.state).or_default() += 1;
    }
    let shown = running.iter().take(RUNNING).map(|row| {
        let figures = match (row.kind, site.places.find(&row.key)) {
            (RowKind::Study, _) | (_, Err(_)) => Value::Null,
            (_, Ok(found)) => site.judge.figures(&row.key, &found).as_ref().clone(),
        };
        json!({"row": row.as_ref(), "now": figures})
    });
    let rows = |all: Vec<&Arc<Row>>| {
        all.into_iter()
            .take(FAILED)
            .map(|row| json!(row.as_ref()))
            .collect::<Vec<_>>()
    };
    json!({
        "running": shown.collect::<Vec<_>>(),
        "running_count": running.len(),
        "failed": rows(failed),
        "latest": rows(latest),
        "states": states,
        "all": snapshot.rows.len(),
        "reading": snapshot.is_reading,
        "troubles": snapshot.troubles,
    })
}

#[derive(Debug, Deserialize)]
pub struct OfKey {
    pub key: String,
}

pub async fn run(State(site): Shared, Query(OfKey { key }): Query<OfKey>) -> JsonResult {
    blocking(move || {
        let found = site.find(&key)?;
        details(&site, &key, &found)
    })
    .await?
    .map(Json)
}

/// Everything about a run or a job that does not change every second.
fn details(site: &Site, key: &str, found: &FolderEntry<'_>) -> Result<Value, Refusal> {
    let row = row_of(found, key)?;
    let (settings, results, job) = facts(found)?;
    let results: Vec<Value> = results.iter().map(|(name, value)| json!([name, value])).collect();
    Ok(json!({
        "row": row,
        "folder": found.folder.display().to_string(),
        "settings": settings.iter().map(|(name, value)| json!([text::short(name, 100), shown(value)])).collect::<Vec<_>>(),
        "results": results,
        "job": job,
        "files": files::list(found),
        "notes": Notes::of(&found.folder),
        "has_recording": found.folder.join(FOLDER).is_dir(),
        "can": can(site, found, &row),
    }))
}

pub fn row_of(found: &FolderEntry<'_>, key: &str) -> Result<Row, Refusal> {
    index::row(found.place, found.name, key).ok_or_else(|| Refusal::lost(key, &Lost::Missing))
}

/// Which buttons make sense.
pub fn can(site: &Site, found: &FolderEntry<'_>, row: &Row) -> Value {
    let is_recorded = matches!(
        check_free(&found.folder.join(FOLDER)),
        Err(ProfileError::Recording { .. })
    );
    json!({
        "stop": !site.read_only && row.kind == RowKind::Job && row.state == "running",
        "resume": !site.read_only && site.program.is_some() && row.kind == RowKind::Job && matches!(row.state, "failed" | "stopped" | "interrupted"),
        "note": !site.read_only,
        "profiler": !site.read_only && is_recorded,
        "clone": row.kind == RowKind::Job && start::can(site),
    })
}

type Facts = (BTreeMap<String, Value>, Vec<(String, f64)>, Value);

/// Settings, results, and what only jobs have.
fn facts(found: &FolderEntry<'_>) -> Result<Facts, Refusal> {
    if let Some(store) = found.store() {
        let record = store.look(found.name).map_err(|error| Refusal::failed(&error))?;
        let job = store.job(found.name).map_err(|error| Refusal::failed(&error))?;
        let mut settings = BTreeMap::new();
        let value = serde_json::to_value(job.without_secrets()).unwrap_or_default();
        flatten("", value, &mut settings);
        let results = record
            .metrics
            .iter()
            .map(|metric| (text::short(&metric.name, 100), metric.value))
            .collect();
        let about = json!({
            "states": record.transitions.iter().map(|state| json!([format!("{:?}", state.status), state.start])).collect::<Vec<_>>(),
            "exit_code": record.exit_code,
            "reason": record.failure_reason.as_deref().or(record.stopped_by.as_deref()).map(|why| text::short(why, 1500)),
            "model": record.model,
            "output": record.output,
            "checkpoints": record.checkpoints,
            "spot": record.spot,
        });
        return Ok((settings, results, about));
    }
    if found.file(JOURNAL).is_some() {
        let reason = format!(
            "{} is a study, which has trials and no settings of its own",
            found.name
        );
        return Err(Refusal(StatusCode::BAD_REQUEST, text::short(&reason, 300)));
    }
    let run = Run::of(&found.folder).map_err(|error| Refusal::failed(&error))?;
    let run = run.ok_or_else(|| Refusal::lost(found.name, &Lost::Missing))?;
    let results = run
        .results()
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value));
    Ok((run.settings(), results.collect(), Value::Null))
}

/// A setting in a length that a page can show.
fn shown(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    text::short(&text, 500)
}

pub fn log_of(found: &FolderEntry<'_>) -> Option<PathBuf> {
    found.file("log").or_else(|| found.file("output.log"))
}

pub async fn curves(State(site): Shared, Query(OfKey { key }): Query<OfKey>) -> JsonResult {
    blocking(move || {
        let found = site.find(&key)?;
        let live = site.lives.of(&key, found.folder.clone());
        let (_, all) = live.since(At::default());
        Ok(all.unwrap_or_else(|| json!({"all": []})))
    })
    .await?
    .map(Json)
}

pub async fn judged(State(site): Shared, Query(OfKey { key }): Query<OfKey>) -> Result<Response, Refusal> {
    let one = Arc::clone(&site.judging)
        .acquire_owned()
        .await
        .map_err(|error| Refusal::failed(&error))?;
    let made = blocking(move || {
        // To the end of the read, also if who asked is gone by then.
        let _one = one;
        let found = site.find(&key)?;
        let about = stokehold_profile::About::read(&found.folder.join(FOLDER))
            .ok()
            .flatten();
        let is_over = index::row(found.place, found.name, &key).is_some_and(|row| row.state != "running");
        let made = site.judge.judged(&key, &found, about.as_ref(), is_over);
        made.map_err(|error| match error {
            ProfileError::NoRecording { .. } => Refusal(
                StatusCode::NOT_FOUND,
                "nothing was recorded of it: there is no verdict and no heat map".to_owned(),
            ),
            error => Refusal::failed(&error),
        })
    });
    made.await?.map(|value| Json(value.as_ref()).into_response())
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct OfLog {
    key: String,
    from: u64,
    before: Option<u64>,
    search: String,
}

pub async fn log_part(State(site): Shared, Query(query): Query<OfLog>) -> JsonResult {
    blocking(move || {
        let found = site.find(&query.key)?;
        let none = || Refusal(StatusCode::NOT_FOUND, "it has no log".to_owned());
        let path = log_of(&found).ok_or_else(none)?;
        let part = match (query.before, query.search.trim()) {
            (Some(end), _) => log::before(&path, end),
            (None, "") => log::from(&path, query.from),
            (None, words) => log::search(&path, query.from, words),
        };
        part.map(|part| json!(part))
            .map_err(|error| Refusal::failed(&error))
    })
    .await?
    .map(Json)
}

/// One of those that are compared: its row, its folder, and what is known of it.
type Compared = (Row, PathBuf, Facts);

#[derive(Debug, Deserialize)]
pub struct OfKeys {
    /// Keys with `//` between them, which no key has in it.
    keys: String,
}

pub async fn compare(State(site): Shared, Query(OfKeys { keys }): Query<OfKeys>) -> JsonResult {
    blocking(move || {
        let keys: Vec<&str> = keys.split("//").filter(|key| !key.is_empty()).collect();
        if !(2..=COMPARED).contains(&keys.len()) {
            let reason = format!("{} runs are named; compare 2 to {COMPARED}", keys.len());
            return Err(Refusal(StatusCode::BAD_REQUEST, reason));
        }
        let all: Result<Vec<Compared>, Refusal> = keys
            .into_iter()
            .map(|key| {
                let found = site.find(key)?;
                let folder = std::path::absolute(&found.folder).map_err(|error| Refusal::failed(&error))?;
                Ok((row_of(&found, key)?, folder, facts(&found)?))
            })
            .collect();
        let all = all?;
        let mut names: BTreeSet<&str> = BTreeSet::new();
        let first = &all[0].2.0;
        for (.., (settings, ..)) in &all[1..] {
            names.extend(differing(first, settings).into_iter().map(|(name, _)| name));
        }
        let settings: Vec<Value> = names
            .into_iter()
            .filter(|name| {
                let first = below_own(&all[0], name);
                first.is_none() || all[1..].iter().any(|one| below_own(one, name) != first)
            })
            .map(|name| {
                let values = all
                    .iter()
                    .map(|(.., (settings, ..))| settings.get(name).map(shown));
                json!([text::short(name, 100), values.collect::<Vec<_>>()])
            })
            .collect();
        let results: Vec<BTreeMap<&str, f64>> = all
            .iter()
            .map(|(.., (_, results, _))| {
                results
                    .iter()
                    .map(|(name, value)| (name.as_str(), *value))
                    .collect()
            })
            .collect();
        let names: BTreeSet<&str> = results.iter().flat_map(|of| of.keys().copied()).collect();
        let results: Vec<Value> = names
            .into_iter()
            .map(|name| json!([name, results.iter().map(|of| of.get(name)).collect::<Vec<_>>()]))
            .collect();
        let rows: Vec<&Row> = all.iter().map(|(row, ..)| row).collect();
        Ok(json!({"rows": rows, "settings": settings, "results": results}))
    })
    .await?
    .map(Json)
}

/// What a path below a run's own folder is there: it differs anyway. `None` of anything else.
fn below_own<'a>((_, folder, (settings, ..)): &'a Compared, setting: &str) -> Option<&'a Path> {
    Path::new(settings.get(setting)?.as_str()?)
        .strip_prefix(folder)
        .ok()
}

pub async fn of_study(State(site): Shared, Query(OfKey { key }): Query<OfKey>) -> JsonResult {
    blocking(move || {
        let found = site.find(&key)?;
        if found.file(JOURNAL).is_none() {
            return Err(Refusal::lost(&key, &Lost::Missing));
        }
        let history = Study::look(&found.folder).map_err(|error| Refusal::failed(&error))?;
        let mut page = study::page(&history, site.importances.of(&key, &history));
        page["row"] = json!(row_of(&found, &key)?);
        page["notes"] = json!(Notes::of(&found.folder));
        let can_add = !site.read_only && site.program.is_some() && study::elsewhere(&found).is_none();
        let more = history.spec.limits.max_jobs > history.trials.len();
        page["can"] = json!({"note": !site.read_only, "add": can_add, "end": can_add && more});
        let can_stop = |trial: &&Trial| !site.read_only && found.below(&job_of(trial.number)).is_some();
        let stoppable: Vec<usize> = history
            .running()
            .filter(can_stop)
            .map(|trial| trial.number)
            .collect();
        page["stoppable"] = json!(stoppable);
        page["folder"] = found.folder.display().to_string().into();
        Ok(page)
    })
    .await?
    .map(Json)
}

/// The folder of a trial's job in its study's.
pub fn job_of(trial: usize) -> String {
    format!("jobs/{}", job_name(trial))
}

#[derive(Debug, Deserialize)]
pub struct OfFile {
    key: String,
    name: String,
}

pub async fn file(
    State(site): Shared,
    Query(OfFile { key, name }): Query<OfFile>,
) -> Result<Response, Refusal> {
    let opened = blocking(move || {
        let found = site.find(&key)?;
        files::open(&found, &name).map_err(|lost| Refusal::lost(&format!("{key}/{name}"), &lost))
    });
    opened.await?.map(files::answer)
}

pub async fn machine(State(site): Shared) -> JsonResult {
    let looked = blocking(move || site.here.look(&site.places)).await?;
    looked.map(Json).map_err(|error| Refusal::failed(&error))
}
