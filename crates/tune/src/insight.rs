//! Analyses the results: which parameters matter, and how.
//!
//! A Gaussian process fitted to the results models the objective. All figures here are computed from it, at
//! points drawn from the space with a fixed seed, and are as accurate as the model: with a handful of results
//! they say little.

use serde_json::Value;

use crate::History;
use crate::random::Random;
use crate::space::{Domain, Space};
use crate::strategy::{Observed, Surrogate};

/// The number of points whose variance is explained, and the number of points that averages are taken over.
const DRAWN: usize = 1024;
const AVERAGED: usize = 256;

/// The number of values of a parameter at which averages are taken, if it has more.
const LEVELS: usize = 25;

/// A model of a study's objective.
pub struct Insight {
    space: Space,
    surrogate: Surrogate,
    drawn: Vec<Vec<f64>>,
    best: Vec<f64>,
    /// Whether there are two different results.
    varies: bool,
    direction: crate::Direction,
}

/// A value of a parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// Its position on the parameter's scale: 0..=1, or the index of a category.
    pub at: f64,
    /// The value.
    pub value: Value,
}

impl Insight {
    /// The model; `None` with fewer than 4 results.
    pub fn of(history: &History) -> Option<Self> {
        let space = Space::new(&history.spec.parameters).ok()?;
        let observed = Observed::of(&space, history);
        if observed.points.len() < 4 {
            return None;
        }
        let surrogate = Surrogate::new(&space, &observed)?;
        let mut random = Random::of(0, 0);
        let drawn = (0..DRAWN).map(|_| space.draw(&mut random)).collect();
        let best =
            (0..observed.points.len()).min_by(|a, b| observed.losses[*a].total_cmp(&observed.losses[*b]))?;
        Some(Self {
            best: observed.points[best].clone(),
            varies: observed.losses.iter().any(|loss| *loss != observed.losses[0]),
            space,
            surrogate,
            drawn,
            direction: history.spec.direction,
        })
    }

    /// The share of the objective's variance that each parameter explains by itself, 0..=1 (functional ANOVA;
    /// Hutter and others 2014), the largest first. Interactions of parameters explain the rest. The objective
    /// is taken on the model's scale, so that a few very bad results do not dominate. `None` where it does not vary.
    pub fn importance(&self) -> Option<Vec<(String, f64)>> {
        let all: Vec<f64> = self
            .drawn
            .iter()
            .map(|point| self.surrogate.seen(&self.space, point))
            .collect();
        // The model of results that are all alike varies by rounding.
        let total = Some(variance(&all)).filter(|total| self.varies && *total > 0.0)?;
        let share = |j: usize| {
            let averages: Vec<f64> = self.cells(j).iter().map(|at| self.average(j, *at)).collect();
            (variance(&averages) / total).min(1.0)
        };
        let names = self.space.dims().iter().enumerate();
        let mut shares: Vec<(String, f64)> = names.map(|(j, dim)| (dim.name.clone(), share(j))).collect();
        shares.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        Some(shares)
    }

    /// The values at which a parameter is evaluated, in the order of its scale; `None` for an unknown or
    /// static parameter.
    pub fn levels(&self, name: &str) -> Option<Vec<Level>> {
        Some(self.levels_at(self.dim(name)?))
    }

    /// The position of a value on its parameter's scale.
    pub fn position(&self, name: &str, value: &Value) -> Option<f64> {
        self.space.dims()[self.dim(name)?].domain.coordinate(value)
    }

    /// The expected objective when one parameter varies and the others are those of the best trial.
    pub fn slice(&self, name: &str) -> Option<Vec<(Level, f64)>> {
        let j = self.dim(name)?;
        let at = |level: Level| {
            let mut point = self.best.clone();
            point[j] = level.at;
            let objective = self.objective(&point);
            (level, objective)
        };
        Some(self.levels_at(j).into_iter().map(at).collect())
    }

    /// The same for two parameters: one row per level of the second.
    pub fn contour(&self, across: &str, up: &str) -> Option<Vec<Vec<f64>>> {
        let (i, j) = (self.dim(across)?, self.dim(up)?);
        let row = |y: &Level| {
            let at = |x: &Level| {
                let mut point = self.best.clone();
                (point[i], point[j]) = (x.at, y.at);
                self.objective(&point)
            };
            self.levels_at(i).iter().map(at).collect()
        };
        Some(self.levels_at(j).iter().map(row).collect())
    }

    fn dim(&self, name: &str) -> Option<usize> {
        self.space.dims().iter().position(|dim| dim.name == name)
    }

    fn objective(&self, point: &[f64]) -> f64 {
        let seen = self.surrogate.seen(&self.space, &self.space.snap(point));
        self.direction.loss(self.surrogate.loss(seen))
    }

    /// The mean over the drawn points, with one parameter set to a level.
    fn average(&self, j: usize, level: f64) -> f64 {
        let at = |point: &Vec<f64>| {
            let mut point = point.clone();
            point[j] = level;
            self.surrogate.seen(&self.space, &self.space.snap(&point))
        };
        self.drawn[..AVERAGED].iter().map(at).sum::<f64>() / AVERAGED as f64
    }

    /// The centres of equal parts of a parameter's scale, or all its values.
    fn cells(&self, j: usize) -> Vec<f64> {
        let domain = &self.space.dims()[j].domain;
        match domain.count() {
            Some(count) if count <= LEVELS as u64 => (0..count).map(|i| domain.level(i)).collect(),
            _ => (0..LEVELS).map(|i| (i as f64 + 0.5) / LEVELS as f64).collect(),
        }
    }

    fn levels_at(&self, j: usize) -> Vec<Level> {
        let domain = &self.space.dims()[j].domain;
        let level = |at: f64| {
            let at = domain.snap(at);
            Level {
                at,
                value: domain.value(at),
            }
        };
        let mut levels: Vec<Level> = match (domain, domain.count()) {
            (Domain::Continuous { .. }, Some(_)) => vec![level(0.5)],
            (_, Some(count)) if count <= LEVELS as u64 => {
                (0..count).map(|i| level(domain.level(i))).collect()
            }
            _ => (0..LEVELS)
                .map(|i| level(i as f64 / (LEVELS - 1) as f64))
                .collect(),
        };
        levels.dedup_by(|a, b| a.at == b.at);
        levels
    }
}

fn variance(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / values.len() as f64
}
