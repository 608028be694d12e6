//! Steps that several ranks make together, and steps in several parts.
//!
//! A step is one whole batch. Its parts are the ranks' shares, and each rank's share in [`Team::accumulate`] pieces, one
//! after the other. The gradient of the whole batch's mean loss is the sum over the parts of `w / W` times the part's,
//! where `w` is what the part's loss is a mean over (its images, or the weights of its pixels) and `W` the sum of all `w`.
//! So parts of different sizes, and empty ones, count as they should:
//!
//! 1. Each part's loss, times `w` over what an ordinary part has, makes gradients, which are added up on the device.
//! 2. The ranks tell each other their `w`, losses and images. The time of this is the wait for the slowest rank.
//! 3. The gradients are copied into buckets of 25 MB (PyTorch's `DistributedDataParallel` has the same size), which are
//!    summed over the ranks while the next ones are copied. The time of this is the reduction.
//! 4. Every rank divides by `W`, clips and updates. All have the same gradients to the bit, so all have the same weights.
//!
//! Without other ranks steps 2 and 3 are left out.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use burn::module::ModuleMapper;
use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use stokehold_loader::Parts;
use stokehold_pipeline::Executor;
use stokehold_profile::Machine;
use stokehold_ranks::{Pending, Phase, Ranks, RanksError};

use crate::TrainError;
use crate::arrays::ParameterPath;
use crate::ceilings::Ceiling;
use crate::config::TrainConfig;
use crate::device::{self, DeviceError};
use crate::world::{self, RankFacts};
use stokehold_profile::ranks::{RankTimes, RanksSummary};

/// The ranks of a run, and how its steps are divided.
#[derive(Debug, Clone)]
pub(crate) struct Team {
    pub ranks: Ranks,
    /// Pieces of a rank's share of a batch, at least 1.
    pub accumulate: usize,
    /// Whether batch normalisation is over all ranks.
    pub sync_batch_norm: bool,
    /// What the loss of an ordinary part is a mean over: weights are divided by it, so that the gradients of 16-bit numbers
    /// keep their size.
    pub unit: f64,
    /// Buckets of earlier steps: their memory has been touched.
    buckets: Arc<Mutex<Vec<Vec<f32>>>>,
}

/// What is summed over the parts of a step.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    gradients: Option<Gradients>,
    pub loss: f64,
    /// What the loss is a sum over.
    pub weight: f64,
    pub images: usize,
}

/// A step's figures, the same on every rank.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Whole {
    /// The mean loss.
    pub loss: f32,
    pub weight: f64,
    pub images: usize,
    /// Whether a rank was asked to stop.
    pub stop: bool,
    /// This rank waited so long for the slowest one.
    pub waited: Duration,
}

/// 25 MB of f32, the size of PyTorch's buckets.
const BUCKET: usize = 25 * 1024 * 1024 / 4;

impl Team {
    /// The ranks as a configuration uses them, on this device.
    pub fn of(config: &TrainConfig, ranks: &Ranks, device: &Device) -> Result<Self, TrainError> {
        let parts = ranks.size() * config.accumulate;
        let images = config.batch_size.div_ceil(parts);
        let refused = |field, problem: String| Err(TrainError::Config { field, problem });
        if config.batch_size < parts {
            return refused(
                "batch size",
                format!(
                    "{} images are fewer than the parts that {} ranks make of a batch, {parts}: give a larger batch size, or fewer \
                     ranks",
                    config.batch_size,
                    ranks.size()
                ),
            );
        }
        if config.mix.mixes() && images <= config.sampler.repeats() {
            return refused(
                "batch size",
                format!(
                    "a rank computes {images} images at a time, and MixUp and CutMix mix different ones of these: give a larger batch \
                     size, or fewer ranks"
                ),
            );
        }
        if parts > 1 && !matches!(config.executor, Some(Executor::PerOp | Executor::Fused)) {
            return refused(
                "executor",
                "must be fused or per-op where batches are computed in parts, by ranks or in pieces: gpu makes whole batches"
                    .to_owned(),
            );
        }
        if config.sync_batch_norm && device::kind(&device::name(device)) != "cpu" {
            return refused(
                "synchronised batch norm",
                "is there for the device cpu only: leave it out, and give each rank enough images".to_owned(),
            );
        }
        let (width, height) = config.pipeline.check()?;
        let of_image = match config.arch.segments() {
            true => f64::from(width) * f64::from(height),
            false => 1.0,
        };
        Ok(Self {
            ranks: ranks.clone(),
            accumulate: config.accumulate,
            sync_batch_norm: config.sync_batch_norm,
            unit: images as f64 * of_image,
            buckets: Arc::default(),
        })
    }

