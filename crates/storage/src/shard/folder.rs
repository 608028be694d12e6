//! One part of a prepared data set as a source.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::manifest::{Baked, Manifest, PartFacts};
use super::ranges::Ranges;
use super::reader::Shard;
use crate::{PixelClasses, SampleBytes, Source, StorageError};

/// The samples of one part, `train` or `val`, of a folder of shards.
///
/// Classes, samples and their order are those of the folder that was prepared. Every shard is one open file.
#[derive(Clone)]
pub struct ShardFolder {
    root: PathBuf,
    classes: Vec<String>,
    shards: Arc<[Shard]>,
    /// The samples that are used: the shard and the number in it.
    samples: Vec<(u32, u32)>,
    labelled: bool,
    /// What the images have behind them.
    baked: Option<Baked>,
    /// The masks of the samples, in their order.
    masks: Option<Masks>,
}

#[derive(Clone)]
struct Masks {
    files: Box<ShardFolder>,
    classes: Arc<PixelClasses>,
}

impl ShardFolder {
    /// Opens the shards of a part of the data set in `dir`.
    ///
    /// # Errors
    /// A shard cannot be opened or read, or is another one than the manifest lists. Damaged samples are errors when they
    /// are read.
    pub fn open(dir: &Path, part: &str, manifest: &Manifest) -> Result<Self, StorageError> {
        Self::open_with(dir, part, manifest, &|file| open_file(dir, file))
    }

    /// As [`ShardFolder::open`], with shards from wherever `open` finds them.
    pub(crate) fn open_with(
        dir: &Path,
        part: &str,
        manifest: &Manifest,
        open: Opener<'_>,
    ) -> Result<Self, StorageError> {
        let facts = manifest.parts.get(part).ok_or_else(|| StorageError::Prepared {
            path: dir.join(Manifest::FILE),
            reason: format!("it has no part {part}"),
        })?;
        let shards = open_all(dir, &manifest.classes, facts, open)?;
        let mut folder = Self::of(dir.join(part), manifest.classes.clone(), shards);
        folder.baked.clone_from(&facts.baked);
        let masks = format!("{part}{}", Manifest::MASKS);
        if let Some(classes) = &manifest.pixels
            && manifest.parts.contains_key(&masks)
        {
            let files = Self::open_with(dir, &masks, manifest, open)?;
            if files.len() != folder.len() {
                return Err(StorageError::Prepared {
                    path: dir.join(masks),
                    reason: format!("it has {} masks for {} images", files.len(), folder.len()),
                });
            }
            folder.masks = Some(Masks {
                files: Box::new(files),
                classes: Arc::new(classes.clone()),
            });
        }
        Ok(folder)
    }

    /// Opens the shards of all images of the data set in `dir`, with one class named after nothing: for measurements that
    /// need no labels.
    ///
    /// # Errors
    /// As [`ShardFolder::open`].
    pub fn unlabelled(dir: &Path, manifest: &Manifest) -> Result<Self, StorageError> {
        Self::unlabelled_with(dir, manifest, &|file| open_file(dir, file))
    }

    /// As [`ShardFolder::unlabelled`], with shards from wherever `open` finds them.
    pub(crate) fn unlabelled_with(
        dir: &Path,
        manifest: &Manifest,
        open: Opener<'_>,
    ) -> Result<Self, StorageError> {
        let mut shards = Vec::new();
        for (_, facts) in manifest.image_parts() {
            shards.extend(open_all(dir, &manifest.classes, facts, open)?);
        }
        let mut folder = Self::of(dir.to_owned(), vec![String::new()], shards);
        folder.labelled = false;
        let mut parts = manifest.image_parts().map(|(_, facts)| &facts.baked);
        folder.baked = parts.next().cloned().flatten();
        if !parts.all(|baked| *baked == folder.baked) {
            return Err(StorageError::Prepared {
                path: dir.join(Manifest::FILE),
                reason: "its parts have different operations behind them, so they cannot be read as one; prepare them \
                         with the same, or train, which reads them apart"
                    .into(),
            });
        }
        Ok(folder)
    }

    fn of(root: PathBuf, classes: Vec<String>, shards: Vec<Shard>) -> Self {
        let samples = shards
            .iter()
            .zip(0..)
            .flat_map(|(shard, number)| (0..shard.len() as u32).map(move |sample| (number, sample)));
        Self {
            root,
            classes,
            samples: samples.collect(),
            shards: shards.into(),
            labelled: true,
            baked: None,
            masks: None,
        }
    }

    /// The images without their masks.
    pub(crate) fn without_masks(mut self) -> Self {
        self.masks = None;
        self
    }

