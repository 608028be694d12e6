//! The kernels, and the layout of what they are told.
//!
//! # Why nothing is read or written outside, and every loop ends
//!
//! What the kernels are told (`words`) is computed by the host from the header and from how many bytes there are; no bit
//! of coded data is among it. Coded data decides only these:
//!
//! - *How far a reader moves.* A step moves it by at least one bit and not beyond its segment, whose bits are fewer than
//!   2^31, so a loop until a place in the segment ends after as many steps as there are bits. A walk reads at most [`WALK`] subsequences.
//! - *Which place of an MCU a reader is at*: below the number of places by construction; where it comes from a state, by
//!   [`resume`].
//! - *Which coefficient is meant*: a step gives one below 64 or none.
//! - *Which block is meant.* Counting wrongly gives a wrong MCU, but a block is written only where its column and row lie
//!   in its component's window, which the host sized the buffer for.
//! - *Which entry of a code is looked at*: nine bits of data, or eight bits behind a search among seven lengths.
//!
//! Words of data behind a segment's last read as zero. Besides, every read and write is checked against its buffer, as
//! in all kernels here.

use crate::kernels::{held, read, word, write};
use cubecl::prelude::*;

/// Units of a cube.
pub(crate) const UNITS: u32 = 64;

// What is wrong with an image, in a word for each.
/// A decode began where its predecessor did not end: too few rounds.
pub(crate) const UNSYNCHRONISED: u32 = 1;
/// Bits that are no code.
pub(crate) const NO_CODE: u32 = 2;
/// A run of zeros out of its block.
pub(crate) const OVERRUN: u32 = 4;
/// The data of a segment end before its last block.
pub(crate) const TOO_SHORT: u32 = 8;

// A code in 16-bit numbers: length and symbol for every nine bits that begin with a whole code, otherwise zero; for
// lengths from 10 on the first 16 bits behind all codes up to it; what leads from a code of that length to its symbol's
// index; the symbols.
pub(crate) const HEADS: u32 = 512;
pub(crate) const LONG_LENGTHS: u32 = 7;
pub(crate) const SYMBOLS: u32 = HEADS + 2 * LONG_LENGTHS;
pub(crate) const CODE_SIZE: u32 = SYMBOLS + 256;

// The words of a batch: images, segments, and for each subsequence where its segment's words are among those.

// An image in words: blocks of an MCU; MCUs a row; of four components: first block among all of the batch, first needed
// column and row, blocks a needed row, needed rows, blocks of an MCU across and down; of ten places of an MCU:
// component, column and row in a byte each, and where the codes are.
pub(crate) const COMPONENTS: u32 = 2;
pub(crate) const COMPONENT_SIZE: u32 = 7;
pub(crate) const PLACES: u32 = COMPONENTS + 4 * COMPONENT_SIZE;
pub(crate) const PLACE_SIZE: u32 = 3;
pub(crate) const IMAGE_SIZE: u32 = PLACES + 10 * PLACE_SIZE;

// A segment in words: first word of data, bits, first subsequence, subsequences, first MCU, blocks to be read, where
// its image's words are, its image's number.

/// The bits of a state, as [`state_of`] packs it, and the mark of one that a walk begins in.
const STATE: u32 = 0xFFFF;
const MARK: u32 = 0x1_0000;

/// The most subsequences of a walk.
const WALK: u32 = 64;

/// What is summed up over subsequences: blocks, and the differences of four components.
pub(crate) const SUMS: u32 = 5;

/// Subsequences that one unit sums up over.
pub(crate) const STRETCH: u32 = 64;

/// The number of this cube, where there are more than fit in one dimension.
#[cube]
fn cube_number() -> u32 {
    CUBE_POS_Y * CUBE_COUNT_X + CUBE_POS_X
}

