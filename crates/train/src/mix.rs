//! MixUp and CutMix: training on mixtures of the images of a batch, with their classes in the same shares.
//!
//! Every image is mixed with the one before it in the batch, the first with the last, as torchvision's
//! `v2.MixUp` and `v2.CutMix` do. With `--aug-repeats K` it is the one K places before: nearer ones are the
//! same image. The batch is mixed on the device that trains, after it has left the loader,
//! so it costs the loader nothing and is the same for every executor.
//!
//! One share for the whole batch is drawn from Beta(alpha, alpha). With both, one of the two is chosen for
//! each batch with equal chances, as torchvision's `v2.RandomChoice([CutMix(), MixUp()])`.
//!
//! - MixUp (Zhang et al., "mixup: beyond empirical risk minimization", 2018): `share x image + (1 - share) x other`.
//! - CutMix (Yun et al., "CutMix: regularization strategy to train strong classifiers", 2019): a rectangle of
//!   `1 - share` of the area, around a uniform centre, is the other image's. It is cut at the border, and the
//!   share becomes that of the pixels that remain.
//!
//! A draw is a function of the run's seed and the step, so a resumed run mixes as an uninterrupted one.

use std::ops::Range;

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};
use stokehold_base::random::{Random, mix};

/// Keeps these draws apart from others of the same seed.
const KEY: u64 = 0x6d69_7875_7063_7574;

/// How batches are mixed: the alpha of each way, 0 to leave it out. At most 4.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// MixUp's alpha.
    pub mixup_alpha: f64,
    /// CutMix's alpha.
    pub cutmix_alpha: f64,
}

/// How one batch is mixed.
#[derive(Debug, Clone, PartialEq)]
pub enum Mixture {
    /// It is not.
    None,
    /// MixUp: this share is the image's own.
    MixUp(f64),
    /// CutMix: a rectangle is the other image's.
    CutMix {
        /// Rows of the rectangle.
        rows: Range<usize>,
        /// Columns of the rectangle.
        columns: Range<usize>,
        /// Of the pixels, the share that is the image's own.
        share: f64,
    },
}

impl Mix {
    /// The largest alpha. Recipes use 0.1 to 1; a draw takes 70 attempts at 4 and 184,756 at 10.
    pub(crate) const MOST: f64 = 4.0;

    /// Whether anything is mixed.
    pub fn mixes(&self) -> bool {
        self.mixup_alpha > 0.0 || self.cutmix_alpha > 0.0
    }

    /// The mixture of a step's batch of images of this height and width.
    pub fn draw(&self, seed: u64, step: u64, [height, width]: [usize; 2]) -> Mixture {
        let mut random = Random::of(mix(mix(seed ^ KEY) ^ step));
        let cut = match (self.mixup_alpha > 0.0, self.cutmix_alpha > 0.0) {
            (false, false) => return Mixture::None,
            (true, true) => random.below(2) == 1,
            (_, cut) => cut,
        };
        if !cut {
            return Mixture::MixUp(beta(&mut random, self.mixup_alpha));
        }
        let share = beta(&mut random, self.cutmix_alpha);
        let half = 0.5 * (1.0 - share).sqrt();
        let mut within = |size: usize| {
            let centre = random.below(size as u64) as usize;
            let half = (half * size as f64) as usize;
            centre.saturating_sub(half)..(centre + half).min(size)
        };
        let (columns, rows) = (within(width), within(height));
        let pixels = (height * width) as f64;
        Mixture::CutMix {
            share: 1.0 - (rows.len() * columns.len()) as f64 / pixels,
            rows,
            columns,
        }
    }
}

