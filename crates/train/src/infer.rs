//! What comes after training: a model from its file, its predictions, and how often they are right.
//!
//! ```text
//!  model.safetensors ──► Classifier ◄── Loader (batches ahead of the model)
//!   weights and facts        │
//!                            ▼  in the order of the source, a bad image with its reason
//!              Outcome of logits ──► top_k        which classes, how probable
//!                              └──► Evaluation   loss, accuracy, classes, confusion, worst mistakes
//! ```
//!
//! Of a segmenter an outcome is a mask, the most probable class of every pixel, and [`evaluate_pixels`] compares it with the
//! true one.
//!
//! A file that `stokehold train` wrote is complete ([`ModelFacts`]). Of torchvision's files the caller says the
//! rest ([`Given`]). Images come from the loader of training, and the network computes what it computes in
//! validation.
//!
//! ```no_run
//! use std::sync::Arc;
//! use stokehold_storage::ImageFolder;
//! use stokehold_train::device::DeviceChoice;
//! use stokehold_train::infer::{Classifier, InferOptions, Given, top_k};
//!
//! let classifier = Classifier::open("runs/a/model.safetensors".as_ref(), Given::default(), DeviceChoice::Auto)?;
//! let photos = Arc::new(ImageFolder::unlabelled("photos")?);
//! let loader = classifier.loader(photos, &InferOptions::default())?;
//! for outcome in classifier.outcomes(&loader) {
//!     let outcome = outcome?;
//!     if let Ok(logits) = &outcome.prediction {
//!         println!("{}: {:?}", outcome.sample, top_k(logits, 5));
//!     }
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod evaluation;
mod facts;
mod pixels;
mod trained_on;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::tensor::{Device, Tensor};
use stokehold_loader::{
    BadImage, BadImagePolicy, Batch, BatchStream, Loader, LoaderError, LoaderOptions, Workers,
};
use stokehold_pipeline::{DecodeOptions, Executor, Pipeline};
use stokehold_storage::Source;

use crate::batch::tensor;
use crate::device::{self, DeviceChoice};
use crate::executor::{GpuOptions, open_device};
use crate::metrics::most_probable;
use crate::model::{Logits, Network};
use crate::weights::WeightsFile;
use crate::{TrainError, run};

pub use evaluation::{ClassScore, Evaluation, Mistake, WORST, evaluate};
pub use facts::{Given, ModelFacts};
pub use pixels::{PixelEvaluation, PixelScore, Segmented, WORST_SEGMENTED, evaluate_pixels};
pub use trained_on::{Overlap, TrainedOn};

/// A model from a file, on the device that computes: it says the class of an image, or of every pixel.
pub struct Classifier {
    path: PathBuf,
    facts: ModelFacts,
    model: Network,
    device: Device,
}

/// How images come to a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InferOptions {
    /// The executor of the pipeline. Default `fused`.
    pub executor: Executor,
    /// Options of the executor `gpu`.
    pub gpu: GpuOptions,
    /// Images per batch, at least 1. Default 32.
    pub batch_size: usize,
    /// Loader threads. Default [`Workers::Auto`].
    pub workers: Workers,
}

impl Default for InferOptions {
    fn default() -> Self {
        Self {
            executor: Executor::default(),
            gpu: GpuOptions::default(),
            batch_size: 32,
            workers: Workers::Auto,
        }
    }
}

