//! Training and validation images of one data set.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use stokehold_base::hash::Fnv;
use stokehold_base::random::mix;

use crate::besides::{alike_classes, differences, stray_classes};
use crate::bucket::Remote;
use crate::layouts::{described, other_val, splits, unread};
use crate::pairs::Pairs;
use crate::shard::{Manifest, ShardFolder};
use crate::{ImageFolder, Images, PixelClasses, Source, StorageError};

/// The images to train on and the images to validate with.
///
/// Both have the same classes with the same numbers.
#[derive(Debug, Clone)]
pub struct Dataset {
    /// Training images.
    pub train: Images,
    /// Validation images, if there are any.
    pub val: Option<Images>,
    /// How `val` was split off `train`, if it was.
    pub split: Option<ValSplit>,
}

/// How validation images were split off one tree.
///
/// Its `Display` is a sentence for users.
#[derive(Debug, Clone, PartialEq)]
pub struct ValSplit {
    /// The requested share of each class.
    pub fraction: f64,
    /// The seed of the choice.
    pub seed: u64,
    /// Classes with one image only: it is used for training, so validation does not see them.
    pub single_image_classes: Vec<String>,
}

impl Dataset {
    /// Opens a data set's folder, or the same in a bucket: `s3://bucket/prefix` and other URIs, if
    /// [`open_buckets_with`](crate::open_buckets_with) was called before.
    ///
    /// * A folder made by `stokehold prepare` equals its original: the same classes, samples, order and
    ///   splits.
    /// * With `dir/train/`, that contains the training classes, and `dir/val/`, if it exists, the validation
    ///   classes. Labels in `val/` are the training classes' numbers, found by name; `val/` may lack a class.
    /// * Without `dir/train/`, `dir` itself contains the training classes.
    /// * A folder of images and masks is found by its layout, or by the file `classes.toml` in it, as
    ///   [`PairFolder`](crate::PairFolder) says.
    /// * `val_split` splits that share (above 0, below 1) of each class off the training images: of a class's
    ///   n images round(n · share), at least 1 and at most n - 1. A class with one image keeps it in training
    ///   and is listed in [`Dataset::split`]. Images are chosen by a hash of the seed and their path below
    ///   the folder, so the choice does not depend on the location of the folder, and adding images later
    ///   moves few others.
    ///
    /// # Errors
    /// All errors of [`ImageFolder::open`]; `val/` without `train/`; a class in `val/` that `train/` does not
    /// have; `val_split` out of range, together with an existing `val/`, or with classes of one image each.
    pub fn open(dir: impl AsRef<Path>, val_split: Option<f64>, seed: u64) -> Result<Self, StorageError> {
        let dir = dir.as_ref();
        Self::open_quietly(dir, val_split, seed).map(|found| found.found(dir))
    }

    fn open_quietly(dir: &Path, val_split: Option<f64>, seed: u64) -> Result<Self, StorageError> {
        if let Some(remote) = Remote::of(dir)? {
            return Self::of_remote(&remote, val_split, seed);
        }
        if let Some(manifest) = Manifest::of(dir)? {
            let part = |name: &str| ShardFolder::open(dir, name, &manifest).map(Images::Shards);
            return Self::of_parts(dir, &manifest, part, val_split, seed);
        }
        if let Some(pairs) = Pairs::of(dir)? {
            return Self::of_pairs(dir, &pairs, val_split, seed);
        }
        let (train_dir, val_dir) = (dir.join("train"), dir.join("val"));
        if !train_dir.is_dir() {
            if val_dir.is_dir() {
                return Err(StorageError::ValWithoutTrain { path: dir.to_owned() });
            }
            if let Some(known) = splits(dir) {
                let path = dir.to_owned();
                return Err(StorageError::Splits { path, known });
            }
            check_split(val_split)?;
            return Self::of_train(Images::Folder(ImageFolder::open(dir)?), val_split, seed);
        }
        let train = || {
            let mut train = ImageFolder::open(&train_dir)?;
            train.besides.is_train = true;
            Ok(train)
        };
        if !val_dir.is_dir() {
            check_split(val_split)?;
            return Self::of_train(Images::Folder(train()?), val_split, seed);
        }
        if val_split.is_some() {
            return Err(StorageError::SplitAndVal { path: dir.to_owned() });
        }
        let train = train()?;
        let val = with_classes_of(&train, ImageFolder::open(val_dir)?)?;
        Ok(Self {
            train: Images::Folder(train),
            val: Some(Images::Folder(val)),
            split: None,
        })
    }

