//! How often a model is right, class by class.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use serde::Serialize;
use stokehold_loader::{BadImage, LoaderError};
use stokehold_storage::{Images, Source};

use super::{Classifier, Flaw, InferOptions, Outcome, log_sum_exp};
use crate::metrics::rank;
use crate::model::Arch;
use crate::{TrainError, pixels};

/// At most this many mistakes are kept: those with the highest loss.
pub const WORST: usize = 24;

/// At most this many names are listed in a message.
const LISTED: usize = 6;

/// What a model makes of a labelled data set: the contents of `evaluation.json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Evaluation {
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
    /// Images whose most probable class is their own.
    pub right: u64,
    /// `right` divided by `images`, 0 to 1.
    pub top1: f64,
    /// The k of `topk`.
    pub k: usize,
    /// Share of the images whose class is among the `k` most probable ones, 0 to 1.
    pub topk: f64,
    /// Mean cross-entropy of the images, in nats, 0 or more.
    pub loss: f64,
    /// Every class, by number.
    pub classes: Vec<ClassScore>,
    /// The confusion matrix without its zeros: [class, predicted class, images], sorted. Classes are positions in
    /// `classes`.
    pub confusion: Vec<[u64; 3]>,
    /// The mistakes with the highest loss, the worst first; at most 24.
    pub worst: Vec<Mistake>,
    /// Images that could not be read or decoded.
    pub bad: Vec<Bad>,
    /// Seconds from the first batch to the last.
    pub seconds: f64,
}

/// The scores of one class.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClassScore {
    /// Its name.
    pub name: String,
    /// Its images.
    pub support: u64,
    /// Images that were predicted to be of this class.
    pub predicted: u64,
    /// Its images that were predicted to be of this class.
    pub right: u64,
    /// `right` divided by `predicted`, 0 to 1; null if nothing was predicted to be of this class.
    pub precision: Option<f64>,
    /// `right` divided by `support`, 0 to 1; null if it has no images.
    pub recall: Option<f64>,
}

/// An image whose most probable class is not its own.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Mistake {
    /// Its number in the data set.
    pub sample: u64,
    /// Its path.
    pub path: String,
    /// Its class.
    pub class: String,
    /// The most probable class.
    pub predicted: String,
    /// The probability of the predicted class, 0 to 1.
    pub probability: f64,
    /// Its cross-entropy, in nats.
    pub loss: f64,
}

/// An image that could not be read or decoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bad {
    /// Its path.
    pub path: String,
    /// What is wrong with it.
    pub reason: String,
}

/// Evaluates a classifier on labelled images. Top-k is limited to the number of classes. `each` receives the number of
/// images that are done, after every image, and the image if it is a bad one.
///
/// # Errors
/// The model is a segmenter, or the data are pairs of images and masks;
/// [`TrainError::OtherClasses`] if the classes of the images are not those of the model, in whatever order;
/// [`TrainError::NotFinite`]; the errors of the loader and of the device.
pub fn evaluate(
    classifier: &Classifier,
    images: &Arc<Images>,
    options: &InferOptions,
    k: usize,
    each: &mut dyn FnMut(u64, Option<&BadImage>),
) -> Result<Evaluation, TrainError> {
    pixels::check_evaluated(classifier.facts.arch, false)?;
    pixels::check_kind(classifier.facts.arch, images)?;
    let numbers = numbers(&classifier.facts.classes, images)?;
    let source: Arc<dyn Source> = Arc::clone(images) as _;
    let loader = classifier.loader(source, options)?;
    let mut tally = Tally::new(classifier.facts().classes.len(), k);
    let mut bad = Vec::new();
    let begin = Instant::now();
    for (done, outcome) in (1..).zip(classifier.outcomes(&loader)) {
        let Outcome { sample, prediction } = outcome?;
        let name = || images.name(sample as usize);
        match prediction {
            Ok(logits) => {
                let class = numbers[images.class(sample as usize) as usize];
                tally.add(sample, class, &logits);
                each(done, None);
            }
            Err(Flaw::NotFinite) => {
                return Err(TrainError::NotFinite { image: name() });
            }
            Err(Flaw::Bad(reason)) => {
                let image = BadImage {
                    sample,
                    name: name(),
                    reason,
                };
                each(done, Some(&image));
                bad.push(Bad {
                    path: image.name,
                    reason: image.reason,
                });
            }
        }
    }
    if bad.len() == images.len() {
        return Err(LoaderError::AllBad { epoch: 0 }.into());
    }
    let seconds = begin.elapsed().as_secs_f64();
    let executor = options.executor.to_string();
    Ok(tally.finish(classifier, images, executor, bad, seconds))
}

