//! SGD and AdamW with PyTorch's semantics, and clipping by the global norm.
//!
//! Burn's optimisers dampen momentum by 0.1, clip parameter by parameter, and key their state by ids that a
//! new process draws again. Here the state is keyed by the parameter's *name*, so a state saved by one
//! process continues in another to the bit. A parameter without a gradient (a frozen one) is not changed, not
//! even by weight decay, as in PyTorch.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use crate::arrays::{self, Array, ArraysError, ParameterPath};
use crate::device::{self, DeviceError};
use crate::model::LAST_LAYERS;
use crate::precision::LossScale;

/// An optimiser and its constants; the learning rate is passed to each step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum OptimizerConfig {
    /// `torch.optim.SGD` with dampening 0.
    Sgd {
        /// In `[0, 1)`; 0 for none.
        momentum: f64,
        /// L2 penalty added to the gradient, 0 or more.
        weight_decay: f64,
        /// Nesterov's momentum; needs `momentum` above 0.
        nesterov: bool,
    },
    /// `torch.optim.AdamW`: weight decay apart from the gradient (Loshchilov and Hutter, 2019).
    AdamW {
        /// Decay of the mean of the gradient, in `[0, 1)`.
        beta1: f64,
        /// Decay of the mean of its square, in `[0, 1)`.
        beta2: f64,
        /// Added to the denominator, above 0.
        epsilon: f64,
        /// Share of the parameter that is subtracted per unit of learning rate, 0 or more.
        weight_decay: f64,
    },
}

/// The parameters without weight decay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Undecayed {
    /// None: all decay.
    #[default]
    None,
    /// Those of normalisation (torchvision's `--norm-weight-decay 0`).
    Norm,
    /// Those of normalisation, and biases: all of one dimension (timm's default).
    NormAndBias,
}

impl Undecayed {
    /// Whether a parameter of this name with this many dimensions is one of them.
    fn has(self, name: &str, dimensions: usize) -> bool {
        match self {
            Self::None => false,
            Self::Norm => {
                let layer = name.strip_suffix(".bias");
                dimensions == 1 && !layer.is_some_and(|layer| LAST_LAYERS.contains(&layer))
            }
            Self::NormAndBias => dimensions == 1,
        }
    }
}

impl OptimizerConfig {
    /// SGD with momentum 0.9 and without weight decay.
    pub const SGD: Self = Self::Sgd {
        momentum: 0.9,
        weight_decay: 0.0,
        nesterov: false,
    };
    /// AdamW with PyTorch's defaults.
    pub const ADAMW: Self = Self::adamw(0.01);

    /// AdamW with PyTorch's defaults and this weight decay.
    pub const fn adamw(weight_decay: f64) -> Self {
        Self::AdamW {
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay,
        }
    }

    /// # Errors
    /// If a constant is out of its range.
    pub fn check(&self) -> Result<(), OptimizerError> {
        let decay = |x: f64| (0.0..1.0).contains(&x);
        let penalty = |x: f64| x.is_finite() && x >= 0.0;
        let fault = match *self {
            Self::Sgd { momentum, .. } if !decay(momentum) => {
                format!("momentum {momentum}: give 0 up to below 1")
            }
            Self::AdamW { beta1, .. } if !decay(beta1) => {
                format!("beta1 {beta1}: give 0 up to below 1")
            }
            Self::AdamW { beta2, .. } if !decay(beta2) => {
                format!("beta2 {beta2}: give 0 up to below 1")
            }
            Self::AdamW { epsilon, .. } if !(epsilon.is_finite() && epsilon > 0.0) => {
                format!("epsilon {epsilon}: give a number above 0")
            }
            Self::Sgd { weight_decay, .. } | Self::AdamW { weight_decay, .. } if !penalty(weight_decay) => {
                format!("weight decay {weight_decay}: give 0 or more")
            }
            Self::Sgd {
                momentum: 0.0,
                nesterov: true,
                ..
            } => "Nesterov's momentum needs a momentum above 0".to_string(),
            _ => return Ok(()),
        };
        Err(OptimizerError::Range(fault))
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Sgd { .. } => "sgd",
            Self::AdamW { .. } => "adamw",
        }
    }
}

