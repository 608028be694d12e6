//! Tables made for some images.
//!
//! Types and tables by turns (Lloyd's method): blocks take the types that cost least under the present tables, then tables
//! become what the types' blocks hold.

use super::costs::{OfTypes, TypeCosts};
use super::tables::{CLASSES, ClassTables, Distribution, PackTables, TOKEN_TABLES, TYPE_TABLES};
use super::tokens::{BITS, CAPS, ESCAPE, SYMBOLS, token};
use super::write::{best_types, count_types};
use crate::Coefficients;
use crate::block::ZIGZAG;

/// Rounds of a training from nothing, and of an adaptation.
const ROUNDS: (usize, usize) = (8, 2);
/// The first rounds of a training from nothing: blocks count for the tables of their own types, so that types come apart.
/// Later ones count for those that are used, of the middle one of sixteen.
const OWN_TABLES: usize = 3;
/// How many tokens of each table the tables to begin with count for.
const PRIOR: u32 = 256;
/// Rounds of clustering groups by their types.
const TYPE_ROUNDS: usize = 8;
/// Below this many tokens a table takes in those of the one before it.
const FEW: u32 = 200;
/// A symbol of a smaller part than this, in 256ths, has no share.
const LEAST: f64 = 0.3;

/// Coefficients of some images, which tables are [adapted](PackSample::adapt) to.
///
/// Some fifty images are enough: they give tables within half a percent of the best for a data set of their kind.
#[derive(Debug, Default, Clone)]
pub struct PackSample {
    classes: [Sample; CLASSES],
}

/// The blocks of a class.
#[derive(Debug, Default, Clone)]
struct Sample {
    /// Tokens that are not 0, as `16 * k + token`.
    entries: Vec<u16>,
    blocks: Vec<Block>,
    /// Where the blocks of each group end.
    groups: Vec<usize>,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    begin: u32,
    count: u8,
    /// The last coefficient that is not 0.
    last: u8,
}

impl PackSample {
    /// Of no image.
    pub fn new() -> PackSample {
        PackSample::default()
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.classes.iter().all(|class| class.blocks.is_empty())
    }

    /// Takes in an image.
    pub fn add(&mut self, image: &Coefficients<'_>) {
        let components = image.components();
        let v_max = components
            .iter()
            .map(|c| usize::from(c.sampling.1))
            .max()
            .unwrap_or(1);
        let high = (image.height as usize).div_ceil(8 * v_max);
        let rows = (32 / (8 * v_max)).max(1);
        for first in (0..high).step_by(rows) {
            for (i, component) in components.iter().enumerate() {
                let class = &mut self.classes[super::class_of(image.color, i)];
                let v = usize::from(component.sampling.1);
                for y in first * v..((first + rows) * v).min(component.blocks_high) {
                    class.row(component.row(y));
                }
            }
            for class in &mut self.classes {
                if class.groups.last().copied().unwrap_or(0) < class.blocks.len() {
                    class.groups.push(class.blocks.len());
                }
            }
        }
    }

    /// Tables for images like these: those to begin with, moved by what the images hold.
    pub fn adapt(&self, from: &PackTables) -> PackTables {
        PackTables::new(std::array::from_fn(|class| {
            self.classes[class].train(Some(&from.classes[class]))
        }))
    }

    /// Tables from nothing, for many images of all kinds.
    pub fn train(&self) -> PackTables {
        PackTables::new(std::array::from_fn(|class| self.classes[class].train(None)))
    }
}

impl Sample {
    fn row(&mut self, blocks: &[[i16; 64]]) {
        let mut left = 0i16;
        for block in blocks {
            let (begin, mut last) = (self.entries.len(), 0);
            let dc = block[0].wrapping_sub(left);
            left = block[0];
            for k in 0..64 {
                let value = if k == 0 { dc } else { block[usize::from(ZIGZAG[k])] };
                if value != 0 {
                    self.entries
                        .push((SYMBOLS * k + token(value.unsigned_abs())) as u16);
                    last = k as u8;
                }
            }
            self.blocks.push(Block {
                begin: begin as u32,
                count: (self.entries.len() - begin) as u8,
                last,
            });
        }
    }

    fn entries(&self, block: &Block) -> &[u16] {
        &self.entries[block.begin as usize..][..block.count.into()]
    }

