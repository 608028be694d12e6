//! Writes packed images.
//!
//! Stages of a group: each block's tokens and the costs of its types; the types, once by themselves and once with what the
//! group's table of types makes of them; sorting; tokens into rows of coefficients; raw bits; and the coder, from the last
//! step to the first, since what is coded last is decoded first.

use super::costs::{OfTypes, TypeCosts, UNIT};
use super::file::{FIXED, MAGIC, MOST_ROWS, write_length};
use super::read::{GroupComponent, SLACK, States, grow};
use super::sorted::Sorted;
use super::tables::{CLASSES, ClassTables, Distribution, PackTables, TYPE_TABLES};
use super::tokens::{BASE, BITS, ESCAPE, MOST, SYMBOLS};
use super::{LANES, MOST_BLOCKS, VECTORS, parts_of};
use crate::block::ZIGZAG;
use crate::frame::Frame;
use crate::header::Head;
use crate::kernels::Isa;
use crate::planes::CoefficientPlanes;
use crate::transcode::{self, TranscodeOptions};
use crate::{ColorModel, Error};
use std::ops::Range;

/// Bytes of coded data in the JPEG that make a group worth its states.
const ENOUGH: usize = 1600;
/// Rows of pixels of a group, at least and at most.
const PIXEL_ROWS: (usize, usize) = (16, 64);

const TOO_LARGE: &str = "coefficients larger than 8-bit samples can give";

/// A distribution as the coder needs it.
#[repr(C, align(64))]
pub(super) struct Coding {
    pub share: [u8; SYMBOLS],
    /// 2^16 / share, rounded down, at most 65535: its lower and its upper byte.
    pub reciprocal_low: [u8; SYMBOLS],
    pub reciprocal_high: [u8; SYMBOLS],
    /// Where the slots of each symbol begin among `slots`.
    pub first: [u8; SYMBOLS],
    pub slots: [u8; 256],
}

impl Coding {
    fn new(distribution: &Distribution) -> Coding {
        let share = distribution.0;
        let (mut first, mut sum) = ([0; SYMBOLS], 0u8);
        for (first, share) in first.iter_mut().zip(share) {
            *first = sum;
            sum = sum.wrapping_add(share);
        }
        let reciprocals = share.map(|share| (65536 / u32::from(share.max(1))).min(65535) as u16);
        Coding {
            share,
            reciprocal_low: reciprocals.map(|reciprocal| reciprocal as u8),
            reciprocal_high: reciprocals.map(|reciprocal| (reciprocal >> 8) as u8),
            first,
            slots: distribution.table().slots(),
        }
    }
}

/// 2^24 / n, rounded up: with it the quotient of 16 bits by 8 is exact.
static RECIPROCALS: [u32; 256] = {
    let mut reciprocals = [0; 256];
    let mut n = 1;
    while n < 256 {
        reciprocals[n] = (1u32 << 24).div_ceil(n as u32);
        n += 1;
    }
    reciprocals
};

/// The tables of a class as the writer needs them.
pub(super) struct ClassCoding {
    /// By place in coding order and type.
    pub tokens: Box<[[Coding; SYMBOLS]]>,
    /// The same tables' shares, which are all that the stage of raw bits needs: there they stay in the cache.
    pub shares: Box<[[[u8; SYMBOLS]; SYMBOLS]]>,
    pub types: [Coding; TYPE_TABLES],
    type_bits: [[f32; SYMBOLS]; TYPE_TABLES],
    type_costs: [OfTypes; TYPE_TABLES],
    pub costs: TypeCosts,
}

impl ClassCoding {
    fn new(tables: &ClassTables) -> ClassCoding {
        let type_bits = tables.types.map(|types| types.bits());
        ClassCoding {
            tokens: (0..64)
                .map(|k| std::array::from_fn(|kind| Coding::new(&tables.tokens[64 * kind + k])))
                .collect(),
            shares: (0..64)
                .map(|k| std::array::from_fn(|kind| tables.tokens[64 * kind + k].0))
                .collect(),
            types: tables.types.each_ref().map(Coding::new),
            type_costs: type_bits.map(|bits| OfTypes(bits.map(|bits| (bits * UNIT).round() as u16))),
            type_bits,
            costs: TypeCosts::of_tables(tables),
        }
    }
}

