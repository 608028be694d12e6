//! Reads groups.

use super::blocks::Outs;
use super::fields::LargeOf32;
use super::file::read_length;
use super::lanes::{self, Place, Planes, WholePlanes, Wide};
use super::sorted::Sorted;
use super::tables::{CLASSES, ReadTables, Table};
use super::tokens::{BASE, BITS, CAPS, ESCAPE, LARGE};
use super::{LANES, MOST_BLOCKS, VECTORS};
use crate::Error;
use crate::block::ZIGZAG;
use crate::kernels::Isa;
use std::ops::Range;

/// Bytes that kernels may touch behind what they were asked for.
pub(super) const SLACK: usize = 64;

/// The blocks of one component in a group.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Part {
    pub class: usize,
    /// Blocks a row, and rows.
    pub wide: usize,
    pub high: usize,
    /// The largest first coefficient: what 8-bit samples can give, and no more than what comes to 8191 by its step. Beyond
    /// that the transforms of a flat block and of another one differ.
    pub most: i16,
}

/// A coefficient that does not fit a byte.
#[derive(Debug, Clone, Copy)]
pub(super) struct Large {
    pub class: usize,
    pub slot: u16,
    /// Its place in a block, in rows.
    pub place: u8,
    pub value: i16,
}

/// Reads groups; keeps its buffers.
#[derive(Debug, Default)]
pub(crate) struct GroupReader {
    /// The coder's bytes and the raw ones, with room behind them.
    coded: Vec<u8>,
    raw: Vec<u8>,
    /// The types of a class's blocks in their order, then the tokens of all.
    types: Vec<u8>,
    pub(super) tokens: Vec<u8>,
    /// Of each token its value, where it fits a byte.
    pub(super) values: Vec<u8>,
    pub(super) classes: [Sorted; CLASSES],
    pub(super) large: Vec<Large>,
    found: Vec<LargeOf32>,
    targets: Vec<Place>,
    nowhere: Vec<u8>,
    wide: Wide,
}

/// What is wrong with a group.
pub(super) type Fault = &'static str;

impl GroupReader {
    /// Reads the group of `parts` at `place` of the file. Errors say which by `number`.
    pub fn read(
        &mut self,
        isa: Isa,
        tables: &ReadTables,
        file: &[u8],
        place: Range<usize>,
        parts: &[Part],
        number: usize,
    ) -> Result<(), Error> {
        let at = place.start;
        let bytes = file.get(place).unwrap_or_default();
        self.read_group(isa, tables, bytes, parts)
            .map_err(|fault| Error::corrupt(at, format!("{fault} in group {number} of a packed image")))
    }

    fn read_group(
        &mut self,
        isa: Isa,
        tables: &ReadTables,
        bytes: &[u8],
        parts: &[Part],
    ) -> Result<(), Fault> {
        let group = Group::parse(bytes)?;
        self.coded.clear();
        self.coded.extend(group.coded);
        self.coded.extend([0; SLACK]);
        let mut coder = Coder {
            states: group.states,
            bytes: &self.coded,
            at: 0,
            step: 0,
            vectors: group.vectors,
        };
        let mut end = 0;
        for (class, sorted) in self.classes.iter_mut().enumerate() {
            let own = || parts.iter().filter(|part| part.class == class);
            let count: usize = own().map(|part| part.wide * part.high).sum();
            sorted.begin(count);
            if count == 0 {
                continue;
            }
            if count > MOST_BLOCKS {
                return Err("too many blocks");
            }
            grow(&mut self.types, count + SLACK);
            let table = &tables.types[class][group.type_tables[class]];
            coder.types(
                isa,
                table,
                &mut self.types[..count.next_multiple_of(LANES)],
                count,
            )?;
            end = sorted.sort(&self.types[..count], end);
            grow(&mut self.tokens, end + SLACK);
            coder.tokens(isa, &tables.tokens[class], sorted, &mut self.tokens)?;
        }
        if coder.at != group.coded.len() {
            return Err(OVER);
        }
        let states = &coder.states[..group.vectors];
        if states
            .iter()
            .any(|states| states.high.iter().any(|&high| high != 1))
        {
            return Err("symbols that do not end where they should");
        }
        // Coding began with the last raw bytes.
        self.raw.clear();
        self.raw.extend(group.raw);
        states.iter().for_each(|states| self.raw.extend(states.low));
        let raw = self.raw.len();
        self.raw.extend([0; SLACK]);
        grow(&mut self.values, end + SLACK);
        self.tokens[end..end + SLACK].fill(0);
        let (tokens, values) = (&self.tokens[..end], &mut self.values[..end]);
        super::fields::read(isa, tokens, &self.raw, raw, values, &mut self.found)
            .ok_or("tokens of more raw bits than there are")?;
        self.read_large(group.extras)?;
        for (class, sorted) in self.classes.iter_mut().enumerate() {
            sorted.sum_dc(parts.iter().filter(|part| part.class == class))?;
        }
        Ok(())
    }

