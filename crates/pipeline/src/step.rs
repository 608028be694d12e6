//! An operation after its draw: what will be done, with every number known.

use std::fmt;

use crate::op::{Fill, Filter, Interpolation, PaddingMode};
use crate::perspective::Perspective;
use serde::{Deserialize, Serialize};

/// One concrete step. Sizes and places are pixels of the image that the step receives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Step {
    /// Mirrors left and right.
    HorizontalFlip,
    /// Mirrors top and bottom.
    VerticalFlip,
    /// Turns counter-clockwise by `angle` degrees.
    Rotate(Rotate),
    /// Turns, scales, shears and moves within the image's size.
    Affine(Transform),
    /// Changes the perspective within the image's size.
    Perspective(Perspective),
    /// Cuts out a rectangle that lies within the image.
    Crop {
        /// First column.
        left: u32,
        /// First row.
        top: u32,
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
    },
    /// Adds borders: left, top, right, bottom.
    Pad {
        /// Widths of left, top, right and bottom border.
        sides: [u32; 4],
        /// Colour of a constant border.
        fill: Fill,
        /// What the border shows.
        mode: PaddingMode,
    },
    /// Resizes to a size.
    Resize {
        /// New width.
        width: u32,
        /// New height.
        height: u32,
        /// The filter.
        interpolation: Filter,
    },
    /// Blends with black: 0 is black, 1 the image itself.
    Brightness {
        /// At least 0.
        factor: f64,
    },
    /// Blends with the mean grey level.
    Contrast {
        /// At least 0.
        factor: f64,
    },
    /// Blends with the grey image.
    Saturation {
        /// At least 0.
        factor: f64,
    },
    /// Shifts the hue.
    Hue {
        /// In turns, -0.5..=0.5.
        shift: f64,
    },
    /// Another order of the channels.
    Permute {
        /// The channels that become red, green and blue, of 0 to 2, each once.
        channels: [u8; 3],
    },
    /// Luminance in all three channels.
    Grayscale,
    /// 255 less each level.
    Invert,
    /// Clears all but the highest bits of each level.
    Posterize {
        /// How many are kept, 1..=8.
        bits: u32,
    },
    /// Inverts high levels.
    Solarize {
        /// Levels at or above it are inverted.
        threshold: f64,
    },
    /// Stretches the levels of each channel to 0..=255.
    AutoContrast,
    /// Equalises the histogram of each channel.
    Equalize,
    /// Blends with the smoothed image: 0 is the smoothed image, 1 the image itself.
    Sharpness {
        /// At least 0.
        factor: f64,
    },
    /// Mixes the image with what chains of steps make of it.
    Mix(Mixed),
    /// Convolves with a Gaussian.
    GaussianBlur {
        /// Width and height of the kernel, odd.
        kernel: [u32; 2],
        /// In pixels.
        sigma: f64,
    },
    /// Maximum of a square neighbourhood.
    Dilate {
        /// Side of the neighbourhood, odd.
        kernel: u32,
    },
    /// Bytes to floats.
    ToFloat,
    /// Adds normal noise to the float image.
    Noise {
        /// Its mean.
        mean: f64,
        /// Its standard deviation.
        sigma: f64,
        /// Limit the sums to 0.0..=1.0.
        clip: bool,
        /// The noise is a function of it.
        seed: u64,
    },
    /// `(value - mean) / std`.
    Normalize {
        /// Per channel.
        mean: [f32; 3],
        /// Per channel.
        std: [f32; 3],
    },
    /// Fills a rectangle of the float image.
    Erase {
        /// First column.
        left: u32,
        /// First row.
        top: u32,
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
        /// What with.
        content: EraseContent,
    },
}