/// The table of types that makes types of these counts shortest.
pub(super) fn best_types(bits: &[[f32; SYMBOLS]; TYPE_TABLES], counts: &[u32; SYMBOLS]) -> usize {
    let cost = |bits: &[f32; SYMBOLS]| -> f32 { bits.iter().zip(counts).map(|(b, &c)| b * c as f32).sum() };
    let costs = bits.each_ref().map(cost);
    (0..TYPE_TABLES)
        .min_by(|&a, &b| costs[a].total_cmp(&costs[b]))
        .unwrap_or_default()
}

/// How often each type is there.
pub(super) fn count_types(types: &[u8]) -> [u32; SYMBOLS] {
    // Of every fourth block each, since a number that was just written has to be waited for.
    let mut counts = [[0; SYMBOLS]; 4];
    for (i, &kind) in types.iter().enumerate() {
        counts[i & 3][usize::from(kind & 15)] += 1;
    }
    std::array::from_fn(|kind| counts.iter().map(|counts| counts[kind]).sum())
}

/// The token of each magnitude below 256; larger ones are escapes.
static TOKENS: [u8; 256] = {
    let (mut tokens, mut magnitude) = ([0; 256], 0);
    while magnitude < 256 {
        let mut token = ESCAPE - 1;
        while BASE[token] as usize > magnitude {
            token -= 1;
        }
        tokens[magnitude] = token as u8;
        magnitude += 1;
    }
    tokens
};

/// The token of any magnitude.
#[inline(always)]
pub(super) fn token(magnitude: u16) -> usize {
    match TOKENS.get(usize::from(magnitude)) {
        Some(&token) => usize::from(token & 15),
        None => ESCAPE,
    }
}

/// The blocks of a class in a group.
#[derive(Default)]
pub(super) struct Blocks {
    lists: Lists,
    #[cfg(target_arch = "x86_64")]
    pub rows: super::avx2_write::Rows,
    pub count: usize,
    /// Of each block.
    pub costs: Vec<OfTypes>,
    /// Filled up to whole vectors.
    pub types: Vec<u8>,
    pub choice: usize,
    pub sorted: Sorted,
}

/// Of blocks, one after the other: tokens that are not 0.
#[derive(Default)]
struct Lists {
    /// Each as `16 * k + token`.
    entries: Vec<u16>,
    /// Their raw bits with what does not fit in there above them.
    fields: Vec<u16>,
    /// Where each block's end.
    ends: Vec<u32>,
}

/// One thread's writer of packed images, with its buffers.
pub struct Packer {
    id: u32,
    codings: [ClassCoding; CLASSES],
    blocks: [Blocks; CLASSES],
    tokens: Vec<u8>,
    fields: Vec<u16>,
    coded: Vec<u8>,
    raw: Vec<u8>,
    extras: Vec<u8>,
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Packer({:08x})", self.id)
    }
}

impl Packer {
    /// A writer with these tables.
    pub fn new(tables: &PackTables) -> Packer {
        Packer {
            id: tables.id(),
            codings: tables.classes.each_ref().map(ClassCoding::new),
            blocks: Default::default(),
            tokens: Vec::new(),
            fields: Vec::new(),
            coded: Vec::new(),
            raw: Vec::new(),
            extras: Vec::new(),
        }
    }

