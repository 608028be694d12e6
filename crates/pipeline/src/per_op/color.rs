//! Colour, pixel by pixel, in Pillow's arithmetic (`Blend.c`, `Convert.c`, `ImageEnhance.py`).

use std::sync::LazyLock;

use super::levels;
use crate::step::Step;

/// A change of colour that looks at one pixel at a time.
#[derive(Debug, Clone, PartialEq)]
pub enum Pointwise {
    /// Blends with black.
    Brightness {
        /// At least 0.
        factor: f32,
    },
    /// Blends with a grey level.
    Contrast {
        /// The level.
        mean: u8,
        /// At least 0.
        factor: f32,
    },
    /// Blends with the pixel's luminance.
    Saturation {
        /// At least 0.
        factor: f32,
    },
    /// Adds to the hue, in 256 parts of a turn.
    Hue {
        /// Wraps round.
        shift: u8,
    },
    /// The channels that become red, green and blue, of 0 to 2.
    Permute {
        /// Each once.
        channels: [u8; 3],
    },
    /// Luminance in all channels.
    Grayscale,
    /// Another level for each level, the same in all channels.
    Levels {
        /// The new level at each level.
        table: Box<[u8; 256]>,
    },
}

impl Pointwise {
    /// The step as a change of single pixels; none for a step that needs more than a pixel.
    pub(crate) fn of(step: &Step) -> Option<Pointwise> {
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
            Step::Permute { channels } => Pointwise::Permute { channels },
            Step::Grayscale => Pointwise::Grayscale,
            Step::Invert => Pointwise::Levels {
                table: Box::new(levels::inverted()),
            },
            Step::Posterize { bits } => Pointwise::Levels {
                table: Box::new(levels::posterized(bits)),
            },
            Step::Solarize { threshold } => Pointwise::Levels {
                table: Box::new(levels::solarized(threshold)),
            },
            _ => return None,
        })
    }

    /// Changes every pixel.
    pub(crate) fn apply<const N: usize>(&self, pixels: &mut [[u8; N]]) {
        match *self {
            Pointwise::Brightness { factor } => levels::look_up_each(pixels, &blended(0, factor)),
            Pointwise::Contrast { mean, factor } => levels::look_up_each(pixels, &blended(mean, factor)),
            Pointwise::Saturation { factor } => pixels.iter_mut().for_each(|p| {
                let grey = luminance(p);
                each(p, |v| blend(grey, v, factor));
            }),
            Pointwise::Hue { shift } => {
                let tables = HueTables::shared();
                pixels.iter_mut().for_each(|p| tables.shift(p, shift));
            }
            Pointwise::Permute { channels } => pixels.iter_mut().for_each(|p| {
                let from = *p;
                for (to, channel) in p.iter_mut().zip(channels) {
                    *to = from[usize::from(channel.min(2))];
                }
            }),
            Pointwise::Grayscale => pixels.iter_mut().for_each(|p| {
                let grey = luminance(p);
                each(p, |_| grey);
            }),
            Pointwise::Levels { ref table } => levels::look_up_each(pixels, table),
        }
    }
}

/// Changes red, green and blue; a fourth byte is left alone.
fn each<const N: usize>(pixel: &mut [u8; N], f: impl Fn(u8) -> u8) {
    pixel[..3].iter_mut().for_each(|v| *v = f(*v));
}

/// ITU-R 601-2 luma with 16 fractional bits.
#[inline]
pub(crate) fn luminance<const N: usize>(p: &[u8; N]) -> u8 {
    ((u32::from(p[0]) * 19595 + u32::from(p[1]) * 38470 + u32::from(p[2]) * 7471 + 0x8000) >> 16) as u8
}

/// The grey level that contrast blends with: the mean luminance, rounded.
pub(crate) fn mean_luminance<const N: usize>(pixels: &[[u8; N]]) -> u8 {
    let sum: u64 = pixels.iter().map(|p| u64::from(luminance(p))).sum();
    (sum as f64 / pixels.len() as f64 + 0.5) as u8
}

/// Every level blended with one.
fn blended(from: u8, factor: f32) -> [u8; 256] {
    std::array::from_fn(|level| blend(from, level as u8, factor))
}

/// `from + factor * (to - from)`, clipped, the fraction cut off.
pub(super) fn blend(from: u8, to: u8, factor: f32) -> u8 {
    (f32::from(from) + factor * (f32::from(to) - f32::from(from))).clamp(0.0, 255.0) as u8
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

/// Hue and saturation of every colour: divisions are slow, and on a device not exact.
///
/// The way back needs no table, and no float: with `k = 2 * h % 85` of hue `h`, Pillow's three numbers are
/// `v * (255 - s) / 255`, `v * (21675 - s * k) / 21675` and `v * (21675 - s * (85 - k)) / 21675`, rounded, and the
/// sector is `2 * h / 85 % 6`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HueTables {
    /// The hue at `(order * 256 + range) * 256 + delta`, where `range` is the largest channel less the smallest,
    /// `delta` the largest less the middle one, and `order` 0 for r >= g >= b, 1 for r >= b > g, 2 for g > r >= b, 3
    /// for g >= b > r, 4 for b > r >= g and 5 for b > g > r.
    pub hue: Vec<u8>,
    /// The saturation at `256 * max + range`.
    pub saturation: Vec<u8>,
}

