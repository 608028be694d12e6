//! Percentiles of columns.

use serde_json::{Value, json};
use stokehold_base::stats::of_sorted;
use stokehold_profile::{Node, Series, dimension};

/// Values in ascending order, without NaN.
#[derive(Default)]
pub(super) struct Sorted(Vec<f64>);

impl Sorted {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().filter(|value| !value.is_nan()).collect();
        values.sort_unstable_by(f64::total_cmp);
        Self(values)
    }

    pub fn of_column(values: &[f32]) -> Self {
        Self::of(values.iter().map(|value| f64::from(*value)))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A percentile as in numpy; 0 if there are no values.
    pub fn p(&self, p: f64) -> f64 {
        of_sorted(&self.0, p).unwrap_or(0.0)
    }

    /// The figures of a box plot, with the names of the published JSON: the quartiles, the 95th percentile,
    /// and whiskers that reach 1.5 times the distance of the quartiles, or to the last value if that is
    /// nearer.
    pub fn box_plot(&self) -> Value {
        let (p25, p75) = (self.p(25.0), self.p(75.0));
        let reach = 1.5 * (p75 - p25);
        json!({
            "p25": p25,
            "p50": self.p(50.0),
            "p75": p75,
            "p95": self.p(95.0),
            "upper": (p75 + reach).min(self.p(100.0)),
            "lower": (p25 - reach).max(self.p(0.0)),
        })
    }
}

/// The mean and the standard deviation of all values (divided by n, as in numpy); zeros if there are none.
pub(super) fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let count = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / count).sqrt())
}

/// Counts finite values in bins of equal width from the smallest to the largest, and returns the counts and
/// the bins' edges, as numpy's `histogram`: the last bin includes its upper edge. If all values are equal,
/// the bins span half below to half above; if there are none, 0 to 1.
pub(super) fn histogram(values: &[f64], bins: usize) -> (Vec<u64>, Vec<f64>) {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let (low, high) = match () {
        () if values.is_empty() => (0.0, 1.0),
        () if least == most => (least - 0.5, most + 0.5),
        () => (least, most),
    };
    let edge = |at: usize| low + (high - low) * at as f64 / bins as f64;
    let mut edges: Vec<f64> = (0..=bins).map(edge).collect();
    edges[bins] = high;
    let mut counts = vec![0; bins];
    for value in values {
        let place = ((value - low) / (high - low) * bins as f64) as usize;
        counts[place.min(bins - 1)] += 1;
    }
    (counts, edges)
}

/// At every tick of a node, the sum of the values of the matching series, and their number.
pub(super) fn sums(node: &Node, belongs: impl Fn(&Series) -> bool) -> Vec<(f64, u32)> {
    let mut sums = vec![(0f64, 0u32); node.ticks.len()];
    for series in node.series.iter().filter(|series| belongs(series)) {
        for (sum, &value) in sums.iter_mut().zip(&series.values) {
            if !value.is_nan() {
                *sum = (sum.0 + f64::from(value), sum.1 + 1);
            }
        }
    }
    sums
}

/// At every tick of a node, the mean of the matching series; NaN if none has a value.
pub(super) fn mean_column(node: &Node, belongs: impl Fn(&Series) -> bool) -> Vec<f32> {
    // 0 / 0 is NaN.
    let mean = |(sum, count): (f64, u32)| (sum / f64::from(count)) as f32;
    sums(node, belongs).into_iter().map(mean).collect()
}

/// At every tick of a node, the run's average use of the cores, percent; the use by all programs, if the
/// recording does not tell them apart.
pub(super) fn cores_column(node: &Node) -> Vec<f32> {
    match node.core_use() {
        Some(used) => used.shares(used.run),
        None => mean_column(node, |series| series.dimension == dimension::CPU),
    }
}

/// With two decimals.
pub(super) fn two_decimals(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: numpy 2, `np.quantile([1, 2, 3, 4, 52], ..)`.
    #[test]
    fn whiskers_end_at_values_or_at_their_reach() {
        let plot = Sorted::of([52.0, f64::NAN, 3.0, 1.0, 2.0, 4.0]).box_plot();
        assert_eq!(
            plot,
            json!({"p25": 2.0, "p50": 3.0, "p75": 4.0, "p95": 42.39999999999999, "upper": 7.0, "lower": 1.0})
        );
        assert_eq!(Sorted::default().p(50.0), 0.0);
    }
}
