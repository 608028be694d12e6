//! The files of one job.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::time::{Duration, UNIX_EPOCH};

use serde::Deserialize;
use stokehold_base::there::if_there;
use stokehold_base::{lock, regular, whole};

use super::record::RUNNER_DIED;
use super::{FinalMetric, Record};
use crate::slurm::Submitted;
use crate::{Job, JobError};

/// The file of a job's folder with every value of every metric, as JSON lines: `name`, `value` (a text if it
/// is not finite), `time`; `host` for a printed one, `step` (or null) for one that was sent.
pub const METRICS: &str = "metrics.jsonl";

/// One job's folder.
#[derive(Debug, Clone)]
pub(crate) struct Folder(pub PathBuf);

impl Folder {
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn write(&self, record: &Record) -> Result<(), JobError> {
        let text = serde_json::to_vec_pretty(record).map_err(|error| JobError::Input(error.to_string()))?;
        let path = self.file("state.json");
        whole::write(&path, text).map_err(JobError::io(&path))
    }

    pub(super) fn read(&self) -> Result<Record, JobError> {
        self.parse("state.json")
    }

    pub(super) fn job(&self) -> Result<Job, JobError> {
        self.parse("job.json")
    }

    pub(super) fn parse<T: for<'de> Deserialize<'de>>(&self, name: &str) -> Result<T, JobError> {
        let path = self.file(name);
        let text = regular::read_small(&path).map_err(JobError::io(&path))?;
        serde_json::from_slice(&text).map_err(|error| JobError::File {
            path,
            line: Some(error.line()),
            reason: error.to_string(),
        })
    }

    /// The job's number at Slurm; `None` for one that was not handed to it.
    pub(super) fn slurm(&self) -> Result<Option<Submitted>, JobError> {
        match self.file(SLURM).exists() {
            true => self.parse(SLURM).map(Some),
            false => Ok(None),
        }
    }

    /// The last line that its runner printed, which is why it could not begin.
    pub(super) fn last_words(&self) -> Option<String> {
        let said = regular::read(&self.file("runner.log")).ok()?;
        let said = String::from_utf8_lossy(&said);
        let last = said.lines().map(str::trim).rfind(|line| !line.is_empty())?;
        Some(last.to_owned())
    }

    /// The last value of each metric of a job that has not recorded them yet, from the end of the file that
    /// has all values.
    pub(super) fn metrics(&self) -> Vec<FinalMetric> {
        let read = || {
            let mut file = regular::open(&self.file(METRICS))?;
            let end = file.metadata()?.len();
            file.seek(SeekFrom::Start(end.saturating_sub(TAIL)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map(|_| bytes)
        };
        // A missing file means that nothing was printed yet; an incomplete last line is skipped.
        let bytes: Vec<u8> = read().unwrap_or_default();
        let lines = bytes.split(|byte| *byte == b'\n');
        let numbers = lines.filter_map(|line| serde_json::from_slice::<FinalMetric>(line).ok());
        let last: BTreeMap<String, FinalMetric> =
            numbers.map(|metric| (metric.name.clone(), metric)).collect();
        last.into_values().collect()
    }

    /// Keeps why the runner ends without a final state. On a full disk the file is there and empty.
    pub fn give_up(&self, error: &JobError) {
        let path = self.file(GAVE_UP);
        let kept = if_there(fs::remove_file(&path))
            .and_then(|_| File::create_new(&path))
            .and_then(|mut file| file.write_all(error.to_string().as_bytes()));
        if let Err(error) = kept {
            tracing::debug!("{}: {error}", path.display());
        }
    }

    /// Why a job has no final state and no runner.
    pub(super) fn end_of_runner(&self, record: &Record) -> String {
        let during = record.secondary;
        let Ok(why) = regular::read(&self.file(GAVE_UP)) else {
            return format!("{RUNNER_DIED} while it was {during:?}");
        };
        let why = match why.is_empty() {
            true => "the disk was full".into(),
            false => String::from_utf8_lossy(&why),
        };
        format!("InternalServerError: the runner of this job gave up while it was {during:?}: {why}")
    }

    pub fn stop_wanted(&self) -> bool {
        self.file("stop").exists()
    }

    pub fn kill_wanted(&self) -> bool {
        regular::read(&self.file("stop")).is_ok_and(|text| text == KILL)
    }

    pub fn interruption_wanted(&self) -> bool {
        self.file("interrupt").exists()
    }

    /// When its runner last wrote a file, unix seconds.
    pub(super) fn last_sign(&self) -> Option<f64> {
        let written = ["state.json", "log"].iter().filter_map(|name| {
            let time = fs::metadata(self.file(name)).ok()?.modified().ok()?;
            Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
        });
        written.max_by(f64::total_cmp)
    }

    /// The lock; `None` if another process holds it for longer than `patience`.
    pub(super) fn lock(&self, patience: Duration) -> Result<Option<File>, JobError> {
        let path = self.file("lock");
        let lock = lock::open(&path, patience).map_err(JobError::io(&path))?;
        tracing::info!(path = %path.display(), taken = lock.is_some(), "a job's lock");
        Ok(lock)
    }
}

/// The file with the job's number at Slurm.
pub(super) const SLURM: &str = "slurm.json";

/// The file with the error that kept the runner from writing the state.
pub(super) const GAVE_UP: &str = "gave-up";

/// The contents of the file `stop` when the script gets no time to end.
pub(super) const KILL: &[u8] = b"kill";

/// The end of a metrics file that is searched for last values, bytes.
pub(super) const TAIL: u64 = 64 << 10;
