//! Event streams: what has changed of the thing that a page shows.
//!
//! | view | events |
//! |---|---|
//! | `list` | `changed`: the rows are other ones |
//! | `home` | `home`: all of the first page |
//! | `run` | `head`: row, figures and buttons; `curves`: points; `log`: lines; `gone` |
//! | `several` | `head` and `curves` of each of the runs that `keys` names, `of` says of which one |
//! | `study` | `changed` |
//!
//! The id of an event of one run is `BEGUN.POINTS.BYTES`, how far the reader is. A browser sends the last one when it connects
//! again.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::{Value, json};
use stokehold_base::hash::Fnv;
use stokehold_tune::JOURNAL;

use super::look::{COMPARED, can, log_of, overview, row_of};
use super::{Refusal, Shared, Site};
use crate::live::{At, Live};
use crate::log;

/// Between two looks at a run of whose log more has been written than was sent.
const SOON: Duration = Duration::from_millis(20);
/// Between two looks at a run, and at anything else.
const OFTEN: Duration = Duration::from_millis(500);
const SELDOM: Duration = Duration::from_secs(1);
/// Between two looks at the state of a run.
const HEAD: Duration = Duration::from_secs(2);
/// A line that keeps proxies from closing the connection.
const ALIVE: Duration = Duration::from_secs(15);
/// A line without an end is shown if nothing has followed it for so long.
const QUIET: Duration = Duration::from_secs(1);
/// The lines of a log with which a page begins.
const TAIL: usize = 500;

#[derive(Debug, Deserialize)]
pub struct Wanted {
    view: String,
    #[serde(default)]
    key: String,
    #[serde(default)]
    keys: String,
    /// As the header `Last-Event-ID`, for a page that was hidden for a while.
    #[serde(default)]
    at: String,
}

/// A stream, and what its reader has.
struct Watching {
    site: Arc<Site>,
    view: View,
    pending: VecDeque<Event>,
    is_first: bool,
}

enum View {
    List { version: u64 },
    Home { hash: u64 },
    Study { key: String, hash: u64 },
    Run(Box<OfRun>),
    Several(Vec<OfRun>),
}

struct OfRun {
    key: String,
    /// Which one of several it is.
    of: Option<usize>,
    live: Option<Arc<Live>>,
    at: At,
    /// The next byte of the log; `None` before the first look.
    log: Option<u64>,
    /// The log's length, and since when it is that.
    length: Option<(u64, Instant)>,
    /// Whether more of the log has been written than was sent.
    is_behind: bool,
    /// The line without an end that the reader has.
    tail: String,
    has_ended: bool,
    head: u64,
    headed: Option<Instant>,
    is_gone: bool,
}

pub async fn stream(
    State(site): Shared,
    Query(wanted): Query<Wanted>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Refusal> {
    let last = headers
        .get("last-event-id")
        .and_then(|id| id.to_str().ok())
        .unwrap_or(&wanted.at);
    let view = match wanted.view.as_str() {
        "list" => View::List { version: u64::MAX },
        "home" => View::Home { hash: 0 },
        "study" => View::Study {
            key: wanted.key,
            hash: 0,
        },
        "run" => {
            let (at, log) = place(last);
            let run = OfRun::new(wanted.key, None);
            View::Run(Box::new(OfRun { at, log, ..run }))
        }
        "several" => {
            let keys = wanted.keys.split("//").filter(|key| !key.is_empty());
            let runs = keys.take(COMPARED).enumerate();
            View::Several(
                runs.map(|(of, key)| OfRun::new(key.to_owned(), Some(of)))
                    .collect(),
            )
        }
        other => {
            return Err(Refusal(
                StatusCode::BAD_REQUEST,
                format!("there is no view {other:?}: choose one of list, home, run, several, study"),
            ));
        }
    };
    let watching = Watching {
        site,
        view,
        pending: VecDeque::new(),
        is_first: true,
    };
    let events = stream::unfold(watching, next);
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(ALIVE)))
}

/// The place that an id names; what is no id names the beginning.
fn place(id: &str) -> (At, Option<u64>) {
    let mut parts = id.split('.').map(str::parse::<u64>);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(Ok(begun)), Some(Ok(count)), Some(Ok(log))) => (At { begun, count }, Some(log)),
        _ => (At::default(), None),
    }
}

/// The next event. It is asked for when the one before is written, so a slow reader delays only itself.
async fn next(mut watching: Watching) -> Option<(Result<Event, Infallible>, Watching)> {
    loop {
        if let Some(event) = watching.pending.pop_front() {
            return Some((Ok(event), watching));
        }
        if !watching.is_first {
            let rest = match &watching.view {
                View::Run(run) if run.is_behind => SOON,
                View::Run(_) | View::Several(_) => OFTEN,
                _ => SELDOM,
            };
            tokio::time::sleep(rest).await;
        }
        watching.is_first = false;
        let looked = tokio::task::spawn_blocking(move || {
            watching.look();
            watching
        });
        // A look that panicked ends the stream, and the browser connects again.
        watching = looked.await.ok()?;
    }
}

