//! The blocks of a class in a group, sorted by type.

use super::LANES;
use super::read::{Fault, Part, cap};
use super::tables::CLASSES;
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

impl Sorted {
    pub fn begin(&mut self, count: usize) {
        self.count = count;
        (self.alive, self.rows) = ([0; 64], [0; 64]);
        self.dc.clear();
    }

    /// Sorts blocks by their types.
    pub fn sort(&mut self, types: &[u8]) {
        let count = self.count;
        let mut next = [0u16; SYMBOLS];
        types.iter().for_each(|&kind| next[usize::from(kind & 15)] += 1);
        let mut sum = 0;
        let ends = next.map(|count| {
            sum += usize::from(count);
            sum
        });
        let mut begin = 0;
        for next in &mut next {
            (*next, begin) = (begin, begin + *next);
        }
        // No type behind another one goes farther.
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
        for (&kind, slot) in types.iter().zip(&mut self.slots) {
            let place = &mut next[usize::from(kind & 15)];
            *slot = *place;
            self.kinds[usize::from(*place)] = kind & 15;
            *place += 1;
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

    /// Where the row of a coefficient ends, filled up to whole vectors.
    pub fn row_end(&self, k: usize) -> usize {
        self.rows[k] + self.alive[k].next_multiple_of(LANES)
    }

    /// Makes first coefficients of the differences from the block to the left, in rows of each part.
    pub fn sum_dc<'a>(&mut self, parts: impl Iterator<Item = &'a Part>) -> Result<(), Fault> {
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
