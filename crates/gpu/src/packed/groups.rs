//! The groups of a batch in the kernels' layout.

use super::kernels::{
    BLOCKS, CODED, EXTRA_BYTES, GROUP_SIZE, IMAGE, LAST, OF_STATES, OF_TYPES, PART_SIZE, PARTS, RAW_BYTES,
    SCRATCH, STATES, SYMBOLS, TABLES, TOKEN_TABLES, TYPE_TABLES, scratch_size,
};
use crate::words::Words;
use std::ops::Range;
use std::sync::Arc;
use stokehold_jpeg::{PackedGroups, SymbolTable, SymbolTables};

/// The tables of packed images, for the device and for a second try on the CPU.
#[derive(Debug)]
pub(crate) struct DeviceTables {
    /// What the words were made of.
    symbols: Arc<SymbolTables>,
    /// The bytes that were given with an image.
    pub given: Option<Vec<u8>>,
    words: Vec<u32>,
}

impl DeviceTables {
    /// Those of an image, which gave `given`; `known` if they are the same.
    pub fn of(
        symbols: &Arc<SymbolTables>,
        given: Option<&[u8]>,
        known: Option<&Arc<DeviceTables>>,
    ) -> Arc<DeviceTables> {
        match known {
            Some(known) if Arc::ptr_eq(&known.symbols, symbols) && known.given.as_deref() == given => {
                known.clone()
            }
            _ => Arc::new(DeviceTables {
                words: symbols.tokens().chain(symbols.types()).flat_map(bins).collect(),
                symbols: symbols.clone(),
                given: given.map(<[u8]>::to_vec),
            }),
        }
    }
}

/// A word a bin.
fn bins(table: &SymbolTable) -> [u32; SYMBOLS as usize] {
    std::array::from_fn(|bin| {
        let own = table.share[bin];
        let (divider, alias, offset) = match table.divider[bin] {
            16 => (0, bin as u8, 0),
            divider => (divider, table.alias[bin], table.offset[bin]),
        };
        u32::from_le_bytes([divider | alias << 4, offset, own, table.share[usize::from(alias)]])
    })
}

/// The groups of one image.
#[derive(Debug)]
pub(crate) struct Groups {
    tables: Arc<DeviceTables>,
    /// The image, and where its groups are in it.
    image: Arc<[u8]>,
    bytes: Range<usize>,
    /// The groups' words, except those that depend on the batch: places of bytes are counted from the first of `bytes`, first
    /// needed blocks are left out, and distributions of types are numbers.
    records: Vec<[u32; GROUP_SIZE as usize]>,
    /// The components in the order of parts.
    order: [usize; 4],
}

impl Groups {
    pub fn new(groups: &PackedGroups<'_>, image: Arc<[u8]>, tables: Arc<DeviceTables>) -> Groups {
        let components = groups.components();
        let of_class = |class| (0..components.len()).filter(move |&i| components[i].class == class);
        let mut order = [usize::MAX; 4];
        for (place, component) in order.iter_mut().zip(of_class(0).chain(of_class(1))) {
            *place = component;
        }
        let begin = groups.groups.first().map_or(0, |group| group.begin);
        let end = groups.groups.last().map_or(0, |group| group.end());
        let records = groups.groups.iter().map(|group| {
            let mut words = [0; GROUP_SIZE as usize];
            words[STATES as usize] = (group.begin - begin) as u32;
            words[CODED as usize] = group.coded as u32;
            words[RAW_BYTES as usize] = group.raw as u32;
            words[EXTRA_BYTES as usize] = group.extras as u32;
            words[OF_STATES as usize] = group.vectors as u32;
            words[LAST as usize] = if groups.only_first { 0 } else { 63 };
            let mut before = 0;
            for (&index, part) in order.iter().zip(parts(&mut words)) {
                let Some(component) = components.get(index) else {
                    break;
                };
                let ((first_row, rows), wide) = (group.rows[index], component.blocks_wide);
                let (column, row) = component.first_block;
                let (needed, high) = (component.layout.blocks_wide, component.layout.blocks_high);
                *part = [
                    before,
                    wide,
                    rows,
                    0,
                    column,
                    needed,
                    row.wrapping_sub(first_row),
                    high,
                    i32::from(component.most) as u32,
                ];
                before += rows * wide;
            }
            for class in 0..2 {
                let rows = of_class(class).map(|i| group.rows[i].1 * components[i].blocks_wide);
                words[BLOCKS as usize + class] = rows.sum();
                words[OF_TYPES as usize + class] = group.type_tables[class] as u32;
            }
            words
        });
        Groups {
            tables,
            image,
            bytes: begin..end,
            records: records.collect(),
            order,
        }
    }

