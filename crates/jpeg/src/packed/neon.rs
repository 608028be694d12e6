//! The stages of reading for NEON. Every function here needs the instructions that the token of
//! [`Isa::Neon`](crate::kernels::Isa) proves.
//!
//! A step's 32 lanes are two registers, and each of them uses one table.

use super::LANES;
use super::blocks::Outs;
use super::fields::{LargeOf32, LargeTokens};
use super::lanes::BlockTarget;
use super::read::{Coder, Fault, OVER, States, cap};
use super::sorted::Sorted;
use super::tables::{CLASSES, Table, TokenTables};
use super::tokens::{ESCAPE, LARGE};
use super::vectors::{ACTIVE, BASE_OF, BITS_OF, EXPAND, FIRST_OF_QUARTER, MASK_OF};
use crate::block::CODED_PLACE;
use std::arch::aarch64::*;
use std::ops::Range;

#[inline]
#[target_feature(enable = "neon")]
fn load(bytes: &[u8; 16]) -> uint8x16_t {
    // SAFETY: 16 bytes are there.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn store(bytes: &mut [u8; 16], value: uint8x16_t) {
    // SAFETY: 16 bytes are there.
    unsafe { vst1q_u8(bytes.as_mut_ptr(), value) }
}

/// The two halves of 32 bytes.
#[inline]
#[target_feature(enable = "neon")]
fn load2(bytes: &[u8; LANES]) -> [uint8x16_t; 2] {
    let (halves, _) = bytes.as_chunks::<16>();
    [load(&halves[0]), load(&halves[1])]
}

#[inline]
#[target_feature(enable = "neon")]
fn store2(bytes: &mut [u8; LANES], [a, b]: [uint8x16_t; 2]) {
    let (halves, _) = bytes.as_chunks_mut::<16>();
    store(&mut halves[0], a);
    store(&mut halves[1], b);
}

/// A bit a lane, of two times 32 lanes that are ones or zeros throughout: those of the first 32 are the lower ones.
#[inline]
#[target_feature(enable = "neon")]
fn masks([a, b]: [uint8x16_t; 2], [c, d]: [uint8x16_t; 2]) -> u64 {
    static POWERS: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
    let powers = load(&POWERS);
    let pairs = [
        vpaddq_u8(vandq_u8(a, powers), vandq_u8(b, powers)),
        vpaddq_u8(vandq_u8(c, powers), vandq_u8(d, powers)),
    ];
    let fours = vpaddq_u8(pairs[0], pairs[1]);
    let eights = vpaddq_u8(fours, fours);
    vgetq_lane_u64::<0>(vreinterpretq_u64_u8(eights))
}

/// The symbols of sixteen lanes with states of these lower and upper bytes, and the bytes of the states after them.
#[inline]
#[target_feature(enable = "neon")]
fn decode(table: &Table, low: uint8x16_t, high: uint8x16_t) -> (uint8x16_t, uint8x16_t, uint8x16_t) {
    let bin = vshrq_n_u8::<4>(low);
    let place = vandq_u8(low, vdupq_n_u8(15));
    let own = vcgtq_u8(vqtbl1q_u8(load(&table.divider), bin), place);
    let symbol = vbslq_u8(own, bin, vqtbl1q_u8(load(&table.alias), bin));
    let place = vaddq_u8(place, vbicq_u8(vqtbl1q_u8(load(&table.offset), bin), own));
    let share = vqtbl1q_u8(load(&table.share), symbol);
    let first = vmlal_u8(
        vmovl_u8(vget_low_u8(place)),
        vget_low_u8(share),
        vget_low_u8(high),
    );
    let second = vmlal_high_u8(vmovl_high_u8(place), share, high);
    let (first, second) = (vreinterpretq_u8_u16(first), vreinterpretq_u8_u16(second));
    (symbol, vuzp1q_u8(first, second), vuzp2q_u8(first, second))
}

/// Decodes a symbol in each of the first `active` lanes; the others give 0 and keep their state.
#[inline]
#[target_feature(enable = "neon")]
fn step(
    tables: [&Table; 2],
    active: usize,
    states: &mut States,
    bytes: &[u8],
    at: &mut usize,
    out: &mut [u8; LANES],
) -> Result<(), Fault> {
    let on = &ACTIVE.0[LANES - active..];
    let [on0, on1] = load2(on.first_chunk().expect("at most 32 lanes are active"));
    let ([low0, low1], [high0, high1]) = (load2(&states.low), load2(&states.high));
    let (symbols0, new_low0, new_high0) = decode(tables[0], low0, high0);
    let (symbols1, new_low1, new_high1) = decode(tables[1], low1, high1);
    // Lanes whose upper byte became 0 take a byte.
    let takes0 = vandq_u8(vceqzq_u8(new_high0), on0);
    let takes1 = vandq_u8(vceqzq_u8(new_high1), on1);
    let mask = masks([takes0, takes1], [takes0, takes1]) as u32;
    let window: &[u8; 40] = bytes.get(*at..).and_then(|rest| rest.first_chunk()).ok_or(OVER)?;
    let fresh0 = vcombine_u8(spread(window, mask, 0), spread(window, mask, 8));
    let fresh1 = vcombine_u8(spread(window, mask, 16), spread(window, mask, 24));
    *at += mask.count_ones() as usize;
    let [then_low0, then_high0] = take(takes0, fresh0, new_low0, new_high0);
    let [then_low1, then_high1] = take(takes1, fresh1, new_low1, new_high1);
    store2(
        &mut states.low,
        [vbslq_u8(on0, then_low0, low0), vbslq_u8(on1, then_low1, low1)],
    );
    store2(
        &mut states.high,
        [vbslq_u8(on0, then_high0, high0), vbslq_u8(on1, then_high1, high1)],
    );
    store2(out, [vandq_u8(symbols0, on0), vandq_u8(symbols1, on1)]);
    Ok(())
}

