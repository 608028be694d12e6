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
use stokehold_ranks::{Ranks, Wire};

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
    let all = sums.clone().slice([channels..channels + 1]);
    let mean = sums.slice([0..channels]) / all.clone().detach();
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
        match ranks.sum(numbers, Wire::F32) {
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
