//! Estimates the length of samples that were recorded without one.

/// After a gap of more than this many usual lengths, the sampler was off or delayed, and its counters cover a
/// usual length.
const GAP: f64 = 2.5;
/// The number of neighbours that determine the usual length.
const NEIGHBOURS: usize = 5;

/// The lengths of samples taken at `times`, ascending: each from the sample before. For the first sample and
/// after a gap, it is the usual length of the samples that follow, because the interval may have changed
/// meanwhile, or of those before if none follow; for a single sample, 0.
pub fn between(times: &[f64]) -> Vec<f64> {
    let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let usual = median(&gaps).unwrap_or(0.0);
    let thereabouts = |at: usize| {
        let neighbours = match &gaps[at..] {
            [] => &gaps[at.saturating_sub(1 + NEIGHBOURS)..at.saturating_sub(1)],
            following => &following[..following.len().min(NEIGHBOURS)],
        };
        median(neighbours).unwrap_or(usual)
    };
    let length = |at: usize| match at.checked_sub(1).map(|before| gaps[before]) {
        Some(gap) if gap <= GAP * usual || gap <= GAP * thereabouts(at) => gap,
        _ => thereabouts(at),
    };
    (0..times.len()).map(length).collect()
}

/// The median; of an even number of values the lower of the two in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    let middle = values.len().checked_sub(1)? / 2;
    Some(*values.select_nth_unstable_by(middle, f64::total_cmp).1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_no_length() {
        assert_eq!(between(&[]), [0.0; 0]);
        assert_eq!(between(&[7.0]), [0.0]);
        assert_eq!(between(&[1.0, 1.5, 2.0, 60.0, 60.5]), [0.5; 5]);
        assert_eq!(between(&[1.0, 2.0, 3.0, 7.0]), [1.0; 4]);
        // Somewhat late is no gap.
        assert_eq!(between(&[1.0, 2.0, 4.0, 5.0]), [1.0, 1.0, 2.0, 1.0]);
    }

    #[test]
    fn a_longer_interval_is_no_gap() {
        let mut times: Vec<f64> = (0..100).map(|tick| tick as f64 / 2.0).collect();
        times.extend((1..=10).map(|tick| 100.0 + 5.0 * tick as f64));
        let lengths = between(&times);
        assert_eq!(lengths[..100], [0.5; 100]);
        assert_eq!(lengths[100..], [5.0; 10]);
    }
}
