//! The stages of writing for AVX2. Every function here needs the instructions that the token of
//! [`Isa::Avx2`](crate::kernels::Isa) proves.
//!
//! Blocks are kept as rows of 64 bytes in coding order. Those are transposed, and the rows of coefficients become tokens in place.
//! Neither `pext` nor gathers: on a Zen 2 they are slow.

use super::LANES;
use super::avx2::{load, pair, store, twice};
use super::costs::{BARRED, OfTypes, TypeCosts};
use super::read::cap;
use super::sorted::Sorted;
use super::tables::CLASSES;
use super::tokens::{BASE, ESCAPE, MOST, SYMBOLS};
use super::vectors::{ACTIVE, Aligned, BASE_OF, BITS_OF, MASK_OF};
use super::write::{BitSink, Blocks, ClassCoding, Coder, Coding, Source, token, too_large};
use crate::Error;
use crate::block::ZIGZAG;
use std::arch::x86_64::*;

/// A block's coefficients in coding order, as bytes: those that do not fit are as near as can be.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Row([[u8; 32]; 2]);

/// The blocks of a class.
#[derive(Default)]
pub(super) struct Rows {
    /// The first coefficients are differences.
    rows: Vec<Row>,
    /// Which bytes are not 0, without those that may be cut off.
    nonzero: Vec<u64>,
    /// Of each slot its block.
    order: Vec<u16>,
}

/// Coefficients whose costs are added without looking whether there are any: a loop's end is hard to foresee.
const UNROLLED: u32 = 4;

/// The first magnitude that may be a larger one, cut off to a byte.
const CUT: u8 = 127;

/// The tokens of magnitudes below 16, and of eighths of those from there on to 127.
static BELOW_16: Aligned<[u8; 16]> = Aligned([0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 6, 6, 7, 7, 7, 7]);
static OF_EIGHTHS: Aligned<[u8; 16]> = Aligned([0, 0, 8, 9, 10, 10, 11, 11, 12, 12, 12, 12, 13, 13, 13, 13]);

/// Of eight lanes, by a mask of those that give a byte: these in their order, at the end of eight bytes.
static COMPRESS: Aligned<[[u8; 8]; 256]> = Aligned({
    let mut all = [[0; 8]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut next) = (8, 8);
        while lane > 0 {
            lane -= 1;
            if mask >> lane & 1 == 1 {
                next -= 1;
                all[mask][next] = lane as u8;
            }
        }
        mask += 1;
    }
    all
});

/// Shuffles from rows of coefficients to the order of coding, for either half of a block. They take bytes from the rows
/// 0, 2 | 1, 3, from 1, 3 | 0, 2, and the same from 4, 6 | 5, 7 and 5, 7 | 4, 6; within 16 bytes, hence each both ways.
static IN_ORDER: Aligned<[[[u8; 32]; 4]; 2]> = Aligned({
    let mut all = [[[0x80; 32]; 4]; 2];
    let mut k = 0;
    while k < 64 {
        let (row, column) = (ZIGZAG[k] / 8, ZIGZAG[k] % 8);
        let (half, lane) = (k / 32, k % 32 / 16);
        let swapped = lane as u8 != row & 1;
        let source = (row / 4 * 2) as usize + swapped as usize;
        all[half][source][k % 32] = (row >> 1 & 1) * 8 + column;
        k += 1;
    }
    all
});

