//! Finding hyperparameters.

mod error;
mod event;
mod journal;
mod random;
mod space;
mod spec;
mod stopping;
mod strategy;
mod study;
mod warm;

pub use error::TuneError;
pub use event::{Counts, History, Origin, Outcome, Report, Trial, in_words, short};
pub use space::{AUTO_LOGARITHMIC, MOST_CATEGORIES, Parameter, Range, Scaling, Space, Values, When};
pub use spec::{Against, Direction, EarlyStopping, Kind, Limits, Rule, Rungs, Spec, Strategy, Take, WarmStart};
pub use study::{Ask, End, JOURNAL, Study, Verdict};
pub use warm::{Parent, ParentResult};