    /// The number of words in a batch, without tables.
    pub fn words(&self) -> usize {
        self.bytes.len() / 4 + self.records.len() * GROUP_SIZE as usize
    }

    pub fn tables(&self) -> &DeviceTables {
        &self.tables
    }
}

/// The parts of a group's words.
fn parts(words: &mut [u32; GROUP_SIZE as usize]) -> &mut [[u32; PART_SIZE as usize]] {
    words[PARTS as usize..].as_chunks_mut().0
}

/// The groups of a batch. The words of the batch have their bytes and tables; this has the parameters of all of them
/// together.
#[derive(Debug, Default)]
pub(crate) struct GroupsOfBatch {
    /// Tables added so far, and their places.
    known: Vec<(Arc<DeviceTables>, u32)>,
    records: Vec<[u32; GROUP_SIZE as usize]>,
    /// Words of scratch memory.
    pub scratch: u64,
}

impl GroupsOfBatch {
    /// Adds the groups of the image `number`, whose components' blocks begin at `first_blocks` among all blocks of the
    /// batch.
    pub fn push(&mut self, words: &mut Words, groups: &Groups, first_blocks: &[u32], number: u32) {
        // A batch with more bytes than 32 bits can count is rejected before anything is launched.
        let begin = words.here().wrapping_mul(4);
        words.bytes(&groups.image[groups.bytes.clone()]);
        let tables = self.tables(words, &groups.tables);
        for record in &groups.records {
            let mut record = *record;
            record[STATES as usize] = record[STATES as usize].wrapping_add(begin);
            record[TABLES as usize] = tables;
            record[IMAGE as usize] = number;
            record[SCRATCH as usize] = self.scratch as u32;
            for class in 0..2 {
                let choice = &mut record[OF_TYPES as usize + class];
                *choice = tables + SYMBOLS * (TOKEN_TABLES + TYPE_TABLES * class as u32 + *choice);
            }
            for (&index, part) in groups.order.iter().zip(parts(&mut record)) {
                part[3] = first_blocks.get(index).copied().unwrap_or(0);
            }
            let blocks = [record[BLOCKS as usize], record[BLOCKS as usize + 1]];
            self.scratch += u64::from(scratch_size(blocks));
            self.records.push(record);
        }
    }

    /// The place of tables.
    fn tables(&mut self, words: &mut Words, tables: &Arc<DeviceTables>) -> u32 {
        let same = |known: &&(Arc<DeviceTables>, u32)| Arc::ptr_eq(&known.0, tables);
        if let Some(&(_, at)) = self.known.iter().find(same) {
            return at;
        }
        // Each worker has its own.
        let equal = self.known.iter().find(|known| known.0.words == tables.words);
        let at = equal.map_or_else(|| words.here(), |known| known.1);
        if equal.is_none() {
            words.copy(&tables.words);
        }
        self.known.push((tables.clone(), at));
        at
    }

    /// Adds the records of all groups to the words. Returns their place.
    pub fn place(&self, words: &mut Words) -> u32 {
        words.records(&self.records)
    }

    /// The number of groups.
    pub fn count(&self) -> usize {
        self.records.len()
    }

    /// Bytes on the device: of words still to be placed, and of the scratch memory.
    pub fn pieces(&self) -> [u64; 2] {
        [(self.records.len() * GROUP_SIZE as usize) as u64, self.scratch].map(|words| 4 * words)
    }
}