/// The model's number of each class of the images, or of their pixels.
pub(super) fn numbers(model: &[String], images: &Images) -> Result<Vec<usize>, TrainError> {
    let data = pixels::classes(images);
    let by_name: HashMap<&String, usize> = model.iter().zip(0..).collect();
    let found: Vec<Option<usize>> = data.iter().map(|class| by_name.get(class).copied()).collect();
    let known: HashSet<&String> = data.iter().collect();
    let only_in_data: Vec<String> = data
        .iter()
        .filter(|class| !by_name.contains_key(class))
        .cloned()
        .collect();
    let only_in_model: Vec<String> = model
        .iter()
        .filter(|class| !known.contains(class))
        .cloned()
        .collect();
    let alike = stokehold_storage::differences(&only_in_data, &only_in_model);
    let differences: Vec<String> = [
        ("only in the data: ", listed(&only_in_data)),
        ("only in the model: ", listed(&only_in_model)),
        ("", listed(&alike)),
    ]
    .into_iter()
    .filter_map(|(place, names)| Some(format!("{place}{}", names?)))
    .collect();
    match found.into_iter().collect() {
        Some(numbers) if differences.is_empty() => Ok(numbers),
        _ => Err(TrainError::OtherClasses {
            data: images.root().to_owned(),
            differences: differences.join("; "),
        }),
    }
}

/// The first names of a list, and how many more there are; `None` of an empty one.
fn listed(names: &[String]) -> Option<String> {
    let shown = names[..names.len().min(LISTED)].join(", ");
    match names.len().saturating_sub(LISTED) {
        0 if names.is_empty() => None,
        0 => Some(shown),
        more => Some(format!("{shown} and {more} more")),
    }
}

/// A mistake among those that are kept. Ordered by loss, and among equal losses the later image is the smaller one,
/// so that the earlier ones are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
struct RankedMistake {
    loss: f64,
    sample: u64,
    class: usize,
    predicted: usize,
    probability: f64,
}

impl Eq for RankedMistake {}

impl Ord for RankedMistake {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by_loss = self.loss.total_cmp(&other.loss);
        by_loss.then(other.sample.cmp(&self.sample))
    }
}

impl PartialOrd for RankedMistake {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Counts images.
struct Tally {
    k: usize,
    images: u64,
    among: u64,
    loss: f64,
    confusion: BTreeMap<(usize, usize), u64>,
    /// The smallest one on top.
    worst: BinaryHeap<Reverse<RankedMistake>>,
}

impl Tally {
    fn new(classes: usize, k: usize) -> Self {
        Self {
            k: k.min(classes),
            images: 0,
            among: 0,
            loss: 0.0,
            confusion: BTreeMap::new(),
            worst: BinaryHeap::new(),
        }
    }

    /// Counts an image of `class` with finite logits.
    fn add(&mut self, sample: u64, class: usize, logits: &[f32]) {
        let log_sum = log_sum_exp(logits);
        let loss = log_sum - f64::from(logits[class]);
        // Among equal logits the lower class comes first, as in the accuracy of training.
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let predicted = logits.iter().position(|&x| x == largest).unwrap_or(0);
        self.images += 1;
        self.loss += loss;
        self.among += u64::from(rank(logits, class).is_some_and(|rank| rank < self.k));
        *self.confusion.entry((class, predicted)).or_default() += 1;
        if predicted == class {
            return;
        }
        self.worst.push(Reverse(RankedMistake {
            loss,
            sample,
            class,
            predicted,
            probability: (f64::from(largest) - log_sum).exp(),
        }));
        if self.worst.len() > WORST {
            self.worst.pop();
        }
    }

