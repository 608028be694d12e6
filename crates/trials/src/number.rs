//! A number of a trial's job, which becomes a report of its study.

use stokehold_tune::{Study, TuneError, Verdict};

/// What becomes of a number of a trial's job.
pub(crate) enum Number {
    /// It is none: the trial is to be stopped, and to fail for this reason.
    Broken(String),
    /// It was reported before.
    Known,
    /// It is reported.
    New(Verdict),
}

impl Number {
    /// Takes up a number that a trial's job printed, sent or wrote, which may have been reported before.
    ///
    /// # Errors
    /// The errors of [`Study::report`], but for values that are no numbers.
    pub fn take(study: &mut Study, trial: usize, step: u64, value: f64) -> Result<Self, TuneError> {
        if !value.is_finite() {
            return Ok(Self::Broken(format!(
                "the objective was {value} at step {step}; a smaller learning rate or a narrower range may help"
            )));
        }
        let known = study
            .history()
            .trials
            .get(trial)
            .map_or(&[][..], |trial| &trial.reports);
        if known
            .iter()
            .any(|report| report.step == step && report.value == value)
        {
            return Ok(Self::Known);
        }
        study.report(trial, step, value).map(Self::New)
    }
}
