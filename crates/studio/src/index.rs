//! A row of everything that is in the folders.
//!
//! One thread goes through the folders. It reads a thing again if the sizes or times of its files have changed, or if it was running.
//! It rests between two rounds for twenty times as long as the last one took, two to fifteen seconds, and sleeps while no one looks.
//! A snapshot of the rows never changes; a reader is not disturbed by the next round.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stokehold_diagnose::runs::Run;
use stokehold_jobs::{Record, Secondary, Status};
use stokehold_page::words::significant;
use stokehold_profile::FOLDER;
use stokehold_tune::{JOURNAL, Study, short};

use crate::notes::{self, Notes};
use crate::places::{Lost, Places, RootFolder};
use crate::text;

/// The shortest and the longest rest between two rounds.
const REST: Duration = Duration::from_secs(2);
const LONGEST_REST: Duration = Duration::from_secs(15);
/// The rest is this many times as long as a round.
const SHARE: u32 = 20;
/// It sleeps if no one has looked for so long.
const ASLEEP: Duration = Duration::from_secs(30);
/// During the first round, what is known already is shown so often.
const PARTS: Duration = Duration::from_millis(100);
/// The most rows of an answer.
const MOST: usize = 500;
/// The most characters of a name, and of a reason.
const NAME: usize = 200;
const WHY: usize = 400;
/// Troubles that are told.
const TROUBLES: usize = 20;

/// What a row is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RowKind {
    /// A training job.
    Job,
    /// A run of `stokehold train`, or a recording.
    Run,
    /// A study of trials.
    Study,
}

/// A thing in a folder.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// `PLACE/NAME`.
    pub key: String,
    /// The folder's name, as it is shown.
    pub name: String,
    /// What it is.
    pub kind: RowKind,
    /// What it runs: `train resnet18`, `job train.py`, the objective of a study.
    pub what: String,
    /// `running`, `finished`, `failed`, `stopped`, `interrupted`, `cut off`; `unreadable` if its files cannot be understood.
    pub state: &'static str,
    /// When it began and ended, unix seconds.
    pub began: Option<f64>,
    /// `None` while it runs, and where nothing says it.
    pub ended: Option<f64>,
    /// Finished epochs or trials, and all of them.
    pub progress: Option<[u64; 2]>,
    /// Seconds that the rest takes, about.
    pub left: Option<f64>,
    /// Seconds since its beginning in which it did not run, as before it was resumed.
    pub idle: f64,
    /// Its result in a few words.
    pub result: String,
    /// The name of that result and its number, by which rows are sorted.
    #[serde(skip)]
    pub score: Option<(String, f64)>,
    /// Why it failed.
    pub why: String,
    /// What people have marked it with.
    pub tags: Vec<String>,
}

/// All rows at a moment.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The rows, in no order.
    pub rows: Vec<Arc<Row>>,
    /// Another one for every change.
    pub version: u64,
    /// Whether the first round still continues.
    pub is_reading: bool,
    /// What could not be read at all.
    pub troubles: Vec<String>,
}

/// The thread's results.
#[derive(Debug)]
pub struct Index {
    places: Arc<Places>,
    latest: RwLock<Arc<Snapshot>>,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug)]
struct State {
    looked: Instant,
    ends: bool,
}

/// Sizes and times of a thing's files.
type Signature = Vec<(u64, i64, i64)>;

/// Which rows a page shows.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Query {
    /// Words that all have to be in the row.
    pub text: String,
    /// One state; empty for all.
    pub state: String,
    /// `job`, `run` or `study`, or several with commas; empty for all.
    pub kind: String,
    /// A column, with `-` before it for the other direction.
    pub sort: String,
    /// The first row.
    pub from: usize,
    /// The number of rows, 100 if it is 0.
    pub count: usize,
}

impl Index {
    /// Begins with the first round.
    pub fn start(places: Arc<Places>) -> std::io::Result<Arc<Self>> {
        let index = Arc::new(Self {
            places,
            latest: RwLock::new(Arc::new(Snapshot {
                is_reading: true,
                ..Snapshot::default()
            })),
            state: Mutex::new(State {
                looked: Instant::now(),
                ends: false,
            }),
            wake: Condvar::new(),
        });
        let own = Arc::clone(&index);
        std::thread::Builder::new()
            .name("index".to_owned())
            .spawn(move || own.work())?;
        Ok(index)
    }

