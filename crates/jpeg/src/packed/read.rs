//! Reads groups.

use super::blocks::Outs;
use super::fields::{LargeOf32, LargeTokens};
use super::file::read_length;
use super::lanes::{self, BlockTarget, Planes, WholePlanes, Wide};
use super::sorted::Sorted;
use super::tables::{CLASSES, SymbolTables, Table, TokenTables};
use super::tokens::{BASE, BITS, CAPS, ESCAPE, LARGE};
use super::{LANES, MOST_BLOCKS, VECTORS};
use crate::Error;
use crate::block::ZIGZAG;
use crate::kernels::Isa;
use std::ops::Range;

/// Bytes that kernels may touch after what they were asked for.
pub(super) const SLACK: usize = 64;

/// The blocks of one component in a group.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct GroupComponent {
    pub class: usize,
    /// Blocks a row, and rows.
    pub wide: usize,
    pub high: usize,
    /// The largest first coefficient.
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
    /// The coder's bytes and the raw ones, with room after them.
    coded: Vec<u8>,
    raw: Vec<u8>,
    /// The types of a class's blocks in their order, then the tokens of all.
    types: Vec<u8>,
    pub(super) tokens: Vec<u8>,
    /// Of each token its value, where it fits a byte.
    pub(super) values: Vec<u8>,
    pub(super) classes: [Sorted; CLASSES],
    pub(super) large: Vec<Large>,
    found: LargeTokens,
    targets: Vec<BlockTarget>,
    nowhere: Vec<u8>,
    wide: Wide,
}

/// What is wrong with a group.
pub(super) type Fault = &'static str;

impl GroupReader {
    /// Reads the group of `parts` at `place` of the file, or only first coefficients, which come first. Errors say which by
    /// `number`.
    pub fn read(
        &mut self,
        isa: Isa,
        tables: &SymbolTables,
        file: &[u8],
        (number, place): (usize, Range<usize>),
        parts: &[GroupComponent],
        only_first: bool,
    ) -> Result<(), Error> {
        let at = place.start;
        let bytes = file.get(place).unwrap_or_default();
        let mut coded = std::mem::take(&mut self.coded);
        let result = Group::parse(bytes, &mut coded)
            .and_then(|(group, coder)| self.read_group(isa, tables, &group, coder, parts, only_first));
        self.coded = coded;
        result.map_err(|fault| Error::corrupt(at, format!("{fault} in group {number} of a packed image")))
    }

    fn read_group(
        &mut self,
        isa: Isa,
        tables: &SymbolTables,
        group: &Group<'_>,
        mut coder: Coder<'_>,
        parts: &[GroupComponent],
        only_first: bool,
    ) -> Result<(), Fault> {
        self.sort(isa, tables, group, &mut coder, parts)?;
        let mut read = 0;
        if only_first {
            coder.tokens(isa, &tables.tokens, &self.classes, 0..1, &mut self.tokens)?;
            if coder.at > coder.length {
                return Err(OVER);
            }
            // The last raw bits are not known before all tokens are.
            self.hold_raw(group.raw, &[]);
            if self.read_values(isa, 0).is_some() {
                self.read_large(group.extras)?;
                return self.sum_dc(parts);
            }
            read = 1;
        }
        coder.tokens(isa, &tables.tokens, &self.classes, read..64, &mut self.tokens)?;
        coder.require_end()?;
        self.hold_raw(group.raw, &coder.states[..coder.vectors]);
        self.read_values(isa, 63)
            .ok_or("tokens of more raw bits than there are")?;
        match self.read_large(group.extras)? {
            0 => self.sum_dc(parts),
            _ => Err("extra bytes that no token takes"),
        }
    }

    /// Reads the types of all blocks, sorts them, and makes room for their tokens and values.
    fn sort(
        &mut self,
        isa: Isa,
        tables: &SymbolTables,
        group: &Group<'_>,
        coder: &mut Coder<'_>,
        parts: &[GroupComponent],
    ) -> Result<(), Fault> {
        for (class, sorted) in self.classes.iter_mut().enumerate() {
            let own = parts.iter().filter(|part| part.class == class);
            let count: usize = own.map(|part| part.wide * part.high).sum();
            sorted.begin(count);
            if count == 0 {
                continue;
            }
            if count > MOST_BLOCKS {
                return Err(TOO_MANY);
            }
            grow(&mut self.types, count + SLACK);
            let table = &tables.types[class][group.type_tables[class]];
            let types = &mut self.types[..count.next_multiple_of(LANES)];
            coder.types(isa, table, types, count)?;
            sorted.sort(&self.types[..count]);
        }
        Sorted::lay_out(self.classes.each_mut());
        let end = self.row_end(63);
        grow(&mut self.tokens, end + SLACK);
        grow(&mut self.values, end + SLACK);
        Ok(())
    }

