//! The kernels, and the layout of their input.
//!
//! # Why no access is out of bounds, and every loop ends
//!
//! Every loop is over blocks, coefficients, types or lanes, whose numbers the host computes from the header: a group has
//! at most 65,535 blocks of a class and each at most 64 tokens. The last loop of [`tokens`] runs over the steps at most
//! twice. Bytes of a group determine only values: a symbol is below 16, a state below 2^16. A wrong one gives other
//! symbols, so other slots, raw bits and places of bytes. A slot comes from counting types, so it is below the number
//! of blocks whatever they are. A block is written only to its place in the needed window. Places of bytes and bits grow
//! with what symbols take, and are read wherever they end up: every read is moved to the end of its buffer, and every
//! write outside of its buffer is skipped, as in all kernels here. That too many bytes were taken is found at the end.

// A kernel has no `div_ceil`.
#![allow(clippy::manual_div_ceil)]

use crate::kernels::{cube_number, held, read, word, wrapped, write};
use cubecl::prelude::*;
use stokehold_jpeg::{PACKED_LANES, PACKED_VECTORS, TOKEN_BITS, TYPE_CAPS};

/// Lanes of a step, and units of a cube.
pub(crate) const LANES: u32 = PACKED_LANES as u32;

/// Vectors of states, at most.
const VECTORS: u32 = PACKED_VECTORS as u32;

/// Types, tokens, and bins of a distribution.
pub(crate) const SYMBOLS: u32 = TOKEN_BITS.len() as u32;

// The faults of an image, one bit each.
/// The coder does not end where its bytes do, or in other states than it must.
const CODER: u32 = 1;
/// Tokens of more raw bits than there are.
const RAW: u32 = 2;
/// Another number of escapes than of extra bytes.
const EXTRAS: u32 = 4;
/// A first coefficient that 8-bit samples cannot give.
const FIRST: u32 = 8;

// Tables in words: for each class, coefficient and type the sixteen bins of a distribution of tokens; after them for each class
// the eight distributions of types. A bin: in four bits each how many slots are those of its own symbol, and the symbol of the
// others; in a byte each the offset of those others, the share of its own symbol, and theirs. A bin that is wholly its own
// symbol's has none of its own, and itself as the other one.
pub(crate) const TOKEN_TABLES: u32 = 2 * 64 * SYMBOLS;
pub(crate) const TYPE_TABLES: u32 = 8;

// A group in words: the place of its states among all bytes; the coder's bytes, raw bytes and extra bytes, which follow in
// this order; vectors of states; the last coefficient to be read; the place of its tables; its image's number; its place in the
// scratch memory; for two classes the place of the distribution of types; for two classes the number of blocks; four parts: first
// those of class 0, then those of class 1.
pub(crate) const STATES: u32 = 0;
pub(crate) const CODED: u32 = 1;
pub(crate) const RAW_BYTES: u32 = 2;
pub(crate) const EXTRA_BYTES: u32 = 3;
pub(crate) const OF_STATES: u32 = 4;
pub(crate) const LAST: u32 = 5;
pub(crate) const TABLES: u32 = 6;
pub(crate) const IMAGE: u32 = 7;
pub(crate) const SCRATCH: u32 = 8;
pub(crate) const OF_TYPES: u32 = 9;
pub(crate) const BLOCKS: u32 = 11;
pub(crate) const PARTS: u32 = 13;

// A part in words: the rows of blocks of one component.
/// Its first block, counted over the parts.
pub(crate) const PART_FIRST: u32 = 0;
/// Blocks a row.
pub(crate) const PART_WIDE: u32 = 1;
/// Rows.
pub(crate) const PART_ROWS: u32 = 2;
/// The component's first needed block among all of the batch.
pub(crate) const PART_OUT: u32 = 3;
/// The first needed column.
pub(crate) const PART_LEFT: u32 = 4;
/// Needed columns.
pub(crate) const PART_COLUMNS: u32 = 5;
/// The first needed row, counted from the first one of the part.
pub(crate) const PART_TOP: u32 = 6;
/// Needed rows.
pub(crate) const PART_HIGH: u32 = 7;
/// The largest first coefficient.
pub(crate) const PART_MOST: u32 = 8;
pub(crate) const PART_SIZE: u32 = 9;
pub(crate) const GROUP_SIZE: u32 = PARTS + 4 * PART_SIZE;

