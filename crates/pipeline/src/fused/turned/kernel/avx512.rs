//! The kernel for AVX-512 with BW and VNNI: four rows of a window in one register, four pixels at a time.

use super::{BLOCK, Buffers, Places, Turned};
use crate::fused::turned::Phases;
use std::arch::x86_64::*;
use std::ops::Range;

/// The weights in the form that this kernel wants.
#[derive(Default)]
pub(in crate::fused::turned) struct Wide {
    /// For each phase and group of four: the weights' bits above the lowest seven, and those seven. The instruction
    /// that sums takes bytes.
    x: Vec<[i32; 2]>,
    /// For each phase and group of four: each weight for four channels, in 32 bits.
    y: Vec<[i32; 16]>,
    groups_x: usize,
    groups_y: usize,
}

impl Wide {
    pub fn set(&mut self, x: &Phases, y: &Phases) {
        (self.groups_x, self.groups_y) = (x.padded / 4, y.padded / 4);
        self.x.clear();
        let groups = x.weights.as_chunks::<4>().0.iter();
        let bytes = |weights: [i16; 4]| i32::from_le_bytes(weights.map(|w| w as u8));
        self.x
            .extend(groups.map(|w| [bytes(w.map(|w| w >> 7)), bytes(w.map(|w| w & 127))]));
        self.y.clear();
        let groups = y.weights.as_chunks::<4>().0.iter();
        self.y
            .extend(groups.map(|w| std::array::from_fn(|i| i32::from(w[i / 4] as u16))));
    }
}

/// As [`super::row`].
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) fn row(turned: &Turned<'_>, v: usize, range: Range<usize>, out: &mut [[u8; 4]]) {
    let Wide {
        groups_x, groups_y, ..
    } = turned.buffers.wide;
    let start = turned.start(v);
    for (u, out) in range.step_by(BLOCK).zip(out.chunks_mut(BLOCK)) {
        let places = turned.find(start, u);
        match (groups_x, groups_y) {
            (1, 1) => sum_windows::<true>(turned, &places, out),
            _ => sum_windows::<false>(turned, &places, out),
        }
    }
}

/// As [`super::portable`], for places that [`Turned::find`] found; with `ONE` for windows of one group of columns and
/// one of rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn sum_windows<const ONE: bool>(turned: &Turned<'_>, places: &Places, out: &mut [[u8; 4]]) {
    let (quads, rest) = out.as_chunks_mut::<4>();
    for (quad, out) in quads.iter_mut().enumerate() {
        // SAFETY: four pixels are 16 bytes.
        unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), four::<ONE>(turned, places, 4 * quad)) };
    }
    // A block has all its places, also where not all are wanted.
    if !rest.is_empty() {
        let mut all = [[0; 4]; 4];
        // SAFETY: four pixels are 16 bytes.
        unsafe {
            _mm_storeu_si128(
                all.as_mut_ptr().cast(),
                four::<ONE>(turned, places, 4 * quads.len()),
            )
        };
        rest.iter_mut().zip(all).for_each(|(out, pixel)| *out = pixel);
    }
}

/// Four pixels from pixel `i` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn four<const ONE: bool>(turned: &Turned<'_>, places: &Places, i: usize) -> __m128i {
    let add = |a, b| _mm512_add_epi32(a, b);
    let a = sum_window::<ONE>(turned, places, i);
    let b = sum_window::<ONE>(turned, places, i + 1);
    let c = sum_window::<ONE>(turned, places, i + 2);
    let d = sum_window::<ONE>(turned, places, i + 3);
    // The four rows of each pixel together.
    let ab = add(
        _mm512_shuffle_i32x4::<0x44>(a, b),
        _mm512_shuffle_i32x4::<0xEE>(a, b),
    );
    let cd = add(
        _mm512_shuffle_i32x4::<0x44>(c, d),
        _mm512_shuffle_i32x4::<0xEE>(c, d),
    );
    let sums = add(
        _mm512_shuffle_i32x4::<0x88>(ab, cd),
        _mm512_shuffle_i32x4::<0xDD>(ab, cd),
    );
    let values = _mm512_srai_epi32::<20>(add(sums, _mm512_set1_epi32(1 << 19)));
    _mm512_cvtusepi32_epi8(_mm512_max_epi32(values, _mm512_setzero_si512()))
}

/// The products of pixel `i`: four channels for each of four rows, to which those of further rows are added.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn sum_window<const ONE: bool>(turned: &Turned<'_>, places: &Places, i: usize) -> __m512i {
    let Buffers { rows, wide, .. } = turned.buffers;
    let (groups_x, groups_y) = if ONE {
        (1, 1)
    } else {
        (wide.groups_x, wide.groups_y)
    };
    let (x, y) = (places.x[i] as usize * groups_x, places.y[i] as usize * groups_y);
    let mut total = _mm512_setzero_si512();
    for group_y in 0..groups_y {
        // SAFETY: phases that were found are below their number, so their entries are there; and a window that was
        // found can be read in whole groups of four pixels.
        total = unsafe {
            let rows = rows.get_unchecked(4 * group_y..4 * group_y + 4);
            let wx = wide.x.get_unchecked(x..x + groups_x);
            let from = turned.data.as_ptr().add(places.offset[i] as usize);
            let sum = sum_rows(from, [rows[0], rows[1], rows[2], rows[3]], wx);
            // Values fit 16 bits; their upper halves meet weights of 0.
            let wy = _mm512_loadu_si512(wide.y.as_ptr().add(y + group_y).cast());
            _mm512_add_epi32(total, _mm512_madd_epi16(sum, wy))
        };
    }
    total
}

/// Four channels for each of four rows, times 64.
///
/// # Safety
/// From `from` on, four pixels for each of `weights` must be readable in each of `rows`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn sum_rows(from: *const u8, rows: [usize; 4], weights: &[[i32; 2]]) -> __m512i {
    // Of four pixels each channel's four bytes together.
    let gather = _mm512_broadcast_i32x4(_mm_setr_epi8(
        0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15,
    ));
    let (mut high, mut low) = (_mm512_setzero_si512(), _mm512_set1_epi32(64));
    for (group, &[heights, lows]) in weights.iter().enumerate() {
        // SAFETY: as the caller promises.
        let pixels = unsafe {
            let from = from.add(16 * group);
            let first = _mm256_castsi128_si256(_mm_loadu_si128(from.add(rows[0]).cast()));
            let top = _mm256_inserti128_si256::<1>(first, _mm_loadu_si128(from.add(rows[1]).cast()));
            let third = _mm256_castsi128_si256(_mm_loadu_si128(from.add(rows[2]).cast()));
            let bottom = _mm256_inserti128_si256::<1>(third, _mm_loadu_si128(from.add(rows[3]).cast()));
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(top), bottom)
        };
        let samples = _mm512_shuffle_epi8(pixels, gather);
        high = _mm512_dpbusd_epi32(high, samples, _mm512_set1_epi32(heights));
        low = _mm512_dpbusd_epi32(low, samples, _mm512_set1_epi32(lows));
    }
    _mm512_add_epi32(high, _mm512_srai_epi32::<7>(low))
}
