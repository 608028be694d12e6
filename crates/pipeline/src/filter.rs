//! Pillow's filters of resizes (`Resample.c`).

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::op::Interpolation;

/// How to resize: Pillow's filters, with Pillow's numbers. All but nearest are antialiased: where an image shrinks, the filter is as
/// wide as the scale requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Filter {
    /// The pixel whose area contains the point.
    Nearest = 0,
    /// A windowed sinc of three lobes.
    Lanczos = 1,
    /// A triangle.
    #[default]
    Bilinear = 2,
    /// Cubic, a = -0.5.
    Bicubic = 3,
    /// The mean.
    Box = 4,
    /// A windowed sinc of one lobe.
    Hamming = 5,
}

impl Filter {
    /// Every filter, by its number.
    pub const ALL: [Filter; 6] = [
        Filter::Nearest,
        Filter::Lanczos,
        Filter::Bilinear,
        Filter::Bicubic,
        Filter::Box,
        Filter::Hamming,
    ];

    /// Half its width in source pixels, where one output pixel is `scale` source pixels.
    pub(crate) fn support(self, scale: f64) -> f64 {
        let radius = match self {
            Filter::Nearest => return 0.5,
            Filter::Box => 0.5,
            Filter::Bilinear | Filter::Hamming => 1.0,
            Filter::Bicubic => 2.0,
            Filter::Lanczos => 3.0,
        };
        radius * scale.max(1.0)
    }

    /// Its weight at a distance, in units of its scale. Every expression is in Pillow's order: another one rounds otherwise.
    pub(crate) fn weight(self, x: f64) -> f64 {
        let sinc = |x: f64| match x {
            0.0 => 1.0,
            x => (x * PI).sin() / (x * PI),
        };
        match self {
            Filter::Nearest | Filter::Box => f64::from(u8::from(x > -0.5 && x <= 0.5)),
            Filter::Bilinear => (1.0 - x.abs()).max(0.0),
            Filter::Hamming => match x.abs() {
                0.0 => 1.0,
                x if x >= 1.0 => 0.0,
                // Pillow's two numbers are floats.
                x => sinc(x) * (f64::from(0.54f32) + f64::from(0.46f32) * (x * PI).cos()),
            },
            Filter::Bicubic => match x.abs() {
                x if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
                x if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5,
                _ => 0.0,
            },
            Filter::Lanczos if (-3.0..3.0).contains(&x) => sinc(x) * sinc(x / 3.0),
            Filter::Lanczos => 0.0,
        }
    }
}

impl From<Interpolation> for Filter {
    fn from(interpolation: Interpolation) -> Filter {
        match interpolation {
            Interpolation::Nearest => Filter::Nearest,
            Interpolation::Bilinear => Filter::Bilinear,
            Interpolation::Bicubic => Filter::Bicubic,
        }
    }
}

impl TryFrom<u8> for Filter {
    type Error = u8;

    fn try_from(number: u8) -> Result<Filter, u8> {
        Filter::ALL.get(usize::from(number)).copied().ok_or(number)
    }
}
