//! Runs a study's trials as jobs, on this machine or on SageMaker, and draws what came of them.
//!
//! ```text
//!  tune.toml ──► Plan ──► run::create ──► STUDY: plan.json, journal.jsonl
//!                                          │
//!       run::run, sagemaker::run ◄─────────┘
//!            │ ask ──► a job per trial ──► its numbers ──► report, tell
//!            ▼
//!       report::page
//! ```
//!
//! A [`Plan`] is a study of `stokehold_tune` together with the job that each trial runs. [`run`] runs it, in
//! slots with their own cores and GPUs, and [`sagemaker`] as training jobs of an account; `stokehold tune`
//! calls them. What to try next, and which trial to give up, is the study's choice.
//!
//! * **A process that is killed loses no trial**: the next one finds the trial's job, and follows or resumes
//!   it.
//! * **Trials may share their images as shards** that are made once: the same pixels, read faster.
//! * **[`report::page`]** draws a study as one file.

mod error;
mod number;
mod plan;
pub mod report;
pub mod run;
pub mod sagemaker;

pub use error::TrialsError;
pub use plan::Plan;

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
