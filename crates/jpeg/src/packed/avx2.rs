//! The stages of reading for AVX2. Every function here needs the instructions that the token of
//! [`Isa::Avx2`](crate::kernels::Isa) proves.

use super::LANES;
use super::blocks::Outs;
use super::fields::{LargeOf32, LargeTokens};
use super::lanes::BlockTarget;
use super::read::{Coder, Fault, OVER, States, cap};
use super::sorted::Sorted;
use super::tables::{CLASSES, Table, TokenTables};
use super::tokens::{ESCAPE, LARGE};
use super::vectors::{ACTIVE, Aligned, BASE_OF, BITS_OF, EXPAND, FIRST_OF_QUARTER, MASK_OF};
use crate::block::CODED_PLACE;
use std::arch::x86_64::*;
use std::ops::Range;

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: 32 bytes are there.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store(bytes: &mut [u8; 32], value: __m256i) {
    // SAFETY: 32 bytes are there.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().cast(), value) }
}

/// Two times 16 bytes.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn pair(a: &[u8; 16], b: &[u8; 16]) -> __m256i {
    // SAFETY: 16 bytes are there, twice.
    unsafe { _mm256_loadu2_m128i(b.as_ptr().cast(), a.as_ptr().cast()) }
}

/// Sixteen bytes, twice.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn twice(bytes: &[u8; 16]) -> __m256i {
    pair(bytes, bytes)
}

/// Four times eight bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn four(parts: [&[u8; 8]; 4]) -> __m256i {
    let [a, b, c, d] = parts.map(|part| i64::from_le_bytes(*part));
    _mm256_set_epi64x(d, c, b, a)
}

/// `share * high + place` of 32 lanes, as lower and upper bytes.
///
/// Even lanes and odd ones, not the ones of each half: that takes fewer shuffles, of which processors do few at a time.
#[inline]
#[target_feature(enable = "avx2")]
fn next_states(share: __m256i, high: __m256i, place: __m256i) -> [__m256i; 2] {
    let (lower, upper) = (_mm256_set1_epi16(0xFF), _mm256_set1_epi16(0xFF00u16 as i16));
    let even = |bytes| _mm256_and_si256(bytes, lower);
    let even = _mm256_add_epi16(_mm256_mullo_epi16(even(share), even(high)), even(place));
    // Both factors times 256, and the upper half of what they give.
    let odd = |bytes| _mm256_and_si256(bytes, upper);
    let odd = _mm256_mulhi_epu16(odd(share), odd(high));
    let odd = _mm256_add_epi16(odd, _mm256_srli_epi16::<8>(place));
    [
        _mm256_or_si256(_mm256_and_si256(even, lower), _mm256_slli_epi16::<8>(odd)),
        _mm256_or_si256(_mm256_srli_epi16::<8>(even), _mm256_and_si256(odd, upper)),
    ]
}

/// The symbols of 32 lanes with states of these lower and upper bytes, and the bytes of the states after them. The first sixteen
/// lanes use the first table.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn decode([a, b]: [&Table; 2], low: __m256i, high: __m256i) -> (__m256i, [__m256i; 2]) {
    let (divider, alias) = (pair(&a.divider, &b.divider), pair(&a.alias, &b.alias));
    let (share, offset) = (pair(&a.share, &b.share), pair(&a.offset, &b.offset));
    let fifteen = _mm256_set1_epi8(15);
    let bin = _mm256_and_si256(_mm256_srli_epi16::<4>(low), fifteen);
    let place = _mm256_and_si256(low, fifteen);
    let own = _mm256_cmpgt_epi8(_mm256_shuffle_epi8(divider, bin), place);
    let symbol = _mm256_blendv_epi8(_mm256_shuffle_epi8(alias, bin), bin, own);
    let place = _mm256_add_epi8(place, _mm256_andnot_si256(own, _mm256_shuffle_epi8(offset, bin)));
    let share = _mm256_shuffle_epi8(share, symbol);
    (symbol, next_states(share, high, place))
}

