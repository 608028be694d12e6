//! Bayesian optimisation: a Gaussian process of the results, and the point with the largest expected
//! improvement on the best.
//!
//! 1. A uniform start: a few points that fill the space.
//! 2. Losses are transformed by one of a few curves, such as the logarithm of their distance from the best.
//!    The marginal likelihood decides which: the curve under which the process explains them best. A valley
//!    whose sides are a million times higher than its floor then becomes an ordinary valley.
//! 3. Running trials are assumed to get their expected results, so that parallel trials do not crowd at one
//!    point.

use crate::random::Random;
use crate::space::{Domain, Space};
use crate::spec::Limits;
use crate::strategy::acquisition::{Improvement, features, maximise};
use crate::strategy::gaussian::{Fit, Gaussian, Inputs, Shape};
use crate::strategy::{Choice, Observed, moments, random};

/// Curves are compared on at most this many results.
const COMPARED: usize = 64;

/// The number of initial points for this many parameters.
fn start(dims: usize) -> usize {
    (dims + 2).clamp(4, 12)
}

/// A study has converged when no point has this probability of an improvement of more than 1 %.
const LIKELY: f64 = 0.05;

/// How losses are transformed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Curve {
    /// Unchanged.
    Straight,
    /// By the logarithm of their distance from the best: compresses losses far above it.
    FromBest { shift: f64 },
    /// By the logarithm of their distance from the worst: spreads losses near it.
    FromWorst { shift: f64 },
}

const CURVES: [Curve; 6] = [
    Curve::Straight,
    Curve::FromBest { shift: 1.0 },
    Curve::FromBest { shift: 0.1 },
    Curve::FromBest { shift: 0.01 },
    Curve::FromWorst { shift: 1.0 },
    Curve::FromWorst { shift: 0.1 },
];

/// A curve, normalised on some losses to mean 0 and deviation 1.
#[derive(Debug, Clone, Copy)]
struct View {
    curve: Curve,
    best: f64,
    worst: f64,
    spread: f64,
    mean: f64,
    deviation: f64,
}

impl View {
    fn new(curve: Curve, losses: &[f64]) -> Self {
        let mut sorted = losses.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (best, worst) = (sorted[0], sorted[sorted.len() - 1]);
        let middle = sorted[sorted.len() / 2];
        let spread = match curve {
            Curve::Straight | Curve::FromBest { .. } => middle - best,
            Curve::FromWorst { .. } => worst - middle,
        };
        let mut view = Self {
            curve,
            best,
            worst,
            spread: if spread > 0.0 {
                spread
            } else {
                (worst - best).max(1e-12)
            },
            mean: 0.0,
            deviation: 1.0,
        };
        let bent: Vec<f64> = losses.iter().map(|loss| view.bend(*loss)).collect();
        (view.mean, view.deviation) = moments(&bent);
        view
    }

    fn bend(&self, loss: f64) -> f64 {
        match self.curve {
            Curve::Straight => loss,
            Curve::FromBest { shift } => (shift + (loss - self.best) / self.spread).max(1e-9).ln(),
            Curve::FromWorst { shift } => -(shift + (self.worst - loss) / self.spread).max(1e-9).ln(),
        }
    }

    fn unbend(&self, bent: f64) -> f64 {
        match self.curve {
            Curve::Straight => bent,
            Curve::FromBest { shift } => self.best + (bent.exp() - shift) * self.spread,
            Curve::FromWorst { shift } => self.worst - ((-bent).exp() - shift) * self.spread,
        }
    }

    fn see(&self, loss: f64) -> f64 {
        (self.bend(loss) - self.mean) / self.deviation
    }

    /// The logarithm of the curve's slope, which makes likelihoods of different curves comparable.
    fn log_slope(&self, loss: f64) -> f64 {
        let bent = match self.curve {
            Curve::Straight => 0.0,
            Curve::FromBest { shift } => -(shift * self.spread + loss - self.best).ln(),
            Curve::FromWorst { shift } => -(shift * self.spread + self.worst - loss).ln(),
        };
        bent - self.deviation.ln()
    }
}

/// A model of the objective.
pub(crate) struct Surrogate {
    process: Gaussian,
    view: View,
    seen: Vec<f64>,
    inputs: Inputs,
}

