//! The kernels for AVX-512 with BW, VBMI and VNNI.
//!
//! Sixteen windows that lie within 128 bytes of a row are picked out of two registers by one permutation, and four
//! samples of each are weighted and summed by one instruction. That instruction takes bytes, so a weight of 13 bits
//! is split into seven low bits and the rest.

use super::{BLOCK, PADDING};
use std::arch::x86_64::*;
use std::ops::Range;

/// How many bytes two registers hold.
const SPAN: usize = 128;

/// What a block needs of one group of four samples.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Table {
    /// Where in the 128 bytes each window's samples are.
    index: [u8; 64],
    high: [i8; 64],
    low: [i8; 64],
}

/// [`Columns`] in the form that these kernels want.
#[derive(Default)]
pub(in crate::fused::upright) struct Wide {
    /// Where each block's 128 bytes begin.
    bases: Vec<u32>,
    /// For each block and group.
    tables: Vec<Table>,
    groups: usize,
    /// How many bytes of a row are read.
    reach: usize,
}

impl Wide {
    /// Makes the tables; none where the windows of a block lie too far apart.
    pub fn set(&mut self, starts: &[u32], weights: &[[i16; 4 * BLOCK]], groups: usize) {
        self.bases.clear();
        self.tables.clear();
        self.groups = groups;
        self.reach = 0;
        for (starts, tables) in starts
            .as_chunks::<BLOCK>()
            .0
            .iter()
            .zip(weights.chunks_exact(groups))
        {
            // Starts rise or fall along a row.
            let (base, end) = (starts[0].min(starts[BLOCK - 1]), starts[0].max(starts[BLOCK - 1]));
            if (end - base) as usize + 4 * groups > SPAN {
                *self = Wide::default();
                return;
            }
            self.bases.push(base);
            self.reach = self.reach.max(base as usize + SPAN);
            for (group, weights) in tables.iter().enumerate() {
                let mut table = Table {
                    index: [0; 64],
                    high: [0; 64],
                    low: [0; 64],
                };
                for (i, index) in table.index.iter_mut().enumerate() {
                    *index = (starts[i / 4] - base) as u8 + (4 * group + i % 4) as u8;
                }
                for (i, &weight) in weights.iter().enumerate() {
                    (table.high[i], table.low[i]) = ((weight >> 7) as i8, (weight & 127) as i8);
                }
                self.tables.push(table);
            }
        }
    }

    /// Whether there are tables.
    pub fn fits(&self) -> bool {
        !self.tables.is_empty()
    }

    /// How many bytes of a row are read.
    pub fn reach(&self) -> usize {
        self.reach
    }
}

/// As [`super::portable::sum_columns`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")]
pub(super) fn sum_columns(source: &[u8], wide: &Wide, out: &mut [i16]) {
    assert!(source.len() >= wide.reach);
    let blocks = out.as_chunks_mut::<BLOCK>().0.iter_mut().zip(&wide.bases);
    for ((out, &base), tables) in blocks.zip(wide.tables.chunks_exact(wide.groups)) {
        // SAFETY: 128 bytes from every base on are within `wide.reach`, and `source` has as many.
        let (near, far) = unsafe {
            let from = source.as_ptr().add(base as usize);
            (
                _mm512_loadu_si512(from.cast()),
                _mm512_loadu_si512(from.add(64).cast()),
            )
        };
        let (mut high, mut low) = (_mm512_setzero_si512(), _mm512_set1_epi32(64));
        for table in tables {
            // SAFETY: the arrays are 64 bytes each, aligned to 64.
            let (index, heights, lows) = unsafe {
                (
                    _mm512_load_si512(table.index.as_ptr().cast()),
                    _mm512_load_si512(table.high.as_ptr().cast()),
                    _mm512_load_si512(table.low.as_ptr().cast()),
                )
            };
            let samples = _mm512_permutex2var_epi8(near, index, far);
            high = _mm512_dpbusd_epi32(high, samples, heights);
            low = _mm512_dpbusd_epi32(low, samples, lows);
        }
        // The low part rounds; the high part is whole.
        let sum = _mm512_add_epi32(high, _mm512_srai_epi32::<7>(low));
        // SAFETY: a block is 16 values of 16 bits.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm512_cvtsepi32_epi16(sum)) };
    }
}

/// As [`super::portable::mix_rows`].
#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn mix_rows(sums: &[i16], rows: Range<usize>, weights: &[i16], out: &mut [i16]) {
    let width = out.len();
    let first = rows.start % weights.len();
    for (group, out) in out.as_chunks_mut::<PADDING>().0.iter_mut().enumerate() {
        let mut total = _mm512_setzero_si512();
        let mut place = first;
        for &weight in weights {
            let row: &[i16; PADDING] = sums[place * width + group * PADDING..]
                .first_chunk()
                .expect("whole rows");
            // SAFETY: a group is 32 values of 16 bits.
            let values = unsafe { _mm512_loadu_si512(row.as_ptr().cast()) };
            total = _mm512_adds_epi16(total, _mm512_mulhrs_epi16(values, _mm512_set1_epi16(weight)));
            place = if place + 1 == weights.len() { 0 } else { place + 1 };
        }
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), total) };
    }
}
