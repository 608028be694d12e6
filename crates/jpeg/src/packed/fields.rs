//! Raw bits become values.

use super::read::{masks, value};
use super::tokens::{BITS, LARGE};
use crate::kernels::Isa;

/// Of which tokens among 32 the values do not fit a byte.
#[derive(Debug, Clone, Copy)]
pub(super) struct LargeOf32 {
    /// The first of the 32.
    pub first: u32,
    pub mask: u32,
}

/// Gives each token its value, or its raw bits where the value does not fit a byte; `large` has those. Of `raw` the first `held`
/// bytes count; `tokens` is a whole number of vectors. None where there are too few bits.
pub(super) fn read(
    isa: Isa,
    tokens: &[u8],
    raw: &[u8],
    held: usize,
    values: &mut [u8],
    large: &mut Vec<LargeOf32>,
) -> Option<()> {
    large.clear();
    let bits = match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the token proves the instructions.
        Isa::Avx2(avx2) => unsafe {
            match avx2.avx512() {
                Some(_) => super::avx512::fields(tokens, raw, values, large),
                None if avx2.fast_pdep() => super::avx2::fields_by_pdep(tokens, raw, values, large),
                None => super::avx2::fields(tokens, raw, values, large),
            }
        },
        _ => read_portable(tokens, raw, values, large),
    }?;
    (bits <= 8 * held).then_some(())
}

/// Returns how many bits it took.
fn read_portable(tokens: &[u8], raw: &[u8], values: &mut [u8], large: &mut Vec<LargeOf32>) -> Option<usize> {
    let masks = masks();
    let mut bit = 0;
    let chunks = tokens
        .as_chunks::<32>()
        .0
        .iter()
        .zip(values.as_chunks_mut::<32>().0);
    for (first, (tokens, values)) in (0..).step_by(32).zip(chunks) {
        let mut mask = 0;
        for (lane, (&token, out)) in tokens.iter().zip(values).enumerate() {
            let kind = usize::from(token & 15);
            let &[low, high] = raw.get(bit / 8..)?.first_chunk()?;
            let field = (u16::from_le_bytes([low, high]) >> (bit % 8)) as u8 & masks[kind];
            *out = value(token, field);
            bit += usize::from(BITS[kind]);
            mask |= u32::from(token >= LARGE) << lane;
        }
        if mask != 0 {
            large.push(LargeOf32 { first, mask });
        }
    }
    Some(bit)
}
