//! Pairs of an image and its mask, and the layouts that have them.
//!
//! A mask has its image's path below the folder of masks; only the suffix differs. A layout is known by its folders:
//!
//! ```text
//! CamVid        train/NAME.png  trainannot/NAME.png                         val/ and valannot/ likewise
//! Cityscapes    leftImg8bit/train/CITY/NAME_leftImg8bit.png  gtFine/train/CITY/NAME_gtFine_labelIds.png
//! VOC           JPEGImages/NAME.jpg  SegmentationClass/NAME.png             names in ImageSets/Segmentation/train.txt
//! images, masks images/NAME.jpg  masks/NAME.png   train/images/ and train/masks/   images/train/ and masks/train/
//! ```
//!
//! The classes of the first three are known. `classes.toml` in the data set's folder has those of the last, may replace
//! those of the others, and names other folders.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::class_table::ClassTable;
use crate::folder::{list, read_ahead, read_file, walk_all};
use crate::{
    EXTENSIONS, ImageFolder, PixelClasses, Sample, SampleBytes, Source, StorageError, extensions_in_words,
};

/// Images and their masks in folders.
///
/// A mask has its image's path below the folder of masks; only the suffix differs, `.png` for a mask where nothing else is said.
/// [`Dataset::open`](crate::Dataset::open) finds these layouts:
///
/// | layout | images | masks |
/// |---|---|---|
/// | CamVid | `train/NAME.png` | `trainannot/NAME.png` |
/// | Cityscapes | `leftImg8bit/train/CITY/NAME_leftImg8bit.png` | `gtFine/train/CITY/NAME_gtFine_labelIds.png`, or `_labelTrainIds` |
/// | VOC | `JPEGImages/NAME.jpg`, those in `ImageSets/Segmentation/train.txt` | `SegmentationClass/NAME.png` |
/// | `classes.toml` | `images/NAME.jpg`, `train/images/` or `images/train/` | `masks/NAME.png`, `train/masks/` or `masks/train/` |
///
/// and `val` likewise. Every image must have a mask, and every mask an image, unless a list chooses them. `classes.toml` in
/// the data set's folder has the classes; it may name other folders, suffixes and lists. Samples are sorted as
/// [`ImageFolder`] sorts them, or stand in the order of the list.
#[derive(Debug, Clone)]
pub struct PairFolder {
    /// The images: all in one class with an empty name.
    images: ImageFolder,
    /// The mask of each image.
    masks: Vec<PathBuf>,
    /// The folder that the masks lie in.
    masks_root: PathBuf,
    classes: Arc<PixelClasses>,
}

/// Where the images and masks of one part are.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SplitFolders {
    pub images: PathBuf,
    pub masks: PathBuf,
    /// A file with the name of an image in each line; without it all are taken.
    pub list: Option<PathBuf>,
}

/// A data set of pairs that was found.
#[derive(Debug)]
pub(crate) struct Pairs {
    pub classes: PixelClasses,
    pub train: SplitFolders,
    pub val: Option<SplitFolders>,
    /// What follows the stem in an image's name; none: the extension of any image.
    image_suffix: Option<String>,
    mask_suffix: String,
}

impl Pairs {
    /// Looks for a data set of pairs in a folder. None if it is something else.
    ///
    /// # Errors
    /// There is a class table that is wrong or has no folders to go with it; a part of a layout is missing; `images/` and
    /// `masks/` have pairs, and there is no class table.
    pub fn of(dir: &Path) -> Result<Option<Pairs>, StorageError> {
        if !dir.is_dir() {
            return Ok(None);
        }
        let table = ClassTable::of(dir)?;
        if let Some(ClassTable { train: Some(_), .. }) = &table {
            return Ok(table.and_then(Pairs::named));
        }
        let Some(mut found) = known(dir)? else {
            return match table {
                Some(table) => of_images_and_masks(dir, table).map(Some),
                None => refuse_without_table(dir).map(|()| None),
            };
        };
        if let Some(table) = table {
            found.classes = table.classes;
            found.image_suffix = table.image_suffix.or(found.image_suffix);
            found.mask_suffix = table.mask_suffix.unwrap_or(found.mask_suffix);
        }
        Ok(Some(found))
    }