#[inline]
#[target_feature(enable = "avx2")]
fn load_costs(costs: &OfTypes) -> __m256i {
    // SAFETY: 32 bytes are there.
    unsafe { _mm256_loadu_si256(costs.0.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_costs(costs: &mut OfTypes, value: __m256i) {
    // SAFETY: 32 bytes are there.
    unsafe { _mm256_storeu_si256(costs.0.as_mut_ptr().cast(), value) }
}

/// Eight coefficients.
#[inline]
#[target_feature(enable = "avx2")]
fn eight(values: &[i16; 8]) -> __m128i {
    // SAFETY: 16 bytes are there.
    unsafe { _mm_loadu_si128(values.as_ptr().cast()) }
}

/// Four times eight bytes.
#[inline]
#[target_feature(enable = "avx2")]
fn quarters(value: __m256i) -> [u64; 4] {
    let (low, high) = (
        _mm256_castsi256_si128(value),
        _mm256_extracti128_si256::<1>(value),
    );
    let both = |half: __m128i| {
        [
            _mm_cvtsi128_si64(half) as u64,
            _mm_extract_epi64::<1>(half) as u64,
        ]
    };
    let ([a, b], [c, d]) = (both(low), both(high));
    [a, b, c, d]
}

/// The bytes that are not 0.
#[inline]
#[target_feature(enable = "avx2")]
fn nonzero_bytes([a, b]: [__m256i; 2]) -> u64 {
    let zeros = |half| _mm256_movemask_epi8(_mm256_cmpeq_epi8(half, _mm256_setzero_si256())) as u32;
    !(u64::from(zeros(a)) | u64::from(zeros(b)) << 32)
}

/// The bytes that may be cut off.
#[inline]
#[target_feature(enable = "avx2")]
fn cut_bytes([a, b]: [__m256i; 2]) -> u64 {
    let cut = |half| {
        let magnitude = _mm256_abs_epi8(half);
        let cut = _mm256_cmpeq_epi8(_mm256_max_epu8(magnitude, _mm256_set1_epi8(CUT as i8)), magnitude);
        _mm256_movemask_epi8(cut) as u32
    };
    u64::from(cut(a)) | u64::from(cut(b)) << 32
}

/// A block's coefficients in coding order as bytes, with another first one.
#[inline]
#[target_feature(enable = "avx2")]
fn in_order(values: &[i16; 64], first: i16) -> [__m256i; 2] {
    let rows = values.as_chunks::<8>().0;
    let begin = _mm_insert_epi16::<0>(eight(&rows[0]), first.into());
    let two = |row: usize| _mm256_set_m128i(eight(&rows[row + 1]), eight(&rows[row]));
    let upper = _mm256_packs_epi16(_mm256_set_m128i(eight(&rows[1]), begin), two(2));
    let lower = _mm256_packs_epi16(two(4), two(6));
    let swap = |bytes| _mm256_permute4x64_epi64::<0b01_00_11_10>(bytes);
    let (upper_swapped, lower_swapped) = (swap(upper), swap(lower));
    let half = |[a, b, c, d]: &[[u8; 32]; 4]| {
        _mm256_or_si256(
            _mm256_or_si256(
                _mm256_shuffle_epi8(upper, load(a)),
                _mm256_shuffle_epi8(upper_swapped, load(b)),
            ),
            _mm256_or_si256(
                _mm256_shuffle_epi8(lower, load(c)),
                _mm256_shuffle_epi8(lower_swapped, load(d)),
            ),
        )
    };
    let [a, b] = &IN_ORDER.0;
    [half(a), half(b)]
}

/// Which AC coefficients of a block are not zero, in coding order.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(crate) fn nonzero(values: &[i16; 64]) -> u64 {
    nonzero_bytes(in_order(values, 0))
}

/// The tokens of magnitudes up to 127.
#[inline]
#[target_feature(enable = "avx2")]
fn tokens_of(magnitude: __m256i) -> __m256i {
    // Sixteen and more set the highest bit, for which a shuffle gives 0.
    let small = _mm256_adds_epu8(magnitude, _mm256_set1_epi8(0x70));
    let eighth = _mm256_and_si256(_mm256_srli_epi16::<3>(magnitude), _mm256_set1_epi8(15));
    _mm256_add_epi8(
        _mm256_shuffle_epi8(twice(&BELOW_16.0), small),
        _mm256_shuffle_epi8(twice(&OF_EIGHTHS.0), eighth),
    )
}

/// Of each of a block's bytes the number that a token is added to in an entry: 16 times its place, lower and upper byte.
static PLACES: Aligned<[[[u8; 32]; 2]; 2]> = Aligned({
    let mut all = [[[0; 32]; 2]; 2];
    let mut k = 0;
    while k < 64 {
        all[k / 32][0][k % 32] = (k << 4) as u8;
        all[k / 32][1][k % 32] = (k >> 4) as u8;
        k += 1;
    }
    all
});

/// Of all of a block's bytes `16 * k + token`, and the same of a zero after the last.
#[inline]
#[target_feature(enable = "avx2")]
fn entries_of(row: &Row) -> [u16; 72] {
    let mut entries = [(64 * SYMBOLS) as u16; 72];
    let mut out = entries.as_chunks_mut::<8>().0.iter_mut();
    for (half, [low, high]) in row.0.iter().zip(&PLACES.0) {
        let token = tokens_of(_mm256_abs_epi8(load(half)));
        let (low, high) = (_mm256_or_si256(token, load(low)), load(high));
        let (even, odd) = (_mm256_unpacklo_epi8(low, high), _mm256_unpackhi_epi8(low, high));
        let eights = [
            _mm256_castsi256_si128(even),
            _mm256_castsi256_si128(odd),
            _mm256_extracti128_si256::<1>(even),
            _mm256_extracti128_si256::<1>(odd),
        ];
        for (eight, out) in eights.into_iter().zip(&mut out) {
            // SAFETY: 16 bytes are there.
            unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), eight) };
        }
    }
    entries
}

