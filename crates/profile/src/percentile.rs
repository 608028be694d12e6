//! The percentiles that recordings and reports show.

use serde::{Deserialize, Serialize};
use stokehold_base::stats::of_sorted;

/// The three percentiles that reports show.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// 95 % of the values are at most this.
    pub p95: f64,
    /// 99 % of the values are at most this.
    pub p99: f64,
}

impl Percentiles {
    /// The percentiles of `values`; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        Some(Self {
            p50: of_sorted(&sorted, 50.0)?,
            p95: of_sorted(&sorted, 95.0)?,
            p99: of_sorted(&sorted, 99.0)?,
        })
    }
}

/// A histogram of percentages in steps of a tenth: percentiles of any number of values in constant memory.
pub(crate) struct Histogram {
    counts: Box<[u64; 1001]>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: Box::new([0; 1001]),
            total: 0,
        }
    }
}

impl Histogram {
    pub fn add(&mut self, percent: f64) {
        self.counts[(percent * 10.0).round().clamp(0.0, 1000.0) as usize] += 1;
        self.total += 1;
    }

    /// As [`Percentiles::of`], of the values rounded to a tenth.
    pub fn percentiles(&self) -> Option<Percentiles> {
        let value = |rank: u64| {
            let mut before = 0;
            let bin = self.counts.iter().position(|count| {
                before += count;
                before > rank
            });
            bin.map(|bin| bin as f64 / 10.0)
        };
        let of = |p: f64| {
            let rank = p / 100.0 * self.total.checked_sub(1)? as f64;
            let (below, above) = (value(rank.floor() as u64)?, value(rank.ceil() as u64)?);
            Some(below + (above - below) * rank.fract())
        };
        Some(Percentiles {
            p50: of(50.0)?,
            p95: of(95.0)?,
            p99: of(99.0)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: numpy 2, `np.percentile(values, p)`; equal to 1e-12.
    #[test]
    fn agrees_with_numpy() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        let got = Percentiles::of(&hundred).unwrap();
        for (got, expected) in [(got.p50, 50.5), (got.p95, 95.05), (got.p99, 99.01)] {
            assert!((got - expected).abs() < 1e-12, "{got} instead of {expected}");
        }
    }

    proptest::proptest! {
        /// Oracle: the percentiles of all values.
        #[test]
        fn a_histogram_has_the_percentiles_of_its_values(tenths in proptest::collection::vec(0..=1000u32, 0..200)) {
            let values: Vec<f64> = tenths.iter().map(|tenth| f64::from(*tenth) / 10.0).collect();
            let mut histogram = Histogram::default();
            values.iter().for_each(|value| histogram.add(*value));
            let of = |p: Option<Percentiles>| p.map(|p| [p.p50, p.p95, p.p99].map(|x| (x * 1e6).round()));
            proptest::prop_assert_eq!(of(histogram.percentiles()), of(Percentiles::of(&values)));
        }
    }

    #[test]
    fn one_value_is_every_percentile() {
        assert_eq!(
            Percentiles::of(&[7.0]),
            Some(Percentiles {
                p50: 7.0,
                p95: 7.0,
                p99: 7.0
            })
        );
    }
}
