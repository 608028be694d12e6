//! A Gaussian process: the posterior of a function given some of its values (Rasmussen and Williams 2006).
//!
//! Its covariance is `scale * M(r^2)` with Matern's 5/2 form, and `r^2 = sum of weight_j * d_j^2`: each
//! parameter has a weight, the inverse of its squared length. `d_j` is the difference of two coordinates; for
//! categories 0 if they are equal, else 1. Weights, scale and noise maximise the posterior density given the
//! values.

use crate::strategy::linear::{Cholesky, dot};
use crate::strategy::minimise::minimise;

/// Hyperparameters are fitted to at most this many results, the best and some others: more would cost more
/// than they tell.
const FITTED: usize = 96;

/// The bounds of the logarithms of weights, scale and noise.
const WEIGHT: (f64, f64) = (-9.0, 7.0);
const SCALE: (f64, f64) = (-3.0, 4.0);
const NOISE: (f64, f64) = (-13.8, 0.0);

/// The variance that is added to results of other studies, relative to that of the values.
const FOREIGN_NOISE: f64 = 0.3;

/// Coordinates for the covariance.
#[derive(Debug, Clone)]
pub(crate) struct Inputs {
    pub is_category: Vec<bool>,
    /// One row per point.
    pub rows: Vec<Vec<f64>>,
    /// The first `foreign` rows are of other studies, and less certain.
    pub foreign: usize,
}

impl Inputs {
    fn difference(&self, j: usize, a: f64, b: f64) -> f64 {
        match self.is_category[j] {
            true => f64::from(u8::from(a != b)),
            false => (a - b) * (a - b),
        }
    }

    fn extra(&self, i: usize) -> f64 {
        if i < self.foreign { FOREIGN_NOISE } else { 0.0 }
    }

    fn part(&self, which: &[usize]) -> Self {
        Self {
            is_category: self.is_category.clone(),
            rows: which.iter().map(|i| self.rows[*i].clone()).collect(),
            foreign: which.iter().filter(|i| **i < self.foreign).count(),
        }
    }
}

/// The hyperparameters of the covariance.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shape {
    pub weights: Vec<f64>,
    pub scale: f64,
    pub noise: f64,
}

impl Shape {
    fn of(logs: &[f64]) -> Self {
        let d = logs.len() - 2;
        Self {
            weights: logs[..d].iter().map(|log| log.exp()).collect(),
            scale: logs[d].exp(),
            noise: logs[d + 1].exp(),
        }
    }

    fn logs(&self) -> Vec<f64> {
        let all = self.weights.iter().chain([&self.scale, &self.noise]);
        all.map(|x| x.ln()).collect()
    }

    /// The starting point of a fit.
    pub fn start(dims: usize, weight: f64) -> Self {
        Self {
            weights: vec![weight; dims],
            scale: 1.0,
            noise: 1e-3,
        }
    }
}

/// Matern 5/2 by the squared distance, and its derivative with respect to it.
fn matern(r2: f64) -> (f64, f64) {
    let r = (5.0 * r2).sqrt();
    let e = (-r).exp();
    ((1.0 + r + r * r / 3.0) * e, -5.0 / 6.0 * (1.0 + r) * e)
}

/// The values to fit, and the squared differences of all pairs of their inputs: by parameter, then by pair.
pub(crate) struct Fit<'a> {
    inputs: Inputs,
    values: Vec<f64>,
    differences: Vec<Vec<f64>>,
    bounds: Vec<(f64, f64)>,
    all: &'a Inputs,
}

