//! Convolution, batch normalisation and the linear layer with PyTorch's parameter names, layouts and
//! semantics.
//!
//! Burn's own layers differ where it matters here: its linear weight is transposed, and its batch
//! normalisation keeps a biased running variance, where PyTorch's is unbiased.

use burn::module::{Flag, Module, Param, RunningState};
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Device, FloatDType, Tensor, TensorData, module};

use stokehold_ranks::Ranks;

use super::init::Draws;
use super::synced;

/// A 2-d convolution with square kernel, stride, dilation and zero padding.
#[derive(Module, Debug)]
pub struct Conv {
    /// `[out, in, k, k]`.
    pub weight: Param<Tensor<4>>,
    /// `[out]`; only the last layer of a head has one.
    pub bias: Option<Param<Tensor<1>>>,
    stride: usize,
    padding: usize,
    dilation: usize,
}

impl Conv {
    /// Padding keeps the size (`(kernel - 1) / 2`); weights are `kaiming_normal_(mode="fan_out")`, and there is no bias.
    pub(super) fn new(
        [input, output]: [usize; 2],
        kernel: usize,
        stride: usize,
        draws: &mut Draws,
        device: &Device,
    ) -> Self {
        let fan_out = output * kernel * kernel;
        let deviation = (2.0 / fan_out as f64).sqrt();
        let weight = draws.normal(output * input * kernel * kernel, deviation);
        let weight = TensorData::new(weight, [output, input, kernel, kernel]);
        Self {
            weight: Param::from_data(weight, device),
            bias: None,
            stride,
            padding: (kernel - 1) / 2,
            dilation: 1,
        }
    }

    /// A convolution of a head, of stride 1 and without bias: weights are uniform in `±1/sqrt(fan_in)`, PyTorch's default.
    pub(super) fn of_head(
        [input, output]: [usize; 2],
        kernel: usize,
        draws: &mut Draws,
        device: &Device,
    ) -> Self {
        let fan_in = input * kernel * kernel;
        let weight = draws.uniform(output * fan_in, 1.0 / (fan_in as f64).sqrt());
        let weight = TensorData::new(weight, [output, input, kernel, kernel]);
        Self {
            weight: Param::from_data(weight, device),
            bias: None,
            stride: 1,
            padding: (kernel - 1) / 2,
            dilation: 1,
        }
    }

    /// The last layer of a head: 1x1 with a bias, weight and bias uniform in `±1/sqrt(in)`.
    pub(super) fn last([input, output]: [usize; 2], draws: &mut Draws, device: &Device) -> Self {
        let conv = Self::of_head([input, output], 1, draws, device);
        let bias = draws.uniform(output, 1.0 / (input as f64).sqrt());
        Self {
            bias: Some(Param::from_data(TensorData::new(bias, [output]), device)),
            ..conv
        }
    }

    /// The same with its kernel's points so far apart; padding keeps the size.
    pub(super) fn dilated(self, dilation: usize) -> Self {
        Self {
            padding: self.padding * dilation,
            dilation,
            ..self
        }
    }

    /// `[N, in, H, W]` to `[N, out, H', W']`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let options = ConvOptions::new([self.stride; 2], [self.padding; 2], [self.dilation; 2], 1);
        let dtype = x.dtype();
        let bias = self.bias.as_ref().map(|bias| bias.val().cast(dtype));
        module::conv2d(x, self.weight.val().cast(dtype), bias, options)
    }
}

/// Batch normalisation over `[N, C, H, W]` as `torch.nn.BatchNorm2d`: `eps` 1e-5, `momentum` 0.1.
///
/// In training, values are normalised by the batch's biased variance, and the running estimate is updated
/// with the unbiased one (`n / (n - 1)` times larger, `n = N * H * W`). A frozen layer, and every layer of a
/// model made by [`Module::valid`], uses the running statistics and does not update them.
///
/// Clones share the running statistics (they are updated through `&self`); [`Module::valid`] detaches them.
#[derive(Module, Debug)]
pub struct BatchNorm {
    /// Scale, `[C]`.
    pub weight: Param<Tensor<1>>,
    /// Shift, `[C]`.
    pub bias: Param<Tensor<1>>,
    running_mean: RunningState<Tensor<1>>,
    running_var: RunningState<Tensor<1>>,
    training: Param<Flag>,
}

