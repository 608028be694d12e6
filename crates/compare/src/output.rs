//! The folder of a comparison and its files.
//!
//! ```text
//! compare.json              all numbers, written after every pair
//! compare.csv .md .html     the same for spreadsheets, documents and people, written after every cell
//! profiler-output/          samples of the machine
//! steps/<cell>.json         the times of the steps, written after every pair
//! pairs/<cell>-<trial>/     a page of the trial next to A, written after every cell
//! lock                      held by the process that compares
//! work/                     what trials in Python read and make, removed at the end
//! ```

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use stokehold_base::there::if_there;
use stokehold_base::{regular, whole};
use stokehold_profile::{FOLDER, ProfileError, Recording};

use crate::pairs::{self, Machine};
use crate::report::{Cell, FORMAT_VERSION, Report, Sample};
use crate::{CompareError, page, table, words};

const JSON: &str = "compare.json";
const LOCK: &str = "lock";
/// The folder for what trials in Python read and make.
pub(crate) const WORK: &str = "work";

/// The report in the folder, if it is of the same conditions as `now`; otherwise `now`.
///
/// # Errors
/// The folder holds another comparison or other files, or cannot be read.
pub(crate) fn open(out: &Path, now: Report) -> Result<Report, CompareError> {
    let path = out.join(JSON);
    let refused = |reason: String| CompareError::Folder {
        path: out.to_owned(),
        reason,
    };
    let Some(bytes) = if_there(regular::read(&path)).map_err(io(&path))? else {
        refuse_other_files(out)?;
        return Ok(now);
    };
    refuse_links(out, out)?;
    let version = serde_json::from_slice::<serde_json::Value>(&bytes)
        .ok()
        .and_then(|value| value.get("format_version")?.as_u64());
    if version != Some(u64::from(FORMAT_VERSION)) {
        return Err(refused(format!(
            "{JSON} has another format version; this version of Stokehold writes {FORMAT_VERSION}; give another folder"
        )));
    }
    let before: Report = serde_json::from_slice(&bytes)
        .map_err(|error| refused(format!("{JSON} cannot be read: {error}; give another folder")))?;
    if let Some(cell) = before.cells.iter().find(|cell| !cell.is_sound(&before.plan)) {
        return Err(refused(format!(
            "{JSON}: the cell of {} at load {} is not one that a comparison measures; give another folder",
            cell.model, cell.load
        )));
    }
    let mut changes = before.plan.changes(&now.plan)?;
    if before.dataset != now.dataset {
        changes.push("the images of the data set are other ones".to_owned());
    }
    let machine = |report: &Report| {
        let cpu = report.machine.cpu.as_deref().unwrap_or("an unknown CPU");
        format!("{} cores of {cpu}", report.machine.cores)
    };
    let (of_before, of_now) = (machine(&before), machine(&now));
    if of_before != of_now {
        changes.push(format!("the machine had {of_before} and has {of_now} now"));
    }
    if changes.is_empty() {
        return Ok(Report {
            plan: now.plan,
            ..before
        });
    }
    Err(refused(format!(
        "this folder holds a comparison with other settings: {}; repeat those, or give another folder",
        changes.join("; ")
    )))
}

/// Refuses a folder with other files and no comparison. A caller that locks the folder asks before, so that it does not
/// write into a folder that is refused.
///
/// # Errors
/// [`CompareError::Folder`] for such a folder; it cannot be read.
pub fn refuse_other_files(out: &Path) -> Result<(), CompareError> {
    let Some(entries) = if_there(fs::read_dir(out)).map_err(io(out))? else {
        return Ok(());
    };
    let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
    let names = names.collect::<Result<Vec<_>, _>>().map_err(io(out))?;
    // A comparison that was killed at its start leaves the lock, its report half written, and the start of a recording.
    let is_own = |name: &OsString| {
        [LOCK, FOLDER, WORK].iter().any(|own| name == own)
            || name.as_encoded_bytes().starts_with(JSON.as_bytes())
    };
    if names.iter().any(|name| name == JSON) {
        return Ok(());
    }
    match names.iter().find(|name| !is_own(name)) {
        None => Ok(()),
        Some(name) => Err(CompareError::Folder {
            path: out.to_owned(),
            reason: format!("holds {} and no comparison; give a new folder", name.display()),
        }),
    }
}