/// Errors of an optimiser or its saved state.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OptimizerError {
    /// A constant out of range; the text names it and the range.
    #[error("{0}")]
    Range(String),
    /// The file is not a state of this optimiser.
    #[error("{path} is not the state of {expected} for this model: {reason}")]
    State {
        /// The file.
        path: String,
        /// The optimiser that it was loaded for.
        expected: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// The file could not be read or written.
    #[error(transparent)]
    File(#[from] ArraysError),
}

/// An optimiser with its state.
#[derive(Debug, Clone)]
pub struct Optimizer {
    config: OptimizerConfig,
    undecayed: Undecayed,
    scale: Option<LossScale>,
    steps: u64,
    slots: BTreeMap<String, Slot>,
}

/// The state of one parameter, flattened: `first` is the momentum or the mean of the gradient, `second` is
/// AdamW's mean of its square.
#[derive(Debug, Clone)]
struct Slot {
    first: Tensor<1>,
    second: Option<Tensor<1>>,
}

impl Optimizer {
    /// An optimiser without state.
    ///
    /// # Errors
    /// If a constant of the configuration is out of its range.
    pub fn new(config: OptimizerConfig) -> Result<Self, OptimizerError> {
        config.check()?;
        Ok(Self {
            config,
            undecayed: Undecayed::None,
            scale: None,
            steps: 0,
            slots: BTreeMap::new(),
        })
    }

    /// The same; these parameters have no weight decay.
    #[must_use]
    pub fn sparing(self, undecayed: Undecayed) -> Self {
        Self { undecayed, ..self }
    }

    /// The same for gradients of a scaled loss, with the scale of the state that was loaded, or the first one.
    #[must_use]
    pub fn scaling(self) -> Self {
        let scale = Some(self.scale.unwrap_or_default());
        Self { scale, ..self }
    }

    /// The scale of the next loss, where losses are scaled.
    pub fn scale(&self) -> Option<LossScale> {
        self.scale
    }

    /// Divides the gradients of a scaled loss by the scale, and sets the next one. `None` if they are not finite: then there
    /// is no update.
    ///
    /// # Errors
    /// The device fails.
    pub fn unscale<M: Module>(
        &mut self,
        mut grads: GradientsParams,
        model: &M,
    ) -> Result<Option<GradientsParams>, DeviceError> {
        let Some(scale) = self.scale else {
            return Ok(Some(grads));
        };
        let device = model.devices().swap_remove(0).without_autodiff();
        let factor = Tensor::from_data([(1.0 / scale.factor) as f32], &device);
        model.visit(&mut Scale {
            grads: &mut grads,
            factor,
        });
        let mut squares = SumOfSquares {
            grads: &grads,
            sum: None,
        };
        model.visit(&mut squares);
        let sums = squares.sum.map(device::read).transpose()?.unwrap_or_default();
        let finite = sums.iter().all(|sum| sum.is_finite());
        self.scale = Some(scale.after(finite));
        Ok(finite.then_some(grads))
    }

    /// One update of the model with learning rate `lr`.
    pub fn step<M: Module>(&mut self, lr: f64, model: M, grads: GradientsParams) -> M {
        self.steps += 1;
        model.map(&mut Update {
            optimizer: self,
            lr,
            grads,
            path: ParameterPath::default(),
        })
    }

    /// The number of updates, over all processes that continued this state.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Writes the state as safetensors, to a temporary file that is then renamed, with PyTorch's names
    /// (`momentum_buffer`; `exp_avg`, `exp_avg_sq`) after the parameter's.
    ///
    /// # Errors
    /// If the device or the file system fails.
    pub fn save(&self, path: &Path) -> Result<(), OptimizerError> {
        let [first, second] = self.slot_names();
        let mut saved = Vec::new();
        for (name, slot) in &self.slots {
            saved.push(Array::from_tensor(format!("{name}.{first}"), slot.first.clone())?);
            if let Some(tensor) = &slot.second {
                saved.push(Array::from_tensor(format!("{name}.{second}"), tensor.clone())?);
            }
        }
        let mut metadata: HashMap<String, String> = [
            ("optimizer", self.config.kind().to_string()),
            ("steps", self.steps.to_string()),
        ]
        .map(|(key, value)| (key.to_string(), value))
        .into();
        if let Some(LossScale { factor, steps }) = self.scale {
            // Both decimals are exact: the factor is a power of two.
            metadata.insert("loss_scale".to_string(), format!("{factor} {steps}"));
        }
        Ok(arrays::save(path, &saved, metadata)?)
    }

    /// Continues a state saved by [`Optimizer::save`] on `device` (plain or not), with the constants of
    /// `config`, and weight decay for all parameters.
    ///
    /// # Errors
    /// If the file cannot be read or holds the state of another optimiser.
    pub fn load(config: OptimizerConfig, path: &Path, device: &Device) -> Result<Self, OptimizerError> {
        let mut optimizer = Self::new(config)?;
        let wrong = |reason: String| OptimizerError::State {
            path: path.display().to_string(),
            expected: config.kind(),
            reason,
        };
        let (saved, metadata) = arrays::load_safetensors(path)?;
        let kind = metadata.get("optimizer").map_or("nothing known", String::as_str);
        if kind != config.kind() {
            return Err(wrong(format!("it is the state of {kind}")));
        }
        let steps = metadata.get("steps").and_then(|steps| steps.parse().ok());
        optimizer.steps = steps.ok_or_else(|| wrong("it does not say after how many steps".to_string()))?;

        if let Some(scale) = metadata.get("loss_scale") {
            let parsed = scale
                .split_once(' ')
                .and_then(|(factor, steps)| Some((factor.parse().ok()?, steps.parse().ok()?)));
            let (factor, steps) = parsed.ok_or_else(|| wrong(format!("its loss scale is '{scale}'")))?;
            optimizer.scale = Some(LossScale { factor, steps });
        }
        let device = device.clone().without_autodiff();
        let [first, second] = optimizer.slot_names();
        let mut seconds = BTreeMap::new();
        for array in saved {
            let Some((name, slot)) = array.name.rsplit_once('.') else {
                return Err(wrong(format!("'{}' belongs to no parameter", array.name)));
            };
            let (name, tensor) = (name.to_string(), Tensor::from_data(array.data.clone(), &device));
            if slot == first {
                optimizer.slots.insert(
                    name,
                    Slot {
                        first: tensor,
                        second: None,
                    },
                );
            } else if slot == second {
                seconds.insert(name, tensor);
            } else {
                return Err(wrong(format!("'{}' is unknown", array.name)));
            }
        }
        for (name, tensor) in seconds {
            let slot = optimizer.slots.get_mut(&name);
            slot.ok_or_else(|| wrong(format!("'{name}.{first}' is missing")))?
                .second = Some(tensor);
        }
        Ok(optimizer)
    }

    fn slot_names(&self) -> [&'static str; 2] {
        match self.config {
            OptimizerConfig::Sgd { .. } => ["momentum_buffer", ""],
            OptimizerConfig::AdamW { .. } => ["exp_avg", "exp_avg_sq"],
        }
    }

    /// The new value of one parameter, all flattened.
    fn update(&mut self, name: String, decays: bool, p: Tensor<1>, g: Tensor<1>, lr: f64) -> Tensor<1> {
        let of_parameter = |weight_decay: f64| if decays { weight_decay } else { 0.0 };
        match self.config {
            OptimizerConfig::Sgd {
                momentum,
                weight_decay,
                nesterov,
            } => {
                let weight_decay = of_parameter(weight_decay);
                let g = if weight_decay == 0.0 {
                    g
                } else {
                    g + p.clone().mul_scalar(weight_decay)
                };
                if momentum == 0.0 {
                    return p - g.mul_scalar(lr);
                }
                let buffer = match self.slots.remove(&name) {
                    Some(slot) => slot.first.mul_scalar(momentum) + g.clone(),
                    None => g.clone(),
                };
                self.slots.insert(
                    name,
                    Slot {
                        first: buffer.clone(),
                        second: None,
                    },
                );
                let direction = if nesterov {
                    g + buffer.mul_scalar(momentum)
                } else {
                    buffer
                };
                p - direction.mul_scalar(lr)
            }
            OptimizerConfig::AdamW {
                beta1,
                beta2,
                epsilon,
                weight_decay,
            } => {
                let (direction, correction) = self.adam(name, g, [beta1, beta2, epsilon]);
                p.mul_scalar(1.0 - lr * of_parameter(weight_decay)) - direction.mul_scalar(lr / correction)
            }
        }
    }

    /// Adam's direction for one parameter, and the number by which it is still to be divided, because the mean of the
    /// gradient begins at 0.
    fn adam(&mut self, name: String, g: Tensor<1>, constants: [f64; 3]) -> (Tensor<1>, f64) {
        let [beta1, beta2, epsilon] = constants;
        let square = (g.clone() * g.clone()).mul_scalar(1.0 - beta2);
        let g = g.mul_scalar(1.0 - beta1);
        let (mean, var) = match self.slots.remove(&name) {
            Some(Slot {
                first,
                second: Some(second),
            }) => (first.mul_scalar(beta1) + g, second.mul_scalar(beta2) + square),
            _ => (g, square),
        };
        let corrections = [
            1.0 - beta1.powf(self.steps as f64),
            1.0 - beta2.powf(self.steps as f64),
        ];
        let denominator = var
            .clone()
            .sqrt()
            .div_scalar(corrections[1].sqrt())
            .add_scalar(epsilon);
        let direction = mean.clone() / denominator;
        self.slots.insert(
            name,
            Slot {
                first: mean,
                second: Some(var),
            },
        );
        (direction, corrections[0])
    }
}

struct Update<'a> {
    optimizer: &'a mut Optimizer,
    lr: f64,
    grads: GradientsParams,
    path: ParameterPath,
}