    /// Writes what `planes` holds of a file of the segments `bytes` and this many bytes of coded data.
    pub(crate) fn write(
        &mut self,
        isa: Isa,
        bytes: &[u8],
        coded: usize,
        head: &Head<'_>,
        planes: &mut CoefficientPlanes,
        options: &TranscodeOptions,
    ) -> Result<Vec<u8>, Error> {
        let frame = &head.frame;
        transcode::require_one_scan(frame)?;
        if !has_rows(isa) {
            planes.mark_nonzero(frame);
        }
        let rows = group_rows(frame, coded);
        let mut out = Vec::with_capacity(coded + 1024);
        out.extend(MAGIC);
        out.extend(self.id.to_le_bytes());
        out.extend([0; 4]);
        transcode::write_head(&mut out, bytes, head, planes, options)?;
        let length = (out.len() - FIXED) as u32;
        out[FIXED - 4..FIXED].copy_from_slice(&length.to_le_bytes());
        out.push(rows as u8);
        let (mut groups, mut blocks) = (Vec::with_capacity(coded), 0);
        for first in (0..frame.mcus_high).step_by(rows) {
            let begin = groups.len();
            let mcu_rows = first..(first + rows).min(frame.mcus_high);
            blocks += self.group(isa, (frame, head.color), planes, mcu_rows, coded, &mut groups)?;
            let length = groups.len() - begin;
            if length >= 1 << 28 {
                return Err(Error::Unsupported("a group of more than 256 MB".into()));
            }
            write_length(length, &mut out);
        }
        out.extend(groups);
        // So that a reader may refuse a few bytes that claim to be a large image.
        match blocks > 8 * out.len() {
            true => Err(Error::Unsupported(
                "an image of less than a bit a block, packed".into(),
            )),
            false => Ok(out),
        }
    }

    /// Writes the group of some MCU rows; returns how many blocks it has.
    fn group(
        &mut self,
        isa: Isa,
        (frame, color): (&Frame, ColorModel),
        planes: &CoefficientPlanes,
        mcu_rows: Range<usize>,
        coded: usize,
        out: &mut Vec<u8>,
    ) -> Result<usize, Error> {
        let mut parts = [GroupComponent::default(); 4];
        let steps = std::array::from_fn(|i| planes.steps(i)[0]);
        let parts = parts_of(frame, color, &steps, &mcu_rows, &mut parts);
        let source = |class| Source {
            frame,
            parts,
            planes,
            class,
            first: mcu_rows.start,
        };
        let mut count = 0;
        for (class, (blocks, coding)) in self.blocks.iter_mut().zip(&self.codings).enumerate() {
            blocks.collect(isa, &source(class), coding)?;
            count += blocks.count;
            if blocks.count > MOST_BLOCKS {
                return Err(Error::Unsupported(
                    "more than 65,535 blocks in a row of MCUs".into(),
                ));
            }
            blocks.sorted.begin(blocks.count);
            if blocks.count > 0 {
                blocks.choose(isa, coding);
                blocks.sorted.sort(&blocks.types[..blocks.count]);
            }
        }
        Sorted::lay_out(self.blocks.each_mut().map(|blocks| &mut blocks.sorted));
        let end = self.blocks[CLASSES - 1].sorted.row_end(63);
        let vectors = match coded / frame.mcus_high * mcu_rows.len() {
            0..600 => 1,
            600..2400 => 2,
            _ => VECTORS,
        };
        let carried = vectors * LANES;
        grow(&mut self.tokens, end + SLACK);
        // A token has at most a byte of raw bits.
        grow(&mut self.raw, (end + SLACK).max(carried));
        self.extras.clear();
        let bits = BitSink {
            bits: 0,
            count: 0,
            at: 0,
            out: &mut self.raw,
        };
        let (tokens, extras) = (&mut self.tokens, &mut self.extras);
        let bits = match isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves the instructions.
            Isa::Avx2(_) => unsafe {
                for blocks in &mut self.blocks {
                    blocks.rows.spread(&blocks.sorted, tokens);
                }
                let sources = std::array::from_fn(source);
                super::avx2_write::raw_bits(&self.blocks, &self.codings, &sources, tokens, bits, extras)
            },
            _ => {
                grow(&mut self.fields, end);
                for blocks in &self.blocks {
                    blocks.lists.spread(&blocks.sorted, tokens, &mut self.fields);
                }
                raw_bits(&self.blocks, &self.codings, tokens, &self.fields, bits, extras)
            }
        };
        let mut length = bits.finish();
        if length < carried {
            self.raw[length..carried].fill(0);
            length = carried;
        }
        let (raw, tail) = self.raw[..length].split_at(length - carried);
        let steps: usize = self.blocks.iter().map(|blocks| steps_of(&blocks.sorted)).sum();
        grow(&mut self.coded, LANES * steps + SLACK);
        let mut coder = Coder {
            states: [States::ZERO; VECTORS],
            vectors,
            step: steps,
            at: self.coded.len(),
            out: &mut self.coded,
        };
        for (states, bytes) in coder.states.iter_mut().zip(tail.as_chunks::<LANES>().0) {
            *states = States {
                low: *bytes,
                high: [1; LANES],
            };
        }
        match isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the tokens prove the instructions.
            Isa::Avx2(avx2) => unsafe {
                let (blocks, codings, tokens) = (&self.blocks, &self.codings, &self.tokens);
                match avx2.avx512() {
                    Some(_) => super::avx512_write::code(blocks, codings, tokens, &mut coder),
                    None => super::avx2_write::code(blocks, codings, tokens, &mut coder),
                }
            },
            _ => code(&self.blocks, &self.codings, &self.tokens, &mut coder),
        }
        out.push(
            (self.blocks[0].choice | self.blocks[1].choice << 3 | (vectors.ilog2() as usize) << 6) as u8,
        );
        write_length(raw.len(), out);
        write_length(self.extras.len(), out);
        for states in &coder.states[..vectors] {
            out.extend(states.low);
            out.extend(states.high);
        }
        out.extend(&coder.out[coder.at..]);
        out.extend(raw);
        out.extend(&self.extras);
        Ok(count)
    }
}

