//! Jobs with real processes, real pipes and a real S3 server.

mod caches;
mod channels;
mod checkpoints;
mod contract;
mod filesystems;
mod front;
mod kills;
mod looks;
mod model;
mod mounts;
mod profiler;
mod requirements;
mod rooms;
mod runs;
mod schema;
mod source;
mod spot;
mod valid;
mod writes;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use stokehold_jobs::{EntryPoint, Job, News, Record, Store, run};
use tempfile::TempDir;

/// A folder for sources and jobs, and what a job printed.
pub(crate) struct Bench {
    pub(crate) dir: TempDir,
    pub(crate) store: Store,
    pub(crate) printed: Mutex<Vec<String>>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(&dir.path().join("jobs")).unwrap();
        Self {
            dir,
            store,
            printed: Mutex::default(),
        }
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.dir.path().join("src")
    }

    /// A job that runs a script, in a room where there can be any.
    pub(crate) fn job(&self, file: &str, script: &str) -> Job {
        Job {
            opt_ml: rooms::can_have_rooms(),
            ..self.job_without(file, script)
        }
    }

    /// The same without a room.
    pub(crate) fn job_without(&self, file: &str, script: &str) -> Job {
        let source = self.source();
        let path = source.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, script).unwrap();
        let mut job = Job::new(EntryPoint::parse(file).unwrap());
        job.source_dir = Some(source);
        job.stop_seconds = 1;
        job.opt_ml = false;
        job
    }

    pub(crate) fn run(&self, job: &Job) -> Record {
        let name = self.store.create(job).unwrap();
        self.run_again(self.store.claim(&name).unwrap())
    }

    pub(crate) fn run_again(&self, claim: stokehold_jobs::Claim) -> Record {
        self.printed.lock().unwrap().clear();
        run(claim, &AtomicBool::new(false), &|news| {
            let News::Line(line) = news else { return };
            self.printed
                .lock()
                .unwrap()
                .push(format!("{} {} {}", line.host, line.stream, line.text));
        })
        .unwrap()
    }

    pub(crate) fn printed(&self) -> Vec<String> {
        self.printed.lock().unwrap().clone()
    }

    pub(crate) fn base(&self, record: &Record, host: &str) -> PathBuf {
        self.store.path(&record.name).join(host)
    }
}

/// The names and contents of an archive.
pub(crate) fn unpacked(path: &Path) -> Vec<(String, String)> {
    use std::io::Read;
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(fs::File::open(path).unwrap()));
    let mut found = Vec::new();
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut text = String::new();
        entry.read_to_string(&mut text).unwrap();
        found.push((name, text));
    }
    found
}