    fn scores(&self, names: &[String]) -> Vec<ClassScore> {
        let mut scores: Vec<ClassScore> = names.iter().map(|name| ClassScore::none(name)).collect();
        for (&(class, predicted), &images) in &self.confusion {
            scores[class].support += images;
            scores[predicted].predicted += images;
            if class == predicted {
                scores[class].right = images;
            }
        }
        for score in &mut scores {
            let share = |of: u64| (of > 0).then(|| score.right as f64 / of as f64);
            (score.precision, score.recall) = (share(score.predicted), share(score.support));
        }
        scores
    }

    fn finish(
        self,
        classifier: &Classifier,
        images: &Images,
        executor: String,
        bad: Vec<Bad>,
        seconds: f64,
    ) -> Evaluation {
        let facts = classifier.facts();
        let classes = self.scores(&facts.classes);
        let right = classes.iter().map(|class| class.right).sum();
        let mean = |sum: f64| sum / self.images.max(1) as f64;
        let worst = self.worst.into_sorted_vec();
        let worst = worst.into_iter().map(|Reverse(kept)| Mistake {
            sample: kept.sample,
            path: images.name(kept.sample as usize),
            class: facts.classes[kept.class].clone(),
            predicted: facts.classes[kept.predicted].clone(),
            probability: kept.probability,
            loss: kept.loss,
        });
        let confusion = self.confusion.iter();
        let confusion =
            confusion.map(|(&(class, predicted), &images)| [class as u64, predicted as u64, images]);
        Evaluation {
            stokehold: env!("CARGO_PKG_VERSION").to_owned(),
            model: classifier.path().display().to_string(),
            arch: facts.arch,
            data: images.root().display().to_string(),
            executor,
            device: classifier.device(),
            images: self.images,
            right,
            top1: mean(right as f64),
            k: self.k,
            topk: mean(self.among as f64),
            loss: mean(self.loss),
            classes,
            confusion: confusion.collect(),
            worst: worst.collect(),
            bad,
            seconds,
        }
    }
}

impl ClassScore {
    fn none(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            support: 0,
            predicted: 0,
            right: 0,
            precision: None,
            recall: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_those_of_a_confusion_matrix() {
        let mut tally = Tally::new(3, 2);
        let rows = [
            (0, [3.0, 2.0, 1.0]),
            (0, [1.0, 2.0, 1.5]),
            (1, [0.0, 5.0, 0.0]),
            (1, [9.0, 1.0, 0.0]),
        ];
        for (sample, (class, logits)) in (0..).zip(rows) {
            tally.add(sample, class, &logits);
        }
        let scores = tally.scores(&["a", "b", "c"].map(str::to_owned));
        let numbers = scores
            .iter()
            .map(|s| (s.support, s.predicted, s.right, s.precision, s.recall));
        let expected = [
            (2, 2, 1, Some(0.5), Some(0.5)),
            (2, 2, 1, Some(0.5), Some(0.5)),
            (0, 0, 0, None, None),
        ];
        assert_eq!(numbers.collect::<Vec<_>>(), expected);
        // The second image's class is third of three.
        assert_eq!((tally.images, tally.among), (4, 3));
        let kept: Vec<u64> = tally
            .worst
            .into_sorted_vec()
            .iter()
            .map(|kept| kept.0.sample)
            .collect();
        assert_eq!(kept, [3, 1]);
    }

    #[test]
    fn the_worst_are_kept_and_the_earlier_of_equals() {
        let mut tally = Tally::new(2, 1);
        for sample in 0..100 {
            let surer = if sample == 50 { 9.0 } else { 1.0 };
            tally.add(sample, 0, &[0.0, surer]);
        }
        let kept: Vec<u64> = tally
            .worst
            .into_sorted_vec()
            .iter()
            .map(|kept| kept.0.sample)
            .collect();
        let expected: Vec<u64> = std::iter::once(50).chain(0..WORST as u64 - 1).collect();
        assert_eq!(kept, expected);
    }

    #[test]
    fn long_lists_of_names_are_cut() {
        let names: Vec<String> = (0..8).map(|number| number.to_string()).collect();
        assert_eq!(listed(&names).unwrap(), "0, 1, 2, 3, 4, 5 and 2 more");
        assert_eq!(listed(&names[..1]).unwrap(), "0");
        assert_eq!(listed(&[]), None);
    }
}