/// Decodes a symbol in each of the first `active` lanes; the others give 0 and keep their state.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
fn step(
    tables: [&Table; 2],
    active: usize,
    states: &mut States,
    bytes: &[u8],
    at: &mut usize,
    out: &mut [u8; LANES],
) -> Result<(), Fault> {
    let on = &ACTIVE.0[LANES - active..];
    let on = load(on.first_chunk().expect("at most 32 lanes are active"));
    let (low, high) = (load(&states.low), load(&states.high));
    let (symbol, [new_low, new_high]) = decode(tables, low, high);
    // Lanes whose upper byte became 0 take a byte.
    let takes = _mm256_and_si256(_mm256_cmpeq_epi8(new_high, _mm256_setzero_si256()), on);
    let mask = _mm256_movemask_epi8(takes) as u32;
    let window: &[u8; 40] = bytes.get(*at..).and_then(|rest| rest.first_chunk()).ok_or(OVER)?;
    let eight = |skipped: u32| {
        // At most 24 lanes come before the last eight.
        let skipped = skipped.count_ones() as usize & 31;
        window[skipped..]
            .first_chunk()
            .expect("eight bytes behind the 32nd")
    };
    let fresh = four([
        eight(0),
        eight(mask & 0xFF),
        eight(mask & 0xFFFF),
        eight(mask & 0xFF_FFFF),
    ]);
    *at += mask.count_ones() as usize;
    let spread = |shift: u32| &EXPAND.0[(mask >> shift & 0xFF) as usize];
    let control = four([spread(0), spread(8), spread(16), spread(24)]);
    // A shuffle looks within 16 bytes: the second eight lanes of each find theirs eight bytes on.
    let control = _mm256_or_si256(control, _mm256_set_epi64x(EIGHTH, 0, EIGHTH, 0));
    let fresh = _mm256_shuffle_epi8(fresh, control);
    let then_low = _mm256_blendv_epi8(new_low, fresh, takes);
    let then_high = _mm256_blendv_epi8(new_high, new_low, takes);
    store(&mut states.low, _mm256_blendv_epi8(low, then_low, on));
    store(&mut states.high, _mm256_blendv_epi8(high, then_high, on));
    store(out, _mm256_and_si256(symbol, on));
    Ok(())
}

/// Eight in each of eight bytes.
const EIGHTH: i64 = 0x0808_0808_0808_0808;

super::vectors::rows!("avx2,bmi1,bmi2,popcnt,lzcnt");

/// 2^(7 - n).
static SHIFT: Aligned<[u8; 16]> = Aligned([128, 64, 32, 16, 8, 4, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0]);

/// See [`fields::read`](super::fields::read). Without `pdep`: on a Zen 2 that takes hundreds of cycles.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn fields(tokens: &[u8], raw: &[u8], values: &mut [u8], found: &mut LargeTokens) -> Option<usize> {
    let (bits_of, mask_of) = (twice(&BITS_OF.0), twice(&MASK_OF.0));
    let shift = twice(&SHIFT.0);
    let zero = _mm256_setzero_si256();
    let first_of_eight = _mm256_set_epi64x(EIGHTH, 0, EIGHTH, 0);
    let mut bit = 0usize;
    let chunks = tokens
        .as_chunks::<32>()
        .0
        .iter()
        .zip(values.as_chunks_mut::<32>().0);
    for (first, (tokens, values)) in (0..).step_by(32).zip(chunks) {
        let tokens = load(tokens);
        let count = _mm256_shuffle_epi8(bits_of, tokens);
        // The bits before each of eight lanes, and those of all eight.
        let sum = _mm256_add_epi8(count, _mm256_slli_epi64::<8>(count));
        let sum = _mm256_add_epi8(sum, _mm256_slli_epi64::<16>(sum));
        let sum = _mm256_add_epi8(sum, _mm256_slli_epi64::<32>(sum));
        let before = _mm256_sub_epi8(sum, count);
        let ends = _mm256_srli_epi64::<56>(sum);
        let (ends_low, ends_high) = (_mm256_castsi256_si128(ends), _mm256_extracti128_si256::<1>(ends));
        // Where the bits of each eight lanes begin after the byte that the first one is in: at most 7 + 3 * 64.
        let first_bit = bit & 7;
        let second = first_bit + _mm_cvtsi128_si64(ends_low) as usize;
        let third = second + _mm_extract_epi64::<1>(ends_low) as usize;
        let fourth = third + _mm_cvtsi128_si64(ends_high) as usize;
        let starts = [first_bit, second, third, fourth];
        let near: &[u8; 48] = raw.get(bit / 8..)?.first_chunk()?;
        bit += fourth - first_bit + _mm_extract_epi64::<1>(ends_high) as usize;
        let window = |start: usize| -> &[u8; 16] {
            near[(start / 8) & 31..]
                .first_chunk()
                .expect("16 bytes behind the 32nd")
        };
        let (a, b) = (
            pair(window(starts[0]), window(starts[2])),
            pair(window(starts[1]), window(starts[3])),
        );
        let [o0, o1, o2, o3] = starts.map(|start| (start & 7) as i64);
        let odd = _mm256_shuffle_epi8(_mm256_set_epi64x(o3, o2, o1, o0), first_of_eight);
        let before = _mm256_add_epi8(before, odd);
        let field = |source, before| {
            let byte = _mm256_srli_epi16::<3>(before);
            let both = _mm256_add_epi16(
                _mm256_or_si256(byte, _mm256_slli_epi16::<8>(byte)),
                _mm256_set1_epi16(0x0100),
            );
            let bits = _mm256_shuffle_epi8(source, both);
            let odd = _mm256_and_si256(before, _mm256_set1_epi16(7));
            // An index of 0x80 gives 0 for the upper byte.
            let by = _mm256_shuffle_epi8(shift, _mm256_or_si256(odd, _mm256_set1_epi16(0x8000u16 as i16)));
            let moved = _mm256_srli_epi16::<7>(_mm256_mullo_epi16(bits, by));
            _mm256_and_si256(moved, _mm256_set1_epi16(255))
        };
        let fields = _mm256_packus_epi16(
            field(a, _mm256_unpacklo_epi8(before, zero)),
            field(b, _mm256_unpackhi_epi8(before, zero)),
        );
        let fields = _mm256_and_si256(fields, _mm256_shuffle_epi8(mask_of, tokens));
        store(values, value(tokens, fields));
        found.add(large(first, tokens));
    }
    Some(bit)
}

