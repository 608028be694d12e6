//! Whether images that are evaluated are those that a run was trained on: then their scores say little about new ones.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use stokehold_storage::{Dataset, Images, SampleBytes, Source};

use crate::TrainConfig;
use crate::run::{RunFolder, RunRecord};

/// How many folders above a model's file its run may lie: of a checkpoint's file, three.
const ABOVE: usize = 4;
/// How many files are compared, byte by byte, where training images have the same names and sizes.
const COMPARED: usize = 8;

/// The run that made a model.
#[derive(Debug)]
pub struct TrainedOn {
    /// Its folder.
    pub run: PathBuf,
    /// The share of each class that it held out of its training images, and the seed of that choice.
    pub held_out: Option<(f64, u64)>,
    record: RunRecord,
}

/// Images that are evaluated and that a run was trained on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overlap {
    /// How many there are.
    pub images: usize,
    /// Whether they are copies, by their names, their sizes and some of their bytes, and not the same files.
    pub copies: bool,
}

impl TrainedOn {
    /// The run that a model's folder or file belongs to; `None` if there is none.
    pub fn of(model: &Path) -> Option<Self> {
        model.ancestors().take(ABOVE).find_map(|folder| {
            let record = RunFolder::new(folder).read_record().ok()??;
            let TrainConfig { val_split, seed, .. } = record.config;
            Some(Self {
                run: folder.to_owned(),
                held_out: val_split.map(|share| (share, seed)),
                record,
            })
        })
    }

    /// Whether the run was trained on the data set in `dir`.
    pub fn is_of(&self, dir: &Path) -> bool {
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        real(&self.record.config.data) == real(dir)
    }

    /// How many of the images the run was trained on; `None` if its data set cannot be opened any more.
    pub fn overlap(&self, images: &Images) -> Option<Overlap> {
        let TrainConfig {
            data,
            val_split,
            seed,
            max_images,
            ..
        } = &self.record.config;
        let mut data = Dataset::open(data, *val_split, *seed).ok()?;
        if let Some(max_images) = max_images {
            data.limit(*max_images);
        }
        let trained: HashSet<Identity> = (0..data.train.len())
            .map(|sample| Identity::of(&data.train, sample))
            .collect();
        let same = (0..images.len()).filter(|&sample| trained.contains(&Identity::of(images, sample)));
        let same = same.count();
        let (images, copies) = match same {
            0 => (copies(&data.train, images), true),
            same => (same, false),
        };
        Some(Overlap { images, copies })
    }
}

/// What tells a file from all others.
#[derive(PartialEq, Eq, Hash)]
enum Identity {
    /// Its file system and its number there.
    File(u64, u64),
    /// Its data set's folder and its name.
    Name(PathBuf, String),
}

impl Identity {
    fn of(images: &Images, sample: usize) -> Self {
        let name = images.name(sample);
        let is_file = matches!(images, Images::Folder(_) | Images::Pairs(_));
        match is_file.then(|| file(Path::new(&name))).flatten() {
            Some((system, number)) => Self::File(system, number),
            None => {
                let root = images.root();
                Self::Name(root.canonicalize().unwrap_or_else(|_| root.to_owned()), name)
            }
        }
    }
}

#[cfg(unix)]
fn file(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let facts = std::fs::metadata(path).ok()?;
    Some((facts.dev(), facts.ino()))
}

#[cfg(not(unix))]
fn file(_: &Path) -> Option<(u64, u64)> {
    None
}

/// How many of the images have the name and size of a training image; 0 if some that were compared have other bytes.
fn copies(trained: &Images, images: &Images) -> usize {
    let key = |images: &Images, sample| Some((images.below(sample).to_vec(), images.size(sample)?));
    let known: HashMap<_, usize> = (0..trained.len())
        .filter_map(|sample| Some((key(trained, sample)?, sample)))
        .collect();
    let alike: Vec<(usize, usize)> = (0..images.len())
        .filter_map(|sample| Some((sample, *known.get(&key(images, sample)?)?)))
        .collect();
    let every = alike.len().div_ceil(COMPARED).max(1);
    let (mut one, mut other) = (SampleBytes::new(), SampleBytes::new());
    let equal = |(sample, of_training): &(usize, usize)| {
        images.read(*sample, &mut one).is_ok()
            && trained.read(*of_training, &mut other).is_ok()
            && one.file() == other.file()
    };
    match alike.iter().step_by(every).all(equal) {
        true => alike.len(),
        false => 0,
    }
}