/// Whether blocks are kept as rows of bytes.
fn has_rows(isa: Isa) -> bool {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => true,
        _ => false,
    }
}

/// Steps of the coder that the blocks of a class take.
fn steps_of(sorted: &Sorted) -> usize {
    let rows: usize = sorted.alive.iter().map(|alive| alive.div_ceil(LANES)).sum();
    sorted.count.div_ceil(LANES) + rows
}

/// The coder: the states, of which this many vectors take turns, and the bytes that have left them.
pub(super) struct Coder<'o> {
    pub states: [States; VECTORS],
    pub vectors: usize,
    /// How many steps are left.
    pub step: usize,
    /// Bytes are written downward, since those of the last step are read first, up to here.
    pub out: &'o mut [u8],
    pub at: usize,
}

impl Coder<'_> {
    /// Goes to the step before.
    #[inline(always)]
    pub fn back(&mut self) -> usize {
        self.step = self.step.wrapping_sub(1);
        self.step & (self.vectors - 1) & (VECTORS - 1)
    }

    /// Codes symbols into the lanes of half a vector of states, from the last on.
    #[inline(always)]
    fn push(&mut self, vector: usize, half: usize, coding: &Coding, symbols: &[u8]) {
        let States { low, high } = &mut self.states[vector];
        let lanes = |all| <[u8]>::as_chunks_mut::<16>(all).0;
        let (low, high) = (&mut lanes(low)[half], &mut lanes(high)[half]);
        let (out, mut at) = (&mut self.out[..], self.at);
        for (lane, &symbol) in symbols.iter().enumerate().rev() {
            let (low, high) = (&mut low[lane & 15], &mut high[lane & 15]);
            let symbol = usize::from(symbol & 15);
            let share = coding.share[symbol];
            // The lower byte has to leave where the upper one is not below the share. That is hard to foresee, so there is no
            // branch for it.
            let leaves = *high >= share;
            out[at - 1] = *low;
            at -= usize::from(leaves);
            let state = (u16::from(*high) << 8 | u16::from(*low)) >> (8 * u32::from(leaves));
            let quotient = ((u64::from(state) * u64::from(RECIPROCALS[usize::from(share)])) >> 24) as u16;
            let place = (state - quotient * u16::from(share)) as u8;
            *high = quotient as u8;
            *low = coding.slots[usize::from(coding.first[symbol].wrapping_add(place))];
        }
        self.at = at;
    }
}