/// The values of tokens, or their raw bits where the value does not fit a byte.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn value(tokens: __m256i, fields: __m256i) -> __m256i {
    let rest = _mm256_and_si256(_mm256_srli_epi16::<1>(fields), _mm256_set1_epi8(127));
    let magnitude = _mm256_add_epi8(_mm256_shuffle_epi8(twice(&BASE_OF.0), tokens), rest);
    let sign = _mm256_sub_epi8(
        _mm256_setzero_si256(),
        _mm256_and_si256(fields, _mm256_set1_epi8(1)),
    );
    let value = _mm256_sub_epi8(_mm256_xor_si256(magnitude, sign), sign);
    _mm256_blendv_epi8(value, fields, are_large(tokens))
}

#[inline]
#[target_feature(enable = "avx2")]
fn are_large(tokens: __m256i) -> __m256i {
    _mm256_cmpgt_epi8(tokens, _mm256_set1_epi8(LARGE as i8 - 1))
}

/// Which of 32 tokens have values that do not fit a byte.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn large(first: u32, tokens: __m256i) -> LargeOf32 {
    let escapes = _mm256_cmpeq_epi8(tokens, _mm256_set1_epi8(ESCAPE as i8));
    LargeOf32 {
        first,
        mask: _mm256_movemask_epi8(are_large(tokens)) as u32,
        escapes: _mm256_movemask_epi8(escapes) as u32,
    }
}

/// The same with `pdep`, for processors on which it is fast.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn fields_by_pdep(
    tokens: &[u8],
    raw: &[u8],
    values: &mut [u8],
    found: &mut LargeTokens,
) -> Option<usize> {
    let mask_of = twice(&MASK_OF.0);
    let mut bit = 0usize;
    // Some tokens' fields, which go from one kind of register to the other and back: through memory, and not at once, since
    // what is stored in parts has to be waited for.
    let mut fields = [[0u64; 4]; BATCH];
    let batches = tokens.as_chunks::<32>().0.chunks(BATCH);
    let values = values.as_chunks_mut::<32>().0.chunks_mut(BATCH);
    for (first, (tokens, values)) in (0..).step_by(32 * BATCH).zip(batches.zip(values)) {
        for (tokens, fields) in tokens.iter().zip(&mut fields) {
            store_quarters(fields, _mm256_shuffle_epi8(mask_of, load(tokens)));
        }
        for fields in &mut fields[..tokens.len()] {
            bit = deposit(raw, bit, fields)?;
        }
        let chunks = tokens.iter().zip(values).zip(&fields);
        for (first, ((tokens, values), fields)) in (first..).step_by(32).zip(chunks) {
            let tokens = load(tokens);
            store(values, value(tokens, load_quarters(fields)));
            found.add(large(first, tokens));
        }
    }
    Some(bit)
}

/// Vectors of tokens whose raw bits are looked for at once.
const BATCH: usize = 16;

