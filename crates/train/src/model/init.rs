//! Initial weights as a function of the seed.
//!
//! Burn draws from one generator of the process, so a model's initial weights would depend on what was drawn
//! before. Here every array has its own counter-based stream, keyed by (seed, index of the array): two
//! trials, two devices and a repeated run start from the same bits. Weights that a file will replace are not drawn.

use stokehold_base::random::mix;

/// The streams of one model, one per array in the order of construction.
pub(super) struct Draws {
    /// `None` for zeros.
    seed: Option<u64>,
    arrays: u64,
}

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed: Some(seed),
            arrays: 0,
        }
    }

    /// Zeros, of which an array takes a thousandth of the time.
    pub(super) fn zeros() -> Self {
        Self {
            seed: None,
            arrays: 0,
        }
    }

    /// `len` draws from a normal distribution of mean 0.
    pub(super) fn normal(&mut self, len: usize, deviation: f64) -> Vec<f32> {
        let Some(key) = self.next_key() else {
            return vec![0.0; len];
        };
        (0..len as u64)
            .map(|i| (standard_normal(key, i) * deviation) as f32)
            .collect()
    }

    /// `len` draws, uniform in `[-bound, bound)`.
    pub(super) fn uniform(&mut self, len: usize, bound: f64) -> Vec<f32> {
        let Some(key) = self.next_key() else {
            return vec![0.0; len];
        };
        (0..len as u64)
            .map(|i| ((2.0 * unit(key, i) - 1.0) * bound) as f32)
            .collect()
    }

    fn next_key(&mut self) -> Option<u64> {
        self.arrays += 1;
        self.seed.map(|seed| mix(mix(seed).wrapping_add(self.arrays)))
    }
}

/// Box and Muller's transform of two uniform draws.
fn standard_normal(key: u64, index: u64) -> f64 {
    let radius = (-2.0 * (1.0 - unit(key, 2 * index)).ln()).sqrt();
    let angle = std::f64::consts::TAU * unit(key, 2 * index + 1);
    radius * angle.cos()
}

/// Uniform in `[0, 1)` with 53 random bits.
fn unit(key: u64, counter: u64) -> f64 {
    let bits = mix(key.wrapping_add(counter.wrapping_mul(GOLDEN)));
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(draws: &[f32]) -> (f64, f64) {
        let n = draws.len() as f64;
        let mean = draws.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        let var = draws.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
        (mean, var)
    }

    #[test]
    fn normal_draws_have_the_moments_and_tails_of_a_normal_distribution() {
        let draws = Draws::new(3).normal(200_000, 0.5);
        let (mean, var) = moments(&draws);
        assert!(mean.abs() < 0.005, "mean {mean}");
        assert!((var - 0.25).abs() < 0.005, "variance {var}");
        let beyond_two = draws.iter().filter(|x| x.abs() > 1.0).count() as f64 / draws.len() as f64;
        assert!(
            (beyond_two - 0.0455).abs() < 0.002,
            "beyond two deviations {beyond_two}"
        );
    }

    #[test]
    fn uniform_draws_fill_their_range() {
        let draws = Draws::new(3).uniform(200_000, 0.2);
        let (mean, var) = moments(&draws);
        assert!(
            mean.abs() < 0.001 && (var - 0.04 / 3.0).abs() < 0.0002,
            "mean {mean} variance {var}"
        );
        assert!(draws.iter().all(|x| (-0.2..=0.2).contains(x)));
    }

    #[test]
    fn arrays_and_seeds_differ_and_repeat() {
        let two = |seed| {
            let mut draws = Draws::new(seed);
            (draws.normal(8, 1.0), draws.normal(8, 1.0))
        };
        assert_eq!(two(7), two(7));
        assert_ne!(two(7).0, two(7).1);
        assert_ne!(two(7).0, two(8).0);
    }
}