impl Mixture {
    /// The mixed images, [N, 3, H, W], each with the one that is `distance` places before it.
    pub fn images(&self, images: Tensor<4>, distance: usize) -> Tensor<4> {
        match self {
            Self::None => images,
            Self::MixUp(share) => {
                let others = before(images.clone(), distance);
                images.mul_scalar(*share as f32) + others.mul_scalar((1.0 - share) as f32)
            }
            Self::CutMix { rows, columns, .. } if rows.is_empty() || columns.is_empty() => images,
            Self::CutMix { rows, columns, .. } => {
                let [n, channels, ..] = images.dims();
                let part = [0..n, 0..channels, rows.clone(), columns.clone()];
                let others = before(images.clone(), distance).slice(part.clone());
                images.slice_assign(part, others)
            }
        }
    }

    /// The share of each class in each mixed image, N x `classes`, with the same `distance`.
    pub fn classes(&self, labels: &[u32], classes: usize, distance: usize) -> Vec<f32> {
        let share = match self {
            Self::None => 1.0,
            Self::MixUp(share) | Self::CutMix { share, .. } => *share,
        };
        let mut shares = vec![0.0; labels.len() * classes];
        let distance = distance.checked_rem(labels.len()).unwrap_or(0);
        let others = labels.iter().cycle().skip(labels.len() - distance);
        for ((image, &label), &other) in shares.chunks_mut(classes).zip(labels).zip(others) {
            image[other as usize] += (1.0 - share) as f32;
            image[label as usize] += share as f32;
        }
        shares
    }
}

/// For each image of a batch the one that is `distance` places before it; from the first on to the last.
fn before(images: Tensor<4>, distance: usize) -> Tensor<4> {
    let n = images.dims()[0];
    let distance = distance % n;
    if distance == 0 {
        return images;
    }
    let rest = n - distance;
    let (last, rest) = (
        images.clone().narrow(0, rest, distance),
        images.narrow(0, 0, rest),
    );
    Tensor::cat(vec![last, rest], 0)
}