// A group's scratch memory in words: for two classes the end of each type among the slots; the coder's next byte and step; its states;
// from `BY_BLOCK` on the table types of all slots, sixteen a word, class after class; each block's slot; each slot's
// place among the coefficients; each slot's difference of the first coefficient. Slots of class 1 follow those of class 0.
const ENDS: u32 = 0;
const CODER_AT: u32 = 2 * SYMBOLS;
const CODER_STATES: u32 = CODER_AT + 2;
const BY_BLOCK: u32 = CODER_STATES + VECTORS * LANES;

/// The words of scratch memory of a group with this many blocks of each class.
pub(crate) fn scratch_size([first, second]: [u32; 2]) -> u32 {
    BY_BLOCK + first.div_ceil(16) + second.div_ceil(16) + 3 * (first + second)
}

/// The place of a block that is not needed.
const NOWHERE: u32 = 0xFFFF_FFFF;

/// The most raw bits of a step.
const MOST_BITS: u32 = 8 * LANES;

// How `tokens` reads.
/// Values are made of the group's own raw bytes.
const OWN: u32 = 0;
/// No values are made: to know the last states.
const AHEAD: u32 = 1;
/// Values are made of all raw bytes.
const ALL: u32 = 2;

/// The number of bits of all tokens, four bits each.
const fn token_bits() -> [u32; 2] {
    let mut words = [0; 2];
    let mut token = 0;
    while token < SYMBOLS as usize {
        words[token / 8] |= (TOKEN_BITS[token] as u32) << (4 * (token % 8));
        token += 1;
    }
    words
}

/// A sum over the lanes before this one, and one over all lanes. A unit that does the work of all lanes in turn adds up both
/// itself.
#[derive(CubeType)]
struct Sum {
    before: u32,
    all: u32,
}

/// The lanes of a unit's plane that say so, a bit each.
#[cube]
fn ballot(says: bool) -> u32 {
    plane_ballot(says).extract(0usize)
}

/// Sums numbers of this many bits over lanes.
#[cube]
fn summed(value: u32, lane: u32, #[comptime] bits: u32, #[comptime] warps: bool) -> Sum {
    let mut before = 0u32;
    let mut all = value;
    if comptime!(warps) {
        all = 0u32;
        let below = (1u32 << lane) - 1;
        #[unroll]
        for bit in 0..bits {
            let lanes = ballot((value >> bit) & 1 == 1);
            before += (lanes & below).count_ones() << bit;
            all += lanes.count_ones() << bit;
        }
    }
    Sum { before, all }
}

/// How many lanes a unit does one after the other.
#[cube]
fn lanes(#[comptime] warps: bool) -> comptime_type!(u32) {
    match warps {
        true => 1,
        false => LANES,
    }
}

/// The lane of a unit's turn.
#[cube]
fn lane_of(turn: u32, #[comptime] warps: bool) -> u32 {
    let mut lane = turn;
    if comptime!(warps) {
        lane = UNIT_POS;
    }
    lane
}

/// The group that this unit works on.
#[cube]
fn group_number(#[comptime] warps: bool) -> u32 {
    let mut number = cube_number();
    if comptime!(!warps) {
        number = number * LANES + UNIT_POS;
    }
    number
}

// Numbers of four vectors of lanes: a unit that is one lane has four of them, else all 128.

#[cube]
fn vectors(#[comptime] warps: bool) -> Array<u32> {
    Array::<u32>::new(comptime!((VECTORS * if warps { 1 } else { LANES }) as usize))
}

/// The number of this lane. Without a computed index where lanes are units: those would not stay in registers.
#[cube]
fn lane_number(numbers: &Array<u32>, vector: u32, lane: u32, #[comptime] warps: bool) -> u32 {
    let mut number = 0u32;
    if comptime!(warps) {
        #[unroll]
        for v in 0..VECTORS {
            if v == vector {
                number = numbers[v as usize];
            }
        }
    } else {
        number = numbers[(LANES * vector + lane) as usize];
    }
    number
}

