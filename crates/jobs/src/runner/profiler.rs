//! The profiler next to a job: samples of the machine, spans of the script, and the report at the end.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use stokehold_diagnose::advice::{Prices, advise, machines, verdict};
use stokehold_diagnose::curves;
use stokehold_diagnose::report::{self, Contents};
use stokehold_diagnose::rules::{Defaults, Parameters, judge};
use stokehold_profile::timeline::{Metrics, Spans};
use stokehold_profile::{Ending, FOLDER, ProfileError, Recording, Sampler, Settings, Tree};
use stokehold_script::{Changes, Seen, Watched};

use crate::Job;

/// A running recording. Dropped, it ends without a report.
pub(crate) struct Profiler {
    /// The job's folder.
    run: PathBuf,
    sampler: Sampler,
    spans: Spans,
    watched: Arc<Watched>,
}

impl Profiler {
    /// Starts a recording in a job's folder, or continues the existing one.
    pub fn start(run: &Path, command: Vec<String>, job: &Job) -> Result<Self, ProfileError> {
        let folder = run.join(FOLDER);
        let words: Vec<OsString> = command.iter().map(OsString::from).collect();
        let mut settings = Settings::new(Tree::Below(std::process::id()), command);
        settings.interval = job.profiling().interval().unwrap_or(Settings::INTERVAL);
        let live = job.profiling().live().ok().flatten();
        let changes = Changes {
            gradients: live.is_some_and(|live| live.wants_gradients()),
            ..Changes::default()
        };
        Ok(Self {
            run: run.to_owned(),
            sampler: Sampler::start(&folder, settings)?,
            spans: Spans::take(&folder),
            watched: Arc::new(Watched::begin(&words, &folder, &changes)),
        })
    }

    /// The address that programs send their spans to; empty if there is none.
    pub fn address(&self) -> &OsStr {
        self.spans.address()
    }

    /// What gives PyTorch scripts the hook that sees their steps.
    pub fn watched(&self) -> Arc<Watched> {
        Arc::clone(&self.watched)
    }

    /// The numbers that programs send.
    pub fn metrics(&self) -> Arc<Metrics> {
        self.spans.metrics()
    }

    /// Ends the recording and writes its report, which says what stopped the job. Returns the report's path.
    pub fn finish(self, exit_code: Option<i32>, stopped_by: Option<String>) -> Result<PathBuf, ProfileError> {
        let Seen {
            workload, mut notes, ..
        } = self.watched.finish();
        notes.extend(self.spans.finish());
        notes.extend(stopped_by);
        self.sampler.stop(Ending {
            exit_code,
            notes,
            workload: workload.clone(),
        })?;
        let recording = Recording::open(&self.run)?;
        let findings = judge(&recording, &Parameters::new(Defaults::default()));
        // The job says itself where its metrics could not be stored.
        let (curves, _) = curves::read(&self.run, &recording).unwrap_or_default();
        let machine = recording.about.as_ref().map(|about| &about.machine);
        let prices = match machine {
            Some(machine) => Prices::built_in().on(machine),
            None => Prices::built_in(),
        };
        let workload = workload.as_ref();
        let advice = workload.map_or_else(Vec::new, |workload| advise(workload, &prices));
        // How many epochs a script's whole training has is not known: the cost is that of one.
        let machines = workload.and_then(|workload| machines(workload, machine, 1, &prices));
        let contents = Contents {
            recording: &recording,
            findings: &findings,
            verdict: &verdict(&recording, &findings, workload, &advice),
            advice: &advice,
            machines: machines.as_ref(),
            curves: &curves,
            currency: &prices.currency,
        };
        report::write(&contents, &report::folder_in(&self.run, &recording))
    }
}
