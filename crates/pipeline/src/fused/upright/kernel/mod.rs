//! The arithmetic of upright resampling: the contract, and which instructions carry it out.
//!
//! * Along a row ([`sum_columns`]): `sum_i weight[i] * sample[i]` in 32 bits, weights of 13 bits; seven bits are
//!   dropped, rounding half up, which leaves values times 64 in 16 bits, saturated.
//! * Down the columns ([`mix_rows`]): products with weights of 15 bits, each rounded to 16 bits (`pmulhrsw`), added
//!   with saturation.
//! * Colours ([`rgbx`]): JFIF's matrix on values times 64, then bytes, rounded half up and saturated.
//!
//! The portable kernels are the definition; tests hold the others equal.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;

use super::weights::Columns;
use crate::fused::isa::Isa;
use crate::fused::source::Color;
#[cfg(target_arch = "x86_64")]
pub(super) use avx2::Near;
#[cfg(target_arch = "x86_64")]
pub(super) use avx512::Wide;
use std::ops::Range;

/// Positions that share a table of weights.
pub(super) const BLOCK: usize = 16;

/// Rows of sums are padded to multiples of this, so that kernels see whole vectors only.
pub(super) const PADDING: usize = 32;

/// The sums along one row, for all positions of `columns`. `source` has at least `columns.reach` bytes.
pub(super) fn sum_columns(isa: Isa, source: &[u8], columns: &Columns, out: &mut [i16]) {
    assert!(
        source.len() >= columns.reach,
        "a row as long as the windows reach"
    );
    assert_eq!(out.len(), columns.starts.len(), "a sum for each position");
    match isa {
        Isa::Portable => portable::sum_columns(source, columns, out),
        // SAFETY: the processor has the instructions, or there were no such `Isa`.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2::sum_columns(source, columns, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe {
            match columns.wide.fits() {
                true => avx512::sum_columns(source, &columns.wide, out),
                false => avx2::sum_columns(source, columns, out),
            }
        },
    }
}

/// The weighted sum of the rows `rows`, of which row `y` is in place `y % weights.len()` of `sums`.
pub(super) fn mix_rows(isa: Isa, sums: &[i16], rows: Range<usize>, weights: &[i16], out: &mut [i16]) {
    match isa {
        Isa::Portable => portable::mix_rows(sums, rows, weights, out),
        // SAFETY: the processor has the instructions, or there were no such `Isa`.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2::mix_rows(sums, rows, weights, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { avx512::mix_rows(sums, rows, weights, out) },
    }
}

/// Three channels of values times 64 to four bytes a pixel, as many as `out` holds.
pub(super) fn rgbx(isa: Isa, color: Color, channels: [&[i16]; 3], out: &mut [u8]) {
    match isa {
        Isa::Portable => portable::rgbx(color, channels, out),
        // SAFETY: the processor has the instructions, or there were no such `Isa`.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 | Isa::Avx512 => unsafe { avx2::rgbx(color, channels, out) },
    }
}

#[cfg(test)]
mod tests {
    use super::super::weights::{Line, Taps, Windows};
    use super::*;
    use crate::fused::source::Side;
    use crate::op::Filter;

    fn noise(count: usize) -> Vec<u8> {
        (0..count as u32)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect()
    }

    /// The kernels give the bits of the portable ones: every filter, shrinking and growing, mirrored, coarser planes.
    #[test]
    fn kernels_equal_the_portable_ones() {
        let data = noise(4000);
        for interpolation in Filter::ALL {
            for (slope, start) in [
                (0.3, 20.2),
                (1.0, 0.0),
                (1.7, 3.3),
                (-2.4, 900.0),
                (9.7, 0.0),
                (-40.0, 4000.0),
            ] {
                for pixels in [1, 2, 3] {
                    let line = Line {
                        slope,
                        start,
                        count: 77,
                        bounds: (0, 3000),
                    };
                    let mut windows = Windows::default();
                    windows.along(interpolation, line, 1);
                    let side = Side {
                        first: 0,
                        count: 3000 / pixels,
                        pixels,
                    };
                    let sums = |isa| {
                        let (mut columns, mut out) = (Columns::default(), vec![7; 96]);
                        columns.set(&windows, side, 96, isa);
                        sum_columns(isa, &data, &columns, &mut out);
                        out
                    };
                    let expected = sums(Isa::Portable);
                    for isa in Isa::all() {
                        assert_eq!(
                            sums(isa)[..77],
                            expected[..77],
                            "{isa:?} {interpolation:?} {slope} {pixels}"
                        );
                    }
                    let mut rows = Taps::default();
                    rows.set(&windows, side, 15);
                    let values: Vec<i16> = noise(96 * rows.taps).iter().map(|&v| i16::from(v) * 64).collect();
                    let mixed = |isa| {
                        let mut out = vec![3; 96];
                        let (start, weights) = rows.of(40);
                        mix_rows(isa, &values, start..start + rows.taps, weights, &mut out);
                        out
                    };
                    Isa::all()
                        .into_iter()
                        .for_each(|isa| assert_eq!(mixed(isa), mixed(Isa::Portable), "{isa:?}"));
                }
            }
        }
    }

    #[test]
    fn colours_are_the_portable_ones() {
        let values: Vec<i16> = noise(1000)
            .chunks(2)
            .map(|c| i16::from_le_bytes([c[0], c[1]]))
            .collect();
        let channels = [&values[..100], &values[100..200], &values[200..300]];
        for color in [Color::Rgb, Color::YCbCr] {
            for width in [1, 16, 37, 96] {
                let pixels = |isa| {
                    let mut out = vec![0; 4 * width];
                    rgbx(isa, color, channels, &mut out);
                    out
                };
                Isa::all()
                    .into_iter()
                    .for_each(|isa| assert_eq!(pixels(isa), pixels(Isa::Portable), "{isa:?}"));
            }
        }
    }
}