#[cube]
fn set_lane(numbers: &mut Array<u32>, vector: u32, lane: u32, number: u32, #[comptime] warps: bool) {
    if comptime!(warps) {
        #[unroll]
        for v in 0..VECTORS {
            if v == vector {
                numbers[v as usize] = number;
            }
        }
    } else {
        numbers[(LANES * vector + lane) as usize] = number;
    }
}

/// The number of any lane; all lanes ask at once.
#[cube]
fn other_lane(numbers: &Array<u32>, vector: u32, lane: u32, #[comptime] warps: bool) -> u32 {
    let mut number = 0u32;
    if comptime!(warps) {
        #[unroll]
        for v in 0..VECTORS {
            let own = plane_shuffle(numbers[v as usize], lane);
            if v == vector {
                number = own;
            }
        }
    } else {
        number = numbers[(LANES * vector + lane) as usize];
    }
    number
}

#[cube]
fn copy(from: &Array<u32>, to: &mut Array<u32>, #[comptime] warps: bool) {
    #[unroll(warps)]
    for i in 0..comptime!(VECTORS * if warps { 1 } else { LANES }) {
        to[i as usize] = from[i as usize];
    }
}

// Numbers of sixteen types: a unit that is one lane has that of type `lane`, else all 16.

#[cube]
fn of_types(#[comptime] warps: bool) -> Array<u32> {
    Array::<u32>::new(comptime!(if warps { 1usize } else { SYMBOLS as usize }))
}

/// The number of any type; all lanes ask at once.
#[cube]
fn of_type(numbers: &Array<u32>, kind: u32, #[comptime] warps: bool) -> u32 {
    if comptime!(warps) {
        plane_shuffle(numbers[0], kind)
    } else {
        numbers[(kind & 15) as usize]
    }
}

/// How many blocks of a type were counted before this lane's; counts it.
#[cube]
fn rank_of(counts: &mut Array<u32>, kind: u32, active: bool, lane: u32, #[comptime] warps: bool) -> u32 {
    let mut rank = of_type(&*counts, kind, warps);
    if comptime!(warps) {
        // Lanes with a block of this lane's type, and with one of the type that this lane counts.
        let mut own = ballot(active);
        let mut counted = own;
        #[unroll]
        for bit in 0..4u32 {
            let lanes = ballot((kind >> bit) & 1 == 1);
            // All bits where the type has a 0.
            own &= lanes ^ (((kind >> bit) & 1) - 1);
            counted &= lanes ^ (((lane >> bit) & 1) - 1);
        }
        rank += (own & ((1u32 << lane) - 1)).count_ones();
        counts[0] += counted.count_ones();
    } else if active {
        counts[(kind & 15) as usize] += 1;
    }
    rank
}

/// A byte among those of all words.
#[cube]
fn byte(words: &[u32], at: u32) -> u32 {
    (word(words, at / 4) >> (8 * (at % 4))) & 255
}

/// The coder of a group, but for its states.
#[derive(CubeType)]
struct Coder {
    /// The place of its bytes, and the next one of them.
    bytes: u32,
    at: u32,
    step: u32,
    vectors: u32,
}

/// Decodes a symbol by the distribution at `table`, in the lane's state of the vector whose turn it is; in a lane that is not active
/// nothing changes, and the symbol is 0.
#[cube]
fn symbol(
    words: &[u32],
    coder: &mut Coder,
    states: &mut Array<u32>,
    table: u32,
    active: bool,
    lane: u32,
    #[comptime] warps: bool,
) -> u32 {
    let vector = coder.step & (coder.vectors - 1) & (VECTORS - 1);
    let mut state = lane_number(&*states, vector, lane, warps);
    let bin = (state >> 4) & 15;
    let mut place = state & 15;
    let entry = word(words, table + bin);
    let mut found = bin;
    let mut share = (entry >> 16) & 255;
    if place >= entry & 15 {
        found = (entry >> 4) & 15;
        share = entry >> 24;
        place = (place + (entry >> 8)) & 255;
    }
    let next = share * (state >> 8) + place;
    let mut takes = 0u32;
    if active && next < 256 {
        takes = 1u32;
    }
    let taken = summed(takes, lane, 1u32, warps);
    if active {
        state = next;
        if takes == 1 {
            state = (next << 8) | byte(words, coder.bytes + coder.at + taken.before);
        }
        set_lane(states, vector, lane, state, warps);
    } else {
        found = 0u32;
    }
    coder.at += taken.all;
    found
}

