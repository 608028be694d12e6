//! PyTorch scripts, watched and changed from outside.
//!
//! ```text
//! a command's environment        every Python process of it               afterwards
//!   PYTHONPATH=hook/:..     ──►    sitecustomize ─► _stokehold_hook
//!   STOKEHOLD_HOOK=settings          wraps torch's DataLoader ──► spans ──► the timeline's socket
//!                                    and the optimizers' ends ──► counters ─► python/PID.json ──► Script ──► Workload
//! ```
//!
//! [`Hook`] puts three Python files into a folder and a command's environment. When a process of the command imports torch,
//! they time each batch: the wait for it, the step with it, and the rest until the next one is asked for. Workers time what
//! they fetch. Nothing waits for a device or for the recorder, and an error in the hook ends the hook, not the script.
//!
//! [`Changes`] are made before the script sees its loader: another number of workers, workers that stay, pinned memory, or
//! batches by Stokehold's own loader.
//!
//! [`read`] reads what the processes counted, and [`Script::workload`] makes the numbers of it from which
//! `stokehold-diagnose` predicts: what an image costs a worker, how long it waits for storage, and how fast the script
//! takes batches.
//!
//! # What an interval is
//!
//! A script asks for a batch, gets it, works, and asks for the next. If an optimizer's step ended in that time, the batch
//! was trained on, and so were the batches before it that had none: they were accumulated. A pass over a loader without
//! any is validation. Another loader that is asked in between, such as that of a validation in mid-epoch, ends the interval;
//! its time is its own.

mod facts;
mod hook;
mod images;
mod watched;
mod workload;

pub use facts::{Fetching, LoaderFacts, Process, Times, read};
pub use hook::{Changes, FOLDER, Hook, is_python, starts_no_hook};
pub use images::Images;
pub use watched::{Recorded, Seen, Watched};
pub use workload::{Script, Unserved};

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
