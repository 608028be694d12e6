//! What pages ask for, and what they may do.

mod events;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Extension, Path as Segment, Query, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use stokehold_base::fault::Fault;
use stokehold_diagnose::runs::{Run, differing, flatten};
use stokehold_profile::{Change, FOLDER, ProfileError, check_free};
use stokehold_tune::run::{job_name, jobs};
use stokehold_tune::{JOURNAL, Study, Trial};
use tokio::sync::Semaphore;

use crate::data::Data;
use crate::guard::Guard;
use crate::index::{self, Index, Kind, Row};
use crate::judge::Judge;
use crate::live::{At, Lives};
use crate::machine::Here;
use crate::notes::Notes;
use crate::places::{Found, Lost, Places};
use crate::server::{Action, Peer};
use crate::{assets, data, files, log, results, start, study, text, workbench};

/// The largest body of a request, bytes.
const BODY: usize = 64 << 10;
/// Runs that go on, on the first page.
const RUNNING: usize = 12;
/// Things that failed, on the first page.
const FAILED: usize = 8;
/// Runs that are compared at once.
const COMPARED: usize = 8;

/// All that handlers share.
pub struct Site {
    /// Who may ask.
    pub guard: Guard,
    pub places: Arc<Places>,
    /// The folders of images.
    pub data: Data,
    /// The command line that runs jobs in the background.
    pub program: Option<PathBuf>,
    index: Arc<Index>,
    judge: Judge,
    /// One recording is read at a time; who waits for it keeps no thread waiting.
    judging: Arc<Semaphore>,
    lives: Lives,
    here: Arc<Here>,
    pub read_only: bool,
    tell: Box<dyn Fn(&Action) + Send + Sync>,
}

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site")
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}

/// What a site shows.
pub struct Sources {
    pub places: Arc<Places>,
    pub data: Data,
    pub index: Arc<Index>,
    pub here: Arc<Here>,
}

impl Site {
    pub fn new(
        guard: Guard,
        sources: Sources,
        program: Option<PathBuf>,
        read_only: bool,
        tell: Box<dyn Fn(&Action) + Send + Sync>,
    ) -> Self {
        let Sources {
            places,
            data,
            index,
            here,
        } = sources;
        Self {
            guard,
            places,
            data,
            program,
            index,
            judge: Judge::default(),
            judging: Arc::new(Semaphore::new(1)),
            lives: Lives::default(),
            here,
            read_only,
            tell,
        }
    }
}

/// An answer that says why there is no other.
#[derive(Debug)]
pub struct Refusal(pub StatusCode, pub String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({"error": self.1}))).into_response()
    }
}

impl Refusal {
    pub fn lost(key: &str, lost: &Lost) -> Self {
        let key = text::short(key, 200);
        match lost {
            Lost::Missing => Self(
                StatusCode::NOT_FOUND,
                format!("{key} is not there; it may have been removed or renamed"),
            ),
            Lost::Outside => Self(
                StatusCode::FORBIDDEN,
                format!("{key} leads out of the folders of this studio by a link; name that folder too"),
            ),
        }
    }

    pub fn failed(error: &dyn std::fmt::Display) -> Self {
        Self(
            StatusCode::INTERNAL_SERVER_ERROR,
            text::short(&error.to_string(), 1000),
        )
    }
}

pub type Answer = Result<Json<Value>, Refusal>;
pub type Shared = State<Arc<Site>>;

pub fn router(site: Arc<Site>) -> Router {
    let page = get(|| async { shell() });
    Router::new()
        .route("/", page.clone())
        .route("/runs", page.clone())
        .route("/run", page.clone())
        .route("/compare", page.clone())
        .route("/studies", page.clone())
        .route("/study", page.clone())
        .route("/start", page.clone())
        .route("/data", page.clone())
        .route("/machine", page.clone())
        .route("/results", page.clone())
        .route("/workbench", page)
        .route("/assets/{name}", get(asset))
        .route("/api/session", get(session))
        .route("/api/home", get(home))
        .route("/api/runs", get(runs))
        .route("/api/run", get(run))
        .route("/api/run/curves", get(curves))
        .route("/api/run/judged", get(judged))
        .route("/api/run/log", get(log_part))
        .route("/api/run/file", get(file))
        .route("/api/compare", get(compare))
        .route("/api/study", get(of_study))
        .route("/api/machine", get(machine))
        .route("/api/events", get(events::stream))
        .route("/api/stop", post(stop))
        .route("/api/profiler", post(profiler))
        .route("/api/resume", post(resume))
        .route("/api/notes", post(note))
        .route("/api/trial/stop", post(stop_trial))
        .merge(start::routes())
        .merge(data::routes())
        .merge(results::routes())
        .merge(workbench::routes())
        .fallback(|| async { Refusal(StatusCode::NOT_FOUND, "there is no such page".to_owned()) })
        .layer(DefaultBodyLimit::max(BODY))
        .with_state(site)
}

