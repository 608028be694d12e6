//! Weights as integers.

/// Above this many weights the rounding error is carried forward, else it goes to the largest: many small weights would all be rounded the
/// same way.
const MOST_ROUNDED: usize = 512;

/// Weights that sum to `sum` as integers that sum to `one`, so that a flat image stays flat.
pub(crate) fn quantize(weights: &[f64], sum: f64, one: i32, mut put: impl FnMut(usize, i16)) {
    // Multiplied before it is divided, so that whole weights are rounded as exact quotients are (`Triangle` says why).
    let share = |weight: &f64| weight * f64::from(one) / sum;
    if weights.len() > MOST_ROUNDED {
        let (mut reached, mut given) = (0.0, 0);
        for (i, weight) in weights.iter().enumerate() {
            reached += share(weight);
            let upto = reached.round() as i32;
            put(i, (upto - given) as i16);
            given = upto;
        }
        return;
    }
    let narrow = |weight: i32| weight.min(i32::from(i16::MAX)) as i16;
    let (mut left, mut largest) = (one, (0, i32::MIN));
    for (i, weight) in weights.iter().enumerate() {
        let exact = share(weight);
        let value = (exact + 0.5f64.copysign(exact)) as i32;
        left -= value;
        if value > largest.1 {
            largest = (i, value);
        }
        put(i, narrow(value));
    }
    put(largest.0, narrow(largest.1 + left));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However small they are: none is far from what it should be, and they sum to one.
    #[test]
    fn many_weights_stay_what_they_are() {
        for count in [3, 512, 513, 5_000, 100_000, 1 << 20] {
            let weights: Vec<f64> = (0..count)
                .map(|i| 1.0 + (i as f64 / count as f64 - 0.5).abs())
                .collect();
            let sum: f64 = weights.iter().sum();
            let exact: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
            let mut made = vec![0i16; count];
            quantize(&weights, sum, 1 << 13, |i, weight| made[i] = weight);
            assert_eq!(made.iter().map(|&weight| i32::from(weight)).sum::<i32>(), 1 << 13);
            // The first half weighs what it should.
            let half = |weights: &[f64]| weights[..count / 2].iter().sum::<f64>();
            let made: Vec<f64> = made
                .iter()
                .map(|&weight| f64::from(weight) / f64::from(1 << 13))
                .collect();
            assert!(
                (half(&made) - half(&exact)).abs() < 0.01,
                "{count}: {} {}",
                half(&made),
                half(&exact)
            );
        }
    }
}
