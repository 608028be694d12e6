//! Records the spans of a training script, and samples of the machine.

use std::path::PathBuf;
use std::process;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use stokehold_base::fault::Fault;
use stokehold_profile::timeline::{Args, Client, SpanRecorder, Timeline, Total};
use stokehold_profile::{Ending, FOLDER, ProfileError, Sampler, Settings, Tree, events};

use crate::errors::{DataError, OptionError, Raise, StokeholdError};

/// A recording of this process: spans, and samples of the machine if it has a folder.
#[pyclass(frozen, module = "stokehold._stokehold")]
pub(crate) struct Recording {
    spans: Mutex<SpanRecorder>,
    /// `None` once it has ended.
    threads: Mutex<Option<Threads>>,
    /// A fork has none of the threads.
    process: u32,
}

struct Threads {
    timeline: Timeline,
    sampler: Option<Sampler>,
}

/// (name, spans, seconds) for every name of spans; notes.
type Ended = (Vec<(String, u64, f64)>, Vec<String>);

impl<T> Raise<T> for Result<T, ProfileError> {
    fn raise(self) -> Result<T, PyErr> {
        self.map_err(|error| {
            let text = error.to_string();
            match error {
                _ if error.is_input() => OptionError::new_err(text),
                ProfileError::Io { .. } => DataError::new_err(text),
                _ => StokeholdError::new_err(text),
            }
        })
    }
}

#[pymethods]
impl Recording {
    /// Records into a run's folder, or without one to the recorder at STOKEHOLD_TIMELINE.
    #[new]
    fn new(py: Python<'_>, run: Option<PathBuf>, interval: f64, command: Vec<String>) -> PyResult<Self> {
        let interval = Duration::try_from_secs_f64(interval)
            .map_err(|_| OptionError::new_err(format!("interval={interval}: must be 0.1 to 60 s")))?;
        let threads = py.detach(|| start(run, interval, command)).raise()?;
        Ok(Self {
            spans: Mutex::new(threads.timeline.recorder()),
            threads: Mutex::new(Some(threads)),
            process: process::id(),
        })
    }

    /// Records a span that ends now.
    fn record(&self, name: &str, seconds: f64, step: Option<u64>) {
        if self.process != process::id() {
            return;
        }
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(Threads { timeline, .. }) = &*threads else {
            return;
        };
        let duration = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let now = Instant::now();
        let start = now.checked_sub(duration).unwrap_or(now);
        let args = Args {
            step,
            ..Args::default()
        };
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.record(timeline.name(name), start, duration, args);
    }

    /// Ends it.
    fn finish(&self, py: Python<'_>) -> PyResult<Ended> {
        if self.process != process::id() {
            return Ok(Default::default());
        }
        let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(Threads { timeline, sampler }) = threads else {
            return Ok(Default::default());
        };
        let (totals, notes) = py
            .detach(|| -> Result<_, ProfileError> {
                let outcome = timeline.finish();
                let failed = outcome
                    .failed
                    .map(|error| format!("the timeline is not complete: {error}"));
                let notes: Vec<String> = outcome.notes.into_iter().chain(failed).collect();
                let ending = Ending {
                    notes: notes.clone(),
                    ..Ending::default()
                };
                sampler.map(|sampler| sampler.stop(ending)).transpose()?;
                Ok((outcome.totals, notes))
            })
            .raise()?;
        let total = |(name, Total { spans, seconds })| (name, spans, seconds);
        Ok((totals.into_iter().map(total).collect(), notes))
    }
}

fn start(run: Option<PathBuf>, interval: Duration, command: Vec<String>) -> Result<Threads, ProfileError> {
    let client = Client::from_env()?;
    let (sampler, files, folder) = match run {
        None => (None, None, PathBuf::new()),
        Some(run) => {
            let folder = run.join(FOLDER);
            let mut settings = Settings::new(Tree::Of(process::id()), command);
            settings.interval = interval;
            let sampler = stokehold_profile::Recorder::open(&folder, settings)?.start()?;
            let files = events::Writer::new(&folder, events::Options::new(stokehold_base::clock::unix_now()));
            (Some(sampler), Some(files), folder)
        }
    };
    let timeline =
        Timeline::start(files, client).map_err(|source| ProfileError::Io { path: folder, source })?;
    Ok(Threads { timeline, sampler })
}