/// A reader of one segment.
#[derive(CubeType)]
struct Reader {
    /// The segment: its first word of data, how many words and bits it has.
    begin: u32,
    words: u32,
    bits: u32,
    /// Where its image's words are.
    image: u32,
    /// The next bit.
    position: u32,
    /// The place in the MCU, and the coefficient in coding order, that the next symbol is about.
    place: u32,
    k: u32,
    /// The place's component, and where its codes are.
    component: u32,
    dc: u32,
    ac: u32,
    /// The word that holds the next bit, and that behind it.
    high: u32,
    low: u32,
    /// What the last step read: a value and which coefficient it is, 64 for none.
    value: u32,
    at: u32,
    /// Whether a block ended with it.
    ended: bool,
    /// Why it could not be read, or zero.
    fault: u32,
}

/// Word `index` of a segment, its first bit in the highest place.
#[cube]
fn big_endian(data: &[u32], begin: u32, words: u32, index: u32) -> u32 {
    let mut value = 0u32;
    if index < words {
        value = read(data, begin + index);
    }
    (value << 24) | ((value & 0xFF00) << 8) | ((value >> 8) & 0xFF00) | (value >> 24)
}

/// A reader of a segment that begins in a `state`, as [`state_of`] packs it, of the subsequence that begins at bit
/// `start`.
#[cube]
fn resume(data: &[u32], words: &[u32], segment: u32, start: u32, state: u32) -> Reader {
    let begin = word(words, segment);
    let bits = word(words, segment + 1);
    let count = (bits + 31) >> 5;
    let image = word(words, segment + 6);
    let position = start + (state & 31);
    let place = min((state >> 5) & 15, word(words, image) - 1);
    let record = image + PLACES + PLACE_SIZE * place;
    Reader {
        begin,
        words: count,
        bits,
        image,
        position,
        place,
        k: (state >> 9) & 63,
        component: word(words, record) & 255,
        dc: word(words, record + 1),
        ac: word(words, record + 2),
        high: big_endian(data, begin, count, position / 32),
        low: big_endian(data, begin, count, position / 32 + 1),
        value: 0u32,
        at: 64u32,
        ended: false,
        fault: 0u32,
    }
}

/// The state of a reader behind a subsequence that ends at bit `end`: bits read beyond it, at most 30, place and
/// coefficient.
#[cube]
fn state_of(reader: &Reader, end: u32) -> u32 {
    (reader.position - end) | (reader.place << 5) | (reader.k << 9)
}

/// Length (from bit 8 on) and symbol of the code that a window begins with, zero for none.
#[cube]
fn find(codes: &[u16], code: u32, window: u32) -> u32 {
    let mut found = u32::cast_from(read(codes, code + (window >> 23)));
    if found == 0 {
        let sixteen = window >> 16;
        let mut longer = 0u32;
        #[unroll]
        for i in 0..LONG_LENGTHS {
            // As many lengths are too short as have their end before the window.
            if u32::cast_from(read(codes, code + HEADS + i)) <= sixteen {
                longer += 1;
            }
        }
        if longer < LONG_LENGTHS {
            let offset = u32::cast_from(read(codes, code + HEADS + LONG_LENGTHS + longer));
            let index = ((sixteen >> (6 - longer)) + offset) & 255;
            let symbol = u32::cast_from(read(codes, code + SYMBOLS + index));
            found = ((longer + 10) << 8) | symbol;
        }
    }
    found
}

/// The value that the highest `size` bits, 0 to 15, mean: with a leading zero they are negative.
#[cube]
fn extended(bits: u32, size: u32) -> u32 {
    let mut value = (bits >> 1) >> (31 - size);
    if size > 0 && bits >> 31 == 0 {
        value -= (1 << size) - 1;
    }
    value
}

