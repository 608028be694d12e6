//! The folders that a studio shows, and nothing outside of them.
//!
//! A thing has a key, `PLACE/NAME`: the place is one of the given folders, the name that of a folder in it. A name is one component of
//! a path, so no key leads out of its place. Links may: so a thing's folder and its known files are resolved before they are read, and have to
//! lie below the place.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;
use stokehold_jobs::Store;
use stokehold_profile::FOLDER;
use stokehold_tune::JOURNAL;

use crate::{StudioError, notes, study};

/// The folder of runs that is shown if none is named: where `stokehold train` puts them. It need not be there yet.
pub const RUNS: &str = "runs";

/// The files of a thing that the studio reads.
const FILES: [&str; 20] = [
    "run.json",
    "summary.json",
    "metrics.jsonl",
    "job.json",
    "state.json",
    "slurm.json",
    "log",
    "output.log",
    "runner.log",
    "lock",
    "compare.json",
    JOURNAL,
    FOLDER,
    "profiler-output/recording.json",
    "profiler-output/system",
    "profiler-output/framework",
    "stop",
    "interrupt",
    notes::FILE,
    study::LOG,
];

/// One of the given folders.
#[derive(Debug)]
pub struct RootFolder {
    /// Its name in keys: `jobs`, or [`named`] after the folder.
    pub id: String,
    /// The folder, as it was given.
    pub path: PathBuf,
    /// What manages it, if it is the folder of the jobs.
    pub jobs: Option<Store>,
    /// Whether it need not be there: that of jobs before the first, and the usual one of runs.
    pub is_to_come: bool,
}

/// All of them.
#[derive(Debug)]
pub struct Places(Vec<RootFolder>);

/// Why a key leads nowhere.
#[derive(Debug, PartialEq, Eq)]
pub enum Lost {
    /// Nothing is there.
    Missing,
    /// It leads out of the given folders.
    Outside,
}

/// A thing that is there.
#[derive(Debug, Clone)]
pub struct FolderEntry<'a> {
    /// Where it is.
    pub place: &'a RootFolder,
    /// Its folder's name.
    pub name: &'a str,
    /// Its folder.
    pub folder: PathBuf,
}

/// A place, for a page.
#[derive(Debug, Serialize)]
pub struct About {
    id: String,
    path: String,
    there: bool,
}

/// A name for keys of a folder, given without links: its own, and a number after it if another folder has that.
pub fn named(folder: &Path, taken: Vec<&str>) -> String {
    let own = folder.file_name().and_then(|name| name.to_str());
    let own = own
        .filter(|own| !own.contains(char::is_control))
        .unwrap_or("folder");
    let names = std::iter::once(own.to_owned()).chain((2..).map(|number| format!("{own}-{number}")));
    // The names have no end, and what is taken has one.
    names
        .into_iter()
        .find(|name| !taken.contains(&name.as_str()))
        .unwrap_or_default()
}

impl Places {
    /// The folder of jobs and those of runs. That of the jobs need not be there yet, and neither need the usual one of runs.
    ///
    /// # Errors
    /// A folder of runs that cannot be read, is named twice, or is a run.
    pub fn new(jobs: Option<&Path>, runs: &[PathBuf]) -> Result<Self, StudioError> {
        let mut all = Vec::new();
        if let Some(path) = jobs {
            let store = Store::new(path).map_err(|error| StudioError::Folder {
                path: path.to_owned(),
                error: io::Error::other(error.to_string()),
            })?;
            all.push(RootFolder {
                id: "jobs".to_owned(),
                path: path.to_owned(),
                jobs: Some(store),
                is_to_come: true,
            });
        }
        let mut known: Vec<PathBuf> = jobs
            .and_then(|path| path.canonicalize().ok())
            .into_iter()
            .collect();
        for path in runs {
            let failed = |error| StudioError::Folder {
                path: path.clone(),
                error,
            };
            let is_to_come = path == Path::new(RUNS) && !path.exists();
            let real = match is_to_come {
                true => std::path::absolute(path).map_err(failed)?,
                false => {
                    fs::read_dir(path).map_err(failed)?;
                    path.canonicalize().map_err(failed)?
                }
            };
            if ["run.json", JOURNAL].iter().any(|file| real.join(file).is_file()) {
                return Err(StudioError::IsRun {
                    path: path.clone(),
                    parent: real.parent().unwrap_or(&real).to_owned(),
                });
            }
            if known.contains(&real) {
                return Err(StudioError::Twice { path: path.clone() });
            }
            let ids = all.iter().map(|place: &RootFolder| place.id.as_str());
            let id = named(&real, ids.collect());
            known.push(real);
            all.push(RootFolder {
                id,
                path: path.clone(),
                jobs: None,
                is_to_come,
            });
        }
        Ok(Self(all))
    }

    /// Each of them.
    pub fn iter(&self) -> impl Iterator<Item = &RootFolder> {
        self.0.iter()
    }

    /// What a page says of them.
    pub fn about(&self) -> Vec<About> {
        let about = |place: &RootFolder| About {
            id: place.id.clone(),
            path: place.path.display().to_string(),
            there: place.path.is_dir(),
        };
        self.iter().map(about).collect()
    }

