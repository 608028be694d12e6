//! What the classes are: a shape with a surface.
//!
//! Shapes are signed distances, negative inside, about 1 in radius; the formulas of star and heart are Inigo
//! Quilez's. Surfaces are patterns over the shape's own coordinates. Class c has shape c mod 10 and surface
//! (c + c/10) mod 10: ten classes differ in both, a hundred in one or both.

use super::math::{fract, smoothstep};
use super::noise::Field;

/// How many classes there can be.
pub(super) const MAX_CLASSES: usize = SHAPES.len() * SURFACES.len();

/// Signed distance to a shape's edge from a place.
type Distance = fn(f32, f32) -> f32;

/// A surface's pattern at a place: 0 for one colour, 1 for the other.
type Pattern = fn(&Surface, f32, f32) -> f32;

const SHAPES: [(&str, Distance); 10] = [
    ("disc", |x, y| length(x, y) - 0.9),
    ("ring", |x, y| (length(x, y) - 0.66).abs() - 0.24),
    ("square", |x, y| x.abs().max(y.abs()) - 0.78),
    ("triangle", |x, y| {
        (x.abs() * 0.866_025_4 - (y - 0.2) * 0.5).max(y - 0.2) - 0.5
    }),
    ("star", star),
    ("cross", |x, y| {
        let (x, y) = (x.abs(), y.abs());
        (x - 0.95).max(y - 0.3).min((x - 0.3).max(y - 0.95))
    }),
    ("crescent", |x, y| {
        (length(x, y) - 0.95).max(0.78 - length(x - 0.48, y))
    }),
    ("heart", heart),
    ("flower", |x, y| {
        let r = length(x, y).max(1e-6);
        let c = x / r;
        // cos 5θ = 16c⁵ - 20c³ + 5c
        r - 0.7 - 0.24 * c * (5.0 + c * c * (16.0 * c * c - 20.0))
    }),
    ("bar", |x, y| (x.abs() - 0.98).max(y.abs() - 0.3)),
];

const SURFACES: [(&str, Pattern); 10] = [
    ("plain", |s, x, y| 0.3 + 0.12 * s.bend(x, y)),
    ("striped", |s, x, _| wave(x * s.frequency)),
    ("checked", |s, x, y| {
        let (a, b) = (wave(x * s.frequency * 0.7), wave(y * s.frequency * 0.7));
        a + b - 2.0 * a * b
    }),
    ("dotted", |s, x, y| {
        let (u, v) = (fract(x * s.frequency) - 0.5, fract(y * s.frequency) - 0.5);
        smoothstep(0.36, 0.3, length(u, v))
    }),
    ("ringed", |s, x, y| wave(length(x, y) * s.frequency)),
    ("zigzag", |s, x, y| {
        let zig = (fract(x * s.frequency * 0.6) - 0.5).abs();
        wave(y * s.frequency + zig * 1.6)
    }),
    ("bricked", |s, x, y| {
        let row = (y * s.frequency * 1.3).floor();
        let u = fract(x * s.frequency * 0.6 + row * 0.5);
        let v = fract(y * s.frequency * 1.3);
        smoothstep(0.04, 0.09, u.min(1.0 - u)) * smoothstep(0.08, 0.18, v.min(1.0 - v))
    }),
    ("netted", |s, x, y| {
        let (u, v) = ((x + y) * s.frequency * 0.8, (x - y) * s.frequency * 0.8);
        let line = |t: f32| (fract(t) - 0.5).abs();
        smoothstep(0.14, 0.08, line(u).min(line(v)))
    }),
    ("marbled", |s, x, y| {
        wave(x * s.frequency * 0.7 + 0.7 * s.bend(x, y))
    }),
    ("patched", |s, x, y| {
        smoothstep(-0.08, 0.08, s.bend(x * 1.4, y * 1.4))
    }),
];

