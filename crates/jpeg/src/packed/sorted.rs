//! The blocks of a class in a group, sorted by type.

use super::LANES;
use super::read::{Fault, GroupComponent, cap};
use super::tables::{CLASSES, Table};
use super::tokens::SYMBOLS;

/// The blocks of a class, sorted by type, those of one type in their order. A place there is a slot.
#[derive(Debug)]
pub(super) struct Sorted {
    pub count: usize,
    /// Of each coefficient, in coding order: how many slots have it, the first ones, and where their row of tokens begins.
    pub alive: [usize; 64],
    pub rows: [usize; 64],
    /// Of each slot its type.
    pub kinds: Vec<u8>,
    /// Of each sixteen slots the type whose tables they use: that of the middle one.
    pub halves: Vec<u8>,
    /// Of each block its slot.
    pub slots: Vec<u16>,
    /// Of each slot its first coefficient, as a difference at first.
    pub dc: Vec<i16>,
}

/// Parts that sorting goes through side by side.
const PARTS: usize = 4;

impl Default for Sorted {
    fn default() -> Sorted {
        Sorted {
            count: 0,
            alive: [0; 64],
            rows: [0; 64],
            kinds: Vec::new(),
            halves: Vec::new(),
            slots: Vec::new(),
            dc: Vec::new(),
        }
    }
}

/// Calls `each` with the part, the number and the type of each block: of one block of each part, then of the next ones. The last part
/// may have some more.
#[inline(always)]
fn in_parts(types: &[u8], mut each: impl FnMut(usize, usize, usize)) {
    let length = types.len() / PARTS;
    for i in 0..length {
        for part in 0..PARTS {
            let block = part * length + i;
            each(part, block, usize::from(types[block] & 15));
        }
    }
    for (block, &kind) in types.iter().enumerate().skip(PARTS * length) {
        each(PARTS - 1, block, usize::from(kind & 15));
    }
}

impl Sorted {
    pub fn begin(&mut self, count: usize) {
        self.count = count;
        (self.alive, self.rows) = ([0; 64], [0; 64]);
        self.dc.clear();
    }

    /// Sorts blocks by their types.
    pub fn sort(&mut self, types: &[u8]) {
        let count = self.count;
        // In four parts, each with counters of its own: neighbours are often of one type, and would wait for each other's.
        let mut next = [[0u16; SYMBOLS]; PARTS];
        in_parts(types, |part, _, kind| next[part][kind] += 1);
        let (mut begin, mut ends) = (0, [0; SYMBOLS]);
        for (kind, end) in ends.iter_mut().enumerate() {
            for next in &mut next {
                (next[kind], begin) = (begin, begin + next[kind]);
            }
            *end = usize::from(begin);
        }
        // No type after another one goes farther.
        let mut kind = SYMBOLS - 1;
        for k in 0..64 {
            while kind > 0 && cap(kind as u8) < k {
                kind -= 1;
            }
            self.alive[k] = ends[kind];
        }
        let room = count.next_multiple_of(LANES);
        if self.slots.len() < room {
            self.slots.resize(room, 0);
            self.kinds.resize(room, 0);
        }
        let slots = &mut self.slots[..count];
        in_parts(types, |part, block, kind| {
            let place = &mut next[part][kind];
            slots[block] = *place;
            *place += 1;
        });
        let mut first = 0;
        for (kind, end) in (0..).zip(ends) {
            self.kinds[first..end].fill(kind);
            first = end;
        }
        self.halves.clear();
        let halves = self.kinds[..count].chunks(16);
        self.halves.extend(halves.map(|half| half[half.len() / 2]));
        if self.halves.len() % 2 == 1 {
            self.halves.push(0);
        }
    }

    /// Lays out the rows of all classes in the order of the steps: of each coefficient those of one class after the other.
    pub fn lay_out(mut classes: [&mut Sorted; CLASSES]) {
        let mut at = 0;
        for k in 0..64 {
            for sorted in &mut classes {
                sorted.rows[k] = at;
                at = sorted.row_end(k);
            }
        }
    }

    /// The tables of each 32 slots, of those of a coefficient.
    #[inline(always)]
    pub fn tables<'t>(&self, tables: &'t [Table; SYMBOLS]) -> impl Iterator<Item = [&'t Table; 2]> {
        let halves = self.halves.as_chunks::<2>().0.iter();
        halves.map(|halves| halves.map(|kind| &tables[usize::from(kind & 15)]))
    }

    /// Where the row of a coefficient ends, filled up to whole vectors.
    pub fn row_end(&self, k: usize) -> usize {
        self.rows[k] + self.alive[k].next_multiple_of(LANES)
    }

    /// Makes first coefficients of the differences from the block to the left, in rows of each part.
    pub fn sum_dc<'a>(&mut self, parts: impl Iterator<Item = &'a GroupComponent>) -> Result<(), Fault> {
        let mut first = 0;
        for part in parts {
            let all = &self.slots[first..first + part.wide * part.high];
            first += all.len();
            let (mut least, mut most) = (0, 0);
            for row in all.chunks(part.wide.max(1)) {
                let mut last = 0i16;
                for &slot in row {
                    let dc = &mut self.dc[usize::from(slot)];
                    last = last.wrapping_add(*dc);
                    *dc = last;
                    (least, most) = (last.min(least), last.max(most));
                }
            }
            if least < -part.most - 1 || most > part.most {
                return Err("a first coefficient that 8-bit samples cannot give");
            }
        }
        Ok(())
    }
}