/// Codes all steps into the states, from the last on.
fn code(classes: &[Blocks; CLASSES], codings: &[ClassCoding; CLASSES], tokens: &[u8], coder: &mut Coder<'_>) {
    for k in (0..64).rev() {
        for (Blocks { sorted, .. }, coding) in classes.iter().zip(codings).rev() {
            let row = &tokens[sorted.rows[k]..][..sorted.alive[k]];
            for (tokens, kinds) in row.chunks(LANES).zip(sorted.halves.chunks(2)).rev() {
                let vector = coder.back();
                for (half, tokens) in tokens.chunks(16).enumerate().rev() {
                    let coding = &coding.tokens[k][usize::from(kinds[half] & 15)];
                    coder.push(vector, half, coding, tokens);
                }
            }
        }
    }
    for (blocks, coding) in classes.iter().zip(codings).rev() {
        for types in blocks.types[..blocks.count].chunks(LANES).rev() {
            let vector = coder.back();
            for (half, types) in types.chunks(16).enumerate().rev() {
                coder.push(vector, half, &coding.types[blocks.choice], types);
            }
        }
    }
}

/// MCU rows of a group, of an image of this many bytes of coded data: as few as are worth it.
pub(super) fn group_rows(frame: &Frame, coded: usize) -> usize {
    let mcu = 8 * frame.v_max;
    let wanted = (ENOUGH * frame.mcus_high).div_ceil(coded.max(1));
    let (least, most) = (PIXEL_ROWS.0 / mcu, PIXEL_ROWS.1 / mcu);
    wanted.clamp(least.max(1), most.max(1)).min(MOST_ROWS)
}

/// The blocks of a class in a group, as they lie in the planes.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    frame: &'a Frame,
    parts: &'a [GroupComponent],
    planes: &'a CoefficientPlanes,
    class: usize,
    /// The first MCU row.
    first: usize,
}

impl Source<'_> {
    /// The parts of the class: each with its component and its first row of blocks.
    #[inline(always)]
    fn parts(&self) -> impl Iterator<Item = (usize, &GroupComponent, usize)> {
        let parts = self.parts.iter().enumerate();
        let own = parts.filter(|(_, part)| part.class == self.class);
        own.map(|(i, part)| (i, part, self.first * self.frame.components()[i].v))
    }

    /// Calls `each` for the blocks in the order of the group, with the masks of coefficients that are not 0 and the
    /// differences of first coefficients.
    #[inline(always)]
    pub fn each(&self, mut each: impl FnMut(&[i16; 64], u64, i16) -> Result<(), Error>) -> Result<(), Error> {
        for (i, part, first) in self.parts() {
            for row in first..first + part.high {
                let mut left = 0i16;
                for column in 0..part.wide {
                    let (values, nonzero) = self.planes.block(i, column, row);
                    if !(-part.most - 1..=part.most).contains(&values[0]) {
                        return Err(too_large());
                    }
                    each(values, nonzero, values[0].wrapping_sub(left))?;
                    left = values[0];
                }
            }
        }
        Ok(())
    }

    /// What [`Source::each`] has at a place of a block, in coding order.
    #[cfg(any(test, target_arch = "x86_64"))]
    pub fn value(&self, block: usize, k: usize) -> i16 {
        let mut at = block;
        for (i, part, first) in self.parts() {
            if at < part.wide * part.high {
                let (row, column) = (first + at / part.wide, at % part.wide);
                let value = |column, k| self.planes.block(i, column, row).0[usize::from(ZIGZAG[k & 63])];
                return match (k, column) {
                    (0, 1..) => value(column, 0).wrapping_sub(value(column - 1, 0)),
                    _ => value(column, k),
                };
            }
            at -= part.wide * part.high;
        }
        0
    }
}

pub(super) fn too_large() -> Error {
    Error::Unsupported(TOO_LARGE.into())
}