/// In a few words, such as `rotate by 12.50 degrees`.
impl fmt::Display for Step {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HorizontalFlip => out.write_str("flip left and right"),
            Self::VerticalFlip => out.write_str("flip top and bottom"),
            Self::Rotate(rotate) => write!(out, "rotate by {:.2} degrees", rotate.angle),
            Self::Affine(transform) => {
                let Transform {
                    angle,
                    translate: [x, y],
                    scale,
                    shear: [across, down],
                    ..
                } = transform;
                write!(
                    out,
                    "turn by {angle:.2}, scale by {scale:.3}, shear by {across:.2}, {down:.2}, move by {x}, {y}"
                )
            }
            Self::Perspective(_) => out.write_str("change the perspective"),
            Self::Crop {
                left,
                top,
                width,
                height,
            } => write!(out, "crop {width} x {height} at ({left}, {top})"),
            Self::Pad {
                sides: [l, t, r, b], ..
            } => write!(out, "borders of {l}, {t}, {r}, {b} (left, top, right, bottom)"),
            Self::Resize { width, height, .. } => write!(out, "resize to {width} x {height}"),
            Self::Brightness { factor } => write!(out, "brightness times {factor:.3}"),
            Self::Contrast { factor } => write!(out, "contrast times {factor:.3}"),
            Self::Saturation { factor } => write!(out, "saturation times {factor:.3}"),
            Self::Hue { shift } => write!(out, "hue shifted by {shift:.3} turns"),
            Self::Permute { channels } => {
                let name = |channel: u8| ["red", "green", "blue"].get(usize::from(channel)).unwrap_or(&"?");
                let [r, g, b] = channels.map(name);
                write!(out, "red, green and blue become what {r}, {g} and {b} were")
            }
            Self::Grayscale => out.write_str("grey"),
            Self::Invert => out.write_str("invert"),
            Self::Posterize { bits } => write!(out, "posterise to {bits} bits"),
            Self::Solarize { threshold } => write!(out, "invert levels from {threshold:.1} on"),
            Self::AutoContrast => out.write_str("stretch the levels of each channel"),
            Self::Equalize => out.write_str("equalise the histogram of each channel"),
            Self::Sharpness { factor } => write!(out, "sharpness times {factor:.3}"),
            Self::Mix(Mixed { share, chains }) => {
                write!(out, "mix {share:.3} of the image")?;
                for Chain { share, steps } in chains {
                    write!(out, ", {share:.3} of (")?;
                    for (i, step) in steps.iter().enumerate() {
                        write!(out, "{}{step}", if i > 0 { ", " } else { "" })?;
                    }
                    out.write_str(")")?;
                }
                Ok(())
            }
            Self::GaussianBlur {
                kernel: [w, h],
                sigma,
            } => write!(out, "Gaussian blur {w} x {h}, sigma {sigma:.2}"),
            Self::Dilate { kernel } => write!(out, "dilate {kernel} x {kernel}"),
            Self::ToFloat => out.write_str("to float"),
            Self::Noise { mean, sigma, .. } => write!(out, "noise of mean {mean:.3}, sigma {sigma:.3}"),
            Self::Normalize { mean, std } => write!(out, "normalise by mean {mean:?}, std {std:?}"),
            Self::Erase {
                left,
                top,
                width,
                height,
                ..
            } => write!(out, "erase {width} x {height} at ({left}, {top})"),
        }
    }
}

/// The numbers of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rotate {
    /// Degrees, counter-clockwise.
    pub angle: f64,
    /// The filter.
    pub interpolation: Interpolation,
    /// Grow the image so that nothing is cut off.
    pub expand: bool,
    /// The point to turn about; none: the centre.
    pub center: Option<[f64; 2]>,
    /// What shows where the image does not reach.
    pub fill: Fill,
}

/// The numbers of an affine transform, as `torchvision.transforms.v2.functional.affine` takes them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Transform {
    /// Degrees, clockwise.
    pub angle: f64,
    /// Pixels to the right and down.
    pub translate: [i32; 2],
    /// How much larger things get; above 0.
    pub scale: f64,
    /// Degrees along x and along y.
    pub shear: [f64; 2],
    /// The filter.
    pub interpolation: Interpolation,
    /// The point that turning, scaling and shearing leave where it is; none: the centre.
    pub center: Option<[f64; 2]>,
    /// What shows where the image does not reach.
    pub fill: Fill,
}

/// A mixture of an image with what chains of steps make of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Mixed {
    /// The image's share.
    pub share: f32,
    /// The chains; all shares sum to 1.
    pub chains: Vec<Chain>,
}

/// A chain of a mixture.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// Its share of the mixture.
    pub share: f32,
    /// Steps that keep the image's size.
    pub steps: Vec<Step>,
}

/// What an erased rectangle holds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub enum EraseContent {
    /// A colour.
    Rgb([f32; 3]),
    /// Standard normal noise, a function of this seed.
    Noise(u64),
}