    /// Where the rows of a coefficient end, those of all classes.
    fn row_end(&self, k: usize) -> usize {
        self.classes[CLASSES - 1].row_end(k)
    }

    /// Puts raw bytes and those in the coder's last states where they are read, with room after them. Coding began with
    /// the latter.
    fn hold_raw(&mut self, raw: &[u8], states: &[States]) {
        self.raw.clear();
        self.raw.extend(raw);
        states.iter().for_each(|states| self.raw.extend(states.low));
        self.raw.extend([0; SLACK]);
    }

    /// Makes values of the tokens up to coefficient `last`. None where there are too few raw bits.
    fn read_values(&mut self, isa: Isa, last: usize) -> Option<()> {
        let end = self.row_end(last);
        let (tokens, values) = (&self.tokens[..end], &mut self.values[..end]);
        let held = self.raw.len() - SLACK;
        super::fields::read(isa, tokens, &self.raw, held, values, &mut self.found)
    }

    /// Makes first coefficients of their differences.
    fn sum_dc(&mut self, parts: &[GroupComponent]) -> Result<(), Fault> {
        for (class, sorted) in self.classes.iter_mut().enumerate() {
            sorted.sum_dc(parts.iter().filter(|part| part.class == class))?;
        }
        Ok(())
    }

    /// Values that do not fit a byte, and the first coefficients. Returns how many extra bytes are left.
    fn read_large(&mut self, extras: &[u8]) -> Result<usize, Fault> {
        self.large.clear();
        for sorted in &mut self.classes {
            let row = sorted.rows[0]..sorted.rows[0] + sorted.alive[0];
            let tokens = self.tokens[row.clone()].iter();
            let all = tokens.zip(&self.values[row]);
            sorted
                .dc
                .extend(all.map(|(&token, &value)| first_difference(token, value)));
        }
        let mut extras = extras.iter();
        // The row that the next ones are in.
        let (mut class, mut k) = (0, 0);
        for &LargeOf32 {
            first,
            mut mask,
            escapes,
        } in self.found.all()
        {
            let first = first as usize;
            while first >= self.classes[class].row_end(k) {
                (class, k) = match class + 1 {
                    CLASSES => (0, k + 1),
                    class => (class, k),
                };
            }
            let sorted = &mut self.classes[class];
            if k == 0 {
                mask = escapes;
            }
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
        Ok(extras.len())
    }

    /// Writes the coefficients of the blocks of the classes in `wanted`, in rows. Those of part `i` go to `out[i]`, row by row, of
    /// which one takes `strides[i]` blocks.
    pub fn blocks(
        &mut self,
        isa: Isa,
        parts: &[GroupComponent],
        wanted: [bool; CLASSES],
        strides: &[usize; 4],
        out: &mut Outs<'_>,
    ) {
        let classes = self.classes.iter().enumerate();
        for (class, sorted) in classes.filter(|&(class, _)| wanted[class]) {
            self.targets.clear();
            self.targets.resize(sorted.count, BlockTarget::default());
            let mut slots = sorted.slots[..sorted.count].iter();
            for (i, part) in parts.iter().enumerate().filter(|(_, part)| part.class == class) {
                let plane = i as u32;
                for y in 0..part.high {
                    let first = (y * strides[i]) as u32;
                    for (at, &slot) in (first..first + part.wide as u32).zip(&mut slots) {
                        self.targets[usize::from(slot)] = BlockTarget { plane, at };
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

    /// The blocks of a part.
    pub fn part(&self, parts: &[GroupComponent], part: usize) -> PartBlocks<'_> {
        let GroupComponent {
            class, wide, high, ..
        } = parts[part];
        let before = parts[..part].iter().filter(|part| part.class == class);
        let first: usize = before.map(|part| part.wide * part.high).sum();
        let sorted = &self.classes[class];
        PartBlocks {
            sorted,
            slots: &sorted.slots[first..first + wide * high],
        }
    }

    /// Writes the samples of all blocks that the planes need; `first_rows` are the rows of blocks that the group begins with, of
    /// each part.
    pub fn samples(
        &mut self,
        isa: Isa,
        parts: &[GroupComponent],
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
                BlockTarget {
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
                            self.targets[usize::from(slot)] = BlockTarget { plane: i as u32, at };
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

/// The blocks of a part as they were read, row after row.
pub(crate) struct PartBlocks<'a> {
    sorted: &'a Sorted,
    slots: &'a [u16],
}

impl PartBlocks<'_> {
    /// The first coefficient of a block.
    pub fn first(&self, index: usize) -> i16 {
        self.sorted.dc[usize::from(self.slots[index])]
    }

    /// How many coefficients, in coding order, a block can have. One with nothing but a first coefficient has one, whatever
    /// its type, as for other decoders.
    pub fn count(&self, index: usize, block: &[i16; 64]) -> u32 {
        let flat = block[1..].iter().fold(0, |any, value| any | value) == 0;
        match flat {
            true => 1,
            false => cap(self.sorted.kinds[usize::from(self.slots[index])]) as u32 + 1,
        }
    }
}

/// Makes a buffer at least as long; it is never shortened.
pub(super) fn grow<T: Copy + Default>(buffer: &mut Vec<T>, length: usize) {
    if buffer.len() < length {
        buffer.resize(length, T::default());
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

/// Where the parts of a group are.
pub(super) struct Places {
    pub type_tables: [usize; CLASSES],
    pub vectors: usize,
    /// The first byte of the states, and how many bytes of each part follow.
    pub states: usize,
    pub coded: usize,
    pub raw: usize,
    pub extras: usize,
}

impl Places {
    pub fn parse(bytes: &[u8]) -> Result<Places, Fault> {
        const SHORT: Fault = "too few bytes";
        let &[choice, ..] = bytes else {
            return Err(SHORT);
        };
        let vectors = 1 << (choice >> 6);
        if vectors > VECTORS {
            return Err("more states than a group has");
        }
        let (raw, at) = read_length(bytes, 1).ok_or(SHORT)?;
        let (extras, states) = read_length(bytes, at).ok_or(SHORT)?;
        let (raw, extras) = (raw as usize, extras as usize);
        let others = states + 2 * vectors * LANES + raw + extras;
        Ok(Places {
            type_tables: [usize::from(choice & 7), usize::from(choice >> 3 & 7)],
            vectors,
            states,
            coded: bytes.len().checked_sub(others).ok_or(SHORT)?,
            raw,
            extras,
        })
    }
}

/// The parts of a group that the coder does not read.
struct Group<'a> {
    type_tables: [usize; CLASSES],
    raw: &'a [u8],
    extras: &'a [u8],
}

impl<'a> Group<'a> {
    /// Finds the parts. `room` is for the coder's bytes where too few bytes are after them.
    fn parse(bytes: &'a [u8], room: &'a mut Vec<u8>) -> Result<(Group<'a>, Coder<'a>), Fault> {
        let places = Places::parse(bytes)?;
        let vectors = places.vectors;
        let (initial, rest) = bytes[places.states..].split_at(2 * vectors * LANES);
        let (coded, raw_and_extras) = rest.split_at(places.coded);
        let (raw, extras) = raw_and_extras.split_at(places.raw);
        let mut states = [States::ZERO; VECTORS];
        for (states, bytes) in states.iter_mut().zip(initial.as_chunks::<LANES>().0.chunks(2)) {
            (states.low, states.high) = (bytes[0], bytes[1]);
        }
        // What lies after the coder's bytes serves as well as zeros, if there is enough of it.
        let bytes = match rest.len() >= coded.len() + SLACK {
            true => rest,
            false => {
                room.clear();
                room.extend(coded);
                room.extend([0; SLACK]);
                room
            }
        };
        let group = Group {
            type_tables: places.type_tables,
            raw,
            extras,
        };
        let coder = Coder {
            states,
            bytes,
            length: coded.len(),
            at: 0,
            step: 0,
            vectors,
        };
        Ok((group, coder))
    }
}

/// The state of decoding symbols.
pub(super) struct Coder<'a> {
    pub states: [States; VECTORS],
    /// The coder's bytes and at least [`SLACK`] more.
    pub bytes: &'a [u8],
    /// How many are the coder's.
    length: usize,
    pub at: usize,
    pub step: usize,
    pub vectors: usize,
}

pub(super) const TOO_MANY: Fault = "too many blocks";
pub(super) const OVER: Fault = "symbols that do not end with the coder's bytes";

impl Coder<'_> {
    fn types(&mut self, isa: Isa, table: &Table, out: &mut [u8], count: usize) -> Result<(), Fault> {
        match isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the tokens prove the instructions.
            Isa::Avx2(avx2) => unsafe {
                match avx2.avx512() {
                    Some(_) => super::avx512::types(self, table, out, count),
                    None => super::avx2::types(self, table, out, count),
                }
            },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: the token proves the instructions.
            Isa::Neon(_) => unsafe { super::neon::types(self, table, out, count) },
            _ => {
                for (i, out) in out.as_chunks_mut::<LANES>().0.iter_mut().enumerate() {
                    self.step([table; 2], (count - i * LANES).min(LANES), out)?;
                }
                Ok(())
            }
        }
    }

    /// The tokens of all blocks for the coefficients `which`.
    fn tokens(
        &mut self,
        isa: Isa,
        tables: &[Box<TokenTables>; CLASSES],
        classes: &[Sorted; CLASSES],
        which: Range<usize>,
        out: &mut [u8],
    ) -> Result<(), Fault> {
        match isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the tokens prove the instructions.
            Isa::Avx2(avx2) => unsafe {
                match avx2.avx512() {
                    Some(_) => super::avx512::tokens(self, tables, classes, which, out),
                    None => super::avx2::tokens(self, tables, classes, which, out),
                }
            },
            #[cfg(target_arch = "aarch64")]
            // SAFETY: the token proves the instructions.
            Isa::Neon(_) => unsafe { super::neon::tokens(self, tables, classes, which, out) },
            _ => {
                for k in which {
                    for (tables, sorted) in tables.iter().zip(classes) {
                        let row = &mut out[sorted.rows[k]..sorted.row_end(k)];
                        let outs = row.as_chunks_mut::<LANES>().0.iter_mut();
                        for (i, (out, tables)) in outs.zip(sorted.tables(&tables[k])).enumerate() {
                            let active = (sorted.alive[k] - i * LANES).min(LANES);
                            self.step(tables, active, out)?;
                        }
                    }
                }
                Ok(())
            }
        }
    }

    /// The vector of states that the next step uses.
    #[inline(always)]
    pub fn next_vector(&mut self) -> usize {
        let step = self.step;
        self.step += 1;
        step & (self.vectors - 1) & (VECTORS - 1)
    }

    /// What must be so after the last step.
    fn require_end(&self) -> Result<(), Fault> {
        if self.at != self.length {
            return Err(OVER);
        }
        let states = &self.states[..self.vectors];
        match states
            .iter()
            .all(|states| states.high.iter().all(|&high| high == 1))
        {
            true => Ok(()),
            false => Err("symbols that do not end where they should"),
        }
    }

    /// Decodes a symbol in each of the first `active` lanes; the others give 0.
    fn step(&mut self, tables: [&Table; 2], active: usize, out: &mut [u8; LANES]) -> Result<(), Fault> {
        let vector = self.next_vector();
        let (states, bytes, at) = (&mut self.states[vector], self.bytes, &mut self.at);
        *out = [0; LANES];
        for lane in 0..active {
            let table = tables[lane / 16];
            let (symbol, place) = table.at(states.low[lane]);
            let share = table.share[usize::from(symbol)];
            let mut state = u16::from(share)
                .wrapping_mul(states.high[lane].into())
                .wrapping_add(place.into());
            if state < 256 {
                state = state << 8 | u16::from(*bytes.get(*at).ok_or(OVER)?);
                *at += 1;
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

/// The difference of a first coefficient; not of an escape.
#[inline(always)]
fn first_difference(token: u8, value: u8) -> i16 {
    let sign = -i16::from(value & 1);
    let large = ((i16::from(value >> 1) + (1 << 7)) ^ sign) - sign;
    if token >= LARGE {
        large
    } else {
        i16::from(value as i8)
    }
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
