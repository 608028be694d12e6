//! The work folder: of which transform it is, which parts are done, and who has the others.
//!
//! ```text
//! plan.json             the transform: model, inputs, options
//! parts/000012.lock     locked by the worker that has the part
//! parts/000012.done     its counts, and its lines of outputs that other parts share
//! complete.json         the counts of all; then parts/ is gone
//! ```

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use stokehold_base::lock::{Lock, Refused, lock};
use stokehold_base::there::if_there;
use stokehold_base::whole;

use crate::TransformError;
use stokehold_base::share::Share;

/// The file that says of which transform the folder is.
const PLAN: &str = "plan.json";

/// What was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Counts {
    /// Records with an output.
    pub records: u64,
    /// Those whose output is an error.
    pub errors: u64,
}

impl Counts {
    pub fn add(&mut self, more: Self) {
        self.records += more.records;
        self.errors += more.errors;
    }
}

/// A part that this worker has.
#[derive(Debug)]
pub(crate) struct Claim {
    pub part: usize,
    _locked: File,
}

/// The next part.
#[derive(Debug)]
pub(crate) enum Claimed {
    Part(Claim),
    /// Other workers have all parts that are not done.
    Busy,
    /// Every part is done, or every one of this worker's share.
    Done,
}

/// An opened work folder.
#[derive(Debug)]
pub(crate) struct Work {
    folder: PathBuf,
    parts: PathBuf,
    /// Whether each part was seen done; those of other shares count as not done.
    done: Vec<bool>,
    share: Option<Share>,
    /// No other worker has the same share.
    _share_lock: Option<Lock>,
}

impl Work {
    /// Opens the folder, which is created if needed, for the transform that `plan` describes.
    ///
    /// # Errors
    /// The folder is of another transform; another worker has this share; the file system fails.
    pub fn open(
        folder: &Path,
        plan: &Map<String, Value>,
        parts: usize,
        share: Option<Share>,
    ) -> Result<Self, TransformError> {
        let work = Self {
            folder: folder.to_owned(),
            parts: folder.join("parts"),
            done: vec![false; parts],
            share,
            _share_lock: None,
        };
        fs::create_dir_all(folder).map_err(TransformError::io(folder))?;
        work.check_plan(plan)?;
        if work.complete()?.is_none() {
            fs::create_dir_all(&work.parts).map_err(TransformError::io(&work.parts))?;
        }
        let _share_lock = share.map(|share| work.lock_share(share)).transpose()?;
        Ok(Self { _share_lock, ..work })
    }

    /// Whether a transform has begun in a folder.
    pub fn is_begun(folder: &Path) -> bool {
        folder.join(PLAN).exists()
    }

    /// Writes the plan, or compares it with the one that is there.
    fn check_plan(&self, plan: &Map<String, Value>) -> Result<(), TransformError> {
        let path = self.folder.join(PLAN);
        let Some(text) = if_there(fs::read_to_string(&path)).map_err(TransformError::io(&path))? else {
            let text = serde_json::to_string_pretty(plan).unwrap_or_default();
            return whole::write(&path, text + "\n").map_err(TransformError::io(&path));
        };
        let there: Map<String, Value> =
            serde_json::from_str(&text).map_err(|error| TransformError::File {
                path: path.display().to_string(),
                line: Some(error.line()),
                reason: format!("not the plan of a transform: {error}"),
            })?;
        let keys = plan
            .keys()
            .chain(there.keys().filter(|key| !plan.contains_key(*key)));
        let differs: Vec<String> = keys
            .filter(|key| plan.get(*key) != there.get(*key))
            .map(|key| {
                let of =
                    |plan: &Map<String, Value>| plan.get(key).map_or("nothing".to_owned(), Value::to_string);
                format!("{key} is {} there and {} here", of(&there), of(plan))
            })
            .collect();
        match differs.is_empty() {
            true => Ok(()),
            false => Err(TransformError::Input(format!(
                "{}: this is the work of another transform: {}; give the same options to continue it, or another output \
                 or work folder",
                self.folder.display(),
                differs.join(", ")
            ))),
        }
    }