/// The type that costs least, the first of several.
#[inline]
#[target_feature(enable = "avx2")]
fn least(costs: __m256i) -> u8 {
    // The number, and above it its place.
    let of_eight = |costs| _mm_cvtsi128_si32(_mm_minpos_epu16(costs)) as u32;
    let first = of_eight(_mm256_castsi256_si128(costs));
    let second = of_eight(_mm256_extracti128_si256::<1>(costs)) | 8 << 16;
    let kind = match (second as u16) < first as u16 {
        true => second,
        false => first,
    };
    (kind >> 16) as u8
}

/// See [`OfTypes::least`].
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn choose(costs: &[OfTypes], more: &OfTypes, types: &mut [u8]) {
    let more = load_costs(more);
    for (kind, costs) in types.iter_mut().zip(costs) {
        *kind = least(_mm256_adds_epu16(load_costs(costs), more));
    }
}

impl Rows {
    /// Makes rows of blocks, finds what they cost, and types as if only that counted.
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
    pub fn collect(
        &mut self,
        source: &Source<'_>,
        type_costs: &TypeCosts,
        costs: &mut Vec<OfTypes>,
        types: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.rows.clear();
        self.nonzero.clear();
        source.each(|values, _, first| {
            let halves = in_order(values, first);
            let (nonzero, mut cut) = (nonzero_bytes(halves), cut_bytes(halves));
            let mut row = Row([[0; 32]; 2]);
            store(&mut row.0[0], halves[0]);
            store(&mut row.0[1], halves[1]);
            self.rows.push(row);
            self.nonzero.push(nonzero & !cut);
            let last = 63 - (nonzero | 1).leading_zeros() as usize;
            let mut sum = load_costs(&type_costs.base);
            while cut != 0 {
                let k = cut.trailing_zeros() as usize & 63;
                cut &= cut - 1;
                let magnitude = match k {
                    0 => first.unsigned_abs(),
                    _ => values[usize::from(ZIGZAG[k]) & 63].unsigned_abs(),
                };
                if k > 0 && magnitude > MOST as u16 {
                    return Err(too_large());
                }
                sum = _mm256_add_epi16(sum, load_costs(&type_costs.more[k][token(magnitude)]));
            }
            let mut of_types = OfTypes([0; SYMBOLS]);
            store_costs(&mut of_types, sum);
            costs.push(of_types);
            types.push(last as u8);
            Ok(())
        })?;
        // In a loop of its own: how many coefficients there are is hard to foresee, but here it is known early.
        let more = type_costs.more.as_flattened();
        let blocks = self.rows.iter().zip(&self.nonzero).zip(costs).zip(types);
        for (((row, &nonzero), costs), kind) in blocks {
            let entries = entries_of(row);
            let (mut left, count) = (nonzero, nonzero.count_ones().div_ceil(UNROLLED));
            let mut sum = load_costs(costs);
            for _ in 0..count {
                for _ in 0..UNROLLED {
                    // Where none is left, it is the one after the last, which costs nothing.
                    let k = left.trailing_zeros() as usize;
                    left &= left.wrapping_sub(1);
                    sum = _mm256_add_epi16(sum, load_costs(&more[usize::from(entries[k])]));
                }
            }
            let sum = _mm256_or_si256(sum, load_costs(&BARRED[usize::from(*kind & 63)]));
            store_costs(costs, sum);
            *kind = least(sum);
        }
        Ok(())
    }

