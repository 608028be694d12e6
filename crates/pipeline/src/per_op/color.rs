//! Colour, pixel by pixel, in Pillow's arithmetic (`Blend.c`, `Convert.c`, `ImageEnhance.py`).

use crate::step::Step;

/// A change of colour that looks at one pixel at a time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pointwise {
    Brightness { factor: f32 },
    Contrast { mean: u8, factor: f32 },
    Saturation { factor: f32 },
    Hue { shift: u8 },
    Grayscale,
}

impl Pointwise {
    /// The step as a change of single pixels; none for a step that needs more than a pixel.
    pub fn of(step: &Step) -> Option<Pointwise> {
        Some(match *step {
            Step::Brightness { factor } => Pointwise::Brightness {
                factor: factor as f32,
            },
            Step::Saturation { factor } => Pointwise::Saturation {
                factor: factor as f32,
            },
            // torchvision adds the truncated shift to a byte that wraps round.
            Step::Hue { shift } => Pointwise::Hue {
                shift: (shift * 255.0) as i32 as u8,
            },
            Step::Grayscale => Pointwise::Grayscale,
            _ => return None,
        })
    }

    /// Changes every pixel.
    pub fn apply<const N: usize>(&self, pixels: &mut [[u8; N]]) {
        match *self {
            Pointwise::Brightness { factor } => {
                pixels.iter_mut().for_each(|p| each(p, |v| blend(0, v, factor)))
            }
            Pointwise::Contrast { mean, factor } => pixels
                .iter_mut()
                .for_each(|p| each(p, |v| blend(mean, v, factor))),
            Pointwise::Saturation { factor } => pixels.iter_mut().for_each(|p| {
                let grey = luminance(p);
                each(p, |v| blend(grey, v, factor));
            }),
            Pointwise::Hue { shift } => pixels.iter_mut().for_each(|p| shift_hue(p, shift)),
            Pointwise::Grayscale => pixels.iter_mut().for_each(|p| {
                let grey = luminance(p);
                each(p, |_| grey);
            }),
        }
    }
}

/// Changes red, green and blue; a fourth byte is left alone.
fn each<const N: usize>(pixel: &mut [u8; N], f: impl Fn(u8) -> u8) {
    pixel[..3].iter_mut().for_each(|v| *v = f(*v));
}

/// ITU-R 601-2 luma with 16 fractional bits.
fn luminance<const N: usize>(p: &[u8; N]) -> u8 {
    ((u32::from(p[0]) * 19595 + u32::from(p[1]) * 38470 + u32::from(p[2]) * 7471 + 0x8000) >> 16) as u8
}

/// The grey level that contrast blends with: the mean luminance, rounded.
pub(crate) fn mean_luminance<const N: usize>(pixels: &[[u8; N]]) -> u8 {
    let sum: u64 = pixels.iter().map(|p| u64::from(luminance(p))).sum();
    (sum as f64 / pixels.len() as f64 + 0.5) as u8
}

/// `from + factor * (to - from)`, clipped, the fraction cut off.
fn blend(from: u8, to: u8, factor: f32) -> u8 {
    (f32::from(from) + factor * (f32::from(to) - f32::from(from))).clamp(0.0, 255.0) as u8
}

fn shift_hue<const N: usize>(pixel: &mut [u8; N], shift: u8) {
    let (h, s, v) = to_hsv([pixel[0], pixel[1], pixel[2]]);
    pixel[..3].copy_from_slice(&from_hsv(h.wrapping_add(shift), s, v));
}

fn to_hsv([r, g, b]: [u8; 3]) -> (u8, u8, u8) {
    let (max, min) = (r.max(g).max(b), r.min(g).min(b));
    if max == min {
        return (0, 0, max);
    }
    let range = f32::from(max - min);
    let saturation = range / f32::from(max);
    let [rc, gc, bc] = [r, g, b].map(|v| f64::from(f32::from(max - v) / range));
    // Pillow keeps each result in a float and computes in doubles between them.
    let hue = if r == max {
        (bc - gc) as f32
    } else if g == max {
        (2.0 + rc - bc) as f32
    } else {
        (4.0 + gc - rc) as f32
    };
    let hue = (f64::from(hue) / 6.0 + 1.0).rem_euclid(1.0) as f32;
    (
        (f64::from(hue) * 255.0) as u8,
        (f64::from(saturation) * 255.0) as u8,
        max,
    )
}

fn from_hsv(h: u8, s: u8, v: u8) -> [u8; 3] {
    if s == 0 {
        return [v; 3];
    }
    let saturation = f64::from((f64::from(s) / 255.0) as f32);
    let sixth = f64::from(f32::from(h)) * 6.0 / 255.0;
    let sector = sixth.floor();
    let f = f64::from((sixth - sector) as f32);
    let value = f64::from(v);
    let byte = |x: f64| x.round().clamp(0.0, 255.0) as u8;
    let p = byte(value * (1.0 - saturation));
    let q = byte(value * (1.0 - saturation * f));
    let t = byte(value * (1.0 - saturation * (1.0 - f)));
    match sector as u32 % 6 {
        0 => [v, t, p],
        1 => [q, v, p],
        2 => [p, v, t],
        3 => [p, q, v],
        4 => [t, p, v],
        _ => [v, p, q],
    }
}
