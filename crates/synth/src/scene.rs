//! One picture: a background of natural texture, an object of the class before it, light over both.
//!
//! Backgrounds are "dead leaves": things of all sizes, as many small ones as scale invariance asks for, covering
//! one another. Such pictures have the edges and the 1/f² spectrum of photographs (Lee, Mumford and Huang 2001).
//! Fractal noise gives every surface its roughness. Colours are drawn for each picture and have nothing to do with
//! the class; shape and pattern are the class.

use stokehold_base::random::mix;

use super::class::{self, Surface};
use super::math::{lerp, sin_cos, smoothstep};
use super::noise::Field;
use crate::random::Random;

/// A picture: RGB, a byte a channel, row after row.
pub(super) struct Picture {
    pub width: u16,
    pub height: u16,
    pub rgb: Vec<u8>,
}

/// Red, green and blue, 0 to 1 where they can be shown.
type Colour = [f32; 3];

/// Draws picture number `number` of `class`.
pub(super) fn draw(seed: u64, class: usize, number: usize) -> Picture {
    let mut random = Random::new(mix(mix(seed) ^ class as u64) ^ number as u64);
    let (long, short) = (
        500 + random.below(81) as usize - 40,
        375 + random.below(61) as usize - 30,
    );
    let (width, height) = if random.unit() < 0.3 {
        (short, long)
    } else {
        (long, short)
    };
    let mut scene = Scene::new(width, height, random);
    match scene.random.below(3) {
        0 => scene.landscape(),
        1 => scene.litter(),
        _ => scene.room(),
    }
    scene.objects(class);
    scene.foreground();
    scene.develop()
}

struct Scene {
    width: usize,
    height: usize,
    pixels: Vec<Colour>,
    /// How rough each pixel's surface is, 1 for ordinary ones.
    rough: Vec<f32>,
    /// Roughness of surfaces, all octaves.
    detail: Field,
    /// Smooth variation: clouds, hills, uneven light.
    soft: Field,
    /// Variation of colour.
    tint: Field,
    /// Where the light comes from, a unit vector in the picture.
    light: (f32, f32),
    palette: [Colour; 5],
    random: Random,
}

impl Scene {
    fn new(width: usize, height: usize, mut random: Random) -> Self {
        let detail = Field::fractal(width, height, 0, &mut random);
        let soft = Field::fractal(width, height, 3, &mut random);
        let tint = Field::fractal(width, height, 1, &mut random);
        let light = sin_cos(random.unit());
        let palette = std::array::from_fn(|_| natural_colour(&mut random));
        let pixels = vec![[0.0; 3]; width * height];
        let rough = vec![1.0; width * height];
        Self {
            width,
            height,
            pixels,
            rough,
            detail,
            soft,
            tint,
            light,
            palette,
            random,
        }
    }

    /// Sky, one or two ranges of hills, and ground covered with small things that grow towards the viewer.
    fn landscape(&mut self) {
        let horizon = self.height as f32 * self.random.between(0.25, 0.6);
        let (zenith, haze) = (
            sky_colour(&mut self.random, 0.62),
            sky_colour(&mut self.random, 0.85),
        );
        let cloudiness = self.random.between(0.0, 0.16);
        for y in 0..self.height {
            let t = (y as f32 / horizon).min(1.0);
            for x in 0..self.width {
                self.rough[y * self.width + x] = 0.3;
                let cloud = smoothstep(-0.2, 1.2, self.soft.at(x as f32, y as f32 * 1.7)) * cloudiness * 2.0;
                for c in 0..3 {
                    self.pixels[y * self.width + x][c] = lerp(lerp(zenith[c], haze[c], t), 0.95, cloud);
                }
            }
        }
        for range in 0..1 + self.random.below(2) {
            let row = self.random.between(0.0, self.height as f32);
            let (colour, rise) = (self.some_colour(), self.random.between(6.0, 30.0));
            let top = horizon - 14.0 + 18.0 * range as f32;
            self.fill_below(colour, |scene, x| {
                top - rise * (0.4 + scene.soft.at(x * 0.4, row))
            });
        }
        let ground = self.some_colour();
        self.fill_below(ground, |_, _| horizon + 12.0);
        self.leaves(900, horizon + 12.0, |depth| 0.25 + 1.3 * depth);
    }

    /// Things of all sizes everywhere, as seen from above: foliage, gravel, a heap.
    fn litter(&mut self) {
        let base = self.some_colour();
        self.fill_below(base, |_, _| 0.0);
        self.leaves(900, 0.0, |_| 1.0);
    }