/// The place of a block among the coefficients, [`NOWHERE`] if it is not needed. Blocks are counted over the parts of a group.
#[cube]
fn place_of(words: &[u32], group: u32, block: u32) -> u32 {
    let mut place = NOWHERE.runtime();
    #[unroll]
    for i in 0..4u32 {
        let part = group + PARTS + PART_SIZE * i;
        let within = block - word(words, part + PART_FIRST);
        let wide = word(words, part + PART_WIDE);
        if within < wide * word(words, part + PART_ROWS) {
            // Left of the window or above it, the difference wraps to a number that is too large.
            let across = within % wide - word(words, part + PART_LEFT);
            let down = within / wide - word(words, part + PART_TOP);
            let needed = word(words, part + PART_COLUMNS);
            if across < needed && down < word(words, part + PART_HIGH) {
                place = 64 * (word(words, part + PART_OUT) + down * needed + across);
            }
        }
    }
    place
}

/// The places of what a group has by block, in its scratch memory.
#[derive(CubeType)]
struct Places {
    /// Of table types, for both classes.
    kinds: u32,
    /// Of each block's slot.
    slots: u32,
    /// Of each slot's place among the coefficients.
    targets: u32,
    /// Of each slot's difference.
    differences: u32,
}

#[cube]
fn places(words: &[u32], group: u32, scratch: u32) -> Places {
    let first = word(words, group + BLOCKS);
    let second = word(words, group + BLOCKS + 1);
    let kinds = scratch + BY_BLOCK;
    let slots = kinds + (first + 15) / 16 + (second + 15) / 16;
    Places {
        kinds,
        slots,
        targets: slots + first + second,
        differences: slots + 2 * (first + second),
    }
}

/// Reads the types of all blocks, sorts the blocks by them, and stores how the coder stands.
#[cube(launch)]
pub(crate) fn types(words: &[u32], scratch: &mut [u32], groups: u32, count: u32, #[comptime] warps: bool) {
    let number = group_number(warps);
    if number < count {
        let group = groups + GROUP_SIZE * number;
        let own = word(words, group + SCRATCH);
        let places = places(words, group, own);
        let begin = word(words, group + STATES);
        let mut coder = Coder {
            bytes: begin + 2 * LANES * word(words, group + OF_STATES),
            at: 0u32,
            step: 0u32,
            vectors: word(words, group + OF_STATES),
        };
        let mut states = vectors(warps);
        for vector in 0..min(coder.vectors, VECTORS) {
            for turn in 0..lanes(warps) {
                let lane = lane_of(turn, warps);
                let low = begin + 2 * LANES * vector + lane;
                let state = byte(words, low) | (byte(words, low + LANES) << 8);
                set_lane(&mut states, vector, lane, state, warps);
            }
        }
        let mut before = 0u32;
        let mut kinds = places.kinds;
        for class in 0..2u32 {
            let blocks = word(words, group + BLOCKS + class);
            let table = word(words, group + OF_TYPES + class);
            let slots = places.slots + before;
            let mut counts = of_types(warps);
            #[unroll(warps)]
            for i in 0..comptime!(if warps { 1u32 } else { SYMBOLS }) {
                counts[i as usize] = 0u32;
            }
            let steps = (blocks + LANES - 1) / LANES;
            for step in 0..steps {
                for turn in 0..lanes(warps) {
                    let lane = lane_of(turn, warps);
                    let block = LANES * step + lane;
                    let active = block < blocks;
                    let kind = symbol(words, &mut coder, &mut states, table, active, lane, warps);
                    let rank = rank_of(&mut counts, kind, active, lane, warps);
                    if active {
                        write(scratch, slots + block, kind | (rank << 4));
                    }
                }
                coder.step += 1;
            }
            // From how many there are of each type to where it begins.
            let mut end = 0u32;
            for kind in 0..SYMBOLS {
                let counted = of_type(&counts, kind, warps);
                if comptime!(warps) {
                    if UNIT_POS == kind {
                        counts[0] = end;
                    }
                } else {
                    counts[kind as usize] = end;
                }
                end += counted;
                write(scratch, own + ENDS + SYMBOLS * class + kind, end);
            }
            for step in 0..steps {
                for turn in 0..lanes(warps) {
                    let block = LANES * step + lane_of(turn, warps);
                    let ranked = held(scratch, slots + block);
                    let kind = ranked & 15;
                    let slot = of_type(&counts, kind, warps) + (ranked >> 4);
                    if block < blocks {
                        write(scratch, slots + block, before + slot);
                        write(
                            scratch,
                            places.targets + before + slot,
                            place_of(words, group, before + block),
                        );
                        // The middle one of sixteen slots, or of those that are left, decides for all.
                        let begin = slot / 16 * 16;
                        if slot - begin == min(16u32, blocks - begin) / 2 {
                            write(scratch, kinds + slot / 16, kind);
                        }
                    }
                }
            }
            before += blocks;
            kinds += (blocks + 15) / 16;
        }
        write(scratch, own + CODER_AT, coder.at);
        write(scratch, own + CODER_AT + 1, coder.step);
        for vector in 0..min(coder.vectors, VECTORS) {
            for turn in 0..lanes(warps) {
                let lane = lane_of(turn, warps);
                let state = lane_number(&states, vector, lane, warps);
                write(scratch, own + CODER_STATES + LANES * vector + lane, state);
            }
        }
    }
}

