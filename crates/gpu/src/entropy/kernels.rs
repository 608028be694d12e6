//! The kernels, and the layout of their input.
//!
//! # Why no access is out of bounds, and every loop ends
//!
//! The host computes the kernels' parameters from the header and the number of bytes. Coded data, which are
//! among the same `words`, are read by [`big_endian`] alone, and determine only these:
//!
//! - *How far a reader moves.* A step moves it by at least one bit and not beyond its segment, which has
//!   fewer than 2^31 bits. So a loop up to a place in the segment ends after at most as many steps as there
//!   are bits. A walk decodes at most [`WALK`] subsequences.
//! - *The place of a reader within an MCU*: below the number of places by construction; if it comes from a
//!   state, [`resume`] limits it.
//! - *The index of a coefficient*: a step gives one below 64 or none.
//! - *The index of a block.* A wrong count gives a wrong MCU, but a block is written only if its column and
//!   row are within its component's window, which the host sized the buffer for.
//! - *The entry of a code table*: nine bits of data, or eight bits after a search among seven lengths.
//!
//! Words after a segment's last one read as zero. In addition, every read and write is checked against its
//! buffer, as in all kernels here.

use crate::kernels::{cube_number, held, read, word, write};
use cubecl::prelude::*;

/// Units of a cube.
pub(crate) const UNITS: u32 = 64;

// The faults of an image, one bit each.
/// A subsequence was not decoded from the state in which its predecessor ended: too few rounds.
pub(crate) const UNSYNCHRONISED: u32 = 1;
/// Bits that are not a code.
pub(crate) const NO_CODE: u32 = 2;
/// A run of zeros beyond its block.
pub(crate) const OVERRUN: u32 = 4;
/// The data of a segment end before its last block.
pub(crate) const TOO_SHORT: u32 = 8;

// A code as 16-bit numbers, one per word: length and symbol for every nine bits that begin with a whole code,
// otherwise zero; for each length from 10 on the first 16 bits after all codes up to that length; the offset
// from a code of that length to its symbol's index; the symbols.
pub(crate) const HEADS: u32 = 512;
pub(crate) const LONG_LENGTHS: u32 = 7;
pub(crate) const SYMBOLS: u32 = HEADS + 2 * LONG_LENGTHS;
pub(crate) const CODE_SIZE: u32 = SYMBOLS + 256;

// The words of a batch contain the data, codes and images of scans, all segments, and for each subsequence
// the place of its segment's words.

// An image in words: blocks of an MCU; MCUs a row; of four components: first block among all of the batch, first needed
// column and row, blocks a needed row, needed rows, blocks of an MCU across and down; of ten places of an MCU:
// component, column and row in a byte each, and where the codes are.
pub(crate) const COMPONENTS: u32 = 2;
pub(crate) const COMPONENT_SIZE: u32 = 7;
pub(crate) const PLACES: u32 = COMPONENTS + 4 * COMPONENT_SIZE;
pub(crate) const PLACE_SIZE: u32 = 3;
pub(crate) const IMAGE_SIZE: u32 = PLACES + 10 * PLACE_SIZE;

// A segment in words: first word of data, bits, first subsequence, subsequences, first MCU, blocks to read,
// the place of its image's words, its image's number.

/// The bits of a state, as [`state_of`] packs it.
const STATE: u32 = 0xFFFF;

/// Higher than any round.
const ALL_ROUNDS: u32 = 0xFFFF;

/// The most subsequences of a walk.
const WALK: u32 = 64;

/// The quantities that are summed over subsequences: blocks, and the differences of four components.
pub(crate) const SUMS: u32 = 5;

/// A place after all sums.
const NO_SUM: u32 = 0x8000_0000;

/// The number of subsequences that one unit sums.
pub(crate) const STRETCH: u32 = 64;

/// A reader of one segment.
#[derive(CubeType)]
struct Reader {
    /// The segment: its first word of data, its words and bits.
    begin: u32,
    count: u32,
    bits: u32,
    /// The place of its image's words.
    image: u32,
    /// The next bit.
    position: u32,
    /// The place within the MCU, and the index (in coding order) of the coefficient, of the next symbol.
    place: u32,
    k: u32,
    /// The component of that place, and the place of its codes.
    component: u32,
    dc: u32,
    ac: u32,
    /// The word with the next bit, and the word after it.
    high: u32,
    low: u32,
    /// The result of the last step: a value, and the index of its coefficient, 64 for none.
    value: u32,
    at: u32,
    /// Whether the last step ended a block.
    ended: bool,
    /// The fault of the last step, or zero.
    fault: u32,
}

