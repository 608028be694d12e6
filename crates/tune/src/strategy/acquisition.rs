//! The expected improvement of a trial at a point on the best one, and where it is largest.

use crate::random::Random;
use crate::space::{Domain, Space};
use crate::strategy::Observed;
use crate::strategy::gaussian::Gaussian;
use crate::strategy::minimise::minimise;

/// Coordinates for the process: a parameter that does not exist is at the centre, or a category of its own.
pub(crate) fn features(space: &Space, point: &[f64]) -> Vec<f64> {
    let feature = |(dim, x): (&crate::space::Dim, &f64)| match (&dim.domain, x.is_nan()) {
        (_, false) => *x,
        (Domain::Categorical { .. }, true) => -1.0,
        (Domain::Continuous { .. } | Domain::Integer { .. }, true) => 0.5,
    };
    space.dims().iter().zip(point).map(feature).collect()
}

/// The number of points drawn uniformly, and of points near each of the best results.
const DRAWN: usize = 768;
const BESIDE: usize = 48;
const BESTS: usize = 6;

/// At most this many of the most promising points are improved by ascent.
const STARTS: usize = 8;

/// An integer with more values than this is searched as a continuous parameter and then rounded.
const FEW: u64 = 12;

/// The logarithm of the expected improvement (Ament and others 2023), on the process's scale.
pub(crate) struct Improvement<'a> {
    pub process: &'a Gaussian,
    /// The best loss.
    pub best: f64,
}

impl Improvement<'_> {
    pub fn at(&self, x: &[f64]) -> f64 {
        let (mean, variance) = self.process.at(x);
        let deviation = variance.sqrt();
        log_improvement((self.best - mean) / deviation).0 + deviation.ln()
    }

    /// The probability of a loss below `loss`.
    pub fn probability(&self, x: &[f64], loss: f64) -> f64 {
        let (mean, variance) = self.process.at(x);
        below((loss - mean) / variance.sqrt())
    }

    fn slopes(&self, x: &[f64], gradient: &mut [f64]) -> f64 {
        let (mean, variance, by_mean, by_variance) = self.process.slopes(x);
        let deviation = variance.sqrt();
        let z = (self.best - mean) / deviation;
        let (value, slope) = log_improvement(z);
        for j in 0..gradient.len() {
            let by_deviation = by_variance[j] / (2.0 * deviation);
            gradient[j] = (-slope * by_mean[j] + (1.0 - slope * z) * by_deviation) / deviation;
        }
        value + deviation.ln()
    }
}

/// The logarithm of the expected excess of a standard normal over -z, and its derivative.
fn log_improvement(z: f64) -> (f64, f64) {
    let log_density = -0.5 * z * z - 0.5 * std::f64::consts::TAU.ln();
    if z > -25.0 {
        let excess = log_density.exp() + z * below(z);
        return (excess.ln(), below(z) / excess);
    }
    // The first terms of its expansion for large -z.
    (log_density - 2.0 * (-z).ln(), -z + 2.0 / -z)
}

/// The probability that a standard normal is below z.
fn below(z: f64) -> f64 {
    0.5 * libm::erfc(-z * std::f64::consts::FRAC_1_SQRT_2)
}

/// The most promising points, the best first, each with its value.
pub(crate) fn maximise(
    improvement: &Improvement<'_>,
    space: &Space,
    observed: &Observed,
    random: &mut Random,
) -> Vec<(Vec<f64>, f64)> {
    let mut candidates: Vec<Vec<f64>> = (0..DRAWN).map(|_| space.draw(random)).collect();
    let mut order: Vec<usize> = (0..observed.points.len()).collect();
    order.sort_by(|a, b| observed.losses[*a].total_cmp(&observed.losses[*b]));
    for best in order.iter().take(BESTS) {
        candidates.extend((0..BESIDE).map(|_| beside(space, &observed.points[*best], random)));
    }
    let mut scored: Vec<(Vec<f64>, f64)> = candidates
        .into_iter()
        .map(|point| {
            let value = improvement.at(&features(space, &point));
            (point, value)
        })
        .collect();
    scored.sort_by(|a, b| b.1.total_cmp(&a.1));
    // The best ones, without two that obviously lead to the same maximum.
    let mut starts: Vec<(Vec<f64>, f64)> = Vec::new();
    for (point, value) in &scored {
        let far = |other: &(Vec<f64>, f64)| {
            let squares = other.0.iter().zip(point).map(|(a, b)| (a - b) * (a - b));
            squares.filter(|square| !square.is_nan()).sum::<f64>() > 0.01
        };
        if starts.len() < STARTS && starts.iter().all(far) {
            starts.push((point.clone(), *value));
        }
    }
    let mut found: Vec<(Vec<f64>, f64)> = starts
        .into_iter()
        .map(|(point, value)| climb(improvement, space, point, value))
        .chain(scored)
        .collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1));
    found
}

