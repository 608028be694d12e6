//! Starts jobs: from a job file, from a past job, or by a form that is made of the schema of job files.
//!
//! ```text
//!  a file below the folders ─┐                        ┌─► a fault: what, section, key, line
//!  pasted text ──────────────┼─► TOML ─► Job, parsed ─┤
//!  a past job, without       │           Store::check └─► Store::create ─► Store::start: a process of its own, which outlives
//!   its secrets ─────────────┤                            ▲               the studio
//!  values of the form ───────┘    secrets of the past job ┘
//! ```
//!
//! It is what `stokehold job run --detach` does, by the same functions. A job file names the program to run. So anyone who may start
//! jobs here may run programs as the studio's user, and a read-only studio answers none of these requests.

use std::path::{Path, PathBuf};

use axum::extract::{Extension, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use stokehold_jobs::{Job, JobError, Store};
use stokehold_sagemaker::section;

use crate::api::{JsonResult, Refusal, Shared, Site, act_for, blocking};
use crate::places::Lost;
use crate::server::Peer;
use crate::{below, text};

/// The largest job file, bytes: less than a request may have, in which its quotes and lines are escaped.
const LARGEST: u64 = 32 << 10;
/// Job files that are listed, and how deep below the folders they lie.
const FILES: usize = 200;
const DEPTH: usize = 4;
/// The most characters of a reason: an unknown key's has the names of all known ones.
const REASON: usize = 1500;

pub fn routes() -> Router<std::sync::Arc<Site>> {
    Router::new()
        .route("/api/start", post(start))
        .route("/api/start/check", post(check))
        .route("/api/start/schema", get(schema))
        .route("/api/start/files", get(files))
        .route("/api/start/text", get(source))
}

/// Whether jobs can be started from here.
pub fn can(site: &Site) -> bool {
    !site.read_only && site.program.is_some() && store(site).is_some()
}

fn store(site: &Site) -> Option<&Store> {
    site.places.iter().find_map(|place| place.jobs.as_ref())
}

/// The folder of the jobs, if jobs can be started.
fn allowed(site: &Site) -> Result<&Store, Refusal> {
    let reason = match site.read_only {
        true => "this studio is read-only (--read-only)",
        false => "this studio starts no jobs: it has no folder of jobs",
    };
    let refusal = || Refusal(StatusCode::FORBIDDEN, reason.to_owned());
    store(site).filter(|_| can(site)).ok_or_else(refusal)
}

async fn schema(State(site): Shared) -> JsonResult {
    let store = allowed(&site)?;
    let values =
        json!({"folder": store.root().display().to_string(), "schema": section::in_schema(Job::schema())});
    Ok(Json(values))
}

/// Where a job's text comes from.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct From {
    /// `PLACE/PATH` of a job file: its relative paths are meant from its folder.
    file: Option<String>,
    /// The key of a past job, whose secrets the new one gets.
    key: Option<String>,
}

/// A job as somebody describes it: a text, or the values of a form.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct JobDraft {
    text: Option<String>,
    values: Option<Map<String, Value>>,
    #[serde(flatten)]
    from: From,
}

/// What is wrong with a job, and where.
#[derive(Debug, Default, PartialEq, Serialize)]
struct Fault {
    reason: String,
    /// Counted from 1.
    line: Option<usize>,
    /// `spot`, `channels.train`; empty at the top.
    section: Option<String>,
    key: Option<String>,
}

async fn files(State(site): Shared) -> JsonResult {
    blocking(move || {
        allowed(&site)?;
        let is_wanted = |path: &Path| below::text(path, LARGEST).is_ok_and(|text| is_job(&text));
        let (files, is_whole) = below::find(&site.places, ".toml", DEPTH, FILES, &is_wanted);
        Ok(json!({"files": files, "whole": is_whole}))
    })
    .await?
    .map(Json)
}

/// Whether a text is that of a job file, perhaps one with faults.
fn is_job(text: &str) -> bool {
    match toml::from_str::<toml::Table>(text) {
        Ok(table) => table.contains_key("entry-point"),
        Err(_) => text
            .lines()
            .any(|line| line.trim_start().starts_with("entry-point")),
    }
}

/// The job file of a name `PLACE/PATH`.
fn named(site: &Site, name: &str) -> Result<PathBuf, Refusal> {
    if !name.ends_with(".toml") {
        return Err(Refusal(
            StatusCode::BAD_REQUEST,
            "a job file's name ends in .toml".to_owned(),
        ));
    }
    below::named(&site.places, name).map_err(|lost| Refusal::lost(name, &lost))
}

/// A past job.
fn past(site: &Site, key: &str) -> Result<Job, Refusal> {
    let found = site.find(key)?;
    let store = found.store().ok_or_else(|| Refusal::lost(key, &Lost::Missing))?;
    store.job(found.name).map_err(|error| Refusal::failed(&error))
}