impl Watching {
    fn look(&mut self) {
        let Self {
            site, view, pending, ..
        } = self;
        match view {
            View::List { version } => {
                let snapshot = site.index.snapshot();
                if snapshot.version != *version {
                    *version = snapshot.version;
                    pending.push_back(event("changed", None, &json!({"version": version})));
                }
            }
            View::Home { hash } => {
                let home = overview(site);
                if has_changed(hash, &home) {
                    pending.push_back(event("home", None, &home));
                }
            }
            View::Study { key, hash } => {
                let file = site.places.find(key).ok().and_then(|found| found.file(JOURNAL));
                let about = file.and_then(|file| file.metadata().ok());
                // A tuner that dies writes nothing.
                let state = site.index.snapshot().state_of(key);
                let state = json!([about.as_ref().map(|about| about.len()), about.is_some(), state]);
                if has_changed(hash, &state) {
                    pending.push_back(event("changed", None, &json!({"there": about.is_some()})));
                }
            }
            View::Run(run) => run.look(site, pending),
            View::Several(runs) => runs.iter_mut().for_each(|run| run.look(site, pending)),
        }
    }
}

impl OfRun {
    fn new(key: String, of: Option<usize>) -> Self {
        Self {
            key,
            of,
            live: None,
            at: At::default(),
            log: None,
            length: None,
            tail: String::new(),
            is_behind: false,
            has_ended: false,
            head: 0,
            headed: None,
            is_gone: false,
        }
    }

    fn look(&mut self, site: &Site, pending: &mut VecDeque<Event>) {
        let key = self.key.clone();
        let Ok(found) = site.places.find(&key) else {
            if !self.is_gone {
                self.is_gone = true;
                pending.push_back(self.event("gone", json!({"key": self.key})));
            }
            return;
        };
        if std::mem::take(&mut self.is_gone) {
            // It is back: its head is sent again, by which a page knows.
            (self.head, self.headed) = (0, None);
        }
        if self.headed.is_none_or(|headed| headed.elapsed() >= HEAD) {
            self.headed = Some(Instant::now());
            if let Ok(row) = row_of(&found, &self.key) {
                self.has_ended = row.state != "running";
                let now = match row.state {
                    "running" => site.judge.figures(&self.key, &found).as_ref().clone(),
                    _ => Value::Null,
                };
                let head = json!({"row": row, "now": now, "can": can(site, &found, &row)});
                if has_changed(&mut self.head, &head) {
                    pending.push_back(self.event("head", head));
                }
            }
        }
        let live = self
            .live
            .get_or_insert_with(|| site.lives.of(&self.key, found.folder.clone()));
        let (at, curves) = live.since(self.at);
        self.at = at;
        if let Some(curves) = curves {
            pending.push_back(self.event("curves", curves));
        }
        // Of several, no one reads logs.
        if let Some(path) = log_of(&found).filter(|_| self.of.is_none()) {
            let part = match self.log {
                Some(from) => log::from(&path, from),
                None => end_of(&path),
            };
            // One that cannot be read now is read at the next look.
            if let Ok(part) = part {
                self.tell(part, pending);
            }
        }
    }

    /// Sends what is new of a log. A line that has no end yet is sent, besides, when none seems to come.
    fn tell(&mut self, mut part: log::LogChunk, pending: &mut VecDeque<Event>) {
        let is_anew = self.log.is_none_or(|from| from != part.from);
        self.log = Some(part.to);
        self.is_behind = !part.lines.is_empty() && part.to < part.length;
        let since = match self.length {
            Some((length, since)) if length == part.length => since,
            _ => Instant::now(),
        };
        self.length = Some((part.length, since));
        let is_over = self.has_ended || since.elapsed() >= QUIET;
        part.tail = part.tail.filter(|_| is_over);
        let tail = part.tail.as_ref().map_or("", |tail| &tail.text);
        let is_news = is_anew || !part.lines.is_empty() || (is_over && tail != self.tail);
        if is_news {
            self.tail = tail.to_owned();
            let mut value = json!(part);
            value["anew"] = is_anew.into();
            pending.push_back(self.event("log", value));
        }
    }

    /// An event of this run. Only one that brings its reader further has an id.
    fn event(&self, name: &str, mut data: Value) -> Event {
        let id = (self.of.is_none() && matches!(name, "curves" | "log")).then(|| self.id());
        if let Some(of) = self.of {
            data["of"] = of.into();
        }
        event(name, id, &data)
    }

    fn id(&self) -> String {
        format!("{}.{}.{}", self.at.begun, self.at.count, self.log.unwrap_or(0))
    }
}

/// The last lines of a log.
fn end_of(path: &std::path::Path) -> std::io::Result<log::LogChunk> {
    let length = path.metadata()?.len();
    let mut part = log::before(path, length)?;
    if part.lines.len() > TAIL {
        part.lines.drain(..part.lines.len() - TAIL);
        part.from = part.lines[0].at;
    }
    Ok(part)
}

fn has_changed(hash: &mut u64, value: &Value) -> bool {
    let now = Fnv::of(value.to_string().as_bytes());
    std::mem::replace(hash, now) != now
}

fn event(name: &str, id: Option<String>, data: &Value) -> Event {
    let event = Event::default().event(name).data(data.to_string());
    match id {
        Some(id) => event.id(id),
        None => event,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_places() {
        assert_eq!(place("1.20.300"), (At { begun: 1, count: 20 }, Some(300)));
        for odd in ["", "1", "a.b.c", "-1.2.3", "1.2.99999999999999999999"] {
            assert_eq!(place(odd), (At::default(), None), "{odd}");
        }
    }
}
