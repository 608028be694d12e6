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
