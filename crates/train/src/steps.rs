//! Steps without a run: a loader and a trainer that make as many steps as they are asked for.
//!
//! A comparison measures in rounds of steps, and a round does not end where an epoch ends. So [`Steps`] goes
//! from epoch to epoch without a seam: when all batches of an epoch are in work or ready, the next epoch's
//! workers start. For that time there are at most twice as many batches in memory. The executor `gpu`, whose
//! batches take memory of the device, starts the next epoch when the last batch is taken.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use stokehold_loader::{Batch, BatchStream, Loader, Parts};
use stokehold_pipeline::Executor;
use stokehold_storage::Images;

use crate::config::TrainConfig;
use crate::ema::Averaging;
use crate::emulated::{Emulated, TrainerChoice};
use crate::executor::open_device;
use crate::learner::{At, Learner, Objective, Trainer};
use crate::{TrainError, device, pixels};

/// A loader and a trainer between two steps.
pub struct Steps {
    config: TrainConfig,
    objective: Objective,
    loader: Loader,
    batches: Box<dyn BatchStream>,
    /// The next epoch, once it has begun to load.
    next: Option<Box<dyn BatchStream>>,
    /// The epoch of `batches`, counted from the first one.
    epoch: u64,
    /// After this many epochs the order and the draws begin again.
    period: NonZeroU64,
    /// Steps made so far.
    step: u64,
    /// Whether this epoch had a batch.
    had_batch: bool,
    /// `None` while a step is made, and after an error.
    trainer: Option<Trainer>,
    device: String,
}

/// What some steps took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepTotals {
    /// Steps made.
    pub steps: u64,
    /// Images trained on.
    pub images: u64,
    /// From the request to the end of the last step, seconds.
    pub seconds: f64,
    /// The part of it without a batch, seconds.
    pub waited: f64,
    /// The part of it in steps, seconds.
    pub busy: f64,
    /// The part of `busy` in which an emulated accelerator copies batches, seconds; 0 for others.
    pub copying: f64,
    /// CRC-32 of the labels as unsigned 32 bit numbers, little endian, and of the masks, in order. Steps on the same images
    /// have the same one.
    pub labels: u32,
    /// Mean training loss over the images; `None` where nothing learns.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// For each step the seconds without a batch, and those from then to its end, to the microsecond: one after the other
    /// they make up `seconds`. Those of the first [`TIMES`](Self::TIMES) steps; empty where no one took them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub times: Vec<[f64; 2]>,
}

impl StepTotals {
    /// The most steps whose times are kept, so that an answer remains a line of some hundred kilobytes.
    pub const TIMES: usize = 10_000;
}

impl Steps {
    /// Opens the device, the loader and the model that `config` describes. Its first batches begin to load.
    ///
    /// # Errors
    /// A field of `config` is out of range, its executor is `auto`, the device cannot be opened, or the images do not fill a
    /// batch.
    pub fn open(config: TrainConfig, images: Images) -> Result<Self, TrainError> {
        config.check()?;
        if config.trainer.learns() {
            pixels::check_kind(config.arch, &images)?;
        }
        let plain = device::open(config.device)?;
        let classes = pixels::classes(&images).len();
        let objective = config.objective(config.class_weights.of(&images, classes)?);
        let executor = executor(&config)?;
        let on_device = open_device(executor, config.gpu, &plain)?;
        let loader = config.loader(images, true, Parts::WHOLE, (executor, on_device))?;
        let (trainer, device) = match &config.trainer {
            TrainerChoice::Burn => {
                let device = device::name(&plain);
                let learner = Learner::new(&config, classes, plain)?;
                (Trainer::Burn(Box::new(learner)), device)
            }
            TrainerChoice::Emulated {
                label,
                images_per_second,
                ..
            } => {
                let device = format!("Emulated({label})");
                (Trainer::Emulated(Emulated::new(*images_per_second)), device)
            }
        };
        Ok(Self {
            batches: loader.epoch(0),
            next: None,
            config,
            objective,
            loader,
            epoch: 0,
            period: NonZeroU64::MAX,
            step: 0,
            had_batch: false,
            trainer: Some(trainer),
            device,
        })
    }

    /// Has the order and the draws begin again after this many epochs.
    #[must_use]
    pub fn with_period(self, period: NonZeroU64) -> Self {
        Self { period, ..self }
    }

