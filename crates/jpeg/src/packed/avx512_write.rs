//! The coder's steps of writing for AVX-512, in registers of 256 bits. Every function here needs the instructions that the token
//! [`Avx512`](crate::kernels::Avx512) proves. All other stages are those for AVX2.

use super::LANES;
use super::avx2::{load, pair, store};
use super::avx2_write::{code_with, divide};
use super::tables::CLASSES;
use super::write::{Blocks, ClassCoding, Coder, Coding};
use std::arch::x86_64::*;

/// Moves bytes up: from place `n` on, by `32 - n` places.
static TO_THE_END: [u8; 64] = {
    let mut all = [0; 64];
    let mut at = 0;
    while at < 64 {
        all[at] = at as u8 % 32;
        at += 1;
    }
    all
};

/// See [`write`](super::write).
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
pub(super) fn code(
    classes: &[Blocks; CLASSES],
    codings: &[ClassCoding; CLASSES],
    tokens: &[u8],
    coder: &mut Coder<'_>,
) {
    // SAFETY: this function has AVX-512.
    unsafe { code_with::<true>(classes, codings, tokens, coder) };
}

/// Codes a symbol in each of the first `active` lanes.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
pub(super) fn step([a, b]: [&Coding; 2], active: usize, symbols: &[u8; LANES], coder: &mut Coder<'_>) {
    let symbols = load(symbols);
    let look = |a, b| _mm256_shuffle_epi8(pair(a, b), symbols);
    let (share, first) = (look(&a.share, &b.share), look(&a.first, &b.first));
    let reciprocal = [
        look(&a.reciprocal_low, &b.reciprocal_low),
        look(&a.reciprocal_high, &b.reciprocal_high),
    ];
    let vector = coder.back();
    let states = &mut coder.states[vector];
    let (low, high) = (load(&states.low), load(&states.high));
    let on = _bzhi_u32(u32::MAX, active.min(LANES) as u32);
    // Lanes whose upper byte is not below the share give a byte.
    let gives = _mm256_mask_cmpge_epu8_mask(on, high, share);
    let given = gives.count_ones() as usize;
    let bytes = _mm256_maskz_compress_epi8(gives, low);
    let end = TO_THE_END[given & 63..]
        .first_chunk()
        .expect("at most 32 bytes are given");
    // What lies before them is overwritten by the steps before.
    let window = coder.out[..coder.at].last_chunk_mut();
    store(
        window.expect("room for all symbols"),
        _mm256_permutexvar_epi8(load(end), bytes),
    );
    coder.at -= given;
    let new_low = _mm256_mask_mov_epi8(low, gives, high);
    let new_high = _mm256_maskz_mov_epi8(!gives, high);
    let (quotient, place) = divide(new_low, new_high, share, reciprocal);
    let slot = slots([&a.slots, &b.slots], _mm256_add_epi8(place, first));
    store(&mut states.low, _mm256_mask_mov_epi8(low, on, slot));
    store(&mut states.high, _mm256_mask_mov_epi8(high, on, quotient));
}

/// Looks up in one table for sixteen lanes, in another one for the others.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
fn slots([a, b]: [&[u8; 256]; 2], index: __m256i) -> __m256i {
    // The upper two bits say which quarter of a table.
    let upper = _mm256_movepi8_mask(index);
    let lower = _mm256_test_epi8_mask(index, _mm256_set1_epi8(0x40));
    let of = |table: &[u8; 256]| {
        let parts = table.as_chunks::<32>().0;
        let quarter =
            |q: usize| _mm256_permutex2var_epi8(load(&parts[2 * q]), index, load(&parts[2 * q + 1]));
        let half = |h: usize| _mm256_mask_mov_epi8(quarter(2 * h), lower, quarter(2 * h + 1));
        _mm256_mask_mov_epi8(half(0), upper, half(1))
    };
    _mm256_blend_epi32::<0b1111_0000>(of(a), of(b))
}