/// Reads a symbol and its value. What cannot be read moves on by one bit, or to the end; a run out of the block ends the
/// block. The reader must stand before the end of its segment.
#[cube]
fn step(reader: &mut Reader, data: &[u32], words: &[u32], codes: &[u16]) {
    let shift = reader.position % 32;
    let window = (reader.high << shift) | ((reader.low >> 1) >> (31 - shift));
    let mut code = reader.ac;
    if reader.k == 0 {
        code = reader.dc;
    }
    let found = find(codes, code, window);
    let length = found >> 8;
    let run = (found >> 4) & 15;
    let size = found & 15;
    let mut taken = length + size;
    reader.at = 64u32;
    reader.ended = false;
    reader.fault = 0u32;
    if found == 0 {
        reader.fault = NO_CODE.runtime();
        taken = 1u32;
    } else if taken > reader.bits - reader.position {
        reader.fault = TOO_SHORT.runtime();
        taken = reader.bits - reader.position;
    } else {
        // The coefficient behind this symbol's; 64 or more ends the block.
        let mut next = 64u32;
        if reader.k == 0 {
            reader.at = 0u32;
            next = 1u32;
        } else if size > 0 || run == 15 {
            next = reader.k + run + 1;
            if next > 64 {
                reader.fault = OVERRUN.runtime();
            } else if size > 0 {
                reader.at = next - 1;
            }
        }
        reader.value = extended(window << length, size);
        reader.k = next;
        if next >= 64 {
            reader.ended = true;
            reader.k = 0u32;
            reader.place += 1;
            if reader.place == word(words, reader.image) {
                reader.place = 0u32;
            }
            let record = reader.image + PLACES + PLACE_SIZE * reader.place;
            reader.component = word(words, record) & 255;
            reader.dc = word(words, record + 1);
            reader.ac = word(words, record + 2);
        }
    }
    if shift + taken >= 32 {
        reader.high = reader.low;
        reader.low = big_endian(data, reader.begin, reader.words, (reader.position / 32) + 2);
    }
    reader.position += taken;
}

/// Finds the subsequences that a round begins at: those that were not decoded from the state that their predecessor
/// comes to, and in round 0 all, from their first bit as if a block of an MCU's first place began there, which is true
/// of a segment's first. `starts` are their states, marked.
///
/// A segment's last subsequence is left out: nothing depends on where it ends.
#[cube(launch)]
pub(crate) fn mark(
    words: &[u32],
    exits: &[u32],
    entries: &[u32],
    starts: &mut [u32],
    segments: u32,
    owners: u32,
    count: u32,
    round: u32,
) {
    let index = cube_number() * UNITS + UNIT_POS;
    if index < count {
        let segment = segments + word(words, owners + index);
        let number = index - word(words, segment + 2);
        let mut start = 0u32;
        if number + 1 < word(words, segment + 3) {
            if round == 0 {
                start = MARK.runtime();
            } else if number > 0 {
                let state = read(exits, index - 1);
                if read(entries, index) & STATE != state {
                    start = MARK.runtime() | state;
                }
            }
        }
        write(starts, index, start);
    }
}

/// Whether a walk begins at a subsequence, which must not be its segment's first but in round 0. In rounds 0 and 1 one
/// begins at every mark. Where marks are left then, nothing synchronised for a while, and decodes from guesses are in
/// vain: a walk begins at the first of marks that follow one another.
#[cube]
fn begins(starts: &[u32], index: u32, round: u32) -> bool {
    read(starts, index) >= MARK && (round < 2 || read(starts, index - 1) < MARK)
}

