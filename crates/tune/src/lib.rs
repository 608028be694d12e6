//! Finds hyperparameters: which values to try next, which trials to give up, and a record of all of it that survives a crash.
//!
//! ```text
//!  Spec ──► Study ── ask ──► Trial ──► your training ── report, tell ──► Study
//!            │                                                            │
//!            └──────────────── journal.jsonl: every event a line ◄────────┘
//! ```
//!
//! A [`Study`] is a folder with a journal, and nothing else. It is asked for a trial, told how far the trial came and how it ended. Every
//! answer is a function of what the journal says, so any process may ask at any time: after a crash, beside others, on the next day.
//!
//! * **The journal** is only appended to, one checksummed line an event, by whoever holds its lock. A process that is killed leaves at
//!   most a torn last line, which the next one cuts off: nobody was told of it.
//! * **Several processes** may work on one study. Each has a file that it keeps locked while it lives. A trial whose process is gone is
//!   handed out again under its number, with its values, before anything new; a trial that ended is never handed out again.
//! * **The same seed and the same results choose the same next trial**, in whatever order the results came.
//!
//! # Parameters
//! | [`Range`] | values | [`Scaling`] |
//! |---|---|---|
//! | `Continuous` | min..=max | auto, linear, logarithmic, reverse-logarithmic |
//! | `Integer` | min..=max | auto, linear, logarithmic |
//! | `Categorical` | at most 30 texts, numbers or truths without an order | |
//! | `Static` | always the same | |
//!
//! A parameter with [`When`] is only there when another one has certain values.
//!
//! # Strategies
//! | [`Strategy`] | chooses |
//! |---|---|
//! | `Bayesian` | by a Gaussian process of the results: where the improvement on the best is expected to be the largest |
//! | `Tpe` | by the densities of better and other results: where they differ most |
//! | `Random`, `Grid` | evenly; every combination once |
//! | `Hyperband` | evenly, and stops most trials at steps that grow by a factor; the best of them go on |
//!
//! Trials that run are taken into account: two that are asked for at once differ. A trial that failed counts as the worst one.
//!
//! # Early stopping
//! [`Rule::Auto`] stops a trial whose objective is worse than the median of the others' running averages at the same step, from its second
//! report on; [`Rule::Asha`] all but the best at each rung; it goes on when it has become one of them. A stopped trial's last report is a result for the strategy, and
//! never the best one.
//!
//! # Trials as jobs
//! A [`Plan`] is a study and the job that a trial is; [`run`] runs it, on slots with cores and GPUs of their own, and is what
//! `stokehold tune` calls. Trials may share their images as shards that are made once: the same pixels, read faster. [`report::page`] draws a study, [`Insight`] says which parameters matter.
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
mod plan;
mod random;
pub mod report;
pub mod run;
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
pub use plan::Plan;
pub use space::{AUTO_LOGARITHMIC, MOST_CATEGORIES, Parameter, Range, Scaling, Space, Values, When};
pub use spec::{
    Against, Direction, EarlyStopping, Kind, Limits, Rule, Rungs, Spec, Strategy, Take, WarmStart,
};
pub use study::{Ask, End, JOURNAL, Study, Verdict};
pub use warm::{Parent, ParentResult};