/// An affine map from points of an output to points of an input, in pixels; a pixel's centre lies at .5.
///
/// `x_in = m[0] * x + m[1] * y + m[2]`, `y_in = m[3] * x + m[4] * y + m[5]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Affine(pub [f64; 6]);

impl Affine {
    pub const IDENTITY: Affine = Affine([1.0, 0.0, 0.0, 0.0, 1.0, 0.0]);

    pub fn apply(&self, x: f64, y: f64) -> (f64, f64) {
        let m = &self.0;
        (m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5])
    }

    /// First `self`, then `next`.
    pub fn then(&self, next: &Affine) -> Affine {
        let (a, b) = (&self.0, &next.0);
        Affine([
            b[0] * a[0] + b[1] * a[3],
            b[0] * a[1] + b[1] * a[4],
            b[0] * a[2] + b[1] * a[5] + b[2],
            b[3] * a[0] + b[4] * a[3],
            b[3] * a[1] + b[4] * a[4],
            b[3] * a[2] + b[4] * a[5] + b[5],
        ])
    }
}

impl Rotate {
    /// The map from output to input, and the output's size. The formulas are those of `PIL.Image.rotate`.
    pub(crate) fn map(&self, width: u32, height: u32) -> (Affine, u32, u32) {
        let (w, h) = (f64::from(width), f64::from(height));
        let degrees = self.angle.rem_euclid(360.0);
        let radians = -degrees.to_radians();
        let (sin, cos) = (round_to_15(radians.sin()), round_to_15(radians.cos()));
        let [cx, cy] = self.center.unwrap_or([w / 2.0, h / 2.0]);
        let turn = Affine([cos, sin, 0.0, -sin, cos, 0.0]);
        let (x, y) = turn.apply(-cx, -cy);
        let mut map = Affine([cos, sin, x + cx, -sin, cos, y + cy]);
        if !self.expand {
            return (map, width, height);
        }
        let corners = [(0.0, 0.0), (w, 0.0), (w, h), (0.0, h)].map(|(x, y)| map.apply(x, y));
        let extent = |values: [f64; 4]| {
            let high = values.iter().copied().fold(f64::MIN, f64::max).ceil();
            high - values.iter().copied().fold(f64::MAX, f64::min).floor()
        };
        let (mut new_w, mut new_h) = (extent(corners.map(|c| c.0)), extent(corners.map(|c| c.1)));
        // Pillow does not compute quarter turns about the centre. Its formula would count a half pixel at either end as whole.
        if self.center.is_none() && degrees % 180.0 == 90.0 {
            (new_w, new_h) = (h, w);
        }
        let (x, y) = map.apply(-(new_w - w) / 2.0, -(new_h - h) / 2.0);
        map.0[2] = x;
        map.0[5] = y;
        (map, new_w as u32, new_h as u32)
    }
}

/// Python's `round(value, 15)`, by which Pillow makes quarter turns exact: the digits of the value itself are rounded, and not
/// those of a product that was rounded before.
fn round_to_15(value: f64) -> f64 {
    format!("{value:.15}").parse().unwrap_or(value)
}

impl Transform {
    /// The map from output to input.
    pub(crate) fn map(&self, width: u32, height: u32) -> Affine {
        let middle = [f64::from(width) * 0.5, f64::from(height) * 0.5];
        self.about(self.center.unwrap_or(middle))
    }

    /// The map from output to input about a point: torchvision's `_get_inverse_affine_matrix`, operation by operation, as each
    /// of them rounds.
    pub(crate) fn about(&self, [cx, cy]: [f64; 2]) -> Affine {
        let turn = self.angle.to_radians();
        let [shear_x, shear_y] = self.shear.map(f64::to_radians);
        let [tx, ty] = self.translate.map(f64::from);
        let a = (turn - shear_y).cos() / shear_y.cos();
        let b = -(turn - shear_y).cos() * shear_x.tan() / shear_y.cos() - turn.sin();
        let c = (turn - shear_y).sin() / shear_y.cos();
        let d = -(turn - shear_y).sin() * shear_x.tan() / shear_y.cos() + turn.cos();
        let [m0, m1, m3, m4] = [d, -b, -c, a].map(|v| v / self.scale);
        let x = m0 * (-cx - tx) + m1 * (-cy - ty) + cx;
        let y = m3 * (-cx - tx) + m4 * (-cy - ty) + cy;
        Affine([m0, m1, x, m3, m4, y])
    }