    /// The images of a split next to train and val, such as `test`: `dir/test/`, or what stands for it where images have masks. Classes of
    /// class folders are numbered by themselves.
    ///
    /// # Errors
    /// As [`Dataset::open`]; there is no such split; the data set is a prepared one, which has train and val.
    pub fn open_split(dir: impl AsRef<Path>, split: &str) -> Result<Images, StorageError> {
        let dir = dir.as_ref();
        let none = |path: &Path, reason: String| StorageError::NoSplit {
            path: path.to_owned(),
            split: split.to_owned(),
            reason,
        };
        let here = stokehold_base::uri::remote(dir).is_none();
        if here && Manifest::of(dir)?.is_some() {
            let reason =
                "a prepared data set has train and val; give the folder that it was prepared from".to_owned();
            return Err(none(dir, reason));
        }
        if here && let Some(pairs) = Pairs::of(dir)? {
            let place = pairs.of_split(dir, split);
            let place = place.filter(|place| place.images.is_dir() && place.masks.is_dir());
            let place = place.filter(|place| place.list.as_ref().is_none_or(|list| list.is_file()));
            let Some(place) = place else {
                let reason = format!(
                    "its training images lie in {}, and those of {split} are looked for likewise, with their masks",
                    pairs.train.images.display()
                );
                return Err(none(dir, reason));
            };
            return Ok(Images::Pairs(
                pairs.open(&place, &Arc::new(pairs.classes.clone()))?,
            ));
        }
        let folder = dir.join(split);
        if here && !folder.is_dir() {
            let reason = format!("there is no folder {}", folder.display());
            return Err(none(dir, reason));
        }
        Ok(Self::open_quietly(&folder, None, 0)?.found(&folder).train)
    }

    /// Keeps at most `max_images` training images, balanced over the classes as [`Images::limit`] does, and
    /// the same share of the validation images (rounded up).
    pub fn limit(&mut self, max_images: usize) {
        let before = self.train.len();
        if before <= max_images {
            return;
        }
        self.train.limit(max_images);
        if let Some(val) = &mut self.val {
            val.limit((val.len() as u128 * max_images as u128).div_ceil(before as u128) as usize);
        }
    }

    fn of_pairs(dir: &Path, pairs: &Pairs, val_split: Option<f64>, seed: u64) -> Result<Self, StorageError> {
        let classes = Arc::new(pairs.classes.clone());
        let Some(val) = &pairs.val else {
            check_split(val_split)?;
            return Self::of_train(
                Images::Pairs(pairs.open(&pairs.train, &classes)?),
                val_split,
                seed,
            );
        };
        if val_split.is_some() {
            return Err(StorageError::SplitAndVal { path: dir.to_owned() });
        }
        Ok(Self {
            train: Images::Pairs(pairs.open(&pairs.train, &classes)?),
            val: Some(Images::Pairs(pairs.open(val, &classes)?)),
            split: None,
        })
    }

    fn of_parts(
        dir: &Path,
        manifest: &Manifest,
        part: impl Fn(&str) -> Result<Images, StorageError>,
        val_split: Option<f64>,
        seed: u64,
    ) -> Result<Self, StorageError> {
        // The name that `Images::unlabelled` gives.
        if manifest.classes == [""] && manifest.pixels.is_none() {
            return Err(StorageError::Unlabelled { path: dir.to_owned() });
        }
        if !manifest.parts.contains_key("val") {
            check_split(val_split)?;
            return Self::of_train(part("train")?, val_split, seed);
        }
        if val_split.is_some() {
            return Err(StorageError::SplitAndVal { path: dir.to_owned() });
        }
        Ok(Self {
            train: part("train")?,
            val: Some(part("val")?),
            split: None,
        })
    }

    fn of_remote(remote: &Remote, val_split: Option<f64>, seed: u64) -> Result<Self, StorageError> {
        let dir = remote.uri();
        if let Some(manifest) = remote.manifest()? {
            let part = |name: &str| remote.shards(name, &manifest).map(Images::Shards);
            return Self::of_parts(dir, &manifest, part, val_split, seed);
        }
        let (train, val) = (remote.has("train"), remote.has("val"));
        let layouts = [
            ("train", "trainannot"),
            ("leftImg8bit", "gtFine"),
            ("JPEGImages", "SegmentationClass"),
        ];
        let has_both = |(images, masks): (&str, &str)| remote.has(images) && remote.has(masks);
        if remote.has_file(PixelClasses::FILE) || layouts.into_iter().any(has_both) {
            return Err(StorageError::Pairs {
                path: dir.to_owned(),
                reason: "these are images and masks, which are read from folders of this machine or from shards; `stokehold prepare` makes \
                         shards of a copy of them here"
                    .into(),
            });
        }
        if train && val {
            if val_split.is_some() {
                return Err(StorageError::SplitAndVal { path: dir.to_owned() });
            }
            let train = remote.folder("train")?;
            let names = with_classes_of(train.names(), remote.folder("val")?.into_names())?;
            let val = train.with_names(names);
            return Ok(Self {
                train: Images::Bucket(train),
                val: Some(Images::Bucket(val)),
                split: None,
            });
        }
        if val {
            return Err(StorageError::ValWithoutTrain { path: dir.to_owned() });
        }
        check_split(val_split)?;
        let folder = remote.folder(if train { "train" } else { "" })?;
        Self::of_train(Images::Bucket(folder), val_split, seed)
    }

