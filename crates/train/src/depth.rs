//! Stochastic depth (Huang et al., "Deep networks with stochastic depth", 2016): in training a residual block leaves out
//! its own part of some images, so that its output is its input.
//!
//! The last block leaves it out with the stated probability, the first one never, and those between with
//! probabilities that rise evenly, as in timm's ResNets (`--drop-path`). What is not left out is divided by the
//! probability of that, as torchvision's `StochasticDepth(mode="row")` does, so that its expectation stays the same.
//!
//! What is left out is a function of (seed, step, block, image of the batch), so that a resumed run leaves out the same.

use burn::tensor::{Device, Tensor, TensorData};
use stokehold_base::random::{Random, mix};

/// Apart from the streams of other operations.
const KEY: u64 = u64::from_be_bytes(*b"stodepth");

/// The factors of every block's own part, for each image of a step's batch; none without stochastic depth.
pub(crate) fn factors(
    rate: f64,
    blocks: usize,
    images: usize,
    seed: u64,
    step: u64,
    device: &Device,
) -> Vec<Tensor<1>> {
    let tensor = |values: Vec<f32>| Tensor::from_data(TensorData::new(values, [images]), device);
    draw(rate, blocks, images, seed, step)
        .into_iter()
        .map(tensor)
        .collect()
}

fn draw(rate: f64, blocks: usize, images: usize, seed: u64, step: u64) -> Vec<Vec<f32>> {
    if rate == 0.0 {
        return Vec::new();
    }
    let mut random = Random::of(mix(mix(seed ^ KEY) ^ step));
    let last = blocks.saturating_sub(1).max(1);
    let of_block = |block: usize| {
        let kept = 1.0 - rate * block as f64 / last as f64;
        let mut factor = || {
            if random.unit() < kept {
                (1.0 / kept) as f32
            } else {
                0.0
            }
        };
        (0..images).map(|_| factor()).collect()
    };
    (0..blocks).map(of_block).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_blocks_leave_out_more_and_expectations_stay() {
        assert!(draw(0.0, 4, 8, 1, 2).is_empty());
        let (blocks, images) = (5, 20_000);
        let drawn = draw(0.4, blocks, images, 1, 2);
        assert!(drawn[0].iter().all(|&factor| factor == 1.0));
        for (block, factors) in drawn.iter().enumerate() {
            let share = factors.iter().filter(|&&factor| factor == 0.0).count() as f64 / images as f64;
            assert!((share - 0.1 * block as f64).abs() < 0.01, "{block}: {share}");
            let mean = factors.iter().sum::<f32>() / images as f32;
            assert!((mean - 1.0).abs() < 0.02, "{block}: {mean}");
        }
        assert_eq!(drawn, draw(0.4, blocks, images, 1, 2));
        assert_ne!(drawn, draw(0.4, blocks, images, 1, 3));
        assert_ne!(drawn, draw(0.4, blocks, images, 2, 2));
    }
}
