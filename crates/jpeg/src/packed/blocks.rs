//! Rows of values become blocks.

use super::lanes::BlockTarget;
use super::read::cap;
use super::sorted::Sorted;
use crate::block::ZIGZAG;
use crate::kernels::Isa;

/// Blocks of coefficients in rows, those of some components.
pub(super) type Outs<'o> = [&'o mut [[i16; 64]]; 4];

/// Writes the block of each slot to its place, in rows: number `at` of the blocks of component `plane`. Values that do not fit a byte
/// are left 0.
pub(super) fn write(isa: Isa, sorted: &Sorted, values: &[u8], places: &[BlockTarget], out: &mut Outs<'_>) {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the tokens prove the instructions.
        Isa::Avx2(avx2) => unsafe {
            match avx2.avx512() {
                Some(_) => super::avx512::blocks(sorted, values, places, out),
                None => super::avx2::blocks(sorted, values, places, out),
            }
        },
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the token proves the instructions.
        Isa::Neon(_) => unsafe { super::neon::blocks(sorted, values, places, out) },
        _ => write_portable(sorted, values, places, out),
    }
}

fn write_portable(sorted: &Sorted, values: &[u8], places: &[BlockTarget], out: &mut Outs<'_>) {
    for (slot, place) in places.iter().enumerate() {
        let block = &mut out[place.plane as usize][place.at as usize];
        *block = [0; 64];
        block[0] = sorted.dc[slot];
        for k in 1..=cap(sorted.kinds[slot]) {
            block[usize::from(ZIGZAG[k]) & 63] = i16::from(values[sorted.rows[k] + slot] as i8);
        }
    }
}
