//! Predicts what a recorded training run would take and cost on more machines.
//!
//! ```text
//!  recording of one rank ──► Run ──┐
//!                                  ├──► predict ──► Prediction: a Size for each number of machines ──► table, page
//!  machines, network, price ─► Cluster
//! ```
//!
//! Training is data parallel and synchronous. A **rank** is one accelerator with its own copy of the network and its
//! own loader. In a step each rank computes gradients of its own batch, and all ranks add their gradients (reduce)
//! before the next step begins. The batch of a rank stays the recorded one. So an epoch of the same images has fewer
//! steps, `images / (batch x ranks)`, and each of them has the batch of all ranks.
//!
//! # Steps
//! The time of a step is drawn from the recorded steps, not from a distribution that was fitted to them: each rank goes
//! through all recorded steps again and again, in orders of its own ([`Draws`]); the first five, which warm up, are left
//! out. So the mean is exactly the recorded
//! one, and the slowest of n ranks is the maximum of n recorded steps. Of N recorded times x₁ ≤ .. ≤ x_N its
//! expectation is `Σ x_k ((k/N)ⁿ - ((k-1)/N)ⁿ)`, the mean of the largest order statistic of n draws. It cannot exceed
//! the longest recorded step. Ranks are slow independently of one another.
//!
//! # Reduce
//! A message of n bytes takes `α + n β` seconds: latency α, and β = 1 / bytes per second (Thakur, Rabenseifner and Gropp,
//! "Optimization of Collective Communication Operations in MPICH", 2005; they also have the formulas below but the
//! ring's). The time of adding numbers is left out, for it hides behind the transfer. With p machines:
//!
//! | [`Algorithm`] | seconds for n bytes | source |
//! |---|---|---|
//! | `Ring` | `2 (p-1) α + 2 (p-1)/p n β` | Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009 |
//! | `Tree` | `2 lg p α + 2 (p-1)/p n β`; where p is no power of two, `2 ⌊lg p⌋` and the next lower power, and `2 α + 2 n β` more | recursive halving and doubling (Rabenseifner) |
//! | `Hierarchical` | reduce in the machine, `Ring` between machines, broadcast in the machine | reduce: `2 lg g α + 2 (g-1)/g n β`; broadcast: `(lg g + g-1) α + 2 (g-1)/g n β`, with the g ranks of a machine and the link [`INSIDE`] it |
//!
//! With g ranks in a machine, `Ring` goes through all `p g` ranks and crosses each network card once. In `Tree` all g
//! ranks exchange with other machines at the same time, so each has a g-th of the card. Several machines never reduce
//! faster than one of them would: a network that is faster than the links to it waits for these.
//!
//! Gradients are reduced in buckets of 25 MiB, one after the other, and each in the way that is fastest for it: after the
//! backward pass, as `stokehold train` does, or while it goes on, as PyTorch does (Li et al., "PyTorch Distributed:
//! Experiences on Accelerating Data Parallel Training", 2020). The backward pass is [`BACKWARD`] of a step:
//! it does twice the multiplications of the forward pass, one product for the gradients of weights and one for those of
//! inputs. Gradients become ready evenly over it. In networks whose last layers are the largest they are ready earlier,
//! so this overstates what is not hidden.
//!
//! # Loader, storage, checkpoints
//! A rank's loader makes batches at its measured rate, at most `prefetch` of them ahead. A run that waited for more than 5 %
//! of its time had all that its loader made; for another one the loader's own measurement counts. Where storage has a
//! limit, all ranks share it: their reads are served in turns. Rank 0 writes checkpoints, and the others wait for it. An
//! epoch has as many of them on any number of machines, and nothing is hidden behind them.
//!
//! # Simulation
//! Every event (a batch is ready, a bucket is ready, a bucket is reduced, a step begins) waits for others and then takes a
//! time. So its moment is a maximum of sums of earlier moments, and [`Simulation`] computes the moments in their order.
//! A longer time or another constraint never makes an event earlier. Thus efficiency is never above 1, and a cause
//! never costs less than nothing. The tests compare it with closed formulas, to 1e-9 of a step:
//!
//! | | seconds of a step |
//! |---|---|
//! | no jitter, no overlap | `compute + reduce` |
//! | no jitter, full overlap | `max(compute, forward + reduce)`, where the first bucket is ready as the backward pass begins |
//! | loader-bound | `batch / loader's rate` |
//! | storage-bound | `ranks x batch x bytes of an image / storage's rate` |
//!
//! The mean of the slowest of n ranks is that of the formula above to 1 %, for orders are random.
//!
//! Seconds are attributed to causes by switching the causes on one after the other: first each rank computes by itself, then
//! the loader, shared storage, waiting for the slowest rank, the reduce, and checkpoints. Each cause has what the epoch
//! gets longer by.
//!
//! # What is left out
//! Validation; the start and the end of a run; other programs on the network; failures; what a larger batch of all ranks
//! does to the accuracy; the time of rounding gradients to 16 bits. Each rank has the loader's cores of the recorded run.
//!
//! ```
//! use stokehold_scale::{Cluster, Network, Run, predict};
//!
//! let run = Run {
//!     images: 100_000,
//!     batch: 100,
//!     step_seconds: vec![0.25; 20],
//!     parameters: 25_600_000,
//!     overlap: true,
//!     ..Run::default()
//! };
//! let cluster = Cluster { machines: vec![1, 8], network: Network::ethernet(10)?, ..Cluster::default() };
//! let prediction = predict(&run, &cluster)?;
//! let [one, eight] = &prediction.sizes[..] else { unreachable!() };
//! assert_eq!(one.seconds_per_epoch, 250.0);
//! // 102.4 MB in four buckets: the last one is ready when there is nothing left to hide it behind.
//! assert!(eight.efficiency > 0.85 && eight.efficiency < 1.0, "{}", eight.efficiency);
//! # Ok::<(), stokehold_scale::ScaleError>(())
//! ```

mod cluster;
mod error;
mod network;
pub mod page;
mod predict;
mod reduce;
mod run;
mod simulate;
mod table;

pub use cluster::{Cluster, MOST_RANKS};
pub use error::ScaleError;
pub use network::{INSIDE, Network, Sum};
pub use predict::{Cause, Lift, Lost, Prediction, Repeated, Size, predict};
pub use reduce::{Algorithm, Machines};
pub use run::{Checkpoints, Fact, LEAST_STEPS, Run, Settings};
pub use simulate::{BACKWARD, Bucket, Draws, Simulation};
pub use table::{losses, table, text};

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