    /// What a class table names.
    fn named(table: ClassTable) -> Option<Pairs> {
        Some(Pairs {
            classes: table.classes,
            train: table.train?,
            val: table.val,
            image_suffix: table.image_suffix,
            mask_suffix: table.mask_suffix.unwrap_or_else(|| ".png".into()),
        })
    }

    /// Where the images and masks of another split are, such as `test`: where the training ones are, with its name for `train`. None if
    /// the layout does not say.
    pub fn of_split(&self, dir: &Path, split: &str) -> Option<SplitFolders> {
        let renamed = |path: &Path| {
            let below = path.strip_prefix(dir).ok()?;
            let parts = below.iter().map(|part| match part.to_str() {
                Some(name) => name
                    .strip_prefix("train")
                    .map_or(name.into(), |rest| format!("{split}{rest}").into()),
                None => PathBuf::from(part),
            });
            Some(dir.join(parts.collect::<PathBuf>()))
        };
        let place = SplitFolders {
            images: renamed(&self.train.images)?,
            masks: renamed(&self.train.masks)?,
            list: self.train.list.as_deref().and_then(renamed),
        };
        (place != self.train).then_some(place)
    }

    /// Lists the pairs of one part.
    ///
    /// # Errors
    /// A folder or the list cannot be read; an image without its mask, or a mask without its image.
    pub fn open(
        &self,
        place: &SplitFolders,
        classes: &Arc<PixelClasses>,
    ) -> Result<PairFolder, StorageError> {
        let pairs = self.list(place)?;
        let (samples, masks) = pairs.into_iter().unzip();
        Ok(PairFolder {
            images: ImageFolder::of_one_class(place.images.clone(), samples),
            masks,
            masks_root: place.masks.clone(),
            classes: Arc::clone(classes),
        })
    }

    /// The images of all parts without their masks, in one class with an empty name.
    ///
    /// # Errors
    /// As [`Pairs::open`].
    pub fn images_of_all(&self, dir: &Path) -> Result<ImageFolder, StorageError> {
        let mut samples = Vec::new();
        for place in [Some(&self.train), self.val.as_ref()].into_iter().flatten() {
            samples.extend(self.list(place)?.into_iter().map(|(sample, _)| sample));
        }
        Ok(ImageFolder::of_one_class(dir.to_owned(), samples))
    }

    fn list(&self, place: &SplitFolders) -> Result<Vec<(Sample, PathBuf)>, StorageError> {
        let images = self.images(place)?;
        let mut masks: BTreeMap<Vec<u8>, (PathBuf, bool)> = BTreeMap::new();
        for path in walk_all(&place.masks)? {
            if let Some(stem) = stem(&place.masks, &path, Some(&self.mask_suffix)) {
                masks.insert(stem, (path, false));
            }
        }
        let chosen = match &place.list {
            None => images,
            Some(list) => listed(list, &images)?,
        };
        if chosen.is_empty() {
            return Err(StorageError::Pairs {
                path: place.list.clone().unwrap_or_else(|| place.images.clone()),
                reason: format!("there are no images; they are called {}", extensions_in_words()),
            });
        }
        let (mut pairs, mut alone) = (Vec::with_capacity(chosen.len()), Vec::new());
        for (stem, path) in chosen {
            match masks.get_mut(&stem) {
                Some((mask, taken)) => {
                    *taken = true;
                    pairs.push((Sample { path, class: 0 }, mask.clone()));
                }
                None => alone.push((stem, path)),
            }
        }
        if let Some((stem, path)) = alone.first() {
            let mut mask = place.masks.join(lossy(stem)).into_os_string();
            mask.push(&self.mask_suffix);
            return Err(StorageError::MaskMissing {
                path: path.clone(),
                mask: mask.into(),
                images: alone.len(),
                of: alone.len() + pairs.len(),
            });
        }
        // A list chooses some of the pairs.
        let left: Vec<&PathBuf> = masks
            .values()
            .filter(|(_, taken)| !taken)
            .map(|(path, _)| path)
            .collect();
        if let (None, Some(path)) = (&place.list, left.first()) {
            return Err(StorageError::ImageMissing {
                path: (*path).clone(),
                images: place.images.clone(),
                masks: left.len(),
            });
        }
        Ok(pairs)
    }

