//! `shards.json`: the contents of a folder of shards.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::layout::{ENTRY, MOST_INDEX_BYTES, VERSION};
use crate::{PixelClasses, StorageError};

/// The manifest of a prepared data set. It is written last, when all other files exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// `stokehold shards`, or another format.
    pub format: String,
    /// The version of the format.
    pub version: u32,
    /// How the samples were made, in words.
    pub prepared: String,
    /// Whether every sample has the pixels of its original, bit for bit.
    pub lossless: bool,
    /// The names of the classes; a class's number is its position. One with an empty name for images without classes.
    pub classes: Vec<String>,
    /// What the classes of pixels are, where the images have masks. Every part has another one then, with
    /// [`Manifest::MASKS`] after its name, whose samples are the masks of its samples, in their order.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pixels: Option<PixelClasses>,
    /// The parts of the data set: `train`, and `val` where there is one, and those of masks.
    pub parts: BTreeMap<String, PartFacts>,
}

/// The contents of one part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PartFacts {
    /// An identifier in the headers of all shards of the part, and of no others: 16 hexadecimal digits.
    pub id: String,
    /// The number of samples.
    pub samples: u64,
    /// The bytes of the original files.
    pub source_bytes: u64,
    /// Names of broken originals that were skipped.
    pub left_out: Vec<String>,
    /// What was performed on the images, where it is the head of a pipeline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baked: Option<Baked>,
    /// The shards, in the order of the samples.
    pub shards: Vec<ShardFacts>,
}

/// What images have behind them: the head of a pipeline, so that a loader leaves it out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Baked {
    /// The operations, as in a pipeline's JSON.
    pub ops: serde_json::Value,
    /// Whether the images were turned upright before, by their EXIF orientation.
    pub exif: bool,
}

/// The contents of one shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShardFacts {
    /// The file below the data set's folder, such as `train/000000.skshard`.
    pub file: String,
    /// Its size.
    pub bytes: u64,
    /// The CRC-32 of the whole file: 8 hexadecimal digits.
    pub crc32: String,
    /// The labels of its samples, run-length encoded: `[label, number of consecutive samples]`.
    labels: Vec<[u32; 2]>,
}

impl Manifest {
    /// The name of its file.
    pub const FILE: &str = "shards.json";
    /// What [`Manifest::format`] says.
    pub const FORMAT: &str = "stokehold shards";
    /// What [`Manifest::format`] says of tar files in WebDataset's convention.
    pub const TAR: &str = "webdataset tar";
    /// What follows the name of a part in that of its masks.
    pub const MASKS: &str = "-masks";
    /// What [`Manifest::version`] says.
    pub const VERSION: u32 = VERSION;

    /// The name of a file that exists until the manifest does.
    pub const UNFINISHED: &str = "shards.unfinished";

    /// Reads the manifest of the data set in `dir`; `None` if it is not a prepared one.
    ///
    /// # Errors
    /// The manifest cannot be read, or this program does not understand it; the preparation is not finished.
    pub fn of(dir: &Path) -> Result<Option<Self>, StorageError> {
        let path = dir.join(Self::FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                if !dir.join(Self::UNFINISHED).exists() {
                    return Ok(None);
                }
                let reason =
                    "its preparation was not finished; run the same `stokehold prepare` to continue it";
                return Err(StorageError::Prepared {
                    path: dir.to_owned(),
                    reason: reason.into(),
                });
            }
            Err(source) => return Err(StorageError::Read { path, source }),
        };
        match Self::parse(&bytes) {
            Ok(manifest) => Ok(Some(manifest)),
            Err(reason) => Err(StorageError::Prepared { path, reason }),
        }
    }

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        let manifest = Self::parse_any(bytes)?;
        if manifest.format == Self::TAR {
            return Err(
                "these are tar files for other loaders; prepare shards to train from them here".into(),
            );
        }
        if manifest.format != Self::FORMAT || manifest.version != Self::VERSION {
            return Err(format!(
                "this is version {} of {:?}; this program reads version {} of {:?}; update it, or prepare the data set again \
                 with it",
                manifest.version,
                manifest.format,
                Self::VERSION,
                Self::FORMAT
            ));
        }
        Ok(manifest)
    }

    /// Reads a manifest of any format, such as that of tar files.
    ///
    /// # Errors
    /// What is wrong with the bytes, and what to do.
    pub fn parse_any(bytes: &[u8]) -> Result<Self, String> {
        let broken = |what: String| {
            format!(
                "{what}; the same `stokehold prepare` once more writes the file anew and keeps the shards"
            )
        };
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| broken(error.to_string()))?;
        for (name, part) in &manifest.parts {
            part.check_names(name)?;
            part.check(manifest.classes.len()).map_err(broken)?;
        }
        manifest.check_masks().map_err(broken)?;
        Ok(manifest)
    }

    /// The parts that have images, by name.
    pub fn image_parts(&self) -> impl Iterator<Item = (&String, &PartFacts)> {
        let has_masks = self.pixels.is_some();
        self.parts
            .iter()
            .filter(move |(name, _)| !has_masks || !name.ends_with(Self::MASKS))
    }

    fn check_masks(&self) -> Result<(), String> {
        if self.pixels.is_none() {
            return Ok(());
        }
        for (name, part) in self.image_parts() {
            let masks = format!("{name}{}", Self::MASKS);
            let count = self.parts.get(&masks).map_or(0, |masks| masks.samples);
            if count != part.samples {
                return Err(format!(
                    "the part {masks} has {count} masks, and {name} has {} images",
                    part.samples
                ));
            }
        }
        Ok(())
    }
}

