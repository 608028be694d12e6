//! What `stokehold bench storage --json` and `stokehold scale --json` have said, from files below the folders of jobs and runs.
//!
//! A file is known by what it has in it, and its numbers are shown as they are: what was chosen and why was said when it was made.

use std::path::Path;
use std::sync::Arc;

use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{JsonResult, Refusal, Shared, Site, blocking};
use crate::places::Lost;
use crate::{below, text};

/// The largest file, bytes.
const LARGEST: u64 = 1 << 20;
/// Files that are listed, and how deep below the folders they lie.
const FILES: usize = 100;
const DEPTH: usize = 1;
/// The most rows of a list in a result, and characters of a sentence.
const ROWS: usize = 200;
const SENTENCE: usize = 1000;

pub fn routes() -> Router<Arc<Site>> {
    Router::new()
        .route("/api/results", get(all))
        .route("/api/result", get(one))
}

/// What a file is the result of.
fn kind(value: &Value) -> Option<&'static str> {
    if value["places"].is_array() && value["prices"].is_string() {
        return Some("storage");
    }
    (value["sizes"].is_array() && value["cluster"].is_object()).then_some("scale")
}

fn read(path: &Path) -> Result<(&'static str, Value), String> {
    let text = below::text(path, LARGEST).map_err(|error| error.to_string())?;
    let value: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
    let kind = kind(&value)
        .ok_or("it is no result of `stokehold bench storage --json` or `stokehold scale --json`")?;
    Ok((kind, value))
}

async fn all(State(site): Shared) -> JsonResult {
    blocking(move || {
        let is_wanted = |path: &Path| read(path).is_ok();
        let (files, is_whole) = below::find(&site.places, ".json", DEPTH, FILES, &is_wanted);
        json!({"files": files, "whole": is_whole})
    })
    .await
    .map(Json)
}

#[derive(Debug, Deserialize)]
struct OfFile {
    file: String,
}

async fn one(State(site): Shared, Query(OfFile { file }): Query<OfFile>) -> JsonResult {
    blocking(move || {
        if !file.ends_with(".json") {
            return Err(Refusal::lost(&file, &Lost::Missing));
        }
        let path = below::named(&site.places, &file).map_err(|lost| Refusal::lost(&file, &lost))?;
        let (kind, mut value) = read(&path)
            .map_err(|reason| Refusal(StatusCode::UNPROCESSABLE_ENTITY, format!("{file}: {reason}")))?;
        shorten(&mut value);
        Ok(json!({"kind": kind, "result": value, "path": path.display().to_string()}))
    })
    .await?
    .map(Json)
}

/// Makes all texts visible, and lists and texts as long as a page can show.
fn shorten(value: &mut Value) {
    match value {
        Value::String(said) => *said = text::short(said, SENTENCE),
        Value::Array(all) => {
            all.truncate(ROWS);
            all.iter_mut().for_each(shorten);
        }
        Value::Object(all) => all.values_mut().for_each(shorten),
        _ => {}
    }
}