    /// The images below a folder and their stems, sorted as [`ImageFolder`] sorts them.
    fn images(&self, place: &SplitFolders) -> Result<Vec<(Vec<u8>, PathBuf)>, StorageError> {
        let mut images: Vec<(Vec<u8>, PathBuf)> = Vec::new();
        let mut known: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for path in walk_all(&place.images)? {
            let is_mask =
                place.images == place.masks && stem(&place.masks, &path, Some(&self.mask_suffix)).is_some();
            let stem = stem(&place.images, &path, self.image_suffix.as_deref());
            let Some(stem) = stem.filter(|_| !is_mask) else {
                continue;
            };
            if let Some(other) = known.insert(stem.clone(), images.len()) {
                let other = images[other].1.display();
                return Err(StorageError::Pairs {
                    reason: format!(
                        "{other} has the same name but for its extension, and there is one mask for both; rename one"
                    ),
                    path,
                });
            }
            images.push((stem, path));
        }
        Ok(images)
    }
}

fn lossy(stem: &[u8]) -> String {
    String::from_utf8_lossy(stem).into_owned()
}

/// A file's path below `root` without its suffix; none if it has another one.
fn stem(root: &Path, path: &Path, suffix: Option<&str>) -> Option<Vec<u8>> {
    let below = path
        .strip_prefix(root)
        .unwrap_or(path)
        .as_os_str()
        .as_encoded_bytes();
    let ends = |suffix: &str| {
        let at = below.len().checked_sub(suffix.len())?;
        below[at..]
            .eq_ignore_ascii_case(suffix.as_bytes())
            .then(|| below[..at].to_vec())
    };
    match suffix {
        Some(suffix) => ends(suffix),
        None => EXTENSIONS.iter().find_map(|extension| ends(extension)),
    }
}

/// The images that a list file names, in its order.
fn listed(list: &Path, images: &[(Vec<u8>, PathBuf)]) -> Result<Vec<(Vec<u8>, PathBuf)>, StorageError> {
    let mut bytes = Vec::new();
    read_file(list, &mut bytes)?;
    let by_stem: BTreeMap<&[u8], &PathBuf> = images.iter().map(|(stem, path)| (&stem[..], path)).collect();
    let mut chosen: Vec<(Vec<u8>, PathBuf)> = Vec::new();
    for (number, line) in (1..).zip(bytes.split(|&byte| byte == b'\n')) {
        let line = line.trim_ascii();
        if line.is_empty() {
            continue;
        }
        // With the extension or without it.
        let end = EXTENSIONS.iter().find_map(|extension| {
            let at = line.len().checked_sub(extension.len())?;
            line[at..]
                .eq_ignore_ascii_case(extension.as_bytes())
                .then_some(at)
        });
        let found = [Some(line.len()), end]
            .into_iter()
            .flatten()
            .find_map(|end| by_stem.get_key_value(&line[..end]));
        let Some((stem, path)) = found else {
            return Err(StorageError::Pairs {
                path: list.to_owned(),
                reason: format!("line {number}: there is no image '{}'", lossy(line)),
            });
        };
        chosen.push((stem.to_vec(), (*path).clone()));
    }
    Ok(chosen)
}

fn place(images: PathBuf, masks: PathBuf) -> SplitFolders {
    SplitFolders {
        images,
        masks,
        list: None,
    }
}

/// A layout whose classes are known.
fn known(dir: &Path) -> Result<Option<Pairs>, StorageError> {
    Ok(match camvid(dir)? {
        Some(found) => Some(found),
        None => match cityscapes(dir)? {
            Some(found) => Some(found),
            None => voc(dir)?,
        },
    })
}

/// `val/` and its masks must be there together, or neither.
fn both_or_none(images: PathBuf, masks: PathBuf) -> Result<Option<SplitFolders>, StorageError> {
    match (images.is_dir(), masks.is_dir()) {
        (true, true) => Ok(Some(place(images, masks))),
        (false, false) => Ok(None),
        (there, _) => {
            let (path, missing) = if there { (images, masks) } else { (masks, images) };
            Err(StorageError::Pairs {
                path,
                reason: format!("{} belongs to it and is not there", missing.display()),
            })
        }
    }
}

fn camvid(dir: &Path) -> Result<Option<Pairs>, StorageError> {
    let (train, masks) = (dir.join("train"), dir.join("trainannot"));
    // Class folders in train/ are a data set of classes, whatever lies next to it.
    if !train.is_dir() || !masks.is_dir() || list(&train)?.images.is_empty() {
        return Ok(None);
    }
    Ok(Some(Pairs {
        classes: PixelClasses::camvid(),
        train: place(train, masks),
        val: both_or_none(dir.join("val"), dir.join("valannot"))?,
        image_suffix: None,
        mask_suffix: ".png".into(),
    }))
}