impl Classifier {
    /// Reads a model: a `.safetensors` or `.pth` file, or a folder with a `model.safetensors`, as runs and
    /// checkpoints are.
    ///
    /// # Errors
    /// The file cannot be read, or its weights are of another architecture; it does not say its architecture or
    /// classes, and neither does the caller; the caller says something else than the file.
    pub fn open(path: &Path, given: Given, device: DeviceChoice) -> Result<Self, TrainError> {
        let path = match path.is_dir() {
            true => run::RunFolder::new(path).model(),
            false => path.to_owned(),
        };
        let file = WeightsFile::read(&path).map_err(crate::weights::WeightsError::from)?;
        let facts = ModelFacts::of(&path, &file.metadata, given)?;
        // Without a last layer, the weights are of another architecture, which says so below.
        if let Some(outputs) = file.classes().filter(|&outputs| outputs != facts.classes.len()) {
            let classes = facts.classes.len();
            return Err(TrainError::Malformed {
                path,
                reason: format!(
                    "its last layer has {outputs} outputs, and {classes} classes are named; give the names of its classes, \
                     in its order"
                ),
            });
        }
        let device = device::open(device)?;
        let model = Network::to_be_loaded(facts.arch, facts.classes.len(), &device);
        let (model, loaded) = file.into_model(model)?;
        if loaded.replaced_head.is_some() {
            return Err(TrainError::Malformed {
                path,
                reason: format!(
                    "it has the weights of a classifier, which are the backbone of {} only; train that first, or give the \
                     architecture of the file",
                    facts.arch
                ),
            });
        }
        Ok(Self {
            path,
            facts,
            model,
            device,
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the file and the caller say about the model.
    pub fn facts(&self) -> &ModelFacts {
        &self.facts
    }

    /// The name of the device that computes.
    pub fn device(&self) -> String {
        device::name(&self.device)
    }

    /// Prepares to load images for the model, in their order. Bad images are skipped, however many they are.
    ///
    /// # Errors
    /// The errors of [`open_device`] and [`Loader::new`].
    pub fn loader(&self, source: Arc<dyn Source>, options: &InferOptions) -> Result<Loader, TrainError> {
        let ModelFacts { pipeline, exif, .. } = &self.facts;
        loader(source, pipeline, *exif, options, &self.device)
    }

    /// The logits of every image of a loader that [`Classifier::loader`] made, in the order of its source. The model must be a
    /// classifier of images.
    pub fn outcomes<'a>(&'a self, loader: &Loader) -> Outcomes<'a, Vec<f32>> {
        Outcomes::new(self, loader, Self::rows)
    }

    /// The mask of every image of a loader that [`Classifier::loader`] made, in the order of its source: `[H, W]`, the most probable
    /// class of each pixel, the lower one among equals. The model must be a segmenter.
    pub fn masks<'a>(&'a self, loader: &Loader) -> Outcomes<'a, Vec<u8>> {
        Outcomes::new(self, loader, Self::masks_of)
    }

    /// The logits of a batch of a loader that [`Classifier::loader`] made: for each image as many numbers as there are
    /// classes. The model must be a classifier of images.
    ///
    /// # Errors
    /// The device fails.
    pub fn logits(&self, batch: Batch) -> Result<Vec<f32>, TrainError> {
        let images = tensor(batch.pixels, batch.normalize, batch.shape, &self.device);
        let Logits::Images(logits) = self.model.forward(images) else {
            unreachable!("a segmenter has masks");
        };
        Ok(device::read(logits)?)
    }

    fn rows(&self, batch: Batch) -> Result<Vec<Prediction<Vec<f32>>>, TrainError> {
        let logits = self.logits(batch)?;
        let row = |row: &[f32]| match row.iter().all(|x| x.is_finite()) {
            true => Ok(row.to_vec()),
            false => Err(Flaw::NotFinite),
        };
        Ok(logits.chunks_exact(self.facts.classes.len()).map(row).collect())
    }

    fn masks_of(&self, batch: Batch) -> Result<Vec<Prediction<Vec<u8>>>, TrainError> {
        let images = tensor(batch.pixels, batch.normalize, batch.shape, &self.device);
        let Logits::Pixels(logits) = self.model.forward(images) else {
            unreachable!("a classifier has logits");
        };
        let finite = are_finite(logits.out.clone())?;
        let classes = most_probable(logits.out)?;
        let masks = classes.chunks_exact(batch.shape[2] * batch.shape[3]);
        let mask = |(mask, finite): (&[u8], bool)| match finite {
            true => Ok(mask.to_vec()),
            false => Err(Flaw::NotFinite),
        };
        Ok(masks.zip(finite).map(mask).collect())
    }
}

/// Prepares to load images, in their order, for a model on `device`. Bad images are skipped, however many they are.
///
/// # Errors
/// The errors of [`open_device`] and [`Loader::new`].
pub fn loader(
    source: Arc<dyn Source>,
    pipeline: &Pipeline,
    exif: bool,
    options: &InferOptions,
    device: &Device,
) -> Result<Loader, TrainError> {
    let options = LoaderOptions {
        executor: options.executor,
        device: open_device(options.executor, options.gpu, device)?,
        batch_size: options.batch_size,
        workers: options.workers,
        shuffle: false,
        decode: DecodeOptions { exif },
        bad_images: BadImagePolicy::Skip,
        bad_image_limit: usize::MAX,
        ..LoaderOptions::default()
    };
    Ok(Loader::new(source, pipeline.clone(), options)?)
}

/// What became of one image.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome<T> {
    /// Its number in the source.
    pub sample: u64,
    /// What the model makes of it: finite logits, one for each class, or a mask.
    pub prediction: Prediction<T>,
}

/// What the model makes of an image, or why there is nothing.
pub type Prediction<T> = Result<T, Flaw>;

