//! Numbers that are a function of their key, the same on every machine.

/// Scrambles 64 bits: the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
pub(crate) fn mix(key: u64) -> u64 {
    let mut z = key.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A stream of draws from one key.
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// The stream of `key`.
    pub(crate) fn new(key: u64) -> Self {
        Self { state: mix(key) }
    }

    /// Uniform in 0..n, `n` above 0; the bias, below n / 2⁶⁴, is beyond notice.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        ((u128::from(mix(self.state)) * u128::from(n)) >> 64) as u64
    }
}