    /// A wall in uneven light, a table with grain, and a few things on it.
    fn room(&mut self) {
        let edge = self.height as f32 * self.random.between(0.45, 0.75);
        let (wall, table) = (self.some_colour(), self.some_colour());
        self.fill_below(wall, |_, _| 0.0);
        self.fill_below(table, |_, _| edge);
        let grain = self.random.between(0.1, 0.3);
        for y in 0..self.height {
            for x in 0..self.width {
                let (fx, fy) = (x as f32, y as f32);
                let gain = if fy < edge {
                    0.9 + 0.18 * self.soft.at(fx, fy)
                } else {
                    1.0 + grain * self.detail.at(fx * 0.08, fy)
                };
                scale(&mut self.pixels[y * self.width + x], gain);
            }
        }
        let things = 15 + self.random.below(40);
        self.leaves(things, edge - 20.0, |depth| 1.2 + 2.0 * depth);
    }

    /// One object, or two or three smaller ones, of the class.
    fn objects(&mut self, class: usize) {
        let count = if self.random.unit() < 0.7 {
            1
        } else {
            2 + self.random.below(2)
        };
        let side = self.width.min(self.height) as f32;
        for place in 0..count {
            let radius = side
                * if count == 1 {
                    self.random.between(0.3, 0.48)
                } else {
                    self.random.between(0.19, 0.26)
                };
            let left = self.width as f32 * place as f32 / count as f32;
            let room = self.width as f32 / count as f32;
            let x = left + room * self.random.between(0.3, 0.7);
            let y = self.height as f32 * self.random.between(0.35, 0.65);
            self.object(class, (x, y), radius);
        }
    }

    fn object(&mut self, class: usize, centre: (f32, f32), radius: f32) {
        let (sin, cos) = sin_cos(self.random.between(-0.1, 0.1));
        let squeeze = self.random.between(0.85, 1.18);
        let (front, back) = two_colours(&mut self.random);
        let looks = Surface {
            frequency: self.random.between(2.6, 4.2),
            soft: &self.soft,
            origin: (
                self.random.between(100.0, self.width as f32 - 100.0),
                self.random.between(100.0, self.height as f32 - 100.0),
            ),
        };
        let place = |x: f32, y: f32| {
            let (x, y) = ((x - centre.0) / radius, (y - centre.1) / radius);
            ((x * cos + y * sin) * squeeze, (y * cos - x * sin) / squeeze)
        };
        let phase = (self.random.unit(), self.random.unit());
        let (rows, columns) = self.window(centre, radius * 1.7);
        let blur = 1.2 / radius;
        for y in rows {
            for x in columns.clone() {
                let pixel = &mut self.pixels[y * self.width + x];
                let (fx, fy) = (x as f32, y as f32);
                let cast = place(
                    fx - 0.14 * radius * self.light.0,
                    fy - 0.14 * radius * self.light.1,
                );
                let shadow = smoothstep(0.16, -0.16, class::distance(class, cast.0, cast.1));
                scale(pixel, 1.0 - 0.55 * shadow);
                let (u, v) = place(fx, fy);
                let distance = class::distance(class, u, v);
                let cover = smoothstep(blur, -blur, distance);
                if cover > 0.0 {
                    let t = class::pattern(class, &looks, u + phase.0, v + phase.1);
                    // Lit like something round: brighter towards the light, darker at the rim.
                    let lit = -((fx - centre.0) * self.light.0 + (fy - centre.1) * self.light.1) / radius;
                    let gain = (0.92 + 0.3 * lit) * lerp(0.6, 1.0, smoothstep(0.0, 0.22, -distance));
                    for c in 0..3 {
                        pixel[c] = lerp(pixel[c], lerp(front[c], back[c], t) * gain, cover);
                    }
                }
            }
        }
    }

    /// A few things before the object, which may cover a little of it.
    fn foreground(&mut self) {
        if self.random.unit() < 0.5 {
            let things = 4 + self.random.below(12);
            self.leaves(things, self.height as f32 * 0.2, |_| 1.3);
        }
    }

    /// Drops round things below `top`. Their radius is drawn with density r⁻³ and multiplied by `size` of the
    /// depth, 0 at `top` and 1 at the bottom.
    fn leaves(&mut self, count: u32, top: f32, size: impl Fn(f32) -> f32) {
        const SMALLEST: f32 = 4.5;
        const LARGEST: f32 = 110.0;
        for _ in 0..count {
            let y = self.random.between(top, self.height as f32 + 10.0);
            let x = self.random.between(-10.0, self.width as f32 + 10.0);
            let depth = (y - top) / (self.height as f32 - top).max(1.0);
            let ratio = SMALLEST / LARGEST;
            let radius = SMALLEST / (1.0 - self.random.unit() * (1.0 - ratio * ratio)).sqrt() * size(depth);
            self.leaf((x, y), radius.min(LARGEST));
        }
    }

