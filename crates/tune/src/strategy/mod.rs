//! Chooses the next values: a function of the study's seed, the trial's number, and the results so far,
//! sorted by trial. The order in which results came, and the process that asks, make no difference.

mod acquisition;
mod bayesian;
mod gaussian;
mod grid;
mod linear;
mod minimise;
mod random;
mod tpe;

use crate::History;
use crate::event::Outcome;
use crate::random::Random;
use crate::space::Space;
use crate::spec::Strategy;

pub(crate) use bayesian::Surrogate;

/// The answer of a strategy.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Choice {
    /// Try this point.
    Point(Vec<f64>),
    /// Every combination was tried.
    NothingLeft,
    /// No improvement is likely.
    Converged,
}

/// What strategies know. Losses are minimised.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observed {
    pub points: Vec<Vec<f64>>,
    pub losses: Vec<f64>,
    /// The first `foreign` results are of studies with other data, and count less.
    pub foreign: usize,
    /// Points of running trials.
    pub pending: Vec<Vec<f64>>,
}

impl Observed {
    pub fn of(space: &Space, history: &History) -> Self {
        let mut observed = Self::default();
        let mut failed = Vec::new();
        let mut own = Vec::new();
        for trial in &history.trials {
            // The values were validated when the trial was started.
            let Ok(point) = space.point(&trial.values) else {
                continue;
            };
            match &trial.outcome {
                None => observed.pending.push(point),
                Some(Outcome::Completed { value }) => own.push((point, history.spec.direction.loss(*value))),
                // The last report: it would hardly have ended among the best.
                Some(Outcome::Stopped { value: Some(value) }) => {
                    own.push((point, history.spec.direction.loss(*value)));
                }
                Some(Outcome::Stopped { value: None } | Outcome::Failed { .. }) => failed.push(point),
            }
        }
        let mut identical = Vec::new();
        for parent in &history.parents {
            let fitting = parent.results.iter().filter_map(|result| {
                let loss = history.spec.direction.loss(result.value);
                Some((space.point(&result.values).ok()?, loss))
            });
            match parent.is_identical {
                true => identical.extend(fitting),
                false => observed.take_foreign(&fitting.collect::<Vec<_>>(), &own),
            }
        }
        for (point, loss) in identical.into_iter().chain(own) {
            observed.points.push(point);
            observed.losses.push(loss);
        }
        // A failed trial counts as the worst result, so that regions where training fails are avoided.
        let worst = observed.losses.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let worst = if worst.is_finite() { worst } else { 0.0 };
        for point in failed {
            observed.points.push(point);
            observed.losses.push(worst);
        }
        observed
    }

    /// Results on other data have another mean and spread: they are scaled to those of the study's own
    /// results.
    fn take_foreign(&mut self, results: &[(Vec<f64>, f64)], own: &[(Vec<f64>, f64)]) {
        let losses: Vec<f64> = results.iter().map(|(_, loss)| *loss).collect();
        let own: Vec<f64> = own.iter().map(|(_, loss)| *loss).collect();
        let (mean, deviation) = moments(&losses);
        // Two results of its own say little about their spread.
        let (own_mean, own_deviation) = if own.len() > 2 {
            moments(&own)
        } else {
            (mean, deviation)
        };
        for (point, loss) in results {
            self.points.push(point.clone());
            self.losses
                .push(own_mean + (loss - mean) / deviation * own_deviation);
            self.foreign += 1;
        }
    }

    /// Whether a point was tried here or is running. Points of other studies do not count.
    pub fn is_tried(&self, point: &[f64]) -> bool {
        let same = |other: &Vec<f64>| {
            other
                .iter()
                .zip(point)
                .all(|(a, b)| (a - b).abs() < 1e-9 || (a.is_nan() && b.is_nan()))
        };
        self.points[self.foreign..].iter().any(same) || self.pending.iter().any(same)
    }

    /// Whether there are too few results for a model, so that points should be drawn.
    pub fn is_start(&self, needed: usize) -> bool {
        self.points.len() < needed
    }
}

/// Mean and standard deviation, the latter above 0.
pub(crate) fn moments(values: &[f64]) -> (f64, f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    let deviation = variance.sqrt();
    (
        mean,
        if deviation > 1e-12 * mean.abs().max(1e-300) {
            deviation
        } else {
            1.0
        },
    )
}

/// Chooses what a study tries next.
pub(crate) fn choose(space: &Space, history: &History) -> Choice {
    let (spec, number) = (&history.spec, history.trials.len());
    let observed = Observed::of(space, history);
    let mut random = Random::of(spec.seed, number);
    // A finite space may be exhausted; a grid checks that by itself.
    if spec.strategy != Strategy::Grid && is_used_up(space, &observed) {
        return Choice::NothingLeft;
    }
    match spec.strategy {
        Strategy::Bayesian => bayesian::choose(space, &observed, &spec.limits, spec.seed, number),
        Strategy::Tpe => tpe::choose(space, &observed, &mut random),
        Strategy::Random | Strategy::Hyperband => Choice::Point(random::draw(space, &observed, &mut random)),
        Strategy::Grid => grid::choose(space, &observed),
    }
}

fn is_used_up(space: &Space, observed: &Observed) -> bool {
    let tried = (observed.points.len() + observed.pending.len()) as u64;
    // Enumerate the space only if it may be exhausted.
    space.count().is_some_and(|count| tried >= count / 64)
        && space.count().is_some_and(|count| count <= 1 << 16)
        && space.grid().all(|point| observed.is_tried(&point))
}