/// Decodes from marked subsequences on, until a state is come to that was come to before and what follows was decoded
/// from it. The beginning of the next walk ends a walk too, and so do the segment's last subsequence and [`WALK`]
/// subsequences. Notes in `exits` the states that subsequences come to, in `entries` those they began in, with the round
/// from bit 16 on, and in `sums` what they add up to.
///
/// No two walks touch the same subsequence, since each ends before the next begins.
#[cube(launch)]
pub(crate) fn walk(
    data: &[u32],
    words: &[u32],
    codes: &[u16],
    starts: &[u32],
    exits: &mut [u32],
    entries: &mut [u32],
    sums: &mut [u32],
    segments: u32,
    owners: u32,
    count: u32,
    length: u32,
    round: u32,
) {
    let begin = cube_number() * UNITS + UNIT_POS;
    if begin < count && begins(starts, begin, round) {
        let segment = segments + word(words, owners + begin);
        let first = word(words, segment + 2);
        let last = first + word(words, segment + 3) - 1;
        let end = min(begin + WALK, last);
        let mut index = begin;
        let mut state = read(starts, begin) & STATE;
        while index < end {
            let stop = (index - first + 1) * length;
            let mut reader = resume(data, words, segment, stop - length, state);
            let mut blocks = 0u32;
            let mut differences = Array::<u32>::new(4usize);
            #[unroll]
            for i in 0..4usize {
                differences[i] = 0u32;
            }
            while reader.position < stop {
                step(&mut reader, data, words, codes);
                if reader.at == 0 {
                    // The component is that of the block, which does not end with its first coefficient.
                    #[unroll]
                    for i in 0..4usize {
                        if reader.component == i as u32 {
                            differences[i] += reader.value;
                        }
                    }
                }
                if reader.ended {
                    blocks += 1;
                }
            }
            let sum = SUMS * index;
            write(sums, sum, blocks);
            #[unroll]
            for i in 0..4u32 {
                write(sums, sum + 1 + i, differences[i as usize]);
            }
            write(entries, index, state | (round << 16));
            state = state_of(&reader, stop);
            let known = round > 0 && held(exits, index) == state;
            write(exits, index, state);
            index += 1;
            if begins(starts, index, round) || (known && read(starts, index) < MARK) {
                index = end;
            }
        }
    }
}

/// Turns what each subsequence adds up to into what those before it in its segment and its stretch do. A unit does a
/// stretch, and notes in `totals` what all of it after the last segment's beginning adds up to.
///
/// Without memory that units share: it crashes lavapipe.
#[cube(launch)]
pub(crate) fn accumulate(
    words: &[u32],
    sums: &mut [u32],
    totals: &mut [u32],
    segments: u32,
    owners: u32,
    count: u32,
) {
    let stretch = cube_number() * UNITS + UNIT_POS;
    let from = stretch * STRETCH;
    if from < count {
        let mut running = Array::<u32>::new(SUMS as usize);
        #[unroll]
        for i in 0..SUMS as usize {
            running[i] = 0u32;
        }
        for index in from..min(from + STRETCH, count) {
            let segment = segments + word(words, owners + index);
            let begins = index == word(words, segment + 2);
            #[unroll]
            for i in 0..SUMS {
                if begins {
                    running[i as usize] = 0u32;
                }
                let own = held(sums, SUMS * index + i);
                write(sums, SUMS * index + i, running[i as usize]);
                running[i as usize] += own;
            }
        }
        #[unroll]
        for i in 0..SUMS {
            write(totals, SUMS * stretch + i, running[i as usize]);
        }
    }
}

/// Notes for each stretch what those before it add up to, from the beginning of the segment of its first subsequence on.
#[cube(launch)]
pub(crate) fn accumulate_stretches(
    words: &[u32],
    totals: &[u32],
    bases: &mut [u32],
    segments: u32,
    owners: u32,
    count: u32,
) {
    let stretch = cube_number() * UNITS + UNIT_POS;
    let from = stretch * STRETCH;
    if from < count {
        let first = word(words, segments + word(words, owners + from) + 2);
        let mut running = Array::<u32>::new(SUMS as usize);
        #[unroll]
        for i in 0..SUMS as usize {
            running[i] = 0u32;
        }
        for before in first / STRETCH..stretch {
            #[unroll]
            for i in 0..SUMS {
                running[i as usize] += read(totals, SUMS * before + i);
            }
        }
        #[unroll]
        for i in 0..SUMS {
            write(bases, SUMS * stretch + i, running[i as usize]);
        }
    }
}

/// What the subsequences before one in its segment add up to.
#[cube]
fn sum_before(sums: &[u32], bases: &[u32], index: u32, first: u32, #[comptime] which: u32) -> u32 {
    let stretch = index / STRETCH;
    let mut sum = read(sums, SUMS * index + which);
    if first < stretch * STRETCH {
        sum += read(bases, SUMS * stretch + which);
    }
    sum
}

