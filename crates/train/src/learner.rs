//! A model, its optimiser, and one step of them.

use std::path::Path;

use burn::optim::GradientsParams;
use burn::tensor::{Device, FloatDType, Int, Tensor, TensorData};

use crate::config::TrainConfig;
use crate::ema::{Averaging, Ema};
use crate::emulated::{Emulated, EmulatedUse};
use crate::feed::Input;
use crate::loss::{LossKind, binary_cross_entropy, cross_entropy, soft_cross_entropy};
use crate::mix::{Mix, Mixture};
use crate::model::ResNet;
use crate::optim::{Optimizer, clip_global_norm};
use crate::precision::Precision;
use crate::{TrainError, checkpoint, depth, device, weights};

/// What steps minimise, and how.
#[derive(Debug, Clone, Default)]
pub(crate) struct Objective {
    pub loss: LossKind,
    pub bce_threshold: Option<f32>,
    pub label_smoothing: f32,
    /// The norm to which gradients are clipped.
    pub clip_norm: Option<f64>,
    /// The type of the numbers of the forward pass.
    pub precision: Precision,
    /// The rate of the last block.
    pub stochastic_depth: f64,
    pub mix: Mix,
    /// How many places before an image is the one that it is mixed with.
    pub mix_distance: usize,
    /// The seed of the mixtures and of stochastic depth.
    pub seed: u64,
}

/// The place of a step in a run.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct At {
    /// Steps before it.
    pub step: u64,
    /// Its learning rate.
    pub lr: f64,
    /// What happens to the moving average after it.
    pub averaging: Averaging,
}

impl Objective {
    /// What stochastic depth makes of the blocks of a model in a step.
    fn factors(&self, model: &ResNet, images: usize, step: u64, device: &Device) -> Vec<Tensor<1>> {
        let blocks = model.blocks().count();
        depth::factors(self.stochastic_depth, blocks, images, self.seed, step, device)
    }

    /// The loss of a batch whose images are mixed: of its logits and labels.
    fn loss(&self, logits: Tensor<2>, labels: &[u32], mixture: &Mixture) -> Tensor<1> {
        let (device, smoothing) = (logits.device(), self.label_smoothing);
        if (self.loss, mixture) == (LossKind::CrossEntropy, &Mixture::None) {
            return cross_entropy(logits, targets(labels, &device), smoothing);
        }
        let classes = logits.dims()[1];
        let shares = TensorData::new(
            mixture.classes(labels, classes, self.mix_distance),
            [labels.len(), classes],
        );
        let shares = Tensor::from_data(shares, &device);
        match self.loss {
            LossKind::CrossEntropy => soft_cross_entropy(logits, shares, smoothing),
            LossKind::Bce => binary_cross_entropy(logits, shares, smoothing, self.bce_threshold),
        }
    }
}

/// What makes the steps of a run.
pub(crate) enum Trainer {
    Burn(Box<Learner>),
    Emulated(Emulated),
}

impl Trainer {
    /// As [`Learner::step`]; an emulated accelerator has no loss.
    pub fn step(
        self,
        objective: &Objective,
        images: Input,
        shape: [usize; 4],
        labels: &[u32],
        at: At,
    ) -> Result<(Self, f32), TrainError> {
        match self {
            Self::Burn(learner) => {
                let (learner, loss) = learner.step(objective, images, shape, labels, at)?;
                Ok((Self::Burn(Box::new(learner)), loss))
            }
            Self::Emulated(mut emulated) => {
                emulated.step(images.bytes(), labels.len());
                Ok((Self::Emulated(emulated), 0.0))
            }
        }
    }

    /// What an emulated accelerator has done; `None` for Burn.
    pub fn used(&self) -> Option<EmulatedUse> {
        match self {
            Self::Burn(_) => None,
            Self::Emulated(emulated) => Some(emulated.used()),
        }
    }

    /// What learns; `None` for an emulated accelerator.
    pub fn learner(&self) -> Option<&Learner> {
        match self {
            Self::Burn(learner) => Some(learner),
            Self::Emulated(_) => None,
        }
    }
}

/// A model and its optimiser. A step takes it by value, so that parameters can be updated in place.
pub(crate) struct Learner {
    pub model: ResNet,
    pub optimizer: Optimizer,
    /// The moving average of the weights.
    pub ema: Option<Ema>,
    /// The plain device.
    pub device: Device,
}

