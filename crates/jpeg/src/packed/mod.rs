//! The packed form of a JPEG: the same coefficients, coded so that they are read two to three times as fast, in about nine
//! tenths of the bytes.
//!
//! Huffman codes cost some eight cycles a symbol, one after the other. Here 32 symbols are read at once, by asymmetric numeral
//! systems whose tables fit a byte shuffle. `docs/reference/packed-format.md` has the format byte by byte; this is how it works.
//!
//! * A coefficient is one of 16 *tokens* ([`tokens`]), which say its magnitude up to a few raw bits.
//! * A block is one of 16 *types*. A type says up to which coefficient the block has tokens, and which distributions they
//!   have: one a type, coefficient and class of components. The writer takes the type under which the block is shortest.
//! * A *group* is some rows of MCUs that are read alone. Its blocks are sorted by type ([`sorted`]), and for each coefficient
//!   there are the tokens of all blocks that go as far, 32 a step. Sixteen of them use the tables of one type, that of
//!   the middle one.
//! * *Tables* ([`tables`]) are distributions in 256ths, laid out for the alias method: what a slot means is in four vectors of 16
//!   bytes. They are not in the file: it names the ones it needs. [`train`] adapts them to a data set.
//! * The *coder* has states of 16 bits in 32 lanes, kept as lower and upper bytes. The lower byte is the slot. A lane takes at
//!   most one byte a step. Up to four vectors of lanes take turns, so that steps do not wait for each other. Writing begins with
//!   raw bits in the states; reading must end with upper bytes of 1, which finds nearly all damage of the coder's bytes. That of
//!   raw bits, some three tenths of all, it does not find, nor what is behind the coefficients that a small image needs.
//!
//! Reading has the stages: types, sorting, tokens ([`read`]), raw bits to values ([`fields`]), rows of values to blocks
//! ([`blocks`]). Each has a portable form, which is its definition, and forms for AVX2, AVX-512 and NEON. Where planes of samples are
//! wanted at full size, the two for x86 transform rows of values as they are, with blocks as lanes ([`lanes`]). Where blocks
//! become one sample each, only first coefficients are read, which come first. The writer has forms for x86 only.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx2_lanes;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2_write;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "x86_64")]
mod avx512_write;
mod blocks;
mod costs;
mod fields;
mod file;
mod groups;
#[cfg_attr(
    not(target_arch = "x86_64"),
    allow(
        dead_code,
        unused_variables,
        reason = "only forms for instructions of x86 transform so"
    )
)]
mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod read;
mod sorted;
mod tables;
#[cfg(test)]
mod tests;
mod tokens;
mod train;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod vectors;
mod write;

pub use file::is_packed;
pub use groups::{PackedComponent, PackedGroup, PackedGroups};
pub use tables::{PackTables, SymbolTables, Table as SymbolTable};
pub use tokens::{BITS as TOKEN_BITS, CAPS as TYPE_CAPS};
pub use train::PackSample;
pub use write::Packer;

pub(crate) use file::{Packed, segments};

use crate::frame::Frame;
use crate::header::Head;
use crate::input::Input;
use crate::kernels::Isa;
use crate::planes::CoefficientPlanes;
use crate::region::needed_mcus;
use crate::strips::Strips;
use crate::tables::Tables;
use crate::{ColorModel, Error};
use blocks::Outs;
use lanes::WholePlanes;
use read::{GroupComponent, GroupReader};
use std::ops::Range;
use std::sync::Arc;
use tables::CLASSES;
use tokens::MOST;

/// Lanes of a step of a packed image's coder.
pub const LANES: usize = 32;
/// Blocks of a class in a group, at most.
const MOST_BLOCKS: usize = u16::MAX as usize;
/// Vectors of states of a packed image's coder, at most; each has [`LANES`](crate::PACKED_LANES) of them.
pub const VECTORS: usize = 4;

/// The class of a component: chrominance is 1, everything else 0.
fn class_of(color: ColorModel, component: usize) -> usize {
    match color {
        ColorModel::YCbCr | ColorModel::Ycck => usize::from(matches!(component, 1 | 2)),
        ColorModel::Grey | ColorModel::Rgb | ColorModel::Cmyk => 0,
    }
}