    /// Values that do not fit a byte, and the first coefficients.
    fn read_large(&mut self, extras: &[u8]) -> Result<(), Fault> {
        self.large.clear();
        for sorted in &mut self.classes {
            let row = &self.values[sorted.rows[0]..][..sorted.alive[0]];
            sorted.dc.extend(row.iter().map(|&value| i16::from(value as i8)));
        }
        let mut extras = extras.iter();
        // The row that the next ones are in.
        let (mut class, mut k) = (0, 0);
        for &LargeOf32 { first, mut mask } in &self.found {
            let first = first as usize;
            while first >= self.classes[class].row_end(k) {
                (class, k) = if k == 63 { (class + 1, 0) } else { (class, k + 1) };
            }
            let sorted = &mut self.classes[class];
            while mask != 0 {
                let at = first + mask.trailing_zeros() as usize;
                mask &= mask - 1;
                let field = self.values[at];
                let more = match usize::from(self.tokens[at]) {
                    ESCAPE => i16::from(*extras.next().ok_or("an escape without its extra byte")?),
                    _ => 1,
                };
                let magnitude = i16::from(field >> 1).wrapping_add(more << 7);
                let sign = -i16::from(field & 1);
                let value = (magnitude ^ sign).wrapping_sub(sign);
                self.values[at] = 0;
                let slot = at - sorted.rows[k];
                match k {
                    0 => sorted.dc[slot] = value,
                    _ => self.large.push(Large {
                        class,
                        slot: slot as u16,
                        place: ZIGZAG[k],
                        value,
                    }),
                }
            }
        }
        match extras.next() {
            Some(_) => Err("extra bytes that no token takes"),
            None => Ok(()),
        }
    }

    /// Writes the coefficients of all blocks, in rows. Those of part `i` go to `out[i]`, row by row, of which one takes
    /// `strides[i]` blocks.
    pub fn blocks(&mut self, isa: Isa, parts: &[Part], strides: &[usize; 4], out: &mut Outs<'_>) {
        for (class, sorted) in self.classes.iter().enumerate() {
            self.targets.clear();
            self.targets.resize(sorted.count, Place::default());
            let mut slots = sorted.slots[..sorted.count].iter();
            for (i, part) in parts.iter().enumerate().filter(|(_, part)| part.class == class) {
                let plane = i as u32;
                for y in 0..part.high {
                    let first = (y * strides[i]) as u32;
                    for (at, &slot) in (first..first + part.wide as u32).zip(&mut slots) {
                        self.targets[usize::from(slot)] = Place { plane, at };
                    }
                }
            }
            super::blocks::write(isa, sorted, &self.values, &self.targets, out);
            for large in self.large.iter().filter(|large| large.class == class) {
                let place = self.targets[usize::from(large.slot)];
                let block = &mut out[place.plane as usize][place.at as usize];
                block[usize::from(large.place) & 63] = large.value;
            }
        }
    }