/// How many slots of a class have a token for coefficient `k`, the first ones.
#[cube]
fn alive(scratch: &mut [u32], own: u32, class: u32, k: u32) -> u32 {
    let mut kinds = 0u32;
    #[unroll]
    for kind in 0..SYMBOLS {
        if comptime!(TYPE_CAPS[kind as usize] as u32) >= k {
            kinds += 1;
        }
    }
    held(scratch, own + ENDS + SYMBOLS * class + kinds - 1)
}

/// How many raw bits a token has.
#[cube]
fn bits_of(token: u32) -> u32 {
    let mut all = comptime!(token_bits()[0]).runtime();
    if token >= 8 {
        all = comptime!(token_bits()[1]).runtime();
    }
    (all >> (4 * (token & 7))) & 15
}

/// The least magnitude of a token other than the escape: two a power of two from 2 on.
#[cube]
fn least_of(token: u32) -> u32 {
    let mut least = token;
    if token >= 4 {
        least = (2 + (token & 1)) << (token / 2 - 1);
    }
    least
}

/// Sixteen bits or more from bit `bit` of the bytes at `begin` on, the first one in the lowest place.
#[cube]
fn bits_at(words: &[u32], begin: u32, bit: u32) -> u32 {
    let at = begin + bit / 8;
    let shift = 8 * (at % 4) + bit % 8;
    (word(words, at / 4) >> shift) | ((word(words, at / 4 + 1) << 1) << (31 - shift))
}

/// Raw byte `index`: of the group's own, which begin at `raw`, or after them of the last states. All lanes ask at once.
#[cube]
fn raw_byte(
    words: &[u32],
    raw: u32,
    count: u32,
    states: &Array<u32>,
    index: u32,
    #[comptime] warps: bool,
) -> u32 {
    let behind = index - count;
    let state = other_lane(states, (behind / LANES) & (VECTORS - 1), behind % LANES, warps);
    let mut value = state & 255;
    if index < count {
        value = byte(words, raw + index);
    }
    value
}

#[cube]
fn report(words: &[u32], faults: &[Atomic<u32>], group: u32, fault: u32) {
    if fault != 0 {
        faults[min(word(words, group + IMAGE) as usize, faults.len() - 1)].fetch_or(fault);
    }
}

