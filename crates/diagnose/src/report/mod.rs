//! The report of a run: one page that explains it, and the JSON files that other tools read.
//!
//! ```text
//! rule-output/ProfilerReport-<unix time>/profiler-output/profiler-report.html
//!                                                        profiler-reports/<Rule>.json
//! ```
//!
//! The names are those of SageMaker Debugger's report; the time is that of the run's begin. The page is one file that needs no network: tables and pictures
//! are in it as HTML and SVG, so it reads without a script and on paper; a small script draws the heat map, which can
//! be zoomed, and the stages of a chosen step, from columns that `columns.rs` and `data.rs` make. It is well-formed
//! XML too. Everything that came from a recording is taken for hostile and escaped where it is written.
//!
//! [`write_pair`] makes one page of two runs, with both on the same scales.

pub mod columns;
mod data;
mod figures;
mod judged;
mod page;
mod pair;
mod pictures;
mod tables;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use stokehold_base::whole;
use stokehold_page::html;
use stokehold_profile::Recording;
use stokehold_profile::{FOLDER, ProfileError};

use crate::advice::Advice;
use crate::rules::Finding;
use figures::Job;

/// What a report is made of.
#[derive(Debug, Clone, Copy)]
pub struct Contents<'a> {
    /// The run.
    pub recording: &'a Recording,
    /// What every rule found.
    pub findings: &'a [Finding],
    /// The run in one sentence.
    pub verdict: &'a str,
    /// What to change, the largest gain first.
    pub advice: &'a [Advice],
    /// What costs are in: [`Prices::currency`](crate::advice::Prices::currency).
    pub currency: &'a str,
}

/// Where the report of a run goes when nothing else is asked for: a folder below `base`, the run's own folder or its recording's, named
/// for the moment that the run began. So a run has one, and a later report takes the place of an earlier one.
pub fn folder_in(base: &Path, recording: &Recording) -> PathBuf {
    let began = Job::of(recording).map_or(0.0, |job| job.start);
    run_folder(base)
        .join("rule-output")
        .join(format!("ProfilerReport-{:010}", began.max(0.0) as u64))
        .join(FOLDER)
}

/// A run's folder, given itself or its recording's.
fn run_folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if path.file_name().is_some_and(|name| name == FOLDER) => parent,
        _ => path,
    }
}

/// Writes `profiler-report.html` and `profiler-reports/<Rule>.json` into a folder, which is made where it is missing.
/// Returns the page's path.
///
/// # Errors
/// If a file cannot be written.
pub fn write(contents: &Contents<'_>, folder: &Path) -> Result<PathBuf, ProfileError> {
    let reports = folder.join("profiler-reports");
    make(&reports)?;
    for finding in contents.findings {
        // Rules are named by this program, never by a recording.
        let text = format!("{:#}\n", finding.published());
        put(&reports.join(format!("{}.json", finding.rule)), &text)?;
    }
    let path = folder.join("profiler-report.html");
    put(&path, &page::page(contents))?;
    Ok(path)
}

/// Writes `profiler-comparison.html`, two runs side by side, into a folder, which is made where it is missing. Returns
/// the page's path.
///
/// # Errors
/// If the file cannot be written.
pub fn write_pair(pair: [&Contents<'_>; 2], folder: &Path) -> Result<PathBuf, ProfileError> {
    make(folder)?;
    let path = folder.join("profiler-comparison.html");
    put(&path, &pair::page(pair))?;
    Ok(path)
}

/// A page with its script. `runs` is what the script draws.
fn document(title: &str, body: &str, runs: &[Value]) -> String {
    const STYLE: &str = include_str!("page.css");
    const SCRIPT: &str = include_str!("page.js");
    let data = data::script(&Value::Array(runs.to_vec()));
    // The data comes last: what is above it is read and painted first.
    let scripts = format!(
        "<script id=\"data\" type=\"application/json\">{data}</script>\n\
         <script>//<![CDATA[\n{SCRIPT}//]]></script>\n"
    );
    html::document(title, STYLE, body, &scripts)
}

fn make(folder: &Path) -> Result<(), ProfileError> {
    fs::create_dir_all(folder).map_err(|source| ProfileError::Io {
        path: folder.to_owned(),
        source,
    })
}

fn put(path: &Path, text: &str) -> Result<(), ProfileError> {
    whole::write(path, text).map_err(|source| ProfileError::Io {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests;