    /// The device that computes, or what it emulates.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Makes `steps` steps, or fewer when `stop` is set meanwhile.
    ///
    /// # Errors
    /// The loader or the device fails, or the loss is no number.
    pub fn make(&mut self, steps: u64, stop: &AtomicBool) -> Result<StepTotals, TrainError> {
        let begin = Instant::now();
        let before = self.trainer.as_ref().and_then(Trainer::used).unwrap_or_default();
        let (mut waited, mut busy, mut images, mut loss) = (0.0, 0.0, 0u64, 0.0);
        let (mut labels, mut made) = (crc32fast::Hasher::new(), 0);
        let mut times = Vec::new();
        while made < steps && !stop.load(Ordering::Relaxed) {
            let turn = Instant::now();
            let batch = self.next_batch()?;
            let (without, there) = (turn.elapsed().as_secs_f64(), Instant::now());
            waited += without;
            let count = batch.labels.len();
            images += count as u64;
            for label in &batch.labels {
                labels.update(&label.to_le_bytes());
            }
            labels.update(&batch.masks);
            let turn = Instant::now();
            let of_batch = self.step(batch)?;
            loss += f64::from(of_batch) * count as f64;
            busy += turn.elapsed().as_secs_f64();
            made += 1;
            if times.len() < StepTotals::TIMES {
                times.push([without, there.elapsed().as_secs_f64()].map(to_microseconds));
            }
        }
        let used = self.trainer.as_ref().and_then(Trainer::used);
        Ok(StepTotals {
            steps: made,
            images,
            seconds: begin.elapsed().as_secs_f64(),
            waited,
            busy: used.map_or(busy, |used| used.busy_seconds - before.busy_seconds),
            copying: used.map_or(0.0, |used| used.copying_seconds - before.copying_seconds),
            labels: labels.finalize(),
            loss: used.is_none().then(|| loss / images.max(1) as f64),
            times,
        })
    }

    /// The next batch of this epoch or the next one.
    fn next_batch(&mut self) -> Result<Batch, TrainError> {
        loop {
            match self.batches.next().transpose()? {
                Some(batch) => {
                    self.had_batch = true;
                    self.look_ahead();
                    return Ok(batch);
                }
                // The last batches may be empty, if all their images were bad and left out.
                None if self.had_batch => {
                    self.had_batch = false;
                    self.next_epoch();
                }
                None => {
                    return Err(TrainError::Config {
                        field: "images",
                        problem: "must not all be bad: none of an epoch could be read".to_owned(),
                    });
                }
            }
        }
    }

    /// Starts the next epoch when nothing of this one is left to begin.
    fn look_ahead(&mut self) {
        let begun = match self.config.executor {
            Some(Executor::Gpu) => 0,
            _ => self.batches.in_flight() as u64,
        };
        let all = self.loader.batches_per_epoch() as u64;
        if self.next.is_none() && self.batches.state().batch + begun >= all {
            self.next = Some(self.load(self.epoch + 1));
        }
    }

    fn next_epoch(&mut self) {
        let next = self.next.take();
        self.epoch += 1;
        self.batches = next.unwrap_or_else(|| self.load(self.epoch));
    }

    /// Begins to load an epoch.
    fn load(&self, epoch: u64) -> Box<dyn BatchStream> {
        self.loader.epoch(epoch % self.period)
    }

    /// One step; returns its loss.
    fn step(&mut self, batch: Batch) -> Result<f32, TrainError> {
        let Some(trainer) = self.trainer.take() else {
            // A step has failed before.
            return Err(TrainError::Config {
                field: "steps",
                problem: "cannot continue after an error".to_owned(),
            });
        };
        let config = &self.config;
        let (trainer, loss) = trainer.step(
            &self.objective,
            batch,
            At {
                step: self.step,
                lr: config.lr,
                averaging: Averaging::No,
            },
        )?;
        self.trainer = Some(trainer);
        self.step += 1;
        if !loss.is_finite() {
            return Err(TrainError::Diverged {
                step: self.step,
                loss,
                lr: config.lr,
            });
        }
        Ok(loss)
    }
}

/// Seconds to the microsecond: a clock is not more exact, and the digits would fill the answer.
fn to_microseconds(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

fn executor(config: &TrainConfig) -> Result<Executor, TrainError> {
    config.executor.ok_or_else(|| TrainError::Config {
        field: "executor",
        problem: "must be per-op, fused or gpu here".to_owned(),
    })
}
