//! Minimises a smooth function within a box: L-BFGS (Liu and Nocedal 1989), with steps that end at the box's
//! sides.

use crate::strategy::linear::dot;

/// The number of past steps that approximate the curvature.
const MEMORY: usize = 8;

/// A step that gains less than this ends the search.
const ARRIVED: f64 = 1e-7;

/// Descends from a start until no step makes the function smaller. The function returns its value and fills
/// in its gradient. Returns the point and the value.
pub(crate) fn minimise(
    mut x: Vec<f64>,
    bounds: &[(f64, f64)],
    most_steps: usize,
    f: &mut dyn FnMut(&[f64], &mut [f64]) -> f64,
) -> (Vec<f64>, f64) {
    let n = x.len();
    let mut gradient = vec![0.0; n];
    let mut value = f(&x, &mut gradient);
    let mut memory: Vec<(Vec<f64>, Vec<f64>, f64)> = Vec::new();
    for _ in 0..most_steps {
        // At a side of the box, with the descent direction pointing outside.
        let is_held = |i: usize, x: &[f64], gradient: &[f64]| {
            (x[i] <= bounds[i].0 && gradient[i] > 0.0) || (x[i] >= bounds[i].1 && gradient[i] < 0.0)
        };
        let free: Vec<f64> = (0..n)
            .map(|i| {
                if is_held(i, &x, &gradient) {
                    0.0
                } else {
                    gradient[i]
                }
            })
            .collect();
        if !value.is_finite() || free.iter().all(|g| g.abs() < 1e-9) {
            break;
        }
        let mut way = direction(&free, &memory);
        for (i, way) in way.iter_mut().enumerate() {
            if is_held(i, &x, &gradient) {
                *way = 0.0;
            }
        }
        if dot(&way, &free) >= 0.0 {
            memory.clear();
            way = free.iter().map(|g| -g).collect();
        }
        // The first step has no curvature information.
        let mut length = if memory.is_empty() {
            (0.2 / dot(&way, &way).sqrt()).min(1.0)
        } else {
            1.0
        };
        let mut next = None;
        for _ in 0..20 {
            let to: Vec<f64> = (0..n)
                .map(|i| (x[i] + length * way[i]).clamp(bounds[i].0, bounds[i].1))
                .collect();
            let mut there = vec![0.0; n];
            let found = f(&to, &mut there);
            let step: Vec<f64> = to.iter().zip(&x).map(|(a, b)| a - b).collect();
            if found <= value + 1e-4 * dot(&step, &free) && found.is_finite() {
                next = Some((to, found, there, step));
                break;
            }
            length *= 0.4;
        }
        let Some((to, found, there, step)) = next else {
            break;
        };
        let change: Vec<f64> = there.iter().zip(&gradient).map(|(a, b)| a - b).collect();
        let curvature = dot(&step, &change);
        if curvature > 1e-10 * dot(&change, &change).max(1e-300) {
            memory.push((step, change, 1.0 / curvature));
            if memory.len() > MEMORY {
                memory.remove(0);
            }
        }
        let won = value - found;
        (x, value, gradient) = (to, found, there);
        if won < ARRIVED * value.abs().max(1.0) {
            break;
        }
    }
    (x, value)
}

/// The two-loop recursion.
fn direction(gradient: &[f64], memory: &[(Vec<f64>, Vec<f64>, f64)]) -> Vec<f64> {
    let mut way: Vec<f64> = gradient.iter().map(|g| -g).collect();
    let mut shares = Vec::new();
    for (step, change, rho) in memory.iter().rev() {
        let share = rho * dot(step, &way);
        for (w, c) in way.iter_mut().zip(change) {
            *w -= share * c;
        }
        shares.push(share);
    }
    if let Some((step, change, _)) = memory.last() {
        let scale = dot(step, change) / dot(change, change);
        way.iter_mut().for_each(|w| *w *= scale);
    }
    for ((step, change, rho), share) in memory.iter().zip(shares.iter().rev()) {
        let back = rho * dot(change, &way);
        for (w, s) in way.iter_mut().zip(step) {
            *w += (share - back) * s;
        }
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rosenbrock(x: &[f64], gradient: &mut [f64]) -> f64 {
        let (a, b) = (1.0 - x[0], x[1] - x[0] * x[0]);
        gradient[0] = -2.0 * a - 400.0 * x[0] * b;
        gradient[1] = 200.0 * b;
        a * a + 100.0 * b * b
    }

    #[test]
    fn follows_a_valley() {
        let (x, value) = minimise(vec![-1.2, 1.0], &[(-2.0, 2.0), (-2.0, 2.0)], 200, &mut rosenbrock);
        assert!(value < 1e-5, "{x:?}");
    }

    /// With x <= 0.5 the minimum is at (0.5, 0.25).
    #[test]
    fn stays_in_the_box() {
        let (x, value) = minimise(vec![-1.2, 1.0], &[(-2.0, 0.5), (-2.0, 2.0)], 200, &mut rosenbrock);
        assert!((x[0] - 0.5).abs() < 1e-9 && (value - 0.25).abs() < 1e-3, "{x:?}");
    }
}