    /// What its owner may not know, a sentence for each: files that are not read, counted by suffix; stray folders that are classes,
    /// and files that macOS leaves; classes whose names look alike; folders next to train/ that are not read.
    ///
    /// They come from what was listed when it was opened; of shards only the classes' names are known.
    pub fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        let mut counts = self.train.counts();
        let val = self.val.as_ref().map(|val| (val, val.counts()));
        if let (Some(_), Some((_, of_val))) = (&self.split, &val) {
            counts.iter_mut().zip(of_val).for_each(|(all, more)| *all += more);
        }
        let val = val.filter(|_| self.split.is_none());
        let parts = std::iter::once((&self.train, counts)).chain(val);
        for (images, counts) in parts {
            remarks.extend(stray_classes(images.root(), images.classes(), &counts));
            remarks.extend(
                images
                    .besides()
                    .iter()
                    .flat_map(|besides| besides.remarks(images.root())),
            );
        }
        remarks.extend(alike_classes(self.train.root(), self.train.classes()));
        if let Images::Folder(folder) = &self.train {
            remarks.extend(self.unread(folder));
            let ImageFolder { root, classes, .. } = folder;
            if let [class] = &classes[..] {
                let known = described(root);
                remarks.extend(
                    known.map(|known| format!("{}: {class} is the only class; {known}", root.display())),
                );
            }
        }
        remarks
    }

    /// A sentence for each folder next to `train/` that is not read.
    fn unread(&self, train: &ImageFolder) -> Vec<String> {
        let around = train.root.parent().filter(|_| train.besides.is_train);
        let Some(around) = around else {
            return Vec::new();
        };
        let other = match self.val {
            Some(_) if self.split.is_none() => None,
            _ => other_val(around),
        };
        let (known, remark) = other.unzip();
        // The images of a class lie in one place as a rule.
        let mut some = Vec::new();
        for part in [Some(&self.train), self.val.as_ref()].into_iter().flatten() {
            if let Images::Folder(part) = part {
                let classes = part.samples.chunk_by(|a, b| a.class == b.class);
                some.extend(classes.map(|class| class[0].path.as_path()));
            }
        }
        let unread = unread(around, known.as_deref(), some.into_iter());
        remark.into_iter().chain(unread).collect()
    }

    /// Says what was found.
    fn found(self, dir: &Path) -> Self {
        let (train, val) = (self.train.len(), self.val.as_ref().map_or(0, |val| val.len()));
        let classes = match self.train.pixel_classes() {
            Some(of_pixels) => of_pixels.names.len(),
            None => self.train.classes().len(),
        };
        tracing::info!(dir = %dir.display(), train, val, classes, "a data set");
        self
    }

    fn of_train(train: Images, val_split: Option<f64>, seed: u64) -> Result<Self, StorageError> {
        match val_split {
            Some(fraction) => split(train, fraction, seed),
            None => Ok(Self {
                train,
                val: None,
                split: None,
            }),
        }
    }
}

impl fmt::Display for ValSplit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} of each class split off for validation (seed {})",
            self.fraction, self.seed
        )?;
        match self.single_image_classes.as_slice() {
            [] => Ok(()),
            [one] => write!(f, "; class {one} has one image, which stays in training"),
            many => write!(
                f,
                "; classes {} have one image each, which stays in training",
                many.join(", ")
            ),
        }
    }
}

fn check_split(val_split: Option<f64>) -> Result<(), StorageError> {
    match val_split {
        Some(fraction) if !(fraction > 0.0 && fraction < 1.0) => Err(StorageError::SplitRange { fraction }),
        _ => Ok(()),
    }
}