/// The blocks that each component has in some MCU rows, without those that fill up MCUs.
fn parts_of<'p>(
    frame: &Frame,
    color: ColorModel,
    steps: &[u16; 4],
    mcu_rows: &Range<usize>,
    parts: &'p mut [GroupComponent; 4],
) -> &'p [GroupComponent] {
    for (i, (component, part)) in frame.components().iter().zip(parts.iter_mut()).enumerate() {
        let end = (mcu_rows.end * component.v).min(component.blocks_high);
        *part = GroupComponent {
            class: class_of(color, i),
            wide: component.blocks_wide,
            high: end.saturating_sub(mcu_rows.start * component.v),
            most: most_first(steps[i]),
        };
    }
    &parts[..frame.components().len()]
}

/// The largest first coefficient of blocks with this first step: what 8-bit samples can give, and no more than what comes to 8191
/// by its step. Beyond that the transforms of a flat block and of another one differ.
fn most_first(step: u16) -> i16 {
    (8191 / step.max(1)).min(MOST as u16) as i16
}

/// Whether this processor has the instructions with which packed images are known to be read faster than JPEGs: AVX2. With NEON
/// they take about as many instructions as JPEGs, and no ARM processor has been timed.
pub fn packed_is_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    return matches!(Isa::detect(), Isa::Avx2(_));
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Reads packed images; keeps its buffers and the tables it used last.
#[derive(Default)]
pub(crate) struct Reader {
    tables: LastTables,
    groups: Vec<Range<usize>>,
    found: Vec<PackedGroup>,
    reader: GroupReader,
    blocks: Vec<[i16; 64]>,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let id = self.tables.tables.as_ref().map(|tables| tables.id);
        f.debug_struct("Reader")
            .field("tables", &id)
            .finish_non_exhaustive()
    }
}

impl Reader {
    /// Makes what the region of `strips` needs.
    pub fn decode(
        &mut self,
        input: Input<'_>,
        packed: &Packed<'_>,
        head: &Head<'_>,
        quantisation: &Tables,
        strips: &mut Strips,
        isa: Isa,
    ) -> Result<(), Error> {
        let frame = &head.frame;
        let components = frame.components();
        let mut first_steps = [0; 4];
        for (i, component) in components.iter().enumerate() {
            let steps = quantisation.quantisation(component.quantisation, head.scan.at)?;
            first_steps[i] = steps[0];
            strips.strip(i).set_steps(&steps);
        }
        let needed = strips.needed();
        // Classes of which all that counts are first coefficients, since each block becomes one sample. The transforms to four
        // and to sixteen samples look at the corners of blocks, too, so they need everything.
        let mut flat = [true; CLASSES];
        for i in 0..components.len() {
            flat[class_of(head.color, i)] &= strips.strip(i).is_flat();
        }
        let (_, rows) = needed_mcus(frame, &needed[..components.len()]);
        if let Some(mut planes) = WholePlanes::of(strips, head.color, isa) {
            return self.each_group(
                input,
                packed,
                head,
                (isa, &first_steps),
                (&rows, false),
                |reader, _, parts, mcu_rows| {
                    let first_rows: [usize; 4] =
                        std::array::from_fn(|i| components.get(i).map_or(0, |c| c.v * mcu_rows.start));
                    reader.samples(isa, parts, &first_rows, &mut planes);
                    Ok(())
                },
            );
        }
        self.each_group(
            input,
            packed,
            head,
            (isa, &first_steps),
            (&rows, flat == [true; CLASSES]),
            |reader, room, parts, mcu_rows| {
                let mut blocks: Outs<'_> = Default::default();
                divide(room, parts, &mut blocks);
                reader.blocks(
                    isa,
                    parts,
                    flat.map(|flat| !flat),
                    &std::array::from_fn(|i| parts.get(i).map_or(0, |part| part.wide)),
                    &mut blocks,
                );
                for mcu_row in mcu_rows.start.max(rows.start)..mcu_rows.end.min(rows.end) {
                    for (i, component) in components.iter().enumerate() {
                        let (part, strip) = (&parts[i], strips.strip(i));
                        let own_blocks = reader.part(parts, i);
                        let own =
                            mcu_row * component.v..((mcu_row + 1) * component.v).min(component.blocks_high);
                        for row in own.clone().filter(|row| needed[i].rows.contains(row)) {
                            let first = (row - mcu_rows.start * component.v) * part.wide;
                            for column in needed[i].columns.clone() {
                                let (at, row) = (first + column, row - own.start);
                                if flat[part.class] {
                                    strip.push_flat(own_blocks.first(at), column, row);
                                    continue;
                                }
                                let block = &blocks[i][at];
                                strip.block().0[..64].copy_from_slice(block);
                                strip.push(own_blocks.count(at, block), column, row);
                            }
                        }
                    }
                    strips.complete(mcu_row);
                }
                Ok(())
            },
        )
    }