    /// Whether pixels only move by whole columns and rows.
    pub(crate) fn is_exact(&self) -> bool {
        self.angle == 0.0 && self.scale == 1.0 && self.shear == [0.0; 2]
    }
}

impl Step {
    /// The size of an image of `width` x `height` after all of `steps`.
    pub(crate) fn size_after_all(steps: &[Step], width: u32, height: u32) -> (u32, u32) {
        steps
            .iter()
            .fold((width, height), |(w, h), step| step.size_after(w, h))
    }

    /// The size of the image after this step on an image of `width` x `height`.
    pub fn size_after(&self, width: u32, height: u32) -> (u32, u32) {
        match self {
            Step::Crop { width, height, .. } | Step::Resize { width, height, .. } => (*width, *height),
            Step::Pad {
                sides: [l, t, r, b], ..
            } => {
                let sum = |side: u32, a: &u32, b: &u32| side.saturating_add(*a).saturating_add(*b);
                (sum(width, l, r), sum(height, t, b))
            }
            Step::Rotate(rotate) => {
                let (_, w, h) = rotate.map(width, height);
                (w, h)
            }
            _ => (width, height),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use stokehold_base::random::Random;

    /// What torchvision hands to Pillow, bit by bit.
    const MATRICES: &str = "
import json, struct, sys
from PIL import Image
from torchvision.transforms import functional as F
def transform(image, size, method, matrix, *rest, **more):
    taken.append([struct.unpack('<Q', struct.pack('<d', number))[0] for number in matrix])
    return image
Image.Image.transform, taken = transform, []
for size, center, angle, translate, scale, shear, expand in json.load(sys.stdin):
    image = Image.new('L', size)
    F.affine(image, angle, translate, scale, shear, center=center)
    F.rotate(image, angle, expand=expand, center=center)
print(json.dumps(taken))
";

    #[test]
    fn matrices_are_torchvisions_to_the_bit() {
        let mut random = Random::of(8);
        // torchvision draws 32 bits.
        let mut between = |low: f64, high: f64| f64::from((low + (high - low) * random.unit()) as f32);
        let cases: Vec<([u32; 2], Transform, bool)> = (0..2000)
            .map(|i| {
                let size = [between(20.0, 700.0) as u32, between(20.0, 700.0) as u32];
                let transform = Transform {
                    angle: between(-180.0, 180.0),
                    translate: [between(-99.0, 99.0) as i32, between(-99.0, 99.0) as i32],
                    scale: between(0.3, 3.0),
                    shear: [between(-40.0, 40.0), between(-40.0, 40.0)],
                    interpolation: Interpolation::Bilinear,
                    center: (i % 3 == 0).then(|| [between(0.0, 300.0), between(0.0, 300.0)]),
                    fill: Fill::Level(0),
                };
                (size, transform, i % 2 == 0)
            })
            .collect();
        let asked: Vec<_> = cases
            .iter()
            .map(|(size, t, expand)| json!([size, t.center, t.angle, t.translate, t.scale, t.shear, expand]))
            .collect();
        let input = serde_json::to_string(&asked).unwrap();
        let Some(said) = stokehold_untested::needs::asked("STOKEHOLD_TEST_PYTHON", MATRICES, &input) else {
            return;
        };
        let theirs: Vec<[u64; 6]> = serde_json::from_str(&said).unwrap();
        let ours = cases.iter().flat_map(|([width, height], transform, expand)| {
            let rotate = Rotate {
                angle: transform.angle,
                interpolation: transform.interpolation,
                expand: *expand,
                center: transform.center,
                fill: transform.fill,
            };
            [transform.map(*width, *height), rotate.map(*width, *height).0]
        });
        let differing: Vec<String> = ours
            .zip(&theirs)
            .filter(|(ours, theirs)| ours.0.map(f64::to_bits) != **theirs)
            .map(|(ours, theirs)| format!("{:?} and {:?}", ours.0, theirs.map(f64::from_bits)))
            .collect();
        assert_eq!(theirs.len(), 2 * cases.len());
        assert!(differing.is_empty(), "{}, as {}", differing.len(), differing[0]);
    }
}