    /// Types to begin with: by how far blocks go, and of those that go far by how full they are.
    fn first_types(&self) -> Vec<u8> {
        let kind = |block: &Block| {
            let kind = (0..SYMBOLS).rev().find(|&kind| CAPS[kind] >= block.last.into());
            match (kind.unwrap_or(0), block.count) {
                (5.., _) => kind.unwrap_or(0) as u8,
                (_, 50..) => 0,
                (_, 42..) => 1,
                (_, 34..) => 2,
                (_, 26..) => 3,
                _ => 4,
            }
        };
        self.blocks.iter().map(kind).collect()
    }

    fn choose(&self, costs: &TypeCosts, types: &mut [u8]) {
        for (block, kind) in self.blocks.iter().zip(types) {
            let costs = costs.of_block(self.entries(block), block.last.into());
            *kind = costs.least(&OfTypes([0; SYMBOLS]));
        }
    }

    /// The types of each group's blocks.
    fn groups<'t>(&'t self, types: &'t [u8]) -> impl Iterator<Item = (usize, &'t [u8])> {
        let begins = std::iter::once(0).chain(self.groups.iter().copied());
        begins
            .zip(&self.groups)
            .map(|(begin, &end)| (begin, &types[begin..end]))
    }

    /// How often each table has each token.
    fn count(&self, types: &[u8], own: bool) -> Vec<[u32; SYMBOLS]> {
        let mut counts = vec![[0u32; SYMBOLS]; TOKEN_TABLES];
        // How many blocks of each type use each type's tables.
        let mut uses = [[0u32; SYMBOLS]; SYMBOLS];
        let mut order: Vec<usize> = Vec::new();
        for (begin, types) in self.groups(types) {
            order.clear();
            order.extend(0..types.len());
            order.sort_by_key(|&block| types[block]);
            for half in order.chunks(16) {
                let middle = types[half[half.len() / 2]];
                for &block in half {
                    let table = usize::from(if own { types[block] } else { middle });
                    uses[table][usize::from(types[block])] += 1;
                    for &entry in self.entries(&self.blocks[begin + block]) {
                        counts[64 * table + usize::from(entry >> 4)][usize::from(entry & 15)] += 1;
                    }
                }
            }
        }
        // What is left are zeros.
        for (at, counts) in counts.iter_mut().enumerate() {
            let (table, k) = (at / 64, at % 64);
            let alive: u32 = (0..SYMBOLS)
                .filter(|&kind| CAPS[kind] >= k)
                .map(|kind| uses[table][kind])
                .sum();
            counts[0] = alive - counts[1..].iter().sum::<u32>();
        }
        counts
    }

    fn train(&self, from: Option<&ClassTables>) -> ClassTables {
        let mut types = self.first_types();
        let (first, rounds) = match from {
            Some(tables) => {
                self.choose(&TypeCosts::of_tables(tables), &mut types);
                (OWN_TABLES, OWN_TABLES + ROUNDS.1)
            }
            None => (0, ROUNDS.0),
        };
        let mut round = first;
        let tokens = loop {
            let mut counts = self.count(&types, round < OWN_TABLES);
            for (counts, tables) in counts
                .iter_mut()
                .zip(from.into_iter().flat_map(|from| &from.tokens))
            {
                for (count, &share) in counts.iter_mut().zip(&tables.0) {
                    *count += u32::from(share) * PRIOR / 256;
                }
            }
            fill(&mut counts);
            if round == rounds {
                break counts.iter().map(quantise).collect();
            }
            let bits: Vec<_> = counts.iter().map(bits).collect();
            let seen = count_types(&types).map(|count| count + 1);
            let all: u32 = seen.iter().sum();
            let types_bits = seen.map(|count| (all as f32 / count as f32).log2());
            self.choose(&TypeCosts::new(&bits, &types_bits), &mut types);
            round += 1;
        };
        let mut counts: Vec<_> = self.groups(&types).map(|(_, types)| count_types(types)).collect();
        // The tables to begin with stay where there is nothing to go by.
        if counts.is_empty() {
            if let Some(from) = from {
                return ClassTables {
                    tokens,
                    types: from.types,
                };
            }
            counts.push([1; SYMBOLS]);
        }
        ClassTables {
            tokens,
            types: cluster(&counts),
        }
    }
}

/// Where a type is hardly seen, its tables are like the type's before; those of the first like the coefficient's before.
fn fill(counts: &mut [[u32; SYMBOLS]]) {
    for at in 1..counts.len() {
        let like = counts[if at < 64 { at - 1 } else { at - 64 }];
        if counts[at].iter().sum::<u32>() < FEW {
            counts[at]
                .iter_mut()
                .zip(like)
                .for_each(|(count, like)| *count += like);
        }
    }
}