impl Learner {
    /// The configuration's model and optimiser before the first step, with the initial weights of its seed.
    pub fn new(config: &TrainConfig, classes: usize, device: Device) -> Result<Self, TrainError> {
        config.precision.check(&device)?;
        let mut model = ResNet::new(config.arch, classes, config.seed, &device.clone().autodiff());
        if config.freeze_backbone {
            model = model.freeze_backbone();
        }
        Ok(Self {
            model,
            optimizer: of_config(config, Optimizer::new(config.optimizer)?),
            ema: None,
            device,
        })
    }

    /// The model and the optimiser of a run: those of its checkpoint, or those before the first step, with the weights
    /// that the configuration names. The number is the classes of these weights, if the last layer had to be
    /// replaced.
    pub fn of_run(
        config: &TrainConfig,
        classes: usize,
        device: Device,
        checkpoint: Option<&Path>,
    ) -> Result<(Self, Option<usize>), TrainError> {
        let mut learner = Self::new(config, classes, device)?;
        let mut replaced_head = None;
        if let Some(path) = checkpoint {
            (learner.model, learner.optimizer) =
                checkpoint::load(path, learner.model, config.optimizer, &learner.device)?;
            learner.optimizer = of_config(config, learner.optimizer);
        } else if let Some(path) = &config.weights {
            let loaded;
            (learner.model, loaded) = weights::load_weights(learner.model, path)?;
            replaced_head = loaded.replaced_head;
        }
        if config.freeze_backbone {
            // Loaded parameters are new ones.
            learner.model = learner.model.freeze_backbone();
        }
        if config.ema.is_some() {
            learner.ema = Some(match checkpoint {
                Some(path) => checkpoint::load_ema(path, &learner.model)?,
                None => Ema::new(&learner.model),
            });
        }
        Ok((learner, replaced_head))
    }

    /// One step over a batch; returns the batch's loss.
    ///
    /// A step in f16 whose gradients are not finite changes nothing but the scale of the loss.
    ///
    /// Fetching the loss waits until the device is done, so the time of this call is the time of the step.
    pub fn step(
        mut self,
        objective: &Objective,
        images: Input,
        shape: [usize; 4],
        labels: &[u32],
        At { step, lr, averaging }: At,
    ) -> Result<(Self, f32), TrainError> {
        let device = self.device.clone().autodiff();
        let mixture = objective.mix.draw(objective.seed, step, [shape[2], shape[3]]);
        let images = mixture.images(images.tensor(shape, &device), objective.mix_distance);
        let images = images.cast(objective.precision.dtype());
        let factors = objective.factors(&self.model, shape[0], step, &device);
        let logits = self.model.forward_scaled(images, &factors).cast(FloatDType::F32);
        let loss = objective.loss(logits, labels, &mixture);
        let scaled = match self.optimizer.scale() {
            Some(scale) => loss.clone().mul_scalar(scale.factor),
            None => loss.clone(),
        };
        let grads = GradientsParams::from_grads(scaled.backward(), &self.model);
        if let Some(mut grads) = self.optimizer.unscale(grads, &self.model)? {
            if let Some(norm) = objective.clip_norm {
                (grads, _) = clip_global_norm(grads, &self.model, norm);
            }
            self.model = self.optimizer.step(lr, self.model, grads);
        } else if self
            .optimizer
            .scale()
            .is_some_and(|scale| scale.factor < LEAST_SCALE)
        {
            return Ok((self, f32::NAN));
        }
        self.ema = self.ema.map(|ema| ema.update(&self.model, averaging));
        let loss = device::read(loss)?;
        self.device
            .sync()
            .map_err(|error| device::DeviceError::Failed(error.to_string()))?;
        Ok((self, loss.first().copied().unwrap_or(f32::NAN)))
    }
}

/// A loss that is scaled down so far and still has no finite gradients has none.
const LEAST_SCALE: f64 = 1e-6;

fn of_config(config: &TrainConfig, optimizer: Optimizer) -> Optimizer {
    let optimizer = optimizer.sparing(config.undecayed);
    match config.precision {
        Precision::F16 => optimizer.scaling(),
        Precision::F32 | Precision::Bf16 => optimizer,
    }
}

/// Class indices as a tensor `[N]`.
pub(crate) fn targets(labels: &[u32], device: &Device) -> Tensor<1, Int> {
    let classes: Vec<i32> = labels.iter().map(|&label| label as i32).collect();
    Tensor::from_data(TensorData::new(classes, [labels.len()]), device)
}
