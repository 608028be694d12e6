//! Weighted sums over windows of their own: the contract, the portable kernel, and which others there are.
//!
//! Along each row of a window `sum_i wx[i] * sample[i]` in 32 bits, with weights of 13 bits; seven bits are dropped,
//! rounding half up, which leaves values times 64. Of these `sum_j wy[j] * row[j]` with weights of 14 bits; 20 bits
//! are dropped, rounding half up, and what is left saturates to bytes. Every kernel does exactly this.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use super::{BLOCK, Buffers, Places, Turned};
use crate::fused::isa::Isa;
#[cfg(target_arch = "x86_64")]
pub(super) use avx512::Wide;
use std::ops::Range;

/// Row `v` of the result from column `range.start` on.
pub(super) fn row(turned: &Turned<'_>, v: usize, range: Range<usize>, out: &mut [[u8; 4]]) {
    match turned.buffers.isa {
        Isa::Portable => {
            let start = turned.start(v);
            for (u, out) in range.step_by(BLOCK).zip(out.chunks_mut(BLOCK)) {
                portable(turned, &turned.find(start, u), out);
            }
        }
        // SAFETY: the processor has the instructions, or there were no such `Isa`.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { avx2::row(turned, v, range, out) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { avx512::row(turned, v, range, out) },
    }
}

/// At most a block of pixels.
fn portable(turned: &Turned<'_>, places: &Places, out: &mut [[u8; 4]]) {
    let Buffers {
        x: across,
        y: down,
        rows,
        ..
    } = turned.buffers;
    let places = places.offset.iter().zip(places.x).zip(places.y);
    for (out, ((&offset, x), y)) in out.iter_mut().zip(places) {
        let (wx, wy) = (&across.of(x)[..across.taps], &down.of(y)[..down.taps]);
        let mut sums = [0i32; 4];
        for (&row, &wy) in rows.iter().zip(wy) {
            let pixels = turned.data[offset as usize + row..].as_chunks::<4>().0;
            for (c, sum) in sums.iter_mut().enumerate() {
                let products = pixels
                    .iter()
                    .zip(wx)
                    .map(|(p, &w)| i32::from(p[c]) * i32::from(w));
                *sum += ((products.sum::<i32>() + 64) >> 7) * i32::from(wy);
            }
        }
        *out = sums.map(|sum| ((sum + (1 << 19)) >> 20).clamp(0, 255) as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Bounds, Rgbx};
    use super::*;
    use crate::op::Filter;
    use crate::step::Affine;

    /// The kernels give the bits of the portable one, at every scale and angle, edges included.
    #[test]
    fn kernels_equal_the_portable_one() {
        let (width, height) = (70u32, 60u32);
        let data: Vec<u8> = (0..4 * width * height)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        let source = Rgbx::whole(&data, width, height);
        let bounds = Bounds {
            x: (0, width.into()),
            y: (0, height.into()),
        };
        for interpolation in Filter::ALL {
            for (scale, angle) in [(0.4, 0.3f64), (1.0, 1.0), (1.7, 2.5), (2.0, 4.0), (4.3, 5.5)] {
                let (sin, cos) = (scale * angle.sin(), scale * angle.cos());
                let map = Affine([cos, sin, 10.0, -sin, cos, 25.0]);
                let rows = |isa: Isa| {
                    let mut buffers = Buffers {
                        isa,
                        ..Buffers::default()
                    };
                    let turned =
                        Turned::new(source, interpolation, &map, bounds, (scale, scale), &mut buffers);
                    let mut out = vec![[9; 4]; 100 * 37];
                    for (v, out) in out.chunks_mut(37).enumerate() {
                        row(&turned, v, 3..40, out);
                    }
                    out
                };
                let expected = rows(Isa::Portable);
                for isa in Isa::all() {
                    assert!(rows(isa) == expected, "{isa:?} {interpolation:?} {scale} {angle}");
                }
            }
        }
    }
}
