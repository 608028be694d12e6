//! Noise with the spectrum of natural images.
//!
//! The power of photographs falls as 1/f² (Field 1987): every octave of spatial frequency holds the same power.
//! So a field is a sum of octaves of equal strength, each made of random numbers on a lattice half as wide as the
//! octave before. The sum is built from coarse to fine: double the field's resolution, add the next lattice.

use crate::random::Random;

/// Coarsest lattice: 2⁷ = 128 pixels.
const OCTAVES: u32 = 8;

/// Lattice points beyond the picture, which doubling uses up.
const MARGIN: usize = 4;

/// Numbers around 0, one a pixel, row after row.
pub(super) struct Field {
    pub width: usize,
    pub height: usize,
    pub values: Vec<f32>,
}

impl Field {
    /// A field whose octaves have a standard deviation of about 1/√8 each, so that all eight together have about 1.
    ///
    /// Octaves on lattices finer than 2^`finest` pixels are left out; the one of single pixels is weakened as a lens
    /// does it.
    pub(super) fn fractal(width: usize, height: usize, finest: u32, random: &mut Random) -> Self {
        let coarsest = OCTAVES - 1;
        let size = |octave: u32| {
            (
                width.div_ceil(1 << octave) + MARGIN,
                height.div_ceil(1 << octave) + MARGIN,
            )
        };
        let (w, h) = size(coarsest);
        let mut field = Self {
            width: w,
            height: h,
            values: vec![0.0; w * h],
        };
        field.add_lattice(1.0, random);
        for octave in (0..coarsest).rev() {
            let (w, h) = if octave == 0 {
                (width, height)
            } else {
                size(octave)
            };
            field = field.doubled(w, h);
            if octave >= finest {
                field.add_lattice(if octave == 0 { 0.6 } else { 1.0 }, random);
            }
        }
        field
    }

    /// The value at a place, which is moved into the field where it lies outside.
    pub(super) fn at(&self, x: f32, y: f32) -> f32 {
        let x = (x.max(0.0) as usize).min(self.width - 1);
        let y = (y.max(0.0) as usize).min(self.height - 1);
        self.values[y * self.width + x]
    }

    /// Adds independent random numbers, triangular about 0.
    fn add_lattice(&mut self, strength: f32, random: &mut Random) {
        // The sum of two 16-bit numbers has a deviation of 26754; smoothing takes about a third of a lattice's.
        let scale = strength * 0.55 / 26754.0;
        for values in self.values.chunks_mut(2) {
            let bits = random.bits();
            for (value, bits) in values.iter_mut().zip([bits as u32, (bits >> 32) as u32]) {
                let sum = (bits & 0xFFFF) as i32 + (bits >> 16) as i32 - 0xFFFF;
                *value += sum as f32 * scale;
            }
        }
    }

    /// The field at twice its resolution, cut to a size: each new value is 3/4 of the nearest and 1/4 of the next.
    fn doubled(&self, width: usize, height: usize) -> Self {
        let mut values = Vec::with_capacity(width * height);
        let mut mixed = vec![0.0; self.width];
        for y in 0..height {
            let (near, far) = neighbours(y);
            let near = &self.values[near * self.width..][..self.width];
            let far = &self.values[far * self.width..][..self.width];
            for ((mixed, near), far) in mixed.iter_mut().zip(near).zip(far) {
                *mixed = 0.75 * near + 0.25 * far;
            }
            for x in 0..width {
                let (near, far) = neighbours(x);
                values.push(0.75 * mixed[near] + 0.25 * mixed[far]);
            }
        }
        Self {
            width,
            height,
            values,
        }
    }
}

/// The nearest and the next lattice point of a place at twice the resolution.
fn neighbours(place: usize) -> (usize, usize) {
    let near = place / 2 + 1;
    (
        near,
        if place.is_multiple_of(2) {
            near - 1
        } else {
            near + 1
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mean square difference of pixels `distance` apart.
    fn roughness(field: &Field, distance: usize) -> f64 {
        let rows = field.values.chunks(field.width);
        let squares: Vec<f64> = rows
            .flat_map(|row| (0..row.len() - distance).map(|x| f64::from(row[x + distance] - row[x]).powi(2)))
            .collect();
        squares.iter().sum::<f64>() / squares.len() as f64
    }

    #[test]
    fn every_octave_holds_about_the_same_power() {
        let field = Field::fractal(512, 384, 0, &mut Random::new(1));
        let variance =
            field.values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / field.values.len() as f64;
        assert!((0.5..2.0).contains(&variance), "{variance}");
        // Under 1/f², doubling the distance adds the same amount again.
        let steps: Vec<f64> = [2, 4, 8, 16]
            .map(|d| roughness(&field, 2 * d) - roughness(&field, d))
            .to_vec();
        let mean = steps.iter().sum::<f64>() / steps.len() as f64;
        assert!(
            steps.iter().all(|step| (0.5 * mean..1.7 * mean).contains(step)),
            "{steps:?}"
        );
    }
}