    /// The thing of a key.
    ///
    /// # Errors
    /// It is not there, or not below its place.
    pub fn find<'a>(&'a self, key: &'a str) -> Result<FolderEntry<'a>, Lost> {
        let (id, name) = key.split_once('/').ok_or(Lost::Missing)?;
        let place = self.iter().find(|place| place.id == id).ok_or(Lost::Missing)?;
        place.find(name)
    }
}

impl RootFolder {
    /// The thing in a folder of this place.
    ///
    /// # Errors
    /// As [`Places::find`].
    pub fn find<'a>(&'a self, name: &'a str) -> Result<FolderEntry<'a>, Lost> {
        let mut parts = Path::new(name).components();
        let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
        if !is_name || name.contains(['/', '\0']) {
            return Err(Lost::Missing);
        }
        let folder = self.path.join(name);
        let root = self.path.canonicalize().map_err(|_| Lost::Missing)?;
        let real = folder.canonicalize().map_err(|_| Lost::Missing)?;
        if !real.starts_with(&root) {
            return Err(Lost::Outside);
        }
        if !real.is_dir() {
            return Err(Lost::Missing);
        }
        for file in FILES {
            let path = real.join(file);
            // Only a link can lead elsewhere.
            let is_link = path.symlink_metadata().is_ok_and(|about| about.is_symlink());
            // One that leads to nothing may lead to a file that the studio would make.
            if is_link && !path.canonicalize().is_ok_and(|path| path.starts_with(&root)) {
                return Err(Lost::Outside);
            }
        }
        Ok(FolderEntry {
            place: self,
            name,
            folder,
        })
    }
}

impl FolderEntry<'_> {
    /// The store of the job that it is, if it is one.
    pub fn store(&self) -> Option<&Store> {
        let store = self.place.jobs.as_ref()?;
        self.folder.join("state.json").is_file().then_some(store)
    }

    /// A folder in it, resolved; `None` if it is not there, or leads out of the place by a link.
    pub fn below(&self, path: &str) -> Option<PathBuf> {
        let root = self.place.path.canonicalize().ok()?;
        let real = self.folder.join(path).canonicalize().ok()?;
        (real.starts_with(root) && real.is_dir()).then_some(real)
    }

    /// A file of it, if it is there.
    pub fn file(&self, name: &str) -> Option<PathBuf> {
        let path = self.folder.join(name);
        path.is_file().then_some(path)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn no_key_leads_out_of_the_given_folders() {
        let dir = tempfile::tempdir().unwrap();
        let runs = dir.path().join("runs");
        for folder in ["runs/one", "runs/a <b>", "runs/linked", "other", "runs/inner"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        fs::write(dir.path().join("secret"), "secret").unwrap();
        fs::write(runs.join("file"), "").unwrap();
        symlink(dir.path().join("other"), runs.join("away")).unwrap();
        symlink("one", runs.join("same")).unwrap();
        symlink(dir.path().join("secret"), runs.join("linked/metrics.jsonl")).unwrap();
        symlink("../one", runs.join("inner/profiler-output")).unwrap();
        fs::create_dir(runs.join("dangling")).unwrap();
        symlink(dir.path().join("none"), runs.join("dangling/tune.log")).unwrap();
        let places = Places::new(None, std::slice::from_ref(&runs)).unwrap();
        let found = |key: &str| places.find(key).map(|found| found.name.to_owned());
        for key in ["runs/one", "runs/same", "runs/a <b>", "runs/inner"] {
            assert_eq!(found(key).unwrap(), key.split_once('/').unwrap().1);
        }
        for key in ["runs/away", "runs/linked", "runs/dangling"] {
            assert_eq!(found(key), Err(Lost::Outside), "{key}");
        }
        for key in [
            "runs/..",
            "runs/.",
            "runs/",
            "runs",
            "runs/../other",
            "runs//etc",
            "runs/one/../..",
            "runs/file",
            "runs/none",
            "jobs/one",
            "runs/one/",
            "runs/\0",
        ] {
            assert_eq!(found(key), Err(Lost::Missing), "{key}");
        }
        fs::remove_dir_all(&runs).unwrap();
        assert_eq!(found("runs/one"), Err(Lost::Missing));
        assert!(!places.about()[0].there);
    }

    #[test]
    fn keys_begin_with_the_names_of_folders() {
        let dir = tempfile::tempdir().unwrap();
        let folders = ["a/runs", "b/runs", "jobs", "c/experiments"].map(|folder| dir.path().join(folder));
        folders
            .iter()
            .for_each(|folder| fs::create_dir_all(folder).unwrap());
        let places = Places::new(Some(&dir.path().join("j")), &folders).unwrap();
        let ids: Vec<&str> = places.iter().map(|place| place.id.as_str()).collect();
        assert_eq!(ids, ["jobs", "runs", "runs-2", "jobs-2", "experiments"]);
    }

    #[test]
    fn a_folder_that_is_named_twice_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let twice = [dir.path().to_owned(), dir.path().join(".")];
        assert!(matches!(
            Places::new(None, &twice),
            Err(StudioError::Twice { .. })
        ));
        let none = [dir.path().join("none")];
        let error = Places::new(None, &none).unwrap_err().to_string();
        assert!(error.contains("none: No such file"), "{error}");
    }
}