    /// How many coefficients, in coding order, block `index` of a part can have. One with nothing but a first coefficient has
    /// one, whatever its type, as for other decoders.
    pub fn count(&self, parts: &[Part], part: usize, index: usize, block: &[i16; 64]) -> u32 {
        let class = parts[part].class;
        let before = parts[..part].iter().filter(|part| part.class == class);
        let first: usize = before.map(|part| part.wide * part.high).sum();
        let sorted = &self.classes[class];
        let flat = block[1..].iter().fold(0, |any, value| any | value) == 0;
        match flat {
            true => 1,
            false => cap(sorted.kinds[usize::from(sorted.slots[first + index])]) as u32 + 1,
        }
    }

    /// Writes the samples of all blocks that the planes need; `first_rows` are the rows of blocks that the group begins with, of
    /// each part.
    pub fn samples(
        &mut self,
        isa: Isa,
        parts: &[Part],
        first_rows: &[usize; 4],
        planes: &mut WholePlanes<'_>,
    ) {
        for (class, sorted) in self.classes.iter_mut().enumerate() {
            let Some(steps) = &planes.steps[class] else {
                continue;
            };
            let stride = planes.strides[class];
            let count = sorted.count.next_multiple_of(lanes::CHUNK);
            sorted.dc.resize(count, 0);
            // Blocks that are not needed go nowhere, and so do those that fill up the last chunk.
            grow(&mut self.nowhere, 8 * stride);
            let mut slices: [&mut [u8]; 5] = Default::default();
            slices[lanes::NOWHERE as usize] = &mut self.nowhere;
            self.targets.clear();
            self.targets.resize(
                count,
                Place {
                    plane: lanes::NOWHERE,
                    at: 0,
                },
            );
            let mut first = 0;
            for (i, (part, whole)) in parts
                .iter()
                .zip(planes.components.iter_mut().flatten())
                .enumerate()
            {
                if part.class != class {
                    continue;
                }
                let needed = whole.needed;
                for y in 0..part.high {
                    let row = first_rows[i] + y;
                    if needed.rows.contains(&row) {
                        let slots = &sorted.slots[first + y * part.wide..][..part.wide];
                        let at = (whole.row(row) as u32..).step_by(8);
                        for (&slot, at) in slots[needed.columns.clone()].iter().zip(at) {
                            self.targets[usize::from(slot)] = Place { plane: i as u32, at };
                        }
                    }
                }
                first += part.wide * part.high;
                slices[i] = whole.samples;
            }
            let large = self.large.iter().filter(|large| large.class == class).copied();
            let planes = Planes {
                planes: &mut slices,
                stride,
            };
            lanes::transform(
                isa,
                sorted,
                &self.values,
                (&mut self.wide, large),
                steps,
                &self.targets,
                planes,
            );
        }
    }
}

fn grow(bytes: &mut Vec<u8>, length: usize) {
    if bytes.len() < length {
        bytes.resize(length, 0);
    }
}

/// The lanes of a vector of states: lower and upper bytes.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct States {
    pub low: [u8; LANES],
    pub high: [u8; LANES],
}

impl States {
    pub const ZERO: States = States {
        low: [0; LANES],
        high: [0; LANES],
    };
}

/// The parts of a group.
struct Group<'a> {
    type_tables: [usize; CLASSES],
    vectors: usize,
    states: [States; VECTORS],
    coded: &'a [u8],
    raw: &'a [u8],
    extras: &'a [u8],
}

