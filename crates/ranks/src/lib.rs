//! Processes that train together: what each has, summed, sent from the first to all, or gathered by all.
//!
//! ```text
//! the rank's own thread ─── operation ───►  the link's thread ◄──── MPI ────► the other ranks' link threads
//!   (loads, computes)   ◄── result ──────     polls, and says every second what its rank is doing
//! ```
//!
//! Every process is a *rank* from 0 to the *world size* less one. All ranks call the same operations in the same
//! order. [`Ranks`] has four of them: [`sum`](Ranks::sum) and [`begin_sum`](Ranks::begin_sum) of many numbers,
//! [`gather`](Ranks::gather) of a few bytes from each, and [`broadcast`](Ranks::broadcast) from rank 0.
//!
//! * **Nothing waits for ever.** MPI has to start within the ranks' patience. Then a link's thread uses MPI's operations that return at once, and looks whether they are
//!   done. Meanwhile it tells the other ranks how many operations its rank has begun, and what the rank does
//!   ([`Phase`]). A rank that lets the others wait for longer than their patience ([`Ranks::of_launch`]) is named in
//!   [`RanksError::Silent`], with its machine, what it did last, and whether its process still answers. Then the caller
//!   calls [`Ranks::abort`], which ends all ranks.
//! * **One thread talks to MPI**, as the levels `single` to `serialized` of MPI's threading ask for, and a rank may use
//!   its `Ranks` from any thread.
//! * **Sums are the same on every rank, to the bit**: MPI's all-reduce gives every rank the same sum here (checked by the
//!   trainer, which compares the ranks' weights).
//!
//! [`Ranks::alone`] is a world of one rank. [`Ranks::threads`] has ranks in one process, for tests. [`Ranks::of_launch`]
//! is the world that `mpirun` or `srun` started; it needs the feature `mpi`, and an MPI with its headers to build.
//! [`requeue`] puts the job of Slurm that the ranks are back into the queue.
//! MPI's buffers are in main memory: numbers of a device are copied there and back. (Open MPI takes no device memory in immediate
//! operations, and stages it in main memory for blocking sums; docs/concepts/ranks.md.)

mod link;
mod local;
#[cfg(feature = "mpi")]
mod over_mpi;
mod ranks;
mod requeue;
mod started;

pub use link::{Phase, RanksError};
pub use ranks::{Pending, Ranks};
pub use requeue::{RequeueError, requeue};
pub use started::local_rank;

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
