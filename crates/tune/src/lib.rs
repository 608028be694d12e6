//! Finds hyperparameters: chooses the next values to try, stops poor trials early, and keeps a record that
//! survives crashes.
//!
//! ```text
//!  Spec ──► Study ── ask ──► Trial ──► your training ── report, tell ──► Study
//!            │                                                            │
//!            └──────────────── journal.jsonl: every event a line ◄────────┘
//! ```
//!
//! A [`Study`] is a folder with a journal, and nothing else. The caller asks it for a trial, and reports the
//! trial's progress and result to it. Every answer is a function of the journal, so any process may ask at
//! any time: after a crash, concurrently with others, on the next day.
//!
//! * **The journal** is append-only, with one checksummed line per event, and only the process that holds its
//!   lock writes to it. A process that is killed leaves at most an incomplete last line, which the next
//!   writer removes: its event was never confirmed to a caller.
//! * **Several processes** may work on one study. Each has a file that it keeps locked while it lives. A
//!   trial whose process has died is started again, with its number and values, before any new trial. A trial
//!   that has ended is never started again.
//! * **The same seed and the same results give the same next trial**, in whatever order the results came.
//!
//! # Parameters
//! | [`Range`] | values | [`Scaling`] |
//! |---|---|---|
//! | `Continuous` | min..=max | auto, linear, logarithmic, reverse-logarithmic |
//! | `Integer` | min..=max | auto, linear, logarithmic |
//! | `Categorical` | at most 30 texts, numbers or booleans without an order | |
//! | `Static` | always the same | |
//!
//! A parameter with [`When`] exists only if another parameter has certain values.
//!
//! # Strategies
//! | [`Strategy`] | chooses |
//! |---|---|
//! | `Bayesian` | by a Gaussian process of the results: the point with the largest expected improvement on the best |
//! | `Tpe` | by the densities of the better and of the other results: the point where they differ most |
//! | `Random`, `Grid` | uniformly; every combination once |
//! | `Hyperband` | uniformly, and stops most trials at steps that grow by a factor; the best of them continue |
//!
//! Running trials are taken into account, so two that are started at the same time differ. A failed trial
//! counts as the worst result.
//!
//! # Early stopping
//! [`Rule::Auto`] stops a trial, from its second report on, when its objective is worse than the median of
//! the others' running averages at the same step. [`Rule::Asha`] stops all but the best trials at each rung;
//! a stopped trial continues when it has become one of the best. The last report of a stopped trial is a
//! result for the strategy, and never the study's best one.
//!
//! # Results
//! [`Insight`] shows which parameters matter, and [`to_csv`] and [`to_json`] export all trials. The crate
//! `stokehold-trials` runs trials as jobs, here or on SageMaker, and draws a study.
//!
//! ```
//! use stokehold_tune::{Ask, Parameter, Range, Scaling, Spec, Study};
//!
//! let lr = Range::Continuous { min: 1e-4, max: 1.0, scaling: Scaling::Auto };
//! let mut spec = Spec::new("loss", [("lr".to_owned(), Parameter::from(lr))].into());
//! spec.limits.max_jobs = 15;
//! let folder = tempfile::tempdir()?;
//! let mut study = Study::create(folder.path(), spec)?;
//! while let Ask::Trial(trial) = study.ask()? {
//!     let lr = trial.values["lr"].as_f64().unwrap_or(f64::NAN);
//!     study.tell(trial.number, Some((lr.log10() + 2.0).powi(2)))?;
//! }
//! let best = study.history().best().and_then(|trial| trial.objective());
//! assert!(best.is_some_and(|loss| loss < 0.01));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod event;
mod export;
mod insight;
mod journal;
mod parameter;
mod random;
mod space;
mod spec;
mod stopping;
mod strategy;
mod study;
mod warm;

pub use error::TuneError;
pub use event::{Counts, History, Origin, Outcome, Report, Trial, in_words, short};
pub use export::{to_csv, to_json};
pub use insight::{Insight, Level};
pub use journal::Torn;
pub use parameter::{AUTO_LOGARITHMIC, MOST_CATEGORIES, Parameter, Range, Scaling, When};
pub use space::{Space, Values};
pub use spec::{
    Against, Direction, EarlyStopping, Limits, Rule, Rungs, Spec, Strategy, Take, WarmStart, WarmStartKind,
};
pub use study::{Ask, End, JOURNAL, Study, Verdict};
pub use warm::{Parent, ParentResult};

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
