//! The stages of reading for AVX-512, in registers of 256 bits: on some processors wider ones slow down everything else. Every
//! function here needs the instructions that the token [`Avx512`](crate::kernels::Avx512) proves.

use super::LANES;
use super::avx2::{
    blocks_with, decode, deposit, large, load, load_quarters, store, store_quarters, twice, value,
};
use super::avx2_lanes::transform_with;
use super::blocks::Outs;
use super::fields::LargeTokens;
use super::lanes::{BlockTarget, Planes, Steps, Wide};
use super::read::{Coder, Fault, OVER, States};
use super::sorted::Sorted;
use super::tables::{CLASSES, Table, TokenTables};
use super::vectors::{BITS_OF, MASK_OF};
use std::arch::asm;
use std::arch::x86_64::*;
use std::ops::Range;

/// A load that stays one: the compiler would make it a part of `vpexpandb`, which is slow from memory on a Zen 4.
#[inline]
#[target_feature(enable = "avx2")]
fn load_apart(bytes: &[u8; 32]) -> __m256i {
    let value;
    // SAFETY: 32 bytes are there, and nothing else is touched.
    unsafe {
        asm!(
            "vmovdqu {value}, ymmword ptr [{from}]",
            value = out(ymm_reg) value,
            from = in(reg) bytes.as_ptr(),
            options(pure, readonly, nostack, preserves_flags),
        );
    }
    value
}

/// A vector of states: lower and upper bytes.
#[derive(Clone, Copy)]
struct Lanes {
    low: __m256i,
    high: __m256i,
}

/// Decodes a symbol in each of the lanes `on`, or in all where `ALL` are; the others give 0 and keep their state. `bytes` are the
/// next ones; returns how many of them it took.
///
/// A step waits for the one before with the same states, so the way from states to states is short: masks, which take longer
/// than vectors of bytes, only where lanes take bytes.
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
fn step<const ALL: bool>(
    tables: [&Table; 2],
    on: u32,
    Lanes { low, high }: Lanes,
    bytes: &[u8; LANES],
    out: &mut [u8; LANES],
) -> (Lanes, usize) {
    let (symbol, [new_low, new_high]) = decode(tables, low, high);
    // Lanes whose upper byte became 0 take a byte.
    let takes = match ALL {
        true => _mm256_testn_epi8_mask(new_high, new_high),
        false => _mm256_mask_testn_epi8_mask(on, new_high, new_high),
    };
    let then = Lanes {
        low: _mm256_mask_expand_epi8(new_low, takes, load_apart(bytes)),
        high: _mm256_mask_mov_epi8(new_high, takes, new_low),
    };
    let taken = takes.count_ones() as usize;
    if ALL {
        store(out, symbol);
        return (then, taken);
    }
    store(out, _mm256_maskz_mov_epi8(on, symbol));
    let lanes = Lanes {
        low: _mm256_mask_mov_epi8(low, on, then.low),
        high: _mm256_mask_mov_epi8(high, on, then.high),
    };
    (lanes, taken)
}

/// A coder with `V` vectors of states, which are in registers: that of the next step first.
struct InTurns<'b, const V: usize> {
    states: [Lanes; V],
    bytes: &'b [u8],
    at: usize,
    steps: usize,
}

