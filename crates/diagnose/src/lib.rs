//! What a recording means: what was the limit, and what each change would gain.
//!
//! ```text
//!                ┌─► rules ──► findings ─────────┐
//!  Recording ────┤                               ├─► verdict: the run in one sentence
//!                └─► advice: what each change ───┘   report: one page that explains it
//!                    would gain
//! ```
//!
//! - [`rules`] are SageMaker Debugger's with its thresholds, and Stokehold's own beside them. A [`Finding`](rules::Finding) says whether a
//!   rule fired, by which numbers, when and where.
//! - [`advice`] predicts an epoch's time after each change from what the run itself measured, with the model on its front page.
//!   [`verdict`](advice::verdict) says in a sentence what limits the run.
//! - [`report`] makes the page and the JSON files that SageMaker Debugger's tools read.
//!
//! Nothing here records or reads files of a recording: that is `stokehold-profile`'s.
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
pub mod report;
pub mod rules;
