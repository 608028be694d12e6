//! Pillow's `Image.reduce` of bytes, to the bit: each block of pixels becomes their mean.

use std::collections::TryReserveError;

use stokehold_jpeg::Region;

use super::Rows;

/// The part `area` of an image, whose blocks of `factor` pixels across and down become pixels. The last blocks of a row and of a
/// column may be smaller.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reduce {
    pub factor: [u32; 2],
    pub area: Region,
}

/// The most pixels of a block. Up to here sums, and their products with [`Mean::inverse`], fit in 32 bits.
const MOST: u64 = 1 << 16;

impl Reduce {
    /// Width and height of the result for an image of this size. `None` if it does not apply to such an image.
    pub fn size(&self, (width, height): (u32, u32)) -> Option<(u32, u32)> {
        let ([across, down], area) = (self.factor, self.area);
        let fits = |first: u32, count: u32, side: u32| {
            count > 0 && u64::from(first) + u64::from(count) <= u64::from(side)
        };
        let fits = fits(area.x, area.width, width) && fits(area.y, area.height, height);
        let few = (1..=MOST).contains(&(u64::from(across) * u64::from(down)));
        (fits && few).then(|| (area.width.div_ceil(across), area.height.div_ceil(down)))
    }

    /// The pixels that a rectangle of the result is made of.
    pub fn needs(&self, rect: Region) -> Region {
        let side = |factor: u32, first: u32, count: u32, most: u32| {
            let begin = first * factor;
            // The last block may reach beyond what 32 bits can count.
            let end = (u64::from(first + count) * u64::from(factor)).min(u64::from(most)) as u32;
            (begin, end - begin)
        };
        let ([across, down], area) = (self.factor, self.area);
        let (x, width) = side(across, rect.x, rect.width, area.width);
        let (y, height) = side(down, rect.y, rect.height, area.height);
        let (x, y) = (area.x + x, area.y + y);
        Region { x, y, width, height }
    }

    /// Reduces the rows that [`needs`](Self::needs) names, `size` pixels across and down, to `out`, in pixels of the same bytes and
    /// without gaps.
    ///
    /// # Errors
    /// There is no memory for the sums of a row.
    pub fn run(&self, from: Rows<'_>, size: (u32, u32), out: &mut [u8]) -> Result<(), TryReserveError> {
        match from.pixel {
            1 => self.means::<1>(from, size, out),
            3 => self.means::<3>(from, size, out),
            _ => self.means::<4>(from, size, out),
        }
    }

    fn means<const N: usize>(
        &self,
        from: Rows<'_>,
        (width, height): (u32, u32),
        out: &mut [u8],
    ) -> Result<(), TryReserveError> {
        let [across, down] = self.factor.map(|factor| factor as usize);
        let (width, height) = (width as usize, height as usize);
        let blocks = width.div_ceil(across);
        let mut sums: Vec<[u32; N]> = Vec::new();
        sums.try_reserve_exact(blocks)?;
        let rows = out.as_chunks_mut::<N>().0.chunks_exact_mut(blocks);
        for (top, out) in (0..height).step_by(down).zip(rows) {
            let lines = top..(top + down).min(height);
            let high = lines.len();
            sums.clear();
            sums.resize(blocks, [0; N]);
            for y in lines {
                let line = &from.data[y * from.stride..][..N * width];
                add(line.as_chunks().0, across, &mut sums);
            }
            let mean = |at: usize| Mean::of(across.min(width - across * at) * high);
            let (whole, last) = (mean(0), mean(blocks - 1));
            for (at, (out, sum)) in out.iter_mut().zip(&sums).enumerate() {
                let mean = if at + 1 == blocks { last } else { whole };
                *out = sum.map(|sum| mean.byte(sum));
            }
        }
        Ok(())
    }
}

/// Adds the pixels of a line to the sums of their blocks.
fn add<const N: usize>(line: &[[u8; N]], across: usize, sums: &mut [[u32; N]]) {
    for (block, sum) in line.chunks(across).zip(sums) {
        for pixel in block {
            for (sum, &level) in sum.iter_mut().zip(pixel) {
                *sum += u32::from(level);
            }
        }
    }
}

/// Divides a sum by a number of bytes, and rounds as Pillow does.
#[derive(Clone, Copy)]
struct Mean {
    half: u32,
    /// 2^24 divided by their number.
    inverse: u32,
}

impl Mean {
    fn of(count: usize) -> Mean {
        let count = count as u32;
        // Pillow divides floats of 32 bits.
        let inverse = (4_294_967_296.0 / (256 * count) as f32) as u32;
        Mean {
            half: count / 2,
            inverse,
        }
    }

    fn byte(self, sum: u32) -> u8 {
        ((sum + self.half).wrapping_mul(self.inverse) >> 24) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: Pillow 13, `Image.reduce` of a row of these levels.
    #[test]
    fn the_mean_is_rounded_as_pillow_rounds_it() {
        for (levels, mean) in [
            (&[0u8, 1][..], 1u8),
            (&[255, 255, 255], 255),
            (&[0, 1, 1], 0),
            (&[0, 0, 1], 0),
            (&[7, 8, 8, 7, 8, 8, 9], 8),
        ] {
            let reduce = Reduce {
                factor: [levels.len() as u32, 1],
                area: Region {
                    x: 0,
                    y: 0,
                    width: levels.len() as u32,
                    height: 1,
                },
            };
            let rows = Rows {
                data: levels,
                stride: levels.len(),
                pixel: 1,
            };
            let mut out = [9];
            reduce.run(rows, (levels.len() as u32, 1), &mut out).unwrap();
            assert_eq!(out, [mean], "{levels:?}");
        }
    }

    #[test]
    fn blocks_that_do_not_fit_are_none() {
        let reduce = |factor, width| Reduce {
            factor,
            area: Region {
                x: 2,
                y: 0,
                width,
                height: 5,
            },
        };
        assert_eq!(reduce([2, 3], 9).size((11, 5)), Some((5, 2)));
        assert_eq!(reduce([2, 3], 10).size((11, 5)), None);
        assert_eq!(reduce([0, 3], 9).size((11, 5)), None);
        assert_eq!(reduce([1 << 16, 2], 9).size((11, 5)), None);
    }
}
