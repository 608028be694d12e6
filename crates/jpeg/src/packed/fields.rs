//! Raw bits become values.

use super::read::{masks, value};
use super::tokens::{BITS, ESCAPE, LARGE};
use crate::kernels::Isa;

/// Of which tokens among 32 the values do not fit a byte, and which of those are escapes.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LargeOf32 {
    /// The first of the 32.
    pub first: u32,
    pub mask: u32,
    pub escapes: u32,
}

/// All of those, in their order.
#[derive(Debug, Default)]
pub(super) struct LargeTokens {
    all: Vec<LargeOf32>,
    count: usize,
}

impl LargeTokens {
    /// Begins with none, and room for those of this many tokens.
    fn begin(&mut self, tokens: usize) {
        self.count = 0;
        let room = tokens / 32 + 1;
        if self.all.len() < room {
            self.all.resize(room, LargeOf32::default());
        }
    }

    /// Adds it if there are any. Without a branch, as that would be hard to foresee.
    #[inline(always)]
    pub fn add(&mut self, large: LargeOf32) {
        self.all[self.count] = large;
        self.count += usize::from(large.mask != 0);
    }

    pub fn all(&self) -> &[LargeOf32] {
        &self.all[..self.count]
    }
}

/// Gives each token its value, or its raw bits where the value does not fit a byte; `large` has those. Of `raw` the first `held`
/// bytes count; `tokens` is a whole number of vectors. None where there are too few bits.
pub(super) fn read(
    isa: Isa,
    tokens: &[u8],
    raw: &[u8],
    held: usize,
    values: &mut [u8],
    large: &mut LargeTokens,
) -> Option<()> {
    large.begin(tokens.len());
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
        #[cfg(target_arch = "aarch64")]
        // SAFETY: the token proves the instructions.
        Isa::Neon(_) => unsafe { super::neon::fields(tokens, raw, values, large) },
        _ => read_portable(tokens, raw, values, large),
    }?;
    (bits <= 8 * held).then_some(())
}

/// Returns how many bits it took.
fn read_portable(tokens: &[u8], raw: &[u8], values: &mut [u8], large: &mut LargeTokens) -> Option<usize> {
    let masks = masks();
    let mut bit = 0;
    let chunks = tokens
        .as_chunks::<32>()
        .0
        .iter()
        .zip(values.as_chunks_mut::<32>().0);
    for (first, (tokens, values)) in (0..).step_by(32).zip(chunks) {
        let (mut mask, mut escapes) = (0, 0);
        for (lane, (&token, out)) in tokens.iter().zip(values).enumerate() {
            let kind = usize::from(token & 15);
            let &[low, high] = raw.get(bit / 8..)?.first_chunk()?;
            let field = (u16::from_le_bytes([low, high]) >> (bit % 8)) as u8 & masks[kind];
            *out = value(token, field);
            bit += usize::from(BITS[kind]);
            mask |= u32::from(token >= LARGE) << lane;
            escapes |= u32::from(kind == ESCAPE) << lane;
        }
        large.add(LargeOf32 { first, mask, escapes });
    }
    Some(bit)
}
