//! How often a segmenter is right, class by class and image by image.

use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use stokehold_loader::{BadImage, Batch, LoaderError};
use stokehold_storage::{IGNORE, Images, Source};

use super::evaluation::{Bad, numbers};
use super::{Classifier, InferOptions, are_finite};
use crate::batch::tensor;
use crate::evaluate::pixel_loss;
use crate::metrics::{Confusion, most_probable};
use crate::model::{Arch, Logits};
use crate::{TrainError, device, pixels};

/// At most this many images are kept: those with the lowest mean IoU.
pub const WORST_SEGMENTED: usize = 12;

/// What a segmenter makes of pairs of images and masks: the contents of `evaluation.json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PixelEvaluation {
    /// The version of the program that evaluated.
    pub stokehold: String,
    /// The model's file.
    pub model: String,
    /// The network.
    pub arch: Arch,
    /// The folder of the images.
    pub data: String,
    /// The executor of the pipeline: `per-op`, `fused` or `gpu`.
    pub executor: String,
    /// The device that computed.
    pub device: String,
    /// Images that were predicted; all numbers below are over these.
    pub images: u64,
    /// Their pixels that have a class, at the size that the pipeline makes.
    pub pixels: u64,
    /// Pixels whose most probable class is their own.
    pub right: u64,
    /// `right` divided by `pixels`, 0 to 1; 0 without pixels.
    pub pixel_accuracy: f64,
    /// Mean intersection over union of the classes, 0 to 1; classes that are neither there nor predicted are left out.
    pub miou: f64,
    /// Mean cross-entropy of the pixels that have a class, in nats, 0 or more; 0 without pixels.
    pub loss: f64,
    /// Every class, by number.
    pub classes: Vec<PixelScore>,
    /// The confusion matrix without its zeros: [class, predicted class, pixels], sorted. Classes are positions in `classes`.
    pub confusion: Vec<[u64; 3]>,
    /// The images with the lowest mean IoU, the worst first; at most 12.
    pub worst: Vec<Segmented>,
    /// Images that could not be read or decoded.
    pub bad: Vec<Bad>,
    /// Seconds from the first batch to the last.
    pub seconds: f64,
}

/// The scores of one class of pixels.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PixelScore {
    /// Its name.
    pub name: String,
    /// Its pixels.
    pub pixels: u64,
    /// Pixels that were predicted to be of this class.
    pub predicted: u64,
    /// Its pixels that were predicted to be of this class.
    pub right: u64,
    /// Intersection over union: `right` divided by the pixels that are of it or were predicted to be, 0 to 1; null if there
    /// are none.
    pub iou: Option<f64>,
    /// `right` divided by `pixels`, 0 to 1; null if it has no pixels.
    pub accuracy: Option<f64>,
}

/// An image and what was said of its pixels.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Segmented {
    /// Its number in the data set.
    pub sample: u64,
    /// Its path.
    pub path: String,
    /// Mean IoU of the classes that are in it or were predicted in it, 0 to 1.
    pub miou: f64,
    /// Share of its pixels that have a class whose class is the most probable one, 0 to 1.
    pub pixel_accuracy: f64,
    /// The most probable class of each pixel, row by row.
    #[serde(skip)]
    pub predicted: Vec<u8>,
    /// The class of each pixel, 255 for none.
    #[serde(skip)]
    pub truth: Vec<u8>,
}

/// Evaluates a segmenter on pairs of images and masks. `each` is as that of [`evaluate`](super::evaluate()).
///
/// # Errors
/// The model is a classifier, or the data have no masks; [`TrainError::OtherClasses`] if the classes of the masks are not
/// those of the model, in whatever order; [`TrainError::NotFinite`]; the errors of the loader and of the device.
pub fn evaluate_pixels(
    segmenter: &Classifier,
    images: &Arc<Images>,
    options: &InferOptions,
    each: &mut dyn FnMut(u64, Option<&BadImage>),
) -> Result<PixelEvaluation, TrainError> {
    pixels::check_evaluated(segmenter.facts.arch, true)?;
    pixels::check_kind(segmenter.facts.arch, images)?;
    let numbers = numbers(&segmenter.facts.classes, images)?;
    let source: Arc<dyn Source> = Arc::clone(images) as _;
    let loader = segmenter.loader(source, options)?;
    let mut tally = Tally::new(segmenter.facts.classes.len());
    let (mut bad, mut done) = (Vec::new(), 0);
    let begin = Instant::now();
    let mut batches = loader.epoch(0);
    loop {
        let next = match batches.next() {
            Some(Err(LoaderError::AllBad { .. })) => None,
            next => next.transpose()?,
        };
        let found = match &next {
            Some(batch) => batch.bad.clone(),
            None => batches.unreported(),
        };
        for image in found {
            done += 1;
            each(done, Some(&image));
            bad.push(Bad {
                path: image.name,
                reason: image.reason,
            });
        }
        let Some(mut batch) = next else { break };
        for class in &mut batch.masks {
            // 255 stays.
            *class = numbers
                .get(usize::from(*class))
                .map_or(IGNORE, |&number| number as u8);
        }
        done += tally.add(segmenter, images, batch)?;
        each(done, None);
    }
    if tally.images == 0 {
        return Err(LoaderError::AllBad { epoch: 0 }.into());
    }
    Ok(tally.finish(segmenter, images, options, bad, begin.elapsed().as_secs_f64()))
}