/// A draw from Beta(alpha, alpha), for `alpha` above 0 (Jöhnk, "Erzeugung von betaverteilten und
/// gammaverteilten Zufallszahlen", 1964).
fn beta(random: &mut Random, alpha: f64) -> f64 {
    loop {
        // 1 - unit() is above 0.
        let [x, y] = [(); 2].map(|()| (1.0 - random.unit()).ln() / alpha);
        let (one, other) = (x.exp(), y.exp());
        if one + other > 1.0 {
            continue;
        }
        // x / (x + y) from the logarithms, which a small alpha does not make 0.
        return 1.0 / (1.0 + (y - x).exp());
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, TensorData};

    use super::*;

    const BOTH: Mix = Mix {
        mixup_alpha: 0.2,
        cutmix_alpha: 1.0,
    };

    /// The largest distance of the drawn distribution from the one that is expected (Kolmogorov, Smirnov).
    fn apart(alpha: f64, expected: impl Fn(f64) -> f64) -> f64 {
        let mut random = Random::of(3);
        let mut drawn: Vec<f64> = (0..20_000).map(|_| beta(&mut random, alpha)).collect();
        drawn.sort_by(f64::total_cmp);
        let n = drawn.len() as f64;
        let distance = |(place, &x): (usize, &f64)| {
            let below = [place, place + 1].map(|place| place as f64 / n);
            below
                .map(|below| (below - expected(x)).abs())
                .into_iter()
                .fold(0.0, f64::max)
        };
        drawn.iter().enumerate().map(distance).fold(0.0, f64::max)
    }

    #[test]
    fn shares_have_the_beta_distribution() {
        // 1.95 / sqrt(20000): one of a thousand samples is further apart.
        let bound = 0.0138;
        assert!(apart(1.0, |x| x) < bound);
        // The arcsine distribution.
        let arcsine = |x: f64| 2.0 / std::f64::consts::PI * x.sqrt().asin();
        assert!(apart(0.5, arcsine) < bound);
        // 3 x² - 2 x³
        assert!(apart(2.0, |x| x * x * (3.0 - 2.0 * x)) < bound);
        let mut random = Random::of(4);
        for _ in 0..1000 {
            assert!((0.0..=1.0).contains(&beta(&mut random, 0.001)));
            assert!((0.0..=1.0).contains(&beta(&mut random, Mix::MOST)));
        }
    }

    #[test]
    fn a_draw_is_a_function_of_seed_and_step() {
        let draw = |seed, step| BOTH.draw(seed, step, [32, 48]);
        assert_eq!(draw(1, 7), draw(1, 7));
        let steps: Vec<Mixture> = (0..1000).map(|step| draw(1, step)).collect();
        assert!((0..1000).any(|step| draw(2, step) != steps[step as usize]));
        let mixed_up = steps
            .iter()
            .filter(|mixture| matches!(mixture, Mixture::MixUp(_)));
        // Both with equal chances: 500 and 5 standard deviations.
        assert!(mixed_up.count().abs_diff(500) < 79);
        assert_eq!(Mix::default().draw(1, 1, [32, 32]), Mixture::None);
    }

    #[test]
    fn a_cut_is_within_the_image_and_its_share_is_that_of_the_pixels() {
        let cut = Mix {
            mixup_alpha: 0.0,
            ..BOTH
        };
        let mut shares = Vec::new();
        for step in 0..2000 {
            let Mixture::CutMix { rows, columns, share } = cut.draw(9, step, [20, 30]) else {
                panic!("cutmix alone was asked for")
            };
            assert!(
                rows.start <= rows.end && rows.end <= 20 && columns.start <= columns.end && columns.end <= 30
            );
            let cut = (rows.len() * columns.len()) as f64 / 600.0;
            assert!((share - (1.0 - cut)).abs() < 1e-12);
            shares.push(share);
        }
        // E[1 - share], with half the side r = 0.5 sqrt(u) of a uniform u, and the centre uniform: of each side
        // (2r - r²) is left on average, so it is E[(s - s² / 4)²] with s = sqrt(u), which is 1/2 - 1/5 + 1/48 = 0.3208.
        let mean = 1.0 - shares.iter().sum::<f64>() / shares.len() as f64;
        assert!((mean - 0.3208).abs() < 0.03, "{mean}");
    }

    #[test]
    fn images_and_classes_are_mixed_alike() {
        let device = Device::flex();
        let images = |values: Vec<f32>| {
            let shape = [values.len() / 4, 1, 2, 2];
            Tensor::<4>::from_data(TensorData::new(values, shape), &device)
        };
        let numbers = |images: Tensor<4>| crate::device::read(images).unwrap();
        let batch = images((0..12).map(|x| x as f32).collect());
        let mixed = Mixture::MixUp(0.75).images(batch.clone(), 1);
        // 0.75 of the first image, 0.25 of the last.
        assert_eq!(numbers(mixed)[..5], [2.0, 3.0, 4.0, 5.0, 3.0]);
        let cut = Mixture::CutMix {
            rows: 1..2,
            columns: 0..1,
            share: 0.75,
        };
        assert_eq!(
            numbers(cut.images(batch.clone(), 1))[..8],
            [0.0, 1.0, 10.0, 3.0, 4.0, 5.0, 2.0, 7.0]
        );
        assert_eq!(
            cut.classes(&[0, 2, 0], 3, 1),
            [1.0, 0.0, 0.0, 0.25, 0.0, 0.75, 0.75, 0.0, 0.25]
        );
        // Two places before: the second image with the last, the third with the first.
        let mixed = numbers(Mixture::MixUp(0.75).images(batch.clone(), 2));
        assert_eq!((mixed[4], mixed[8]), (5.0, 6.0));
        assert_eq!(
            Mixture::MixUp(0.75).classes(&[0, 2, 1], 3, 2)[3..],
            [0.0, 0.25, 0.75, 0.25, 0.75, 0.0]
        );
        // A batch of one is mixed with itself.
        let one = images(vec![1.0, 2.0, 3.0, 4.0]);
        assert_eq!(numbers(Mixture::MixUp(0.3).images(one, 1)), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(Mixture::MixUp(0.3).classes(&[1], 2, 1), [0.0, 1.0]);
        assert_eq!(numbers(Mixture::None.images(batch.clone(), 1)), numbers(batch));
    }
}
