//! The report of a run: one page, and the JSON files that other tools read.
//!
//! ```text
//! rule-output/ProfilerReport-<unix time>/profiler-output/profiler-report.html
//!                                                        profiler-reports/<Rule>.json
//! ```
//!
//! The names are those of SageMaker Debugger's report; the time is that of the run's start. The page is one
//! file that needs no network: it contains tables and charts as HTML and SVG, so it can be read without
//! scripts and on paper. A small script draws the heat map, which can be zoomed, and the stages of a chosen
//! step, from columns that `columns.rs` and `data.rs` make. The page is well-formed XML too. Everything that
//! comes from a recording is treated as hostile and escaped when it is written.
//!
//! [`write_pair`] makes one page of two runs, with the same scales for both.

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
use stokehold_profile::{FOLDER, Node, ProfileError, Recording};

use crate::advice::{Advice, Machines};
use crate::curves::Curve;
use crate::rules::Finding;
use figures::Job;

/// The most machines of a run that the page shows one by one: more than anybody compares by eye, and each has
/// its rows in the heat map, which make the page large.
const MACHINES: usize = 64;

/// The module of JavaScript that draws the heat map of [`heat`]; it exports `Heat`, which takes an element and a list of runs.
pub const HEAT: &str = include_str!("heat.js");

/// The style of the report's page, next to [`stokehold_page::html::STYLE`].
pub const STYLE: &str = include_str!("page.css");

/// What the heat map of a run draws: levels of columns for each core and GPU, steps, and the evidence of rules that fired.
/// `label` stands above it. `None` if the recording has no data at any time.
pub fn heat(recording: &Recording, findings: &[Finding], label: &str) -> Option<Value> {
    data::of(recording, findings, label)
}

/// The machines that the page shows one by one, the first by name. Totals and rules are over all of them.
fn shown(recording: &Recording) -> &[Node] {
    &recording.nodes[..recording.nodes.len().min(MACHINES)]
}

/// The contents of a report.
#[derive(Debug, Clone, Copy)]
pub struct Contents<'a> {
    /// The run.
    pub recording: &'a Recording,
    /// The findings of all rules.
    pub findings: &'a [Finding],
    /// The run in one sentence.
    pub verdict: &'a str,
    /// The predicted changes, the largest gain first.
    pub advice: &'a [Advice],
    /// The whole training on this machine and on others; `None` where nothing is predicted.
    pub machines: Option<&'a Machines>,
    /// The numbers that the run reported over time.
    pub curves: &'a [Curve],
    /// The currency of costs: [`Prices::currency`](crate::advice::Prices::currency).
    pub currency: &'a str,
}

/// The default folder for the report of a run: below `base`, the run's own folder or its recording's, named
/// after the time at which the run began. So a run has one report, and a later report replaces an earlier
/// one.
pub fn folder_in(base: &Path, recording: &Recording) -> PathBuf {
    let began = Job::of(recording).map_or(0.0, |job| job.start);
    run_folder(base)
        .join("rule-output")
        .join(format!("ProfilerReport-{:010}", began.max(0.0) as u64))
        .join(FOLDER)
}

/// A run's folder, given that folder or its recording's.
pub fn run_folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if path.file_name().is_some_and(|name| name == FOLDER) => parent,
        _ => path,
    }
}

/// Writes `profiler-report.html` and `profiler-reports/<Rule>.json` into a folder, which is created if
/// needed. Returns the page's path.
///
/// # Errors
/// If a file cannot be written.
pub fn write(contents: &Contents<'_>, folder: &Path) -> Result<PathBuf, ProfileError> {
    let reports = folder.join("profiler-reports");
    make(&reports)?;
    for finding in contents.findings {
        // Rule names come from this program, never from a recording.
        let text = format!("{:#}\n", finding.published());
        put(&reports.join(format!("{}.json", finding.rule)), &text)?;
    }
    let path = folder.join("profiler-report.html");
    put(&path, &page::page(contents))?;
    Ok(path)
}

/// Writes `profiler-comparison.html`, two runs side by side, into a folder, which is created if needed.
/// Returns the page's path.
///
/// # Errors
/// If the file cannot be written.
pub fn write_pair(pair: [&Contents<'_>; 2], folder: &Path) -> Result<PathBuf, ProfileError> {
    put_pair(None, pair, folder)
}

/// What stands above a page of two runs.
#[derive(Debug, Clone, Copy)]
pub struct Heading<'a> {
    /// What the page is, in a few words.
    pub eyebrow: &'a str,
    /// Its headline.
    pub headline: &'a str,
}

/// As [`write_pair`], under the heading of a caller that has measured more than the two recordings show, and so knows how
/// sure the difference is. The runs are pieces of jobs, so what comes before the first step and after the last one is left out.
///
/// # Errors
/// As [`write_pair`].
pub fn write_pair_under(
    heading: &Heading<'_>,
    pair: [&Contents<'_>; 2],
    folder: &Path,
) -> Result<PathBuf, ProfileError> {
    put_pair(Some(heading), pair, folder)
}

fn put_pair(
    heading: Option<&Heading<'_>>,
    pair: [&Contents<'_>; 2],
    folder: &Path,
) -> Result<PathBuf, ProfileError> {
    make(folder)?;
    let path = folder.join("profiler-comparison.html");
    put(&path, &pair::page(heading, pair))?;
    Ok(path)
}

/// A page with its script. `runs` is the script's data.
fn document(title: &str, body: &str, runs: &[Value]) -> String {
    const SCRIPT: &str = include_str!("page.js");
    let data = data::script(&Value::Array(runs.to_vec()));
    // The data comes last, so that the page above it is shown first.
    let scripts = format!(
        "<script id=\"data\" type=\"application/json\">{data}</script>\n\
         <script type=\"module\">//<![CDATA[\n{HEAT}{SCRIPT}//]]></script>\n"
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
