//! Batch normalisation whose statistics are those of all ranks' images together, as `torch.nn.SyncBatchNorm`.
//!
//! The sum over the ranks is an operation of the graph: its gradient is the sum of the ranks' gradients. So everything else
//! is written with Burn's own operations, and every rank has the same graph and makes the same sums in the same order, in
//! the backward pass, too.
//!
//! A sum that fails cannot say so from within a graph. Then all further operations of the [`Ranks`] fail, and the step ends
//! with the error at the next one.

use std::cell::RefCell;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::backend::ops::FloatTensorOps;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, TensorMetadata, backend_extension, read_sync};
use burn::tensor::{Tensor, TensorData};
use stokehold_ranks::Ranks;

thread_local! {
    static RANKS: RefCell<Option<Ranks>> = const { RefCell::new(None) };
}

/// Calls `forward`, in which batch normalisation is synchronised over `ranks` if there are some.
pub(crate) fn synchronised<T>(ranks: Option<&Ranks>, forward: impl FnOnce() -> T) -> T {
    let before = RANKS.replace(ranks.cloned());
    let result = forward();
    RANKS.replace(before);
    result
}

/// The ranks of the current forward pass.
pub(super) fn ranks() -> Option<Ranks> {
    RANKS.with_borrow(Clone::clone)
}

/// What normalises a batch: the mean and the biased variance of each channel, `[C]`, over all ranks, and the numbers in a
/// channel.
pub(super) struct Statistics {
    pub mean: Tensor<1>,
    pub var: Tensor<1>,
    pub count: f64,
}

/// The statistics of `[N, C, H, W]` over all ranks.
pub(super) fn statistics(x: &Tensor<4>, ranks: &Ranks) -> Statistics {
    let [n, channels, h, w] = x.dims();
    let per_channel = |x: Tensor<4>| x.swap_dims(0, 1).reshape([channels as i32, -1]).sum_dim(1);
    let own = Tensor::<1>::from_data([(n * h * w) as f32], &x.device());
    let sums = per_channel(x.clone()).reshape([channels]);
    let sums = sum(Tensor::cat(vec![sums, own], 0), ranks);
    let all = sums.clone().slice(channels..channels + 1);
    let mean = sums.slice(0..channels) / all.clone().detach();
    let apart = x.clone() - mean.clone().reshape([1, channels, 1, 1]);
    let squares = per_channel(apart.clone() * apart).reshape([channels]);
    let all = all.detach();
    let var = sum(squares, ranks) / all.clone();
    // At most 2^24 numbers are exact in f32, and beyond that the correction by one number is nothing.
    let count = all.into_data().iter::<f32>().next().unwrap_or(1.0);
    Statistics {
        mean,
        var,
        count: f64::from(count),
    }
}

/// The sum of the ranks' vectors.
fn sum(x: Tensor<1>, ranks: &Ranks) -> Tensor<1> {
    Tensor::from_dispatch(<Dispatch as SumOverRanks>::sum_over_ranks(
        x.into_dispatch(),
        ranks.clone(),
    ))
}

#[backend_extension(Flex, Autodiff)]
trait SumOverRanks: Backend {
    fn sum_over_ranks(x: FloatTensor<Self>, ranks: Ranks) -> FloatTensor<Self>;
}

impl SumOverRanks for Flex {
    fn sum_over_ranks(x: FloatTensor<Self>, ranks: Ranks) -> FloatTensor<Self> {
        let (shape, device) = (x.shape(), x.device());
        let Ok(data) = read_sync(Self::float_into_data(x.clone())) else {
            return x;
        };
        let numbers: Vec<f32> = data.iter().collect();
        match ranks.sum(numbers) {
            Ok(sums) => Self::float_from_data(TensorData::new(sums, shape), &device),
            Err(_) => x,
        }
    }
}