impl<'a> Fit<'a> {
    /// At most `most` of the values; `order` has the most important ones first.
    pub fn new(all: &'a Inputs, values: &[f64], order: &[usize], most: usize) -> Self {
        let mut which: Vec<usize> = order[..order.len().min(most.min(FITTED))].to_vec();
        which.sort_unstable();
        let inputs = all.part(&which);
        let d = inputs.is_category.len();
        let differences = (0..d)
            .map(|j| {
                let mut pairs = Vec::with_capacity(which.len() * which.len() / 2);
                for (i, a) in inputs.rows.iter().enumerate() {
                    pairs.extend(inputs.rows[..i].iter().map(|b| inputs.difference(j, a[j], b[j])));
                }
                pairs
            })
            .collect();
        let mut bounds = vec![WEIGHT; d];
        bounds.extend([SCALE, NOISE]);
        Self {
            inputs,
            values: which.iter().map(|i| values[*i]).collect(),
            differences,
            bounds,
            all,
        }
    }

    /// Replaces the values, for the same inputs; `values` has all of them, in the order of [`Inputs`].
    pub fn of_values(&mut self, values: &[f64], order: &[usize]) {
        let mut which: Vec<usize> = order[..self.values.len()].to_vec();
        which.sort_unstable();
        self.values = which.iter().map(|i| values[*i]).collect();
    }

    /// The best shape from a start, and the logarithm of its posterior density up to a constant.
    pub fn best(&self, start: &Shape, most_steps: usize) -> (Shape, f64) {
        let mut worse = |logs: &[f64], gradient: &mut [f64]| self.worse(logs, gradient);
        let (logs, value) = minimise(start.logs(), &self.bounds, most_steps, &mut worse);
        (Shape::of(&logs), -value)
    }

    /// The negative logarithm of the posterior density, and its gradient.
    fn worse(&self, logs: &[f64], gradient: &mut [f64]) -> f64 {
        let (n, d) = (self.values.len(), self.differences.len());
        let shape = Shape::of(logs);
        let mut r2 = vec![0.0; n * (n - 1) / 2];
        for (weight, differences) in shape.weights.iter().zip(&self.differences) {
            for (sum, difference) in r2.iter_mut().zip(differences) {
                *sum += weight * difference;
            }
        }
        let (mut k, mut slopes) = (vec![0.0; n * n], r2);
        let mut pair = 0;
        for i in 0..n {
            for j in 0..i {
                let (m, slope) = matern(slopes[pair]);
                k[i * n + j] = shape.scale * m;
                slopes[pair] = shape.scale * slope;
                pair += 1;
            }
            k[i * n + i] = shape.scale + shape.noise + self.inputs.extra(i);
        }
        let Some(cholesky) = Cholesky::new(k.clone(), n) else {
            gradient.fill(0.0);
            return f64::INFINITY;
        };
        let mut alpha = self.values.clone();
        cholesky.forward(&mut alpha);
        let fits = dot(&alpha, &alpha);
        cholesky.backward(&mut alpha);
        let inverse = cholesky.inverse();
        let value = 0.5 * fits + cholesky.half_log_det();
        // The derivative with respect to an entry of the covariance is half of (K^-1 - alpha alpha'); each
        // pair occurs twice.
        let (mut by_scale, mut by_noise) = (0.0, 0.0);
        pair = 0;
        for i in 0..n {
            for j in 0..i {
                let by_entry = inverse[i * n + j] - alpha[i] * alpha[j];
                by_scale += by_entry * k[i * n + j];
                slopes[pair] *= by_entry;
                pair += 1;
            }
            let by_entry = 0.5 * (inverse[i * n + i] - alpha[i] * alpha[i]);
            by_scale += by_entry * shape.scale;
            by_noise += by_entry * shape.noise;
        }
        for (j, differences) in self.differences.iter().enumerate() {
            gradient[j] = shape.weights[j] * dot(&slopes, differences);
        }
        gradient[d] = by_scale;
        gradient[d + 1] = by_noise;
        value + prior(&shape, gradient)
    }

    /// The process with these hyperparameters, of all values and not only of those that were fitted.
    pub fn process(&self, shape: Shape, values: &[f64]) -> Option<Gaussian> {
        Gaussian::new(self.all.clone(), values, shape)
    }
}

