//! Whether one trial is faster than another, by how much, and how sure that is.
//!
//! A pair of rounds gives a ratio: B's seconds per image, divided by A's. B's time is the median of the
//! ratios, and B is better by 1 - median. The interval is that of the sign test: between the k-th smallest and
//! the k-th largest ratio, with the largest k for which chance puts the true median outside at most one time in
//! twenty. It holds for any distribution of the ratios, and for as few as six. Below six pairs there is no such
//! k, nothing is judged, and the range of all ratios is shown.
//!
//! The bootstrap's interval (Efron, "Bootstrap methods: another look at the jackknife", 1979) is no alternative
//! for a median. It lies within this one for every number of pairs that a cell can have, and is too narrow: with
//! 8 pairs, one of ten does not hold the true median.
//!
//! The interval is that of a fixed number of pairs, and of pairs that do not depend on each other. A cell ends when its interval is narrow, which makes it a little too
//! narrow: with the default time limit a verdict is wrong at most one time in twenty (a test simulates it), with the
//! most pairs about one time in fifteen.
//!
//! A difference below one percent is never called one, however sure it is: it makes no difference to a user,
//! and systematic errors of the measurement are of that size.

use serde::{Deserialize, Serialize};
use stokehold_base::stats::percentile;

/// The share of intervals that do not hold the true median.
const LEVEL: f64 = 0.05;
/// Pairs below which nothing is judged: the sign test's least number at [`LEVEL`].
pub(crate) const LEAST_PAIRS: usize = 6;
/// After this many pairs a cell ends: more would not make its interval much narrower.
pub(crate) const MOST_PAIRS: usize = 100;
/// Differences below this are none, percent.
const LEAST_DIFFERENCE: f64 = 1.0;

/// What can be said of a trial next to trial A.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Its rounds are shorter.
    Faster,
    /// Its rounds are longer.
    Slower,
    /// The interval holds zero, the difference is below 1 %, or there are fewer than six pairs.
    CannotBeToldApart,
    /// In some pairs it had other images than trial A.
    NotTheSameWork,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::CannotBeToldApart => "cannot be told apart",
            Self::NotTheSameWork => "not the same work",
        })
    }
}

/// By how much a trial is better than trial A.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gain {
    /// By how many percent its epoch is shorter than A's: the median over the pairs.
    pub better_by: f64,
    /// Lower end of the 95 % interval of `better_by`.
    pub low: f64,
    /// Upper end of it.
    pub high: f64,
    /// The number of pairs.
    pub pairs: usize,
    /// What follows.
    pub verdict: Verdict,
}

impl Gain {
    /// Judges ratios of seconds per image, a trial's divided by trial A's, one for each pair; `None` without a pair.
    pub fn of(ratios: &[f64]) -> Option<Self> {
        let median = percentile(ratios, 50.0)?;
        let (shortest, longest) = interval(ratios);
        let (better_by, low, high) = (percent(median), percent(longest), percent(shortest));
        let verdict = match (ratios.len() >= LEAST_PAIRS, better_by) {
            (true, by) if low > 0.0 && by >= LEAST_DIFFERENCE => Verdict::Faster,
            (true, by) if high < 0.0 && by <= -LEAST_DIFFERENCE => Verdict::Slower,
            _ => Verdict::CannotBeToldApart,
        };
        Some(Self {
            better_by,
            low,
            high,
            pairs: ratios.len(),
            verdict,
        })
    }

    /// The interval's width, percent.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }
}

/// By how many percent a ratio is below 1.
fn percent(ratio: f64) -> f64 {
    100.0 * (1.0 - ratio)
}

/// The interval of the median of the ratios.
fn interval(ratios: &[f64]) -> (f64, f64) {
    let mut sorted = ratios.to_vec();
    sorted.sort_by(f64::total_cmp);
    let k = sign_test(sorted.len());
    (sorted[k], sorted[sorted.len() - 1 - k])
}

/// The largest k, from 0, for which the true median lies below the k-th smallest or above the k-th largest of `n` numbers at
/// most one time in twenty; 0 if there is none.
fn sign_test(n: usize) -> usize {
    // P(at most k of n coins show heads), doubled for both ends.
    let (mut chance, mut sum) = (0.5f64.powi(n as i32), 0.0);
    let mut k = 0;
    loop {
        sum += chance;
        if 2.0 * sum > LEVEL || k + 1 >= n {
            return k.saturating_sub(1);
        }
        chance *= (n - k) as f64 / (k + 1) as f64;
        k += 1;
    }
}

