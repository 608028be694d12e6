//! A trial that is followed.

use stokehold_sagemaker::{LogPosition, TrainingJob};

use super::NEAR;

/// A trial that this process follows.
pub(super) struct Running {
    /// Its jobs, the last one being that which runs.
    pub names: Vec<String>,
    /// Whether the last job is known to have been created.
    pub is_there: bool,
    /// Whether it is to be stopped, and whether SageMaker knows.
    pub is_unwanted: bool,
    pub is_stopping: bool,
    /// Which of its jobs the lines are of, and how far they are read.
    pub read: usize,
    pub position: LogPosition,
    /// Numbers of the objective so far, and the last one.
    pub steps: u64,
    pub last: Option<f64>,
    /// Why it is being stopped, to count as failed.
    pub broken: Option<String>,
    /// The job at its end, and how often its lines were looked for since.
    pub ended: Option<TrainingJob>,
    pub looks: u32,
}

impl Running {
    pub fn new(names: Vec<String>) -> Self {
        Self {
            names,
            is_there: false,
            is_unwanted: false,
            is_stopping: false,
            read: 0,
            position: LogPosition::default(),
            steps: 0,
            last: None,
            broken: None,
            ended: None,
            looks: 0,
        }
    }

    /// The name of its job.
    pub fn name(&self) -> &str {
        self.names.last().map_or("", String::as_str)
    }

    /// Whether the lines are read up to SageMaker's final value of the objective.
    pub fn has_all(&self, last: Option<f64>) -> bool {
        match (self.last, last) {
            (Some(read), Some(said)) => (read - said).abs() <= NEAR * said.abs().max(f64::MIN_POSITIVE),
            (None, _) => false,
            // SageMaker says nothing: the lines are all there is.
            (Some(_), None) => true,
        }
    }
}