fn split(all: Images, fraction: f64, seed: u64) -> Result<Dataset, StorageError> {
    let mut by_class = vec![Vec::new(); all.classes().len()];
    for sample in 0..all.len() {
        let draw = mix(Fnv::of(all.below(sample)) ^ mix(seed));
        by_class[all.class(sample) as usize].push((draw, sample));
    }
    let mut in_val = vec![false; all.len()];
    let mut single_image_classes = Vec::new();
    for (class, mut draws) in by_class.into_iter().enumerate() {
        if draws.len() < 2 {
            single_image_classes.push(all.classes()[class].clone());
            continue;
        }
        draws.sort_unstable();
        let share = ((draws.len() as f64 * fraction).round() as usize).clamp(1, draws.len() - 1);
        for &(_, sample) in &draws[..share] {
            in_val[sample] = true;
        }
    }
    if single_image_classes.len() == all.classes().len() {
        return Err(StorageError::NothingToSplit {
            path: all.root().to_owned(),
        });
    }
    let (mut train, mut val) = (all.clone(), all);
    train.retain(|sample| !in_val[sample]);
    val.retain(|sample| in_val[sample]);
    Ok(Dataset {
        train,
        val: Some(val),
        split: Some(ValSplit {
            fraction,
            seed,
            single_image_classes,
        }),
    })
}

/// `val` with the class numbers of `train`.
fn with_classes_of(train: &ImageFolder, mut val: ImageFolder) -> Result<ImageFolder, StorageError> {
    let numbers: Vec<Option<u32>> = val
        .classes
        .iter()
        .map(|name| {
            train
                .classes
                .iter()
                .position(|known| known == name)
                .map(|class| class as u32)
        })
        .collect();
    let unknown: Vec<String> = val
        .classes
        .iter()
        .zip(&numbers)
        .filter(|(_, number)| number.is_none())
        .map(|(name, _)| name.clone())
        .collect();
    if !unknown.is_empty() {
        return Err(StorageError::UnknownValClasses {
            path: val.root,
            train: train.root.clone(),
            alike: differences(&train.classes, &unknown),
            classes: unknown,
        });
    }
    for sample in &mut val.samples {
        sample.class = numbers[sample.class as usize].unwrap_or(sample.class);
    }
    val.classes.clone_from(&train.classes);
    Ok(val)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::{BucketPrefix, Fetch, Listed, Object};

    /// A bucket that can only be listed.
    struct Keys(&'static [&'static str]);

    impl BucketPrefix for Keys {
        fn uri(&self) -> String {
            "s3://bucket/data".into()
        }

        fn list(&self) -> Result<Listed, StorageError> {
            let object = |key: &&str| Object {
                key: (*key).to_owned(),
                size: 1,
                etag: None,
                modified: 0,
            };
            Ok(Listed::of(self.0.iter().map(object).collect()))
        }

        fn fetch(
            &self,
            key: &str,
            _: Option<Range<u64>>,
            _: &mut Vec<u8>,
        ) -> Result<Option<String>, StorageError> {
            panic!("{key} is not fetched")
        }

        fn begin(&self, key: &str, _: Option<Range<u64>>) -> Result<Fetch, StorageError> {
            panic!("{key} is not fetched")
        }
    }

    #[test]
    fn a_bucket_says_the_same_of_its_keys() {
        let open = |keys| Dataset::of_remote(&Remote::list(Box::new(Keys(keys)))?, None, 0);
        let keys = &[
            "train/.hidden/0.jpg",
            "train/a/.ipynb_checkpoints/0.jpg",
            "train/a/0.jpg",
            "train/a/1.bmp",
            "train/loose.jpg",
        ];
        let remarks = open(keys).unwrap().remarks();
        for (remark, part) in remarks.iter().zip([
            ".hidden, a hidden folder, is class 0 with 1 image",
            "1 file is not read: 1 .bmp (a/1.bmp)",
            "1 image lies beside the class folders",
            "a/.ipynb_checkpoints, a hidden folder that Jupyter makes, has 1 image",
        ]) {
            assert!(
                remark.starts_with("s3://bucket/data/train: ") && remark.contains(part),
                "{remark}"
            );
        }
        assert_eq!(remarks.len(), 4, "{remarks:?}");
        for (keys, part) in [
            (
                &["train-000.tar", "train-001.tar"][..],
                "no class folder in it; 2 tar files lie here",
            ),
            (
                &["0.jpg", "metadata.csv"],
                "images lie directly in this folder (1 of them) and it has no class folders; metadata.csv lies there",
            ),
            (&["a/0.jpg", "b/0.bmp"], "does not read 1 .bmp (b/0.bmp)"),
        ] {
            let error = open(keys).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
