//! The images of one part of a data set, wherever they lie.

use std::path::Path;

use stokehold_base::hash::Fnv;

use crate::bucket::{BucketFolder, Remote};
use crate::pairs::Pairs;
use crate::shard::{Baked, Manifest, ShardFolder};
use crate::{Besides, ImageFolder, PairFolder, PixelClasses, SampleBytes, Source, StorageError};

/// The images of one part of a data set: files in class folders, here or in a bucket, or the samples of prepared shards.
///
/// All number classes and samples alike, so that each can stand for the others.
#[derive(Debug, Clone)]
pub enum Images {
    /// Files in class folders.
    Folder(ImageFolder),
    /// Objects in class folders of a bucket.
    Bucket(BucketFolder),
    /// Samples of shards.
    Shards(ShardFolder),
    /// Files of images, each with a mask.
    Pairs(PairFolder),
}

impl Images {
    /// Adds the names of all images below their folder and their classes to a hash, in order.
    pub fn add_names(&self, hash: &mut Fnv) {
        for sample in 0..self.len() {
            hash.add(self.below(sample));
            // A byte that no name contains separates the names.
            hash.add(&[0]);
            hash.add(&self.class(sample).to_le_bytes());
        }
    }

    /// Every image below a folder, or of all parts of a prepared data set or of one of images and masks, in one class named after
    /// nothing: for measurements that need no labels.
    ///
    /// # Errors
    /// As [`ImageFolder::unlabelled`] and [`ShardFolder::unlabelled`].
    pub fn unlabelled(dir: impl AsRef<Path>) -> Result<Self, StorageError> {
        let dir = dir.as_ref();
        if let Some(remote) = Remote::of(dir)? {
            return remote.unlabelled();
        }
        match Manifest::of(dir)? {
            Some(manifest) => Ok(Self::Shards(ShardFolder::unlabelled(dir, &manifest)?)),
            None => Ok(Self::Folder(match Pairs::of(dir) {
                Ok(Some(pairs)) => pairs.images_of_all(dir)?,
                _ => ImageFolder::unlabelled(dir)?,
            })),
        }
    }

    /// The images alone, where they have masks.
    pub fn without_masks(self) -> Self {
        match self {
            Self::Pairs(pairs) => Self::Folder(pairs.into_images()),
            Self::Shards(shards) => Self::Shards(shards.without_masks()),
            Self::Folder(_) | Self::Bucket(_) => self,
        }
    }

    /// The folder that they lie in.
    pub fn root(&self) -> &Path {
        match self {
            Self::Folder(folder) => &folder.root,
            Self::Bucket(bucket) => &bucket.names().root,
            Self::Shards(shards) => shards.root(),
            Self::Pairs(pairs) => &pairs.images().root,
        }
    }

    /// The names of the classes; a class's number is its position. Of pairs there is one, with an empty name: their pixels
    /// have classes ([`Source::pixel_classes`]).
    pub fn classes(&self) -> &[String] {
        match self {
            Self::Folder(folder) => &folder.classes,
            Self::Bucket(bucket) => &bucket.names().classes,
            Self::Shards(shards) => shards.classes(),
            Self::Pairs(pairs) => &pairs.images().classes,
        }
    }

    /// The sample's path below the folder of the images (for shards: of the images that they were made of), as the file
    /// system has it. `sample` must be below the number of samples.
    pub fn below(&self, sample: usize) -> &[u8] {
        match self {
            Self::Folder(folder) => folder.below(sample),
            Self::Bucket(bucket) => bucket.names().below(sample),
            Self::Shards(shards) => shards.below(sample),
            Self::Pairs(pairs) => pairs.images().below(sample),
        }
    }

    /// The bytes of the sample's file, without reading it; `None` where that is not known: for shards, and for a file that
    /// is not there.
    pub fn size(&self, sample: usize) -> Option<u64> {
        match self {
            Self::Folder(folder) => size_of(folder, sample),
            Self::Pairs(pairs) => size_of(pairs.images(), sample),
            Self::Bucket(bucket) => bucket.size(sample),
            Self::Shards(_) => None,
        }
    }

    /// What was seen where the images lie besides them; none of shards, and of images and masks.
    pub(crate) fn besides(&self) -> Option<&Besides> {
        match self {
            Self::Folder(folder) => Some(&folder.besides),
            Self::Bucket(bucket) => Some(&bucket.names().besides),
            Self::Shards(_) | Self::Pairs(_) => None,
        }
    }