fn cityscapes(dir: &Path) -> Result<Option<Pairs>, StorageError> {
    let folders = |part: &str| (dir.join("leftImg8bit").join(part), dir.join("gtFine").join(part));
    let (train, masks) = folders("train");
    if !train.is_dir() || !masks.is_dir() {
        return Ok(None);
    }
    const TRAIN_IDS: &str = "_gtFine_labelTrainIds.png";
    let train_ids = walk_all(&masks)?
        .iter()
        .any(|path| stem(&masks, path, Some(TRAIN_IDS)).is_some());
    let (images, val_masks) = folders("val");
    Ok(Some(Pairs {
        classes: PixelClasses::cityscapes(train_ids),
        train: place(train, masks),
        val: both_or_none(images, val_masks)?,
        image_suffix: Some("_leftImg8bit.png".into()),
        mask_suffix: if train_ids {
            TRAIN_IDS
        } else {
            "_gtFine_labelIds.png"
        }
        .into(),
    }))
}

fn voc(dir: &Path) -> Result<Option<Pairs>, StorageError> {
    let (images, masks) = (dir.join("JPEGImages"), dir.join("SegmentationClass"));
    if !images.is_dir() || !masks.is_dir() {
        return Ok(None);
    }
    let part = |name: &str| SplitFolders {
        images: images.clone(),
        masks: masks.clone(),
        list: Some(dir.join("ImageSets/Segmentation").join(name)),
    };
    let val = part("val.txt");
    Ok(Some(Pairs {
        classes: PixelClasses::voc(),
        train: part("train.txt"),
        val: val
            .list
            .as_ref()
            .is_some_and(|list| list.is_file())
            .then_some(val),
        image_suffix: None,
        mask_suffix: ".png".into(),
    }))
}

/// The pairs of folders called `images` and `masks`: of training, and of validation if there is any.
fn images_and_masks(dir: &Path) -> Result<Option<(SplitFolders, Option<SplitFolders>)>, StorageError> {
    let (images, masks) = (dir.join("images"), dir.join("masks"));
    let above = |part: &str| (images.join(part), masks.join(part));
    let below = |part: &str| (dir.join(part).join("images"), dir.join(part).join("masks"));
    let is_there = |(images, masks): &(PathBuf, PathBuf)| images.is_dir() && masks.is_dir();
    for folders in [&above as &dyn Fn(&str) -> (PathBuf, PathBuf), &below] {
        let train = folders("train");
        if is_there(&train) {
            let (val_images, val_masks) = folders("val");
            return Ok(Some((
                place(train.0, train.1),
                both_or_none(val_images, val_masks)?,
            )));
        }
    }
    let whole = (images, masks);
    Ok(is_there(&whole).then(|| (place(whole.0, whole.1), None)))
}

fn of_images_and_masks(dir: &Path, table: ClassTable) -> Result<Pairs, StorageError> {
    let Some((train, val)) = images_and_masks(dir)? else {
        return Err(StorageError::Pairs {
            path: dir.join(PixelClasses::FILE),
            reason: "there are no folders images/ and masks/ beside it; say where they are: [train] with images = \"..\" and \
                     masks = \"..\""
                .into(),
        });
    };
    Ok(Pairs {
        classes: table.classes,
        train,
        val,
        image_suffix: table.image_suffix,
        mask_suffix: table.mask_suffix.unwrap_or_else(|| ".png".into()),
    })
}

/// What follows a folder's name in the name of the folder with its masks.
const OF_MASKS: [&str; 7] = ["annot", "annotations", "mask", "masks", "label", "labels", "gt"];

/// Whether folders are images and their masks by their names.
fn are_images_and_masks(images: &str, masks: &str) -> bool {
    let (images, masks) = (images.to_lowercase(), masks.to_lowercase());
    let of_images = ["images", "imgs", "image", "img", "inputs", "jpegimages", "photos"];
    let rest = match masks.strip_prefix(&images) {
        Some(rest) => rest.trim_start_matches(['_', '-', ' ']),
        None if of_images.contains(&images.as_str()) => &masks[..],
        None => return false,
    };
    OF_MASKS.contains(&rest)
}