    fn leaf(&mut self, centre: (f32, f32), radius: f32) {
        let (sin, cos) = sin_cos(self.random.unit());
        let slim = self.random.between(1.0, 2.2);
        let mut colour = self.some_colour();
        scale(&mut colour, self.random.between(0.6, 1.35));
        let ragged = self.random.between(0.0, 0.35);
        let (rows, columns) = self.window(centre, radius * 1.2);
        for y in rows {
            for x in columns.clone() {
                let (dx, dy) = ((x as f32 - centre.0) / radius, (y as f32 - centre.1) / radius);
                let (u, v) = (dx * cos + dy * sin, (dy * cos - dx * sin) * slim);
                let index = y * self.width + x;
                let reach = u * u + v * v + ragged * self.soft.values[index];
                let cover = smoothstep(1.0, 1.0 - 2.5 / radius, reach);
                if cover > 0.0 {
                    let lit = 1.0 - 0.28 * (dx * self.light.0 + dy * self.light.1) - 0.3 * reach.max(0.0);
                    for (value, colour) in self.pixels[index].iter_mut().zip(colour) {
                        *value = lerp(*value, colour * lit, cover);
                    }
                }
            }
        }
    }

    /// Paints everything below a line.
    fn fill_below(&mut self, colour: Colour, top: impl Fn(&Self, f32) -> f32) {
        for x in 0..self.width {
            let top = top(self, x as f32).clamp(0.0, self.height as f32);
            for y in top as usize..self.height {
                let cover = (y as f32 + 1.0 - top).min(1.0);
                for (value, colour) in self.pixels[y * self.width + x].iter_mut().zip(colour) {
                    *value = lerp(*value, colour, cover);
                }
                self.rough[y * self.width + x] = 1.0;
            }
        }
    }

    /// Roughness, colour variation, vignette and grain, then bytes.
    fn develop(mut self) -> Picture {
        let rough = self.random.between(0.17, 0.29);
        let exposure = self.random.between(0.95, 1.35);
        let corner = self.random.between(0.0, 0.35);
        let (w, h) = (self.width as f32, self.height as f32);
        let mut rgb = Vec::with_capacity(self.pixels.len() * 3);
        for y in 0..self.height {
            let fy = (y as f32 / h - 0.5) * 2.0;
            for x in 0..self.width {
                let index = y * self.width + x;
                let fx = (x as f32 / w - 0.5) * 2.0;
                let gain = exposure
                    * (1.0 - corner * 0.5 * (fx * fx + fy * fy))
                    * (1.0 + rough * self.rough[index] * self.detail.values[index]);
                let tint = 0.05 * self.tint.values[index];
                let [r, g, b] = self.pixels[index];
                for value in [r * (1.0 + tint), g, b * (1.0 - tint)] {
                    rgb.push((value * gain * 255.0 + 0.5).clamp(0.0, 255.0) as u8);
                }
            }
        }
        Picture {
            width: self.width as u16,
            height: self.height as u16,
            rgb,
        }
    }

    fn some_colour(&mut self) -> Colour {
        self.palette[self.random.below(self.palette.len() as u32) as usize]
    }

    /// The rows and columns of the picture around a place.
    fn window(&self, centre: (f32, f32), reach: f32) -> (std::ops::Range<usize>, std::ops::Range<usize>) {
        let range = |middle: f32, size: usize| {
            let low = (middle - reach).clamp(0.0, size as f32) as usize;
            low..((middle + reach + 1.0).clamp(0.0, size as f32) as usize)
        };
        (range(centre.1, self.height), range(centre.0, self.width))
    }
}

fn scale(colour: &mut Colour, gain: f32) {
    colour.iter_mut().for_each(|value| *value *= gain);
}

/// A colour as surfaces outdoors have it: any brightness, more often yellowish or greenish than not, little saturated.
fn natural_colour(random: &mut Random) -> Colour {
    let brightness = random.between(0.18, 0.75);
    let (warm, green) = (random.between(-0.2, 0.32), random.between(-0.14, 0.2));
    [
        brightness * (1.0 + warm),
        brightness * (1.0 + green),
        brightness * (1.0 - warm),
    ]
}

fn sky_colour(random: &mut Random, brightness: f32) -> Colour {
    let warm = random.between(-0.28, 0.1);
    [
        brightness * (1.0 + warm),
        brightness * (1.0 + 0.3 * warm),
        brightness * (1.0 - 0.35 * warm),
    ]
}

/// Two colours of any hue, one clearly darker, in either order.
fn two_colours(random: &mut Random) -> (Colour, Colour) {
    let mut vivid = |brightness: f32| {
        let (sin, cos) = sin_cos(random.unit());
        let strength = random.between(0.0, 0.6);
        [
            brightness * (1.0 + strength * sin),
            brightness * (1.0 - strength * (0.5 * sin - 0.866 * cos)),
            brightness * (1.0 - strength * (0.5 * sin + 0.866 * cos)),
        ]
    };
    let (dark, bright) = (vivid(0.22), vivid(0.68));
    if random.unit() < 0.5 {
        (dark, bright)
    } else {
        (bright, dark)
    }
}
