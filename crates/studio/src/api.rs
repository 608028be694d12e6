//! What pages ask for, and what they may do.

mod events;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Extension, Path as Segment, Query, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use stokehold_diagnose::runs::{Run, differing, flatten};
use stokehold_profile::{Change, FOLDER, ProfileError, check_free};
use stokehold_tune::{JOURNAL, Study};
use tokio::sync::Semaphore;

use crate::data::Data;
use crate::guard::Guard;
use crate::index::{self, Index, Kind, Row};
use crate::judge::Judge;
use crate::live::{At, Lives};
use crate::places::{Found, Lost, Places};
use crate::server::{Action, Peer};
use crate::{assets, data, log, results, start, study, text, workbench};

/// The largest body of a request, bytes.
const BODY: usize = 64 << 10;
/// Runs that go on, on the first page.
const RUNNING: usize = 12;
/// Things that failed, on the first page.
const FAILED: usize = 8;
/// Files of a run that are listed.
const FILES: usize = 100;

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
    judging: Semaphore,
    lives: Lives,
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

impl Site {
    pub fn new(
        guard: Guard,
        places: Arc<Places>,
        data: Data,
        program: Option<PathBuf>,
        index: Arc<Index>,
        read_only: bool,
        tell: Box<dyn Fn(&Action) + Send + Sync>,
    ) -> Self {
        Self {
            guard,
            places,
            data,
            program,
            index,
            judge: Judge::default(),
            judging: Semaphore::new(1),
            lives: Lives::default(),
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
        .route("/api/compare", get(compare))
        .route("/api/study", get(of_study))
        .route("/api/events", get(events::stream))
        .route("/api/stop", post(stop))
        .route("/api/profiler", post(profiler))
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
        "files": files(&found.folder),
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

/// The files of a folder and of its checkpoints and results, with their sizes.
fn files(folder: &Path) -> Vec<Value> {
    let Ok(root) = fs::canonicalize(folder) else {
        return Vec::new();
    };
    let mut all = Vec::new();
    for below in ["", "checkpoints", "output"] {
        // A link may lead elsewhere.
        let Ok(resolved) = fs::canonicalize(root.join(below)) else {
            continue;
        };
        if !resolved.starts_with(&root) {
            continue;
        }
        let Ok(entries) = fs::read_dir(resolved) else {
            continue;
        };
        for entry in entries.flatten().take(10 * FILES) {
            // Of links, the links themselves.
            let Ok(about) = entry.metadata() else { continue };
            if about.is_file() {
                let name = Path::new(below).join(entry.file_name());
                all.push((text::short(&name.to_string_lossy(), 200), about.len()));
            }
        }
    }
    all.sort();
    all.truncate(FILES);
    all.into_iter()
        .map(|(name, bytes)| json!([name, bytes]))
        .collect()
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
    let own = Arc::clone(&site);
    let _one = own
        .judging
        .acquire()
        .await
        .map_err(|error| Refusal::failed(&error))?;
    let made = blocking(move || {
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
struct OfPair {
    a: String,
    b: String,
}

async fn compare(State(site): Shared, Query(OfPair { a, b }): Query<OfPair>) -> Answer {
    blocking(move || {
        let one = |key: &str| -> Result<(Row, Facts), Refusal> {
            let found = site.places.find(key).map_err(|lost| Refusal::lost(key, &lost))?;
            Ok((row_of(&found, key)?, facts(&found)?))
        };
        let (a, b) = (one(&a)?, one(&b)?);
        let of = |value: Option<&Value>| value.map(shown);
        let settings: Vec<Value> = differing(&a.1.0, &b.1.0)
            .into_iter()
            .map(|(name, [a, b])| json!([text::short(name, 100), of(a), of(b)]))
            .collect();
        let results = |facts: &Facts| facts.1.iter().cloned().collect::<BTreeMap<String, f64>>();
        let (of_a, of_b) = (results(&a.1), results(&b.1));
        let mut names: Vec<&String> = of_a.keys().chain(of_b.keys()).collect();
        names.sort();
        names.dedup();
        let results: Vec<Value> = names
            .into_iter()
            .map(|name| json!([name, of_a.get(name), of_b.get(name)]))
            .collect();
        Ok(json!({"a": a.0, "b": b.0, "settings": settings, "results": results}))
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
        page["folder"] = found.folder.display().to_string().into();
        Ok(page)
    })
    .await?
    .map(Json)
}

#[derive(Debug, Deserialize)]
struct ToStop {
    key: String,
}

async fn stop(
    State(site): Shared,
    Extension(peer): Extension<Peer>,
    Json(ToStop { key }): Json<ToStop>,
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
