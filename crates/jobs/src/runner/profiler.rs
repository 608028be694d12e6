//! The profiler beside a job: samples of the machine, spans of the script, and the report at the end.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stokehold_diagnose::advice::{Prices, verdict};
use stokehold_diagnose::report::{self, Contents};
use stokehold_diagnose::rules::{Defaults, Parameters, judge};
use stokehold_profile::timeline::{Metrics, Spans};
use stokehold_profile::{Ending, FOLDER, ProfileError, Recording, Sampler, Settings, Tree};

/// A running recording. Dropped, it ends without a report.
pub(crate) struct Profiler {
    /// The job's folder.
    run: PathBuf,
    sampler: Sampler,
    spans: Spans,
}

impl Profiler {
    /// Starts a recording in a job's folder, or continues the existing one.
    pub fn start(run: &Path, command: Vec<String>) -> Result<Self, ProfileError> {
        let folder = run.join(FOLDER);
        let settings = Settings::new(Tree::Below(std::process::id()), command);
        Ok(Self {
            run: run.to_owned(),
            sampler: Sampler::start(&folder, settings)?,
            spans: Spans::take(&folder),
        })
    }

    /// The address that programs send their spans to; empty if there is none.
    pub fn address(&self) -> &OsStr {
        self.spans.address()
    }

    /// The numbers that programs send.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.spans.metrics()
    }

    /// Ends the recording and writes its report. Returns the report's path.
    pub fn finish(self, exit_code: Option<i32>) -> Result<PathBuf, ProfileError> {
        self.sampler.stop(Ending {
            exit_code,
            notes: self.spans.finish(),
            ..Ending::default()
        })?;
        let recording = Recording::open(&self.run)?;
        let findings = judge(&recording, &Parameters::new(Defaults::default()));
        let contents = Contents {
            recording: &recording,
            findings: &findings,
            verdict: &verdict(&recording, &findings, None, &[]),
            advice: &[],
            currency: &Prices::built_in().currency,
        };
        report::write(&contents, &report::folder_in(&self.run, &recording))
    }
}