/// The negative logarithm of the prior: lengths are about the size of the range, the scale is about that of
/// the values, noise is small. Adds to the gradient with respect to the logarithms.
fn prior(shape: &Shape, gradient: &mut [f64]) -> f64 {
    let d = shape.weights.len();
    let mut value = 0.0;
    for (j, weight) in shape.weights.iter().enumerate() {
        value += 0.1 / weight + 0.1 * weight;
        gradient[j] += -0.1 / weight + 0.1 * weight;
    }
    // Gamma densities: of shape 2 and rate 1, of shape 1.1 and rate 30.
    value += shape.scale - shape.scale.ln();
    gradient[d] += shape.scale - 1.0;
    value += 30.0 * shape.noise - 0.1 * shape.noise.ln();
    gradient[d + 1] += 30.0 * shape.noise - 0.1;
    value
}

/// A process conditioned on values.
#[derive(Debug, Clone)]
pub(crate) struct Gaussian {
    inputs: Inputs,
    shape: Shape,
    cholesky: Cholesky,
    alpha: Vec<f64>,
}

impl Gaussian {
    fn new(inputs: Inputs, values: &[f64], shape: Shape) -> Option<Self> {
        let n = values.len();
        let covariance = |noise: f64| {
            let mut k = vec![0.0; n * n];
            for i in 0..n {
                for j in 0..i {
                    let (a, b) = (&inputs.rows[i], &inputs.rows[j]);
                    let differences = shape.weights.iter().enumerate();
                    let r2 = differences
                        .map(|(d, weight)| weight * inputs.difference(d, a[d], b[d]))
                        .sum();
                    k[i * n + j] = shape.scale * matern(r2).0;
                }
                k[i * n + i] = shape.scale + noise + inputs.extra(i);
            }
            k
        };
        // Nearly equal points need more noise for a stable decomposition.
        let noises = [1.0, 10.0, 100.0, 1e4].map(|more| shape.noise * more);
        let cholesky = noises
            .iter()
            .find_map(|noise| Cholesky::new(covariance(*noise), n))?;
        let mut alpha = values.to_vec();
        cholesky.forward(&mut alpha);
        cholesky.backward(&mut alpha);
        Some(Self {
            inputs,
            shape,
            cholesky,
            alpha,
        })
    }

    /// The process with more points, whose values are set to their expectations.
    pub fn believing(&self, values: &[f64], more: &[Vec<f64>]) -> Option<Self> {
        let mut inputs = self.inputs.clone();
        let mut values = values.to_vec();
        for row in more {
            values.push(self.mean(row));
            inputs.rows.push(row.clone());
        }
        Self::new(inputs, &values, self.shape.clone())
    }

    fn covariances(&self, x: &[f64]) -> Vec<f64> {
        let inputs = &self.inputs;
        let to = |row: &Vec<f64>| {
            let mut r2 = 0.0;
            for (j, weight) in self.shape.weights.iter().enumerate() {
                r2 += weight * inputs.difference(j, row[j], x[j]);
            }
            self.shape.scale * matern(r2).0
        };
        inputs.rows.iter().map(to).collect()
    }

    /// The expected value at a point.
    pub fn mean(&self, x: &[f64]) -> f64 {
        dot(&self.covariances(x), &self.alpha)
    }

    /// The expected value at a point, and its variance.
    pub fn at(&self, x: &[f64]) -> (f64, f64) {
        let mut k = self.covariances(x);
        let mean = dot(&k, &self.alpha);
        self.cholesky.forward(&mut k);
        (mean, (self.shape.scale - dot(&k, &k)).max(1e-12))
    }