impl HueTables {
    /// Computes them.
    pub fn new() -> HueTables {
        let (mut hue, mut saturation) = (vec![0; 6 << 16], vec![0; 1 << 16]);
        for range in 1..256 {
            for delta in 0..=range {
                let (max, mid, min) = (255, (255 - delta) as u8, (255 - range) as u8);
                let orders = [
                    [max, mid, min],
                    [max, min, mid],
                    [mid, max, min],
                    [min, max, mid],
                    [mid, min, max],
                    [min, mid, max],
                ];
                for (order, rgb) in orders.into_iter().enumerate() {
                    hue[(order * 256 + range) * 256 + delta] = to_hsv(rgb).0;
                }
            }
            for max in range..256 {
                saturation[256 * max + range] = to_hsv([max as u8, max as u8, (max - range) as u8]).1;
            }
        }
        HueTables { hue, saturation }
    }
}

/// The order of the channels by (r >= g) + 2 (g >= b) + 4 (r >= b), as [`HueTables::hue`] counts them. Two of the eight cannot be.
const ORDERS: [u8; 8] = [5, 4, 3, 0, 0, 1, 2, 0];
/// What red, green and blue are in each sector of the hue: 0 for Pillow's p, 1 for q, 2 for t and 3 for the value.
const SECTORS: [[u8; 3]; 6] = [[3, 2, 0], [1, 3, 0], [0, 3, 2], [0, 1, 3], [2, 0, 3], [3, 0, 1]];

impl HueTables {
    /// Those of the process.
    fn shared() -> &'static HueTables {
        static TABLES: LazyLock<HueTables> = LazyLock::new(HueTables::new);
        &TABLES
    }

    /// Adds to the hue of a pixel; it wraps round.
    fn shift<const N: usize>(&self, pixel: &mut [u8; N], shift: u8) {
        let [r, g, b] = [pixel[0], pixel[1], pixel[2]];
        let (max, min) = (r.max(g).max(b), r.min(g).min(b));
        if max == min {
            return;
        }
        // The middle one is what is left of all three.
        let delta = max - (r ^ g ^ b ^ max ^ min);
        let order = ORDERS[usize::from(r >= g) + 2 * usize::from(g >= b) + 4 * usize::from(r >= b)];
        let range = usize::from(max - min);
        let hue = self.hue[(usize::from(order) * 256 + range) * 256 + usize::from(delta)];
        let s = u32::from(self.saturation[256 * usize::from(max) + range]);
        if s == 0 {
            pixel[..3].fill(max);
            return;
        }
        let turned = 2 * u32::from(hue.wrapping_add(shift));
        let (sector, k, v) = (turned / 85 % 6, turned % 85, u32::from(max));
        let rounded = |value: u32, of: u32| ((2 * value + of) / (2 * of)) as u8;
        let parts = [
            rounded(v * (255 - s), 255),
            rounded(v * (21675 - s * k), 21675),
            rounded(v * (21675 - s * (85 - k)), 21675),
            max,
        ];
        for (to, part) in pixel.iter_mut().zip(SECTORS[sector as usize]) {
            *to = parts[usize::from(part)];
        }
    }
}

impl Default for HueTables {
    fn default() -> HueTables {
        HueTables::new()
    }
}

/// Pillow's way back, which the integers of [`HueTables::shift`] stand for.
#[cfg(test)]
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Every shift of many colours, as Pillow goes there and back.
    #[test]
    fn hues_are_shifted_as_by_pillow() {
        let tables = HueTables::new();
        for colour in (0..1u32 << 24).step_by(97) {
            let [_, r, g, b] = colour.to_be_bytes();
            let (h, s, v) = to_hsv([r, g, b]);
            for shift in [0, 1, 42, 43, 127, 128, 200, 255] {
                let mut pixel = [r, g, b, 77];
                tables.shift(&mut pixel, shift);
                let [red, green, blue] = from_hsv(h.wrapping_add(shift), s, v);
                assert_eq!(pixel, [red, green, blue, 77], "{r} {g} {b} by {shift}");
            }
        }
    }

    /// What [`HueTables`] says of them.
    #[test]
    fn tables_and_integers_give_the_same_hues() {
        let tables = HueTables::new();
        for colour in (0..1 << 24).step_by(7) {
            let [_, r, g, b] = u32::to_be_bytes(colour);
            let (max, min) = (r.max(g).max(b), r.min(g).min(b));
            let mid = (u32::from(r) + u32::from(g) + u32::from(b) - u32::from(max) - u32::from(min)) as usize;
            let order = if r == max {
                usize::from(g < b)
            } else if g == max {
                2 + usize::from(r < b)
            } else {
                4 + usize::from(r < g)
            };
            let (max, range) = (usize::from(max), usize::from(max - min));
            let (h, s, v) = to_hsv([r, g, b]);
            assert_eq!(
                tables.saturation[256 * max + range],
                s,
                "saturation of {r} {g} {b}"
            );
            if range > 0 {
                let hue = tables.hue[(order * 256 + range) * 256 + max - mid];
                assert_eq!(hue, h, "hue of {r} {g} {b}");
            }
            assert_eq!(usize::from(v), max);
        }
        for h in 0..=255u8 {
            for s in 1..=255u8 {
                for v in 0..=255u8 {
                    let k = 2 * u32::from(h) % 85;
                    let (s32, v32) = (u32::from(s), u32::from(v));
                    let rounded = |value: u32, of: u32| ((2 * value + of) / (2 * of)) as u8;
                    let p = rounded(v32 * (255 - s32), 255);
                    let q = rounded(v32 * (21675 - s32 * k), 21675);
                    let t = rounded(v32 * (21675 - s32 * (85 - k)), 21675);
                    let expected = match 2 * u32::from(h) / 85 % 6 {
                        0 => [v, t, p],
                        1 => [q, v, p],
                        2 => [p, v, t],
                        3 => [p, q, v],
                        4 => [t, p, v],
                        _ => [v, p, q],
                    };
                    assert_eq!(from_hsv(h, s, v), expected, "{h} {s} {v}");
                }
            }
        }
    }
}
