//! Constants that the forms for several instruction sets load as vectors.

use super::read::masks;
use super::tokens::{BASE, BITS};

#[repr(C, align(64))]
pub(super) struct Aligned<T>(pub T);

/// Of eight lanes, by a mask of those that take a byte: which of the next bytes each of them takes. Others get 0x80, for
/// which a shuffle gives 0.
pub(super) static EXPAND: Aligned<[[u8; 8]; 256]> = Aligned({
    let mut all = [[0x80; 8]; 256];
    let mut mask = 0;
    while mask < 256 {
        let (mut lane, mut next) = (0, 0);
        while lane < 8 {
            if mask >> lane & 1 == 1 {
                all[mask][lane] = next;
                next += 1;
            }
            lane += 1;
        }
        mask += 1;
    }
    all
});

/// 32 bytes with all bits set, then 32 zeros.
pub(super) static ACTIVE: Aligned<[u8; 64]> = Aligned({
    let mut all = [0; 64];
    let mut lane = 0;
    while lane < 32 {
        all[lane] = 0xFF;
        lane += 1;
    }
    all
});

/// Of a quarter of a block, which is two rows of it, the least place in coding order.
pub(super) const FIRST_OF_QUARTER: [usize; 4] = [0, 3, 10, 21];

/// How many raw bits each token has.
pub(super) static BITS_OF: Aligned<[u8; 16]> = Aligned(BITS);
/// The least magnitude of each token.
pub(super) static BASE_OF: Aligned<[u8; 16]> = Aligned(BASE);
/// The raw bits of each token, as a mask.
pub(super) static MASK_OF: Aligned<[u8; 16]> = Aligned(masks());

/// Reading of types and tokens, row by row, with the `step` of a module: what is inlined has to have its instructions.
macro_rules! rows {
    ($features:literal) => {
        /// Decodes a row of `alive` symbols, each 32 with their tables.
        #[inline]
        #[target_feature(enable = $features)]
        fn row<'t>(
            coder: &mut Coder<'_>,
            tables: impl Iterator<Item = [&'t Table; 2]>,
            alive: usize,
            out: &mut [u8],
        ) -> Result<(), Fault> {
            let steps = out.as_chunks_mut::<LANES>().0.iter_mut().zip(tables);
            let mut left = alive;
            for (out, tables) in steps.take(alive.div_ceil(LANES)) {
                let vector = coder.next_vector();
                let (states, active) = (&mut coder.states[vector], left.min(LANES));
                step(tables, active, states, coder.bytes, &mut coder.at, out)?;
                left = left.saturating_sub(LANES);
            }
            Ok(())
        }

        /// The types of a class's blocks.
        #[target_feature(enable = $features)]
        pub(super) fn types(
            coder: &mut Coder<'_>,
            table: &Table,
            out: &mut [u8],
            count: usize,
        ) -> Result<(), Fault> {
            row(coder, std::iter::repeat([table; 2]), count, out)
        }

        /// The tokens of all blocks for the coefficients `which`.
        #[target_feature(enable = $features)]
        pub(super) fn tokens(
            coder: &mut Coder<'_>,
            tables: &[Box<TokenTables>; CLASSES],
            classes: &[Sorted; CLASSES],
            which: Range<usize>,
            out: &mut [u8],
        ) -> Result<(), Fault> {
            for k in which {
                for (tables, sorted) in tables.iter().zip(classes) {
                    let tables = sorted.tables(&tables[k]);
                    row(coder, tables, sorted.alive[k], &mut out[sorted.rows[k]..])?;
                }
            }
            Ok(())
        }
    };
}
pub(super) use rows;