impl<B: SumOverRanks, C: CheckpointStrategy> SumOverRanks for Autodiff<B, C> {
    fn sum_over_ranks(x: FloatTensor<Self>, ranks: Ranks) -> FloatTensor<Self> {
        #[derive(Debug)]
        struct Sum;

        impl<B: SumOverRanks> Backward<B, 1> for Sum {
            type State = Ranks;

            fn backward(self, ops: Ops<Ranks, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
                let ranks = ops.state;
                unary::<B, _>(ops.parents, ops.node, grads, |grad| {
                    B::sum_over_ranks(grad, ranks)
                });
            }
        }

        let sums = B::sum_over_ranks(x.primitive().clone(), ranks.clone());
        match Sum.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(prep) => prep.finish(ranks, sums),
            OpsKind::UnTracked(prep) => prep.finish(sums),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use burn::module::Param;
    use burn::tensor::{Device, activation};

    use super::super::init::Draws;
    use super::super::layers::{BatchNorm, Conv};
    use super::*;

    /// Loss and gradients of the images `from..to` of 6, of a small network; the loss is a sum over images.
    fn step(from: usize, to: usize, ranks: Option<&Ranks>) -> (Vec<f32>, Vec<Vec<f32>>) {
        let device = Device::flex().autodiff();
        let draws = &mut Draws::new(1);
        let convs = [3, 4].map(|input| Conv::new([input, 4], 3, 1, draws, &device));
        let norms = [0, 1].map(|_| BatchNorm::new(4, &device));
        let images: Vec<f32> = Draws::new(2).uniform(6 * 3 * 5 * 5, 1.0);
        let images = Tensor::<4>::from_data(TensorData::new(images, [6, 3, 5, 5]), &device);
        let x = images.slice([from..to, 0..3, 0..5, 0..5]);
        let loss = synchronised(ranks, || {
            let x = activation::relu(norms[0].forward(convs[0].forward(x)));
            let x = norms[1].forward(convs[1].forward(x));
            // Something that is not constant under a shift or a scale of x.
            (x.clone() * x.clone() * x)
                .slice([0..to - from, 0..4, 1..3, 0..5])
                .sum()
        });
        let value = loss.clone().into_data().try_to_vec::<f32>().unwrap();
        let grads = loss.backward();
        let of = |param: &Param<Tensor<4>>| {
            param
                .val()
                .grad(&grads)
                .unwrap()
                .into_data()
                .try_to_vec::<f32>()
                .unwrap()
        };
        let of_one = |param: &Param<Tensor<1>>| {
            param
                .val()
                .grad(&grads)
                .unwrap()
                .into_data()
                .try_to_vec::<f32>()
                .unwrap()
        };
        let mut all: Vec<Vec<f32>> = convs.iter().map(|conv| of(&conv.weight)).collect();
        for norm in &norms {
            all.extend([of_one(&norm.weight), of_one(&norm.bias)]);
        }
        (value, all)
    }

    #[test]
    fn ranks_of_different_sizes_have_the_gradients_of_the_whole() {
        let (loss, expected) = step(0, 6, None);
        for bounds in [&[0, 3, 6][..], &[0, 4, 6], &[0, 1, 5, 6]] {
            let threads: Vec<_> = Ranks::threads(bounds.len() - 1)
                .into_iter()
                .zip(bounds.windows(2))
                .map(|(ranks, part)| {
                    let (from, to) = (part[0], part[1]);
                    thread::spawn(move || step(from, to, Some(&ranks)))
                })
                .collect();
            let parts: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
            let sum: f32 = parts.iter().map(|(loss, _)| loss[0]).sum();
            assert!(
                (sum - loss[0]).abs() < 1e-4 * loss[0].abs().max(1.0),
                "{sum} {loss:?}"
            );
            for (param, expected) in expected.iter().enumerate() {
                let scale = expected.iter().fold(0.0f32, |most, x| most.max(x.abs()));
                for (place, expected) in expected.iter().enumerate() {
                    let sum: f32 = parts.iter().map(|(_, grads)| grads[param][place]).sum();
                    assert!(
                        (sum - expected).abs() < 1e-4 * scale,
                        "{param} {place}: {sum} {expected}"
                    );
                }
            }
        }
    }
}
