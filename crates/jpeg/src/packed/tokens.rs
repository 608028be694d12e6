//! Tokens of coefficients and types of blocks.

/// How many tokens there are, and how many types.
pub(super) const SYMBOLS: usize = 16;

/// The last coefficient, in coding order, for which a block of each type of the packed form has a token. They do not rise.
pub const CAPS: [usize; SYMBOLS] = [63, 63, 63, 63, 63, 54, 46, 38, 31, 24, 18, 13, 9, 5, 2, 0];

/// The least magnitude of each token.
pub(super) const BASE: [u8; SYMBOLS] = [0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 0];

/// The raw bits of each token of the packed form. The lowest is the sign, the others are added to the magnitude.
pub const BITS: [u8; SYMBOLS] = [0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 8, 8];

/// The token of any magnitude: its raw bits hold the lowest seven bits of it, an extra byte the others.
pub(super) const ESCAPE: usize = 15;

/// The first token whose values do not fit a signed byte.
pub(super) const LARGE: u8 = 14;

/// The largest magnitude of a coefficient other than the first that 8-bit samples can give. First ones go from
/// one less to as many.
pub(super) const MOST: i16 = 1023;

/// The token of a magnitude.
pub(super) fn token(magnitude: u16) -> usize {
    match magnitude {
        0..4 => magnitude.into(),
        4..128 => {
            let top = magnitude.ilog2();
            (2 * top + u32::from(magnitude >> (top - 1) & 1)) as usize
        }
        128..256 => usize::from(LARGE),
        _ => ESCAPE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_magnitude_lies_within_its_token() {
        for magnitude in 0..=2047 {
            let token = token(magnitude);
            if token == ESCAPE {
                assert!(magnitude >= 256 && magnitude >> 7 <= 255);
                continue;
            }
            let span = 1 << (BITS[token].max(1) - 1);
            let base = u16::from(BASE[token]);
            assert!((base..base + span).contains(&magnitude), "{magnitude}: {token}");
        }
    }
}
