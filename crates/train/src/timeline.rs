//! The timeline of a run.
//!
//! | span | what | numbered by |
//! |---|---|---|
//! | `epoch` | from the first wait to the last step | epoch |
//! | `DataLoaderIterInitialize` | the loader starts an epoch's workers | - |
//! | `DataLoaderIter` | the trainer waits for a batch | the step it is for |
//! | `Step:ModeKeys.TRAIN` | the trainer computes a step | step |
//! | `DataLoaderWorker` | a worker's share of a batch | step |
//! | `read`, `decode`, `augment` | a worker's time for one image | step |
//! | `validation`, `checkpoint` | these phases | step |
//! | `ranks wait`, `reduce` | a rank waits for the slowest one; gradients are summed and weights updated | step |
//! | `Step:ModeKeys.EVAL` | a batch is waited for and validated | batch |
//!
//! All numbers count from 1. The spans are written to the run's recording, and sent to another recorder if
//! the environment names one ([`VARIABLE`](stokehold_profile::timeline::VARIABLE)).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use stokehold_base::clock::unix_now;
use stokehold_profile::timeline::{Args, Client, Name, Outcome, SpanRecorder, Timeline, Total};
use stokehold_profile::{events, span};

use crate::TrainError;
use crate::observer::{Event, Observer};
use crate::run::RunFolder;
use crate::stage::Stage;

/// The timeline of a running run.
pub(crate) struct RunTimeline {
    timeline: Timeline,
    recorder: SpanRecorder,
    /// By [`Stage`].
    stages: [Name; 6],
    eval_step: Name,
}

impl RunTimeline {
    /// Starts recording in the run's folder. If another recorder cannot be reached, the observer gets a
    /// warning.
    pub fn start(folder: &RunFolder, observer: &mut dyn Observer) -> Result<Self, TrainError> {
        let client = Client::from_env().unwrap_or_else(|error| {
            observer.event(Event::Warning(error.to_string()));
            None
        });
        let recording = folder.recording();
        let files = events::Writer::new(&recording, events::Options::new(unix_now()));
        let timeline = Timeline::start(Some(files), client).map_err(|source| TrainError::Io {
            path: recording,
            source,
        })?;
        Ok(Self {
            recorder: timeline.recorder(),
            stages: Stage::ALL.map(|stage| match stage {
                Stage::Read | Stage::Decode | Stage::Augment => timeline.detail(stage.span()),
                _ => timeline.name(stage.span()),
            }),
            eval_step: timeline.name(span::EVAL_STEP),
            timeline,
        })
    }

    /// Records that the trainer waited for the batch of a step since `start`.
    pub fn waited(&self, start: Instant, step: u64) {
        self.since(self.stages[Stage::Wait as usize], start, step);
    }

    /// Records that the trainer computed a step since `start`.
    pub fn stepped(&self, start: Instant, step: u64) {
        self.since(self.stages[Stage::Step as usize], start, step);
    }

    /// Records that the trainer waited for a batch and validated it since `start`.
    pub fn validated(&self, start: Instant, batch: u64) {
        self.since(self.eval_step, start, batch);
    }

    /// Records a phase that began at `start`.
    pub fn phase(&self, name: &str, start: Instant, step: Option<u64>) {
        let args = Args {
            step,
            ..Args::default()
        };
        self.recorder.record_since(self.timeline.name(name), start, args);
    }

    /// Records the workers' spans for the batch of a step.
    pub fn loaded(&self, spans: &[stokehold_loader::Span], step: u64) {
        // A worker makes one batch after the other, so its part is one interval of its time.
        let mut shares: BTreeMap<usize, (Instant, Instant)> = BTreeMap::new();
        for span in spans {
            let stage = match span.stage {
                stokehold_loader::Stage::Read => Stage::Read,
                stokehold_loader::Stage::Decode => Stage::Decode,
                stokehold_loader::Stage::Augment => Stage::Augment,
                stokehold_loader::Stage::Batch => continue,
            };
            let end = span.start + span.duration;
            let share = shares.entry(span.worker).or_insert((span.start, end));
            *share = (share.0.min(span.start), share.1.max(end));
            self.of_worker(stage, span.worker, span.start, span.duration, step, span.bytes);
        }
        for (worker, (start, end)) in shares {
            self.of_worker(Stage::Batch, worker, start, end - start, step, None);
        }
    }

    /// Writes all pending spans. Returns the time of each stage; notes go to the observer.
    pub fn finish(self, observer: &mut dyn Observer) -> BTreeMap<Stage, Total> {
        let Outcome {
            totals,
            notes,
            failed,
        } = self.timeline.finish();
        let failed = failed.map(|error| format!("the timeline is not complete: {error}"));
        for warning in notes.into_iter().chain(failed) {
            observer.event(Event::Warning(warning));
        }
        let of = |stage: Stage| Some((stage, *totals.get(stage.span())?));
        Stage::ALL.into_iter().filter_map(of).collect()
    }

    fn since(&self, name: Name, start: Instant, step: u64) {
        let args = Args {
            step: Some(step),
            ..Args::default()
        };
        self.recorder.record_since(name, start, args);
    }

    fn of_worker(
        &self,
        stage: Stage,
        worker: usize,
        start: Instant,
        duration: Duration,
        step: u64,
        bytes: Option<u64>,
    ) {
        let args = Args {
            step: Some(step),
            worker: u32::try_from(worker).ok(),
            bytes,
        };
        self.recorder
            .record(self.stages[stage as usize], start, duration, args);
    }
}