/// The bytes that eight lanes from `first` on take, of those that all 32 take by `mask`.
#[inline]
#[target_feature(enable = "neon")]
fn spread(window: &[u8; 40], mask: u32, first: u32) -> uint8x8_t {
    // At most 24 lanes come before the last eight.
    let skipped = (mask & ((1u32 << first) - 1)).count_ones() as usize & 31;
    let next: &[u8; 8] = window[skipped..]
        .first_chunk()
        .expect("eight bytes behind the 32nd");
    let order = &EXPAND.0[(mask >> first & 0xFF) as usize];
    // SAFETY: eight bytes are there, twice. An index above 7 gives 0.
    unsafe { vtbl1_u8(vld1_u8(next.as_ptr()), vld1_u8(order.as_ptr())) }
}

/// Lower and upper bytes after a step, where some lanes take a byte.
#[inline]
#[target_feature(enable = "neon")]
fn take(takes: uint8x16_t, fresh: uint8x16_t, low: uint8x16_t, high: uint8x16_t) -> [uint8x16_t; 2] {
    [vbslq_u8(takes, fresh, low), vbslq_u8(takes, low, high)]
}

super::vectors::rows!("neon");

/// See [`fields::read`](super::fields::read).
#[target_feature(enable = "neon")]
pub(super) fn fields(tokens: &[u8], raw: &[u8], values: &mut [u8], found: &mut LargeTokens) -> Option<usize> {
    let (bits_of, mask_of) = (load(&BITS_OF.0), load(&MASK_OF.0));
    let mut bit = 0usize;
    let chunks = tokens
        .as_chunks::<LANES>()
        .0
        .iter()
        .zip(values.as_chunks_mut::<LANES>().0);
    for (first, (tokens, values)) in (0..).step_by(LANES).zip(chunks) {
        let [tokens0, tokens1] = load2(tokens);
        let near: &[u8; 48] = raw.get(bit / 8..)?.first_chunk()?;
        // The bits after the byte that the first one is in: at most 7 + 4 * 64.
        let begin = bit & 7;
        let (fields0, between) = sixteen_fields(near, begin, vqtbl1q_u8(bits_of, tokens0));
        let (fields1, end) = sixteen_fields(near, between, vqtbl1q_u8(bits_of, tokens1));
        bit += end - begin;
        let fields0 = vandq_u8(fields0, vqtbl1q_u8(mask_of, tokens0));
        let fields1 = vandq_u8(fields1, vqtbl1q_u8(mask_of, tokens1));
        store2(values, [value(tokens0, fields0), value(tokens1, fields1)]);
        let (least, escape) = (vdupq_n_u8(LARGE), vdupq_n_u8(ESCAPE as u8));
        let both = masks(
            [vcgeq_u8(tokens0, least), vcgeq_u8(tokens1, least)],
            [vceqq_u8(tokens0, escape), vceqq_u8(tokens1, escape)],
        );
        found.add(LargeOf32 {
            first,
            mask: both as u32,
            escapes: (both >> 32) as u32,
        });
    }
    Some(bit)
}