    fn lock_share(&self, share: Share) -> Result<Lock, TransformError> {
        let path = self
            .folder
            .join(format!("worker-{}-of-{}.lock", share.worker, share.of));
        Lock::take(&path).map_err(|refused| match refused {
            Refused::Held(holder) => TransformError::Input(format!(
                "worker {share} is at work already: {holder}; give each worker its own number, or leave --worker out where all see \
                 this folder"
            )),
            Refused::Io(error) => TransformError::io(&path)(error),
        })
    }

    /// The counts of all, if every output is written.
    pub fn complete(&self) -> Result<Option<Counts>, TransformError> {
        let path = self.folder.join("complete.json");
        let Some(bytes) = if_there(fs::read(&path)).map_err(TransformError::io(&path))? else {
            return Ok(None);
        };
        serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| TransformError::File {
                path: path.display().to_string(),
                line: Some(error.line()),
                reason: error.to_string(),
            })
    }

    /// Takes the next part that no one has.
    pub fn claim(&mut self) -> Result<Claimed, TransformError> {
        if self.complete()?.is_some() {
            return Ok(Claimed::Done);
        }
        let mut busy = false;
        for part in 0..self.done.len() {
            if !self.is_open(part) {
                continue;
            }
            let Some(locked) = self.try_lock(part)? else {
                busy = true;
                continue;
            };
            // Its last holder may have finished it, and the whole transform, before the lock was taken.
            if self.complete()?.is_some() {
                return Ok(Claimed::Done);
            }
            if self.is_open(part) {
                return Ok(Claimed::Part(Claim {
                    part,
                    _locked: locked,
                }));
            }
        }
        Ok(if busy { Claimed::Busy } else { Claimed::Done })
    }

    /// Whether a part is this worker's to compute and not known to be done.
    fn is_open(&mut self, part: usize) -> bool {
        let ours = self.share.is_none_or(|share| part % share.of == share.worker - 1);
        if ours && !self.done[part] {
            self.done[part] = self.path(part, "done").is_file();
        }
        ours && !self.done[part]
    }

    fn try_lock(&self, part: usize) -> Result<Option<File>, TransformError> {
        let path = self.path(part, "lock");
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path);
        let locked = file.and_then(|file| Ok(lock(&file, Duration::ZERO)?.then_some(file)));
        match locked {
            // The worker that completed the transform has removed the folder.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.parts.is_dir() => Ok(None),
            locked => locked.map_err(TransformError::io(&path)),
        }
    }

    fn path(&self, part: usize, suffix: &str) -> PathBuf {
        self.parts.join(format!("{part:06}.{suffix}"))
    }

    /// Marks a part as done, with its lines of outputs that other parts share.
    pub fn finish(&mut self, claim: Claim, counts: Counts, lines: &str) -> Result<(), TransformError> {
        let path = self.path(claim.part, "done");
        let counts = serde_json::to_string(&counts).unwrap_or_default();
        whole::write(&path, format!("{counts}\n{lines}")).map_err(TransformError::io(&path))?;
        self.done[claim.part] = true;
        Ok(())
    }

    /// The parts that are not done, of all workers.
    pub fn missing(&mut self) -> usize {
        let missing = |part: &usize| !self.done[*part] && !self.path(*part, "done").is_file();
        (0..self.done.len()).filter(missing).count()
    }

    /// The records of the parts that are done; `size` is the records of a part.
    pub fn records_done(&mut self, size: usize, records: usize) -> u64 {
        let done = (0..self.done.len()).filter(|&part| self.path(part, "done").is_file());
        done.map(|part| (part_range(part, size, records).len()) as u64)
            .sum()
    }

    /// A part's counts, and a reader of its lines.
    pub fn lines(&self, part: usize) -> Result<(Counts, impl BufRead + use<>), TransformError> {
        let path = self.path(part, "done");
        let failed = TransformError::io(&path);
        let mut file = BufReader::new(File::open(&path).map_err(&failed)?);
        let mut head = String::new();
        file.read_line(&mut head).map_err(&failed)?;
        let counts = serde_json::from_str(&head).map_err(|error| TransformError::File {
            path: path.display().to_string(),
            line: Some(1),
            reason: format!("{error}; remove the file, and its part is computed again"),
        })?;
        Ok((counts, file))
    }

    /// The lock of the worker that completes the transform; `None` while another one does.
    pub fn lock_completion(&self) -> Result<Option<Lock>, TransformError> {
        let path = self.folder.join("complete.lock");
        match Lock::take(&path) {
            Ok(lock) => Ok(Some(lock)),
            Err(Refused::Held(_)) => Ok(None),
            Err(Refused::Io(error)) => Err(TransformError::io(&path)(error)),
        }
    }

    /// Says that every output is written.
    pub fn set_complete(&self, counts: Counts) -> Result<(), TransformError> {
        let path = self.folder.join("complete.json");
        let text = serde_json::to_string(&counts).unwrap_or_default();
        whole::write(&path, text + "\n").map_err(TransformError::io(&path))?;
        // What stays is of no use and no harm.
        if let Err(error) = fs::remove_dir_all(&self.parts) {
            tracing::debug!(%error, "the parts stay");
        }
        Ok(())
    }
}

