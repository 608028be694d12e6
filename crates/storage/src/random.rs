//! Numbers that are a function of their key, the same on every machine.

/// Scrambles 64 bits: the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
pub(crate) fn mix(key: u64) -> u64 {
    let mut z = key.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A hash of `bytes`: FNV-1a, then [`mix`] with the seed.
pub(crate) fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    let hash = bytes.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    mix(hash ^ mix(seed))
}

/// A stream of draws from one key.
#[derive(Debug, Clone)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// The stream of `key`.
    pub(crate) fn new(key: u64) -> Self {
        Self { state: mix(key) }
    }

    /// 64 uniform bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.state)
    }

    /// Uniform in [0, 1), a multiple of 2⁻²⁴.
    pub(crate) fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Uniform in [low, high).
    pub(crate) fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.unit()
    }

    /// Uniform in 0..n; `n` must be above 0.
    pub(crate) fn below(&mut self, n: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(n)) >> 32) as u32
    }
}