    /// The folder that its shards lie in.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The names of the classes; a class's number is its position.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The open shards.
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The sample's path below the folder that was prepared; empty where it is lost. `sample` must be below the number
    /// of samples.
    pub fn below(&self, sample: usize) -> &[u8] {
        let (shard, number) = self.place(sample);
        shard.name(number)
    }

    /// Keeps the samples for which `keep` says so when it is called for one after the other.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut() -> bool) {
        let stays: Vec<bool> = self.samples.iter().map(|_| keep()).collect();
        let mut stay = stays.iter().copied();
        self.samples.retain(|_| stay.next() == Some(true));
        if let Some(masks) = &mut self.masks {
            let mut stay = stays.iter().copied();
            masks.files.samples.retain(|_| stay.next() == Some(true));
        }
    }

    fn place(&self, sample: usize) -> (&Shard, usize) {
        let (shard, number) = self.samples[sample];
        (&self.shards[shard as usize], number as usize)
    }
}

impl Source for ShardFolder {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn class(&self, sample: usize) -> u32 {
        let (shard, number) = self.place(sample);
        if self.labelled {
            shard.entry(number).label
        } else {
            0
        }
    }

    fn name(&self, sample: usize) -> String {
        let (shard, number) = self.place(sample);
        let name = String::from_utf8_lossy(shard.name(number));
        match name.is_empty() {
            true => format!("{}:number {number}", shard.path().display()),
            false => format!("{}:{name}", shard.path().display()),
        }
    }

    fn read(&self, sample: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        let &(shard, number) = self.samples.get(sample).ok_or(StorageError::NoSuchSample {
            sample,
            len: self.samples.len(),
        })?;
        self.shards[shard as usize].read(number as usize, into)
    }

    fn expect(&self, sample: usize) {
        if let Some(&(shard, number)) = self.samples.get(sample) {
            self.shards[shard as usize].expect(number as usize);
        }
        if let Some(masks) = &self.masks {
            masks.files.expect(sample);
        }
    }

    fn reach(&self) -> usize {
        self.shards.first().map_or(0, Shard::reach)
    }

    fn baked(&self) -> Option<&Baked> {
        self.baked.as_ref()
    }

    fn pixel_classes(&self) -> Option<&PixelClasses> {
        self.masks.as_ref().map(|masks| &*masks.classes)
    }

    fn mask_name(&self, sample: usize) -> String {
        self.masks
            .as_ref()
            .map_or_else(String::new, |masks| masks.files.name(sample))
    }

    fn read_mask(&self, sample: usize, into: &mut Vec<u8>) -> Result<(), StorageError> {
        let Some(masks) = &self.masks else {
            return Err(StorageError::NoMasks {
                path: self.name(sample).into(),
            });
        };
        let mut bytes = SampleBytes {
            buffer: std::mem::take(into),
            ..SampleBytes::default()
        };
        let read = masks.files.read(sample, &mut bytes);
        *into = bytes.buffer;
        into.drain(..bytes.start.min(into.len()));
        read
    }
}

impl std::fmt::Debug for ShardFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "ShardFolder({}: {} samples)",
            self.root.display(),
            self.samples.len()
        )
    }
}

/// Opens a shard by its path below the data set's folder.
pub(crate) type Opener<'a> = &'a dyn Fn(&str) -> Result<Box<dyn Ranges>, StorageError>;

fn open_file(dir: &Path, file: &str) -> Result<Box<dyn Ranges>, StorageError> {
    let path = dir.join(file);
    match File::open(&path) {
        Ok(file) => Ok(Box::new(file)),
        Err(source) => Err(StorageError::Read { path, source }),
    }
}

fn open_all(
    dir: &Path,
    classes: &[String],
    facts: &PartFacts,
    open: Opener<'_>,
) -> Result<Vec<Shard>, StorageError> {
    let id = facts.id().map_err(|reason| StorageError::Prepared {
        path: dir.join(Manifest::FILE),
        reason,
    })?;
    let open = |(shard, number): (&_, u32)| {
        let super::ShardFacts { file, .. } = shard;
        Shard::open(open(file)?, dir.join(file), id, number, classes, Some(shard))
    };
    let mut shards: Vec<Shard> = Vec::with_capacity(facts.shards.len());
    for shard in facts.shards.iter().zip(0..).map(open) {
        let mut shard = shard?;
        if let Some(first) = shards.first() {
            shard.share_tables(first);
        }
        shards.push(shard);
    }
    if let Some(whole) = shards.iter().position(|shard| shard.tables().is_some()) {
        let (before, rest) = shards.split_at_mut(whole);
        if let Some((whole, behind)) = rest.split_first_mut() {
            before
                .iter_mut()
                .chain(behind)
                .for_each(|shard| shard.borrow_tables(whole));
        }
    }
    Ok(shards)
}
