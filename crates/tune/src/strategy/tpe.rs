//! The tree-structured Parzen estimator (Bergstra and others 2011) with Optuna's constants. The better tenth
//! of the results and the other results each become a density, a mixture with one kernel per result; of some
//! points drawn from the first, it chooses the one with the largest ratio of the first density to the second.
//! Kernels are products over all parameters, so combinations of values are preserved.

use crate::random::Random;
use crate::space::{Domain, Space};
use crate::strategy::{Choice, Observed, random};

/// The number of trials before the first estimate.
const START: usize = 10;

/// The number of points drawn from the density of the better results.
const DRAWN: usize = 24;

/// The better results are one tenth of all, but at most this many.
const MOST_BETTER: usize = 25;

/// The latest results, this many, have full weight; older ones have less and less.
const FULL: usize = 25;

/// A mixture of kernels around points, and one kernel as wide as the space.
struct Density<'a> {
    space: &'a Space,
    /// NaN for a parameter that does not exist.
    centres: Vec<Vec<f64>>,
    /// By centre and parameter.
    widths: Vec<Vec<f64>>,
    /// The last weight is that of the wide kernel.
    weights: Vec<f64>,
}

impl<'a> Density<'a> {
    fn new(space: &'a Space, centres: Vec<Vec<f64>>) -> Self {
        let n = centres.len();
        let mut widths = vec![vec![1.0; space.dims().len()]; n];
        for (j, dim) in space.dims().iter().enumerate() {
            if !matches!(dim.domain, Domain::Categorical { .. }) {
                for (i, width) in neighbours(&centres, j) {
                    widths[i][j] = width;
                }
            }
        }
        let mut weights: Vec<f64> = (0..n).map(|i| weight(i, n)).collect();
        weights.push(1.0);
        let all: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|weight| *weight /= all);
        Self {
            space,
            centres,
            widths,
            weights,
        }
    }

    fn draw(&self, random: &mut Random) -> Vec<f64> {
        let mut at = random.unit();
        let kernel = self.weights.iter().position(|weight| {
            at -= weight;
            at < 0.0
        });
        let kernel = kernel.unwrap_or(self.centres.len());
        let point: Vec<f64> = (0..self.space.dims().len())
            .map(|j| self.draw_one(kernel, j, random))
            .collect();
        self.space.snap(&point)
    }

    fn draw_one(&self, kernel: usize, j: usize, random: &mut Random) -> f64 {
        let domain = &self.space.dims()[j].domain;
        let centre = self.centres.get(kernel).map_or(f64::NAN, |centre| centre[j]);
        match domain {
            Domain::Categorical { values } => {
                let odd = 1.0 / (self.centres.len() + 1) as f64;
                // One count for the centre's value, and a share of the prior for each value.
                let own = 1.0 / (1.0 + values.len() as f64 * odd);
                match !centre.is_nan() && random.unit() < own {
                    true => centre,
                    false => random.below(values.len()) as f64,
                }
            }
            Domain::Continuous { .. } | Domain::Integer { .. } => {
                let (centre, width) = self.bell(kernel, j);
                // The centre is inside, so at least every other draw is, too, for all but the widest kernel.
                let drawn = (0..64).map(|_| centre + width * random.normal());
                drawn
                    .into_iter()
                    .find(|x| (0.0..=1.0).contains(x))
                    .unwrap_or(centre)
            }
        }
    }

    fn bell(&self, kernel: usize, j: usize) -> (f64, f64) {
        match self.centres.get(kernel) {
            Some(centre) if !centre[j].is_nan() => (centre[j], self.widths[kernel][j]),
            _ => (0.5, 1.0),
        }
    }

    fn log_density(&self, point: &[f64]) -> f64 {
        let kernels = 0..self.weights.len();
        let logs: Vec<f64> = kernels.map(|kernel| self.log_kernel(kernel, point)).collect();
        let most = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        most + logs.iter().map(|log| (log - most).exp()).sum::<f64>().ln()
    }

    fn log_kernel(&self, kernel: usize, point: &[f64]) -> f64 {
        let mut log = self.weights[kernel].ln();
        for (j, x) in point.iter().enumerate().filter(|(_, x)| !x.is_nan()) {
            log += match &self.space.dims()[j].domain {
                Domain::Categorical { values } => {
                    let centre = self.centres.get(kernel).map_or(f64::NAN, |centre| centre[j]);
                    let (odd, k) = (1.0 / (self.centres.len() + 1) as f64, values.len() as f64);
                    let share = |counted: f64| (counted + odd) / (1.0 + k * odd);
                    match centre.is_nan() {
                        true => (1.0 / k).ln(),
                        false => share(f64::from(u8::from(centre == *x))).ln(),
                    }
                }
                domain @ (Domain::Continuous { .. } | Domain::Integer { .. }) => {
                    let (centre, width) = self.bell(kernel, j);
                    let below = |end: f64| {
                        libm::erfc((end - centre) / width * -std::f64::consts::FRAC_1_SQRT_2) / 2.0
                    };
                    let share = match domain.cell(*x) {
                        // An integer gets the kernel's mass over its cell, which may be 0 except for the wide
                        // kernel.
                        Some((from, to)) => (below(to) - below(from)).ln(),
                        None => {
                            let z = (x - centre) / width;
                            -0.5 * z * z - width.ln()
                        }
                    };
                    share - (below(1.0) - below(0.0)).ln()
                }
            };
        }
        log
    }
}

