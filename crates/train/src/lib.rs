//! Trains image classifiers and segmenters with Burn, with the same results as PyTorch.
//!
//! **Overview.** A batch comes from the [`Loader`](stokehold_loader::Loader) as one `Vec<f32>` (`[N, 3, H, W]`, normalised), or is made
//! on the device that trains, and becomes a tensor without a copy. A [`Network`](model::Network) computes logits:
//! [`ResNet`](model::ResNet) those of images, [`Segmenter`](model::Segmenter) those of pixels.
//! [`cross_entropy`](loss::cross_entropy) or [`pixel_cross_entropy`](loss::pixel_cross_entropy) makes the loss of them,
//! and Burn's autodiff the gradients.
//! [`clip_global_norm`](optim::clip_global_norm) and [`Optimizer::step`](optim::Optimizer::step) update the
//! model, at the rate that [`ScheduleConfig::lr`](schedule::ScheduleConfig::lr) gives for the step.
//!
//! **Resume is exact.** Everything is a value or a function of values. The initial model depends on its seed
//! alone; the learning rate is a function of the step; the optimiser's state is keyed by the parameters'
//! names. So a run that is interrupted and resumed computes what the uninterrupted run would have.
//!
//! **Names are torchvision's.** A parameter's path in the module tree is its key in a `state_dict`, in every
//! file that is read or written ([`weights`]).
//!
//! **A model's file suffices.** It says its architecture, its classes and the pipeline of its images, so that
//! [`infer`] predicts and evaluates with nothing else.
//!
//! **Numbers of 16 bits** are an option ([`Precision`]) of the steps alone: weights, losses and validation are in f32. Batches
//! can go to the device as f16, bf16 or bytes, and become floats there.
//!
//! **The reference is PyTorch.** Initialisation, forward pass, running statistics, losses, clipping,
//! optimisers and schedules are tested against it. Where Burn's own parts differ (dampened momentum, clipping
//! by parameter, biased running variance), this crate has its own.
//!
//! ```
//! use burn::optim::GradientsParams;
//! use burn::tensor::{Tensor, TensorData};
//! use stokehold_train::{device, loss, model, optim};
//!
//! let device = device::open(device::DeviceChoice::Cpu)?.autodiff();
//! let model = model::ResNet::new(model::Arch::Resnet18, 3, 42, &device);
//! let mut optimizer = optim::Optimizer::new(optim::OptimizerConfig::SGD)?;
//!
//! let batch = TensorData::new(vec![0.5f32; 2 * 3 * 32 * 32], [2, 3, 32, 32]);
//! let logits = model.forward(Tensor::from_data(batch, &device));
//! let loss = loss::cross_entropy(logits, Tensor::from_data([0, 2], &device), 0.1);
//! let grads = GradientsParams::from_grads(loss.backward(), &model);
//! let (grads, _norm) = optim::clip_global_norm(grads, &model, 1.0);
//! let model = optimizer.step(0.1, model, grads);
//! # let _ = model;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod arrays;
mod batch;
mod ceilings;
pub mod checkpoint;
mod choice;
mod config;
pub mod device;
mod disturbance;
pub mod ema;
mod emulated;
mod error;
mod evaluate;
mod executor;
mod fit;
pub mod infer;
mod learner;
pub mod loss;
pub mod metrics;
pub mod mix;
pub mod model;
mod observer;
pub mod optim;
mod pixels;
mod precision;
pub mod progress;
pub mod recipe;
pub mod run;
pub mod sampling;
pub mod schedule;
mod servers;
mod stage;
mod steps;
mod summary;
pub mod sweep;
mod timeline;
mod together;
pub mod weights;
mod workload;
mod world;

pub use arrays::ArraysError;
pub use batch::DecodedBy;
pub use ceilings::step_ratio;
pub use config::TrainConfig;
pub use disturbance::{Disturbance, disturbance};
pub use emulated::{ACCELERATORS, Accelerator, EmulatedUse, TrainerChoice};
pub use error::TrainError;
pub use executor::{Chosen, GpuOptions, executor_or_auto, open_device};
pub use fit::{fit, fit_on, resume, resume_on};
pub use observer::{Event, Observer};
pub use pixels::ClassWeights;
pub use precision::{LossScale, Precision, UnknownPrecision};
pub use servers::{Connect, connect_servers_with};
pub use stage::Stage;
pub use steps::{StepTotals, Steps};
pub use stokehold_profile::ranks::{RankTimes, RanksSummary, Straggler};
#[doc(no_inline)]
pub use stokehold_ranks::{Ranks, RanksError};
pub use summary::RunSummary;
pub use world::RankFacts;

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