impl BatchNorm {
    const EPSILON: f64 = 1e-5;
    const MOMENTUM: f64 = 0.1;

    pub(super) fn new(channels: usize, device: &Device) -> Self {
        Self {
            weight: Param::from_tensor(Tensor::ones([channels], device)),
            bias: Param::from_tensor(Tensor::zeros([channels], device)),
            running_mean: RunningState::new(Tensor::zeros([channels], device)),
            running_var: RunningState::new(Tensor::ones([channels], device)),
            training: Param::from_bool(true),
        }
    }

    /// `[N, C, H, W]` to the same shape and type of number. Numbers of 16 bits are normalised in f32.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let dtype = x.dtype();
        self.forward_f32(x.cast(FloatDType::F32)).cast(dtype)
    }

    fn forward_f32(&self, x: Tensor<4>) -> Tensor<4> {
        if x.device().is_autodiff() && self.training.is_enabled() {
            self.forward_train(x)
        } else {
            let (mean, var) = (self.running_mean.value_sync(), self.running_var.value_sync());
            module::batch_norm(x, self.weight.val(), self.bias.val(), mean, var, Self::EPSILON)
        }
    }

    fn forward_train(&self, x: Tensor<4>) -> Tensor<4> {
        if let Some(ranks) = synced::ranks() {
            return self.forward_synced(x, &ranks);
        }
        let [n, _, h, w] = x.dims();
        let count = (n * h * w) as f64;
        // PyTorch refuses a single value per channel; its variance is 0, and so is the update here.
        let unbiased = if count > 1.0 { count / (count - 1.0) } else { 1.0 };

        let batch = module::batch_norm_train(x, self.weight.val(), self.bias.val(), Self::EPSILON);
        update(&self.running_mean, batch.mean.detach());
        update(&self.running_var, batch.variance.detach().mul_scalar(unbiased));
        batch.output
    }
}

impl BatchNorm {
    /// As `torch.nn.SyncBatchNorm`.
    fn forward_synced(&self, x: Tensor<4>, ranks: &Ranks) -> Tensor<4> {
        let channels = x.dims()[1];
        let synced::Statistics { mean, var, count } = synced::statistics(&x, ranks);
        let unbiased = if count > 1.0 { count / (count - 1.0) } else { 1.0 };
        update(&self.running_mean, mean.clone().detach());
        update(&self.running_var, var.clone().detach().mul_scalar(unbiased));
        let of_channel = |x: Tensor<1>| x.reshape([1, channels, 1, 1]);
        let scale = self.weight.val() * var.add_scalar(Self::EPSILON).sqrt().recip();
        (x - of_channel(mean)) * of_channel(scale) + of_channel(self.bias.val())
    }
}

/// `running = (1 - momentum) * running + momentum * batch`.
fn update(running: &RunningState<Tensor<1>>, batch: Tensor<1>) {
    let kept = running.value_sync().mul_scalar(1.0 - BatchNorm::MOMENTUM);
    running.update(kept.add(batch.mul_scalar(BatchNorm::MOMENTUM)).detach());
}

/// `x W^T + b`, as `torch.nn.Linear`.
#[derive(Module, Debug)]
pub struct Linear {
    /// `[out, in]`.
    pub weight: Param<Tensor<2>>,
    /// `[out]`.
    pub bias: Param<Tensor<1>>,
}

impl Linear {
    /// Weight and bias uniform in `±1/sqrt(in)`, PyTorch's default.
    pub(super) fn new(input: usize, output: usize, draws: &mut Draws, device: &Device) -> Self {
        let bound = 1.0 / (input as f64).sqrt();
        let weight = TensorData::new(draws.uniform(output * input, bound), [output, input]);
        let bias = TensorData::new(draws.uniform(output, bound), [output]);
        Self {
            weight: Param::from_data(weight, device),
            bias: Param::from_data(bias, device),
        }
    }

    /// `[N, in]` to `[N, out]`.
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let dtype = x.dtype();
        let (weight, bias) = (self.weight.val().cast(dtype), self.bias.val().cast(dtype));
        module::linear(x, weight.transpose(), Some(bias))
    }
}