impl PartFacts {
    /// The number that `id` writes.
    ///
    /// # Errors
    /// It is not such a number.
    pub(super) fn id(&self) -> Result<u64, String> {
        match u64::from_str_radix(&self.id, 16) {
            Ok(id) if self.id.len() == 16 => Ok(id),
            _ => Err(format!("the id {:?} is not 16 hexadecimal digits", self.id)),
        }
    }

    /// Rejects names that could lead outside of the data set's folder, because readers join them to a path or
    /// a key.
    fn check_names(&self, part: &str) -> Result<(), String> {
        let not_trusted = |what: String| Err(format!("{what}; this manifest is not to be trusted"));
        if !is_plain(part) {
            return not_trusted(format!("the part {part:?} is no plain name of a folder"));
        }
        for ShardFacts { file, .. } in &self.shards {
            if file
                .split_once('/')
                .is_none_or(|(folder, name)| folder != part || !is_plain(name))
            {
                return not_trusted(format!(
                    "the shard {file:?} is no file in the folder of its part, {part}"
                ));
            }
        }
        Ok(())
    }

    fn check(&self, classes: usize) -> Result<(), String> {
        self.id()?;
        let mut samples = 0u64;
        for shard in &self.shards {
            let count: u64 = shard.labels.iter().map(|&[_, count]| u64::from(count)).sum();
            // Before allocating memory for them.
            if count > MOST_INDEX_BYTES / ENTRY as u64 {
                return Err(format!("{}: no shard has {count} samples", shard.file));
            }
            if shard.labels.iter().any(|&[label, _]| label as usize >= classes) {
                return Err(format!("{}: a label is not that of a class", shard.file));
            }
            samples += count;
        }
        match samples == self.samples {
            true => Ok(()),
            false => Err(format!(
                "its shards have {samples} samples and not {}",
                self.samples
            )),
        }
    }
}

/// Whether a name is a plain file or folder name on every system: letters, digits, `-`, `_` and `.`, not
/// beginning with a dot.
fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && !name.starts_with('.') && name.bytes().all(plain)
}

impl ShardFacts {
    /// A shard of `bytes` bytes with the CRC-32 `crc32`, whose samples have these labels.
    pub fn new(file: String, bytes: u64, crc32: u32, labels: impl Iterator<Item = u32>) -> Self {
        let mut runs: Vec<[u32; 2]> = Vec::new();
        for label in labels {
            match runs.last_mut() {
                Some([last, count]) if *last == label => *count += 1,
                _ => runs.push([label, 1]),
            }
        }
        Self {
            file,
            bytes,
            crc32: format!("{crc32:08x}"),
            labels: runs,
        }
    }

    /// The number of samples.
    pub fn samples(&self) -> u32 {
        self.labels.iter().map(|[_, count]| count).sum()
    }

    /// The label of each sample.
    pub fn labels(&self) -> impl Iterator<Item = u32> {
        self.labels
            .iter()
            .flat_map(|&[label, count]| std::iter::repeat_n(label, count as usize))
    }
}
