//! 32 pixels a step. See [`crate::kernels::color`] for the arithmetic.
//!
//! It is done in 16 bits: `1.402 Cr` as `Cr + 0.402 Cr` and `1.772 Cb` as `2 Cb - 0.228 Cb`, each fraction as
//! half of the rounded upper 16 bits of twice the product, which is the rounded product; only green needs 32
//! bits.

use crate::kernels::color::Row;
use std::arch::x86_64::*;

/// # Safety
/// The processor has AVX2; the rows are as long as the padded width, and `out` has three bytes for each and
/// 16 more.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn ycc_rgb(row: Row<'_>, width: usize, out: &mut [u8]) {
    // Closes the gaps: the three bytes that count of each of four pixels.
    let close = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1,
    ));
    for x in (0..width).step_by(32) {
        // SAFETY: x + 32 is at most the padded width.
        let quads = unsafe { convert(row, x) }.map(|pixels| _mm256_shuffle_epi8(pixels, close));
        // In the order of the pixels, so that the four bytes too many of each are written over by the next.
        let order = [(0, 0), (1, 0), (2, 0), (3, 0), (0, 1), (1, 1), (2, 1), (3, 1)];
        for (i, (register, upper)) in order.into_iter().enumerate() {
            let four = match upper {
                0 => _mm256_castsi256_si128(quads[register]),
                _ => _mm256_extracti128_si256::<1>(quads[register]),
            };
            // SAFETY: 3x + 12i + 16 is at most three times the padded width and 4.
            unsafe { _mm_storeu_si128(out.as_mut_ptr().add(3 * x + 12 * i).cast(), four) };
        }
    }
}

/// # Safety
/// The processor has AVX2; the rows are as long as the padded width, and `out` has four bytes for each.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn ycc_rgbx(row: Row<'_>, width: usize, out: &mut [u8]) {
    for x in (0..width).step_by(32) {
        // SAFETY: x + 32 is at most the padded width.
        let [a, b, c, d] = unsafe { convert(row, x) };
        let in_order = [
            _mm256_permute2x128_si256::<0x20>(a, b),
            _mm256_permute2x128_si256::<0x20>(c, d),
            _mm256_permute2x128_si256::<0x31>(a, b),
            _mm256_permute2x128_si256::<0x31>(c, d),
        ];
        for (i, eight) in in_order.into_iter().enumerate() {
            // SAFETY: 4x + 32i + 32 is at most four times the padded width.
            unsafe { _mm256_storeu_si256(out.as_mut_ptr().add(4 * x + 32 * i).cast(), eight) };
        }
    }
}

/// 32 pixels from `x`, four bytes each: register `i` holds pixels `4i..4i + 4` in its lower half and `16 +
/// 4i..` in its upper half.
///
/// # Safety
/// 32 samples from `x` are there in each row.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn convert(row: Row<'_>, x: usize) -> [__m256i; 4] {
    let load = |row: &[u8]| {
        debug_assert!(x + 32 <= row.len());
        // SAFETY: the caller promises the 32 bytes; the load asks for no alignment.
        unsafe { _mm256_loadu_si256(row.as_ptr().add(x).cast()) }
    };
    let (y, cb, cr) = (load(row[0]), load(row[1]), load(row[2]));
    let zero = _mm256_setzero_si256();
    let low = convert16([y, cb, cr].map(|v| _mm256_unpacklo_epi8(v, zero)));
    let high = convert16([y, cb, cr].map(|v| _mm256_unpackhi_epi8(v, zero)));
    let [r, g, b] = [0, 1, 2].map(|i| _mm256_packus_epi16(low[i], high[i]));
    let full = _mm256_set1_epi8(-1);
    let (rg, bx) = (_mm256_unpacklo_epi8(r, g), _mm256_unpacklo_epi8(b, full));
    let (rg2, bx2) = (_mm256_unpackhi_epi8(r, g), _mm256_unpackhi_epi8(b, full));
    [
        _mm256_unpacklo_epi16(rg, bx),
        _mm256_unpackhi_epi16(rg, bx),
        _mm256_unpacklo_epi16(rg2, bx2),
        _mm256_unpackhi_epi16(rg2, bx2),
    ]
}

/// Red, green and blue of 16 pixels, not yet clamped.
#[inline]
#[target_feature(enable = "avx2")]
fn convert16([y, cb, cr]: [__m256i; 3]) -> [__m256i; 3] {
    let add = |a, b| _mm256_add_epi16(a, b);
    let middle = _mm256_set1_epi16(128);
    let (cb, cr) = (_mm256_sub_epi16(cb, middle), _mm256_sub_epi16(cr, middle));
    let part = |v, constant| {
        let twice = _mm256_mulhi_epi16(add(v, v), _mm256_set1_epi16(constant));
        _mm256_srai_epi16::<1>(add(twice, _mm256_set1_epi16(1)))
    };
    let r = add(y, add(cr, part(cr, 26345))); // 91881 - 65536
    let b = add(y, add(add(cb, cb), part(cb, -14942))); // 116130 - 131072
    // -22554 Cb + 18734 Cr - 65536 Cr: the last is a whole Cr.
    let factors = _mm256_set1_epi32(18734 << 16 | (-22554 & 0xFFFF));
    let round = _mm256_set1_epi32(1 << 15);
    let green = |pair| _mm256_srai_epi32::<16>(_mm256_add_epi32(_mm256_madd_epi16(pair, factors), round));
    let g = _mm256_packs_epi32(
        green(_mm256_unpacklo_epi16(cb, cr)),
        green(_mm256_unpackhi_epi16(cb, cr)),
    );
    [r, add(y, _mm256_sub_epi16(g, cr)), b]
}
