//! A folder of class folders, numbered as in torchvision.
//!
//! torchvision sorts three times: class names, then all folders below a class by their whole path, then the
//! file names in a folder. All three compare Python strings, that is code points; a name that is not UTF-8 is
//! compared by the surrogates U+DC80..=U+DCFF that Python reads for its invalid bytes. Whole paths are
//! compared as strings and not by components, so `a-b/` comes before `a/b/` ('-' is below '/').

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::besides::Kinds;
use crate::layouts::{described, described_table};
use crate::{Besides, SampleBytes, Source, StorageError};

/// The extensions of image files, compared without regard to case.
pub const EXTENSIONS: [&str; 4] = [".jpg", ".jpeg", ".png", ".webp"];

/// What the names of images end with, for messages: `.jpg, .jpeg, .png or .webp`.
pub fn extensions_in_words() -> String {
    let [first @ .., last] = EXTENSIONS;
    format!("{} or {last}", first.join(", "))
}

/// The size limit of an image file: a larger one is an error, so that it does not exhaust the memory.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// One image file and its class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// The file, beginning with the folder's `root` as it was given.
    pub path: PathBuf,
    /// Index into [`ImageFolder::classes`].
    pub class: u32,
}

/// Class folders full of images: `root/<class>/**/*.{jpg,jpeg,png,webp}`.
///
/// Classes, samples and their order are those of `torchvision.datasets.ImageFolder` (whose other extensions,
/// such as `.bmp`, are not read here). Links to folders are followed. There are four differences: a folder that cannot be listed is an
/// error, a link to a folder that contains it is not followed, and two kinds of folders are left out where no image lies below them:
/// those with a file `CACHEDIR.TAG`, which are caches, and `lost+found`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFolder {
    /// The folder that holds the class folders.
    pub root: PathBuf,
    /// The names of the class folders, sorted; a class's number is its position.
    pub classes: Vec<String>,
    /// The images, class after class.
    pub samples: Vec<Sample>,
    /// What else was seen there.
    pub besides: Besides,
}

impl ImageFolder {
    /// Lists the folder. Opens no file.
    ///
    /// # Errors
    /// The folder is missing, is not a folder or cannot be listed; it has no class folders; a class folder
    /// has no image.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, StorageError> {
        let root = root.into();
        let listing = list(&root)?;
        if listing.folders.is_empty() {
            return Err(no_classes(root, &listing));
        }
        let mut classes = Vec::with_capacity(listing.folders.len());
        let mut samples = Vec::new();
        let (mut empty, mut besides, mut in_empty) = (Vec::new(), Besides::default(), Besides::default());
        besides.add_loose(&listing.images);
        for (class, name) in listing.folders.iter().enumerate() {
            let before = samples.len();
            let mut folders = Vec::new();
            walk(root.join(name), &mut Vec::new(), &mut folders)?;
            folders.sort_by_cached_key(|(folder, _)| code_points(folder.as_os_str()));
            let mut of_class = Besides::default();
            for (folder, listing) in folders {
                let below = folder.strip_prefix(&root).unwrap_or(&folder);
                if listing.is_loop {
                    of_class.add_loop(below);
                }
                of_class.add_folder(below, &listing.images, &listing.others);
                samples.extend(listing.images.iter().map(|file| Sample {
                    path: folder.join(file),
                    class: class as u32,
                }));
            }
            let name = name.to_string_lossy().into_owned();
            if samples.len() == before {
                empty.push(name.clone());
                in_empty.add(of_class.clone());
            }
            besides.add(of_class);
            classes.push(name);
        }
        if !empty.is_empty() {
            let known = described(&root);
            return Err(StorageError::empty_classes(root, empty, &in_empty, known));
        }
        Ok(Self {
            root,
            classes,
            samples,
            besides,
        })
    }

    /// Every image below a folder, in one class with an empty name: for measurements that need no labels.
    ///
    /// # Errors
    /// The folder is missing, is not a folder or cannot be listed; there is no image below it.
    pub fn unlabelled(root: impl Into<PathBuf>) -> Result<Self, StorageError> {
        let root = root.into();
        let files = walk_all(&root)?.into_iter();
        let samples: Vec<Sample> = files.map(|path| Sample { path, class: 0 }).collect();
        if samples.is_empty() {
            let known = described(&root);
            return Err(StorageError::NoImages { path: root, known });
        }
        Ok(Self::of_one_class(root, samples))
    }

    /// Images in one class with an empty name.
    pub(crate) fn of_one_class(root: PathBuf, samples: Vec<Sample>) -> Self {
        Self {
            root,
            classes: vec![String::new()],
            samples,
            besides: Besides::default(),
        }
    }

    /// The path of a sample below the folder, as the file system has it.
    pub(crate) fn below(&self, sample: usize) -> &[u8] {
        let path = &self.samples[sample].path;
        let below = path.strip_prefix(&self.root).unwrap_or(path);
        below.as_os_str().as_encoded_bytes()
    }

    pub(crate) fn sample(&self, sample: usize) -> Result<&Sample, StorageError> {
        self.samples.get(sample).ok_or(StorageError::NoSuchSample {
            sample,
            len: self.samples.len(),
        })
    }
}