    /// Writes rows of coefficients.
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
    pub fn spread(&mut self, sorted: &Sorted, out: &mut [u8]) {
        static ZEROS: Row = Row([[0; 32]; 2]);
        let count = sorted.count;
        if self.order.len() < count {
            self.order.resize(count, 0);
        }
        for (block, &slot) in (0..=u16::MAX).zip(&sorted.slots[..count]) {
            self.order[usize::from(slot)] = block;
        }
        for (begin, blocks) in (0..).step_by(LANES).zip(self.order[..count].chunks(LANES)) {
            let cap = cap(sorted.kinds[begin]);
            let mut from = [&ZEROS; LANES];
            for (from, &block) in from.iter_mut().zip(blocks) {
                *from = &self.rows[usize::from(block)];
            }
            for quarter in (0..4).take_while(|quarter| 16 * quarter <= cap) {
                let part = |slot: usize| -> &[u8; 16] { &from[slot].0.as_flattened().as_chunks().0[quarter] };
                let mut a: [__m256i; 16] = std::array::from_fn(|slot| pair(part(slot), part(slot + 16)));
                // To interleave rows i and i + 8 four times transposes 16 x 16 bytes, twice at once.
                for _ in 0..4 {
                    a = std::array::from_fn(|i| match i % 2 {
                        0 => _mm256_unpacklo_epi8(a[i / 2], a[i / 2 + 8]),
                        _ => _mm256_unpackhi_epi8(a[i / 2], a[i / 2 + 8]),
                    });
                }
                for (k, row) in (16 * quarter..=cap).zip(a) {
                    let to = out[sorted.rows[k] + begin..].first_chunk_mut();
                    store(to.expect("rows are padded to whole vectors"), row);
                }
            }
        }
    }
}

/// Makes tokens of coefficients, and writes their raw bits.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn raw_bits<'o>(
    classes: &[Blocks; CLASSES],
    codings: &[ClassCoding; CLASSES],
    sources: &[Source<'_>; CLASSES],
    tokens: &mut [u8],
    bits: BitSink<'o>,
    extras: &mut Vec<u8>,
) -> BitSink<'o> {
    let mut bits = bits.here();
    let base_of = twice(&BASE_OF.0);
    let zero = _mm256_setzero_si256();
    for k in 0..64 {
        for ((Blocks { sorted, rows, .. }, coding), source) in classes.iter().zip(codings).zip(sources) {
            let shares = &coding.shares[k];
            let row = &mut tokens[sorted.rows[k]..sorted.row_end(k)];
            let chunks = row.as_chunks_mut::<LANES>().0.iter_mut();
            let chunks = chunks.zip(sorted.halves.as_chunks::<2>().0);
            for (begin, (row, halves)) in (0..).step_by(LANES).zip(chunks) {
                let values = load(row);
                let share = halves.map(|kind| &shares[usize::from(kind & 15)]);
                if _mm256_testz_si256(values, values) == 1 && share[0][0] != 0 && share[1][0] != 0 {
                    continue;
                }
                let magnitude = _mm256_abs_epi8(values);
                let mut token = tokens_of(magnitude);
                let sign = _mm256_and_si256(_mm256_srli_epi16::<7>(values), _mm256_set1_epi8(1));
                let rest = _mm256_sub_epi8(magnitude, _mm256_shuffle_epi8(base_of, token));
                let mut field = _mm256_add_epi8(_mm256_add_epi8(rest, rest), sign);
                let missing = _mm256_cmpeq_epi8(_mm256_shuffle_epi8(pair(share[0], share[1]), token), zero);
                let cut =
                    _mm256_cmpeq_epi8(_mm256_max_epu8(magnitude, _mm256_set1_epi8(CUT as i8)), magnitude);
                let odd = _mm256_movemask_epi8(_mm256_or_si256(missing, cut)) as u32;
                // Lanes after the row's end have no tokens.
                let odd = _bzhi_u32(odd, (sorted.alive[k] - begin).min(LANES) as u32);
                if odd != 0 {
                    let (mut tokens, mut fields) = ([0; LANES], [0; LANES]);
                    store(&mut tokens, token);
                    store(&mut fields, field);
                    for lane in (0..LANES).filter(|lane| odd >> lane & 1 == 1) {
                        let value = match row[lane] as i8 {
                            value if value.unsigned_abs() < CUT => value.into(),
                            _ => source.value(rows.order[begin + lane].into(), k),
                        };
                        let token = token_of(value.unsigned_abs(), share[lane / 16]);
                        let rest = value.unsigned_abs() - u16::from(BASE[token]);
                        if token == ESCAPE {
                            extras.push((rest >> 7) as u8);
                        }
                        tokens[lane] = token as u8;
                        fields[lane] = (rest << 1) as u8 | u8::from(value < 0);
                    }
                    (token, field) = (load(&tokens), load(&fields));
                }
                store(row, token);
                put(&mut bits, token, field);
            }
        }
    }
    bits
}

