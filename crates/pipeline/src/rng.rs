//! Random numbers as a function: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
//!
//! A draw is addressed, not taken from a stream: the key is (seed, epoch), the counter (sample, operation, block).
//! So no draw depends on which thread asks, or on what was drawn before.

use crate::DrawKey;

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Ten rounds of Philox on one counter.
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let low = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let high = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [
            (high >> 32) as u32 ^ counter[1] ^ key[0],
            high as u32,
            (low >> 32) as u32 ^ counter[3] ^ key[1],
            low as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// The draws of one operation on one sample.
pub(crate) struct Draws {
    key: [u32; 2],
    counter: [u32; 4],
    block: [u32; 4],
    used: usize,
}

impl Draws {
    /// The draws of the operation numbered `op`.
    pub fn new(key: DrawKey, op: u32) -> Draws {
        // Seed and epoch are mixed into the 64-bit key by a block of their own, so that (seed 1, epoch 0) and
        // (seed 0, epoch 1) have nothing in common.
        let split = |v: u64| [v as u32, (v >> 32) as u32];
        let ([s0, s1], [e0, e1], [i0, i1]) = (split(key.seed), split(key.epoch), split(key.sample));
        let mixed = philox([s0, s1, e0, e1], [0x5354_4F4B, 0x4548_4F4C]);
        Draws {
            key: [mixed[0], mixed[1]],
            counter: [i0, i1, op, 0],
            block: [0; 4],
            used: 4,
        }
    }

    /// Noise addressed by a seed of its own (a seed drawn by [`Draws::bits`]).
    pub fn from_seed(seed: u64) -> Draws {
        Draws::new(
            DrawKey {
                seed,
                epoch: 0,
                sample: 0,
            },
            0,
        )
    }

    fn next_u32(&mut self) -> u32 {
        if self.used == 4 {
            self.block = philox(self.counter, self.key);
            self.counter[3] = self.counter[3].wrapping_add(1);
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        u64::from(self.next_u32()) << 32 | u64::from(self.next_u32())
    }

    /// Evenly from 0 (included) to 1 (excluded), on a grid of 2^-53.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (-53f64).exp2()
    }

    /// Evenly from `low` to `high`.
    pub fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// An integer of 0..`count`, `count` at least 1. The bias of the multiplication is below 2^-32.
    pub fn below(&mut self, count: u32) -> u32 {
        ((u128::from(self.bits()) * u128::from(count)) >> 64) as u32
    }

    /// Puts a list into one of its orders, each as likely as the others (Fisher and Yates).
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i as u32 + 1) as usize);
        }
    }

    /// Shares that sum to 1, from the Dirichlet distribution with `alpha` (above 0) for each of `count`.
    pub fn dirichlet(&mut self, alpha: f64, count: usize) -> Vec<f64> {
        let logs: Vec<f64> = (0..count).map(|_| self.ln_gamma(alpha)).collect();
        // For a small alpha every gamma number may be too small for a float: their logarithms are not.
        let most = logs.iter().copied().fold(f64::MIN, f64::max);
        let shares: Vec<f64> = logs.into_iter().map(|ln| (ln - most).exp()).collect();
        let sum: f64 = shares.iter().sum();
        shares.into_iter().map(|share| share / sum).collect()
    }

    /// The logarithm of a number from the gamma distribution of shape `alpha`, above 0 (Marsaglia and Tsang, "A simple method
    /// for generating gamma variables", 2000).
    fn ln_gamma(&mut self, alpha: f64) -> f64 {
        // For a shape below 1: one more, times a power of an even number.
        let less = if alpha < 1.0 {
            (1.0 - self.unit()).ln() / alpha
        } else {
            0.0
        };
        let d = if alpha < 1.0 { alpha + 1.0 } else { alpha } - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = f64::from(self.normal());
            let v = (1.0 + c * x).powi(3);
            if v > 0.0 && (1.0 - self.unit()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
                return less + (d * v).ln();
            }
        }
    }

    /// Standard normal, by Box and Muller.
    pub fn normal(&mut self) -> f32 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        (radius * (std::f64::consts::TAU * self.unit()).cos()) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers published with Random123 (kat_vectors).
    #[test]
    fn philox_gives_the_published_answers() {
        assert_eq!(
            philox([0; 4], [0; 2]),
            [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
        );
        assert_eq!(
            philox([u32::MAX; 4], [u32::MAX; 2]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
        assert_eq!(
            philox(
                [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
                [0xa409_3822, 0x299f_31d0]
            ),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn unit_draws_are_even_and_below_one() {
        let mut draws = Draws::new(
            DrawKey {
                seed: 1,
                epoch: 2,
                sample: 3,
            },
            4,
        );
        let mut bins = [0u32; 10];
        for _ in 0..100_000 {
            bins[(draws.unit() * 10.0) as usize] += 1;
        }
        // 10,000 expected; five standard deviations are 475.
        assert!(bins.iter().all(|&n| n.abs_diff(10_000) < 475), "{bins:?}");
    }

    /// A share of a Dirichlet distribution of `k` equal alphas has mean 1 / k and variance (k - 1) / (k^2 (k alpha + 1)).
    #[test]
    fn shares_have_the_dirichlet_distribution() {
        for (alpha, k) in [(1.0, 3usize), (0.2, 2), (0.001, 4), (7.5, 5)] {
            let mut draws = Draws::from_seed(4);
            let (mut sum, mut squares, n) = (0.0, 0.0, 40_000);
            for _ in 0..n {
                let shares = draws.dirichlet(alpha, k);
                assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{shares:?}");
                sum += shares[k - 1];
                squares += shares[k - 1].powi(2);
            }
            let (n, count) = (f64::from(n), k as f64);
            let (mean, square) = (sum / n, squares / n);
            let variance = (count - 1.0) / (count * count * (count * alpha + 1.0));
            assert!(
                (mean - 1.0 / count).abs() < 5.0 * (variance / n).sqrt(),
                "{alpha} {k}: {mean}"
            );
            assert!(
                (square - mean * mean - variance).abs() < 0.03 * variance,
                "{alpha} {k}: {square}"
            );
        }
    }

    #[test]
    fn normal_draws_have_mean_0_and_variance_1() {
        let mut draws = Draws::from_seed(9);
        let values: Vec<f64> = (0..100_000).map(|_| f64::from(draws.normal())).collect();
        let mean = values.iter().sum::<f64>() / 1e5;
        let variance = values.iter().map(|v| v * v).sum::<f64>() / 1e5;
        assert!(
            mean.abs() < 0.016 && (variance - 1.0).abs() < 0.022,
            "{mean} {variance}"
        );
    }
}