    /// The number of samples of each class.
    pub fn counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.classes().len()];
        for sample in 0..self.len() {
            counts[self.class(sample) as usize] += 1;
        }
        counts
    }

    /// Keeps at most `max_images` samples, as equally many of each class as there are, and keeps their order.
    ///
    /// A class with fewer than its share leaves the rest to the others. Within a class the samples that stay are
    /// evenly spaced over the list, so nothing is drawn and the same samples stay every time. All classes keep
    /// their numbers, also those that are left without a sample because `max_images` is below their number.
    pub fn limit(&mut self, max_images: usize) {
        if self.len() <= max_images {
            return;
        }
        let counts = self.counts();
        let shares = balanced_shares(&counts, max_images);
        let mut seen = vec![0; counts.len()];
        let stays: Vec<bool> = (0..self.len())
            .map(|sample| {
                let class = self.class(sample) as usize;
                let (position, count, share) = (seen[class], counts[class], shares[class]);
                seen[class] += 1;
                // Of `count` positions, the `share` at which position * share / count reaches a new whole number.
                share > 0 && (position * share) % count < share
            })
            .collect();
        self.retain(|sample| stays[sample]);
    }

    /// Keeps the samples for which `keep` says so, in their order.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(usize) -> bool) {
        let mut sample = 0;
        let mut keep = || {
            sample += 1;
            keep(sample - 1)
        };
        match self {
            Self::Folder(folder) => folder.samples.retain(|_| keep()),
            Self::Bucket(bucket) => bucket.names_mut().samples.retain(|_| keep()),
            Self::Shards(shards) => shards.retain(keep),
            Self::Pairs(pairs) => pairs.retain(keep),
        }
    }
}

impl Source for Images {
    fn len(&self) -> usize {
        match self {
            Self::Folder(folder) => folder.len(),
            Self::Bucket(bucket) => bucket.len(),
            Self::Shards(shards) => shards.len(),
            Self::Pairs(pairs) => pairs.len(),
        }
    }

    fn class(&self, sample: usize) -> u32 {
        match self {
            Self::Folder(folder) => folder.class(sample),
            Self::Bucket(bucket) => bucket.class(sample),
            Self::Shards(shards) => shards.class(sample),
            Self::Pairs(pairs) => pairs.class(sample),
        }
    }

    fn name(&self, sample: usize) -> String {
        match self {
            Self::Folder(folder) => folder.name(sample),
            Self::Bucket(bucket) => bucket.name(sample),
            Self::Shards(shards) => shards.name(sample),
            Self::Pairs(pairs) => pairs.name(sample),
        }
    }

    fn read(&self, sample: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        match self {
            Self::Folder(folder) => folder.read(sample, into),
            Self::Bucket(bucket) => bucket.read(sample, into),
            Self::Shards(shards) => shards.read(sample, into),
            Self::Pairs(pairs) => pairs.read(sample, into),
        }
    }

    fn expect(&self, sample: usize) {
        match self {
            Self::Folder(folder) => folder.expect(sample),
            Self::Bucket(bucket) => bucket.expect(sample),
            Self::Shards(shards) => shards.expect(sample),
            Self::Pairs(pairs) => pairs.expect(sample),
        }
    }

    fn reach(&self) -> usize {
        match self {
            Self::Folder(folder) => folder.reach(),
            Self::Bucket(bucket) => bucket.reach(),
            Self::Shards(shards) => shards.reach(),
            Self::Pairs(pairs) => pairs.reach(),
        }
    }

    fn version(&self, sample: usize, into: &mut Vec<u8>) -> bool {
        match self {
            Self::Folder(folder) => folder.version(sample, into),
            Self::Bucket(bucket) => bucket.version(sample, into),
            Self::Shards(shards) => shards.version(sample, into),
            Self::Pairs(pairs) => pairs.version(sample, into),
        }
    }

    fn baked(&self) -> Option<&Baked> {
        match self {
            Self::Folder(_) | Self::Bucket(_) | Self::Pairs(_) => None,
            Self::Shards(shards) => shards.baked(),
        }
    }

    fn pixel_classes(&self) -> Option<&PixelClasses> {
        match self {
            Self::Folder(_) | Self::Bucket(_) => None,
            Self::Shards(shards) => shards.pixel_classes(),
            Self::Pairs(pairs) => pairs.pixel_classes(),
        }
    }

    fn mask_name(&self, sample: usize) -> String {
        match self {
            Self::Folder(_) | Self::Bucket(_) => String::new(),
            Self::Shards(shards) => shards.mask_name(sample),
            Self::Pairs(pairs) => pairs.mask_name(sample),
        }
    }

    fn read_mask(&self, sample: usize, into: &mut Vec<u8>) -> Result<(), StorageError> {
        match self {
            Self::Folder(_) | Self::Bucket(_) => Err(StorageError::NoMasks {
                path: self.name(sample).into(),
            }),
            Self::Shards(shards) => shards.read_mask(sample, into),
            Self::Pairs(pairs) => pairs.read_mask(sample, into),
        }
    }
}

/// The bytes of a sample's file, where it is there.
fn size_of(folder: &ImageFolder, sample: usize) -> Option<u64> {
    Some(std::fs::metadata(&folder.samples.get(sample)?.path).ok()?.len())
}

/// How many of `total` each class gets: the same for all, except that none gets more than it has.
fn balanced_shares(counts: &[usize], total: usize) -> Vec<usize> {
    let mut shares = vec![0; counts.len()];
    let mut left = total.min(counts.iter().sum());
    while left > 0 {
        let open: Vec<usize> = (0..counts.len())
            .filter(|&class| shares[class] < counts[class])
            .collect();
        let each = (left / open.len()).max(1);
        for class in open {
            let more = each.min(counts[class] - shares[class]).min(left);
            shares[class] += more;
            left -= more;
        }
    }
    shares
}