    /// The parts of a training batch that this rank computes.
    pub fn parts(&self) -> Parts {
        Parts {
            first: self.ranks.rank() * self.accumulate,
            count: self.accumulate,
            of: self.ranks.size() * self.accumulate,
        }
    }

    /// The part of a validation batch that this rank computes.
    pub fn shares(&self) -> Parts {
        Parts {
            first: self.ranks.rank(),
            count: 1,
            of: self.ranks.size(),
        }
    }

    /// The number of a part of this rank among the parts of a batch.
    pub fn part(&self, piece: usize) -> usize {
        self.ranks.rank() * self.accumulate + piece
    }

    /// The ranks, for the record of a run; none for one alone.
    pub fn facts(&self, device: &str) -> Result<Vec<RankFacts>, RanksError> {
        if self.ranks.are_alone() {
            return Ok(Vec::new());
        }
        let rank = self.ranks.rank();
        let own = RankFacts {
            rank,
            host: self.ranks.hosts()[rank].clone(),
            machine: Machine::here(),
            device: device.to_owned(),
        };
        world::gather(&self.ranks, &own)
    }

    /// Checks that all ranks have the same weights.
    pub fn check_weights<M: Module>(&self, model: &M, step: u64) -> Result<(), TrainError> {
        if self.ranks.are_alone() {
            return Ok(());
        }
        let sums = world::gather(&self.ranks, &checksum(model)?)?;
        match sums.iter().position(|sum| *sum != sums[0]) {
            Some(rank) => Err(TrainError::Apart { rank, step }),
            None => Ok(()),
        }
    }

    /// The model with the running statistics of rank 0, whose model is the one that is kept.
    pub fn with_statistics_of_first<M: Module>(&self, model: M) -> Result<M, TrainError> {
        if self.ranks.are_alone() {
            return Ok(model);
        }
        let own = match self.ranks.is_first() {
            true => statistics(&model)?,
            false => Vec::new(),
        };
        let sent = self.ranks.broadcast(own)?;
        if self.ranks.is_first() {
            return Ok(model);
        }
        let mut numbers = sent
            .as_chunks::<4>()
            .0
            .iter()
            .map(|&bytes| f32::from_le_bytes(bytes));
        Ok(model.map(&mut Given {
            numbers: &mut numbers,
            path: ParameterPath::default(),
        }))
    }

    /// The ceilings of all ranks together: the sums of the rates, and the means of the costs of an image.
    pub fn ceilings(
        &self,
        own: Option<(Ceiling, Ceiling)>,
    ) -> Result<Option<(Ceiling, Ceiling)>, RanksError> {
        if self.ranks.are_alone() {
            return Ok(own);
        }
        let all = world::gather(&self.ranks, &own)?;
        let all: Option<Vec<(Ceiling, Ceiling)>> = all.into_iter().collect();
        let together = |all: &[Ceiling]| {
            let count = all.len().max(1) as f64;
            let cpu: Option<Vec<f64>> = all.iter().map(|ceiling| ceiling.cpu_seconds).collect();
            Ceiling {
                images_per_second: all.iter().map(|ceiling| ceiling.images_per_second).sum(),
                cpu_seconds: cpu.map(|cpu| cpu.iter().sum::<f64>() / count),
                delay_seconds: all.iter().map(|ceiling| ceiling.delay_seconds).sum::<f64>() / count,
            }
        };
        Ok(all.map(|all| {
            let (loaders, trainers): (Vec<_>, Vec<_>) = all.into_iter().unzip();
            (together(&loaders), together(&trainers))
        }))
    }