/// What a surface's pattern depends on next to the place.
pub(super) struct Surface<'a> {
    /// Repetitions of the pattern per unit of length.
    pub frequency: f32,
    /// Soft noise for patterns that are not straight.
    pub soft: &'a Field,
    /// Where in the noise this object lies.
    pub origin: (f32, f32),
}

impl Surface<'_> {
    fn bend(&self, x: f32, y: f32) -> f32 {
        self.soft.at(self.origin.0 + x * 75.0, self.origin.1 + y * 75.0)
    }
}

/// The name of a class's folder.
pub(super) fn name(class: usize) -> String {
    format!("{}-{}", SHAPES[shape(class)].0, SURFACES[surface(class)].0)
}

/// Signed distance to the class's shape, negative inside.
pub(super) fn distance(class: usize, x: f32, y: f32) -> f32 {
    SHAPES[shape(class)].1(x, y)
}

/// The class's pattern at a place, 0..=1.
pub(super) fn pattern(class: usize, looks: &Surface, x: f32, y: f32) -> f32 {
    SURFACES[surface(class)].1(looks, x, y).clamp(0.0, 1.0)
}

fn shape(class: usize) -> usize {
    class % SHAPES.len()
}

fn surface(class: usize) -> usize {
    (class + class / SHAPES.len()) % SURFACES.len()
}

/// Stripes with soft edges: 1 in the first half of every unit, 0 in the second.
fn wave(x: f32) -> f32 {
    let t = (fract(x) - 0.5).abs();
    smoothstep(0.2, 0.3, t)
}

fn length(x: f32, y: f32) -> f32 {
    (x * x + y * y).sqrt()
}

fn star(x: f32, y: f32) -> f32 {
    const K: (f32, f32) = (0.809_017, -0.587_785_25);
    let (mut x, mut y) = (x.abs(), -y);
    for k in [K, (-K.0, K.1)] {
        let fold = 2.0 * (k.0 * x + k.1 * y).max(0.0);
        (x, y) = (x - fold * k.0, y - fold * k.1);
    }
    (x, y) = (x.abs(), y - 1.0);
    let edge = (-K.1 * 0.42, K.0 * 0.42 - 1.0);
    let along = ((x * edge.0 + y * edge.1) / (edge.0 * edge.0 + edge.1 * edge.1)).clamp(0.0, 1.0);
    let side = if y * edge.0 - x * edge.1 < 0.0 { -1.0 } else { 1.0 };
    side * length(x - edge.0 * along, y - edge.1 * along)
}

fn heart(x: f32, y: f32) -> f32 {
    let (x, y) = (x.abs() * 0.62, 0.55 - y * 0.62);
    let distance = if x + y > 1.0 {
        length(x - 0.25, y - 0.75) - 0.353_553_4
    } else {
        let middle = 0.5 * (x + y).max(0.0);
        let nearest = length(x, y - 1.0).min(length(x - middle, y - middle));
        if x < y { -nearest } else { nearest }
    };
    distance / 0.62
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_hundred_classes_differ_and_ten_differ_in_both() {
        let names: BTreeSet<String> = (0..MAX_CLASSES).map(name).collect();
        assert_eq!(names.len(), 100);
        let parts: Vec<(usize, usize)> = (0..10).map(|class| (shape(class), surface(class))).collect();
        assert!((0..10).all(|n| parts.iter().filter(|part| part.0 == n).count() == 1));
        assert!((0..10).all(|n| parts.iter().filter(|part| part.1 == n).count() == 1));
    }

    #[test]
    fn shapes_fit_their_circle() {
        for class in 0..10 {
            let mut inside = 0;
            for y in -30..=30 {
                for x in -30..=30 {
                    let (x, y) = (x as f32 / 20.0, y as f32 / 20.0);
                    let within = distance(class, x, y) < 0.0;
                    inside += usize::from(within);
                    assert!(!within || length(x, y) < 1.25, "{} at {x} {y}", name(class));
                }
            }
            // A circle of radius 1 has 1257 of these points.
            assert!((300..1300).contains(&inside), "{}: {inside}", name(class));
        }
    }
}
