//! What a step of training leaves out of a network: dropout.
//!
//! It is a function of (seed, step, layer, place in the batch), so that a resumed run leaves out the same.

use burn::tensor::{Device, Tensor, TensorData};
use stokehold_base::random::{Random, mix};

/// Apart from the streams of other operations.
const KEY: u64 = u64::from_be_bytes(*b"dropouts");

/// What a step leaves out.
#[derive(Debug, Clone, Copy)]
pub struct Noise {
    /// The run's seed.
    pub seed: u64,
    /// The number of the step, from 0.
    pub step: u64,
}

impl Noise {
    /// What a layer's dropout leaves out; layers have different numbers.
    pub(super) fn dropped(&self, layer: u64) -> Dropped {
        Dropped(mix(mix(mix(self.seed ^ KEY) ^ self.step) ^ layer))
    }
}

/// The stream of one layer in one step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Dropped(u64);

impl Dropped {
    /// 0 with this probability, else what keeps the expectation.
    pub(super) fn factors(self, probability: f64, shape: [usize; 4], device: &Device) -> Tensor<4> {
        let mut random = Random::of(self.0);
        let kept = (1.0 / (1.0 - probability)) as f32;
        let mut factor = || if random.unit() < probability { 0.0 } else { kept };
        let factors: Vec<f32> = (0..shape.iter().product()).map(|_| factor()).collect();
        Tensor::from_data(TensorData::new(factors, shape), device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device;

    #[test]
    fn as_many_are_left_out_as_the_probability_says_and_the_expectation_stays() {
        let noise = Noise { seed: 3, step: 5 };
        let draw = |noise: Noise, layer| {
            let factors = noise.dropped(layer).factors(0.1, [4, 8, 50, 50], &Device::flex());
            device::read(factors).unwrap()
        };
        let factors = draw(noise, 0);
        let share = factors.iter().filter(|&&x| x == 0.0).count() as f64 / factors.len() as f64;
        assert!((share - 0.1).abs() < 0.005, "{share}");
        let mean = factors.iter().sum::<f32>() / factors.len() as f32;
        assert!((mean - 1.0).abs() < 0.01, "{mean}");
        assert_eq!(factors, draw(noise, 0));
        assert_ne!(factors, draw(noise, 1));
        assert_ne!(factors, draw(Noise { step: 6, ..noise }, 0));
        assert_ne!(factors, draw(Noise { seed: 4, ..noise }, 0));
    }
}
