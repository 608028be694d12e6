//! Errors between a data set's path and the bytes of an image.

use std::io;
use std::path::PathBuf;

use stokehold_base::fault::Fault;

use crate::besides::{is_stray, stray_in_words, without};
use crate::shard::Damage;
use crate::{Besides, extensions_in_words};

/// Why a data set or one of its files cannot be used.
///
/// Every variant names the path, and its message says what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// The data set's folder does not exist.
    #[error("{}: no such folder; check the path of the data set", path.display())]
    Missing {
        /// The path that was given.
        path: PathBuf,
    },
    /// The path exists and is not a folder.
    #[error(
        "{}: not a folder; {}",
        path.display(),
        known.as_deref().unwrap_or("a data set is a folder that holds one folder per class")
    )]
    NotAFolder {
        /// The path that was given.
        path: PathBuf,
        /// What it is, and the way from there, where that is known.
        known: Option<String>,
    },
    /// The folder has neither class folders nor images.
    #[error(
        "{}: no class folder in it; {}",
        path.display(),
        known.as_deref().unwrap_or("a data set holds one folder per class, or train/ and val/ that do")
    )]
    NoClasses {
        /// The folder that was searched.
        path: PathBuf,
        /// What lies there, and the way from there, where that is known.
        known: Option<String>,
    },
    /// There is no image in a folder whose images need no labels.
    #[error(
        "{}: there is no image in it; {}",
        path.display(),
        known.clone().unwrap_or_else(|| format!("images are called {}", extensions_in_words()))
    )]
    NoImages {
        /// The folder that was searched.
        path: PathBuf,
        /// What lies there, and the way from there, where that is known.
        known: Option<String>,
    },
    /// The class folders are called as splits are.
    #[error("{}: {known}", path.display())]
    Splits {
        /// The folder that was searched.
        path: PathBuf,
        /// How they are called, and what to do.
        known: String,
    },
    /// The folder contains images and no class folders.
    #[error(
        "{}: images lie directly in this folder ({images} of them) and it has no class folders; {}",
        path.display(),
        match known {
            Some(known) => known.clone(),
            None => format!(
                "move the images of each class into a folder of the class's name, e.g. {}",
                path.join("CLASS").join(example).display()
            ),
        }
    )]
    Flat {
        /// The folder that was searched.
        path: PathBuf,
        /// The number of images directly in it.
        images: usize,
        /// The name of one of them.
        example: String,
        /// What lies next to them, and the way from there, where that is known.
        known: Option<String>,
    },
    /// Shards of a folder that had images and no class folders.
    #[error(
        "{}: prepared from a folder without class folders, so its images have no classes; prepare one that has a folder for \
         each class",
        path.display()
    )]
    Unlabelled {
        /// The folder of the shards.
        path: PathBuf,
    },
    /// Class folders without any image.
    #[error(
        "{}: no image in the class folder{} {}; {what}",
        path.display(),
        if classes.len() == 1 { "" } else { "s" },
        classes.join(", "),
    )]
    EmptyClasses {
        /// The folder that holds the class folders.
        path: PathBuf,
        /// The names of the empty ones.
        classes: Vec<String>,
        /// What lies in them, and what to do.
        what: String,
    },
    /// There is `val/` but no `train/`.
    #[error(
        "{}: has val/ and no train/; put the training images into train/, or give the folder that holds both",
        path.display()
    )]
    ValWithoutTrain {
        /// The data set's folder.
        path: PathBuf,
    },
    /// There is no such split.
    #[error("{}: it has no split {split}: {reason}", path.display())]
    NoSplit {
        /// The data set's folder.
        path: PathBuf,
        /// The split that was asked for.
        split: String,
        /// What was looked for.
        reason: String,
    },
    /// A validation split was requested for a data set that has validation images.
    #[error(
        "{}: this data set has its own val/, so there is nothing to split off; leave the validation split out",
        path.display()
    )]
    SplitAndVal {
        /// The data set's folder.
        path: PathBuf,
    },
    /// The validation split is out of range.
    #[error("validation split {fraction}: must be above 0 and below 1, e.g. 0.2 for a fifth of each class")]
    SplitRange {
        /// The given number.
        fraction: f64,
    },
    /// No class has an image to spare for validation.
    #[error(
        "{}: every class has only one image, so none can be split off for validation; add images or leave \
         the validation split out",
        path.display()
    )]
    NothingToSplit {
        /// The data set's folder.
        path: PathBuf,
    },
    /// `val/` has classes that `train/` does not have.
    #[error(
        "{}: class {} is not among the training classes of {}; {}",
        path.display(),
        classes.join(", "),
        train.display(),
        match alike.is_empty() {
            true => "a network cannot learn a class it never sees".to_owned(),
            false => format!("{}; rename one of the folders", alike.join("; ")),
        }
    )]
    UnknownValClasses {
        /// The validation folder.
        path: PathBuf,
        /// The training folder.
        train: PathBuf,
        /// Class names that only validation has.
        classes: Vec<String>,
        /// How those differ from training classes that look alike.
        alike: Vec<String>,
    },
    /// A folder could not be listed.
    #[error("{}: cannot list this folder: {source}", path.display())]
    List {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file could not be read.
    #[error("{}: cannot read this file: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The path is a pipe, a device or a folder.
    #[error("{}: not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// The file exceeds the size limit.
    #[error("{}: {bytes} bytes are more than the {limit} an image file may have", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size in bytes.
        bytes: u64,
        /// The size limit, in bytes.
        limit: u64,
    },
    /// The file is none of an image.
    #[error("{}: not an image: the content is neither JPEG, PNG nor WebP", path.display())]
    NotAnImage {
        /// The file.
        path: PathBuf,
    },
    /// The sample's number is not below the number of samples.
    #[error("sample {sample}: this source has only {len}")]
    NoSuchSample {
        /// The requested number.
        sample: usize,
        /// The number of samples.
        len: usize,
    },
    /// The class table of a data set of images and masks is wrong.
    #[error("{}:{line}: {reason}", path.display())]
    ClassTable {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong, and what is allowed.
        reason: String,
    },
    /// A data set of images and masks cannot be used.
    #[error("{}: {reason}", path.display())]
    Pairs {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// An image has no mask.
    #[error(
        "{}: its mask {} is not there ({images} of {of} images have none); add it, leave the image out by a list file, or say \
         how masks are called by mask_suffix in classes.toml",
        path.display(),
        mask.display()
    )]
    MaskMissing {
        /// The image.
        path: PathBuf,
        /// The mask that was looked for.
        mask: PathBuf,
        /// How many images have none.
        images: usize,
        /// How many there are.
        of: usize,
    },
    /// A mask has no image.
    #[error(
        "{}: there is no image of this name in {} ({masks} such masks); add it, remove the mask, or choose pairs by a list file \
         in classes.toml",
        path.display(),
        images.display()
    )]
    ImageMissing {
        /// The mask.
        path: PathBuf,
        /// Where images are looked for.
        images: PathBuf,
        /// How many such masks there are.
        masks: usize,
    },
    /// Folders of images and of their masks, such as `images` and `masks`, without a class table.
    #[error(
        "{}: {pairs} images in {images}/ have a mask in {masks}/, and nothing says what their classes are; write {} with a [[class]] \
         and its name for each value of the masks{}, or, if {images} and {masks} are two classes of images, rename one of the folders",
        path.display(),
        dir.join(crate::PixelClasses::FILE).display(),
        match (&images[..], &masks[..]) {
            ("images", "masks") => String::new(),
            _ => {
                let below = path.strip_prefix(dir).unwrap_or(path);
                format!(
                    ", and a [train] with images = {:?} and masks = {:?}",
                    below.join(images).display().to_string(),
                    below.join(masks).display().to_string()
                )
            }
        }
    )]
    ImagesAndMasks {
        /// The folder that holds the two.
        path: PathBuf,
        /// The data set's folder.
        dir: PathBuf,
        /// The folder of images.
        images: String,
        /// The folder of masks.
        masks: String,
        /// How many images have a mask.
        pairs: usize,
    },
    /// A mask was asked for of a source that has none.
    #[error("{}: this image has a class and no mask", path.display())]
    NoMasks {
        /// The image.
        path: PathBuf,
    },
    /// A prepared data set, or one of its shards, is invalid.
    #[error("{}: {reason}", path.display())]
    Prepared {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// A sample of a shard is damaged.
    #[error("{}: {damage}; sample {sample} of this shard is lost", path.display())]
    ShardDamaged {
        /// The shard.
        path: PathBuf,
        /// The sample's name.
        sample: String,
        /// Where and how.
        damage: Damage,
    },
    /// An object of a bucket could not be fetched.
    #[error("{error}")]
    Object {
        /// The object or place.
        uri: String,
        /// What the implementation of buckets says, with the URI at its beginning.
        error: Box<dyn Fault + Send + Sync>,
    },
    /// The data set lies in a bucket, and no one has called [`open_buckets_with`](crate::open_buckets_with).
    #[error(
        "{uri}: this program was built without buckets; build one that calls `stokehold_objects::register`"
    )]
    NoBuckets {
        /// The data set's URI.
        uri: String,
    },
}

