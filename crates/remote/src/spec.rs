//! What a trainer asks of servers, in the form in which it is sent.

#[cfg(feature = "server")]
use std::path::Path;

use serde::{Deserialize, Serialize};
use stokehold_base::hash::Fnv;
use stokehold_loader::{BadImagePolicy, Executor, Loader, LoaderOptions, Parts, SampleType, Sampler};
use stokehold_pipeline::{DecodeOptions, Pipeline};
use stokehold_storage::Images;
#[cfg(feature = "server")]
use stokehold_storage::{Dataset, Source, StorageError};

/// The version of both sides.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What a server says about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Its version of Stokehold.
    pub version: String,
    /// Its data set, as it was given.
    pub data: String,
    /// Its threads that make batches.
    pub workers: usize,
    /// The batches that it has sent.
    pub batches: u64,
    /// Their images.
    pub images: u64,
}

/// What a server says about a loader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// The key for [`Spec`] in paths.
    pub loader: String,
    /// Batches of an epoch, of this rank.
    pub batches_per_epoch: usize,
    /// [3, H, W] of an image.
    pub shape: [usize; 3],
}

/// A part of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DatasetSplit {
    /// The training images, as [`Dataset::open`] finds them.
    #[default]
    Train,
    /// The validation images.
    Val,
    /// All images at any depth, without labels, as [`Images::unlabelled`] finds them.
    Unlabelled,
}

/// Which images of the server's data set.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DataPart {
    /// The part.
    pub part: DatasetSplit,
    /// Share of each class split off for validation, as for [`Dataset::open`].
    pub val_split: Option<f64>,
    /// The seed of that split.
    pub split_seed: u64,
    /// The most training images, as for [`Dataset::limit`].
    pub max_images: Option<usize>,
    /// A hash of their names below the data set's folder and of their classes, which has to be the same on both sides.
    pub names: Option<String>,
}

impl DataPart {
    /// These images, without a split and a limit.
    pub fn of(images: &Images, part: DatasetSplit) -> Self {
        Self {
            part,
            names: Some(names(images)),
            ..Self::default()
        }
    }

    /// Opens them. The second value says in what the images differ from those that are meant.
    #[cfg(feature = "server")]
    pub(crate) fn open(&self, data: &Path) -> Result<(Images, Option<String>), StorageError> {
        let images = match self.part {
            DatasetSplit::Unlabelled => {
                let mut images = Images::unlabelled(data)?;
                if let Some(max) = self.max_images {
                    images.limit(max);
                }
                images
            }
            part => {
                let mut dataset = Dataset::open(data, self.val_split, self.split_seed)?;
                if let Some(max) = self.max_images {
                    dataset.limit(max);
                }
                match part {
                    DatasetSplit::Val => dataset.val.ok_or_else(|| StorageError::NoImages {
                        path: data.join("val"),
                        known: None,
                    })?,
                    _ => dataset.train,
                }
            }
        };
        let own = names(&images);
        let differs = self.names.as_ref().filter(|names| **names != own).map(|names| {
            format!(
                "its images in {} differ from the trainer's: {} images whose names and classes have the hash {own}, and \
                 not {names}; serve the folder that the trainer has, with the same contents",
                data.display(),
                images.len(),
            )
        });
        Ok((images, differs))
    }
}

fn names(images: &Images) -> String {
    let mut hash = Fnv::default();
    images.add_names(&mut hash);
    format!("{:016x}", hash.finish())
}

/// Everything but epoch and number that a batch depends on. Defaults are those of [`LoaderOptions`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spec {
    /// The trainer's version of Stokehold; the server's by default.
    pub version: String,
    /// Which images.
    pub data: DataPart,
    /// The pipeline; the server's own by default.
    pub pipeline: Option<Pipeline>,
    /// As [`LoaderOptions::executor`].
    pub executor: Executor,
    /// As [`LoaderOptions::decode`].
    pub decode: DecodeOptions,
    /// As [`LoaderOptions::sample_type`].
    pub sample_type: SampleType,
    /// As [`LoaderOptions::batch_size`].
    pub batch_size: usize,
    /// As [`LoaderOptions::shuffle`].
    pub shuffle: bool,
    /// As [`LoaderOptions::sampler`].
    pub sampler: Sampler,
    /// As [`LoaderOptions::epoch_samples`].
    pub epoch_samples: Option<usize>,
    /// As [`LoaderOptions::seed`].
    pub seed: u64,
    /// As [`LoaderOptions::drop_last`].
    pub drop_last: bool,
    /// As [`LoaderOptions::rank`].
    pub rank: usize,
    /// As [`LoaderOptions::world_size`].
    pub world_size: usize,
    /// As [`LoaderOptions::parts`].
    pub parts: Parts,
    /// As [`LoaderOptions::bad_images`].
    pub bad_images: BadImagePolicy,
    /// As [`LoaderOptions::bad_image_limit`].
    pub bad_image_limit: usize,
}

impl Default for Spec {
    fn default() -> Self {
        Self::new(&LoaderOptions::default(), None, DataPart::default())
    }
}

impl Spec {
    /// What `loader` makes of these images.
    pub fn of(loader: &Loader, data: DataPart) -> Self {
        Self::new(loader.options(), Some(loader.pipeline().clone()), data)
    }

    fn new(options: &LoaderOptions, pipeline: Option<Pipeline>, data: DataPart) -> Self {
        Self {
            version: VERSION.to_owned(),
            data,
            pipeline,
            executor: options.executor,
            decode: options.decode,
            sample_type: options.sample_type,
            batch_size: options.batch_size,
            shuffle: options.shuffle,
            sampler: options.sampler.clone(),
            epoch_samples: options.epoch_samples,
            seed: options.seed,
            drop_last: options.drop_last,
            rank: options.rank,
            world_size: options.world_size,
            parts: options.parts,
            bad_images: options.bad_images,
            bad_image_limit: options.bad_image_limit,
        }
    }

    /// The loader's options on a server.
    #[cfg(feature = "server")]
    pub(crate) fn options(&self) -> LoaderOptions {
        LoaderOptions {
            executor: self.executor,
            decode: self.decode,
            sample_type: self.sample_type,
            batch_size: self.batch_size,
            shuffle: self.shuffle,
            sampler: self.sampler.clone(),
            epoch_samples: self.epoch_samples,
            seed: self.seed,
            drop_last: self.drop_last,
            rank: self.rank,
            world_size: self.world_size,
            parts: self.parts,
            bad_images: self.bad_images,
            bad_image_limit: self.bad_image_limit,
            ..LoaderOptions::default()
        }
    }

    /// Its key in paths.
    pub(crate) fn key(&self) -> String {
        // A spec holds numbers, texts and lists of them only, which always have a text.
        let text = serde_json::to_vec(self).unwrap_or_default();
        format!("{:016x}", Fnv::of(&text))
    }
}
