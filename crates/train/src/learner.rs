//! A model, its optimiser, and one step of them.

use std::path::Path;

use burn::optim::GradientsParams;
use burn::tensor::{Device, Int, Tensor, TensorData};
use stokehold_base::random::mix;
use stokehold_loader::Batch;
use stokehold_storage::IGNORE;

use crate::batch::{bytes, tensor};
use crate::config::TrainConfig;
use crate::ema::{Averaging, Ema};
use crate::emulated::{Emulated, EmulatedUse};
use crate::loss::{PixelTargets, cross_entropy, pixel_cross_entropy, soft_cross_entropy};
use crate::mix::{Mix, Mixture};
use crate::model::synchronised;
use crate::model::{Logits, Network, Noise, PixelLogits};
use crate::optim::{Optimizer, clip_global_norm};
use crate::precision::Precision;
use crate::together::{Sum, Team, Whole};
use crate::{TrainError, checkpoint, device, weights};

/// What steps minimise, and how.
#[derive(Debug, Clone, Default)]
pub(crate) struct Objective {
    pub label_smoothing: f32,
    /// The norm to which gradients are clipped.
    pub clip_norm: Option<f64>,
    /// The type of the numbers of the forward pass.
    pub precision: Precision,
    pub mix: Mix,
    /// An image is mixed with the one this many places before it.
    pub mix_distance: usize,
    /// The weight of each class in the loss of pixels; `None` for 1.
    pub class_weights: Option<Vec<f32>>,
    /// The seed of the mixtures and of dropout.
    pub seed: u64,
}

/// The weight of the auxiliary head's loss, as in torchvision's references.
const AUX_WEIGHT: f64 = 0.5;

/// The labels of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Truth<'a> {
    /// The class of each image.
    pub labels: &'a [u32],
    /// The class of each pixel; empty where images have classes.
    pub masks: &'a [u8],
}

impl<'a> Truth<'a> {
    pub fn of(batch: &'a Batch) -> Self {
        Self {
            labels: &batch.labels,
            masks: &batch.masks,
        }
    }
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
    /// The loss of a batch.
    fn loss(&self, logits: Logits, truth: Truth, mixture: &Mixture) -> Tensor<1> {
        match logits {
            Logits::Images(logits) => self.image_loss(logits, truth.labels, mixture),
            Logits::Pixels(logits) => self.pixel_loss(logits, truth.masks),
        }
    }

    /// What the loss of a batch is a mean over: its images, or the weights of its pixels.
    pub fn weight(&self, truth: Truth) -> f64 {
        if truth.masks.is_empty() {
            return truth.labels.len() as f64;
        }
        let weights = self.class_weights.as_deref();
        let weight = |&class: &u8| match (class, weights) {
            (IGNORE, _) => 0.0,
            (_, None) => 1.0,
            (class, Some(weights)) => f64::from(weights.get(usize::from(class)).copied().unwrap_or(0.0)),
        };
        truth.masks.iter().map(weight).sum()
    }

    /// The loss of the head, and half of that of the auxiliary one.
    fn pixel_loss(&self, logits: PixelLogits, masks: &[u8]) -> Tensor<1> {
        let weights = self.class_weights.as_deref();
        let targets = PixelTargets::new(masks, logits.out.dims(), weights, &logits.out.device());
        let loss = pixel_cross_entropy(logits.out, &targets);
        match logits.aux {
            Some(aux) => loss + pixel_cross_entropy(aux, &targets).mul_scalar(AUX_WEIGHT),
            None => loss,
        }
    }

    /// The loss of a batch whose images are mixed: of its logits and labels.
    fn image_loss(&self, logits: Tensor<2>, labels: &[u32], mixture: &Mixture) -> Tensor<1> {
        let (device, smoothing) = (logits.device(), self.label_smoothing);
        if *mixture == Mixture::None {
            return cross_entropy(logits, targets(labels, &device), smoothing);
        }
        let classes = logits.dims()[1];
        let shares = TensorData::new(
            mixture.classes(labels, classes, self.mix_distance),
            [labels.len(), classes],
        );
        let shares = Tensor::from_data(shares, &device);
        soft_cross_entropy(logits, shares, smoothing)
    }
}

/// What makes the steps of a run.
pub(crate) enum Trainer {
    Burn(Box<Learner>),
    Emulated(Emulated),
}

impl Trainer {
    /// As [`Learner::step`]; an emulated accelerator has no loss.
    pub fn step(self, objective: &Objective, batch: Batch, at: At) -> Result<(Self, f32), TrainError> {
        match self {
            Self::Burn(learner) => {
                let (learner, loss) = learner.step(objective, batch, at)?;
                Ok((Self::Burn(Box::new(learner)), loss))
            }
            Self::Emulated(mut emulated) => {
                emulated.step(bytes(&batch.pixels), batch.labels.len());
                Ok((Self::Emulated(emulated), 0.0))
            }
        }
    }

    /// As [`Learner::part`]; an emulated accelerator has no gradients.
    pub fn part(
        &mut self,
        objective: &Objective,
        batch: Batch,
        at: (u64, usize),
        team: &Team,
        sum: &mut Sum,
    ) -> Result<(), TrainError> {
        let count = batch.labels.len();
        match self {
            Self::Burn(learner) => learner.part(objective, batch, at, team, sum)?,
            Self::Emulated(emulated) => {
                emulated.step(bytes(&batch.pixels), count);
                sum.count(0.0, count as f64, count);
            }
        }
        Ok(())
    }

