//! 16 samples a step. See [`crate::kernels::upsample`] for the arithmetic.

use crate::kernels::upsample::Rows;
use std::arch::x86_64::*;

/// # Safety
/// The processor has AVX2; `near` has two samples more than the padded count, and `out` twice as many as
/// that.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn h2(rows: Rows<'_>, out: &mut [u8]) {
    for i in (0..rows.count).step_by(16) {
        // SAFETY: i + 16 is at most the padded count, so i + 2 + 16 samples are there.
        let [left, here, right] =
            unsafe { [load(rows.near, i), load(rows.near, i + 1), load(rows.near, i + 2)] };
        let here = triple(here);
        let even = _mm256_srli_epi16::<2>(_mm256_add_epi16(
            _mm256_add_epi16(here, left),
            _mm256_set1_epi16(1),
        ));
        let odd = _mm256_srli_epi16::<2>(_mm256_add_epi16(
            _mm256_add_epi16(here, right),
            _mm256_set1_epi16(2),
        ));
        // SAFETY: 2 * (i + 16) is at most twice the padded count.
        unsafe { store(out, 2 * i, even, odd) };
    }
}

/// # Safety
/// The processor has AVX2; `near` and `far` have two samples more than the padded count, and `out` twice as
/// many as that.
#[target_feature(enable = "avx2")]
pub(crate) unsafe fn h2v2(rows: Rows<'_>, out: &mut [u8]) {
    for i in (0..rows.count).step_by(16) {
        // SAFETY: i + 16 is at most the padded count, so i + 2 + 16 samples are there in both rows.
        let [left, here, right] = [i, i + 1, i + 2]
            .map(|at| unsafe { _mm256_add_epi16(triple(load(rows.near, at)), load(rows.far, at)) });
        let here = triple(here);
        let even = _mm256_srli_epi16::<4>(_mm256_add_epi16(
            _mm256_add_epi16(here, left),
            _mm256_set1_epi16(8),
        ));
        let odd = _mm256_srli_epi16::<4>(_mm256_add_epi16(
            _mm256_add_epi16(here, right),
            _mm256_set1_epi16(7),
        ));
        // SAFETY: 2 * (i + 16) is at most twice the padded count.
        unsafe { store(out, 2 * i, even, odd) };
    }
}

/// 16 samples from `at` in 16 bits.
///
/// # Safety
/// 16 samples from `at` are there.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn load(row: &[u8], at: usize) -> __m256i {
    debug_assert!(at + 16 <= row.len());
    // SAFETY: the caller promises the 16 bytes; the load asks for no alignment.
    _mm256_cvtepu8_epi16(unsafe { _mm_loadu_si128(row.as_ptr().add(at).cast()) })
}

#[inline]
#[target_feature(enable = "avx2")]
fn triple(x: __m256i) -> __m256i {
    _mm256_add_epi16(_mm256_add_epi16(x, x), x)
}

/// Writes 16 pairs of bytes from `at`.
///
/// # Safety
/// 32 bytes from `at` are there.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store(out: &mut [u8], at: usize, even: __m256i, odd: __m256i) {
    debug_assert!(at + 32 <= out.len());
    let pairs = _mm256_or_si256(even, _mm256_slli_epi16::<8>(odd));
    // SAFETY: the caller promises the 32 bytes; the store asks for no alignment.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().add(at).cast(), pairs) };
}