/// The token of a magnitude under a table of these shares.
#[inline]
fn token_of(magnitude: u16, share: &[u8; SYMBOLS]) -> usize {
    let token = token(magnitude);
    if share[token] == 0 { ESCAPE } else { token }
}

/// Puts the raw bits of 32 tokens.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
fn put(bits: &mut BitSink<'_>, tokens: __m256i, fields: __m256i) {
    let count = _mm256_shuffle_epi8(twice(&BITS_OF.0), tokens);
    let mask = _mm256_shuffle_epi8(twice(&MASK_OF.0), tokens);
    // Two become one, three times. At first the upper one times 2^n, which is the mask of n bits and 1.
    let low = _mm256_set1_epi16(255);
    let upper = _mm256_srli_epi16::<8>(fields);
    let moved = _mm256_add_epi16(_mm256_mullo_epi16(upper, _mm256_and_si256(mask, low)), upper);
    let fields = _mm256_add_epi16(_mm256_and_si256(fields, low), moved);
    let count = _mm256_maddubs_epi16(count, _mm256_set1_epi8(1));
    let low = _mm256_set1_epi32(0xFFFF);
    let upper = _mm256_srli_epi32::<16>(fields);
    let moved = _mm256_sllv_epi32(upper, _mm256_and_si256(count, low));
    let fields = _mm256_or_si256(_mm256_and_si256(fields, low), moved);
    let count = _mm256_madd_epi16(count, _mm256_set1_epi16(1));
    let low = _mm256_set1_epi64x(0xFFFF_FFFF);
    let upper = _mm256_srli_epi64::<32>(fields);
    let moved = _mm256_sllv_epi64(upper, _mm256_and_si256(count, low));
    let fields = _mm256_or_si256(_mm256_and_si256(fields, low), moved);
    let count = _mm256_add_epi32(count, _mm256_srli_epi64::<32>(count));
    let [a, b, c, d] = quarters(fields);
    let [na, nb, nc, nd] = quarters(count).map(|count| count as u32);
    if na + nb + nc + nd <= 56 {
        let (first, second) = (a | b << (na & 63), c | d << (nc & 63));
        bits.put(first | second << ((na + nb) & 63), na + nb + nc + nd);
    } else {
        for (field, count) in [(a, na), (b, nb), (c, nc), (d, nd)] {
            let first = count.min(32);
            bits.put(field & 0xFFFF_FFFF, first);
            bits.put(field >> 32, count - first);
        }
    }
}