impl Source for ImageFolder {
    fn len(&self) -> usize {
        self.samples.len()
    }

    fn class(&self, sample: usize) -> u32 {
        self.samples[sample].class
    }

    fn name(&self, sample: usize) -> String {
        self.samples[sample].path.display().to_string()
    }

    fn read(&self, sample: usize, into: &mut SampleBytes) -> Result<(), StorageError> {
        read_file(&self.sample(sample)?.path, into.refill())
    }

    fn expect(&self, sample: usize) {
        if let Some(sample) = self.samples.get(sample) {
            read_ahead(&sample.path);
        }
    }

    fn version(&self, sample: usize, into: &mut Vec<u8>) -> bool {
        let Some(Sample { path, .. }) = self.samples.get(sample) else {
            return false;
        };
        version_of_file(path, into)
    }
}

/// The version of a regular file; see [`file_version`].
#[cfg(unix)]
pub(crate) fn version_of_file(path: &Path, into: &mut Vec<u8>) -> bool {
    use std::os::unix::fs::MetadataExt;
    let Ok(facts) = fs::metadata(path) else {
        return false;
    };
    let numbers = [
        facts.ino() as i64,
        facts.size() as i64,
        facts.mtime(),
        facts.mtime_nsec(),
        facts.ctime(),
        facts.ctime_nsec(),
    ];
    let may_be_an_edition = || {
        #[cfg(target_os = "linux")]
        return rustix::fs::statvfs(path)
            .is_ok_and(|system| system.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY));
        #[cfg(not(target_os = "linux"))]
        false
    };
    let name = path.file_name().unwrap_or_default();
    facts.is_file() && file_version(name, numbers, may_be_an_edition, into)
}

/// Writes the version of a regular file to `into`: its name without folders, and six numbers: its number in its file system, its size,
/// and seconds and nanoseconds of the times when it and its entry were changed. Returns false if its entry was changed just now, or if
/// the times have no fractions and `may_be_an_edition` says that the file system is read-only: its maker has set these times, and may set
/// the same ones in the next edition. The folders are left out, so that a file is the same from whatever root it was listed.
pub fn file_version(
    name: &OsStr,
    numbers: [i64; 6],
    may_be_an_edition: impl FnOnce() -> bool,
    into: &mut Vec<u8>,
) -> bool {
    /// A file that was changed twice within a tick of its file system's clock, which is up to 2 s, may have one time for two versions. A
    /// part of a second is rounded down on both sides.
    const TICK: i64 = 2;
    let [.., changed, fraction] = numbers;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    if now.is_ok_and(|now| changed + TICK >= now.as_secs() as i64) || (fraction == 0 && may_be_an_edition()) {
        return false;
    }
    into.extend(name.as_encoded_bytes());
    into.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    true
}

#[cfg(not(unix))]
pub(crate) fn version_of_file(_: &Path, _: &mut Vec<u8>) -> bool {
    false
}