/// Reads the tokens of all blocks and writes their values: the needed coefficients but for first ones, in rows, and all
/// differences of first ones. `coefficients` must be zero.
#[cube(launch)]
pub(crate) fn tokens(
    words: &[u32],
    zigzag: &[u32],
    scratch: &mut [u32],
    coefficients: &mut [i16],
    faults: &[Atomic<u32>],
    groups: u32,
    count: u32,
    #[comptime] warps: bool,
) {
    let number = group_number(warps);
    if number < count {
        let group = groups + GROUP_SIZE * number;
        let own = word(words, group + SCRATCH);
        let places = places(words, group, own);
        let tables = word(words, group + TABLES);
        let first_blocks = word(words, group + BLOCKS);
        let coded = word(words, group + CODED);
        let raw_bytes = word(words, group + RAW_BYTES);
        let extra_bytes = word(words, group + EXTRA_BYTES);
        let mut coder = Coder {
            bytes: word(words, group + STATES) + 2 * LANES * word(words, group + OF_STATES),
            at: held(scratch, own + CODER_AT),
            step: held(scratch, own + CODER_AT + 1),
            vectors: word(words, group + OF_STATES),
        };
        let raw = coder.bytes + coded;
        let extras = raw + raw_bytes;
        let mut states = vectors(warps);
        // How the coder stood when it began to read ahead, and how it stands at its end.
        let mut saved = vectors(warps);
        let mut ended = vectors(warps);
        #[unroll(warps)]
        for i in 0..comptime!(VECTORS * if warps { 1 } else { LANES }) {
            // The upper bytes of vectors that there are not are as they must be.
            states[i as usize] = 256u32;
        }
        for vector in 0..min(coder.vectors, VECTORS) {
            for turn in 0..lanes(warps) {
                let lane = lane_of(turn, warps);
                let state = held(scratch, own + CODER_STATES + LANES * vector + lane);
                set_lane(&mut states, vector, lane, state, warps);
            }
        }
        copy(&states, &mut saved, warps);
        copy(&states, &mut ended, warps);
        let mut last = word(words, group + LAST);
        let mut mode = OWN.runtime();
        // The coefficient, the class and the first slot of the next step; bits and escapes before it.
        let mut k = 0u32;
        let mut class = 0u32;
        let mut slot = 0u32;
        let mut bits = 0u32;
        let mut escapes = 0u32;
        let mut living = alive(scratch, own, class, k);
        let mut saved_at = 0u32;
        let mut saved_step = 0u32;
        let mut saved_k = 0u32;
        let mut saved_class = 0u32;
        let mut saved_slot = 0u32;
        let mut saved_bits = 0u32;
        let mut saved_escapes = 0u32;
        while k <= last {
            if slot < living {
                if mode == OWN && bits + MOST_BITS > 8 * raw_bytes {
                    mode = AHEAD.runtime();
                    last = 63u32;
                    copy(&states, &mut saved, warps);
                    saved_at = coder.at;
                    saved_step = coder.step;
                    saved_k = k;
                    saved_class = class;
                    saved_slot = slot;
                    saved_bits = bits;
                    saved_escapes = escapes;
                }
                // Of the class: its first slot, the first word of its table types, its tables for this coefficient.
                let before = class * first_blocks;
                let kinds = places.kinds + class * ((first_blocks + 15) / 16);
                let tables = tables + SYMBOLS * SYMBOLS * (64 * class + k);
                for turn in 0..lanes(warps) {
                    let lane = lane_of(turn, warps);
                    let at = slot + lane;
                    let active = at < living;
                    let table = tables + SYMBOLS * (held(scratch, kinds + at / 16) & 15);
                    let token = symbol(words, &mut coder, &mut states, table, active, lane, warps);
                    let taken = bits_of(token);
                    let of_bits = summed(taken, lane, 4u32, warps);
                    let mut escape = 0u32;
                    if token == 15 {
                        escape = 1u32;
                    }
                    let of_escapes = summed(escape, lane, 1u32, warps);
                    if mode != AHEAD {
                        let bit = bits + of_bits.before;
                        let mut field = bits_at(words, raw, bit);
                        if mode == ALL {
                            let low = raw_byte(words, raw, raw_bytes, &ended, bit / 8, warps);
                            let high = raw_byte(words, raw, raw_bytes, &ended, bit / 8 + 1, warps);
                            field = (low | (high << 8)) >> (bit % 8);
                        }
                        field &= (1u32 << taken) - 1;
                        let mut magnitude = field >> 1;
                        if token == 15 {
                            magnitude += byte(words, extras + escapes + of_escapes.before) << 7;
                        } else {
                            magnitude += least_of(token);
                        }
                        let mut value = i32::reinterpret(magnitude);
                        if field & 1 == 1 {
                            value = -value;
                        }
                        if active {
                            if k == 0 {
                                write(scratch, places.differences + before + at, u32::reinterpret(value));
                            } else if value != 0 {
                                let target = held(scratch, places.targets + before + at);
                                if target != NOWHERE {
                                    write(coefficients, target + read(zigzag, k), i16::cast_from(value));
                                }
                            }
                        }
                    }
                    bits += of_bits.all;
                    escapes += of_escapes.all;
                }
                coder.step += 1;
                slot += LANES;
            } else {
                slot = 0u32;
                class += 1;
                if class == 2 {
                    class = 0u32;
                    k += 1;
                }
                if k > last && mode == AHEAD {
                    mode = ALL.runtime();
                    copy(&states, &mut ended, warps);
                    copy(&saved, &mut states, warps);
                    coder.at = saved_at;
                    coder.step = saved_step;
                    k = saved_k;
                    class = saved_class;
                    slot = saved_slot;
                    bits = saved_bits;
                    escapes = saved_escapes;
                }
                living = alive(scratch, own, class, k);
            }
        }
        let mut fault = 0u32;
        if last == 63 {
            if coder.at != coded {
                fault |= CODER;
            }
            #[unroll(warps)]
            for i in 0..comptime!(VECTORS * if warps { 1 } else { LANES }) {
                if states[i as usize] >> 8 != 1 {
                    fault |= CODER;
                }
            }
            if bits > 8 * (raw_bytes + LANES * coder.vectors) {
                fault |= RAW;
            }
            if escapes != extra_bytes {
                fault |= EXTRAS;
            }
        } else {
            if coder.at > coded {
                fault |= CODER;
            }
            if escapes > extra_bytes {
                fault |= EXTRAS;
            }
        }
        report(words, faults, group, fault);
    }
}

