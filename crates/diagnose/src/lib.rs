//! Interprets a recording: what limited the run, and what each change would gain.
//!
//! ```text
//!                ┌─► rules ──► findings ─────────┐
//!  Recording ────┤                               ├─► verdict: the run in one sentence
//!                └─► advice: what each change ───┘   report: one page that explains it
//!                    would gain
//! ```
//!
//! - [`rules`] are SageMaker Debugger's, with its thresholds, and Stokehold's own. A
//!   [`Finding`](rules::Finding) says whether a rule fired, with numbers, times and places.
//! - [`advice`] predicts an epoch's time after each change from the run's own measurements; its front page
//!   explains the model. [`verdict`](advice::verdict) says in one sentence what limits the run.
//! - [`live`] judges rules while a run continues, those about its losses and gradients too.
//! - [`lately`] has the figures of a run's last seconds.
//! - [`curves`] are the losses and other numbers that a run reported.
//! - [`events`] writes them for TensorBoard.
//! - [`runs`] reads what a run's folder says of it: state, settings, figures.
//! - [`report`] writes the page, and the JSON files that SageMaker Debugger's tools read.
//!
//! This crate neither records nor reads a recording's files: `stokehold-profile` does.
//!
//! ```
//! use stokehold_diagnose::rules::{Defaults, Parameters, judge};
//! use stokehold_simulate::{Phase, Simulation};
//! let recording = Simulation { phases: vec![Phase::Disk], ..Simulation::default() }.recording();
//! let findings = judge(&recording, &Parameters::new(Defaults::RulesConfig));
//! let disk = findings.iter().find(|finding| finding.rule == "IOBottleneck").unwrap();
//! assert!(disk.triggered, "{}", disk.summary);
//! ```

pub mod advice;
pub mod curves;
pub mod events;
pub mod lately;
pub mod live;
pub mod report;
pub mod rules;
pub mod runs;

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