    /// The rows, of the last round. Somebody looks, so the next round comes soon.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        let mut state = self.state();
        let slept = state.looked.elapsed() >= ASLEEP;
        state.looked = Instant::now();
        drop(state);
        if slept {
            self.wake.notify_all();
            // What is known is old.
            let mut latest = self.latest.write().unwrap_or_else(PoisonError::into_inner);
            *latest = Arc::new(Snapshot {
                rows: latest.rows.clone(),
                version: latest.version + 1,
                is_reading: true,
                troubles: latest.troubles.clone(),
            });
        }
        Arc::clone(&self.latest.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks again at once, after an action.
    pub fn hurry(&self) {
        self.wake.notify_all();
    }

    /// Ends the thread, after the thing that it reads.
    pub fn end(&self) {
        self.state().ends = true;
        self.wake.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        let mut known = HashMap::new();
        loop {
            let began = Instant::now();
            if !self.round(&mut known) {
                return;
            }
            let rest = (began.elapsed() * SHARE).clamp(REST, LONGEST_REST);
            let mut state = self.state();
            if state.ends {
                return;
            }
            (state, _) = self
                .wake
                .wait_timeout(state, rest)
                .unwrap_or_else(PoisonError::into_inner);
            while !state.ends && state.looked.elapsed() >= ASLEEP {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if state.ends {
                return;
            }
        }
    }

    /// Goes through all folders. `false` if it is to end.
    fn round(&self, known: &mut HashMap<String, (Signature, Option<Arc<Row>>)>) -> bool {
        let is_first = known.is_empty();
        let (mut rows, mut troubles, mut next) = (Vec::new(), Vec::new(), HashMap::new());
        let mut shown = Instant::now();
        let (mut unnamed, mut outside) = (0, 0);
        for place in self.places.iter() {
            let entries = match fs::read_dir(&place.path) {
                Ok(entries) => entries,
                Err(error) if place.is_to_come && error.kind() == std::io::ErrorKind::NotFound => {
                    continue;
                }
                Err(error) => {
                    troubles.push(format!("{}: {error}", place.path.display()));
                    continue;
                }
            };
            for entry in entries.flatten() {
                if self.state().ends {
                    return false;
                }
                let Ok(name) = entry.file_name().into_string() else {
                    unnamed += 1;
                    continue;
                };
                if name.starts_with('.')
                    || !entry
                        .file_type()
                        .is_ok_and(|kind| kind.is_dir() || kind.is_symlink())
                {
                    continue;
                }
                let key = format!("{}/{name}", place.id);
                let signature = signature(&entry.path());
                let old = known.remove(&key).filter(|(old, row)| {
                    let runs = row.as_ref().is_some_and(|row| row.state == "running");
                    *old == signature && !runs
                });
                let row = match old {
                    Some((_, row)) => row,
                    None => row(place, &name, &key).map(Arc::new),
                };
                if row.is_none() && matches!(place.find(&name), Err(Lost::Outside)) {
                    outside += 1;
                }
                rows.extend(row.clone());
                next.insert(key, (signature, row));
                if is_first && shown.elapsed() > PARTS {
                    shown = Instant::now();
                    self.show(rows.clone(), troubles.clone(), true);
                }
            }
        }
        if unnamed > 0 {
            troubles.push(format!(
                "{unnamed} folders have names that are no UTF-8; they are not shown"
            ));
        }
        if outside > 0 {
            troubles.push(format!(
                "{outside} folders lead out of the given ones by links; they are not shown: name the folders that they lead to with --runs"
            ));
        }
        troubles.truncate(TROUBLES);
        *known = next;
        self.show(rows, troubles, false);
        true
    }

    fn show(&self, rows: Vec<Arc<Row>>, troubles: Vec<String>, is_reading: bool) {
        let mut latest = self.latest.write().unwrap_or_else(PoisonError::into_inner);
        let same = latest.rows == rows && latest.troubles == troubles && latest.is_reading == is_reading;
        if !same {
            *latest = Arc::new(Snapshot {
                version: latest.version + 1,
                rows,
                is_reading,
                troubles,
            });
        }
    }
}

/// Sizes, times and places of the files that say how a thing is.
fn signature(folder: &Path) -> Signature {
    const FILES: [&str; 7] = [
        "run.json",
        "summary.json",
        "state.json",
        "lock",
        JOURNAL,
        notes::FILE,
        "profiler-output",
    ];
    let recording = folder.join(FOLDER);
    let of = |path: &Path| match fs::metadata(path) {
        Ok(about) => (
            about.ino(),
            about.mtime(),
            about.mtime_nsec() ^ (about.len() as i64) << 30,
        ),
        Err(_) => (0, 0, 0),
    };
    let mut all: Signature = FILES.iter().map(|file| of(&folder.join(file))).collect();
    // Only where there is a recording, to spare the system calls.
    if all[6].0 != 0 {
        all.extend(["recording.json", "lock"].map(|file| of(&recording.join(file))));
    }
    all
}

/// The row of a folder; `None` if nothing is there that is shown.
pub fn row(place: &RootFolder, name: &str, key: &str) -> Option<Row> {
    // What leads elsewhere is not read.
    let found = place.find(name).ok()?;
    let empty = Row {
        key: key.to_owned(),
        name: text::short(name, NAME),
        kind: RowKind::Run,
        what: String::new(),
        state: "unreadable",
        began: None,
        ended: None,
        progress: None,
        left: None,
        idle: 0.0,
        result: String::new(),
        score: None,
        why: String::new(),
        tags: Notes::of(&found.folder).tags,
    };
    let unreadable = |kind, error: &dyn std::fmt::Display| Row {
        kind,
        why: text::short(&error.to_string(), WHY),
        ..empty.clone()
    };
    if let Some(store) = found.store() {
        return Some(match store.look(name) {
            Ok(record) => {
                let what = store.job(name).map(|job| job.entry_point.name());
                of_job(&record, &what.unwrap_or_default(), empty)
            }
            Err(error) => unreadable(RowKind::Job, &error),
        });
    }
    if found.file(JOURNAL).is_some() {
        return Some(match Study::look(&found.folder) {
            Ok(history) => {
                let is_on = Study::is_worked_on(&found.folder, &history).unwrap_or(false);
                of_study(&history, is_on, empty)
            }
            Err(error) => unreadable(RowKind::Study, &error),
        });
    }
    match Run::of(&found.folder) {
        Ok(run) => run.map(|run| of_run(&run, empty)),
        Err(error) => Some(unreadable(RowKind::Run, &error)),
    }
}

fn of_job(record: &Record, what: &str, empty: Row) -> Row {
    let metrics = record.metrics.iter().take(4);
    let score = record
        .metrics
        .first()
        .map(|metric| (metric.name.clone(), metric.value));
    let metrics: Vec<String> = metrics
        .map(|metric| format!("{} {}", text::short(&metric.name, 40), significant(metric.value)))
        .collect();
    let last = record.transitions.last().filter(|_| record.status.is_final());
    let why = record.failure_reason.as_deref().or(record.stopped_by.as_deref());
    Row {
        kind: RowKind::Job,
        what: text::short(&format!("job {what}"), NAME),
        state: match (record.status, record.secondary) {
            (Status::InProgress | Status::Stopping, _) => "running",
            (Status::Completed, _) => "finished",
            (Status::Failed, _) => "failed",
            (Status::Stopped, Secondary::Interrupted) => "interrupted",
            (Status::Stopped, _) => "stopped",
        },
        began: Some(record.created),
        ended: last.map(|last| last.start),
        // From each end to the start that came after it.
        idle: record
            .transitions
            .windows(2)
            .filter(|pair| !is_at_work(pair[0].status))
            .map(|pair| pair[1].start - pair[0].start)
            .sum(),
        result: metrics.join(", "),
        score,
        why: text::short(why.unwrap_or_default(), WHY),
        ..empty
    }
}

/// Whether a job runs, or gets ready to, or ends.
fn is_at_work(state: Secondary) -> bool {
    use Secondary::{Downloading, Starting, Stopping, Training, Uploading};
    matches!(state, Starting | Downloading | Training | Uploading | Stopping)
}

fn of_study(history: &stokehold_tune::History, is_on: bool, empty: Row) -> Row {
    let counts = history.counts();
    let over = counts.completed + counts.stopped + counts.failed;
    let most = history.spec.limits.max_jobs;
    let best = history.best().and_then(stokehold_tune::Trial::objective);
    Row {
        kind: RowKind::Study,
        what: text::short(&format!("tune {}", history.spec.objective), NAME),
        state: match () {
            () if is_on => "running",
            () if counts.running > 0 => "cut off",
            () if over >= most && counts.completed == 0 => "failed",
            () if over >= most => "finished",
            // It may have reached another of its limits, or wait to be resumed.
            () => "stopped",
        },
        began: Some(history.created),
        ended: (!is_on)
            .then(|| {
                history
                    .trials
                    .iter()
                    .filter_map(|trial| trial.ended)
                    .reduce(f64::max)
            })
            .flatten(),
        progress: Some([over as u64, most as u64]),
        left: stokehold_trials::run::seconds_left(history).filter(|_| is_on),
        result: best.map_or(String::new(), |best| format!("best {}", short(best))),
        score: best.map(|best| ("best".to_owned(), best)),
        ..empty
    }
}

fn of_run(run: &Run, empty: Row) -> Row {
    let epochs = run.epochs();
    let results = run.results();
    let result = match (run.score(), results.get("training loss")) {
        (Some((name, value)), _) if value.abs() < 1e6 => format!("{name} {value:.4}"),
        (Some((name, value)), _) => format!("{name} {}", significant(value)),
        (None, Some(loss)) => format!("loss {}", significant(*loss)),
        (None, None) => String::new(),
    };
    let score = run.score().map(|(name, value)| (name.to_owned(), value));
    let score = score.or_else(|| Some(("loss".to_owned(), *results.get("training loss")?)));
    let code = run.about.as_ref().and_then(|about| about.exit_code);
    let state = run.state();
    Row {
        kind: RowKind::Run,
        what: text::short(&run.what(), NAME),
        state,
        began: run.began(),
        ended: run
            .about
            .as_ref()
            .and_then(|about| about.ended)
            .filter(|_| state != "running"),
        progress: epochs.map(|epochs| [epochs.done, epochs.of]),
        left: epochs
            .and_then(|epochs| epochs.seconds_left)
            .filter(|_| state == "running"),
        idle: run.about.as_ref().map_or(0.0, |about| about.idle_seconds),
        result,
        score,
        why: match (state, code) {
            ("failed", Some(code)) => format!("exit code {code}"),
            ("failed", None) => "it ended with an error; its terminal has the message".to_owned(),
            ("cut off", _) => "it ended without a word: it was killed, or its machine was".to_owned(),
            _ => String::new(),
        },
        ..empty
    }
}

/// By the result's name, and those of one name by number; rows without a result come first, as those without a time do.
fn by_score(a: &Row, b: &Row) -> std::cmp::Ordering {
    match (&a.score, &b.score) {
        (Some((a, x)), Some((b, y))) => a.cmp(b).then(x.total_cmp(y)),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

impl Snapshot {
    /// The state of a row.
    pub fn state_of(&self, key: &str) -> Option<&'static str> {
        let row = self.rows.iter().find(|row| row.key == key)?;
        Some(row.state)
    }

    /// The rows of a page, as JSON, with how many there are in all.
    pub fn page(&self, query: &Query) -> Value {
        let words: Vec<String> = query.text.split_whitespace().map(str::to_lowercase).collect();
        let kinds: Vec<&str> = query.kind.split(',').filter(|kind| !kind.is_empty()).collect();
        let kind = |row: &Row| match row.kind {
            RowKind::Job => "job",
            RowKind::Run => "run",
            RowKind::Study => "study",
        };
        let fits = |row: &&Arc<Row>| {
            let has = |word: &String| {
                [&row.name, &row.what, &row.why, &row.result]
                    .into_iter()
                    .chain(&row.tags)
                    .any(|text| text.to_lowercase().contains(word))
            };
            (kinds.is_empty() || kinds.contains(&kind(row))) && words.iter().all(has)
        };
        let fitting: Vec<&Arc<Row>> = self.rows.iter().filter(fits).collect();
        let mut states: std::collections::BTreeMap<&str, usize> = Default::default();
        for row in &fitting {
            *states.entry(row.state).or_default() += 1;
        }
        let of_state = |row: &&Arc<Row>| query.state.is_empty() || row.state == query.state;
        let mut shown: Vec<&Arc<Row>> = fitting.into_iter().filter(of_state).collect();
        let (column, is_down) = match query.sort.strip_prefix('-') {
            Some(column) => (column, true),
            None if query.sort.is_empty() => ("began", true),
            None => (query.sort.as_str(), false),
        };
        let now = stokehold_base::clock::unix_now();
        let took = |row: &Row| {
            let end = row.ended.or((row.state == "running").then_some(now));
            Some(end? - row.began? - row.idle)
        };
        let number = |a: Option<f64>, b: Option<f64>| {
            a.unwrap_or(f64::NEG_INFINITY)
                .total_cmp(&b.unwrap_or(f64::NEG_INFINITY))
        };
        shown.sort_by(|a, b| {
            let order = match column {
                "name" => a.name.cmp(&b.name),
                "what" => a.what.cmp(&b.what),
                "state" => a.state.cmp(b.state),
                "result" => by_score(a, b),
                "took" => number(took(a), took(b)),
                _ => number(a.began, b.began),
            };
            let order = if is_down { order.reverse() } else { order };
            order.then_with(|| a.key.cmp(&b.key))
        });
        let count = if query.count == 0 {
            100
        } else {
            query.count.min(MOST)
        };
        let rows: Vec<&Row> = shown
            .iter()
            .skip(query.from)
            .take(count)
            .map(|row| row.as_ref())
            .collect();
        json!({
            "version": self.version,
            "reading": self.is_reading,
            "troubles": self.troubles,
            "all": self.rows.len(),
            "total": shown.len(),
            "from": query.from,
            "states": states,
            "rows": rows,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Snapshot {
        let row = |name: &str, state, began| {
            Arc::new(Row {
                key: format!("runs/{name}"),
                name: name.to_owned(),
                kind: RowKind::Run,
                what: "train resnet18".to_owned(),
                state,
                began,
                ended: None,
                progress: None,
                left: None,
                idle: 0.0,
                result: String::new(),
                score: None,
                why: String::new(),
                tags: vec![format!("tag-of-{name}")],
            })
        };
        Snapshot {
            rows: vec![
                row("a", "finished", Some(1.0)),
                row("b", "failed", Some(3.0)),
                row("c", "finished", None),
                row("d", "running", Some(2.0)),
            ],
            ..Snapshot::default()
        }
    }

    #[test]
    fn results_are_sorted_as_numbers_of_one_name() {
        let of = |key: &str, score: Option<(&str, f64)>| {
            let row = Row {
                key: key.to_owned(),
                score: score.map(|(name, value)| (name.to_owned(), value)),
                ..rows().rows[0].as_ref().clone()
            };
            Arc::new(row)
        };
        let all = Snapshot {
            rows: vec![
                of("a", Some(("loss", 10.5))),
                of("b", Some(("loss", 9.5))),
                of("c", Some(("top1", 0.1))),
                of("d", Some(("loss", 2.5e-5))),
                of("e", None),
            ],
            ..Snapshot::default()
        };
        let query = Query {
            sort: "result".to_owned(),
            ..Query::default()
        };
        let page = all.page(&query);
        let keys: Vec<&str> = page["rows"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row["key"].as_str().unwrap())
            .collect();
        assert_eq!(keys, ["e", "d", "b", "a", "c"]);
    }

    fn names(query: Query) -> String {
        let page = rows().page(&query);
        let rows = page["rows"].as_array().unwrap();
        rows.iter().map(|row| row["name"].as_str().unwrap()).collect()
    }

    #[test]
    fn rows_are_filtered_sorted_and_paged() {
        let of = |text: &str, state: &str, sort: &str| Query {
            text: text.to_owned(),
            state: state.to_owned(),
            sort: sort.to_owned(),
            ..Query::default()
        };
        assert_eq!(names(Query::default()), "bdac");
        assert_eq!(names(of("", "", "name")), "abcd");
        assert_eq!(names(of("", "", "-name")), "dcba");
        assert_eq!(names(of("RESNET d", "", "")), "d");
        assert_eq!(names(of("tag-of-b", "", "")), "b");
        assert_eq!(names(of("", "finished", "began")), "ca");
        let second = Query {
            from: 1,
            count: 2,
            ..of("", "", "name")
        };
        assert_eq!(names(second), "bc");
        let page = rows().page(&of("", "failed", ""));
        assert_eq!((&page["total"], &page["all"]), (&json!(1), &json!(4)));
        assert_eq!(page["states"], json!({"failed": 1, "finished": 2, "running": 1}));
    }
}