/// Makes fields of 32 tokens' masks, with the raw bits from `bit` on. Returns where the next ones begin.
#[inline]
#[target_feature(enable = "bmi1,bmi2,popcnt")]
pub(super) fn deposit(raw: &[u8], mut bit: usize, masks: &mut [u64; 4]) -> Option<usize> {
    let near: &[u8; 40] = raw.get(bit / 8..)?.first_chunk()?;
    let counts = masks.map(|mask| mask.count_ones() as usize);
    let all: usize = counts.iter().sum();
    if all <= 56 {
        // One word holds them all, but seldom those of first coefficients.
        let mut next = u64::from_le_bytes(*near.first_chunk().expect("eight bytes")) >> (bit & 7);
        for (mask, count) in masks.iter_mut().zip(counts) {
            *mask = _pdep_u64(next, *mask);
            // Of 56 bits that are all of the first eight tokens nothing is left.
            next >>= count & 63;
        }
        return Some(bit + all);
    }
    let mut at = bit & 7;
    bit += all;
    for (mask, count) in masks.iter_mut().zip(counts) {
        let word: &[u8; 16] = near[(at / 8).min(24)..]
            .first_chunk()
            .expect("16 bytes behind the 24th");
        let next = (u128::from_le_bytes(*word) >> (at & 7)) as u64;
        *mask = _pdep_u64(next, *mask);
        at += count;
    }
    Some(bit)
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load_quarters(from: &[u64; 4]) -> __m256i {
    // SAFETY: 32 bytes are there.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store_quarters(to: &mut [u64; 4], value: __m256i) {
    // SAFETY: 32 bytes are there.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) }
}

/// See [`blocks::write`](super::blocks::write).
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn blocks(sorted: &Sorted, values: &[u8], places: &[BlockTarget], out: &mut Outs<'_>) {
    blocks_with::<false>(sorted, values, places, out);
}

/// The same for functions of more instructions, of which each makes its own copy: in one that has AVX-512, the compiler uses all
/// of its registers.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn blocks_with<const MORE_REGISTERS: bool>(
    sorted: &Sorted,
    values: &[u8],
    places: &[BlockTarget],
    out: &mut Outs<'_>,
) {
    static ZEROS: [u8; 32] = [0; 32];
    for (i, places) in places.chunks(LANES).enumerate() {
        let begin = LANES * i;
        let cap = cap(sorted.kinds[begin]);
        // Once for all quarters: as often as that, finding places would take longer than all else.
        let mut to = [std::ptr::null_mut::<i16>(); LANES];
        for (to, place) in to.iter_mut().zip(places) {
            *to = out[place.plane as usize][place.at as usize].as_mut_ptr();
        }
        let to = &to[..places.len()];
        for quarter in 0..4 {
            if quarter > 0 && cap < FIRST_OF_QUARTER[quarter] {
                for &to in to {
                    // SAFETY: `to` is a block, and nothing else refers to it while this runs.
                    unsafe { store_quarter(to, quarter, _mm256_setzero_si256()) };
                }
                continue;
            }
            let mut a: [__m256i; 16] = std::array::from_fn(|i| {
                let k = usize::from(CODED_PLACE[16 * quarter + i]);
                let row = match k <= cap {
                    true => values[sorted.rows[k] + begin..].first_chunk(),
                    false => Some(&ZEROS),
                };
                load(row.expect("a row is padded to whole vectors"))
            });
            // To interleave rows i and i + 8 four times transposes 16 x 16 bytes, twice at once.
            for _ in 0..4 {
                a = std::array::from_fn(|i| match i % 2 {
                    0 => _mm256_unpacklo_epi8(a[i / 2], a[i / 2 + 8]),
                    _ => _mm256_unpackhi_epi8(a[i / 2], a[i / 2 + 8]),
                });
            }
            for (&to, a) in to.iter().zip(a) {
                let bytes = _mm256_castsi256_si128(a);
                // SAFETY: as above.
                unsafe { store_quarter(to, quarter, _mm256_cvtepi8_epi16(bytes)) };
            }
            for (&to, a) in to.iter().skip(16).zip(a) {
                let bytes = _mm256_extracti128_si256::<1>(a);
                // SAFETY: as above.
                unsafe { store_quarter(to, quarter, _mm256_cvtepi8_epi16(bytes)) };
            }
        }
        for (&to, &dc) in to.iter().zip(&sorted.dc[begin..]) {
            // SAFETY: as above.
            unsafe { to.write(dc) };
        }
    }
}

/// Writes sixteen coefficients of a block.
///
/// # Safety
/// `block` is one of 64 numbers, and `quarter` is below 4.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn store_quarter(block: *mut i16, quarter: usize, values: __m256i) {
    // SAFETY: as the caller promises.
    unsafe { _mm256_storeu_si256(block.add(16 * quarter).cast(), values) };
}