/// Counts pixels.
struct Tally {
    images: u64,
    confusion: Confusion,
    loss: f64,
    pixels: u64,
    worst: Vec<Segmented>,
}

impl Tally {
    fn new(classes: usize) -> Self {
        Self {
            images: 0,
            confusion: Confusion::new(classes),
            loss: 0.0,
            pixels: 0,
            worst: Vec::new(),
        }
    }

    /// Counts a batch; returns the number of its images.
    fn add(&mut self, segmenter: &Classifier, images: &Images, batch: Batch) -> Result<u64, TrainError> {
        let Batch {
            pixels,
            normalize,
            shape,
            masks,
            samples,
            ..
        } = batch;
        let classes = segmenter.facts.classes.len();
        let input = tensor(pixels, normalize, shape, &segmenter.device);
        let Logits::Pixels(logits) = segmenter.model.forward(input) else {
            unreachable!("the architecture segments");
        };
        let finite = are_finite(logits.out.clone())?;
        if let Some((&sample, _)) = samples.iter().zip(finite).find(|(_, finite)| !finite) {
            let image = images.name(sample as usize);
            return Err(TrainError::NotFinite { image });
        }
        let (mean, labelled) = pixel_loss(logits.out.clone(), &masks);
        let mean = f64::from(device::read(mean)?[0]);
        self.loss += mean * labelled as f64;
        self.pixels += labelled as u64;
        self.images += samples.len() as u64;
        let predicted = most_probable(logits.out)?;
        let size = shape[2] * shape[3];
        let pairs = masks.chunks_exact(size).zip(predicted.chunks_exact(size));
        for (&sample, (truth, predicted)) in samples.iter().zip(pairs) {
            self.confusion.add(truth, predicted);
            let mut own = Confusion::new(classes);
            own.add(truth, predicted);
            let miou = own.mean_iou();
            // Among equals the earlier one stays.
            let at = self.worst.partition_point(|other| other.miou <= miou);
            if at >= WORST_SEGMENTED || truth.iter().all(|&class| class == IGNORE) {
                continue;
            }
            self.worst.insert(
                at,
                Segmented {
                    sample,
                    path: images.name(sample as usize),
                    miou,
                    pixel_accuracy: own.pixel_accuracy(),
                    predicted: predicted.to_vec(),
                    truth: truth.to_vec(),
                },
            );
            self.worst.truncate(WORST_SEGMENTED);
        }
        Ok(samples.len() as u64)
    }

    fn finish(
        self,
        segmenter: &Classifier,
        images: &Images,
        options: &InferOptions,
        bad: Vec<Bad>,
        seconds: f64,
    ) -> PixelEvaluation {
        let (facts, counted) = (&segmenter.facts, &self.confusion);
        let score = |(class, name): (usize, &String)| {
            let (pixels, right) = (counted.of_class(class), counted.pixels(class, class));
            PixelScore {
                name: name.clone(),
                pixels,
                predicted: counted.predicted(class),
                right,
                iou: counted.iou(class),
                accuracy: (pixels > 0).then(|| right as f64 / pixels as f64),
            }
        };
        let classes: Vec<PixelScore> = facts.classes.iter().enumerate().map(score).collect();
        let all = 0..classes.len();
        let cells = all.clone().flat_map(|class| {
            let predicted = all.clone();
            predicted.map(move |predicted| [class as u64, predicted as u64, counted.pixels(class, predicted)])
        });
        PixelEvaluation {
            stokehold: env!("CARGO_PKG_VERSION").to_owned(),
            model: segmenter.path().display().to_string(),
            arch: facts.arch,
            data: images.root().display().to_string(),
            executor: options.executor.to_string(),
            device: segmenter.device(),
            images: self.images,
            pixels: self.pixels,
            right: classes.iter().map(|class| class.right).sum(),
            pixel_accuracy: counted.pixel_accuracy(),
            miou: counted.mean_iou(),
            loss: self.loss / self.pixels.max(1) as f64,
            confusion: cells.filter(|&[.., pixels]| pixels > 0).collect(),
            classes,
            worst: self.worst,
            bad,
            seconds,
        }
    }
}
