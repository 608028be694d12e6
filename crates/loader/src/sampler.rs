//! Chooses the samples of an epoch.
//!
//! Every choice is a function of (seed, epoch): all ranks make the same one and divide it among themselves, and a
//! resumed epoch makes it again.

use std::fmt;
use std::num::NonZeroUsize;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use stokehold_base::random::{Random, mix};
use stokehold_storage::Source;

use crate::{LoaderError, LoaderOptions};

/// Which samples of its source an epoch has, and how often. [`LoaderOptions::epoch_samples`] says how many it has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sampler {
    /// Every sample once.
    #[default]
    Every,
    /// These samples, each as often as it is in the list (`torch.utils.data.SubsetRandomSampler`).
    Subset(#[serde(with = "list")] Arc<[usize]>),
    /// Repeated augmentation: each sample this many times in a row, with random operations of its own each time
    /// (Hoffer et al., "Augment your batch", 2020; the `RASampler` of DeiT, timm and torchvision's references). An
    /// epoch keeps its length, so that it has a part of the samples, unless
    /// [`LoaderOptions::epoch_samples`] says otherwise.
    Repeated(NonZeroUsize),
    /// Drawn with a weight for each sample, 0 or more, of any sum (`torch.utils.data.WeightedRandomSampler`).
    Weighted {
        /// The weight of each sample of the source, in its order.
        #[serde(with = "list")]
        weights: Arc<[f64]>,
        /// Whether a sample can be drawn again in the same epoch. Without it an epoch has a sample once at most, drawn
        /// in turn from those that are left.
        replacement: bool,
    },
    /// Drawn so that all classes are equally likely: weighted, by 1 / (samples of the same class).
    ClassBalanced {
        /// As for [`Sampler::Weighted`].
        replacement: bool,
    },
}

impl fmt::Display for Sampler {
    /// In words, with a hash of what it was given: equal texts stand for equal choices.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash =
            |numbers: &mut dyn Iterator<Item = u64>| numbers.fold(0, |hash, number| mix(hash ^ number));
        match self {
            Self::Every => f.write_str("every sample"),
            Self::Subset(samples) => {
                let hash = hash(&mut samples.iter().map(|&sample| sample as u64));
                write!(f, "a subset of {} (hash {hash:016x})", samples.len())
            }
            Self::Repeated(times) => write!(f, "every sample {times} times"),
            Self::Weighted { weights, replacement } => {
                let hash = hash(&mut weights.iter().map(|weight| weight.to_bits()));
                write!(f, "weighted (hash {hash:016x}) {}", again(*replacement))
            }
            Self::ClassBalanced { replacement } => write!(f, "class-balanced {}", again(*replacement)),
        }
    }
}

/// A shared list as an ordinary one.
mod list {
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<T: Serialize, S: Serializer>(list: &Arc<[T]>, to: S) -> Result<S::Ok, S::Error> {
        (**list).serialize(to)
    }

    pub fn deserialize<'a, T: Deserialize<'a>, D: Deserializer<'a>>(from: D) -> Result<Arc<[T]>, D::Error> {
        Vec::deserialize(from).map(Arc::from)
    }
}

fn again(replacement: bool) -> &'static str {
    match replacement {
        true => "with replacement",
        false => "without replacement",
    }
}

/// A sampler of one source.
#[derive(Debug)]
pub(crate) struct Chooser {
    method: SamplingMethod,
    shuffle: bool,
    /// Samples of the source.
    samples: usize,
    /// Samples of an epoch, on all ranks.
    length: usize,
    text: String,
}

#[derive(Debug)]
enum SamplingMethod {
    Every,
    Subset(Arc<[usize]>),
    Repeated(usize),
    /// With replacement: the sums of the weights up to and including each sample.
    Sums(Vec<f64>),
    /// Without replacement: the weights.
    Weights(Arc<[f64]>),
}

/// The most samples of an epoch that are drawn with replacement: 2 GiB of numbers.
const MOST: usize = 1 << 28;

/// Recipes repeat a sample 3 or 4 times.
const MOST_REPEATS: usize = 1024;

