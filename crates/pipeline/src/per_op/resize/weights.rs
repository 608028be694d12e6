//! The weights of Pillow's resize (`Resample.c`), as integers.

use std::collections::TryReserveError;
use std::ops::Range;

use crate::op::Filter;

/// Fractional bits of a weight.
pub(super) const PRECISION: u32 = 32 - 8 - 2;

/// The weights of some places of an axis.
pub(crate) struct Weights {
    /// The first sample of each place.
    pub starts: Vec<u32>,
    /// How many samples of each place count.
    pub counts: Vec<u32>,
    /// Weights of a place, a multiple of four: zeros at its end.
    taps: usize,
    values: Vec<i32>,
    /// `weight >> 12` of an even tap and, in the upper half, of the odd one after it.
    #[cfg(target_arch = "x86_64")]
    pub high: Vec<i32>,
    /// The lower twelve bits likewise.
    #[cfg(target_arch = "x86_64")]
    pub low: Vec<i32>,
}

impl Weights {
    /// Of some of `outputs` places, which the part `begin..end` of `inputs` samples becomes.
    ///
    /// # Errors
    /// There is no memory for them.
    pub fn new(
        filter: Filter,
        inputs: u32,
        [begin, end]: [f32; 2],
        outputs: u32,
        places: Range<u32>,
    ) -> Result<Weights, TryReserveError> {
        let scale = f64::from(end - begin) / f64::from(outputs);
        let stretch = scale.max(1.0);
        let support = filter.support(scale);
        let most = support.ceil() as usize * 2 + 1;
        let taps = most.next_multiple_of(4);
        let mut starts = Vec::with_capacity(places.len());
        let mut counts = Vec::with_capacity(places.len());
        let mut values = zeros(places.len() * taps)?;
        let mut exact = vec![0f64; most];
        let inverse = 1.0 / stretch;
        for (place, values) in places.zip(values.chunks_exact_mut(taps)) {
            let center = f64::from(begin) + (f64::from(place) + 0.5) * scale;
            let first = ((center - support + 0.5) as i32).max(0);
            let end = ((center + support + 0.5) as i32).min(inputs as i32);
            let exact = &mut exact[..(end - first).max(0) as usize];
            let mut sum = 0.0;
            for (x, value) in (first..).zip(exact.iter_mut()) {
                *value = filter.weight((f64::from(x) - center + 0.5) * inverse);
                sum += *value;
            }
            for (exact, value) in exact.iter_mut().zip(values) {
                if sum != 0.0 {
                    *exact /= sum;
                }
                let scaled = *exact * f64::from(1 << PRECISION);
                *value = (scaled + 0.5f64.copysign(*exact)) as i32;
            }
            starts.push(first as u32);
            counts.push(exact.len() as u32);
        }
        Ok(Weights {
            starts,
            counts,
            taps,
            #[cfg(target_arch = "x86_64")]
            high: pairs_of(&values, |weight| weight >> 12)?,
            #[cfg(target_arch = "x86_64")]
            low: pairs_of(&values, |weight| weight & 0xFFF)?,
            values,
        })
    }

    /// Places.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// The weights of a place.
    pub fn of(&self, at: usize) -> &[i32] {
        &self.values[at * self.taps..][..self.counts[at] as usize]
    }

    /// The weights of a place in fours, with zeros at the end; at least one four.
    #[cfg(target_arch = "aarch64")]
    pub fn fours(&self, at: usize) -> &[[i32; 4]] {
        let groups = self.counts[at].div_ceil(4).max(1) as usize;
        &self.values[at * self.taps..][..self.taps].as_chunks::<4>().0[..groups]
    }

    /// The pairs of a place, in `high` and `low`.
    #[cfg(target_arch = "x86_64")]
    pub fn pairs(&self, at: usize) -> Range<usize> {
        let pairs = self.taps / 2;
        at * pairs..(at + 1) * pairs
    }

    /// The samples that any place takes: first, and after the last.
    pub fn span(&self) -> (u32, u32) {
        let ends = self
            .starts
            .iter()
            .zip(&self.counts)
            .map(|(start, count)| start + count);
        let first = self.starts.iter().copied().min().unwrap_or(0);
        (first, ends.max().unwrap_or(0).max(first + 1))
    }
}

/// A part of each weight, two in 32 bits.
#[cfg(target_arch = "x86_64")]
fn pairs_of(weights: &[i32], part: impl Fn(i32) -> i32) -> Result<Vec<i32>, TryReserveError> {
    let mut pairs = zeros(weights.len() / 2)?;
    for (pair, two) in pairs.iter_mut().zip(weights.as_chunks::<2>().0) {
        *pair = (part(two[0]) & 0xFFFF) | (part(two[1]) << 16);
    }
    Ok(pairs)
}

fn zeros(count: usize) -> Result<Vec<i32>, TryReserveError> {
    let mut zeros = Vec::new();
    zeros.try_reserve_exact(count)?;
    zeros.resize(count, 0);
    Ok(zeros)
}

/// The nearest samples of some places, as Pillow finds them step by step; none is outside.
pub(super) fn places(
    begin: f32,
    end: f32,
    outputs: u32,
    inputs: u32,
    first: u32,
    count: u32,
) -> Vec<Option<u32>> {
    let step = f64::from(end - begin) / f64::from(outputs);
    let mut place = f64::from(begin) + step * 0.5;
    for _ in 0..first {
        place += step;
    }
    let mut found = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let sample = if place < 0.0 { -1 } else { place as i64 };
        found.push((0..i64::from(inputs)).contains(&sample).then_some(sample as u32));
        place += step;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: Pillow 13, `Image.resize((width, 1), NEAREST)` of a row of numbered pixels. In these columns the place lies
    /// between two pixels.
    #[test]
    fn the_nearest_pixel_is_pillows() {
        for (input, output, column, pixel) in [
            (400u32, 197, 98, 199),
            (400, 180, 13, 29),
            (400, 180, 22, 49),
            (500, 197, 98, 249),
        ] {
            let found = places(0.0, input as f32, output, input, column, 1);
            assert_eq!(found, [Some(pixel)], "{input} to {output}");
        }
    }
}