    /// As [`Learner::step_of_parts`]; ranks with emulated accelerators sum as many numbers as their network has parameters.
    pub fn step_of_parts(
        self,
        objective: &Objective,
        sum: Sum,
        whole: &Whole,
        team: &Team,
        at: At,
    ) -> Result<(Self, f32), TrainError> {
        match self {
            Self::Burn(learner) => {
                let (learner, loss) = learner.step_of_parts(objective, sum, whole, team, at)?;
                Ok((Self::Burn(Box::new(learner)), loss))
            }
            Self::Emulated(emulated) => {
                team.reduce_nothing(emulated.parameters())?;
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
    pub model: Network,
    pub optimizer: Optimizer,
    /// The moving average of the weights.
    pub ema: Option<Ema<Network>>,
    /// The plain device.
    pub device: Device,
}

impl Learner {
    /// The configuration's model and optimiser before the first step, with the initial weights of its seed.
    pub fn new(config: &TrainConfig, classes: usize, device: Device) -> Result<Self, TrainError> {
        Self::with(config, device, |device| {
            Network::new(config.arch, classes, config.seed, device)
        })
    }

    fn with(
        config: &TrainConfig,
        device: Device,
        network: impl FnOnce(&Device) -> Network,
    ) -> Result<Self, TrainError> {
        config.precision.check(&device)?;
        let mut model = network(&device.clone().autodiff());
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
        let mut learner = match checkpoint {
            Some(_) => Self::with(config, device, |device| {
                Network::to_be_loaded(config.arch, classes, device)
            })?,
            None => Self::new(config, classes, device)?,
        };
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
    pub fn step(self, objective: &Objective, batch: Batch, at: At) -> Result<(Self, f32), TrainError> {
        let (scaled, loss) = self.losses(objective, batch, (at.step, objective.seed));
        let grads = GradientsParams::from_grads(scaled.backward(), &self.model);
        let (learner, finite) = self.update(objective, grads, at)?;
        let loss = if finite { learner.fetched(loss)? } else { f32::NAN };
        Ok((learner, loss))
    }

    /// Adds a part of a step's batch to the sum. Parts of a step have different numbers, on all ranks.
    pub fn part(
        &self,
        objective: &Objective,
        batch: Batch,
        (step, part): (u64, usize),
        team: &Team,
        sum: &mut Sum,
    ) -> Result<(), TrainError> {
        // What is left out differs between parts; the first one is as a whole batch.
        let seed = match part {
            0 => objective.seed,
            part => mix(objective.seed ^ mix(part as u64)),
        };
        let weight = objective.weight(Truth::of(&batch));
        let count = batch.labels.len();
        let (scaled, loss) = synchronised(team.synchronises(), || {
            self.losses(objective, batch, (step, seed))
        });
        let scaled = scaled.mul_scalar(weight / team.unit);
        let grads = GradientsParams::from_grads(scaled.backward(), &self.model);
        let loss = self.fetched(loss)?;
        sum.add(grads, &self.model, (loss, weight, count));
        Ok(())
    }

    /// The update of a step whose parts are summed; returns the loss of the whole batch.
    pub fn step_of_parts(
        self,
        objective: &Objective,
        sum: Sum,
        whole: &Whole,
        team: &Team,
        at: At,
    ) -> Result<(Self, f32), TrainError> {
        let grads = team.reduce(sum, whole, &self.model)?;
        let (learner, finite) = self.update(objective, grads, at)?;
        learner.done()?;
        Ok((learner, if finite { whole.loss } else { f32::NAN }))
    }

    /// The loss of a batch, scaled for its gradients and as it is.
    fn losses(
        &self,
        objective: &Objective,
        batch: Batch,
        (step, seed): (u64, u64),
    ) -> (Tensor<1>, Tensor<1>) {
        let Batch {
            pixels,
            normalize,
            shape,
            labels,
            masks,
            ..
        } = batch;
        let truth = Truth {
            labels: &labels,
            masks: &masks,
        };
        let device = self.device.clone().autodiff();
        let mixture = objective.mix.draw(objective.seed, step, [shape[2], shape[3]]);
        let images = mixture.images(tensor(pixels, normalize, shape, &device), objective.mix_distance);
        let images = images.cast(objective.precision.dtype());
        let noise = Noise { seed, step };
        let logits = self.model.forward_train(images, &noise);
        let loss = objective.loss(logits, truth, &mixture);
        let scaled = match self.optimizer.scale() {
            Some(scale) => loss.clone().mul_scalar(scale.factor),
            None => loss.clone(),
        };
        (scaled, loss)
    }

    /// The update by these gradients, and whether there are finite ones at all.
    fn update(
        mut self,
        objective: &Objective,
        grads: GradientsParams,
        At { lr, averaging, .. }: At,
    ) -> Result<(Self, bool), TrainError> {
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
            return Ok((self, false));
        }
        self.ema = self.ema.map(|ema| ema.update(&self.model, averaging));
        Ok((self, true))
    }

    /// The value of a loss, when the device is done.
    fn fetched(&self, loss: Tensor<1>) -> Result<f32, TrainError> {
        let loss = device::read(loss)?;
        self.done()?;
        Ok(loss.first().copied().unwrap_or(f32::NAN))
    }

    /// Waits until the device is done.
    fn done(&self) -> Result<(), TrainError> {
        let failed = |error: burn::backend::ExecutionError| device::DeviceError::Failed(error.to_string());
        Ok(self.device.sync().map_err(failed)?)
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