/// Sets words to zero.
#[cube(launch)]
pub(crate) fn clear(words: &mut [u32], count: u32) {
    let index = cube_number() * UNITS + UNIT_POS;
    if index < count {
        write(words, index, 0u32);
    }
}

/// Where the coefficients of a block begin; [`NOWHERE`] of one that is not needed.
#[cube]
fn block_begin(words: &[u32], image: u32, place: u32, column: u32, row: u32) -> u32 {
    let packed = word(words, image + PLACES + PLACE_SIZE * place);
    let component = image + COMPONENTS + COMPONENT_SIZE * (packed & 255);
    let wide = word(words, component + 3);
    // What lies left of the window or above it wraps to numbers that are too great.
    let across = column * word(words, component + 5) + ((packed >> 8) & 255) - word(words, component + 1);
    let down = row * word(words, component + 6) + ((packed >> 16) & 255) - word(words, component + 2);
    let mut begin = NOWHERE.runtime();
    if across < wide && down < word(words, component + 4) {
        begin = 64 * (word(words, component) + down * wide + across);
    }
    begin
}

/// Of a block that is not needed.
const NOWHERE: u32 = 0xFFFF_FFFF;

/// Decodes every subsequence once more, from the state its predecessor came to, and writes the coefficients that are
/// needed and not zero, in rows. `coefficients` must be zero. What is wrong with an image is noted in `faults`.
#[cube(launch)]
pub(crate) fn decode(
    data: &[u32],
    words: &[u32],
    codes: &[u16],
    zigzag: &[u32],
    exits: &[u32],
    entries: &[u32],
    sums: &[u32],
    bases: &[u32],
    coefficients: &mut [i16],
    faults: &[Atomic<u32>],
    segments: u32,
    owners: u32,
    count: u32,
    length: u32,
) {
    let index = cube_number() * UNITS + UNIT_POS;
    if index < count {
        let segment = segments + word(words, owners + index);
        let number = index - word(words, segment + 2);
        let last = number + 1 == word(words, segment + 3);
        let image = word(words, segment + 6);
        let mut entry = 0u32;
        let mut block = 0u32;
        let mut predictions = Array::<u32>::new(4usize);
        #[unroll]
        for i in 0..4usize {
            predictions[i] = 0u32;
        }
        let mut fault = 0u32;
        if number > 0 {
            entry = read(exits, index - 1);
            block = sum_before(sums, bases, index, index - number, 0u32);
            #[unroll]
            for i in 0..4u32 {
                predictions[i as usize] = sum_before(sums, bases, index, index - number, i + 1);
            }
            if !last && read(entries, index) & STATE != entry {
                fault = UNSYNCHRONISED.runtime();
            }
        }
        let blocks = word(words, segment + 5);
        let start = number * length;
        let end = min(start + length, word(words, segment + 1));
        let wide = word(words, image + 1);
        let mcu = word(words, segment + 4) + block / word(words, image);
        let mut row = mcu / wide;
        let mut column = mcu % wide;
        let mut reader = resume(data, words, segment, start, entry);
        let mut begin = block_begin(words, image, reader.place, column, row);
        while fault == 0 && block < blocks && reader.position < end {
            step(&mut reader, data, words, codes);
            fault = reader.fault;
            if reader.at == 0 {
                #[unroll]
                for i in 0..4usize {
                    if reader.component == i as u32 {
                        predictions[i] += reader.value;
                        reader.value = predictions[i];
                    }
                }
            }
            if reader.at < 64 && begin != NOWHERE {
                let value = i16::cast_from(i32::reinterpret(reader.value));
                write(coefficients, begin + read(zigzag, reader.at), value);
            }
            if reader.ended {
                block += 1;
                if reader.place == 0 {
                    column += 1;
                    if column == wide {
                        column = 0u32;
                        row += 1;
                    }
                }
                begin = block_begin(words, image, reader.place, column, row);
            }
        }
        if fault == 0 && last && block < blocks {
            fault = TOO_SHORT.runtime();
        }
        if fault != 0 {
            faults[min(word(words, segment + 7) as usize, faults.len() - 1)].fetch_or(fault);
        }
    }
}