/// States divided by shares: what that gives, below 256, and what is left.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn divide(
    low: __m256i,
    high: __m256i,
    share: __m256i,
    [reciprocal_low, reciprocal_high]: [__m256i; 2],
) -> (__m256i, __m256i) {
    let zero = _mm256_setzero_si256();
    let divide = |state, share, reciprocal| {
        // At most one too few.
        let quotient = _mm256_mulhi_epu16(state, reciprocal);
        let rest = _mm256_sub_epi16(state, _mm256_mullo_epi16(quotient, share));
        let less = _mm256_sub_epi16(rest, share);
        let place = _mm256_min_epu16(rest, less);
        (_mm256_sub_epi16(quotient, _mm256_cmpeq_epi16(place, less)), place)
    };
    let (quotient_a, place_a) = divide(
        _mm256_unpacklo_epi8(low, high),
        _mm256_unpacklo_epi8(share, zero),
        _mm256_unpacklo_epi8(reciprocal_low, reciprocal_high),
    );
    let (quotient_b, place_b) = divide(
        _mm256_unpackhi_epi8(low, high),
        _mm256_unpackhi_epi8(share, zero),
        _mm256_unpackhi_epi8(reciprocal_low, reciprocal_high),
    );
    (
        _mm256_packus_epi16(quotient_a, quotient_b),
        _mm256_packus_epi16(place_a, place_b),
    )
}

/// Codes a symbol in each lane, or in the first `active` ones where not `ALL` are.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
fn step<const ALL: bool>(codings: [&Coding; 2], active: usize, symbols: &[u8; LANES], coder: &mut Coder<'_>) {
    let [a, b] = codings;
    let symbols = load(symbols);
    let look = |a, b| _mm256_shuffle_epi8(pair(a, b), symbols);
    let (share, first) = (look(&a.share, &b.share), look(&a.first, &b.first));
    let reciprocal_low = look(&a.reciprocal_low, &b.reciprocal_low);
    let reciprocal_high = look(&a.reciprocal_high, &b.reciprocal_high);
    let vector = coder.back();
    let states = &mut coder.states[vector];
    let (low, high) = (load(&states.low), load(&states.high));
    let on = match ALL {
        true => _mm256_set1_epi8(-1),
        false => {
            let on = &ACTIVE.0[LANES - active.min(LANES)..];
            load(on.first_chunk().expect("at most 32 lanes are active"))
        }
    };
    // Lanes whose upper byte is not below the share give a byte.
    let gives = _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_max_epu8(high, share), high), on);
    let mask = _mm256_movemask_epi8(gives) as u32;
    let control = |shift: u32| i64::from_le_bytes(COMPRESS.0[(mask >> shift & 0xFF) as usize]);
    // A shuffle looks within 16 bytes: the second eight lanes of each lie eight bytes on.
    let eighth = 0x0808_0808_0808_0808;
    let control = _mm256_set_epi64x(control(24) | eighth, control(16), control(8) | eighth, control(0));
    let bytes = quarters(_mm256_shuffle_epi8(low, control));
    // Eight bytes end where those of the lanes after them begin; they overwrite what is not one of those' bytes.
    let behind = |shift: u32| (mask as u64 >> shift).count_ones() as usize;
    let window: &mut [u8; 40] = coder.out[..coder.at]
        .last_chunk_mut()
        .expect("room for all symbols");
    for (i, bytes) in bytes.iter().enumerate().rev() {
        let to = 32 - (behind(8 * i as u32 + 8) & 31);
        *window[to..].first_chunk_mut().expect("eight bytes") = bytes.to_le_bytes();
    }
    coder.at -= behind(0);
    let new_low = _mm256_blendv_epi8(low, high, gives);
    let new_high = _mm256_andnot_si256(gives, high);
    let reciprocal = [reciprocal_low, reciprocal_high];
    let (quotient, place) = divide(new_low, new_high, share, reciprocal);
    let slot = slots([&a.slots, &b.slots], _mm256_add_epi8(place, first));
    let states = &mut coder.states[vector];
    match ALL {
        true => {
            store(&mut states.low, slot);
            store(&mut states.high, quotient);
        }
        false => {
            store(&mut states.low, _mm256_blendv_epi8(low, slot, on));
            store(&mut states.high, _mm256_blendv_epi8(high, quotient, on));
        }
    }
}

