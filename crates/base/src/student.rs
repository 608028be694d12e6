//! Tests whether a difference is more than chance: Student's distribution and Welch's test (B. L. Welch, "The
//! generalization of Student's problem when several different population variances are involved", 1947).

use std::f64::consts::FRAC_PI_2;

/// The significance level of every verdict: how often a chance difference may be reported as a real one.
pub const LEVEL: f64 = 0.05;

/// The variance of the population of a sample of at least two values.
pub fn variance(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)
}

/// The probability that chance alone makes the means of two samples differ as much: Welch's t-test,
/// two-sided. `None` if one of them has fewer than two values, so that its variance is unknown.
pub fn welch(samples: [&[f64]; 2]) -> Option<f64> {
    if samples.iter().any(|values| values.len() < 2) {
        return None;
    }
    let [a, b] = samples.map(|values| values.iter().sum::<f64>() / values.len() as f64);
    let parts = samples.map(|values| {
        let count = values.len() as f64;
        (variance(values) / count, count - 1.0)
    });
    Some(chance(a - b, &parts))
}

/// The probability of a chance difference of at least this size, where its variance is the sum of `parts`:
/// pairs of a variance and its degrees of freedom.
pub fn chance(difference: f64, parts: &[(f64, f64)]) -> f64 {
    let sum: f64 = parts.iter().map(|part| part.0).sum();
    if sum == 0.0 {
        return if difference == 0.0 { 1.0 } else { 0.0 };
    }
    let freedom = sum * sum
        / parts
            .iter()
            .map(|(part, freedom)| part * part / freedom)
            .sum::<f64>();
    two_sided(difference / sum.sqrt(), freedom)
}

/// The probability that Student's t is further from 0 than `t`. With t = sqrt(n) tan x its density is proportional to cos^(n-1) x.
pub fn two_sided(t: f64, freedom: f64) -> f64 {
    // Above this it equals the normal distribution closely enough.
    let freedom = freedom.min(1000.0);
    let density = |x: f64| x.cos().max(0.0).powf(freedom - 1.0);
    let from = (t.abs() / freedom.sqrt()).atan();
    integral(density, from, FRAC_PI_2) / integral(density, 0.0, FRAC_PI_2)
}

/// By Simpson's rule.
fn integral(of: impl Fn(f64) -> f64, from: f64, to: f64) -> f64 {
    const PARTS: usize = 400;
    let step = (to - from) / PARTS as f64;
    let weight = |part: usize| match part {
        0 | PARTS => 1.0,
        odd if odd % 2 == 1 => 4.0,
        _ => 2.0,
    };
    let values = (0..=PARTS).map(|part| weight(part) * of(from + part as f64 * step));
    values.sum::<f64>() * step / 3.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: scipy 1.17, `scipy.stats.ttest_ind(a, b, equal_var=False).pvalue`; equal to 1e-6.
    #[test]
    fn welch_agrees_with_scipy() {
        let a = [27.5, 21.0, 19.0, 23.6, 17.0, 17.9];
        let b = [27.1, 22.0, 20.8, 23.4, 23.4, 23.5, 25.8, 22.0];
        let got = welch([&a, &b]).unwrap();
        assert!((got - 0.201_988_677_353_454_05).abs() < 1e-6, "{got}");
        assert_eq!(welch([&a, &a]), Some(1.0));
        assert_eq!(welch([&a, &[1.0]]), None);
        assert_eq!(welch([&[2.0, 2.0], &[1.0, 1.0]]), Some(0.0));
    }

    /// Oracle: tables of Student's distribution, and its closed forms for one and two degrees of freedom.
    #[test]
    fn the_distribution_is_students() {
        for (t, freedom, p) in [
            (12.7062, 1.0, 0.05),
            (4.30265, 2.0, 0.05),
            (2.77645, 4.0, 0.05),
            (3.49948, 7.0, 0.01),
            (2.22814, 10.0, 0.05),
            (1.0, 1.0, 0.5),
            (1.0, 2.0, 1.0 - 1.0 / 3f64.sqrt()),
            (0.0, 3.5, 1.0),
        ] {
            let got = two_sided(t, freedom);
            assert!(
                (got - p).abs() < 2e-5,
                "t {t}, {freedom} degrees: {got} and not {p}"
            );
            assert_eq!(two_sided(-t, freedom), got);
        }
        // Normal: 0.0455 beyond two standard deviations.
        assert!((two_sided(2.0, 1e9) - 0.0455).abs() < 5e-4);
    }
}