impl Chooser {
    /// The sampler of the options, for this source.
    pub(crate) fn new(options: &LoaderOptions, source: &dyn Source) -> Result<Self, LoaderError> {
        let samples = source.len();
        let refused = |reason: String| Err(LoaderError::Options { reason });
        let (method, usual, most) = match &options.sampler {
            Sampler::Every => (SamplingMethod::Every, samples, samples),
            Sampler::Subset(list) => {
                if let Some(beyond) = list.iter().find(|&&sample| sample >= samples) {
                    return refused(format!(
                        "subset: sample {beyond}: must be below {samples}, the number of samples"
                    ));
                }
                (SamplingMethod::Subset(Arc::clone(list)), list.len(), list.len())
            }
            Sampler::Repeated(times) if times.get() > MOST_REPEATS => {
                return refused(format!("repeats {times}: must be 1 to {MOST_REPEATS}"));
            }
            Sampler::Repeated(times) => {
                let most = samples.saturating_mul(times.get());
                (SamplingMethod::Repeated(times.get()), samples, most)
            }
            Sampler::Weighted { weights, replacement } => {
                if weights.len() != samples {
                    return refused(format!(
                        "{} weights: must be {samples}, one for each sample",
                        weights.len()
                    ));
                }
                weighted(Arc::clone(weights), *replacement)?
            }
            Sampler::ClassBalanced { replacement } => weighted(balanced(source), *replacement)?,
        };
        if !options.shuffle && matches!(method, SamplingMethod::Sums(_) | SamplingMethod::Weights(_)) {
            return refused(format!(
                "a sampler that is {} draws its order: shuffle must be on",
                options.sampler
            ));
        }
        let length = options.epoch_samples.unwrap_or(usual);
        if !(1..=most).contains(&length) {
            return refused(match most {
                0 => "subset: there are no samples in it".to_owned(),
                _ => format!(
                    "{length} samples in an epoch: must be 1 to {most} where the sampler is {}",
                    options.sampler
                ),
            });
        }
        let text = match options.epoch_samples {
            Some(length) => format!("{}, {length} in an epoch", options.sampler),
            None => options.sampler.to_string(),
        };
        Ok(Self {
            method,
            shuffle: options.shuffle,
            samples,
            length,
            text,
        })
    }

    /// Samples of an epoch, on all ranks.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// The sampler and the length in words; equal texts stand for equal choices.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Whether an epoch can have the sample.
    pub(crate) fn can_choose(&self) -> Box<dyn Fn(usize) -> bool + '_> {
        match &self.method {
            SamplingMethod::Every | SamplingMethod::Repeated(_) => Box::new(|_| true),
            SamplingMethod::Subset(list) => {
                let mut chosen = vec![false; self.samples];
                list.iter().for_each(|&sample| chosen[sample] = true);
                Box::new(move |sample| chosen[sample])
            }
            SamplingMethod::Sums(sums) => Box::new(|sample| {
                let before = sample.checked_sub(1).map_or(0.0, |before| sums[before]);
                sums[sample] > before
            }),
            SamplingMethod::Weights(weights) => Box::new(|sample| weights[sample] > 0.0),
        }
    }

    /// The samples of an epoch in order; `None` if they are 0, 1, .. up to the epoch's length.
    pub(crate) fn epoch(&self, seed: u64, epoch: u64) -> Option<Vec<usize>> {
        let mut random = Random::of(mix(seed) ^ epoch);
        let mut shuffled = |mut list: Vec<usize>| {
            if self.shuffle {
                random.shuffle(&mut list);
            }
            list
        };
        let mut chosen = match &self.method {
            SamplingMethod::Every if !self.shuffle => return None,
            SamplingMethod::Every => shuffled((0..self.samples).collect()),
            SamplingMethod::Subset(list) => shuffled(list.to_vec()),
            SamplingMethod::Repeated(times) => {
                let different = self.length.div_ceil(*times);
                let samples = shuffled((0..self.samples).collect()).into_iter().take(different);
                samples
                    .flat_map(|sample| std::iter::repeat_n(sample, *times))
                    .collect()
            }
            SamplingMethod::Sums(sums) => (0..self.length).map(|_| drawn(&mut random, sums)).collect(),
            SamplingMethod::Weights(weights) => drawn_once(&mut random, weights),
        };
        chosen.truncate(self.length);
        Some(chosen)
    }
}

