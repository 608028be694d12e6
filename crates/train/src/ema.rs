//! An exponential moving average of a model's weights, next to the model that trains, as torchvision's references
//! have it (`--model-ema` of `references/classification/train.py`).
//!
//! After the first step of an epoch and every so many steps after it, each weight and running statistic of the average
//! becomes `keep x its own + (1 - keep) x the model's`. While the learning rate warms up the average is a copy of the
//! model. `keep` is `1 - (1 - decay) x batch size x steps / epochs`, at least 0: the decay is stated so that it
//! stays the same for another batch size and another number of epochs.
//!
//! When to average is a function of the epoch and the step, so the average has no state but its weights.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::arrays::ParameterPath;

/// How weights are averaged.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmaConfig {
    /// The decay, 0 up to below 1; torchvision's is 0.99998.
    pub decay: f64,
    /// Steps between two averages, at least 1; torchvision's is 32.
    pub steps: u64,
}

/// What happens to the average after a step.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum Averaging {
    /// Nothing.
    #[default]
    No,
    /// It becomes the model.
    Copy,
    /// It keeps this share of itself.
    Keep(f64),
}

impl EmaConfig {
    /// The share of itself that the average keeps each time, in a run with this batch size and this many epochs.
    pub fn keep(&self, batch_size: usize, epochs: u64) -> f64 {
        let adjusted = (1.0 - self.decay) * batch_size as f64 * self.steps as f64 / epochs as f64;
        1.0 - adjusted.min(1.0)
    }

    /// What happens after a step of an epoch, both from 0, in a run whose learning rate warms up for this many epochs.
    pub fn after(&self, epoch: u64, step: u64, warmup_epochs: f64, keep: f64) -> Averaging {
        if !step.is_multiple_of(self.steps) {
            return Averaging::No;
        }
        let warms_up = |epoch: u64| (epoch as f64) < warmup_epochs;
        // torchvision sets its count of averages to 0 after each one of the warm-up, and copies at a count of 0: within the
        // warm-up and at the first average after it.
        let first = step == 0 && epoch.checked_sub(1).is_none_or(warms_up);
        match first || warms_up(epoch) {
            true => Averaging::Copy,
            false => Averaging::Keep(keep),
        }
    }
}

/// The averaged weights.
#[derive(Debug, Clone)]
pub struct Ema<M>(M);

impl<M: Module> Ema<M> {
    /// Begins with a copy of the model, on its plain device.
    pub fn new(model: &M) -> Self {
        Self(model.valid())
    }

    /// The averaged model.
    pub fn model(&self) -> &M {
        &self.0
    }

    /// Takes the model into the average.
    pub fn update(self, model: &M, averaging: Averaging) -> Self {
        let keep = match averaging {
            Averaging::No => return self,
            Averaging::Copy => return Self::new(model),
            Averaging::Keep(keep) => keep,
        };
        let mut current = Current::default();
        model.valid().visit(&mut current);
        Self(self.0.map(&mut Average {
            keep,
            current: current.weights,
            path: ParameterPath::default(),
        }))
    }
}

/// The weights and running statistics of the model, flattened, by name.
#[derive(Default)]
struct Current {
    weights: BTreeMap<String, Tensor<1>>,
    path: ParameterPath,
}

impl ModuleVisitor for Current {
    fn enter_module(&mut self, name: &str, of: &str) {
        self.path.enter(name, of);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let flat = param.val().flatten(0, D - 1);
        self.weights.insert(self.path.name(), flat);
    }
}

struct Average {
    keep: f64,
    current: BTreeMap<String, Tensor<1>>,
    path: ParameterPath,
}

impl ModuleMapper for Average {
    fn enter_module(&mut self, name: &str, of: &str) {
        self.path.enter(name, of);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(current) = self.current.remove(&self.path.name()) else {
            return param;
        };
        param.map(|own| {
            let current = current.reshape(own.shape());
            own.mul_scalar(self.keep) + current.mul_scalar(1.0 - self.keep)
        })
    }
}