/// Word `index` of the `count` of a segment that begin at word `begin`, its first bit in the highest place.
#[cube]
fn big_endian(words: &[u32], begin: u32, count: u32, index: u32) -> u32 {
    let mut value = 0u32;
    if index < count {
        value = word(words, begin + index);
    }
    (value << 24) | ((value & 0xFF00) << 8) | ((value >> 8) & 0xFF00) | (value >> 24)
}

/// A reader that starts in a `state`, as [`state_of`] packs it, at the subsequence that begins at bit
/// `start`.
#[cube]
fn resume(words: &[u32], segment: u32, start: u32, state: u32) -> Reader {
    let begin = word(words, segment);
    let bits = word(words, segment + 1);
    let count = (bits + 31) >> 5;
    let image = word(words, segment + 6);
    let position = start + (state & 31);
    let mut reader = Reader {
        begin,
        count,
        bits,
        image,
        position,
        place: min((state >> 5) & 15, word(words, image) - 1),
        k: (state >> 9) & 63,
        component: 0u32,
        dc: 0u32,
        ac: 0u32,
        high: big_endian(words, begin, count, position / 32),
        low: big_endian(words, begin, count, position / 32 + 1),
        value: 0u32,
        at: 64u32,
        ended: false,
        fault: 0u32,
    };
    enter(&mut reader, words);
    reader
}

/// Loads the parameters of the reader's place.
#[cube]
fn enter(reader: &mut Reader, words: &[u32]) {
    let record = reader.image + PLACES + PLACE_SIZE * reader.place;
    reader.component = word(words, record) & 255;
    reader.dc = word(words, record + 1);
    reader.ac = word(words, record + 2);
}

/// The state of a reader after a subsequence that ends at bit `end`: the number of bits read beyond it, at
/// most 30, place and coefficient.
#[cube]
fn state_of(reader: &Reader, end: u32) -> u32 {
    (reader.position - end) | (reader.place << 5) | (reader.k << 9)
}

/// Length (from bit 8 on) and symbol of the code at the start of a window; zero if there is none.
#[cube]
fn find(words: &[u32], code: u32, window: u32) -> u32 {
    let mut found = word(words, code + (window >> 23));
    if found == 0 {
        let sixteen = window >> 16;
        let mut longer = 0u32;
        #[unroll]
        for i in 0..LONG_LENGTHS {
            // The number of lengths that are too short: those whose end is before the window.
            if word(words, code + HEADS + i) <= sixteen {
                longer += 1;
            }
        }
        if longer < LONG_LENGTHS {
            let offset = word(words, code + HEADS + LONG_LENGTHS + longer);
            let index = ((sixteen >> (6 - longer)) + offset) & 255;
            found = ((longer + 10) << 8) | word(words, code + SYMBOLS + index);
        }
    }
    found
}

/// The value of the highest `size` bits, 0 to 15: negative if the first one is zero.
#[cube]
fn extended(bits: u32, size: u32) -> u32 {
    let mut value = (bits >> 1) >> (31 - size);
    if size > 0 && bits >> 31 == 0 {
        value -= (1 << size) - 1;
    }
    value
}

/// Reads a symbol and its value. At an invalid code it moves by one bit, or to the end; a run beyond the
/// block ends the block. The reader must be before the end of its segment.
#[cube]
fn step(reader: &mut Reader, words: &[u32]) {
    let shift = reader.position % 32;
    let window = (reader.high << shift) | ((reader.low >> 1) >> (31 - shift));
    let mut code = reader.ac;
    if reader.k == 0 {
        code = reader.dc;
    }
    let found = find(words, code, window);
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
        // The coefficient after this symbol's; 64 or more ends the block.
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
            enter(reader, words);
        }
    }
    if shift + taken >= 32 {
        reader.high = reader.low;
        reader.low = big_endian(words, reader.begin, reader.count, (reader.position / 32) + 2);
    }
    reader.position += taken;
}