/// Whether the logits of each image are finite.
fn are_finite(logits: Tensor<4>) -> Result<Vec<bool>, TrainError> {
    let images = logits.dims()[0];
    // 0 of a finite number, and NaN of any other.
    let zeros = (logits.clone() - logits).reshape([images as i32, -1]).sum_dim(1);
    Ok(device::read(zeros)?.into_iter().map(|sum| sum == 0.0).collect())
}

/// Why there is no prediction of an image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// It could not be read or decoded, with the reason.
    #[error("{0}")]
    Bad(String),
    /// The model made NaN or infinite numbers of it.
    #[error("the model's output is NaN or infinite; its training probably diverged")]
    NotFinite,
}

/// An iterator over the outcomes of all images, in the order of the source. It ends after an error.
///
/// The loader makes the next batches while the model computes.
pub struct Outcomes<'a, T> {
    classifier: &'a Classifier,
    predict: Predict<T>,
    /// `None` at the end.
    batches: Option<Box<dyn BatchStream>>,
    /// The number of the sample that comes next.
    next: u64,
    /// Outcomes that came before those of earlier samples: the loader reports a bad image of a batch that is
    /// still in work.
    early: BTreeMap<u64, Prediction<T>>,
}

/// What a model makes of the images of a batch.
type Predict<T> = fn(&Classifier, Batch) -> Result<Vec<Prediction<T>>, TrainError>;

impl<'a, T> Outcomes<'a, T> {
    fn new(classifier: &'a Classifier, loader: &Loader, predict: Predict<T>) -> Self {
        Self {
            classifier,
            predict,
            batches: Some(loader.epoch(0)),
            next: 0,
            early: BTreeMap::new(),
        }
    }

    /// Computes one more batch.
    fn compute(&mut self, mut batches: Box<dyn BatchStream>) -> Result<(), TrainError> {
        let mut batch = match batches.next() {
            Some(Ok(batch)) => batch,
            // Then every image is a bad one, and each is reported.
            None | Some(Err(LoaderError::AllBad { .. })) => {
                self.note(batches.unreported());
                return Ok(());
            }
            Some(Err(error)) => return Err(error.into()),
        };
        self.note(std::mem::take(&mut batch.bad));
        let samples = std::mem::take(&mut batch.samples);
        let predictions = (self.predict)(self.classifier, batch)?;
        self.early.extend(samples.into_iter().zip(predictions));
        self.batches = Some(batches);
        Ok(())
    }

    fn note(&mut self, bad: Vec<BadImage>) {
        let bad = bad
            .into_iter()
            .map(|image| (image.sample, Err(Flaw::Bad(image.reason))));
        self.early.extend(bad);
    }
}

impl<T> Iterator for Outcomes<'_, T> {
    type Item = Result<Outcome<T>, TrainError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(prediction) = self.early.remove(&self.next) {
                let sample = self.next;
                self.next += 1;
                return Some(Ok(Outcome { sample, prediction }));
            }
            let batches = self.batches.take()?;
            if let Err(error) = self.compute(batches) {
                return Some(Err(error));
            }
        }
    }
}

/// The probability of a class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Probability {
    /// The class's number.
    pub class: usize,
    /// Its softmax, 0 to 1.
    pub probability: f64,
}

/// The `k` most probable classes of finite logits, the most probable one first. Among equal logits the lower class
/// comes first.
pub fn top_k(logits: &[f32], k: usize) -> Vec<Probability> {
    let probabilities = softmax(logits);
    let mut classes: Vec<usize> = (0..logits.len()).collect();
    // The sort is stable, which keeps the lower class first.
    classes.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    let of = |class| Probability {
        class,
        probability: probabilities[class],
    };
    classes.into_iter().take(k).map(of).collect()
}

/// The softmax of finite logits.
fn softmax(logits: &[f32]) -> Vec<f64> {
    let log_sum = log_sum_exp(logits);
    logits.iter().map(|&x| (f64::from(x) - log_sum).exp()).collect()
}

/// log(Σ exp x), without overflow: the largest logit is taken out first.
fn log_sum_exp(logits: &[f32]) -> f64 {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let largest = f64::from(largest);
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - largest).exp()).sum();
    largest + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_probable_come_first_and_add_up_to_one() {
        let top = top_k(&[1.0, 3.0, 1.0, 1000.0, 1000.0], 3);
        let classes: Vec<usize> = top.iter().map(|one| one.class).collect();
        assert_eq!(classes, [3, 4, 1]);
        assert!((top[0].probability - 0.5).abs() < 1e-12, "{top:?}");
        let all = top_k(&[-2.0, 0.5, 88.0, 80.0], 9);
        let sum: f64 = all.iter().map(|one| one.probability).sum();
        assert!(all.len() == 4 && (sum - 1.0).abs() < 1e-12, "{all:?}");
    }
}