async fn source(State(site): Shared, Query(from): Query<From>) -> JsonResult {
    blocking(move || {
        let store = allowed(&site)?;
        let text = match &from {
            From { file: Some(name), .. } => {
                let path = named(&site, name)?;
                below::text(&path, LARGEST).map_err(|error| {
                    Refusal(StatusCode::BAD_REQUEST, format!("{}: {error}", path.display()))
                })?
            }
            From { key: Some(key), .. } => {
                let job = past(&site, key)?;
                // Its name is taken.
                let copy = Job {
                    name: None,
                    ..job.without_secrets()
                };
                copy.to_toml().map_err(|error| Refusal::failed(&error))?
            }
            From { .. } => section::template(),
        };
        Ok(json!({"text": text, "folder": folder(store, &site, &from)?.display().to_string()}))
    })
    .await?
    .map(Json)
}

/// Where the relative paths of a job are meant from.
fn folder(store: &Store, site: &Site, from: &From) -> Result<PathBuf, Refusal> {
    match &from.file {
        Some(name) => Ok(named(site, name)?
            .parent()
            .map(Path::to_owned)
            .unwrap_or_default()),
        None => Ok(store.root().to_owned()),
    }
}

/// The text of what is asked for.
fn text_of(draft: &JobDraft) -> Result<String, Fault> {
    let text = match (&draft.text, &draft.values) {
        (Some(text), _) => text.clone(),
        (None, values) => {
            let values = values.clone().unwrap_or_default();
            toml::to_string(&values).map_err(|error| Fault {
                reason: error.to_string(),
                ..Fault::default()
            })?
        }
    };
    match text.len() as u64 > LARGEST {
        true => Err(Fault {
            reason: format!("the job has more than {LARGEST} bytes; shorten it"),
            ..Fault::default()
        }),
        false => Ok(text),
    }
}

/// The job that a text describes, with the secrets of the job that it is a copy of, if it could be created now.
fn job_of(store: &Store, site: &Site, text: &str, from: &From) -> Result<Result<Job, Fault>, Refusal> {
    let path = folder(store, site, from)?.join("job.toml");
    let past = from.key.as_deref().map(|key| past(site, key)).transpose()?;
    let job = section::parse(text, &path)
        .and_then(|job| job.with_secrets_of(past.as_ref()))
        .and_then(|job| section::check(&job).map(|()| job))
        .and_then(|job| store.check(&job).map(|()| job));
    Ok(job.map_err(|error| fault(text, &error)))
}

async fn check(State(site): Shared, Json(draft): Json<JobDraft>) -> JsonResult {
    blocking(move || {
        let store = allowed(&site)?;
        let answer = |text: &str, fault: Option<Fault>| {
            // What a form shows of a text, which may have faults of meaning.
            let values: Option<Value> = toml::from_str(text).ok();
            json!({"text": text, "values": values, "fault": fault})
        };
        let text = match text_of(&draft) {
            Ok(text) => text,
            Err(fault) => return Ok(answer("", Some(fault))),
        };
        let job = job_of(store, &site, &text, &draft.from)?;
        Ok(answer(&text, job.err()))
    })
    .await?
    .map(Json)
}

async fn start(
    State(site): Shared,
    Extension(peer): Extension<Peer>,
    Json(draft): Json<JobDraft>,
) -> JsonResult {
    let what = match &draft.from {
        From { file: Some(file), .. } => format!("start a job of {file}"),
        From { key: Some(key), .. } => format!("start a copy of {key}"),
        From { .. } => "start a job".to_owned(),
    };
    act_for(site, peer, what, move |site| {
        let store = allowed(site)?;
        let wrong = |fault: Fault| {
            let line = fault
                .line
                .map(|line| format!("line {line}: "))
                .unwrap_or_default();
            Refusal(
                StatusCode::UNPROCESSABLE_ENTITY,
                format!("{line}{}", fault.reason),
            )
        };
        let refused = |error: JobError| wrong(fault("", &error));
        let text = text_of(&draft).map_err(wrong)?;
        let job = job_of(store, site, &text, &draft.from)?.map_err(wrong)?;
        let name = store.create(&job).map_err(refused)?;
        let program = site.program.as_deref().unwrap_or(Path::new("stokehold"));
        let failed = |error: JobError| {
            let reason = format!("the job {name} is made, and cannot be started: {error}");
            Refusal(StatusCode::UNPROCESSABLE_ENTITY, text::short(&reason, REASON))
        };
        let mut runner = store.start(&name, program, false).map_err(failed)?;
        // A process that has ended stays in the table of processes until its parent asks.
        std::thread::spawn(move || runner.wait());
        let key = format!("jobs/{name}");
        Ok((format!("done, it is {key}"), json!({ "key": key })))
    })
    .await
}