    /// Where the time of all ranks went; `None` where steps are neither shared nor divided. This process kept `own_cores`
    /// cores busy, and all others `others_cores`; ranks on the same machine are no other programs.
    pub fn times(
        &self,
        own: &RankTimes,
        own_cores: f64,
        others_cores: Option<f64>,
    ) -> Result<Option<RanksSummary>, RanksError> {
        if self.is_alone() {
            return Ok(None);
        }
        let own = RankTimes {
            host: self.ranks.hosts()[self.ranks.rank()].clone(),
            others_cores,
            ..own.clone()
        };
        let all: Vec<(RankTimes, f64)> = world::gather(&self.ranks, &(own, own_cores))?;
        let of_ranks = |rank: usize, host: &str| -> f64 {
            let others = all.iter().enumerate().filter(|(other, _)| *other != rank);
            let there = others.filter(|(_, (times, _))| times.host == host);
            there.map(|(_, (_, cores))| cores).sum()
        };
        let times = all.iter().enumerate().map(|(rank, (times, _))| RankTimes {
            others_cores: times
                .others_cores
                .map(|others| (others - of_ranks(rank, &times.host)).max(0.0)),
            ..times.clone()
        });
        let times = times.collect();
        let accumulate = self.accumulate;
        Ok(Some(RanksSummary { accumulate, times }))
    }

    /// Whether steps are neither shared nor divided.
    pub fn is_alone(&self) -> bool {
        self.ranks.are_alone() && self.accumulate == 1
    }

    /// The ranks, if batch normalisation is over all of them.
    pub fn synchronises(&self) -> Option<&Ranks> {
        Some(&self.ranks).filter(|_| self.sync_batch_norm && !self.ranks.are_alone())
    }

    /// Whether a part can be computed: with synchronised batch normalisation all ranks compute their parts of the same number
    /// together, and none of these may be empty.
    pub fn can_compute(&self, images: usize) -> Result<bool, RanksError> {
        if self.synchronises().is_none() {
            return Ok(images > 0);
        }
        let all = self.ranks.gather(vec![u8::from(images > 0)])?;
        Ok(all.iter().all(|any| any == &[1]))
    }

    /// What the parts of all ranks come to.
    pub fn whole(&self, sum: &Sum, stop: bool) -> Result<Whole, RanksError> {
        let begin = Instant::now();
        let own = [sum.loss, sum.weight, sum.images as f64, f64::from(u8::from(stop))];
        let bytes = own.iter().flat_map(|x| x.to_le_bytes()).collect();
        let all = self.ranks.gather(bytes)?;
        let mut sums = [0.0; 4];
        for bytes in &all {
            let (numbers, _) = bytes.as_chunks::<8>();
            for (sum, &number) in sums.iter_mut().zip(numbers) {
                *sum += f64::from_le_bytes(number);
            }
        }
        let [loss, weight, images, stop] = sums;
        Ok(Whole {
            // No part of a step without anything to learn has a loss.
            loss: if weight > 0.0 { (loss / weight) as f32 } else { 0.0 },
            weight,
            images: images as usize,
            stop: stop > 0.0,
            waited: begin.elapsed(),
        })
    }