/// Looks up in one table for sixteen lanes, in another one for the others.
#[inline]
#[target_feature(enable = "avx2")]
fn slots([a, b]: [&[u8; 256]; 2], index: __m256i) -> __m256i {
    let (a, b) = (a.as_chunks::<16>().0, b.as_chunks::<16>().0);
    let place = _mm256_and_si256(index, _mm256_set1_epi8(15));
    let all: [__m256i; 16] = std::array::from_fn(|i| _mm256_shuffle_epi8(pair(&a[i], &b[i]), place));
    // Which of two is meant is a bit, moved to the top.
    let bit = _mm256_slli_epi16::<3>(index);
    let all: [__m256i; 8] = std::array::from_fn(|i| _mm256_blendv_epi8(all[2 * i], all[2 * i + 1], bit));
    let bit = _mm256_slli_epi16::<2>(index);
    let all: [__m256i; 4] = std::array::from_fn(|i| _mm256_blendv_epi8(all[2 * i], all[2 * i + 1], bit));
    let bit = _mm256_slli_epi16::<1>(index);
    let all: [__m256i; 2] = std::array::from_fn(|i| _mm256_blendv_epi8(all[2 * i], all[2 * i + 1], bit));
    _mm256_blendv_epi8(all[0], all[1], index)
}

/// See [`write`](super::write).
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) fn code(
    classes: &[Blocks; CLASSES],
    codings: &[ClassCoding; CLASSES],
    tokens: &[u8],
    coder: &mut Coder<'_>,
) {
    // SAFETY: without AVX-512 it needs nothing.
    unsafe { code_with::<false>(classes, codings, tokens, coder) };
}

/// The same with steps of AVX-512, if so.
///
/// # Safety
/// With them, the processor has AVX-512.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) unsafe fn code_with<const AVX512: bool>(
    classes: &[Blocks; CLASSES],
    codings: &[ClassCoding; CLASSES],
    tokens: &[u8],
    coder: &mut Coder<'_>,
) {
    for k in (0..64).rev() {
        for (blocks, coding) in classes.iter().zip(codings).rev() {
            // SAFETY: as the caller promises.
            unsafe { code_row::<AVX512>(&blocks.sorted, k, &coding.tokens[k], tokens, coder) };
        }
    }
    for (blocks, coding) in classes.iter().zip(codings).rev() {
        let of_types = &coding.types[blocks.choice];
        let mut left = blocks.count;
        let types = blocks.types.as_chunks::<LANES>().0;
        for types in types.iter().take(left.div_ceil(LANES)).rev() {
            let active = match left % LANES {
                0 => LANES,
                active => active,
            };
            // SAFETY: as the caller promises.
            unsafe { step_with::<AVX512, false>([of_types; 2], active, types, coder) };
            left -= active;
        }
    }
}

/// Codes the tokens of a class for a coefficient.
///
/// # Safety
/// As [`code_with`].
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
unsafe fn code_row<const AVX512: bool>(
    sorted: &Sorted,
    k: usize,
    codings: &[Coding; SYMBOLS],
    tokens: &[u8],
    coder: &mut Coder<'_>,
) {
    let row = tokens[sorted.rows[k]..sorted.row_end(k)].as_chunks::<LANES>().0;
    let halves = sorted.halves.as_chunks::<2>().0;
    let coding = |half: u8| &codings[usize::from(half & 15)];
    let last = sorted.alive[k] % LANES;
    let mut steps = row.iter().zip(halves).rev();
    if last > 0
        && let Some((tokens, halves)) = steps.next()
    {
        // SAFETY: as the caller promises.
        unsafe { step_with::<AVX512, false>(halves.map(coding), last, tokens, coder) };
    }
    for (tokens, halves) in steps {
        // SAFETY: as the caller promises.
        unsafe { step_with::<AVX512, true>(halves.map(coding), LANES, tokens, coder) };
    }
}

/// A step of either form.
///
/// # Safety
/// As [`code_with`].
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
unsafe fn step_with<const AVX512: bool, const ALL: bool>(
    codings: [&Coding; 2],
    active: usize,
    symbols: &[u8; LANES],
    coder: &mut Coder<'_>,
) {
    match AVX512 {
        // SAFETY: as the caller promises.
        true => unsafe { super::avx512_write::step(codings, active, symbols, coder) },
        false => step::<ALL>(codings, active, symbols, coder),
    }
}