#[cfg(test)]
mod tests {
    use stokehold_base::random::Random;

    use super::*;

    #[test]
    fn the_sign_tests_place_is_that_of_the_tables() {
        // Conover, Practical Nonparametric Statistics, table of the binomial distribution at p = 1/2.
        for (n, k) in [
            (6, 0),
            (8, 0),
            (9, 1),
            (11, 1),
            (12, 2),
            (15, 3),
            (20, 5),
            (25, 7),
        ] {
            assert_eq!(sign_test(n), k, "{n}");
        }
        assert_eq!(sign_test(1), 0);
    }

    #[test]
    fn a_gain_is_the_median_of_the_ratios() {
        let gain = Gain::of(&[0.5, 0.52, 0.51, 0.49, 0.5, 0.9]).unwrap();
        assert!((gain.better_by - 49.5).abs() < 1e-9, "{gain:?}");
        assert_eq!(gain.verdict, Verdict::Faster);
        // With six pairs the interval is that of all ratios.
        assert!(
            (gain.low - 10.0).abs() < 1e-9 && (gain.high - 51.0).abs() < 1e-9,
            "{gain:?}"
        );
        assert_eq!(Gain::of(&[1.5; 6]).unwrap().verdict, Verdict::Slower);
        assert_eq!(Gain::of(&[]), None);
    }

    #[test]
    fn what_is_too_little_is_not_judged() {
        for ratios in [
            &[0.5; 5][..],
            &[0.995; 20],
            &[1.005; 20],
            &[0.9, 0.9, 0.9, 0.9, 0.9, 1.1],
        ] {
            let gain = Gain::of(ratios).unwrap();
            assert_eq!(gain.verdict, Verdict::CannotBeToldApart, "{gain:?}");
        }
    }

    /// A number near 0 that is normally distributed.
    fn normal(random: &mut Random) -> f64 {
        (0..12).map(|_| random.unit()).sum::<f64>() - 6.0
    }

    /// Chance alone: noise that is normal, that has outliers, and that is skewed as by programs that come and go.
    #[test]
    fn chance_is_called_a_difference_in_one_of_twenty_at_most() {
        let mut random = Random::from_state(5);
        for pairs in [6, 7, 8, 10, 14, 20] {
            for kind in 0..3 {
                let called = (0..400).filter(|_| {
                    let ratios: Vec<f64> = (0..pairs)
                        .map(|_| {
                            let noise = normal(&mut random);
                            let noise = match kind {
                                0 => noise,
                                1 if random.unit() < 0.2 => 5.0 * noise,
                                1 => noise,
                                // Its median is 1, not its mean.
                                _ if noise > 0.0 => 3.0 * noise,
                                _ => noise,
                            };
                            (1.0 + 0.05 * noise).max(0.1)
                        })
                        .collect();
                    Gain::of(&ratios).unwrap().verdict != Verdict::CannotBeToldApart
                });
                let called = called.count();
                assert!(called <= 32, "{called} of 400 with {pairs} pairs of noise {kind}");
            }
        }
    }

    /// As a cell is measured: until the interval is narrow, or 14 pairs are there, which is what the default time limit allows.
    #[test]
    fn ending_when_the_interval_is_narrow_does_not_make_differences() {
        let mut random = Random::from_state(6);
        for noise in [0.01, 0.02, 0.04, 0.1] {
            let called = (0..400).filter(|_| {
                let mut ratios = Vec::new();
                loop {
                    ratios.push((1.0 + noise * normal(&mut random)).max(0.1));
                    let gain = Gain::of(&ratios).unwrap();
                    if ratios.len() >= LEAST_PAIRS && (gain.width() < 5.0 || ratios.len() >= 14) {
                        return gain.verdict != Verdict::CannotBeToldApart;
                    }
                }
            });
            let called = called.count();
            assert!(called <= 32, "{called} of 400 with noise of {noise}");
        }
    }

    #[test]
    fn a_difference_that_is_there_is_found() {
        let mut random = Random::from_state(9);
        let mut found = |share: f64, pairs: usize| {
            let found = (0..100).filter(|_| {
                let ratios: Vec<f64> = (0..pairs)
                    .map(|_| share * (1.0 + 0.03 * normal(&mut random)))
                    .collect();
                Gain::of(&ratios).unwrap().verdict == Verdict::Faster
            });
            found.count()
        };
        assert!(found(0.6, 6) == 100);
        assert!(found(0.9, 10) > 95);
        assert!(found(0.99, 10) < 50);
    }
}