    /// The gradients of the mean loss of the whole batch.
    pub fn reduce<M: Module>(
        &self,
        sum: Sum,
        whole: &Whole,
        model: &M,
    ) -> Result<GradientsParams, TrainError> {
        // Of a rank whose parts are empty.
        let own = match sum.gradients {
            Some(own) => own,
            None => Gradients::of(GradientsParams::new(), model),
        };
        let all = match self.ranks.are_alone() {
            true => own,
            false => own.sum_over(self)?,
        };
        // A step without anything to learn has no gradients, and no weight to divide them by.
        let factor = match whole.weight > 0.0 {
            true => self.unit / whole.weight,
            false => 0.0,
        };
        Ok(all.into_params(model, factor))
    }

    /// Sums `numbers` numbers that stand for gradients where nothing learns.
    pub fn reduce_nothing(&self, numbers: usize) -> Result<(), RanksError> {
        if self.ranks.are_alone() {
            return Ok(());
        }
        let sums: Vec<_> = (0..numbers)
            .step_by(BUCKET)
            .map(|first| {
                let mut own = self.bucket();
                own.resize(BUCKET.min(numbers - first), 0.0);
                self.ranks.begin_sum(own)
            })
            .collect();
        for sum in sums {
            self.keep(sum.wait()?);
        }
        Ok(())
    }

    /// An empty bucket.
    fn bucket(&self) -> Vec<f32> {
        let mut kept = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bucket = kept.pop().unwrap_or_default();
        bucket.clear();
        bucket
    }

    /// Keeps a bucket for the next step.
    fn keep(&self, bucket: Vec<f32>) {
        self.buckets
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(bucket);
    }

    /// Says what this rank does from now on.
    pub fn now(&self, phase: Phase) {
        self.ranks.now(phase);
    }
}

impl Sum {
    /// Adds a part: its gradients, its mean loss, and what that is a mean over. The gradients are those of the loss times
    /// the weight.
    pub fn add<M: Module>(
        &mut self,
        gradients: GradientsParams,
        model: &M,
        (loss, weight, images): (f32, f64, usize),
    ) {
        let part = Gradients::of(gradients, model);
        self.gradients = Some(match self.gradients.take() {
            Some(sum) => sum.plus(part),
            None => part,
        });
        self.count(loss, weight, images);
    }

    /// Adds the figures of a part without gradients.
    pub fn count(&mut self, loss: f32, weight: f64, images: usize) {
        self.loss += f64::from(loss) * weight;
        self.weight += weight;
        self.images += images;
    }
}

/// The gradients of the trained parameters, flattened, in the order of a visit.
#[derive(Debug)]
struct Gradients(Vec<Tensor<1>>);

impl Gradients {
    fn of<M: Module>(grads: GradientsParams, model: &M) -> Self {
        let mut flat = Flatten {
            grads,
            flat: Vec::new(),
        };
        model.visit(&mut flat);
        Self(flat.flat)
    }

    fn plus(self, other: Self) -> Self {
        Self(self.0.into_iter().zip(other.0).map(|(a, b)| a + b).collect())
    }

    fn sum_over(self, team: &Team) -> Result<Self, TrainError> {
        let (mut pending, mut bucket): (Vec<Pending<Vec<f32>>>, _) = (Vec::new(), team.bucket());
        let shapes: Vec<_> = self
            .0
            .iter()
            .map(|flat| (flat.dims()[0], flat.device()))
            .collect();
        for flat in self.0 {
            bucket.extend(device::read(flat)?);
            if bucket.len() >= BUCKET {
                let full = std::mem::replace(&mut bucket, team.bucket());
                pending.push(team.ranks.begin_sum(full));
            }
        }
        pending.push(team.ranks.begin_sum(bucket));
        // A parameter lies whole in one bucket.
        let mut shapes = shapes.into_iter();
        let mut flat = Vec::new();
        for sums in pending {
            let sums = sums.wait()?;
            let mut first = 0;
            while first < sums.len() {
                let Some((len, device)) = shapes.next() else { break };
                let numbers = sums[first..first + len].to_vec();
                first += len;
                flat.push(Tensor::from_data(TensorData::new(numbers, [len]), &device));
            }
            team.keep(sums);
        }
        Ok(Self(flat))
    }

