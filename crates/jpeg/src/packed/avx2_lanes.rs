//! [`lanes`](super::lanes) for AVX2.

use super::lanes::{BlockTarget, CHUNK, NOWHERE, Planes, SHAPES, Shape, Source, Steps, Wide};
use super::sorted::Sorted;
use crate::block::CODED_PLACE;
use crate::kernels::avx2::idct::madd;
use std::arch::x86_64::*;

/// Eight 16-bit numbers a row of both halves: what the first pass leaves of a block's 64.
#[repr(C, align(32))]
struct Room([[i16; CHUNK]; 64]);

/// See [`lanes::transform`](super::lanes::transform).
///
/// # Safety
/// The processor has AVX2. From each place in `places`, of which there are enough for whole chunks, 8 rows of 8 samples
/// lie within its plane.
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) unsafe fn transform(
    sorted: &Sorted,
    values: &[u8],
    wide: &Wide,
    steps: &Steps,
    places: &[BlockTarget],
    planes: Planes<'_, '_>,
) {
    // SAFETY: as the caller promises.
    unsafe { transform_with::<false>(sorted, values, wide, steps, places, planes) }
}

/// The same for functions of more instructions, of which each makes its own copy: in one that has AVX-512, the compiler uses all
/// of its registers.
///
/// # Safety
/// As [`transform`].
#[inline]
#[target_feature(enable = "avx2,bmi1,bmi2,popcnt,lzcnt")]
pub(super) unsafe fn transform_with<const MORE_REGISTERS: bool>(
    sorted: &Sorted,
    values: &[u8],
    wide: &Wide,
    steps: &Steps,
    places: &[BlockTarget],
    planes: Planes<'_, '_>,
) {
    let mut room = Room([[0; CHUNK]; 64]);
    let stride = planes.stride;
    let mut bases = [std::ptr::null_mut(); 8];
    for (base, plane) in bases.iter_mut().zip(planes.planes.iter_mut()) {
        *base = plane.as_mut_ptr();
    }
    for (i, places) in places.as_chunks::<CHUNK>().0.iter().enumerate() {
        let begin = CHUNK * i;
        if begin >= sorted.count {
            break;
        }
        if places.iter().all(|place| place.plane == NOWHERE) {
            continue;
        }
        let source = Source::new(begin, sorted, values, wide, steps);
        let dc: &[i16; CHUNK] = sorted.dc[begin..].first_chunk().expect("whole chunks");
        let dc = _mm256_mullo_epi16(even_odd(load(dc)), _mm256_set1_epi16(steps.steps[0]));
        let mut to = [std::ptr::null_mut(); CHUNK];
        for (to, place) in to.iter_mut().zip(places) {
            // SAFETY: the planes are there while this runs, and the places lie within them.
            *to = unsafe { bases[place.plane as usize & 7].add(place.at as usize) };
        }
        // SAFETY: 8 rows of 8 samples are there, as the caller promises.
        unsafe {
            match source.cap {
                0 => flat(dc, &to, stride),
                _ => block(
                    &source,
                    dc,
                    SHAPES[usize::from(sorted.kinds[begin] & 15)],
                    &mut room,
                    &to,
                    stride,
                ),
            }
        }
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(values: &[i16; CHUNK]) -> __m256i {
    // SAFETY: 32 bytes are there.
    unsafe { _mm256_loadu_si256(values.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(to: &mut [i16; CHUNK], value: __m256i) {
    // SAFETY: 32 bytes are there.
    unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast(), value) }
}

/// From slots in their order to lanes: the even ones, then the odd ones.
#[inline]
#[target_feature(enable = "avx2")]
fn even_odd(values: __m256i) -> __m256i {
    let order = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
    let halves = _mm256_shuffle_epi8(values, _mm256_broadcastsi128_si256(order));
    _mm256_permute4x64_epi64::<0b11_01_10_00>(halves)
}

/// A dequantised coefficient of all blocks; not the first one, and without what does not fit a byte.
#[inline]
#[target_feature(enable = "avx2")]
fn get(source: &Source<'_>, place: usize) -> __m256i {
    let k = usize::from(CODED_PLACE[place & 63]);
    if k > source.cap {
        return _mm256_setzero_si256();
    }
    let row = &source.values[source.sorted.rows[k & 63] + source.begin..];
    let row: &[u8; CHUNK] = row.first_chunk().expect("rows are whole vectors");
    // SAFETY: 16 bytes are there, and 32 of the steps.
    unsafe {
        let row = _mm256_broadcastsi128_si256(_mm_loadu_si128(row.as_ptr().cast()));
        let steps = _mm256_load_si256(source.steps.lanes[place & 63].as_ptr().cast());
        _mm256_maddubs_epi16(steps, row)
    }
}

/// The first values of a column.
#[inline]
#[target_feature(enable = "avx2")]
fn column<const N: usize>(source: &Source<'_>, dc: __m256i, x: usize) -> [__m256i; N] {
    let mut all = [dc; N];
    for (y, value) in all.iter_mut().enumerate() {
        if x > 0 || y > 0 {
            *value = get(source, 8 * y + x);
        }
    }
    if source.columns >> x & 1 != 0 {
        for (y, value) in all.iter_mut().enumerate() {
            let wide = source.wide.row(8 * y + x, source.begin);
            *value = _mm256_add_epi16(*value, load(wide));
        }
    }
    all
}

#[inline]
#[target_feature(enable = "avx2")]
fn low(a: __m256i, b: __m256i) -> __m256i {
    _mm256_unpacklo_epi16(a, b)
}

#[inline]
#[target_feature(enable = "avx2")]
fn high(a: __m256i, b: __m256i) -> __m256i {
    _mm256_unpackhi_epi16(a, b)
}

#[inline]
#[target_feature(enable = "avx2")]
fn butterfly(e: [__m256i; 4], o: [__m256i; 4]) -> [__m256i; 8] {
    std::array::from_fn(|i| match i {
        0..4 => _mm256_add_epi32(e[i], o[i]),
        _ => _mm256_sub_epi32(e[7 - i], o[7 - i]),
    })
}

/// A 16 next to the first value times this is the rounding of a pass: half of 2^11, or of 2^18.
const fn rounding<const SECOND: bool>() -> i32 {
    if SECOND { 8192 } else { 64 }
}

/// From the pairs (x0 + x4, 16), (x0 - x4, 16), (x2, x6), (x7, x1), (x3, x5).
#[inline]
#[target_feature(enable = "avx2")]
fn all<const SECOND: bool>(
    sum: __m256i,
    difference: __m256i,
    p26: __m256i,
    p71: __m256i,
    p35: __m256i,
) -> [__m256i; 8] {
    let add = |a, b| _mm256_add_epi32(a, b);
    let first = |a| madd(a, 8192, rounding::<SECOND>());
    let (e0, e1) = (first(sum), first(difference));
    let (e2, e3) = (madd(p26, 4433, 4433 - 15137), madd(p26, 4433 + 6270, 4433));
    let z = _mm256_add_epi16(p71, p35);
    let (w3, w4) = (madd(z, 9633 - 16069, 9633), madd(z, 9633, 9633 - 3196));
    let odd = [
        add(madd(p71, -7373, 12299 - 7373), w4),
        add(madd(p35, 25172 - 20995, -20995), w3),
        add(madd(p35, -20995, 16819 - 20995), w4),
        add(madd(p71, 2446 - 7373, -7373), w3),
    ];
    let even = [
        add(e0, e3),
        add(e1, e2),
        _mm256_sub_epi32(e1, e2),
        _mm256_sub_epi32(e0, e3),
    ];
    butterfly(even, odd)
}

/// The same where x4 to x7 are 0, from the pairs (x0, x2), (x3, x1).
#[inline]
#[target_feature(enable = "avx2")]
fn four<const SECOND: bool>(p02: __m256i, p31: __m256i) -> [__m256i; 8] {
    let round = _mm256_set1_epi32(16 * rounding::<SECOND>());
    let even = |factor| _mm256_add_epi32(madd(p02, 8192, factor), round);
    butterfly(
        [even(4433 + 6270), even(4433), even(-4433), even(-4433 - 6270)],
        [
            madd(p31, 9633, 9633 - 3196 + 12299 - 7373),
            madd(p31, 9633 - 16069 + 25172 - 20995, 9633),
            madd(p31, 9633 - 20995, 9633 - 3196),
            madd(p31, 9633 - 16069, 9633 - 7373),
        ],
    )
}

/// The same where x2 to x7 are 0, from the pairs (x0, 16), (x1, anything).
#[inline]
#[target_feature(enable = "avx2")]
fn two<const SECOND: bool>(p0: __m256i, p1: __m256i) -> [__m256i; 8] {
    let even = madd(p0, 8192, rounding::<SECOND>());
    let odd = |factor| madd(p1, factor, 0);
    butterfly(
        [even; 4],
        [
            odd(9633 - 3196 + 12299 - 7373),
            odd(9633),
            odd(9633 - 3196),
            odd(9633 - 7373),
        ],
    )
}

/// A pass over eight, four or two values, in 32 bits: the lower and the upper lanes of each 128 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn pass8<const SECOND: bool>(x: [__m256i; 8]) -> [[__m256i; 8]; 2] {
    let r = _mm256_set1_epi16(16);
    let (sum, difference) = (_mm256_add_epi16(x[0], x[4]), _mm256_sub_epi16(x[0], x[4]));
    [
        all::<SECOND>(
            low(sum, r),
            low(difference, r),
            low(x[2], x[6]),
            low(x[7], x[1]),
            low(x[3], x[5]),
        ),
        all::<SECOND>(
            high(sum, r),
            high(difference, r),
            high(x[2], x[6]),
            high(x[7], x[1]),
            high(x[3], x[5]),
        ),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn pass4<const SECOND: bool>(x: [__m256i; 4]) -> [[__m256i; 8]; 2] {
    [
        four::<SECOND>(low(x[0], x[2]), low(x[3], x[1])),
        four::<SECOND>(high(x[0], x[2]), high(x[3], x[1])),
    ]
}

#[inline]
#[target_feature(enable = "avx2")]
fn pass2<const SECOND: bool>(x: [__m256i; 2]) -> [[__m256i; 8]; 2] {
    let r = _mm256_set1_epi16(16);
    [
        two::<SECOND>(low(x[0], r), low(x[1], x[1])),
        two::<SECOND>(high(x[0], r), high(x[1], x[1])),
    ]
}

/// Ends the first pass of column `x`.
#[inline]
#[target_feature(enable = "avx2")]
fn keep(v: [[__m256i; 8]; 2], room: &mut Room, x: usize) {
    let [low, high] = v;
    for (y, (low, high)) in low.into_iter().zip(high).enumerate() {
        let both = _mm256_packs_epi32(_mm256_srai_epi32::<11>(low), _mm256_srai_epi32::<11>(high));
        store(&mut room.0[(8 * y + x) & 63], both);
    }
}

/// Ends the second pass of a row: eight samples of each block.
///
/// # Safety
/// Eight samples are at each place.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn write(v: [[__m256i; 8]; 2], to: &[*mut u8; CHUNK], offset: usize) {
    for (h, v) in v.iter().enumerate() {
        // Shifted by 18: by 16 as the upper halves are taken, of two columns at once, then by 2.
        let columns = |a, b| {
            let both = _mm256_blend_epi16::<0xAA>(_mm256_srli_epi32::<16>(a), b);
            _mm256_srai_epi16::<2>(both)
        };
        let packed = |a, b| _mm256_xor_si256(_mm256_packs_epi16(a, b), _mm256_set1_epi8(-128));
        let a = packed(columns(v[0], v[1]), columns(v[4], v[5]));
        let b = packed(columns(v[2], v[3]), columns(v[6], v[7]));
        let (left, right) = (low(a, b), high(a, b));
        for (q, quarter) in [
            _mm256_unpacklo_epi32(left, right),
            _mm256_unpackhi_epi32(left, right),
        ]
        .into_iter()
        .enumerate()
        {
            let halves = [
                _mm256_castsi256_si128(quarter),
                _mm256_extracti128_si256::<1>(quarter),
            ];
            // The lower half has even slots, the upper one odd ones. In their order, since neighbours often share a
            // cache line.
            let first = 8 * h + 4 * q;
            for (odd, half) in halves.into_iter().enumerate() {
                // SAFETY: as the caller promises.
                unsafe { _mm_storel_epi64(to[first + odd].add(offset).cast(), half) };
            }
            for (odd, half) in halves.into_iter().enumerate() {
                // SAFETY: the same.
                unsafe { _mm_storeh_pd(to[first + 2 + odd].add(offset).cast(), _mm_castsi128_pd(half)) };
            }
        }
    }
}

/// Transforms a chunk.
///
/// # Safety
/// 8 rows of 8 samples, `stride` apart, are at each place.
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn block(
    source: &Source<'_>,
    dc: __m256i,
    shape: Shape,
    room: &mut Room,
    to: &[*mut u8; CHUNK],
    stride: usize,
) {
    for x in 0..shape.behind_fourth {
        keep(pass8::<false>(column(source, dc, x)), room, x);
    }
    for x in shape.behind_fourth..shape.behind_second {
        keep(pass4::<false>(column(source, dc, x)), room, x);
    }
    for x in shape.behind_second..shape.behind_first {
        keep(pass2::<false>(column(source, dc, x)), room, x);
    }
    for x in shape.behind_first..shape.any {
        let [value] = column(source, dc, x);
        let twice = _mm256_adds_epi16(value, value);
        let four = _mm256_adds_epi16(twice, twice);
        for y in 0..8 {
            store(&mut room.0[(8 * y + x) & 63], four);
        }
    }
    let columns = match shape.any {
        0..=2 => 2,
        3..=4 => 4,
        _ => 8,
    };
    for x in shape.any..columns {
        for y in 0..8 {
            room.0[(8 * y + x) & 63] = [0; CHUNK];
        }
    }
    for y in 0..8 {
        let row = &room.0[8 * y..8 * y + 8];
        let v = match columns {
            2 => pass2::<true>(std::array::from_fn(|x| load(&row[x]))),
            4 => pass4::<true>(std::array::from_fn(|x| load(&row[x]))),
            _ => pass8::<true>(std::array::from_fn(|x| load(&row[x]))),
        };
        // SAFETY: as the caller promises.
        unsafe { write(v, to, y * stride) };
    }
}

/// Writes blocks with nothing but first coefficients.
///
/// # Safety
/// As [`block`].
#[inline]
#[target_feature(enable = "avx2")]
unsafe fn flat(dc: __m256i, to: &[*mut u8; CHUNK], stride: usize) {
    let twice = _mm256_adds_epi16(dc, dc);
    let four = _mm256_adds_epi16(twice, twice);
    let value = _mm256_srai_epi16::<5>(_mm256_adds_epi16(four, _mm256_set1_epi16(16)));
    let bytes = _mm256_xor_si256(_mm256_packs_epi16(value, value), _mm256_set1_epi8(-128));
    let lanes = [
        _mm_cvtsi128_si64(_mm256_castsi256_si128(bytes)) as u64,
        _mm_cvtsi128_si64(_mm256_extracti128_si256::<1>(bytes)) as u64,
    ];
    for (slot, to) in to.iter().enumerate() {
        let sample = lanes[slot % 2] >> (8 * (slot / 2)) & 0xFF;
        let eight = sample * 0x0101_0101_0101_0101;
        for y in 0..8 {
            // SAFETY: as the caller promises.
            unsafe { to.add(y * stride).cast::<u64>().write_unaligned(eight) };
        }
    }
}
