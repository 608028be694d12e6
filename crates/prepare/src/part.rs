//! The parts of a data set.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use stokehold_base::hash::Fnv;
use stokehold_base::share::Share;
use stokehold_loader::mask_table;
use stokehold_pipeline::MaskTable;
use stokehold_storage::{Dataset, Images, PairFolder, Source, StorageError};

use crate::options::{Bake, Container, Content, Options};
use crate::packing::Packing;
use crate::{PrepareError, tar};

/// One part of a data set to be prepared.
pub(crate) struct PartTask {
    pub name: &'static str,
    pub images: Images,
    /// The images of this preparation: all, or the share of a worker.
    pub range: Range<usize>,
    /// The bytes of each file, 0 if they are not known.
    pub sizes: Vec<u64>,
    /// The names of the samples in a tar; empty for shards.
    pub keys: Vec<String>,
    pub id: u64,
    /// What is done with the files.
    pub making: Making,
    /// Whether JPEGs are packed.
    pub packs: bool,
    /// What they are packed with, once that is known.
    pub packing: Option<Arc<Packing>>,
    /// How the masks of the images are read, where they have masks.
    pub masks: Option<MaskTable>,
    /// Whether these are the masks of the part before, of which one is left out with its image.
    pub is_masks: bool,
}

/// What is done with the files of a part.
pub(crate) enum Making {
    Content(Content),
    Bake(Bake),
}

impl Making {
    fn of(name: &str, options: &Options) -> Self {
        match options.bake.get(name) {
            Some(bake) => Self::Bake(bake.clone()),
            None => Self::Content(options.content),
        }
    }
}

impl PartTask {
    fn new(name: &'static str, images: Images, options: &Options, making: Making) -> Self {
        // A missing file is reported when it is read.
        let sizes: Vec<u64> = (0..images.len())
            .map(|sample| images.size(sample).unwrap_or(0))
            .collect();
        let mut id = Words::default();
        let packs = options.packs() && !matches!(making, Making::Content(Content::Raw));
        let content = match &making {
            // With every parameter.
            Making::Bake(bake) if packs => format!("{bake:?}, packed"),
            Making::Bake(bake) => format!("{bake:?}"),
            Making::Content(content) => content.words(options.packs()),
        };
        for word in [name, &content, options.extension()] {
            id.add(word.as_bytes());
        }
        id.add(&options.shard_size.to_le_bytes());
        for class in images.classes() {
            id.add(class.as_bytes());
        }
        for (sample, size) in sizes.iter().enumerate() {
            id.add(images.below(sample));
            id.add(&images.class(sample).to_le_bytes());
            id.add(&size.to_le_bytes());
        }
        let keys = match options.container {
            Container::Shards => Vec::new(),
            Container::Tar => tar::keys((0..images.len()).map(|sample| images.below(sample))),
        };
        Self {
            name,
            masks: images.pixel_classes().map(mask_table),
            is_masks: false,
            range: 0..images.len(),
            images,
            sizes,
            keys,
            id: id.0.finish(),
            making,
            packs,
            packing: None,
        }
    }

    /// The masks of images, which are copied.
    fn of_masks(name: &'static str, pairs: &PairFolder, options: &Options) -> Self {
        let masks = Images::Folder(pairs.masks());
        Self {
            is_masks: true,
            ..Self::new(name, masks, options, Making::Content(Content::Raw))
        }
    }

    /// Leaves the other images to other workers.
    pub fn take(&mut self, share: Share) {
        self.range = share.range(self.images.len());
        // In shards, whatever becomes of them.
        self.keys.clear();
    }

    /// The tables that the part's shards hold, where they hold any.
    pub fn tables(&self) -> Option<&[u8]> {
        self.packing.as_ref()?.stored()
    }

    /// The sample's name in the output.
    pub fn written_name(&self, sample: usize) -> &[u8] {
        match self.keys.get(sample) {
            Some(key) => key.as_bytes(),
            None => self.images.below(sample),
        }
    }
}

/// The names of the parts and of those of their masks.
const NAMES: [(&str, &str); 2] = [("train", "train-masks"), ("val", "val-masks")];

/// The images of each part of the data set in `data`; those of a folder without class folders are one part, without labels.
fn images(data: &Path) -> Result<Vec<Images>, StorageError> {
    match Dataset::open(data, None, 0) {
        Ok(Dataset { train, val, .. }) => Ok([train].into_iter().chain(val).collect()),
        Err(StorageError::Flat { .. }) => Ok(vec![Images::unlabelled(data)?]),
        Err(error) => Err(error),
    }
}

/// The files of each part of the data set in `data`, those of masks included.
pub(crate) fn originals(data: &Path) -> Result<Vec<(&'static str, Images)>, StorageError> {
    let mut parts = Vec::new();
    for ((name, of_masks), images) in NAMES.into_iter().zip(images(data)?) {
        if let Images::Pairs(pairs) = &images {
            parts.push((of_masks, Images::Folder(pairs.masks())));
        }
        parts.push((name, images));
    }
    Ok(parts)
}

/// The parts of the data set in `data`: masks after their images.
pub(crate) fn parts(data: &Path, options: &Options) -> Result<Vec<PartTask>, PrepareError> {
    let mut parts = Vec::new();
    for ((name, of_masks), images) in NAMES.into_iter().zip(images(data)?) {
        let masks = match &images {
            Images::Folder(_) | Images::Bucket(_) => None,
            Images::Shards(_) => {
                return Err(PrepareError::PreparedAlready {
                    path: data.to_owned(),
                });
            }
            Images::Pairs(pairs) => {
                check_pairs(data, options)?;
                Some(PartTask::of_masks(of_masks, pairs, options))
            }
        };
        parts.push(PartTask::new(name, images, options, Making::of(name, options)));
        parts.extend(masks);
    }
    Ok(parts)
}

/// What cannot be done to masks.
fn check_pairs(data: &Path, options: &Options) -> Result<(), PrepareError> {
    let what = if !options.bake.is_empty() {
        "--pipeline does not change"
    } else if matches!(options.content, Content::Resized { .. }) {
        "--max-side and --resize do not shrink"
    } else if options.container == Container::Tar {
        "--tar has no place for"
    } else {
        return Ok(());
    };
    Err(PrepareError::Pairs {
        path: data.to_owned(),
        what,
    })
}

/// A hash of words. A word's length goes first, so that words do not run into each other.
#[derive(Default)]
struct Words(Fnv);

impl Words {
    fn add(&mut self, word: &[u8]) {
        self.0.add(&(word.len() as u64).to_le_bytes());
        self.0.add(word);
    }
}