impl Blocks {
    /// Collects the blocks, and what they cost; their types are those that cost least by themselves.
    fn collect(&mut self, isa: Isa, source: &Source<'_>, coding: &ClassCoding) -> Result<(), Error> {
        self.costs.clear();
        self.types.clear();
        self.choice = 0;
        match isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves the instructions.
            Isa::Avx2(_) => unsafe {
                self.rows
                    .collect(source, &coding.costs, &mut self.costs, &mut self.types)?;
            },
            _ => self
                .lists
                .collect(source, &coding.costs, &mut self.costs, &mut self.types)?,
        }
        self.count = self.types.len();
        self.types.resize(self.count.next_multiple_of(LANES), 0);
        Ok(())
    }

    /// Chooses the table of types that fits, and types by what they cost with it.
    fn choose(&mut self, isa: Isa, coding: &ClassCoding) {
        let types = &mut self.types[..self.count];
        let more = &coding.type_costs[best_types(&coding.type_bits, &count_types(types))];
        match isa {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: the token proves the instructions.
            Isa::Avx2(_) => unsafe { super::avx2_write::choose(&self.costs, more, types) },
            _ => {
                for (kind, costs) in types.iter_mut().zip(&self.costs) {
                    *kind = costs.least(more);
                }
            }
        }
        self.choice = best_types(&coding.type_bits, &count_types(types));
    }
}

impl Lists {
    fn collect(
        &mut self,
        source: &Source<'_>,
        type_costs: &TypeCosts,
        costs: &mut Vec<OfTypes>,
        types: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.entries.clear();
        self.fields.clear();
        self.ends.clear();
        source.each(|values, nonzero, dc| {
            let begin = self.entries.len();
            self.entries.resize(begin + 64, 0);
            self.fields.resize(begin + 64, 0);
            let entries: &mut [u16; 64] = self.entries[begin..].first_chunk_mut().expect("just made");
            let fields: &mut [u16; 64] = self.fields[begin..].first_chunk_mut().expect("just made");
            let mut count = 0;
            let mut one = |k: usize, value: i16| {
                let magnitude = value.unsigned_abs();
                let token = token(magnitude);
                entries[count & 63] = (SYMBOLS * k + token) as u16;
                // The base of escapes is 0.
                let rest = magnitude - u16::from(BASE[token]);
                fields[count & 63] = rest << 1 | u16::from(value < 0);
                count += 1;
                magnitude
            };
            if dc != 0 {
                one(0, dc);
            }
            let (mut left, mut most) = (nonzero & !1, 0);
            while left != 0 {
                let k = left.trailing_zeros() as usize & 63;
                left &= left - 1;
                most = one(k, values[usize::from(ZIGZAG[k]) & 63]).max(most);
            }
            self.entries.truncate(begin + count);
            self.fields.truncate(begin + count);
            if most > MOST as u16 {
                return Err(too_large());
            }
            let last = 63 - (nonzero | 1).leading_zeros() as usize;
            let of_types = type_costs.of_block(&self.entries[begin..], last);
            self.ends.push(self.entries.len() as u32);
            types.push(of_types.least(&OfTypes([0; SYMBOLS])));
            costs.push(of_types);
            Ok(())
        })
    }

    /// Writes tokens and raw bits to the rows of their coefficients.
    fn spread(&self, sorted: &Sorted, tokens: &mut [u8], fields: &mut [u16]) {
        for k in 0..64 {
            let row = sorted.rows[k]..sorted.row_end(k);
            tokens[row.clone()].fill(0);
            fields[row].fill(0);
        }
        let mut begin = 0;
        for (&end, &slot) in self.ends.iter().zip(&sorted.slots) {
            let own = begin..end as usize;
            begin = own.end;
            for (&entry, &field) in self.entries[own.clone()].iter().zip(&self.fields[own]) {
                let at = sorted.rows[usize::from(entry >> 4) & 63] + usize::from(slot);
                (tokens[at], fields[at]) = ((entry & 15) as u8, field);
            }
        }
    }
}