/// How to draw with these weights, the usual number of draws, and the most.
fn weighted(weights: Arc<[f64]>, replacement: bool) -> Result<(SamplingMethod, usize, usize), LoaderError> {
    let refused = |reason: String| Err(LoaderError::Options { reason });
    let bad = weights
        .iter()
        .position(|&weight| !(weight.is_finite() && weight >= 0.0));
    if let Some(sample) = bad {
        return refused(format!(
            "weight {} of sample {sample}: must be 0 or more, and finite",
            weights[sample]
        ));
    }
    let mut sum = 0.0;
    let sums = weights.iter().map(|weight| {
        sum += weight;
        sum
    });
    let sums: Vec<f64> = sums.collect();
    if !sum.is_finite() {
        return refused("the sum of the weights is not finite: give smaller ones".to_owned());
    }
    let above_zero = weights.iter().filter(|&&weight| weight > 0.0).count();
    if above_zero == 0 {
        return refused("all weights are 0: at least one must be above 0".to_owned());
    }
    Ok(match replacement {
        true => (SamplingMethod::Sums(sums), weights.len(), MOST),
        false => (SamplingMethod::Weights(weights), above_zero, above_zero),
    })
}

/// 1 / (samples of the same class), for each sample.
fn balanced(source: &dyn Source) -> Arc<[f64]> {
    let classes: Vec<u32> = (0..source.len()).map(|sample| source.class(sample)).collect();
    let mut counts = std::collections::BTreeMap::new();
    for class in &classes {
        *counts.entry(class).or_insert(0u32) += 1;
    }
    classes
        .iter()
        .map(|class| 1.0 / f64::from(counts[class]))
        .collect()
}

/// A sample, by the sums of the weights.
fn drawn(random: &mut Random, sums: &[f64]) -> usize {
    let total = sums.last().copied().unwrap_or_default();
    // A sample without a weight has the sum of the one before it, so it is passed.
    let sample = |place: f64| sums.partition_point(|&sum| sum <= place);
    match sample(random.unit() * total) {
        // The product was rounded up to the total.
        beyond if beyond == sums.len() => sums.partition_point(|&sum| sum < total),
        sample => sample,
    }
}