/// A point near another one: some parameters are changed a little, or a lot.
fn beside(space: &Space, point: &[f64], random: &mut Random) -> Vec<f64> {
    let width = 10_f64.powf(-0.7 - 2.3 * random.unit());
    let share = 0.2 + 0.8 * random.unit();
    let there = space.dims().iter().zip(point).map(|(dim, x)| {
        if random.unit() >= share {
            return *x;
        }
        match &dim.domain {
            Domain::Categorical { values } if random.unit() < 0.3 => random.below(values.len()) as f64,
            Domain::Categorical { .. } => *x,
            Domain::Continuous { .. } => (x + width * random.normal()).clamp(0.0, 1.0),
            // At least to the next value.
            Domain::Integer { min, max, .. } => {
                let cell = 1.0 / (max.abs_diff(*min) + 1) as f64;
                (x + width.max(cell) * random.normal()).clamp(0.0, 1.0)
            }
        }
    });
    let there: Vec<f64> = there.collect();
    space.snap(&there)
}

/// Ascends from a point, alternating between the gradient for continuous parameters and single steps for the
/// others.
fn climb(improvement: &Improvement<'_>, space: &Space, point: Vec<f64>, value: f64) -> (Vec<f64>, f64) {
    let (mut point, mut value) = (point, value);
    let is_smooth = |domain: &Domain| match domain {
        Domain::Continuous { .. } => true,
        Domain::Integer { .. } => domain.count().is_none_or(|count| count > FEW),
        Domain::Categorical { .. } => false,
    };
    for _ in 0..4 {
        let before = value;
        let smooth: Vec<usize> = (0..point.len())
            .filter(|j| is_smooth(&space.dims()[*j].domain) && !point[*j].is_nan())
            .collect();
        if !smooth.is_empty() {
            let mut all = features(space, &point);
            let start = smooth.iter().map(|j| point[*j]).collect();
            let mut slopes = vec![0.0; all.len()];
            let mut f = |x: &[f64], gradient: &mut [f64]| {
                for (j, x) in smooth.iter().zip(x) {
                    all[*j] = *x;
                }
                let value = improvement.slopes(&all, &mut slopes);
                for (g, j) in gradient.iter_mut().zip(&smooth) {
                    *g = -slopes[*j];
                }
                -value
            };
            let (x, _) = minimise(start, &vec![(0.0, 1.0); smooth.len()], 30, &mut f);
            let mut there = point.clone();
            for (j, x) in smooth.iter().zip(x) {
                there[*j] = x;
            }
            take_better(improvement, space, &there, &mut point, &mut value);
        }
        for (j, dim) in space.dims().iter().enumerate() {
            for x in others(&dim.domain, point[j]) {
                let mut there = point.clone();
                there[j] = x;
                take_better(improvement, space, &there, &mut point, &mut value);
            }
        }
        // Stop if all parameters are continuous, or without a gain.
        if smooth.len() == point.len() || value - before < 1e-6 {
            break;
        }
    }
    (point, value)
}

/// The other values of a parameter: all of them if they are few, else the neighbours.
fn others(domain: &Domain, x: f64) -> Vec<f64> {
    match (domain, domain.count()) {
        (Domain::Continuous { .. }, _) => Vec::new(),
        _ if x.is_nan() => Vec::new(),
        (Domain::Integer { min, .. }, count) if count.is_none_or(|count| count > FEW) => {
            let here = domain.integer(x).abs_diff(*min);
            let near = [here.saturating_sub(2), here.saturating_sub(1), here + 1, here + 2];
            near.map(|i| domain.level(i)).to_vec()
        }
        (_, count) => (0..count.unwrap_or(0)).map(|i| domain.level(i)).collect(),
    }
}

fn take_better(
    improvement: &Improvement<'_>,
    space: &Space,
    there: &[f64],
    point: &mut Vec<f64>,
    value: &mut f64,
) {
    let there = space.snap(there);
    let found = improvement.at(&features(space, &there));
    if found > *value {
        (*point, *value) = (there, found);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The oracle is the integral of (z + t) over the normal density, summed finely.
    #[test]
    fn the_improvement_is_the_integral() {
        for z in [-4.0, -1.0, 0.0, 0.5, 3.0_f64] {
            let step = 1e-4;
            let sum: f64 = (0..200_000)
                .map(|i| -10.0 + f64::from(i) * step)
                .map(|t| (z + t).max(0.0) * (-0.5 * t * t).exp() / std::f64::consts::TAU.sqrt() * step)
                .sum();
            assert!((log_improvement(z).0 - sum.ln()).abs() < 1e-3, "{z}");
            let quotient = (log_improvement(z + 1e-5).0 - log_improvement(z - 1e-5).0) / 2e-5;
            assert!((quotient - log_improvement(z).1).abs() < 1e-5, "{z}");
        }
        // Both forms meet.
        let (near, far) = (log_improvement(-25.0 + 1e-9), log_improvement(-25.0 - 1e-9));
        assert!((near.0 - far.0).abs() < 0.01 && (near.1 - far.1).abs() < 0.01);
        assert!(log_improvement(-1e6).0.is_finite());
    }
}
