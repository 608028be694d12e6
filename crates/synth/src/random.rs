//! The draws of a picture, in single precision.

use stokehold_base::random;

/// A stream of draws from one key.
#[derive(Debug, Clone)]
pub(crate) struct Random(random::Random);

impl Random {
    /// The stream of `key`.
    pub fn new(key: u64) -> Self {
        Self(random::Random::of(key))
    }

    /// 64 uniform bits.
    pub fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    /// Uniform in [0, 1), a multiple of 2⁻²⁴.
    pub fn unit(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u64 << 24) as f32
    }

    /// Uniform in [low, high).
    pub fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * self.unit()
    }

    /// Uniform in 0..n; `n` must be above 0.
    pub fn below(&mut self, n: u32) -> u32 {
        (((self.bits() >> 32) * u64::from(n)) >> 32) as u32
    }
}