/// Sums the differences of first coefficients in each row, and writes the needed sums.
#[cube(launch)]
pub(crate) fn first(
    words: &[u32],
    scratch: &mut [u32],
    coefficients: &mut [i16],
    faults: &[Atomic<u32>],
    groups: u32,
    count: u32,
    #[comptime] warps: bool,
) {
    let number = group_number(warps);
    if number < count {
        let group = groups + GROUP_SIZE * number;
        let places = places(words, group, word(words, group + SCRATCH));
        let mut fault = 0u32;
        for i in 0..4u32 {
            let part = group + PARTS + PART_SIZE * i;
            let wide = word(words, part + PART_WIDE);
            let most = i32::reinterpret(word(words, part + PART_MOST));
            for row in 0..word(words, part + PART_ROWS) {
                let begin = word(words, part + PART_FIRST) + row * wide;
                let mut carried = 0i32;
                for step in 0..(wide + LANES - 1) / LANES {
                    for turn in 0..lanes(warps) {
                        let column = LANES * step + lane_of(turn, warps);
                        let slot = held(scratch, places.slots + begin + column);
                        let mut sum = 0i32;
                        if column < wide {
                            sum = i32::reinterpret(held(scratch, places.differences + slot));
                        }
                        if comptime!(warps) {
                            sum = plane_inclusive_sum(sum);
                        }
                        sum += carried;
                        let value = wrapped(sum);
                        if column < wide {
                            if value > most || value < -most - 1 {
                                fault = FIRST.runtime();
                            }
                            let target = held(scratch, places.targets + slot);
                            if target != NOWHERE {
                                write(coefficients, target, i16::cast_from(value));
                            }
                        }
                        carried = sum;
                    }
                    if comptime!(warps) {
                        carried = plane_shuffle(carried, LANES - 1);
                    }
                }
            }
        }
        report(words, faults, group, fault);
    }
}