/// Eight bits for each of sixteen lanes, beginning with those that are its own, of which it has `count`, at most 8. The first lane's
/// begin with the bit `start` of `near`. Also where those of the next lanes begin.
#[inline]
#[target_feature(enable = "neon")]
fn sixteen_fields(near: &[u8; 48], start: usize, count: uint8x16_t) -> (uint8x16_t, usize) {
    // The bits before each of eight lanes, and those of all eight.
    let sum = vreinterpretq_u64_u8(count);
    let sum = add(sum, vshlq_n_u64::<8>(sum));
    let sum = add(sum, vshlq_n_u64::<16>(sum));
    let sum = add(sum, vshlq_n_u64::<32>(sum));
    let ends = vshrq_n_u64::<56>(sum);
    let second = start + vgetq_lane_u64::<0>(ends) as usize;
    let end = second + vgetq_lane_u64::<1>(ends) as usize;
    let odd = vcombine_u8(vdup_n_u8((start & 7) as u8), vdup_n_u8((second & 7) as u8));
    let before = vaddq_u8(vsubq_u8(vreinterpretq_u8_u64(sum), count), odd);
    let (byte, odd) = (vshrq_n_u8::<3>(before), vandq_u8(before, vdupq_n_u8(7)));
    let next = vaddq_u8(byte, vdupq_n_u8(1));
    let (a, b) = (window(near, start), window(near, second));
    let low = vcombine_u8(vqtbl1_u8(a, vget_low_u8(byte)), vqtbl1_u8(b, vget_high_u8(byte)));
    let high = vcombine_u8(vqtbl1_u8(a, vget_low_u8(next)), vqtbl1_u8(b, vget_high_u8(next)));
    let odd = vreinterpretq_s8_u8(odd);
    // A shift by eight leaves nothing.
    let fields = vorrq_u8(
        vshlq_u8(low, vnegq_s8(odd)),
        vshlq_u8(high, vsubq_s8(vdupq_n_s8(8), odd)),
    );
    (fields, end)
}

/// The sixteen bytes from that of a bit on.
#[inline]
#[target_feature(enable = "neon")]
fn window(near: &[u8; 48], bit: usize) -> uint8x16_t {
    load(
        near[(bit / 8) & 31..]
            .first_chunk()
            .expect("16 bytes behind the 32nd"),
    )
}

/// Adds bytes.
#[inline]
#[target_feature(enable = "neon")]
fn add(a: uint64x2_t, b: uint64x2_t) -> uint64x2_t {
    vreinterpretq_u64_u8(vaddq_u8(vreinterpretq_u8_u64(a), vreinterpretq_u8_u64(b)))
}

/// The values of tokens, or their raw bits where the value does not fit a byte.
#[inline]
#[target_feature(enable = "neon")]
fn value(tokens: uint8x16_t, fields: uint8x16_t) -> uint8x16_t {
    let magnitude = vaddq_u8(vqtbl1q_u8(load(&BASE_OF.0), tokens), vshrq_n_u8::<1>(fields));
    let sign = vsubq_u8(vdupq_n_u8(0), vandq_u8(fields, vdupq_n_u8(1)));
    let value = vsubq_u8(veorq_u8(magnitude, sign), sign);
    vbslq_u8(vcgeq_u8(tokens, vdupq_n_u8(LARGE)), fields, value)
}

/// See [`blocks::write`](super::blocks::write).
#[target_feature(enable = "neon")]
pub(super) fn blocks(sorted: &Sorted, values: &[u8], places: &[BlockTarget], out: &mut Outs<'_>) {
    static ZEROS: [u8; 16] = [0; 16];
    for (i, places) in places.chunks(16).enumerate() {
        let begin = 16 * i;
        // Types are sorted: none after the first one goes farther.
        let cap = cap(sorted.kinds[begin]);
        // Once for all quarters: as often as that, finding places would take longer than all else.
        let mut to = [std::ptr::null_mut::<i16>(); 16];
        for (to, place) in to.iter_mut().zip(places) {
            *to = out[place.plane as usize][place.at as usize].as_mut_ptr();
        }
        let to = &to[..places.len()];
        for quarter in 0..4 {
            if quarter > 0 && cap < FIRST_OF_QUARTER[quarter] {
                for &to in to {
                    // SAFETY: `to` is a block, and nothing else refers to it while this runs.
                    unsafe { store_quarter(to, quarter, vdupq_n_u8(0)) };
                }
                continue;
            }
            let mut a: [uint8x16_t; 16] = [vdupq_n_u8(0); 16];
            for (a, &k) in a.iter_mut().zip(&CODED_PLACE[16 * quarter..]) {
                let k = usize::from(k);
                let row = match k <= cap {
                    true => values[sorted.rows[k & 63] + begin..].first_chunk(),
                    false => Some(&ZEROS),
                };
                *a = load(row.expect("a row is padded to whole vectors"));
            }
            // To interleave rows i and i + 8 four times transposes 16 x 16 bytes.
            for _ in 0..4 {
                a = std::array::from_fn(|i| match i % 2 {
                    0 => vzip1q_u8(a[i / 2], a[i / 2 + 8]),
                    _ => vzip2q_u8(a[i / 2], a[i / 2 + 8]),
                });
            }
            for (&to, a) in to.iter().zip(a) {
                // SAFETY: as above.
                unsafe { store_quarter(to, quarter, a) };
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
#[target_feature(enable = "neon")]
unsafe fn store_quarter(block: *mut i16, quarter: usize, values: uint8x16_t) {
    let values = vreinterpretq_s8_u8(values);
    // SAFETY: as the caller promises.
    unsafe {
        let to = block.add(16 * quarter);
        vst1q_s16(to, vmovl_s8(vget_low_s8(values)));
        vst1q_s16(to.add(8), vmovl_high_s8(values));
    }
}