/// Folders of images and of their masks are not taken for two classes: without the names of the classes of pixels they
/// are neither.
fn refuse_without_table(dir: &Path) -> Result<(), StorageError> {
    let train = dir.join("train");
    let root = match train.is_dir() {
        true => train,
        false => dir.to_owned(),
    };
    let listing = list(&root)?;
    let names: Vec<_> = listing
        .folders
        .iter()
        .map(|name| name.to_string_lossy())
        .collect();
    // All folders, each image's with its masks': a class may be called so next to others.
    let found: Vec<(&str, &str)> = names
        .iter()
        .flat_map(|images| names.iter().map(move |masks| (&**images, &**masks)))
        .filter(|(images, masks)| are_images_and_masks(images, masks))
        .collect();
    if found.is_empty() || 2 * found.len() != names.len() {
        return Ok(());
    }
    for (images, masks) in found {
        let pairs = count_pairs(&root.join(images), &root.join(masks))?;
        if pairs > 0 {
            return Err(StorageError::ImagesAndMasks {
                path: root,
                dir: dir.to_owned(),
                images: images.to_owned(),
                masks: masks.to_owned(),
                pairs,
            });
        }
    }
    Ok(())
}

/// How many images have a mask by their names. Masks are PNG; in a folder that is called so they may be anything.
fn count_pairs(images: &Path, masks: &Path) -> Result<usize, StorageError> {
    let suffix = (!masks.ends_with("masks")).then_some(".png");
    let masks: BTreeSet<Vec<u8>> = walk_all(masks)?
        .iter()
        .filter_map(|path| stem(masks, path, suffix))
        .collect();
    // A mask may have a suffix of its own: NAME_mask.png.
    let is_mask_of = |image: &[u8]| {
        let from = masks.range(image.to_vec()..).next();
        from.is_some_and(|mask| mask.starts_with(image))
    };
    let images = walk_all(images)?
        .iter()
        .filter_map(|path| stem(images, path, None))
        .filter(|stem| is_mask_of(stem))
        .count();
    Ok(images)
}

impl PairFolder {
    /// The images without their masks.
    pub(crate) fn into_images(self) -> ImageFolder {
        self.images
    }

    /// The images, all in one class with an empty name.
    pub(crate) fn images(&self) -> &ImageFolder {
        &self.images
    }

    /// The masks as a list of files, in the order of the images: all in one class with an empty name.
    pub fn masks(&self) -> ImageFolder {
        let sample = |path: &PathBuf| Sample {
            path: path.clone(),
            class: 0,
        };
        ImageFolder::of_one_class(self.masks_root.clone(), self.masks.iter().map(sample).collect())
    }

    /// The path of a sample's mask. `sample` must be below [`Source::len`].
    pub fn mask(&self, sample: usize) -> &Path {
        &self.masks[sample]
    }

    /// Keeps the samples for which `keep` says so, in their order.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut() -> bool) {
        let stays: Vec<bool> = self.masks.iter().map(|_| keep()).collect();
        let mut stay = stays.iter();
        self.images.samples.retain(|_| stay.next() == Some(&true));
        let mut stay = stays.iter();
        self.masks.retain(|_| stay.next() == Some(&true));
    }
}

impl Source for PairFolder {
    fn len(&self) -> usize {
        self.images.len()
    }

    fn class(&self, sample: usize) -> u32 {
        self.images.class(sample)
    }

    fn name(&self, sample: usize) -> String {
        self.images.name(sample)
    }

    fn read(&self, sample: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        self.images.read(sample, into)
    }

    fn expect(&self, sample: usize) {
        self.images.expect(sample);
        if let Some(mask) = self.masks.get(sample) {
            read_ahead(mask);
        }
    }

    /// Of its image.
    fn version(&self, sample: usize, into: &mut Vec<u8>) -> bool {
        self.images.version(sample, into)
    }

    fn pixel_classes(&self) -> Option<&PixelClasses> {
        Some(&self.classes)
    }

    fn mask_name(&self, sample: usize) -> String {
        self.masks[sample].display().to_string()
    }

    fn read_mask(&self, sample: usize, into: &mut Vec<u8>) -> Result<(), StorageError> {
        let len = self.len();
        let mask = self
            .masks
            .get(sample)
            .ok_or(StorageError::NoSuchSample { sample, len })?;
        into.clear();
        read_file(mask, into)
    }
}