/// Decodes a subsequence, which ends at bit `stop`, from a state. Returns the state at its end, and adds its
/// sums at `sum`.
#[cube]
fn follow(
    words: &[u32],
    sums: &mut [u32],
    sum: u32,
    segment: u32,
    stop: u32,
    length: u32,
    state: u32,
) -> u32 {
    let mut reader = resume(words, segment, stop - length, state);
    let mut blocks = 0u32;
    let mut differences = Array::<u32>::new(4usize);
    #[unroll]
    for i in 0..4usize {
        differences[i] = 0u32;
    }
    while reader.position < stop {
        step(&mut reader, words);
        if reader.at == 0 {
            // The component is that of the current block, which does not end with its first coefficient.
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
    write(sums, sum, blocks);
    #[unroll]
    for i in 0..4u32 {
        write(sums, sum + 1 + i, differences[i as usize]);
    }
    state_of(&reader, stop)
}

// Every subsequence except a segment's last has two decodes, the last one and the one before: `entries` holds
// their initial states, with the round from bit 16 on, and `exits` their final ones. A round overwrites the
// older decode and reads only decodes of earlier rounds, so the order of its units does not matter.

/// Which of a subsequence's two decodes is the latest before a round.
#[cube]
fn last_before(entries: &mut [u32], index: u32, round: u32) -> u32 {
    let first = held(entries, 2 * index) >> 16;
    let second = held(entries, 2 * index + 1) >> 16;
    let mut last = 2 * index;
    if first >= round || (second < round && second > first) {
        last += 1;
    }
    last
}

/// Stores a subsequence's first decode.
#[cube]
fn note_first(entries: &mut [u32], exits: &mut [u32], index: u32, entry: u32, exit: u32) {
    write(entries, 2 * index, entry | 0x1_0000);
    write(exits, 2 * index, exit);
    // No decode before it.
    write(entries, 2 * index + 1, 0u32);
}

/// Rounds 0 and 1. Decodes each subsequence from its first bit, as if a block at the MCU's first place began
/// there (which is true for a segment's first subsequence), and then the next one from the state that this
/// ends in.
///
/// Skips a segment's last subsequence: nothing depends on its final state.
#[cube(launch)]
pub(crate) fn guess(
    words: &[u32],
    entries: &mut [u32],
    exits: &mut [u32],
    sums: &mut [u32],
    segments: u32,
    owners: u32,
    count: u32,
    length: u32,
) {
    let index = cube_number() * UNITS + UNIT_POS;
    if index < count {
        let segment = segments + word(words, owners + index);
        let number = index - word(words, segment + 2);
        let subsequences = word(words, segment + 3);
        if number + 1 < subsequences {
            let stop = (number + 1) * length;
            let mut sum = NO_SUM.runtime();
            if number == 0 {
                sum = SUMS * index;
            }
            let state = follow(words, sums, sum, segment, stop, length, 0u32);
            if number == 0 {
                note_first(entries, exits, index, 0u32, state);
            }
            if number + 2 < subsequences {
                let next = index + 1;
                let exit = follow(words, sums, SUMS * next, segment, stop + length, length, state);
                note_first(entries, exits, next, state, exit);
            }
        }
    }
}

/// Whether the latest decode of a subsequence before a round started from another state than its
/// predecessor's final one.
#[cube]
fn is_wrong(
    words: &[u32],
    entries: &mut [u32],
    exits: &mut [u32],
    segment: u32,
    index: u32,
    round: u32,
) -> bool {
    let number = index - word(words, segment + 2);
    let mut wrong = false;
    if number > 0 && number + 1 < word(words, segment + 3) {
        let before = last_before(entries, index - 1, round);
        let own = last_before(entries, index, round);
        wrong = held(entries, own) & STATE != held(exits, before);
    }
    wrong
}

/// A further round. If a subsequence is wrong and the one before it is right, decodes it from that one's
/// final state, and continues through the next ones until it reaches a state that was reached before and from
/// which the next subsequence was decoded. Where several in a row are wrong, nothing synchronised for a
/// while, and decoding from guesses would be useless. A walk also ends at the start of the next walk, at the
/// segment's last subsequence, and after [`WALK`] subsequences.
///
/// Two walks never touch the same subsequence, since each ends before the next begins.
#[cube(launch)]
pub(crate) fn walk(
    words: &[u32],
    entries: &mut [u32],
    exits: &mut [u32],
    sums: &mut [u32],
    segments: u32,
    owners: u32,
    count: u32,
    length: u32,
    round: u32,
) {
    let begin = cube_number() * UNITS + UNIT_POS;
    if begin < count {
        let segment = segments + word(words, owners + begin);
        let first = word(words, segment + 2);
        let last = first + word(words, segment + 3) - 1;
        // A segment's first subsequence is never wrong.
        if is_wrong(words, entries, exits, segment, begin, round)
            && !is_wrong(words, entries, exits, segment, begin - 1, round)
        {
            let end = min(begin + WALK, last);
            let mut index = begin;
            let before = last_before(entries, begin - 1, round);
            let mut state = held(exits, before);
            while index < end {
                let stop = (index - first + 1) * length;
                let exit = follow(words, sums, SUMS * index, segment, stop, length, state);
                let newer = last_before(entries, index, round);
                let known = held(exits, newer) == exit;
                let older = newer ^ 1;
                write(entries, older, state | (round << 16));
                write(exits, older, exit);
                state = exit;
                let was_wrong = is_wrong(words, entries, exits, segment, index, round);
                index += 1;
                let wrong = is_wrong(words, entries, exits, segment, index, round);
                if (wrong && !was_wrong) || (known && !wrong) {
                    index = end;
                }
            }
        }
    }
}

/// Replaces the sums of each subsequence by the sums over those before it in its segment and stretch. A unit
/// processes a stretch, and stores in `totals` the sums over its part after the last start of a segment.
///
/// Without memory shared by units: it crashes lavapipe.
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

/// Computes for each stretch the sums before it, from the start of the segment of its first subsequence on.
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

/// The sums over the subsequences before this one in its segment.
#[cube]
fn sum_before(sums: &[u32], bases: &[u32], index: u32, first: u32, #[comptime] which: u32) -> u32 {
    let stretch = index / STRETCH;
    let mut sum = read(sums, SUMS * index + which);
    if first < stretch * STRETCH {
        sum += read(bases, SUMS * stretch + which);
    }
    sum
}

/// The place of a block's coefficients; [`NOWHERE`] if the block is not needed.
#[cube]
fn block_begin(words: &[u32], image: u32, place: u32, column: u32, row: u32) -> u32 {
    let packed = word(words, image + PLACES + PLACE_SIZE * place);
    let component = image + COMPONENTS + COMPONENT_SIZE * (packed & 255);
    let wide = word(words, component + 3);
    // Left of the window or above it, the difference wraps to a number that is too large.
    let across = column * word(words, component + 5) + ((packed >> 8) & 255) - word(words, component + 1);
    let down = row * word(words, component + 6) + ((packed >> 16) & 255) - word(words, component + 2);
    let mut begin = NOWHERE.runtime();
    if across < wide && down < word(words, component + 4) {
        begin = 64 * (word(words, component) + down * wide + across);
    }
    begin
}

/// The place of a block that is not needed.
const NOWHERE: u32 = 0xFFFF_FFFF;

/// Decodes every subsequence once more, from its predecessor's final state, and writes the needed nonzero
/// coefficients, in rows. `coefficients` must be zero. Faults of an image are stored in `faults`.
#[cube(launch)]
pub(crate) fn decode(
    words: &[u32],
    zigzag: &[u32],
    entries: &mut [u32],
    exits: &[u32],
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
            let before = last_before(entries, index - 1, ALL_ROUNDS);
            entry = read(exits, before);
            block = sum_before(sums, bases, index, index - number, 0u32);
            #[unroll]
            for i in 0..4u32 {
                predictions[i as usize] = sum_before(sums, bases, index, index - number, i + 1);
            }
            let own = last_before(entries, index, ALL_ROUNDS);
            if !last && held(entries, own) & STATE != entry {
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
        let mut reader = resume(words, segment, start, entry);
        let mut begin = block_begin(words, image, reader.place, column, row);
        while fault == 0 && block < blocks && reader.position < end {
            step(&mut reader, words);
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
