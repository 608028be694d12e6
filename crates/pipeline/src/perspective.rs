//! A change of perspective: the projective map that takes an image's corners to four places.

use crate::op::{Fill, Interpolation};
use serde::{Deserialize, Serialize};

/// The numbers of a change of perspective, as `torchvision.transforms.v2.functional.perspective` takes them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Perspective {
    /// `a` to `h` of the map from places of the result to places of the image: `((a x + b y + c) / (g x + h y + 1),
    /// (d x + e y + f) / (g x + h y + 1))`, in pixels.
    pub coefficients: [f64; 8],
    /// The filter.
    pub interpolation: Interpolation,
    /// What shows where the image does not reach.
    pub fill: Fill,
}

impl Perspective {
    /// Where a place of the result lies in the image; infinite or no number on the horizon.
    pub(crate) fn apply(&self, x: f64, y: f64) -> (f64, f64) {
        let [a, b, c, d, e, f, g, h] = self.coefficients;
        (
            (a * x + b * y + c) / (g * x + h * y + 1.0),
            (d * x + e * y + f) / (g * x + h * y + 1.0),
        )
    }

    /// The coefficients with which the middles of the corner pixels of an image of `width` x `height` lie at `corners`: top
    /// left, top right, bottom right, bottom left, each a column and a row. None where three of the places, or of the image's
    /// corners, lie in a line.
    ///
    /// As torchvision's `_get_perspective_coeffs`, which solves the same eight equations by least squares, the result is
    /// rounded to 32 bits; it may differ from torchvision's in the last of them.
    pub fn between(corners: [[u32; 2]; 4], width: u32, height: u32) -> Option<[f64; 8]> {
        let corners = corners.map(|corner| corner.map(f64::from));
        let cross = |[a, b, c]: [[f64; 2]; 3]| (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]);
        let in_line = (0..4).any(|left_out| {
            let three = std::array::from_fn(|i| corners[(left_out + 1 + i) % 4]);
            cross(three) == 0.0
        });
        if in_line || width < 2 || height < 2 {
            return None;
        }
        let (right, bottom) = (f64::from(width - 1), f64::from(height - 1));
        let origins = [[0.0, 0.0], [right, 0.0], [right, bottom], [0.0, bottom]];
        let mut rows = [[0.0; 9]; 8];
        for (i, ([x, y], [u, v])) in corners.into_iter().zip(origins).enumerate() {
            rows[2 * i] = [x, y, 1.0, 0.0, 0.0, 0.0, -u * x, -u * y, u];
            rows[2 * i + 1] = [0.0, 0.0, 0.0, x, y, 1.0, -v * x, -v * y, v];
        }
        Some(solved(rows).map(|coefficient| f64::from(coefficient as f32)))
    }
}

/// The solution of eight equations, each eight factors and a result (Gauss and Jordan, the largest pivot of each column).
fn solved(mut rows: [[f64; 9]; 8]) -> [f64; 8] {
    for column in 0..8 {
        let pivot = (column..8).max_by(|&a, &b| rows[a][column].abs().total_cmp(&rows[b][column].abs()));
        rows.swap(column, pivot.unwrap_or(column));
        let chosen = rows[column].map(|value| value / rows[column][column]);
        for row in &mut rows {
            let factor = row[column];
            row.iter_mut()
                .zip(chosen)
                .for_each(|(value, one)| *value -= factor * one);
        }
        rows[column] = chosen;
    }
    rows.map(|row| row[8])
}
