//! What a preparation that was cut short had finished.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use stokehold_storage::SampleBytes;
use stokehold_storage::Source;
use stokehold_storage::StorageError;
use stokehold_storage::shard::{Crc32, Shard, ShardFacts};

use crate::options::{Container, Options};
use crate::output::file_name;
use crate::part::PartTask;
use crate::{PrepareError, tar};

/// Where to continue.
pub(crate) struct ResumePoint {
    pub shards: Vec<ShardFacts>,
    /// Samples in them.
    pub samples: usize,
    /// The image after the last of them.
    pub next: usize,
    /// Images before that one which are in no shard.
    pub left_out: Vec<usize>,
}

/// Finds the finished files of a part, from the first on, and reads every byte of them. One that is not as it was written,
/// and all after it, are made again.
pub(crate) fn kept(
    part: &PartTask,
    out: &Path,
    options: &Options,
    stop: &AtomicBool,
) -> Result<ResumePoint, PrepareError> {
    let mut kept = ResumePoint {
        shards: Vec::new(),
        samples: 0,
        next: part.range.start,
        left_out: Vec::new(),
    };
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            return Err(PrepareError::Interrupted);
        }
        let name = file_name(part.name, number, options);
        let path = out.join(&name);
        if !path.exists() {
            break;
        }
        let samples = match options.container {
            Container::Shards => in_shard(part, &path, number),
            Container::Tar => in_tar(&path),
        };
        let Some(samples) = undamaged(samples)? else {
            break;
        };
        let Some((next, left_out)) = places(part, kept.next, &samples) else {
            break;
        };
        if !left_out.is_empty() && !options.skip_bad_images {
            break;
        }
        let (bytes, crc) = checksum(&path).map_err(|source| StorageError::Read {
            path: path.clone(),
            source,
        })?;
        let labels = samples.iter().map(|(_, label)| *label);
        kept.shards.push(ShardFacts::new(name, bytes, crc, labels));
        kept.samples += samples.len();
        kept.next = next;
        kept.left_out.extend(left_out);
    }
    Ok(kept)
}

/// Whether one of the finished files of this preparation is there: a shard with its number, or a tar with
/// samples of this data set.
pub(crate) fn has_begun(
    parts: &[PartTask],
    out: &Path,
    options: &Options,
    stop: &AtomicBool,
) -> Result<bool, PrepareError> {
    for part in parts {
        for number in 0.. {
            if stop.load(Ordering::Relaxed) {
                return Err(PrepareError::Interrupted);
            }
            let path = out.join(file_name(part.name, number, options));
            if !path.exists() {
                break;
            }
            let is_ours = match options.container {
                Container::Shards => undamaged(open(part, &path, number))?.is_some(),
                Container::Tar => undamaged(in_tar(&path))?.is_some_and(|samples| {
                    !samples.is_empty() && places(part, part.range.start, &samples).is_some()
                }),
            };
            if is_ours {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// `None` for a file that is not what was written.
fn undamaged<T>(read: Result<T, StorageError>) -> Result<Option<T>, PrepareError> {
    match read {
        Ok(there) => Ok(Some(there)),
        Err(StorageError::Prepared { .. } | StorageError::ShardDamaged { .. }) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

/// Names and labels.
type Samples = Vec<(Vec<u8>, u32)>;

fn open(part: &PartTask, path: &Path, number: u32) -> Result<Shard, StorageError> {
    let file = File::open(path).map_err(|source| StorageError::Read {
        path: path.to_owned(),
        source,
    })?;
    let classes = part.images.classes();
    Shard::open(Box::new(file), path.to_owned(), part.id, number, classes, None)
}

fn in_shard(part: &PartTask, path: &Path, number: u32) -> Result<Samples, StorageError> {
    let shard = open(part, path, number)?;
    shard.check_header()?;
    // Damaged, or of files that have changed since: what is packed from now on could not be read with them.
    if shard.tables() != part.tables() {
        return Err(StorageError::Prepared {
            path: path.to_owned(),
            reason: "its packed JPEGs have other tables than this preparation".into(),
        });
    }
    let mut bytes = SampleBytes::new();
    let mut samples = Vec::with_capacity(shard.len());
    for sample in 0..shard.len() {
        shard.read(sample, &mut bytes)?;
        samples.push((shard.name(sample).to_vec(), shard.entry(sample).label));
    }
    Ok(samples)
}

fn in_tar(path: &Path) -> Result<Samples, StorageError> {
    let mut samples = Vec::new();
    let read = tar::read(path, |key, label, _| {
        samples.push((key.into_bytes(), label));
        Ok(())
    });
    match read {
        Ok(()) => Ok(samples),
        Err(reason) => Err(StorageError::Prepared {
            path: path.to_owned(),
            reason,
        }),
    }
}

/// Finds the samples among the images from `next` on, in their order. Returns the image after the last one and those
/// between that are not among them; `None` where a sample is not found.
fn places(part: &PartTask, mut next: usize, samples: &Samples) -> Option<(usize, Vec<usize>)> {
    let mut left_out = Vec::new();
    for (name, label) in samples {
        loop {
            if next == part.range.end {
                return None;
            }
            let image = next;
            next += 1;
            if part.written_name(image) == name {
                if part.images.class(image) != *label {
                    return None;
                }
                break;
            }
            left_out.push(image);
        }
    }
    Some((next, left_out))
}

/// The size and the CRC-32 of a file.
pub(crate) fn checksum(path: &Path) -> io::Result<(u64, u32)> {
    let mut file = File::open(path)?;
    let (mut crc, mut size) = (Crc32::new(), 0);
    let mut bytes = vec![0; 1 << 20];
    loop {
        match file.read(&mut bytes)? {
            0 => return Ok((size, crc.finalize())),
            read => {
                crc.update(&bytes[..read]);
                size += read as u64;
            }
        }
    }
}