impl<'b, const V: usize> InTurns<'b, V> {
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
    fn begin(coder: &Coder<'b>) -> Self {
        let states = std::array::from_fn(|i| {
            let States { low, high } = &coder.states[(coder.step + i) % V];
            Lanes {
                low: load(low),
                high: load(high),
            }
        });
        InTurns {
            states,
            bytes: coder.bytes,
            at: coder.at,
            steps: 0,
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
    fn end(self, coder: &mut Coder<'_>) {
        coder.step += self.steps;
        coder.at = self.at;
        for (i, lanes) in self.states.into_iter().enumerate() {
            let States { low, high } = &mut coder.states[(coder.step + i) % V];
            store(low, lanes.low);
            store(high, lanes.high);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
    fn step<const ALL: bool>(
        &mut self,
        tables: [&Table; 2],
        on: u32,
        out: &mut [u8; LANES],
    ) -> Result<(), Fault> {
        let bytes = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk());
        let (after, taken) = step::<ALL>(tables, on, self.states[0], bytes.ok_or(OVER)?, out);
        let states = self.states;
        self.states = std::array::from_fn(|i| if i + 1 < V { states[i + 1] } else { after });
        self.at += taken;
        self.steps += 1;
        Ok(())
    }

    /// Decodes a row of `alive` symbols, each 32 with their tables.
    #[inline]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
    fn row<'t>(
        &mut self,
        mut tables: impl Iterator<Item = [&'t Table; 2]>,
        alive: usize,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        let mut outs = out.as_chunks_mut::<LANES>().0.iter_mut();
        for (out, tables) in outs.by_ref().take(alive / LANES).zip(tables.by_ref()) {
            self.step::<true>(tables, u32::MAX, out)?;
        }
        let left = alive % LANES;
        if left > 0
            && let (Some(out), Some(tables)) = (outs.next(), tables.next())
        {
            self.step::<false>(tables, _bzhi_u32(u32::MAX, left as u32), out)?;
        }
        Ok(())
    }
}

/// The types of a class's blocks.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
pub(super) fn types(coder: &mut Coder<'_>, table: &Table, out: &mut [u8], count: usize) -> Result<(), Fault> {
    match coder.vectors {
        1 => types_in_turns::<1>(coder, table, out, count),
        2 => types_in_turns::<2>(coder, table, out, count),
        _ => types_in_turns::<4>(coder, table, out, count),
    }
}

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
fn types_in_turns<const V: usize>(
    coder: &mut Coder<'_>,
    table: &Table,
    out: &mut [u8],
    count: usize,
) -> Result<(), Fault> {
    let mut turns = InTurns::<V>::begin(coder);
    turns.row(std::iter::repeat([table; 2]), count, out)?;
    turns.end(coder);
    Ok(())
}

/// The tokens of all blocks for the coefficients `which`.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
pub(super) fn tokens(
    coder: &mut Coder<'_>,
    tables: &[Box<TokenTables>; CLASSES],
    classes: &[Sorted; CLASSES],
    which: Range<usize>,
    out: &mut [u8],
) -> Result<(), Fault> {
    match coder.vectors {
        1 => tokens_in_turns::<1>(coder, tables, classes, which, out),
        2 => tokens_in_turns::<2>(coder, tables, classes, which, out),
        _ => tokens_in_turns::<4>(coder, tables, classes, which, out),
    }
}

#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
fn tokens_in_turns<const V: usize>(
    coder: &mut Coder<'_>,
    tables: &[Box<TokenTables>; CLASSES],
    classes: &[Sorted; CLASSES],
    which: Range<usize>,
    out: &mut [u8],
) -> Result<(), Fault> {
    let mut turns = InTurns::<V>::begin(coder);
    for k in which {
        for (tables, sorted) in tables.iter().zip(classes) {
            let tables = sorted.tables(&tables[k]);
            turns.row(tables, sorted.alive[k], &mut out[sorted.rows[k]..])?;
        }
    }
    turns.end(coder);
    Ok(())
}

/// Of each byte the last one of eight, of those `back` times eight bytes before.
const fn last_of_eight(back: usize) -> [u8; 32] {
    let mut all = [0; 32];
    let mut lane = 8 * back;
    while lane < 32 {
        all[lane] = ((lane / 8 - back) * 8 + 7) as u8;
        lane += 1;
    }
    all
}
static ONE_BACK: [u8; 32] = last_of_eight(1);
static TWO_BACK: [u8; 32] = last_of_eight(2);
/// The last byte of each eight.
static ENDS: [u8; 32] = {
    let mut all = [0; 32];
    let mut eight = 0;
    while eight < 4 {
        all[eight] = 8 * eight as u8 + 7;
        eight += 1;
    }
    all
};

/// See [`fields::read`](super::fields::read).
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
pub(super) fn fields(tokens: &[u8], raw: &[u8], values: &mut [u8], found: &mut LargeTokens) -> Option<usize> {
    let (bits_of, mask_of) = (twice(&BITS_OF.0), twice(&MASK_OF.0));
    let mut bit = 0usize;
    let chunks = tokens.as_chunks::<32>().0.iter();
    let chunks = chunks.zip(values.as_chunks_mut::<32>().0);
    for (first, (tokens, values)) in (0..).step_by(32).zip(chunks) {
        let tokens = load(tokens);
        let count = _mm256_shuffle_epi8(bits_of, tokens);
        let mask = _mm256_shuffle_epi8(mask_of, tokens);
        // The bits up to each token, among eight, then among all; 256 become 255.
        let within = _mm256_add_epi8(count, _mm256_slli_epi64::<8>(count));
        let within = _mm256_add_epi8(within, _mm256_slli_epi64::<16>(within));
        let within = _mm256_add_epi8(within, _mm256_slli_epi64::<32>(within));
        let one = _mm256_maskz_permutexvar_epi8(!0xFF, load(&ONE_BACK), within);
        let two = _mm256_add_epi8(within, one);
        let more = _mm256_maskz_permutexvar_epi8(!0xFFFF, load(&TWO_BACK), two);
        let upto = _mm256_adds_epu8(two, more);
        let ends = _mm256_permutexvar_epi8(load(&ENDS), upto);
        let ends = (_mm256_cvtsi256_si32(ends) as u32).to_le_bytes().map(usize::from);
        let near: &[u8; 40] = raw.get(bit / 8..)?.first_chunk()?;
        let odd = bit & 7;
        let fields = if ends[3] <= 56 {
            // One word holds them all.
            let word = u64::from_le_bytes(*near.first_chunk().expect("eight bytes")) >> odd;
            bit += ends[3];
            _mm256_multishift_epi64_epi8(_mm256_sub_epi8(upto, count), _mm256_set1_epi64x(word as i64))
        } else {
            let mut fields = [0; 4];
            store_quarters(&mut fields, mask);
            bit = deposit(raw, bit, &mut fields)?;
            load_quarters(&fields)
        };
        store(values, value(tokens, _mm256_and_si256(fields, mask)));
        found.add(large(first, tokens));
    }
    Some(bit)
}

/// See [`blocks::write`](super::blocks::write).
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
pub(super) fn blocks(sorted: &Sorted, values: &[u8], places: &[BlockTarget], out: &mut Outs<'_>) {
    blocks_with::<true>(sorted, values, places, out);
}

/// See [`lanes::transform`](super::lanes::transform).
///
/// # Safety
/// As [`avx2_lanes::transform`](super::avx2_lanes::transform), and the processor has AVX-512.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
pub(super) unsafe fn transform(
    sorted: &Sorted,
    values: &[u8],
    wide: &Wide,
    steps: &Steps,
    places: &[BlockTarget],
    planes: Planes<'_, '_>,
) {
    // SAFETY: as the caller promises.
    unsafe { transform_with::<true>(sorted, values, wide, steps, places, planes) }
}
