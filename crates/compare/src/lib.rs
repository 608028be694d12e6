//! Compares ways to feed a trainer: which loader keeps it busy, by how much, and how sure that is.
//!
//! A **trial** is a loader, ours or another project's. A **cell** is a network at an augmentation load. In a
//! cell every trial feeds the same trainer: an emulated accelerator, Burn, or PyTorch.
//!
//! ```text
//!             this process                      one process a trial
//!   Comparison ── cell ── pair 1:  A ▓▓▓▓▓▓     loader + trainer, makes as many steps as asked for
//!                                  B       ▓▓▓
//!                         pair 2:  B ▓▓▓          the others are stopped (SIGSTOP) meanwhile
//!                                  A    ▓▓▓▓▓▓
//!                         ..       until the interval of B's gain is narrow, or the time is over
//! ```
//!
//! **Rounds take turns.** In a pair each trial makes one round: the same number of steps on the same images.
//! The trials of a pair lie seconds apart, so a machine that becomes slower slows all of them down, and the
//! ratio of their times keeps. The order changes from pair to pair.
//!
//! **A trial that does not have its turn stands still.** Its process group is stopped at the end of its round
//! and continues at the next one. Batches that its workers have loaded ahead stay loaded, so a round begins as
//! the one before ended, and no trial's workers take cores from another one.
//!
//! **One function judges.** [`Gain::of`] makes the median of the ratios, its interval and the verdict from the
//! pairs. Headline, tables, pictures and JSON show what it says and nothing else.
//!
//! **Each pair has a page.** The machine is recorded once. What lies in a trial's rounds is cut out of that recording and put
//! next to trial A's: cores, accelerator and steps over time, on the page that the table's figure opens.
//!
//! **Other programs are recorded.** Each round has the CPU time of its trial's processes and of all others.
//! The report shows the latter; it does not correct anything by it.
//!
//! The protocol between the processes is in `trials/README.md`, next to the trials in Python.

mod cell;
mod cpu;
mod equal;
mod error;
mod native;
mod output;
mod page;
mod pairs;
mod plan;
mod process;
mod published;
mod python;
mod report;
mod steps;
mod table;
mod verdict;
mod words;

pub use cell::{Comparison, Event, Observer};
pub use equal::EqualWork;
pub use error::CompareError;
pub use native::{Spec as NativeSpec, serve};
pub use output::refuse_other_files;
pub use plan::{Plan, TorchOptions, TrainerPlan, Trial};
pub use process::Ready;
pub use python::check_pythons;
pub use report::{Cell, Failure, Measured, Report, Round, Summary, Usage};
pub use verdict::{Gain, Verdict};

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