    /// As [`at`](Self::at), with the gradients of both with respect to the coordinates; those of categories
    /// are 0.
    pub fn slopes(&self, x: &[f64]) -> (f64, f64, Vec<f64>, Vec<f64>) {
        let (n, d) = (self.alpha.len(), x.len());
        let (mut k, mut slopes) = (Vec::with_capacity(n), Vec::with_capacity(n));
        for row in &self.inputs.rows {
            let differences = self.shape.weights.iter().enumerate();
            let r2 = differences
                .map(|(j, weight)| weight * self.inputs.difference(j, row[j], x[j]))
                .sum();
            let (m, slope) = matern(r2);
            k.push(self.shape.scale * m);
            slopes.push(self.shape.scale * slope);
        }
        let mean = dot(&k, &self.alpha);
        self.cholesky.forward(&mut k);
        let variance = (self.shape.scale - dot(&k, &k)).max(1e-12);
        self.cholesky.backward(&mut k);
        let (mut by_mean, mut by_variance) = (vec![0.0; d], vec![0.0; d]);
        for j in (0..d).filter(|j| !self.inputs.is_category[*j]) {
            let twice = 2.0 * self.shape.weights[j];
            for (i, row) in self.inputs.rows.iter().enumerate() {
                let by_x = slopes[i] * twice * (x[j] - row[j]);
                by_mean[j] += by_x * self.alpha[i];
                by_variance[j] -= 2.0 * by_x * k[i];
            }
        }
        (mean, variance, by_mean, by_variance)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn inputs(n: usize) -> (Inputs, Vec<f64>) {
        let mut random = Random::of(3, n);
        let rows: Vec<Vec<f64>> = (0..n)
            .map(|_| vec![random.unit(), random.unit(), random.below(3) as f64])
            .collect();
        let values = rows
            .iter()
            .map(|x| (6.0 * x[0]).sin() + x[1] * x[1] + 0.3 * x[2])
            .collect();
        let inputs = Inputs {
            is_category: vec![false, false, true],
            rows,
            foreign: 0,
        };
        (inputs, values)
    }

    /// The oracle is the difference quotient.
    #[test]
    fn gradients_are_those_of_the_values() {
        let (inputs, values) = inputs(20);
        let order: Vec<usize> = (0..20).collect();
        let fit = Fit::new(&inputs, &values, &order, 20);
        let at = [0.3, -0.2, 0.5, 0.1, -4.0];
        let mut gradient = [0.0; 5];
        fit.worse(&at, &mut gradient);
        for j in 0..5 {
            let value = |step: f64| {
                let mut there = at;
                there[j] += step;
                fit.worse(&there, &mut [0.0; 5])
            };
            let quotient = (value(1e-5) - value(-1e-5)) / 2e-5;
            assert!(
                (quotient - gradient[j]).abs() < 1e-5 * (1.0 + quotient.abs()),
                "{j}: {quotient} {gradient:?}"
            );
        }
        let process = fit.process(Shape::start(3, 2.0), &values).unwrap();
        let x = [0.4, 0.6, 1.0];
        let (.., by_mean, by_variance) = process.slopes(&x);
        for j in 0..2 {
            let at = |step: f64| {
                let mut there = x;
                there[j] += step;
                process.at(&there)
            };
            let (up, down) = (at(1e-5), at(-1e-5));
            assert!(((up.0 - down.0) / 2e-5 - by_mean[j]).abs() < 1e-6);
            assert!(((up.1 - down.1) / 2e-5 - by_variance[j]).abs() < 1e-6);
        }
    }

    /// It goes through what it knows, and predicts what it does not.
    #[test]
    fn knows_a_smooth_function() {
        let (inputs, values) = inputs(60);
        let order: Vec<usize> = (0..60).collect();
        let fit = Fit::new(&inputs, &values, &order, 60);
        let (shape, _) = fit.best(&Shape::start(3, 1.0), 60);
        let process = fit.process(shape, &values).unwrap();
        for (row, value) in inputs.rows.iter().zip(&values) {
            assert!((process.mean(row) - value).abs() < 0.02);
        }
        let x = [0.5, 0.5, 2.0];
        let (mean, variance) = process.at(&x);
        assert!((mean - (3_f64.sin() + 0.25 + 0.6)).abs() < 0.05 && variance < 0.01);
    }
}