/// All samples with a weight, in the order in which they are drawn one after the other from those that are left
/// (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006, as `torch.multinomial` draws): by the
/// times at which exponential clocks with these rates ring.
fn drawn_once(random: &mut Random, weights: &[f64]) -> Vec<usize> {
    let clock = |(sample, &weight): (usize, &f64)| {
        // 1 - unit() is above 0. Each sample takes one number, with a weight or without.
        let time = -(1.0 - random.unit()).ln() / weight;
        (weight > 0.0).then_some((time, sample))
    };
    let mut rung: Vec<(f64, usize)> = weights.iter().enumerate().filter_map(clock).collect();
    rung.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    rung.into_iter().map(|(_, sample)| sample).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use stokehold_storage::{SampleBytes, StorageError};

    use super::*;

    /// Samples of these classes, without images.
    struct Classes(Vec<u32>);

    impl Source for Classes {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn class(&self, sample: usize) -> u32 {
            self.0[sample]
        }

        fn name(&self, sample: usize) -> String {
            sample.to_string()
        }

        fn read(&self, _: usize, _: &mut SampleBytes) -> Result<(), StorageError> {
            unreachable!("nothing is read to choose samples")
        }
    }

    fn chooser(classes: &[u32], sampler: Sampler, epoch_samples: Option<usize>) -> Result<Chooser, String> {
        let options = LoaderOptions {
            sampler,
            epoch_samples,
            ..LoaderOptions::default()
        };
        Chooser::new(&options, &Classes(classes.to_vec())).map_err(|error| error.to_string())
    }

    fn weighted_by(weights: &[f64], replacement: bool) -> Sampler {
        Sampler::Weighted {
            weights: weights.into(),
            replacement,
        }
    }

    /// The default order of `n` samples.
    pub(crate) fn permutation(n: usize, seed: u64, epoch: u64) -> Vec<usize> {
        let chooser = chooser(&vec![0; n], Sampler::Every, None).unwrap();
        chooser.epoch(seed, epoch).unwrap()
    }

    #[test]
    fn epochs_and_seeds_differ_and_repeat() {
        assert_eq!(permutation(100, 1, 2), permutation(100, 1, 2));
        assert_ne!(permutation(100, 1, 2), permutation(100, 1, 3));
        assert_ne!(permutation(100, 1, 2), permutation(100, 2, 2));
        // A seed next to its neighbour must not be the neighbour's epochs shifted by one.
        assert_ne!(permutation(100, 1, 1), permutation(100, 0, 2));
        // Recorded runs are repeated only if this order stays what it is.
        assert_eq!(permutation(8, 0, 0), GOLDEN);
    }

    const GOLDEN: [usize; 8] = [4, 0, 2, 6, 3, 5, 1, 7];

    #[test]
    fn every_permutation_is_equally_likely() {
        // 24 orders of 4 samples over 24,000 epochs: 1,000 each expected. Chi-squared with 23 degrees of freedom
        // stays below 49.7 with probability 0.999; the draws are fixed, so this either holds or does not.
        let mut counts = BTreeMap::new();
        for epoch in 0..24_000 {
            *counts.entry(permutation(4, 7, epoch)).or_insert(0u32) += 1;
        }
        let chi_squared: f64 = counts
            .values()
            .map(|&n| (f64::from(n) - 1000.0).powi(2) / 1000.0)
            .sum();
        assert_eq!(counts.len(), 24);
        assert!(chi_squared < 49.7, "{chi_squared}");
    }

    proptest! {
        #[test]
        fn an_epoch_is_a_function_of_seed_and_epoch_and_has_its_length(
            weights in prop::collection::vec(prop_oneof![Just(0.0), 0.001f64..1000.0], 1..60),
            times in 1usize..5, length in 1usize..80, way in 0usize..7, seed: u64, epoch in 0u64..9,
        ) {
            let n = weights.len();
            let classes: Vec<u32> = (0..n as u32).map(|sample| sample % 3).collect();
            let list: Vec<usize> = (0..n).filter(|&sample| weights[sample] > 0.0).collect();
            let sampler = match way {
                0 => Sampler::Every,
                1 => Sampler::Subset(list.clone().into()),
                2 => Sampler::Repeated(times.try_into().unwrap()),
                3 | 4 => weighted_by(&weights, way == 3),
                _ => Sampler::ClassBalanced { replacement: way == 5 },
            };
            let most = match way {
                0 | 6 => n,
                1 | 4 => list.len(),
                2 => n * times,
                3 if list.is_empty() => 0,
                _ => usize::MAX,
            };
            let chooser = chooser(&classes, sampler, Some(length));
            prop_assert_eq!(chooser.is_ok(), length <= most, "{:?}", chooser);
            let Ok(chooser) = chooser else { return Ok(()) };
            let chosen = chooser.epoch(seed, epoch).unwrap();
            prop_assert_eq!(chosen.len(), length);
            prop_assert!(Some(&chosen) == chooser.epoch(seed, epoch).as_ref());
            let can_choose = chooser.can_choose();
            prop_assert!(chosen.iter().all(|&sample| can_choose(sample)));
            let mut counts = BTreeMap::new();
            chosen.iter().for_each(|sample| *counts.entry(sample).or_insert(0usize) += 1);
            match way {
                // In a row, the last ones perhaps not as often.
                2 => for (number, row) in chosen.chunks(times).enumerate() {
                    prop_assert!(row.iter().all(|sample| *sample == row[0]));
                    prop_assert!(number + 1 == length.div_ceil(times) || counts[&row[0]] == times);
                },
                3 | 5 => {}
                _ => prop_assert!(counts.values().all(|&count| count == 1)),
            }
            if matches!(way, 1 | 3 | 4) {
                prop_assert!(chosen.iter().all(|&sample| weights[sample] > 0.0));
            }
        }
    }

    /// Chi-squared of counts against the shares that are expected.
    fn chi_squared(counts: &[u32], shares: &[f64]) -> f64 {
        let total: u32 = counts.iter().sum();
        let term = |(&count, &share): (&u32, &f64)| {
            let expected = share * f64::from(total);
            if expected == 0.0 {
                assert_eq!(count, 0, "drawn with a weight of 0");
                return 0.0;
            }
            (f64::from(count) - expected).powi(2) / expected
        };
        counts.iter().zip(shares).map(term).sum()
    }

    /// How often each sample was at a place of the epoch, over `epochs` epochs.
    fn counts(chooser: &Chooser, places: std::ops::Range<usize>, epochs: u64) -> Vec<u32> {
        let mut counts = vec![0; chooser.samples];
        for epoch in 0..epochs {
            for &sample in &chooser.epoch(11, epoch).unwrap()[places.clone()] {
                counts[sample] += 1;
            }
        }
        counts
    }

    const WEIGHTS: [f64; 6] = [1.0, 0.0, 2.5, 4.0, 0.5, 2.0];

    // With 4 degrees of freedom, chi-squared stays below 18.5 with probability 0.999; the draws are fixed.
    #[test]
    fn weights_are_the_shares_of_the_draws() {
        let shares = WEIGHTS.map(|weight| weight / 10.0);
        let replaced = chooser(&[0; 6], weighted_by(&WEIGHTS, true), Some(20)).unwrap();
        assert!(chi_squared(&counts(&replaced, 0..20, 1000), &shares) < 18.5);
        let once = chooser(&[0; 6], weighted_by(&WEIGHTS, false), None).unwrap();
        assert_eq!(once.length(), 5);
        assert!(chi_squared(&counts(&once, 0..1, 20_000), &shares) < 18.5);
        // Of what the first draw leaves: the sum over all first draws i of p(i) w(j) / (10 - w(i)).
        let second = |j: usize| {
            let after = |i: usize| WEIGHTS[i] / 10.0 * WEIGHTS[j] / (10.0 - WEIGHTS[i]);
            (0..6).filter(|&i| i != j).map(after).sum::<f64>()
        };
        let shares: Vec<f64> = (0..6).map(second).collect();
        assert!(chi_squared(&counts(&once, 1..2, 20_000), &shares) < 18.5);
    }

    #[test]
    fn balanced_classes_are_equally_likely() {
        // 1, 2 and 7 samples.
        let classes = [0, 1, 1, 2, 2, 2, 2, 2, 2, 2];
        let balanced = chooser(&classes, Sampler::ClassBalanced { replacement: true }, Some(30)).unwrap();
        let counts = counts(&balanced, 0..30, 1000);
        let of_class = |class| (0..10).filter(move |&sample| classes[sample] == class);
        let shares: Vec<f64> = classes
            .iter()
            .map(|&class| 1.0 / 3.0 / of_class(class).count() as f64)
            .collect();
        // 9 degrees of freedom.
        assert!(chi_squared(&counts, &shares) < 27.9);
    }

    #[test]
    fn rejects_samplers_that_do_not_fit_the_source() {
        let refused = |sampler, epoch_samples| chooser(&[0, 0, 1], sampler, epoch_samples).unwrap_err();
        for (sampler, epoch_samples, told) in [
            (
                Sampler::Every,
                Some(4),
                "4 samples in an epoch: must be 1 to 3 where the sampler is every sample",
            ),
            (Sampler::Every, Some(0), "0 samples in an epoch: must be 1 to 3"),
            (
                Sampler::Subset([].into()),
                None,
                "subset: there are no samples in it",
            ),
            (
                Sampler::Subset([2, 3].into()),
                None,
                "subset: sample 3: must be below 3",
            ),
            (
                weighted_by(&[1.0], true),
                None,
                "1 weights: must be 3, one for each sample",
            ),
            (
                weighted_by(&[1.0, -1.0, 1.0], true),
                None,
                "weight -1 of sample 1: must be 0 or more",
            ),
            (
                weighted_by(&[1.0, 1.0, f64::NAN], true),
                None,
                "weight NaN of sample 2",
            ),
            (
                weighted_by(&[f64::MAX; 3], true),
                None,
                "the sum of the weights is not finite",
            ),
            (weighted_by(&[0.0; 3], false), None, "all weights are 0"),
            (
                weighted_by(&[1.0, 0.0, 1.0], false),
                Some(3),
                "3 samples in an epoch: must be 1 to 2",
            ),
            (
                weighted_by(&[1.0; 3], true),
                Some(usize::MAX),
                "must be 1 to 268435456",
            ),
        ] {
            let error = refused(sampler, epoch_samples);
            assert!(error.contains(told), "{error}");
        }
        let options = LoaderOptions {
            sampler: Sampler::ClassBalanced { replacement: true },
            shuffle: false,
            ..LoaderOptions::default()
        };
        let error = Chooser::new(&options, &Classes(vec![0])).unwrap_err().to_string();
        assert!(
            error.contains("class-balanced with replacement draws its order: shuffle must be on"),
            "{error}"
        );
    }
}
