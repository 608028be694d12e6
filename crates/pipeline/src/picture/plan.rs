//! Draws the plan of a sample on its image: left the image as it is stored, right the resulting sample.
//!
//! ```text
//!  dark      not read               yellow  the region that is decoded
//!  dim       read over              red     the outline of the result, where one resampling begins the plan
//!  paler     transformed            magenta pixels of the result that lie outside the image
//!  full      seen by the result
//! ```

use super::rgb;
use crate::{
    DecodeOptions, Executor, Explanation, ImageError, Input, Resampling, RgbImage, Step, decode, perform,
};

/// The longest side of the image in the picture; larger images are scaled down.
const LONGEST: u32 = 1600;
const GAP: usize = 16;
const PAPER: [u8; 3] = [24, 24, 27];
const YELLOW: [u8; 3] = [250, 204, 21];
const RED: [u8; 3] = [248, 70, 70];
const MAGENTA: [u8; 3] = [217, 70, 239];

/// The plan of an image, drawn on that image next to the resulting sample, as a PNG.
///
/// # Errors
/// The image does not decode.
pub fn of_plan(plan: &Explanation, image: Input<'_>) -> Result<Vec<u8>, ImageError> {
    let image = decode(image, &DecodeOptions { exif: false })?;
    let left = source(plan, &image);
    let right = result(plan, &image);
    let (width, height) = (left.width + GAP + right.width, left.height.max(right.height));
    let mut whole = Canvas::new(width, height);
    whole.paste(&left, 0);
    whole.paste(&right, left.width + GAP);
    rgb(whole.pixels.as_flattened(), width as u32, height as u32, false)
}

/// The image as it is stored, shaded by what happens to its pixels.
fn source(plan: &Explanation, image: &RgbImage) -> Canvas {
    let shrink = image.width.max(image.height).div_ceil(LONGEST);
    let (width, height) = ((image.width / shrink).max(1), (image.height / shrink).max(1));
    let mut canvas = Canvas::new(width as usize, height as usize);
    let first = plan.performed.first().and_then(|stage| stage.resampling.as_ref());
    let seen = first.map(VisibleRegion::new);
    for (y, x) in (0..height).flat_map(|y| (0..width).map(move |x| (y, x))) {
        let (column, row) = (x * shrink + shrink / 2, y * shrink + shrink / 2);
        let (column, row) = (column.min(image.width - 1), row.min(image.height - 1));
        let shown = match &seen {
            Some(seen) => seen.holds(f64::from(column) + 0.5, f64::from(row) + 0.5),
            None => true,
        };
        let at = 3 * (row as usize * image.width as usize + column as usize);
        let pixel = [image.data[at], image.data[at + 1], image.data[at + 2]];
        canvas.pixels[(y * width + x) as usize] = shade(plan, (column, row), shown, shrink, pixel);
    }
    let at = |v: f64| v / f64::from(shrink);
    let [x, y, w, h] = plan.decoding.region.map(f64::from);
    canvas.outline(
        [(x, y), (x + w, y), (x + w, y + h), (x, y + h)].map(|(x, y)| (at(x), at(y))),
        YELLOW,
    );
    if let Some(first) = first {
        let (w, h, m) = (f64::from(first.width), f64::from(first.height), first.map);
        let corner = |(u, v): (f64, f64)| (at(m[0] * u + m[1] * v + m[2]), at(m[3] * u + m[4] * v + m[5]));
        canvas.outline([(0.0, 0.0), (w, 0.0), (w, h), (0.0, h)].map(corner), RED);
    }
    canvas
}

/// The brightness of a pixel of the image.
fn shade(plan: &Explanation, (x, y): (u32, u32), shown: bool, shrink: u32, pixel: [u8; 3]) -> [u8; 3] {
    let transformed = if shown { 1.0 } else { 0.6 };
    let Some(mcus) = &plan.decoding.mcus else {
        return pixel.map(|v| (f64::from(v) * transformed) as u8);
    };
    let (column, row) = (x / mcus.size.0, y / mcus.size.1);
    let inside = mcus.columns.contains(&column) && mcus.rows.contains(&row);
    if !inside {
        let read = mcus.reads(column, row);
        return pixel.map(|v| (f64::from(v) * if read { 0.3 } else { 0.1 }) as u8);
    }
    let edge = x % mcus.size.0 < shrink || y % mcus.size.1 < shrink;
    let light = if edge { 40.0 } else { 0.0 };
    pixel.map(|v| (f64::from(v) * transformed + light).min(255.0) as u8)
}