fn shell() -> Response {
    let mut answer = Response::new(assets::SHELL.into());
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

async fn asset(Segment(name): Segment<String>, headers: HeaderMap) -> Result<Response, Refusal> {
    let none = || Refusal(StatusCode::NOT_FOUND, "there is no such file".to_owned());
    assets::asset(&name, &headers).ok_or_else(none)
}

/// Does work that reads files, in a thread of its own.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Refusal::failed(&error))
}

async fn session(State(site): Shared) -> Answer {
    let about = blocking(move || {
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "read_only": site.read_only,
            "can_start": start::can(&site),
            "places": site.places.about(),
        })
    });
    about.await.map(Json)
}

async fn runs(State(site): Shared, Query(query): Query<index::Query>) -> Answer {
    blocking(move || site.index.snapshot().page(&query))
        .await
        .map(Json)
}

async fn home(State(site): Shared) -> Answer {
    blocking(move || overview(&site)).await.map(Json)
}

/// What runs and what failed.
fn overview(site: &Site) -> Value {
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
            (Kind::Study, _) | (_, Err(_)) => Value::Null,
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
struct OfKey {
    key: String,
}

async fn run(State(site): Shared, Query(OfKey { key }): Query<OfKey>) -> Answer {
    blocking(move || {
        let found = site
            .places
            .find(&key)
            .map_err(|lost| Refusal::lost(&key, &lost))?;
        details(&site, &key, &found)
    })
    .await?
    .map(Json)
}

/// Everything about a run or a job that does not change every second.
fn details(site: &Site, key: &str, found: &Found<'_>) -> Result<Value, Refusal> {
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

fn row_of(found: &Found<'_>, key: &str) -> Result<Row, Refusal> {
    index::row(found.place, found.name, key).ok_or_else(|| Refusal::lost(key, &Lost::Missing))
}

/// Which buttons make sense.
fn can(site: &Site, found: &Found<'_>, row: &Row) -> Value {
    let is_recorded = matches!(
        check_free(&found.folder.join(FOLDER)),
        Err(ProfileError::Recording { .. })
    );
    json!({
        "stop": !site.read_only && row.kind == Kind::Job && row.state == "running",
        "resume": !site.read_only && site.program.is_some() && row.kind == Kind::Job && matches!(row.state, "failed" | "stopped" | "interrupted"),
        "note": !site.read_only,
        "profiler": !site.read_only && is_recorded,
        "clone": row.kind == Kind::Job && start::can(site),
    })
}

type Facts = (BTreeMap<String, Value>, Vec<(String, f64)>, Value);

/// Settings, results, and what only jobs have.
fn facts(found: &Found<'_>) -> Result<Facts, Refusal> {
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

fn log_of(found: &Found<'_>) -> Option<PathBuf> {
    found.file("log").or_else(|| found.file("output.log"))
}

async fn curves(State(site): Shared, Query(OfKey { key }): Query<OfKey>) -> Answer {
    blocking(move || {
        let found = site
            .places
            .find(&key)
            .map_err(|lost| Refusal::lost(&key, &lost))?;
        let live = site.lives.of(&key, found.folder.clone());
        let (_, all) = live.since(At::default());
        Ok(all.unwrap_or_else(|| json!({"all": []})))
    })
    .await?
    .map(Json)
}

async fn judged(State(site): Shared, Query(OfKey { key }): Query<OfKey>) -> Result<Response, Refusal> {
    let one = Arc::clone(&site.judging)
        .acquire_owned()
        .await
        .map_err(|error| Refusal::failed(&error))?;
    let made = blocking(move || {
        // To the end of the read, also if who asked is gone by then.
        let _one = one;
        let found = site
            .places
            .find(&key)
            .map_err(|lost| Refusal::lost(&key, &lost))?;
        let about = stokehold_profile::About::read(&found.folder.join(FOLDER))
            .ok()
            .flatten();
        let made = site.judge.judged(&key, &found, about.as_ref());
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
struct OfLog {
    key: String,
    from: u64,
    before: Option<u64>,
    search: String,
}

async fn log_part(State(site): Shared, Query(query): Query<OfLog>) -> Answer {
    blocking(move || {
        let found = site
            .places
            .find(&query.key)
            .map_err(|lost| Refusal::lost(&query.key, &lost))?;
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

#[derive(Debug, Deserialize)]
struct OfKeys {
    /// Keys with `//` between them, which no key has in it.
    keys: String,
}

async fn compare(State(site): Shared, Query(OfKeys { keys }): Query<OfKeys>) -> Answer {
    blocking(move || {
        let keys: Vec<&str> = keys.split("//").filter(|key| !key.is_empty()).collect();
        if !(2..=COMPARED).contains(&keys.len()) {
            let reason = format!("{} runs are named; compare 2 to {COMPARED}", keys.len());
            return Err(Refusal(StatusCode::BAD_REQUEST, reason));
        }
        let all: Result<Vec<(Row, Facts)>, Refusal> = keys
            .into_iter()
            .map(|key| {
                let found = site.places.find(key).map_err(|lost| Refusal::lost(key, &lost))?;
                Ok((row_of(&found, key)?, facts(&found)?))
            })
            .collect();
        let all = all?;
        let mut names: BTreeSet<&str> = BTreeSet::new();
        let first = &all[0].1.0;
        for (_, (settings, ..)) in &all[1..] {
            names.extend(differing(first, settings).into_iter().map(|(name, _)| name));
        }
        let settings: Vec<Value> = names
            .into_iter()
            .map(|name| {
                let values = all
                    .iter()
                    .map(|(_, (settings, ..))| settings.get(name).map(shown));
                json!([text::short(name, 100), values.collect::<Vec<_>>()])
            })
            .collect();
        let results: Vec<BTreeMap<&str, f64>> = all
            .iter()
            .map(|(_, (_, results, _))| {
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
        let rows: Vec<&Row> = all.iter().map(|(row, _)| row).collect();
        Ok(json!({"rows": rows, "settings": settings, "results": results}))
    })
    .await?
    .map(Json)
}

async fn of_study(State(site): Shared, Query(OfKey { key }): Query<OfKey>) -> Answer {
    blocking(move || {
        let found = site
            .places
            .find(&key)
            .map_err(|lost| Refusal::lost(&key, &lost))?;
        if found.file(JOURNAL).is_none() {
            return Err(Refusal::lost(&key, &Lost::Missing));
        }
        let history = Study::look(&found.folder).map_err(|error| Refusal::failed(&error))?;
        let mut page = study::page(&history);
        page["row"] = json!(row_of(&found, &key)?);
        page["notes"] = json!(Notes::of(&found.folder));
        page["can"] = json!({"note": !site.read_only});
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
fn job_of(trial: usize) -> String {
    format!("jobs/{}", job_name(trial))
}

#[derive(Debug, Deserialize)]
struct OfFile {
    key: String,
    name: String,
}

async fn file(State(site): Shared, Query(OfFile { key, name }): Query<OfFile>) -> Result<Response, Refusal> {
    let opened = blocking(move || {
        let found = site
            .places
            .find(&key)
            .map_err(|lost| Refusal::lost(&key, &lost))?;
        files::open(&found, &name).map_err(|lost| Refusal::lost(&format!("{key}/{name}"), &lost))
    });
    opened.await?.map(files::answer)
}

async fn machine(State(site): Shared) -> Answer {
    let looked = blocking(move || site.here.look(&site.places)).await?;
    looked.map(Json).map_err(|error| Refusal::failed(&error))
}

async fn stop(
    State(site): Shared,
    Extension(peer): Extension<Peer>,
    Json(OfKey { key }): Json<OfKey>,
) -> Answer {
    act(site, peer, format!("stop {key}"), move |site| {
        let found = site
            .places
            .find(&key)
            .map_err(|lost| Refusal::lost(&key, &lost))?;
        let no_job = || {
            Refusal(
                StatusCode::CONFLICT,
                "only jobs can be stopped from here".to_owned(),
            )
        };
        let store = found.store().ok_or_else(no_job)?;
        let record = store.stop(found.name).map_err(|error| Refusal::failed(&error))?;
        match record.status.is_final() {
            true => Err(Refusal(
                StatusCode::CONFLICT,
                "the job has ended already".to_owned(),
            )),
            false => Ok(()),
        }
    })
    .await
}

#[derive(Debug, Deserialize)]
struct ToSwitch {
    key: String,
    on: Option<bool>,
    interval_ms: Option<u64>,
}

async fn profiler(
    State(site): Shared,
    Extension(peer): Extension<Peer>,
    Json(change): Json<ToSwitch>,
) -> Answer {
    let mut what = format!("profiler {}", change.key);
    if let Some(on) = change.on {
        what += if on { " on" } else { " off" };
    }
    if let Some(ms) = change.interval_ms {
        what += &format!(" every {ms} ms");
    }
    act(site, peer, what, move |site| {
        let ToSwitch { key, on, interval_ms } = change;
        let found = site
            .places
            .find(&key)
            .map_err(|lost| Refusal::lost(&key, &lost))?;
        if on.is_none() && interval_ms.is_none() {
            return Err(Refusal(
                StatusCode::BAD_REQUEST,
                "say `on` or `interval_ms`".to_owned(),
            ));
        }
        let sent = Change { on, interval_ms }.send(&found.folder.join(FOLDER));
        sent.map_err(|error| match error {
            ProfileError::NotRecording { .. } | ProfileError::Interval { .. } => {
                Refusal(StatusCode::CONFLICT, error.to_string())
            }
            error => Refusal::failed(&error),
        })
    })
    .await
}

async fn resume(
    State(site): Shared,
    Extension(peer): Extension<Peer>,
    Json(OfKey { key }): Json<OfKey>,
) -> Answer {
    act(site, peer, format!("resume {key}"), move |site| {
        let found = site
            .places
            .find(&key)
            .map_err(|lost| Refusal::lost(&key, &lost))?;
        let conflict = |reason: String| Refusal(StatusCode::CONFLICT, text::short(&reason, 1000));
        let store = found
            .store()
            .ok_or_else(|| conflict("only jobs can be resumed from here".to_owned()))?;
        let record = store.get(found.name).map_err(|error| Refusal::failed(&error))?;
        if record.slurm.is_some() {
            return Err(conflict(
                "it ran on Slurm: resume it with `stokehold job run --on slurm --resume`".to_owned(),
            ));
        }
        let program = site
            .program
            .as_deref()
            .ok_or_else(|| conflict("this studio has no program that could run it".to_owned()))?;
        let runner = store.start(found.name, program, true);
        let mut runner = runner.map_err(|error| match error.is_input() {
            true => conflict(error.to_string()),
            false => Refusal::failed(&error),
        })?;
        // It lives on without the studio; while the studio is there, somebody has to take note of its end.
        let waiting = std::thread::Builder::new().name("runner".to_owned());
        let _ = waiting.spawn(move || runner.wait());
        Ok(())
    })
    .await
}

#[derive(Debug, Deserialize)]
struct ToNote {
    key: String,
    #[serde(flatten)]
    notes: Notes,
}

async fn note(
    State(site): Shared,
    Extension(peer): Extension<Peer>,
    Json(ToNote { key, notes }): Json<ToNote>,
) -> Answer {
    act(site, peer, format!("notes {key}"), move |site| {
        let found = site
            .places
            .find(&key)
            .map_err(|lost| Refusal::lost(&key, &lost))?;
        // Only what has a row can be marked.
        row_of(&found, &key)?;
        let notes = notes
            .checked()
            .map_err(|reason| Refusal(StatusCode::BAD_REQUEST, reason))?;
        notes
            .write(&found.folder)
            .map_err(|error| Refusal::failed(&error))
    })
    .await
}

#[derive(Debug, Deserialize)]
struct ToStopTrial {
    key: String,
    trial: usize,
}

async fn stop_trial(
    State(site): Shared,
    Extension(peer): Extension<Peer>,
    Json(ToStopTrial { key, trial }): Json<ToStopTrial>,
) -> Answer {
    act(site, peer, format!("stop trial {trial} of {key}"), move |site| {
        let found = site
            .places
            .find(&key)
            .map_err(|lost| Refusal::lost(&key, &lost))?;
        let conflict = |reason: String| Refusal(StatusCode::CONFLICT, reason);
        if found.file(JOURNAL).is_none() {
            return Err(conflict("only a study has trials".to_owned()));
        }
        let history = Study::look(&found.folder).map_err(|error| Refusal::failed(&error))?;
        if !history.running().any(|running| running.number == trial) {
            return Err(conflict(format!("trial {trial} does not run")));
        }
        if found.below(&job_of(trial)).is_none() {
            return Err(conflict(format!(
                "trial {trial} is no job of this folder: stop it where it runs"
            )));
        }
        // Whoever runs the study sees that its job was stopped, and counts the trial as stopped early.
        let store = jobs(&found.folder).map_err(|error| Refusal::failed(&error))?;
        let record = store
            .stop(&job_name(trial))
            .map_err(|error| Refusal::failed(&error))?;
        match record.status.is_final() {
            true => Err(conflict(format!("the job of trial {trial} has ended already"))),
            false => Ok(()),
        }
    })
    .await
}

/// Does what changes something, and tells the audit how it ended.
async fn act(
    site: Arc<Site>,
    peer: Peer,
    what: String,
    work: impl FnOnce(&Site) -> Result<(), Refusal> + Send + 'static,
) -> Answer {
    let work = |site: &Site| work(site).map(|()| ("done".to_owned(), json!({"done": true})));
    act_for(site, peer, what, work).await
}

/// As [`act`], for work that has an outcome to tell and an answer.
pub async fn act_for(
    site: Arc<Site>,
    Peer(peer): Peer,
    what: String,
    work: impl FnOnce(&Site) -> Result<(String, Value), Refusal> + Send + 'static,
) -> Answer {
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