impl<'a> Group<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Group<'a>, Fault> {
        const SHORT: Fault = "too few bytes";
        let &[choice, ..] = bytes else {
            return Err(SHORT);
        };
        let vectors = 1 << (choice >> 6);
        if vectors > VECTORS {
            return Err("more states than a group has");
        }
        let (raw, at) = read_length(bytes, 1).ok_or(SHORT)?;
        let (extras, at) = read_length(bytes, at).ok_or(SHORT)?;
        let rest = &bytes[at..];
        let (rest, extras) = rest
            .len()
            .checked_sub(extras as usize)
            .map(|at| rest.split_at(at))
            .ok_or(SHORT)?;
        let (rest, raw) = rest
            .len()
            .checked_sub(raw as usize)
            .map(|at| rest.split_at(at))
            .ok_or(SHORT)?;
        let (initial, coded) = rest.split_at_checked(2 * vectors * LANES).ok_or(SHORT)?;
        let mut states = [States::ZERO; VECTORS];
        for (states, bytes) in states.iter_mut().zip(initial.as_chunks::<LANES>().0.chunks(2)) {
            (states.low, states.high) = (bytes[0], bytes[1]);
        }
        Ok(Group {
            type_tables: [usize::from(choice & 7), usize::from(choice >> 3 & 7)],
            vectors,
            states,
            coded,
            raw,
            extras,
        })
    }
}

/// The state of decoding symbols.
pub(super) struct Coder<'a> {
    pub states: [States; VECTORS],
    /// The coder's bytes and [`SLACK`] more.
    pub bytes: &'a [u8],
    pub at: usize,
    pub step: usize,
    pub vectors: usize,
}

pub(super) const OVER: Fault = "symbols that do not end with the coder's bytes";

impl Coder<'_> {
    fn types(&mut self, isa: Isa, table: &Table, out: &mut [u8], count: usize) -> Result<(), Fault> {
        match isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves the instructions.
            Isa::Avx2(_) => unsafe { super::avx2::types(self, table, out, count) },
            _ => {
                for (i, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                    self.step([table; 2], (count - i * LANES).min(LANES), out)?;
                }
                Ok(())
            }
        }
    }

    fn tokens(&mut self, isa: Isa, tables: &[Table], sorted: &Sorted, out: &mut [u8]) -> Result<(), Fault> {
        match isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves the instructions.
            Isa::Avx2(_) => unsafe { super::avx2::tokens(self, tables, sorted, out) },
            _ => {
                for k in 0..64 {
                    let row = &mut out[sorted.rows[k]..][..sorted.alive[k].next_multiple_of(LANES)];
                    for (i, out) in row.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                        let table = |half: usize| &tables[64 * usize::from(sorted.halves[2 * i + half]) + k];
                        self.step(
                            [table(0), table(1)],
                            (sorted.alive[k] - i * LANES).min(LANES),
                            out,
                        )?;
                    }
                }
                Ok(())
            }
        }
    }

    /// Decodes a symbol in each of the first `active` lanes; the others give 0.
    fn step(&mut self, tables: [&Table; 2], active: usize, out: &mut [u8; LANES]) -> Result<(), Fault> {
        let states = &mut self.states[self.step & (self.vectors - 1)];
        self.step += 1;
        *out = [0; LANES];
        for lane in 0..active {
            let table = tables[lane / 16];
            let (symbol, place) = table.at(states.low[lane]);
            let share = table.share[usize::from(symbol)];
            let mut state = u16::from(share)
                .wrapping_mul(states.high[lane].into())
                .wrapping_add(place.into());
            if state < 256 {
                state = state << 8 | u16::from(*self.bytes.get(self.at).ok_or(OVER)?);
                self.at += 1;
            }
            [states.low[lane], states.high[lane]] = state.to_le_bytes();
            out[lane] = symbol;
        }
        Ok(())
    }
}

/// The last coefficient of a type.
pub(super) fn cap(kind: u8) -> usize {
    CAPS[usize::from(kind & 15)]
}

/// The mask of a token's raw bits, and its least magnitude.
pub(super) const fn masks() -> [u8; 16] {
    let mut masks = [0; 16];
    let mut token = 0;
    while token < 16 {
        masks[token] = ((1u16 << BITS[token]) - 1) as u8;
        token += 1;
    }
    masks
}

/// A token's value of its raw bits, where it fits a byte; else the bits.
pub(super) fn value(token: u8, field: u8) -> u8 {
    if token >= LARGE {
        return field;
    }
    let magnitude = BASE[usize::from(token & 15)] + (field >> 1);
    let sign = 0u8.wrapping_sub(field & 1);
    (magnitude ^ sign).wrapping_sub(sign)
}