/// The points of the image that the result shows.
struct VisibleRegion<'a> {
    resampling: &'a Resampling,
    /// From points of the image to points of the result; `None` if the map has no inverse.
    inverse: Option<[f64; 6]>,
}

impl VisibleRegion<'_> {
    fn new(resampling: &Resampling) -> VisibleRegion<'_> {
        let m = resampling.map;
        let determinant = m[0] * m[4] - m[1] * m[3];
        let inverse = (determinant != 0.0).then(|| {
            let [a, b, c, d] = [m[4], -m[1], -m[3], m[0]].map(|v| v / determinant);
            [a, b, -a * m[2] - b * m[5], c, d, -c * m[2] - d * m[5]]
        });
        VisibleRegion { resampling, inverse }
    }

    fn holds(&self, x: f64, y: f64) -> bool {
        let Some(m) = self.inverse else { return false };
        let (u, v) = (m[0] * x + m[1] * y + m[2], m[3] * x + m[4] * y + m[5]);
        let Resampling {
            width,
            height,
            ref mask,
            ..
        } = *self.resampling;
        u >= 0.0
            && v >= 0.0
            && u < f64::from(width)
            && v < f64::from(height)
            && mask[v as usize * width as usize + u as usize]
    }
}

/// The resulting sample, before its conversion to floats.
fn result(plan: &Explanation, image: &RgbImage) -> Canvas {
    let floats = plan.steps.iter().position(|step| *step == Step::ToFloat);
    let steps = &plan.steps[..floats.unwrap_or(plan.steps.len())];
    let (values, width, height) = perform(Executor::Fused, steps, image);
    let mut canvas = Canvas::new(width as usize, height as usize);
    let size = canvas.pixels.len();
    for (i, pixel) in canvas.pixels.iter_mut().enumerate() {
        *pixel = [0, 1, 2].map(|c| (values[c * size + i] * 255.0).round() as u8);
    }
    // Later stages may change the size; then the mask does not fit the result.
    if let [only] = plan.performed.as_slice()
        && let Some(resampling) = &only.resampling
    {
        for (i, _) in resampling.mask.iter().enumerate().filter(|(_, inside)| !**inside) {
            if (i % canvas.width + i / canvas.width) % 6 < 2 {
                canvas.pixels[i] = MAGENTA;
            }
        }
    }
    canvas
}

struct Canvas {
    width: usize,
    height: usize,
    pixels: Vec<[u8; 3]>,
}

impl Canvas {
    fn new(width: usize, height: usize) -> Canvas {
        let pixels = vec![PAPER; width * height];
        Canvas {
            width,
            height,
            pixels,
        }
    }

    fn paste(&mut self, other: &Canvas, x: usize) {
        for (y, row) in other.pixels.chunks_exact(other.width).enumerate() {
            self.pixels[y * self.width + x..][..other.width].copy_from_slice(row);
        }
    }

    /// Draws lines two pixels thick around a quadrilateral, clipped to the canvas.
    fn outline(&mut self, corners: [(f64, f64); 4], color: [u8; 3]) {
        for i in 0..4 {
            let ((x0, y0), (x1, y1)) = (corners[i], corners[(i + 1) % 4]);
            let count = (x1 - x0).abs().max((y1 - y0).abs()).ceil().clamp(1.0, 1e5) as u32;
            for step in 0..=count {
                let t = f64::from(step) / f64::from(count);
                let (x, y) = (x0 + t * (x1 - x0), y0 + t * (y1 - y0));
                for (dx, dy) in [(0.0, 0.0), (-1.0, 0.0), (0.0, -1.0), (-1.0, -1.0)] {
                    let (x, y) = ((x + dx).floor(), (y + dy).floor());
                    if x >= 0.0 && y >= 0.0 && x < self.width as f64 && y < self.height as f64 {
                        self.pixels[y as usize * self.width + x as usize] = color;
                    }
                }
            }
        }
    }
}
