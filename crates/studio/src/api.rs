//! What pages ask for, and what they may do.

mod act;
mod events;
mod look;

use std::path::PathBuf;
use std::sync::Arc;

use axum::extract::{DefaultBodyLimit, Path as Segment, State};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

pub use self::act::act_for;
use crate::data::Data;
use crate::guard::Guard;
use crate::index::Index;
use crate::judge::Judge;
use crate::live::Lives;
use crate::machine::Here;
use crate::places::{FolderEntry, Lost, Places};
use crate::server::Action;
use crate::study::Importances;
use crate::{assets, data, results, start, text, workbench};

/// The largest body of a request, bytes.
const BODY: usize = 64 << 10;

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
    importances: Importances,
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
            importances: Importances::default(),
            here,
            read_only,
            tell,
        }
    }

    /// The thing of a key.
    ///
    /// # Errors
    /// It is not there, or not below its place.
    pub fn find<'a>(&'a self, key: &'a str) -> Result<FolderEntry<'a>, Refusal> {
        self.places.find(key).map_err(|lost| Refusal::lost(key, &lost))
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

    pub fn conflict(reason: &str) -> Self {
        Self(StatusCode::CONFLICT, text::short(reason, 1000))
    }

    pub fn failed(error: &dyn std::fmt::Display) -> Self {
        Self(
            StatusCode::INTERNAL_SERVER_ERROR,
            text::short(&error.to_string(), 1000),
        )
    }
}

pub type JsonResult = Result<Json<Value>, Refusal>;
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
        .route("/api/home", get(look::home))
        .route("/api/runs", get(look::runs))
        .route("/api/run", get(look::run))
        .route("/api/run/curves", get(look::curves))
        .route("/api/run/judged", get(look::judged))
        .route("/api/run/log", get(look::log_part))
        .route("/api/run/file", get(look::file))
        .route("/api/compare", get(look::compare))
        .route("/api/study", get(look::of_study))
        .route("/api/machine", get(look::machine))
        .route("/api/events", get(events::stream))
        .route("/api/stop", post(act::stop))
        .route("/api/profiler", post(act::profiler))
        .route("/api/resume", post(act::resume))
        .route("/api/notes", post(act::note))
        .route("/api/trial/stop", post(act::stop_trial))
        .route("/api/study/add", post(act::add_jobs))
        .route("/api/study/end", post(act::end_study))
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

async fn session(State(site): Shared) -> JsonResult {
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