/// About how many bits tokens take under a table of these counts, without making it.
fn bits(counts: &[u32; SYMBOLS]) -> [f32; SYMBOLS] {
    let total = counts.iter().sum::<u32>().max(1) as f32;
    let bits = |count: u32| (total / count.max(1) as f32).log2().clamp(0.01, 8.0);
    let escape = bits(counts[ESCAPE]) + 16.0;
    std::array::from_fn(|token| {
        let few = counts[token] < 2 || f64::from(counts[token]) < LEAST / 256.0 * f64::from(total);
        if few {
            escape
        } else {
            bits(counts[token]) + f32::from(BITS[token])
        }
    })
}

/// Shares for counts: those that make them shortest. Rare tokens get none, but for the escape.
fn quantise(counts: &[u32; SYMBOLS]) -> Distribution {
    let total: f64 = counts.iter().map(|&count| f64::from(count)).sum();
    if total == 0.0 {
        let mut shares = [0; SYMBOLS];
        (shares[0], shares[1], shares[ESCAPE]) = (254, 1, 1);
        return Distribution(shares);
    }
    let mut shares: [i32; SYMBOLS] = counts.map(|count| {
        let part = f64::from(count) / total * 256.0;
        if part < LEAST || count < 2 {
            0
        } else {
            (part.round() as i32).max(1)
        }
    });
    shares[ESCAPE] = shares[ESCAPE].max(1);
    // A share of 256 is no byte.
    if shares[..ESCAPE].iter().all(|&share| share == 0) {
        shares[0] = 1;
    }
    balance(&mut shares, counts);
    Distribution(shares.map(|share| share as u8))
}

/// Makes shares add up to 256 by the changes that cost least. Those of 0 stay.
fn balance(shares: &mut [i32; SYMBOLS], counts: &[u32; SYMBOLS]) {
    loop {
        let step = match shares.iter().sum::<i32>() {
            256 => return,
            ..256 => 1,
            _ => -1,
        };
        let cost = |at: usize| {
            let (old, new) = (f64::from(shares[at]), f64::from(shares[at] + step));
            -(f64::from(counts[at]) + 0.01) * (new.log2() - old.log2())
        };
        let can = |at: &usize| shares[*at] > 0 && shares[*at] + step > 0 && shares[*at] + step < 256;
        let best = (0..SYMBOLS)
            .filter(can)
            .min_by(|&a, &b| cost(a).total_cmp(&cost(b)));
        match best {
            Some(at) => shares[at] += step,
            None => return, // two shares at least can always be moved
        }
    }
}

/// Tables of types: centres of clusters of the groups' counts.
fn cluster(groups: &[[u32; SYMBOLS]]) -> [Distribution; TYPE_TABLES] {
    let mean = |counts: &[u32; SYMBOLS]| {
        let all: u32 = counts.iter().sum();
        let sum: f64 = (0u32..)
            .zip(counts)
            .map(|(kind, &count)| f64::from(kind) * f64::from(count))
            .sum();
        sum / f64::from(all.max(1))
    };
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by(|&a, &b| mean(&groups[a]).total_cmp(&mean(&groups[b])));
    let mut cluster = vec![0; groups.len()];
    for (place, &group) in order.iter().enumerate() {
        cluster[group] = place * TYPE_TABLES / order.len();
    }
    let mut tables = [Distribution([16; SYMBOLS]); TYPE_TABLES];
    for _ in 0..TYPE_ROUNDS {
        let mut sums = [[1u32; SYMBOLS]; TYPE_TABLES];
        for (counts, &at) in groups.iter().zip(&cluster) {
            for (sum, count) in sums[at].iter_mut().zip(counts) {
                *sum += 16 * count;
            }
        }
        tables = sums.map(|counts| {
            let all: u64 = counts.iter().map(|&count| u64::from(count)).sum();
            let mut shares = counts.map(|count| {
                let part = f64::from(count) / all as f64 * 256.0;
                (part.round() as i32).clamp(1, 255)
            });
            balance(&mut shares, &counts);
            Distribution(shares.map(|share| share as u8))
        });
        let bits = tables.map(|table| table.bits());
        for (counts, at) in groups.iter().zip(&mut cluster) {
            *at = best_types(&bits, counts);
        }
    }
    tables
}
