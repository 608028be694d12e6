//! Percentiles, defined once.

/// The `p`-th percentile (0 to 100) of `values`, in any order, with linear interpolation between the two nearest
/// ranks: `numpy.percentile`'s default method. `None` when there are no values or `p` is outside 0 to 100.
///
/// NaN sorts last, as in numpy's sort.
pub fn percentile(values: &[f64], p: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    of_sorted(&sorted, p)
}

/// As [`percentile`], for values in ascending order.
pub fn of_sorted(sorted: &[f64], p: f64) -> Option<f64> {
    if sorted.is_empty() || !(0.0..=100.0).contains(&p) {
        return None;
    }
    let rank = p / 100.0 * (sorted.len() - 1) as f64;
    let below = rank.floor() as usize;
    let above = rank.ceil() as usize;
    let share = rank - below as f64;
    Some(sorted[below] + (sorted[above] - sorted[below]) * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: numpy 2, `np.percentile(values, p)`; equal to 1e-12.
    #[test]
    fn agrees_with_numpy() {
        let values = [15.0, 20.0, 35.0, 40.0, 50.0];
        for (p, expected) in [
            (0.0, 15.0),
            (5.0, 16.0),
            (30.0, 23.0),
            (40.0, 29.0),
            (50.0, 35.0),
            (95.0, 48.0),
            (100.0, 50.0),
        ] {
            let got = percentile(&values, p).unwrap();
            assert!(
                (got - expected).abs() < 1e-12,
                "p{p}: {got} instead of {expected}"
            );
        }
    }

    #[test]
    fn nothing_has_no_percentile() {
        assert_eq!(percentile(&[], 50.0), None);
        assert_eq!(percentile(&[1.0], 101.0), None);
        assert_eq!(percentile(&[1.0], f64::NAN), None);
    }
}