/// A kernel is as wide as the distance to its farther neighbour, within limits that depend on the number of
/// kernels.
fn neighbours(centres: &[Vec<f64>], j: usize) -> Vec<(usize, f64)> {
    let mut order: Vec<usize> = (0..centres.len()).filter(|i| !centres[*i][j].is_nan()).collect();
    order.sort_by(|a, b| centres[*a][j].total_cmp(&centres[*b][j]));
    let narrowest = 1.0 / (2.0 + centres.len() as f64).min(100.0);
    let at = |k: Option<usize>, end: f64| k.and_then(|k| order.get(k)).map_or(end, |i| centres[*i][j]);
    let several = order.len() > 1;
    (0..order.len())
        .map(|k| {
            let here = centres[order[k]][j];
            let (left, right) = (here - at(k.checked_sub(1), 0.0), at(Some(k + 1), 1.0) - here);
            // The ends of the range count as neighbours only if there is no other kernel.
            let width = match (k == 0 && several, k + 1 == order.len() && several) {
                (true, _) => right,
                (_, true) => left,
                _ => left.max(right),
            };
            (order[k], width.clamp(narrowest, 1.0))
        })
        .collect()
}

fn weight(i: usize, n: usize) -> f64 {
    match n.checked_sub(FULL) {
        Some(ramp) if i < ramp => {
            1.0 / n as f64 + (1.0 - 1.0 / n as f64) * i as f64 / (ramp - 1).max(1) as f64
        }
        _ => 1.0,
    }
}

pub(crate) fn choose(space: &Space, observed: &Observed, random: &mut Random) -> Choice {
    if observed.is_start(START) {
        return Choice::Point(random::draw(space, observed, random));
    }
    let n = observed.points.len();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|a, b| observed.losses[*a].total_cmp(&observed.losses[*b]).then(a.cmp(b)));
    let better = n.div_ceil(10).min(MOST_BETTER);
    // Back to the order of the trials, which determines the weights.
    order[..better].sort_unstable();
    order[better..].sort_unstable();
    let points = |which: &[usize]| {
        which
            .iter()
            .map(|i| observed.points[*i].clone())
            .collect::<Vec<_>>()
    };
    let good = Density::new(space, points(&order[..better]));
    // Running trials count among the worse results, so that parallel trials stay apart.
    let others = points(&order[better..])
        .into_iter()
        .chain(observed.pending.iter().cloned());
    let rest = Density::new(space, others.collect());
    let mut drawn: Vec<(f64, Vec<f64>)> = (0..DRAWN)
        .map(|_| {
            let point = good.draw(random);
            (good.log_density(&point) - rest.log_density(&point), point)
        })
        .collect();
    drawn.sort_by(|a, b| b.0.total_cmp(&a.0));
    let new = drawn.into_iter().find(|(_, point)| !observed.is_tried(point));
    Choice::Point(new.map_or_else(|| random::draw(space, observed, random), |(_, point)| point))
}