impl Surrogate {
    /// A model of the results; `None` with fewer than two.
    pub fn new(space: &Space, observed: &Observed) -> Option<Self> {
        if observed.points.len() < 2 {
            return None;
        }
        let inputs = Inputs {
            is_category: space
                .dims()
                .iter()
                .map(|dim| matches!(dim.domain, Domain::Categorical { .. }))
                .collect(),
            rows: observed
                .points
                .iter()
                .map(|point| features(space, point))
                .collect(),
            foreign: observed.foreign,
        };
        let order = by_importance(&observed.losses);
        let dims = space.dims().len();
        let see = |curve: Curve| {
            let view = View::new(curve, &observed.losses);
            let seen: Vec<f64> = observed.losses.iter().map(|loss| view.see(*loss)).collect();
            (view, seen)
        };
        let (mut view, mut seen) = see(Curve::Straight);
        let mut part = Fit::new(&inputs, &seen, &order, COMPARED);
        let slopes = |view: &View| -> f64 {
            let compared = &order[..order.len().min(COMPARED)];
            compared.iter().map(|i| view.log_slope(observed.losses[*i])).sum()
        };
        let (mut shape, mut likelihood) = [1.0, 10.0]
            .map(|weight| part.best(&Shape::start(dims, weight), 25))
            .into_iter()
            .max_by(|a, b| a.1.total_cmp(&b.1))?;
        likelihood += slopes(&view);
        let straight = shape.clone();
        for curve in CURVES.into_iter().skip(1) {
            let (other_view, other_seen) = see(curve);
            part.of_values(&other_seen, &order);
            let (other_shape, density) = part.best(&straight, 12);
            let other = density + slopes(&other_view);
            if other > likelihood {
                (view, seen, shape, likelihood) = (other_view, other_seen, other_shape, other);
            }
        }
        let whole = Fit::new(&inputs, &seen, &order, usize::MAX);
        let (shape, _) = whole.best(&shape, 12);
        let process = whole.process(shape, &seen)?;
        Some(Self {
            process,
            view,
            seen,
            inputs,
        })
    }

    /// The expected value at a point on the process's scale: transformed, with deviation 1.
    pub fn seen(&self, space: &Space, point: &[f64]) -> f64 {
        self.process.mean(&features(space, point))
    }

    /// The loss for a value on the process's scale.
    pub fn loss(&self, seen: f64) -> f64 {
        self.view.unbend(seen * self.view.deviation + self.view.mean)
    }
}

/// The indices to fit: the best half first, then the others, spread evenly.
fn by_importance(losses: &[f64]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..losses.len()).collect();
    order.sort_by(|a, b| losses[*a].total_cmp(&losses[*b]).then(a.cmp(b)));
    let head = order.len().min(COMPARED / 2);
    let rest = order.split_off(head);
    // Every 8th first, then those between.
    for step in [8, 4, 2, 1] {
        for i in (0..rest.len()).step_by(step) {
            if step == 8 || i % (2 * step) != 0 {
                order.push(rest[i]);
            }
        }
    }
    order
}

pub(crate) fn choose(
    space: &Space,
    observed: &Observed,
    limits: &Limits,
    seed: u64,
    number: usize,
) -> Choice {
    let dims = space.dims().len();
    let mut random = Random::of(seed, number);
    let start = start(dims);
    if observed.is_start(start) {
        let even = random::even(space, seed, number.min(start - 1), start);
        if number < start && !observed.is_tried(&even) {
            return Choice::Point(even);
        }
        return Choice::Point(random::draw(space, observed, &mut random));
    }
    let Some(surrogate) = Surrogate::new(space, observed) else {
        return Choice::Point(random::draw(space, observed, &mut random));
    };
    let pending: Vec<Vec<f64>> = observed
        .pending
        .iter()
        .map(|point| features(space, point))
        .collect();
    let believing = surrogate.process.believing(&surrogate.seen, &pending);
    let process = believing.as_ref().unwrap_or(&surrogate.process);
    let rows = &surrogate.inputs.rows;
    let best = rows
        .iter()
        .map(|row| process.mean(row))
        .fold(f64::INFINITY, f64::min);
    let improvement = Improvement { process, best };
    let found = maximise(&improvement, space, observed, &mut random);
    if limits.until_converged && observed.points.len() - observed.foreign >= 10 + 2 * dims {
        let least = observed.losses.iter().copied().fold(f64::INFINITY, f64::min);
        let better = surrogate.view.see(least - 0.01 * least.abs());
        let likely = |point: &Vec<f64>| improvement.probability(&features(space, point), better) >= LIKELY;
        if !found.iter().any(|(point, _)| likely(point)) {
            return Choice::Converged;
        }
    }
    let new = found.into_iter().find(|(point, _)| !observed.is_tried(point));
    Choice::Point(new.map_or_else(|| random::draw(space, observed, &mut random), |(point, _)| point))
}