impl StorageError {
    /// The error of class folders without an image. `besides` is what was seen in them, `known` what the folder is otherwise.
    pub(crate) fn empty_classes(
        path: PathBuf,
        classes: Vec<String>,
        besides: &Besides,
        known: Option<String>,
    ) -> Self {
        let stray: Vec<&String> = classes.iter().filter(|name| is_stray(name)).collect();
        let mut what = match (known, besides.files_in_words()) {
            (Some(known), _) => known,
            (None, files) => {
                let files = files.map(|files| {
                    format!("; Stokehold does not read {files}; convert or rename the images among them")
                });
                format!(
                    "put images ({}) there or remove the folder{}",
                    extensions_in_words(),
                    files.unwrap_or_default()
                )
            }
        };
        if !stray.is_empty() {
            let one = |name: &&String| {
                format!(
                    "{name} is {}; if it is no class, {}",
                    stray_in_words(name),
                    without(&path, name)
                )
            };
            let stray_alone = stray.len() == classes.len();
            let stray: Vec<String> = stray.iter().map(one).collect();
            what = match stray_alone {
                true => stray.join("; "),
                false => format!("{}; of the others: {what}", stray.join("; ")),
            };
        }
        Self::EmptyClasses { path, classes, what }
    }

    /// Whether the system lacks what reading takes, open files or memory: then the file may be good.
    pub fn is_exhaustion(&self) -> bool {
        // EMFILE, ENFILE and ENOMEM, which have these numbers in every Linux.
        const LACKING: [i32; 3] = [24, 23, 12];
        match self {
            Self::Read { source, .. } => source.raw_os_error().is_some_and(|code| LACKING.contains(&code)),
            _ => false,
        }
    }

    /// The message without the path at its beginning, for callers that print the path themselves.
    pub fn reason(&self) -> String {
        let message = self.to_string();
        match self {
            Self::Read { path, .. }
            | Self::NotAFile { path }
            | Self::NotAnImage { path }
            | Self::TooLarge { path, .. }
            | Self::ShardDamaged { path, .. } => message
                .strip_prefix(&format!("{}: ", path.display()))
                .map(str::to_owned)
                .unwrap_or(message),
            Self::Object { uri, .. } => message
                .strip_prefix(&format!("{uri}: "))
                .map(str::to_owned)
                .unwrap_or(message),
            _ => message,
        }
    }
}

impl Fault for StorageError {
    fn is_input(&self) -> bool {
        match self {
            Self::Object { error, .. } => error.is_input(),
            _ => true,
        }
    }
}