/// Refuses a comparison's folder that has links: who gives it to somebody else could have files written outside of it.
fn refuse_links(out: &Path, folder: &Path) -> Result<(), CompareError> {
    for entry in fs::read_dir(folder).map_err(io(folder))? {
        let entry = entry.map_err(io(folder))?;
        let kind = entry.file_type().map_err(io(&entry.path()))?;
        if kind.is_symlink() {
            return Err(CompareError::Folder {
                path: out.to_owned(),
                reason: format!(
                    "{} is a link, and a comparison makes none; give another folder",
                    entry.path().display()
                ),
            });
        }
        if kind.is_dir() {
            refuse_links(out, &entry.path())?;
        }
    }
    Ok(())
}

/// Writes the numbers.
pub(crate) fn write_json(report: &Report, out: &Path) -> Result<(), CompareError> {
    put(&out.join(JSON), report.json()?)
}

/// Writes the report in all forms, and the pages of pairs: of the cells at the places `changed`, of cells that are not
/// finished, and those that are missing.
pub(crate) fn write(report: &mut Report, out: &Path, changed: &[usize]) -> Result<(), CompareError> {
    let machine = machine(out)?;
    for cell in &mut report.cells {
        cell.measure_usage(&machine.samples);
    }
    for (place, cell) in report.cells.iter().enumerate() {
        if changed.contains(&place) || !cell.finished || !pairs::are_there(cell, out) {
            pairs::write(report, cell, &machine, out)?;
        }
    }
    write_json(report, out)?;
    put(&out.join("compare.csv"), table::csv(report))?;
    put(&out.join("compare.md"), words::markdown(report))?;
    let link = |cell: &Cell, trial| pairs::link(cell, trial, out);
    put(
        &out.join("compare.html"),
        page::page(report, &machine.samples, &link),
    )
}

/// The recording of the machine.
fn machine(out: &Path) -> Result<Machine, CompareError> {
    let folder = out.join(FOLDER);
    if !folder.exists() {
        return Ok(Machine::default());
    }
    match Recording::open(&folder) {
        Ok(recording) => Ok(Machine {
            samples: Sample::all(&recording),
            recording,
        }),
        // The first samples may still be on their way to the disk.
        Err(ProfileError::NoRecording { .. }) => Ok(Machine::default()),
        Err(error) => Err(error.into()),
    }
}

fn put(path: &Path, bytes: impl AsRef<[u8]>) -> Result<(), CompareError> {
    whole::write(path, bytes).map_err(io(path))
}

fn io(path: &Path) -> impl Fn(std::io::Error) -> CompareError {
    move |source| CompareError::Io {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::{cell, report};
    use stokehold_train::model::Arch;

    #[test]
    fn a_comparison_goes_on_only_as_it_began() {
        let dir = tempfile::tempdir().unwrap();
        let mut before = report(vec![cell(Arch::Resnet18, 1, 10.0, &[5.0])]);
        write(&mut before, dir.path(), &[]).unwrap();
        let now = Report::new(before.plan.clone(), before.dataset.clone());
        assert_eq!(open(dir.path(), now.clone()).unwrap(), before);
        before.plan.batch_size = 7;
        let error = open(dir.path(), Report::new(before.plan, now.dataset.clone())).unwrap_err();
        assert!(
            error.to_string().contains("batch size was 32 and is 7 now"),
            "{error}"
        );
        fs::write(dir.path().join(JSON), "{}").unwrap();
        let error = open(dir.path(), now).unwrap_err();
        assert!(error.to_string().contains("another format version"), "{error}");
    }

    #[test]
    fn other_peoples_folders_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.tex"), "").unwrap();
        let now = report(Vec::new());
        let error = open(dir.path(), now.clone()).unwrap_err();
        assert!(
            error.to_string().contains("holds thesis.tex and no comparison"),
            "{error}"
        );
        assert_eq!(open(&dir.path().join("new"), now.clone()).unwrap(), now);
    }
}
