//! Upsampling: the rows of a coarser component at the image's resolution.
//!
//! libjpeg's "fancy" upsampling takes three quarters of the nearer sample and one of the farther in each
//! direction, and alternates how it rounds so that the error does not drift. At the edges the farther sample
//! is the nearer one; who calls puts it there.

use super::{Isa, padded};

/// Rows to upsample. They begin one sample left of the first one that is wanted, and have two samples more
/// than [`padded`] makes of the count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a> {
    pub near: &'a [u8],
    pub far: &'a [u8],
    /// Samples that are wanted, without the one to the left.
    pub count: usize,
}

impl Rows<'_> {
    /// # Panics
    /// Where the rows are too short for what a kernel may touch, or `out` for `factor` times as many.
    fn require(&self, out: &[u8], factor: usize) {
        let touched = padded(self.count);
        let long = |row: &[u8]| row.len() >= touched + 2;
        assert!(
            long(self.near) && long(self.far) && out.len() >= factor * touched,
            "a row that is too short"
        );
    }
}

/// Twice as wide; `far` is not looked at.
pub(crate) fn h2(isa: Isa, rows: Rows<'_>, out: &mut [u8]) {
    rows.require(out, 2);
    match isa {
        Isa::Portable => {
            for (i, out) in out.chunks_exact_mut(2).take(rows.count).enumerate() {
                let [left, here, right] = [0, 1, 2].map(|o| u16::from(rows.near[i + o]));
                out[0] = ((3 * here + left + 1) >> 2) as u8;
                out[1] = ((3 * here + right + 2) >> 2) as u8;
            }
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves the instructions, and the lengths were just found to be enough.
        Isa::Avx2(_) => unsafe { super::avx2::upsample::h2(rows, out) },
    }
}

/// Twice as wide from a row between `near` and `far`.
pub(crate) fn h2v2(isa: Isa, rows: Rows<'_>, out: &mut [u8]) {
    rows.require(out, 2);
    match isa {
        Isa::Portable => {
            let column = |i: usize| 3 * u16::from(rows.near[i]) + u16::from(rows.far[i]);
            for (i, out) in out.chunks_exact_mut(2).take(rows.count).enumerate() {
                let [left, here, right] = [column(i), column(i + 1), column(i + 2)];
                out[0] = ((3 * here + left + 8) >> 4) as u8;
                out[1] = ((3 * here + right + 7) >> 4) as u8;
            }
        }
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves the instructions, and the lengths were just found to be enough.
        Isa::Avx2(_) => unsafe { super::avx2::upsample::h2v2(rows, out) },
    }
}

/// As wide, from a row between `near` and `far`; `bias` is 1 where `far` lies above and 2 where it lies
/// below.
pub(crate) fn v2(rows: Rows<'_>, bias: u16, out: &mut [u8]) {
    rows.require(out, 1);
    let pairs = rows.near[1..].iter().zip(&rows.far[1..]);
    for (out, (&near, &far)) in out.iter_mut().zip(pairs).take(rows.count) {
        *out = ((3 * u16::from(near) + u16::from(far) + bias) >> 2) as u8;
    }
}

/// Each sample `factor` times; `far` is not looked at.
pub(crate) fn repeat(rows: Rows<'_>, factor: usize, out: &mut [u8]) {
    rows.require(out, factor);
    for (out, &sample) in out.chunks_exact_mut(factor).zip(&rows.near[1..]).take(rows.count) {
        out.fill(sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::tests::{best, numbers};

    #[test]
    fn both_forms_agree_on_every_width() {
        let mut number = numbers(2);
        for count in 1..200 {
            let mut row = || -> Vec<u8> { (0..padded(count) + 2).map(|_| number() as u8).collect() };
            let (near, far) = (row(), row());
            let rows = Rows {
                near: &near,
                far: &far,
                count,
            };
            for kernel in [h2, h2v2] {
                let (mut fast, mut plain) = (vec![0; 2 * padded(count)], vec![0; 2 * padded(count)]);
                kernel(best(), rows, &mut fast);
                kernel(Isa::Portable, rows, &mut plain);
                assert_eq!(fast[..2 * count], plain[..2 * count], "{count} samples");
            }
        }
    }

    #[test]
    #[should_panic(expected = "too short")]
    fn a_row_that_is_too_short_is_refused() {
        let rows = Rows {
            near: &[0; 33],
            far: &[0; 34],
            count: 5,
        };
        h2v2(best(), rows, &mut [0; 64]);
    }
}
