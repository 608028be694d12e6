//! The groups of a packed image, unchanged, for decoding elsewhere.

use super::read::{Fault, GroupComponent, Places, TOO_MANY};
use super::tables::{CLASSES, SymbolTables};
use super::{MOST_BLOCKS, Reader, parts_of};
use crate::blocks::PlaneLayout;
use crate::frame::Frame;
use crate::header::Head;
use crate::input::Input;
use crate::packed::{Packed, class_of};
use crate::region::needed_mcus;
use crate::strips::Strips;
use crate::tables::Tables;
use crate::{ColorModel, Error};
use std::sync::Arc;

/// The groups that a region of a packed image depends on, before any symbol is read; borrowed from the
/// [`Decoder`](crate::Decoder) that found them. `docs/reference/packed-format.md` says how they are read.
#[derive(Debug, Clone, Copy)]
pub struct PackedGroups<'a> {
    /// What the components mean.
    pub color: ColorModel,
    /// The groups that hold anything needed, in their order, which is that of their bytes.
    pub groups: &'a [PackedGroup],
    /// The tables that they are read with. A decoder gives the same ones as long as images name the same.
    pub tables: &'a Arc<SymbolTables>,
    /// Whether each block becomes one sample, so that only first coefficients count.
    pub only_first: bool,
    components: [PackedComponent; 4],
    count: usize,
}

impl PackedGroups<'_> {
    /// The components, in their order: 1, 3 or 4.
    pub fn components(&self) -> &[PackedComponent] {
        &self.components[..self.count]
    }
}

/// A component's blocks that are needed.
#[derive(Debug, Clone, Copy)]
pub struct PackedComponent {
    /// Where the needed blocks and the samples that become of them lie.
    pub layout: PlaneLayout,
    /// The first needed block's column and row among all blocks of the component.
    pub first_block: (u32, u32),
    /// The quantisation steps, as those of [`ComponentBlocks`](crate::ComponentBlocks).
    pub steps: [i16; 64],
    /// Its class: 1 for chrominance, 0 for everything else.
    pub class: usize,
    /// Blocks a row, of the whole image.
    pub blocks_wide: u32,
    /// The largest first coefficient; the least one is `-most - 1`.
    pub most: i16,
}

/// Where a group's parts are, and which blocks it holds. The parts lie one after the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PackedGroup {
    /// The first byte of the states, counted from the image's first byte.
    pub begin: usize,
    /// Vectors of states: 1, 2 or 4. They have 64 bytes each.
    pub vectors: usize,
    /// How many of the coder's bytes follow.
    pub coded: usize,
    /// How many raw bytes follow.
    pub raw: usize,
    /// How many extra bytes follow.
    pub extras: usize,
    /// Which table of types each class uses, 0 to 7.
    pub type_tables: [usize; 2],
    /// Of each component its first row of blocks in the group, and how many rows.
    pub rows: [(u32, u32); 4],
}

impl PackedGroup {
    /// The end of its last byte, counted from the image's first byte.
    pub fn end(&self) -> usize {
        self.begin + 64 * self.vectors + self.coded + self.raw + self.extras
    }
}

impl Reader {
    /// Finds the groups of the region that `strips` was begun with.
    pub fn find<'d>(
        &'d mut self,
        input: Input<'_>,
        packed: &Packed<'_>,
        head: &Head<'_>,
        quantisation: &Tables,
        strips: &mut Strips,
    ) -> Result<PackedGroups<'d>, Error> {
        let frame = &head.frame;
        let mut first_steps = [0; 4];
        for (i, component) in frame.components().iter().enumerate() {
            let steps = quantisation.quantisation(component.quantisation, head.scan.at)?;
            first_steps[i] = steps[0];
            strips.strip(i).set_steps(&steps);
        }
        let count = frame.components().len();
        let needed = strips.needed();
        let only_first = (0..count).all(|i| strips.strip(i).is_flat());
        let (_, rows) = needed_mcus(frame, &needed[..count]);
        let high = packed.groups(frame, &mut self.groups)?;
        self.found.clear();
        let mut parts = [GroupComponent::default(); 4];
        for number in rows.start / high..rows.end.div_ceil(high) {
            let mcu_rows = number * high..((number + 1) * high).min(frame.mcus_high);
            let parts = parts_of(frame, head.color, &first_steps, &mcu_rows, &mut parts);
            let place = self.groups[number].clone();
            let bytes = input.bytes.get(place.clone()).unwrap_or_default();
            let group = found(bytes, parts).map_err(|fault| {
                Error::corrupt(
                    place.start,
                    format!("{fault} in group {number} of a packed image"),
                )
            })?;
            self.found.push(PackedGroup {
                begin: place.start + group.begin,
                rows: rows_of(frame, parts, mcu_rows.start),
                ..group
            });
        }
        let tables = self.tables.prepare(packed.tables, input.tables)?;
        let mut components = [PackedComponent {
            layout: PlaneLayout::default(),
            first_block: (0, 0),
            steps: [0; 64],
            class: 0,
            blocks_wide: 0,
            most: 0,
        }; 4];
        let kept = strips.blocks();
        for (i, (component, kept)) in frame.components().iter().zip(kept.components()).enumerate() {
            components[i] = PackedComponent {
                layout: kept.layout,
                first_block: (needed[i].columns.start as u32, needed[i].rows.start as u32),
                steps: kept.steps,
                class: class_of(head.color, i),
                blocks_wide: component.blocks_wide as u32,
                most: super::most_first(first_steps[i]),
            };
        }
        Ok(PackedGroups {
            color: head.color,
            groups: &self.found,
            tables,
            only_first,
            components,
            count,
        })
    }
}

/// The parts of a group, counted from its first byte.
fn found(bytes: &[u8], parts: &[GroupComponent]) -> Result<PackedGroup, Fault> {
    for class in 0..CLASSES {
        let own = parts.iter().filter(|part| part.class == class);
        if own.map(|part| part.wide * part.high).sum::<usize>() > MOST_BLOCKS {
            return Err(TOO_MANY);
        }
    }
    let places = Places::parse(bytes)?;
    Ok(PackedGroup {
        begin: places.states,
        vectors: places.vectors,
        coded: places.coded,
        raw: places.raw,
        extras: places.extras,
        type_tables: places.type_tables,
        rows: [(0, 0); 4],
    })
}

fn rows_of(frame: &Frame, parts: &[GroupComponent], first: usize) -> [(u32, u32); 4] {
    let mut rows = [(0, 0); 4];
    for (rows, (component, part)) in rows.iter_mut().zip(frame.components().iter().zip(parts)) {
        *rows = ((first * component.v) as u32, part.high as u32);
    }
    rows
}
