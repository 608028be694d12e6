//! What it costs to write a block under each type.

use super::tables::{ClassTables, Distribution};
use super::tokens::{BITS, CAPS, ESCAPE, SYMBOLS};

/// Costs are in this many parts of a bit: those of 64 escapes stay below 2^16.
pub(super) const UNIT: f32 = 32.0;
/// What reading one more token is taken to cost, in bits: a type that goes less far is read sooner.
const TOKEN_TIME: f32 = 0.1;
/// Places in a block, and one after them.
const PLACES: usize = 65;

/// A number for each type.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct OfTypes(pub [u16; SYMBOLS]);

/// What the types cost.
#[derive(Debug, Clone)]
pub(super) struct TypeCosts {
    /// A block of zeros.
    pub base: OfTypes,
    /// By place and token: how much more that token costs there than a zero, wrapped. Types that do not go as far
    /// cost nothing here; [`BARRED`] excludes them. Nothing costs anything at the place after the last.
    pub more: Box<[[OfTypes; SYMBOLS]; PLACES]>,
}

/// By the last coefficient that is not zero: all ones for types that do not go as far.
pub(super) static BARRED: [OfTypes; 64] = {
    let mut barred = [OfTypes([0; SYMBOLS]); 64];
    let mut last = 0;
    while last < 64 {
        let mut kind = 0;
        while kind < SYMBOLS {
            if CAPS[kind] < last {
                barred[last].0[kind] = u16::MAX;
            }
            kind += 1;
        }
        last += 1;
    }
    barred
};

impl Distribution {
    /// The bits that each token takes, as an escape where it has no share.
    pub fn token_bits(&self) -> [f32; SYMBOLS] {
        let bits = self.bits();
        std::array::from_fn(|token| match self.0[token] {
            0 => bits[ESCAPE] + 16.0,
            _ => bits[token] + f32::from(BITS[token]),
        })
    }

    /// The bits that each symbol takes, where it has a share.
    pub fn bits(&self) -> [f32; SYMBOLS] {
        self.0.map(|share| 8.0 - f32::from(share.max(1)).log2())
    }
}

impl TypeCosts {
    pub fn of_tables(tables: &ClassTables) -> TypeCosts {
        let bits: Vec<_> = tables.tokens.iter().map(Distribution::token_bits).collect();
        TypeCosts::new(&bits, &[0.0; SYMBOLS])
    }

    /// Of the bits that tokens take by table, and those that the types themselves take.
    pub fn new(bits: &[[f32; SYMBOLS]], types: &[f32; SYMBOLS]) -> TypeCosts {
        let unit = |bits: f32| (bits * UNIT).round() as i32;
        let mut costs = TypeCosts {
            base: OfTypes([0; SYMBOLS]),
            more: Box::new([[OfTypes([0; SYMBOLS]); SYMBOLS]; PLACES]),
        };
        for kind in 0..SYMBOLS {
            let mut base = unit(TOKEN_TIME * CAPS[kind] as f32 + types[kind]);
            for k in 0..=CAPS[kind] {
                let bits = &bits[64 * kind + k];
                let zero = unit(bits[0]);
                base += zero;
                for (more, &bits) in costs.more[k].iter_mut().zip(bits).skip(1) {
                    more.0[kind] = (unit(bits) - zero) as u16;
                }
            }
            costs.base.0[kind] = base.clamp(0, u16::MAX.into()) as u16;
        }
        costs
    }

    /// The costs of a block by its tokens that are not 0, each as `16 * k + token`, and its last coefficient that is not 0.
    #[inline(always)]
    pub fn of_block(&self, entries: &[u16], last: usize) -> OfTypes {
        let mut sum = self.base;
        for &entry in entries {
            let (k, token) = (usize::from(entry >> 4), usize::from(entry & 15));
            let more = &self.more[k & 63][token];
            for (sum, more) in sum.0.iter_mut().zip(&more.0) {
                *sum = sum.wrapping_add(*more);
            }
        }
        for (sum, barred) in sum.0.iter_mut().zip(&BARRED[last & 63].0) {
            *sum |= barred;
        }
        sum
    }
}

impl OfTypes {
    /// The type that costs least with `more` added, the first of several.
    #[inline(always)]
    pub fn least(&self, more: &OfTypes) -> u8 {
        // Cost and type as one number, so that the least one has the first type.
        let mut all = [0u32; SYMBOLS];
        for (kind, all) in all.iter_mut().enumerate() {
            *all = u32::from(self.0[kind].saturating_add(more.0[kind])) << 4 | kind as u32;
        }
        (all.iter().fold(u32::MAX, |least, &one| least.min(one)) & 15) as u8
    }
}