/// Makes the system read a file into its cache, without waiting.
#[cfg(target_os = "linux")]
pub(crate) fn read_ahead(path: &Path) {
    use rustix::fs::{Advice, Mode, OFlags, fadvise, open};
    // Non-blocking: the file may be a pipe without a writer.
    if let Ok(file) = open(
        path,
        OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        // Only a hint; ignore the result.
        let _ = fadvise(&file, 0, None, Advice::WillNeed);
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn read_ahead(_: &Path) {}

/// Reads a regular file of at most [`MAX_FILE_BYTES`] into `into`, which is empty.
pub(crate) fn read_file(path: &Path, into: &mut Vec<u8>) -> Result<(), StorageError> {
    let failed = |source| StorageError::Read {
        path: path.to_owned(),
        source,
    };
    // Checked before opening, because opening a pipe without a writer never returns.
    let facts = fs::metadata(path).map_err(failed)?;
    if !facts.is_file() {
        return Err(StorageError::NotAFile {
            path: path.to_owned(),
        });
    }
    if facts.len() > MAX_FILE_BYTES {
        return Err(StorageError::TooLarge {
            path: path.to_owned(),
            bytes: facts.len(),
            limit: MAX_FILE_BYTES,
        });
    }
    into.reserve(facts.len() as usize + 1);
    File::open(path)
        .and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(into))
        .map_err(failed)?;
    Ok(())
}

/// The names in one folder, each list sorted by code points.
#[derive(Default)]
pub(crate) struct Listing {
    pub folders: Vec<std::ffi::OsString>,
    pub images: Vec<std::ffi::OsString>,
    pub others: Kinds,
    /// It is a link to a folder around it, and nothing in it was listed.
    pub is_loop: bool,
}

/// Lists a folder. Opens no file.
pub(crate) fn list(folder: &Path) -> Result<Listing, StorageError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => StorageError::Missing {
            path: folder.to_owned(),
        },
        io::ErrorKind::NotADirectory => StorageError::NotAFolder {
            path: folder.to_owned(),
            known: described(folder),
        },
        _ => StorageError::List {
            path: folder.to_owned(),
            source,
        },
    };
    let (mut folders, mut images, mut others) = (Vec::new(), Vec::new(), Kinds::default());
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let mut kind = entry.file_type().map_err(failed)?;
        if kind.is_symlink() {
            // A dangling link stays a link: torchvision lists it as a file, and reading it reports the error.
            kind = fs::metadata(entry.path()).map_or(kind, |target| target.file_type());
        }
        if kind.is_dir() {
            // A cache, such as of these images, is no class, nor is what ext4 has at its root, unless it has images.
            let is_left_out = name == "lost+found" || entry.path().join("CACHEDIR.TAG").exists();
            if !is_left_out || walk_all(&entry.path()).is_ok_and(|images| !images.is_empty()) {
                folders.push(name);
            }
        } else if is_image_name(&name) {
            images.push(name);
        } else {
            others.add(&name);
        }
    }
    folders.sort_by_cached_key(|name| code_points(name));
    images.sort_by_cached_key(|name| code_points(name));
    Ok(Listing {
        folders,
        images,
        others,
        is_loop: false,
    })
}

/// Every image below a folder, folder after folder.
pub(crate) fn walk_all(root: &Path) -> Result<Vec<PathBuf>, StorageError> {
    list(root)?;
    let mut folders = Vec::new();
    walk(root.to_owned(), &mut Vec::new(), &mut folders)?;
    folders.sort_by_cached_key(|(folder, _)| code_points(folder.as_os_str()));
    let files = folders
        .iter()
        .flat_map(|(folder, listing)| listing.images.iter().map(|file| folder.join(file)));
    Ok(files.collect())
}

/// Collects `folder` and every folder below it with the images directly in it.
///
/// `inside` has the canonical paths of the folders on the way, so that a link to one of them is not followed.
fn walk(
    folder: PathBuf,
    inside: &mut Vec<PathBuf>,
    into: &mut Vec<(PathBuf, Listing)>,
) -> Result<(), StorageError> {
    let truly = fs::canonicalize(&folder).map_err(|source| StorageError::List {
        path: folder.clone(),
        source,
    })?;
    if inside.contains(&truly) {
        let listing = Listing {
            is_loop: true,
            ..Listing::default()
        };
        into.push((folder, listing));
        return Ok(());
    }
    let mut listing = list(&folder)?;
    inside.push(truly);
    for name in std::mem::take(&mut listing.folders) {
        walk(folder.join(name), inside, into)?;
    }
    inside.pop();
    into.push((folder, listing));
    Ok(())
}

fn no_classes(path: PathBuf, listing: &Listing) -> StorageError {
    // Labels may lie next to the folder, too: train.csv next to train/.
    let known = described(&path).or_else(|| described_table(path.parent()?));
    match listing.images.first() {
        Some(first) => StorageError::Flat {
            path,
            images: listing.images.len(),
            example: first.to_string_lossy().into_owned(),
            known,
        },
        None => StorageError::NoClasses { path, known },
    }
}

/// Whether a file of this name is an image's: by its suffix, one of [`EXTENSIONS`] in any case.
pub fn is_image_name(name: &OsStr) -> bool {
    // A suffix and not `Path::extension`: torchvision includes a file named just ".jpg".
    let name = name.as_encoded_bytes();
    EXTENSIONS.iter().any(|extension| {
        name.len() >= extension.len()
            && name[name.len() - extension.len()..].eq_ignore_ascii_case(extension.as_bytes())
    })
}

/// A name as the code points that Python compares.
fn code_points(name: &OsStr) -> Vec<u32> {
    let mut points = Vec::with_capacity(name.len());
    for chunk in name.as_encoded_bytes().utf8_chunks() {
        points.extend(chunk.valid().chars().map(u32::from));
        points.extend(chunk.invalid().iter().map(|&byte| 0xDC00 + u32::from(byte)));
    }
    points
}