/// Writes raw bits, and makes escapes of tokens that their tables do not have.
fn raw_bits<'o>(
    classes: &[Blocks; CLASSES],
    codings: &[ClassCoding; CLASSES],
    tokens: &mut [u8],
    fields: &[u16],
    bits: BitSink<'o>,
    extras: &mut Vec<u8>,
) -> BitSink<'o> {
    let mut bits = bits.here();
    let each = (0..64).flat_map(|k| classes.iter().zip(codings).map(move |of_class| (k, of_class)));
    for (k, (Blocks { sorted, .. }, coding)) in each {
        let shares = &coding.shares[k];
        let row = sorted.rows[k]..sorted.rows[k] + sorted.alive[k];
        let chunks = tokens[row.clone()].chunks_mut(16).zip(fields[row].chunks(16));
        for ((tokens, fields), &kind) in chunks.zip(&sorted.halves) {
            let share = &shares[usize::from(kind & 15)];
            if share[0] != 0 && tokens.iter().fold(0, |any, &token| any | token) == 0 {
                continue;
            }
            for (token, &field) in tokens.iter_mut().zip(fields) {
                let old = usize::from(*token & 15);
                let mut field = field;
                if share[old] == 0 {
                    field += u16::from(BASE[old]) << 1;
                    *token = ESCAPE as u8;
                }
                let token = usize::from(*token & 15);
                let count = BITS[token];
                bits.put(u64::from(field) & ((1 << count) - 1), count.into());
                if token == ESCAPE {
                    extras.push((field >> 8) as u8);
                }
            }
        }
    }
    bits
}

/// Bits, the lowest first.
pub(super) struct BitSink<'o> {
    bits: u64,
    /// How many of them there are: fewer than 8.
    count: u32,
    /// Where they will be. What lies there is overwritten, up to eight bytes.
    at: usize,
    out: &'o mut [u8],
}

