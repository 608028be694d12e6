//! Pseudo-random numbers that are a function of their key, the same on every machine: SplitMix64 (Steele, Lea
//! and Flood, "Fast splittable pseudorandom number generators", 2014).
//!
//! Results that depend on them (the order of an epoch, a study's proposals, generated images) must not change
//! between versions, so neither may these functions.

/// 2⁶⁴ divided by the golden ratio: the step of a stream's state.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// Mixes 64 bits, with no fixed point at 0. Different keys give different numbers.
pub fn mix(key: u64) -> u64 {
    let mut z = key.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub struct Random {
    state: u64,
}

impl Random {
    /// SplitMix64's stream from a state on.
    pub fn from_state(state: u64) -> Self {
        Self { state }
    }

    /// The stream of a key; streams of neighbouring keys are unrelated.
    pub fn of(key: u64) -> Self {
        Self::from_state(mix(key).wrapping_add(STEP))
    }

    /// 64 uniform bits.
    pub fn bits(&mut self) -> u64 {
        let bits = mix(self.state);
        self.state = self.state.wrapping_add(STEP);
        bits
    }

    /// Uniform in 0..n, for `n` above 0; the bias, below n / 2⁶⁴, is negligible.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform in [0, 1), a multiple of 2⁻⁵³.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Shuffles items (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Oracle: the authors' C, `splitmix64.c`, from state 1234567.
    #[test]
    fn is_the_published_generator() {
        let mut random = Random::from_state(1_234_567);
        let drawn: Vec<u64> = (0..5).map(|_| random.bits()).collect();
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(drawn, published);
    }

    #[test]
    fn draws_stay_within_their_bounds_and_orders_lose_nothing() {
        let mut random = Random::of(7);
        for n in [1, 2, 3, 1000, u64::MAX] {
            assert!((0..100).all(|_| random.below(n) < n));
        }
        assert!((0..1000).all(|_| (0.0..1.0).contains(&random.unit())));
        let mut items: Vec<u32> = (0..100).collect();
        random.shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