/// An error with its place in a text.
fn fault(text: &str, error: &JobError) -> Fault {
    let (reason, line) = match error {
        JobError::File { reason, line, .. } => (reason.clone(), *line),
        error => {
            let reason = error.to_string();
            let line = line_of(text, &reason);
            (reason, line)
        }
    };
    let (section, mut key) = line.map(|line| place_of(text, line)).unwrap_or_default();
    // It is on no line.
    if let Some(missing) = reason
        .strip_prefix("missing field `")
        .and_then(|rest| rest.split('`').next())
    {
        key = Some(missing.to_owned());
    }
    Fault {
        reason: text::short(&reason, REASON),
        line,
        section,
        key,
    }
}

/// The line of the key that a reason begins with: `instances = 65 is not ..`, `channel train: ..`.
fn line_of(text: &str, reason: &str) -> Option<usize> {
    let mut words = reason.split([' ', ':']);
    let first = words.next()?;
    let wanted = match first {
        "channel" => words.next()?,
        key => key,
    };
    let is_it = |line: &&str| {
        let line = line.trim();
        key_of(line) == Some(wanted) || (first == "channel" && line == format!("[channels.{wanted}]"))
    };
    let at = text.lines().position(|line| is_it(&line))?;
    Some(at + 1)
}

/// Section and key of a line, counted from 1. A value may take several lines.
fn place_of(text: &str, line: usize) -> (Option<String>, Option<String>) {
    let mut key = None;
    let before: Vec<&str> = text.lines().take(line).collect();
    for line in before.iter().rev().map(|line| line.trim()) {
        if let Some(section) = section_of(line) {
            return (Some(section.to_owned()), key);
        }
        if key.is_none() {
            key = key_of(line).map(str::to_owned);
        }
    }
    (Some(String::new()), key)
}

/// `[spot]` and `[[metrics]]`, with a comment after it or not.
fn section_of(line: &str) -> Option<&str> {
    let inner = line.strip_prefix('[')?;
    let inner = inner.strip_prefix('[').unwrap_or(inner);
    let name = inner.split(']').next()?.trim();
    let fits = |c: char| c.is_alphanumeric() || "._- \"'".contains(c);
    (inner.contains(']') && !name.is_empty() && name.chars().all(fits)).then_some(name)
}

fn key_of(line: &str) -> Option<&str> {
    let (key, _) = line.split_once('=')?;
    let key = key.trim().trim_matches(['"', '\'']);
    let fits = |c: char| c.is_alphanumeric() || "._-".contains(c);
    (!key.is_empty() && key.chars().all(fits)).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_says_section_key_and_line() {
        let of = |text: &str| {
            let path = Path::new("/jobs/job.toml");
            let error = Job::parse(text, path).and_then(|job| job.check()).unwrap_err();
            fault(text, &error)
        };
        let at =
            |line, section: &str, key: &str| (Some(line), Some(section.to_owned()), Some(key.to_owned()));
        for (text, expected) in [
            (
                "entry-point = \"a.py\"\ninstances = \"two\"\n",
                at(2, "", "instances"),
            ),
            (
                "entry-point = \"a.py\"\n\ninstances = 65\n",
                at(3, "", "instances"),
            ),
            (
                "entry-point = \"a.py\"\n[spot] # a comment\n\nsimulate = \"soon\"\n",
                at(4, "spot", "simulate"),
            ),
            (
                "entry-point = \"a.py\"\n[profiler]\nrules = [\n  \"NonFiniteLoss\",\n  7,\n]\n",
                at(5, "profiler", "rules"),
            ),
            (
                "entry-point = \"a.py\"\n[channels.train]\nuri = \"s3://b\"\nmod = \"File\"\n",
                at(4, "channels.train", "mod"),
            ),
        ] {
            let found = of(text);
            assert_eq!(
                (found.line, found.section, found.key),
                expected,
                "{text}: {}",
                found.reason
            );
        }
        let whole = of("instances = 1\n");
        assert!(whole.reason.contains("entry-point"), "{whole:?}");
        assert_eq!(whole.key.as_deref(), Some("entry-point"));
    }

    #[test]
    fn job_files_are_told_from_other_files() {
        assert!(is_job("entry-point = \"a.py\"\n"));
        assert!(is_job("entry-point = \"a.py\nbroken"));
        assert!(!is_job("[job]\nentry-point = \"a.py\"\n"));
        assert!(!is_job("[package]\nname = \"x\"\n"));
    }

    #[test]
    fn values_of_a_form_become_a_file_whose_tables_come_last() {
        let values = json!({"channels": {"t": "s3://b"}, "entry-point": "a.py", "instances": 2});
        let draft = JobDraft {
            values: values.as_object().cloned(),
            ..JobDraft::default()
        };
        let text = text_of(&draft).unwrap();
        let job = Job::parse(&text, Path::new("job.toml")).unwrap();
        assert_eq!((job.instances, job.channels.len()), (2, 1), "{text}");
        // TOML has no null.
        let draft = JobDraft {
            values: json!({"hyperparameters": {"x": null}}).as_object().cloned(),
            ..JobDraft::default()
        };
        assert!(text_of(&draft).is_err());
    }
}
