//! A preparation by several workers: each makes the samples of its share of every part, and their shards are joined.
//!
//! ```text
//!  OUT.workers/1-of-3/train/000000.skshard ─┐
//!  OUT.workers/2-of-3/train/000000.skshard ─┼─ sample by sample ──► OUT/train/000000.skshard, as one worker writes them
//!  OUT.workers/3-of-3/train/000000.skshard ─┘
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use stokehold_base::lock;
use stokehold_base::share::Share;
use stokehold_base::there::if_there;
use stokehold_pipeline::probe;
use stokehold_storage::shard::{Manifest, Shard};
use stokehold_storage::{SampleBytes, Source, StorageError};

use crate::PrepareError;
use crate::make::Made;
use crate::options::Options;
use crate::output::Ready;
use crate::part::PartTask;
use crate::prepare::{Outcome, write_error};

/// The folder of all shares of the prepared folder `out`.
pub(crate) fn folder(out: &Path) -> PathBuf {
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(".workers");
    out.with_file_name(name)
}

/// The folder of a worker's share.
pub(crate) fn folder_of(out: &Path, share: Share) -> PathBuf {
    folder(out).join(format!("{}-of-{}", share.worker, share.of))
}

/// The shares of all workers, finished.
pub(crate) struct Shares(Vec<(Share, PathBuf, Manifest)>);

impl Shares {
    /// Finds them.
    ///
    /// # Errors
    /// There are none, one is missing or not finished, or one is of another data set or has other options.
    pub fn open(out: &Path, parts: &[PartTask]) -> Result<Self, PrepareError> {
        let folder = folder(out);
        let wrong = |reason: String| PrepareError::Shares {
            path: folder.clone(),
            reason,
        };
        let entries = if_there(fs::read_dir(&folder)).map_err(|source| StorageError::Read {
            path: folder.clone(),
            source,
        })?;
        let names = entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.file_name());
        let counts: BTreeSet<usize> = names
            .filter_map(|name| name.to_str()?.split_once("-of-")?.1.parse().ok())
            .collect();
        let of = match counts.iter().copied().collect::<Vec<_>>()[..] {
            [of] => of,
            [] => {
                return Err(wrong(
                    "no worker has begun: run --worker 1/N to N/N first".to_owned(),
                ));
            }
            [a, b, ..] => {
                return Err(wrong(format!(
                    "there are shares of {a} workers and of {b}; remove those that are not wanted"
                )));
            }
        };
        let mut shares = Vec::new();
        for worker in 1..=of {
            let share = Share { worker, of };
            let path = folder_of(out, share);
            let Some(manifest) = Manifest::of(&path)? else {
                return Err(wrong(format!(
                    "worker {share} has not finished: run --worker {share} again"
                )));
            };
            let ids = manifest
                .parts
                .iter()
                .map(|(name, part)| (name.as_str(), part.id.clone()));
            let mut wanted: Vec<_> = parts
                .iter()
                .map(|part| (part.name, format!("{:016x}", part.id)))
                .collect();
            wanted.sort();
            if !ids.eq(wanted) {
                return Err(wrong(format!(
                    "worker {share} prepared another data set, or with other options; give the same, or remove the share"
                )));
            }
            shares.push((share, path, manifest));
        }
        Ok(Self(shares))
    }

    /// Hands the samples of a part from number `first` on to `each`, in order.
    pub fn in_order(
        &self,
        part: &PartTask,
        options: &Options,
        first: usize,
        stop: &AtomicBool,
        mut each: impl FnMut(usize, Outcome) -> Result<(), PrepareError>,
    ) -> Result<(), PrepareError> {
        let mut bytes = SampleBytes::new();
        for (share, dir, manifest) in &self.0 {
            let range = share.range(part.images.len());
            if range.end <= first {
                continue;
            }
            let left_out = || Err(format!("worker {share} left it out, and has said why"));
            let mut sample = range.start;
            let shards = manifest
                .parts
                .get(part.name)
                .into_iter()
                .flat_map(|facts| &facts.shards);
            for (number, facts) in (0..).zip(shards) {
                let path = dir.join(&facts.file);
                let file = File::open(&path).map_err(|source| StorageError::Read {
                    path: path.clone(),
                    source,
                })?;
                let shard = Shard::open(Box::new(file), path, part.id, number, part.images.classes(), None)?;
                let again = format!("remove the share, and run --worker {share} again");
                let wrong = match shard.tables_damage() {
                    Some(damage) => Some(damage.to_string()),
                    None if shard.tables() != part.tables() => Some(
                        "its JPEGs are packed with other tables than those of the images as they are now: files have changed"
                            .to_owned(),
                    ),
                    None => None,
                };
                if let Some(wrong) = wrong {
                    return Err(PrepareError::Shares {
                        path: shard.path().to_owned(),
                        reason: format!("{wrong}; {again}"),
                    });
                }
                for record in 0..shard.len() {
                    if stop.load(Ordering::Relaxed) {
                        return Err(PrepareError::Interrupted);
                    }
                    while sample < range.end && part.images.below(sample) != shard.name(record) {
                        if sample >= first {
                            each(sample, left_out())?;
                        }
                        sample += 1;
                    }
                    if sample == range.end {
                        return Err(PrepareError::Shares {
                            path: shard.path().to_owned(),
                            reason: format!("it is damaged; {again}"),
                        });
                    }
                    if sample >= first {
                        shard.read(record, &mut bytes)?;
                        each(sample, ready(part, options, sample, &bytes))?;
                    }
                    sample += 1;
                }
            }
            for sample in sample.max(first)..range.end {
                each(sample, left_out())?;
            }
        }
        Ok(())
    }

    /// Removes what the workers made, and folders that are empty then. What else lies there stays, and so does a share in which a
    /// worker is at work.
    pub fn remove(&self) -> Result<(), PrepareError> {
        for (_, dir, manifest) in &self.0 {
            let failed = |source| write_error(dir, source);
            let lock = File::open(dir).map_err(failed)?;
            if !lock::lock(&lock, lock::MOMENT).map_err(failed)? {
                continue;
            }
            let files = manifest
                .parts
                .values()
                .flat_map(|part| &part.shards)
                .map(|shard| &shard.file);
            // The manifest first: without its shards it would lie.
            let own = std::iter::once(Manifest::FILE).chain(files.map(String::as_str));
            for name in own {
                let path = dir.join(name);
                if_there(fs::remove_file(&path)).map_err(|source| write_error(&path, source))?;
            }
            for part in manifest.parts.keys() {
                remove_empty(&dir.join(part));
            }
            remove_empty(dir);
        }
        if let Some((_, dir, _)) = self.0.first() {
            dir.parent().into_iter().for_each(remove_empty);
        }
        Ok(())
    }
}

/// Removes a folder if it is empty; else it has files of somebody.
fn remove_empty(folder: &Path) {
    if let Err(error) = fs::remove_dir(folder) {
        tracing::info!(folder = %folder.display(), "stays: {error}");
    }
}

/// A sample as a worker made it.
fn ready(part: &PartTask, options: &Options, sample: usize, bytes: &SampleBytes) -> Outcome {
    let info = probe(bytes.file()).map_err(|error| error.to_string())?;
    let made = Made {
        file: bytes.file().to_vec(),
        format: info.format,
        width: info.width,
        height: info.height,
        kept: None,
    };
    let key = part.keys.get(sample).map_or("", String::as_str);
    let (name, label) = (part.images.below(sample), part.images.class(sample));
    let ready = Ready::new(options.container, name, key, label, made).map_err(|error| error.to_string())?;
    Ok((ready, None))
}