impl BitSink<'_> {
    /// The same, as a variable of the function that calls this: then it is kept in registers.
    #[inline(always)]
    pub fn here(self) -> Self {
        let BitSink { bits, count, at, out } = self;
        BitSink { bits, count, at, out }
    }

    /// Puts `count` bits, at most 56. Higher ones are 0.
    #[inline(always)]
    pub fn put(&mut self, bits: u64, count: u32) {
        self.bits |= bits << self.count;
        let to = self.out[self.at..].first_chunk_mut();
        *to.expect("room for a byte a token, and some more") = self.bits.to_le_bytes();
        let all = self.count + count;
        self.at += (all >> 3) as usize;
        self.bits >>= all & 56;
        self.count = all & 7;
    }

    /// How many bytes there are.
    fn finish(self) -> usize {
        self.at + usize::from(self.count > 0)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::kernels::tests::{all, best, numbers};
    use crate::packed::{PackSample, class_of};
    use crate::{Decoder, Metadata};
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

    pub const DROP: TranscodeOptions = TranscodeOptions {
        metadata: Metadata::Drop,
    };

    /// A JPEG of this size, for its segments.
    pub fn file(width: usize, height: usize, color: ColorType, sampling: SamplingFactor) -> Vec<u8> {
        let mut file = Vec::new();
        let mut encoder = Encoder::new(&mut file, 90);
        encoder.set_sampling_factor(sampling);
        let pixels = vec![90; 4 * width * height];
        encoder
            .encode(&pixels, width as u16, height as u16, color)
            .expect("a JPEG");
        file
    }

    /// Coefficients of which there are more or fewer, larger or smaller ones; beyond what may be where `wild`.
    pub fn fill(
        planes: &mut CoefficientPlanes,
        head: &Head<'_>,
        wild: bool,
        number: &mut impl FnMut() -> u64,
    ) {
        planes.begin_unset(&head.frame);
        for (i, component) in head.frame.components().iter().enumerate() {
            planes.set_steps(i, &[(number() % 12 + 1) as u16; 64]);
            let (dense, deep) = (number() % 64 + 1, number() % 10);
            for row in 0..component.blocks_high {
                let mut block = || {
                    let mut block = [0i16; 64];
                    let last = (number() % dense) as usize;
                    for k in 0..=last {
                        let magnitude =
                            ((number() % 1024) >> (number() % (deep + 1)).max(number() % 8)) as i16;
                        let sign = if number().is_multiple_of(2) { 1 } else { -1 };
                        if number() % 64 <= dense {
                            block[usize::from(ZIGZAG[k])] = sign * magnitude;
                        }
                    }
                    block[0] = block[0].clamp(-500, 500);
                    if wild && number().is_multiple_of(50) {
                        block[(number() % 64) as usize] =
                            [1024, -1024, 2047, i16::MIN][(number() % 4) as usize];
                    }
                    block
                };
                let blocks: Vec<_> = (0..component.blocks_wide).map(|_| block()).collect();
                let (all, _) = planes.rows_from(&[row; 4]);
                all[i][..blocks.len()].copy_from_slice(&blocks);
            }
        }
    }

    #[test]
    fn all_forms_write_the_same_bytes_for_random_coefficients() {
        let mut number = numbers(11);
        let mut planes = CoefficientPlanes::new(best());
        let mut packers: Vec<Packer> = vec![Packer::new(PackTables::built_in())];
        let (mut written, mut refused) = (0, 0);
        for round in 0..240 {
            let color = [ColorType::Luma, ColorType::Rgb, ColorType::Cmyk][round % 3];
            let sampling = [
                SamplingFactor::F_1_1,
                SamplingFactor::F_2_2,
                SamplingFactor::F_2_1,
            ];
            let (width, height) = (number() % 700 + 1, number() % 150 + 1);
            let file = file(width as usize, height as usize, color, sampling[round / 3 % 3]);
            let head = Head::parse(&file, |_| Ok(())).expect("a JPEG");
            fill(&mut planes, &head, round % 8 == 7, &mut number);
            if round % 12 == 0 && packers.len() < 12 {
                // Tables made for one image lack many tokens that others have, even zeros.
                let mut sample = PackSample::new();
                sample.add(&planes.coefficients(&head));
                packers.push(Packer::new(&sample.train()));
            }
            // Of few and of many vectors of states and rows.
            let coded = ((number() % 200_000) >> (number() % 16)) as usize;
            for packer in &mut packers {
                let mut write = |isa| packer.write(isa, &file, coded, &head, &mut planes, &DROP);
                let plain = write(Isa::Portable);
                for isa in all() {
                    assert!(write(isa) == plain, "round {round}: {isa:?}");
                }
                match plain {
                    Ok(_) => written += 1,
                    Err(_) => refused += 1,
                }
            }
        }
        println!("{written} written, {refused} refused");
        assert!(written > 1000 && refused > 50);
    }

    #[test]
    fn both_forms_write_the_same_bytes_for_images() {
        let folders = ["photos", "clothing/val/shoes"];
        let paths = folders.map(|folder| stokehold_untested::needs::data(folder).unwrap_or_default());
        let mut packer = Packer::new(PackTables::built_in());
        let (mut fast, mut plain) = (Decoder::new(), Decoder::portable());
        for path in paths.iter().flat_map(|paths| paths.iter().take(60)) {
            let file = std::fs::read(path).expect("a file");
            let packed = plain.pack(&file, &mut packer, &DROP).expect("a packed image");
            assert!(
                fast.pack(&file, &mut packer, &DROP) == Ok(packed),
                "{}",
                path.display()
            );
        }
    }

    #[test]
    fn values_are_found_again_by_their_blocks() {
        let file = file(90, 50, ColorType::Rgb, SamplingFactor::F_2_2);
        let head = Head::parse(&file, |_| Ok(())).expect("a JPEG");
        let mut planes = CoefficientPlanes::new(Isa::Portable);
        fill(&mut planes, &head, false, &mut numbers(3));
        let mcu_rows = 1..3;
        let mut parts = [GroupComponent::default(); 4];
        let parts = parts_of(&head.frame, head.color, &[1; 4], &mcu_rows, &mut parts);
        for class in 0..CLASSES {
            let source = Source {
                frame: &head.frame,
                parts,
                planes: &planes,
                class,
                first: mcu_rows.start,
            };
            let mut block = 0;
            let each = source.each(|values, _, first| {
                assert_eq!(source.value(block, 0), first);
                assert!((1..64).all(|k| source.value(block, k) == values[usize::from(ZIGZAG[k])]));
                block += 1;
                Ok(())
            });
            each.expect("values that may be");
            let own = (0..3).filter(|&i| class_of(head.color, i) == class);
            let count: usize = own.map(|i| parts[i].wide * parts[i].high).sum();
            assert_eq!(block, count);
        }
    }

    #[test]
    fn tokens_are_those_of_their_definition() {
        for magnitude in 0..=2047 {
            assert_eq!(token(magnitude), super::super::tokens::token(magnitude));
        }
    }
}