    fn into_params<M: Module>(self, model: &M, factor: f64) -> GradientsParams {
        let mut restore = Restore {
            flat: self.0.into_iter(),
            factor,
            grads: GradientsParams::new(),
        };
        model.visit(&mut restore);
        restore.grads
    }
}

struct Flatten {
    grads: GradientsParams,
    flat: Vec<Tensor<1>>,
}

impl ModuleVisitor for Flatten {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val();
        if !tensor.is_require_grad() {
            return;
        }
        let grad = self.grads.remove::<D>(param.id);
        let grad = grad.unwrap_or_else(|| tensor.inner().zeros_like());
        self.flat.push(grad.flatten(0, D - 1));
    }
}

struct Restore {
    flat: std::vec::IntoIter<Tensor<1>>,
    factor: f64,
    grads: GradientsParams,
}

impl ModuleVisitor for Restore {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val();
        if !tensor.is_require_grad() {
            return;
        }
        if let Some(flat) = self.flat.next() {
            let grad: Tensor<D> = flat.mul_scalar(self.factor).reshape(tensor.shape());
            self.grads.register(param.id, grad);
        }
    }
}

/// CRC-32 of the trained parameters of a model: ranks that have trained together have the same.
pub(crate) fn checksum<M: Module>(model: &M) -> Result<u32, DeviceError> {
    let mut sum = Checksum(Ok(crc32fast::Hasher::new()));
    model.visit(&mut sum);
    Ok(sum.0?.finalize())
}

struct Checksum(Result<crc32fast::Hasher, DeviceError>);

impl ModuleVisitor for Checksum {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let tensor = param.val();
        let Ok(hasher) = &mut self.0 else { return };
        if !tensor.is_require_grad() {
            return;
        }
        match device::read(tensor) {
            Ok(numbers) => numbers.iter().for_each(|x| hasher.update(&x.to_le_bytes())),
            Err(error) => self.0 = Err(error),
        }
    }
}

/// Whether a parameter of this name is a running statistic.
fn is_statistic(name: &str) -> bool {
    name.ends_with(".running_mean") || name.ends_with(".running_var")
}

/// The running statistics of a model, as the bytes of `f32`, in the order of a visit.
fn statistics<M: Module>(model: &M) -> Result<Vec<u8>, DeviceError> {
    let mut all = Statistics {
        bytes: Ok(Vec::new()),
        path: ParameterPath::default(),
    };
    model.visit(&mut all);
    all.bytes
}

struct Statistics {
    bytes: Result<Vec<u8>, DeviceError>,
    path: ParameterPath,
}

impl ModuleVisitor for Statistics {
    fn enter_module(&mut self, name: &str, of: &str) {
        self.path.enter(name, of);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Ok(bytes) = &mut self.bytes else { return };
        if !is_statistic(&self.path.name()) {
            return;
        }
        match device::read(param.val()) {
            Ok(numbers) => bytes.extend(numbers.iter().flat_map(|x| x.to_le_bytes())),
            Err(error) => self.bytes = Err(error),
        }
    }
}

/// Gives the running statistics these numbers.
struct Given<'a> {
    numbers: &'a mut dyn Iterator<Item = f32>,
    path: ParameterPath,
}

impl ModuleMapper for Given<'_> {
    fn enter_module(&mut self, name: &str, of: &str) {
        self.path.enter(name, of);
    }

    fn exit_module(&mut self, _: &str, _: &str) {
        self.path.exit();
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !is_statistic(&self.path.name()) {
            return param;
        }
        param.map(|old| {
            let shape = old.shape();
            let numbers: Vec<f32> = (&mut self.numbers).take(shape.num_elements()).collect();
            match numbers.len() == shape.num_elements() {
                true => Tensor::from_data(TensorData::new(numbers, shape), &old.device()),
                false => old,
            }
        })
    }
}
