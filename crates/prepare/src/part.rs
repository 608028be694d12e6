//! The parts of a data set.

use std::path::Path;

use stokehold_base::hash::Fnv;
use stokehold_storage::{Dataset, Images, Source, StorageError};

use crate::options::{Container, Options};
use crate::{PrepareError, tar};

/// One part of a data set to be prepared.
pub(crate) struct Part {
    pub name: &'static str,
    pub images: Images,
    /// The bytes of each file, 0 if they are not known.
    pub sizes: Vec<u64>,
    /// The names of the samples in a tar; empty for shards.
    pub keys: Vec<String>,
    pub id: u64,
}

impl Part {
    fn new(name: &'static str, images: Images, options: &Options) -> Self {
        // A missing file is reported when it is read.
        let sizes: Vec<u64> = (0..images.len())
            .map(|sample| images.size(sample).unwrap_or(0))
            .collect();
        let mut id = Words::default();
        let content = match options.bake.get(name) {
            // With every parameter.
            Some(bake) => format!("{bake:?}"),
            None => options.content.to_string(),
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
            images,
            sizes,
            keys,
            id: id.0.finish(),
        }
    }

    /// The sample's name in the output.
    pub fn written_name(&self, sample: usize) -> &[u8] {
        match self.keys.get(sample) {
            Some(key) => key.as_bytes(),
            None => self.images.below(sample),
        }
    }
}

/// The images of each part of the data set in `data`; those of a folder without class folders are one part, without labels.
pub(crate) fn images(data: &Path) -> Result<[(&'static str, Option<Images>); 2], StorageError> {
    let (train, val) = match Dataset::open(data, None, 0) {
        Ok(Dataset { train, val, .. }) => (train, val),
        Err(StorageError::Flat { .. }) => (Images::unlabelled(data)?, None),
        Err(error) => return Err(error),
    };
    Ok([("train", Some(train)), ("val", val)])
}

/// The parts of the data set in `data`.
pub(crate) fn parts(data: &Path, options: &Options) -> Result<Vec<Part>, PrepareError> {
    images(data)?
        .into_iter()
        .filter_map(|(name, images)| Some((name, images?)))
        .map(|(name, images)| match images {
            Images::Folder(_) | Images::Bucket(_) => Ok(Part::new(name, images, options)),
            Images::Shards(_) => Err(PrepareError::PreparedAlready {
                path: data.to_owned(),
            }),
            Images::Pairs(_) => Err(PrepareError::Pairs {
                path: data.to_owned(),
            }),
        })
        .collect()
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
