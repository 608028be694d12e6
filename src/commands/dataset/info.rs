//! `stokehold dataset info`: every image of a data set, read and decoded, in a report.

use crate::terminal;
use std::error::Error;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use stokehold_prepare::examine;
use stokehold_storage::{Dataset, Source};

use super::report::Text;
use crate::{damage, progress};

/// Examines the data set in `dir` and prints the report; the exit code is 1 if files are broken.
pub fn run(dir: &Path, json: bool, threads: usize) -> Result<ExitCode, Box<dyn Error>> {
    let data = Dataset::open(dir, None, 0)?;
    damage::warn_of(&data);
    let bar = progress::bar(0, "decoding {bar:40} {pos}/{len} {eta}");
    let validation = data.val.as_ref().map_or(0, Source::len);
    bar.set_length((data.train.len() + validation) as u64);
    let report = examine(dir, &data, threads, &|| {
        bar.inc(1);
        true
    });
    bar.finish_and_clear();
    // It was to continue to the end.
    let Some(report) = report else {
        return Ok(ExitCode::FAILURE);
    };
    match json {
        true => terminal::json(&report)?,
        false => write!(terminal::out(), "{}", Text(&report))?,
    }
    Ok(ExitCode::from(u8::from(!report.broken.is_empty())))
}
