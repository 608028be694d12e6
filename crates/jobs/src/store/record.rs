//! What is known of a job: its states, its metrics, its end.

use std::collections::BTreeMap;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stokehold_base::clock::unix_now as now;

use crate::runner::process::Process;
use crate::slurm::Submitted;
use crate::{Bill, Kept, Written};

/// The main state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Status {
    /// From the creation on.
    InProgress,
    /// The script exited with 0.
    Completed,
    /// The script failed, or could not be started.
    Failed,
    /// A stop was requested, and the script still runs.
    Stopping,
    /// Stopped by a caller or by a time limit.
    Stopped,
}

impl Status {
    /// Whether the state is final.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Stopped)
    }
}

/// The detailed state within a [`Status`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Secondary {
    /// Folders and processes are being made.
    Starting,
    /// Channels are being copied.
    Downloading,
    /// The script runs.
    Training,
    /// The model is being packed and uploaded.
    Uploading,
    /// The machine was taken away: the job waits for another one, or to be resumed (then it is `Stopped`).
    Interrupted,
    /// The script was sent SIGTERM.
    Stopping,
    /// It succeeded.
    Completed,
    /// It failed.
    Failed,
    /// A caller stopped it.
    Stopped,
    /// It was stopped at its time limit.
    MaxRuntimeExceeded,
    /// It was stopped because it was not done in time, pauses included.
    MaxWaitTimeExceeded,
}

/// When a job entered a state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Transition {
    /// The state.
    pub status: Secondary,
    /// Unix seconds.
    pub start: f64,
}

/// The last value of a metric.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FinalMetric {
    /// The metric's name.
    pub name: String,
    /// The value.
    pub value: f64,
    /// When it was printed or received, unix seconds.
    pub time: f64,
}

/// The state of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Record {
    /// The job's name.
    pub name: String,
    /// The main state.
    pub status: Status,
    /// The detailed state.
    pub secondary: Secondary,
    /// All state changes, oldest first.
    pub transitions: Vec<Transition>,
    /// Why the job failed, at most 1024 characters; `None` if it did not.
    pub failure_reason: Option<String>,
    /// The rule that stopped it, with the reason and how long it had run; `None` if none did.
    pub stopped_by: Option<String>,
    /// Whether the job failed because its runner died, and not by itself.
    pub runner_died: bool,
    /// The exit code of the decisive instance; 128 plus the signal's number for one that was killed; `None`
    /// before its end.
    pub exit_code: Option<i32>,
    /// When the job was created, unix seconds.
    pub created: f64,
    /// When the script started, unix seconds; `None` before.
    pub training_started: Option<f64>,
    /// When the script ended, unix seconds; `None` before.
    pub training_ended: Option<f64>,
    /// The processes of the job's instances.
    pub processes: Vec<Process>,
    /// The last value of each metric so far.
    pub metrics: Vec<FinalMetric>,
    /// The path or URI of the packed model; `None` without one.
    pub model: Option<String>,
    /// The path or URI of the other packed results; `None` without them.
    pub output: Option<String>,
    /// The folder of the recording, for `stokehold report` and `top`; `None` without one.
    pub profile: Option<PathBuf>,
    /// The path of the report; `None` without one.
    pub report: Option<PathBuf>,
    /// The process that runs the job, or ran it last; `None` before its start.
    pub runner: Option<Process>,
    /// The job's checkpoints, if they are mirrored to a place.
    pub checkpoints: Option<Kept>,
    /// The channels that the script may write to and whose writes go to a bucket, by name.
    pub writes: BTreeMap<String, Written>,
    /// The job's cost, if it runs on spot machines.
    pub spot: Option<Bill>,
    /// The job at Slurm; `None` for one that was not handed to Slurm. Not in `state.json`.
    pub slurm: Option<Submitted>,
}

impl Record {
    pub(crate) fn new(name: &str) -> Self {
        let now = now();
        Self {
            name: name.to_owned(),
            status: Status::InProgress,
            secondary: Secondary::Starting,
            transitions: vec![Transition {
                status: Secondary::Starting,
                start: now,
            }],
            failure_reason: None,
            stopped_by: None,
            runner_died: false,
            exit_code: None,
            created: now,
            training_started: None,
            training_ended: None,
            processes: Vec::new(),
            metrics: Vec::new(),
            model: None,
            output: None,
            profile: None,
            report: None,
            runner: None,
            checkpoints: None,
            writes: BTreeMap::new(),
            spot: None,
            slurm: None,
        }
    }

    pub(crate) fn enter(&mut self, status: Status, secondary: Secondary) {
        self.status = status;
        self.secondary = secondary;
        self.transitions.push(Transition {
            status: secondary,
            start: now(),
        });
    }

    /// Marks the job as failed.
    pub(crate) fn fail(&mut self, reason: &str) {
        self.failure_reason = Some(reason.chars().take(1024).collect());
        self.enter(Status::Failed, Secondary::Failed);
    }
}

/// How the failure reason begins when the runner died.
pub(super) const RUNNER_DIED: &str = "InternalServerError: the runner of this job died";