/// The records of a part.
pub(crate) fn part_range(part: usize, size: usize, records: usize) -> Range<usize> {
    part * size..((part + 1) * size).min(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(folder: &Path, share: Option<Share>) -> Work {
        Work::open(folder, &Map::new(), 5, share).unwrap()
    }

    fn claim(work: &mut Work) -> Option<Claim> {
        match work.claim().unwrap() {
            Claimed::Part(claim) => Some(claim),
            Claimed::Busy | Claimed::Done => None,
        }
    }

    #[test]
    fn every_part_is_done_once_whoever_dies() {
        let dir = tempfile::tempdir().unwrap();
        let [mut a, mut b] = [(); 2].map(|()| open(dir.path(), None));
        let [first, second] = [&mut a, &mut b].map(|work| claim(work).unwrap());
        assert_eq!((first.part, second.part), (0, 1));
        // The first worker dies: its lock is released with it.
        drop((first, a));
        b.finish(second, Counts::default(), "").unwrap();
        let claims: Vec<Claim> = std::iter::from_fn(|| claim(&mut b)).collect();
        let parts: Vec<usize> = claims.iter().map(|claim| claim.part).collect();
        assert_eq!(parts, [0, 2, 3, 4]);
        let mut c = open(dir.path(), None);
        assert!(matches!(c.claim().unwrap(), Claimed::Busy));
        for claim in claims {
            b.finish(
                claim,
                Counts {
                    records: 3,
                    errors: 1,
                },
                "x\n",
            )
            .unwrap();
        }
        assert!(matches!(c.claim().unwrap(), Claimed::Done));
        assert_eq!(c.missing(), 0);
        let (counts, mut lines) = c.lines(3).unwrap();
        assert_eq!(
            counts,
            Counts {
                records: 3,
                errors: 1
            }
        );
        let mut text = String::new();
        io::Read::read_to_string(&mut lines, &mut text).unwrap();
        assert_eq!(text, "x\n");
        c.set_complete(counts).unwrap();
        assert!(matches!(b.claim().unwrap(), Claimed::Done));
    }

    #[test]
    fn shares_divide_the_parts_and_have_one_worker_each() {
        let dir = tempfile::tempdir().unwrap();
        let share = |worker| Some(Share { worker, of: 2 });
        let mut parts = Vec::new();
        for worker in [1, 2] {
            let mut work = open(dir.path(), share(worker));
            parts.push(Vec::new());
            while let Some(claim) = claim(&mut work) {
                parts[worker - 1].push(claim.part);
                work.finish(claim, Counts::default(), "").unwrap();
            }
        }
        assert_eq!(parts, [vec![0, 2, 4], vec![1, 3]]);
        let _first = open(dir.path(), share(1));
        let twice = Work::open(dir.path(), &Map::new(), 5, share(1)).unwrap_err();
        assert!(
            twice
                .to_string()
                .starts_with("worker 1/2 is at work already: process "),
            "{twice}"
        );
    }

    #[test]
    fn the_work_of_another_transform_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let plan = |model: &str| Map::from_iter([("model".to_owned(), Value::from(model))]);
        Work::open(dir.path(), &plan("a"), 1, None).unwrap();
        Work::open(dir.path(), &plan("a"), 1, None).unwrap();
        let error = Work::open(dir.path(), &plan("b"), 1, None)
            .unwrap_err()
            .to_string();
        assert!(error.contains("model is \"a\" there and \"b\" here"), "{error}");
    }
}
