//! Uniformly drawn points, and a space-filling start for models.

use crate::random::Random;
use crate::space::{Domain, Space};
use crate::strategy::Observed;

/// How often to redraw a point that was tried already.
const DRAWS: usize = 200;

/// Draws a point uniformly, one that was not tried if possible.
pub(crate) fn draw(space: &Space, observed: &Observed, random: &mut Random) -> Vec<f64> {
    let mut point = space.draw(random);
    for _ in 0..DRAWS {
        if !observed.is_tried(&point) {
            return point;
        }
        point = space.draw(random);
    }
    // Few points are left: take the one after a drawn point.
    let left: Vec<Vec<f64>> = match space.count() {
        Some(count) if count <= 1 << 16 => space.grid().filter(|point| !observed.is_tried(point)).collect(),
        _ => Vec::new(),
    };
    match left.len() {
        0 => point,
        n => left[random.below(n)].clone(),
    }
}

/// The i-th of n points of a Latin hypercube: each parameter takes each n-th of its range once. Of several
/// hypercubes it uses the one whose points are farthest apart (maximin; Morris and Mitchell 1995).
pub(crate) fn even(space: &Space, seed: u64, i: usize, n: usize) -> Vec<f64> {
    let mut random = Random::of(seed ^ 0x1a71_4c0b, 0);
    let cubes = (0..20).map(|_| hypercube(space, n, &mut random));
    let best = cubes.max_by(|a, b| closest(a).total_cmp(&closest(b)));
    best.map_or_else(|| vec![0.5; space.dims().len()], |cube| cube[i].clone())
}

fn hypercube(space: &Space, n: usize, random: &mut Random) -> Vec<Vec<f64>> {
    let orders: Vec<Vec<usize>> = space.dims().iter().map(|_| random.order(n)).collect();
    (0..n)
        .map(|i| {
            let coordinate = |(dim, order): (&crate::space::Dim, &Vec<usize>)| {
                let unit = (order[i] as f64 + random.unit()) / n as f64;
                match &dim.domain {
                    Domain::Categorical { values } => (unit * values.len() as f64).floor(),
                    Domain::Continuous { .. } | Domain::Integer { .. } => unit,
                }
            };
            let point: Vec<f64> = space.dims().iter().zip(&orders).map(coordinate).collect();
            space.snap(&point)
        })
        .collect()
}

fn closest(points: &[Vec<f64>]) -> f64 {
    let distance = |a: &[f64], b: &[f64]| -> f64 {
        // NaN is a parameter that does not exist: no distance.
        a.iter()
            .zip(b)
            .map(|(a, b)| (a - b).powi(2).min(1.0))
            .filter(|d| !d.is_nan())
            .sum()
    };
    let mut closest = f64::INFINITY;
    for i in 1..points.len() {
        for j in 0..i {
            closest = closest.min(distance(&points[i], &points[j]));
        }
    }
    closest
}