    /// Reads the coefficients of the whole image.
    pub fn coefficients(
        &mut self,
        input: Input<'_>,
        packed: &Packed<'_>,
        head: &Head<'_>,
        quantisation: &Tables,
        planes: &mut CoefficientPlanes,
        isa: Isa,
    ) -> Result<(), Error> {
        let frame = &head.frame;
        planes.begin_unset(frame);
        let mut first_steps = [0; 4];
        for (i, component) in frame.components().iter().enumerate() {
            let steps = quantisation.quantisation(component.quantisation, head.scan.at)?;
            first_steps[i] = steps[0];
            planes.set_steps(i, &steps);
        }
        let all = 0..frame.mcus_high;
        self.each_group(
            input,
            packed,
            head,
            (isa, &first_steps),
            (&all, false),
            |reader, _, parts, mcu_rows| {
                let first_rows =
                    std::array::from_fn(|i| mcu_rows.start * frame.components().get(i).map_or(0, |c| c.v));
                let (mut blocks, strides) = planes.rows_from(&first_rows);
                reader.blocks(isa, parts, [true; CLASSES], &strides, &mut blocks);
                Ok(())
            },
        )
    }

    /// Reads every group that holds any of some MCU rows, or its first coefficients alone, and hands it on with its parts and
    /// its MCU rows.
    fn each_group(
        &mut self,
        input: Input<'_>,
        packed: &Packed<'_>,
        head: &Head<'_>,
        (isa, steps): (Isa, &[u16; 4]),
        (rows, only_first): (&Range<usize>, bool),
        mut each: impl FnMut(
            &mut GroupReader,
            &mut Vec<[i16; 64]>,
            &[GroupComponent],
            Range<usize>,
        ) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let frame = &head.frame;
        let high = packed.groups(frame, &mut self.groups)?;
        let tables = self.tables.prepare(packed.tables, input.tables)?;
        for number in rows.start / high..rows.end.div_ceil(high) {
            let mcu_rows = number * high..((number + 1) * high).min(frame.mcus_high);
            let mut parts = [GroupComponent::default(); 4];
            let parts = parts_of(frame, head.color, steps, &mcu_rows, &mut parts);
            let place = (number, self.groups[number].clone());
            self.reader
                .read(isa, tables, input.bytes, place, parts, only_first)?;
            each(&mut self.reader, &mut self.blocks, parts, mcu_rows)?;
        }
        Ok(())
    }
}

/// The tables that were used last, and the bytes of those that were given.
#[derive(Default)]
struct LastTables {
    tables: Option<Arc<SymbolTables>>,
    given: Vec<u8>,
}

impl LastTables {
    /// The tables `id`: the built-in ones if it is theirs, else those that were given, whatever was used before.
    fn prepare(&mut self, id: u32, given: Option<&[u8]>) -> Result<&Arc<SymbolTables>, Error> {
        let built_in = PackTables::built_in();
        let given = match given {
            _ if built_in.id() == id => &[],
            Some(given) => given,
            None => {
                return Err(Error::Tables(format!(
                    "{id:08x} are needed, and there are none: those of its shard are damaged, or it was taken out of its shard"
                )));
            }
        };
        // To compare all bytes takes a microsecond.
        let known = self.tables.as_ref().is_some_and(|tables| tables.id == id) && self.given == given;
        if !known {
            self.tables = None;
            let tables = match built_in.id() == id {
                true => SymbolTables::new(built_in),
                false => SymbolTables::new(&PackTables::parse(given)?),
            };
            if tables.id != id {
                return Err(Error::Tables(format!(
                    "{id:08x} are needed, and {:08x} were given: the image comes from another shard",
                    tables.id
                )));
            }
            self.tables = Some(Arc::new(tables));
            self.given.clear();
            self.given.extend(given);
        }
        Ok(self.tables.as_ref().expect("tables that were just made"))
    }
}

/// Divides room into that of parts.
fn divide<'r>(room: &'r mut Vec<[i16; 64]>, parts: &[GroupComponent], blocks: &mut Outs<'r>) {
    let count: usize = parts.iter().map(|part| part.wide * part.high).sum();
    if room.len() < count {
        room.resize(count, [0; 64]);
    }
    let mut rest = room.as_mut_slice();
    for (blocks, part) in blocks.iter_mut().zip(parts) {
        (*blocks, rest) = rest.split_at_mut(part.wide * part.high);
    }
}