impl ModuleMapper for Update<'_> {
    fn enter_module(&mut self, name: &str, of: &str) {
        self.path.enter(name, of);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(grad) = self.grads.remove::<D>(param.id) else {
            return param;
        };
        param.map(|tensor| {
            let (shape, trained) = (tensor.shape(), tensor.is_require_grad());
            let (p, g) = (tensor.inner().flatten(0, D - 1), grad.flatten(0, D - 1));
            let name = self.path.name();
            let decays = !self.optimizer.undecayed.has(&name, D);
            let p = self.optimizer.update(name, decays, p, g, self.lr);
            Tensor::from_inner(p.reshape(shape)).set_require_grad(trained)
        })
    }
}

/// Scales all gradients by one factor so that their joint L2 norm is at most `max_norm`, as
/// `torch.nn.utils.clip_grad_norm_`; returns the norm before, `[1]`, still on the device.
pub fn clip_global_norm<M: Module>(
    mut grads: GradientsParams,
    model: &M,
    max_norm: f64,
) -> (GradientsParams, Tensor<1>) {
    let mut squares = SumOfSquares {
        grads: &grads,
        sum: None,
    };
    model.visit(&mut squares);
    let Some(sum) = squares.sum else {
        let device = model.devices().swap_remove(0).without_autodiff();
        return (grads, Tensor::zeros([1], &device));
    };
    let norm = sum.sqrt();
    let factor = norm
        .clone()
        .add_scalar(1e-6)
        .recip()
        .mul_scalar(max_norm)
        .clamp_max(1.0);
    model.visit(&mut Scale {
        grads: &mut grads,
        factor,
    });
    (grads, norm)
}

struct SumOfSquares<'a> {
    grads: &'a GradientsParams,
    sum: Option<Tensor<1>>,
}

impl ModuleVisitor for SumOfSquares<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(grad) = self.grads.get::<D>(param.id) else {
            return;
        };
        let square = (grad.clone() * grad).sum();
        self.sum = Some(match self.sum.take() {
            Some(sum) => sum + square,
            None => square,
        });
    }
}

struct Scale<'a> {
    grads: &'a mut GradientsParams,
    factor: Tensor<1>,
}

impl ModuleVisitor for Scale<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(grad) = self.grads.remove::<D>(param.id) else {
            return;
        };
        self.grads
            .register(param.id, grad * self.factor.clone().reshape([1; D]));
    }
}
