//! FNV-1a, 64 bits (Fowler, Noll and Vo): a hash that is the same on every machine and in every version, for
//! names of files and facts of data sets. Do not use it where an attacker could choose two texts with the
//! same hash.

/// A hash under construction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Fnv {
    /// The hash of bytes.
    pub fn of(bytes: &[u8]) -> u64 {
        let mut hash = Self::default();
        hash.add(bytes);
        hash.finish()
    }

    /// Adds bytes. Two parts give the same hash as both in one piece.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
        }
    }

    /// The hash of all that was added.
    pub fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: the test vectors of the authors' `test_fnv.c`.
    #[test]
    fn is_the_published_hash() {
        let published = [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ];
        for (text, hash) in published {
            assert_eq!(Fnv::of(text.as_bytes()), hash, "{text}");
        }
    }
}
