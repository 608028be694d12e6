//! Follows a job to its end: its states from SageMaker, its lines from CloudWatch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::{Client, LogLine, LogPosition, SageMakerError, TrainingJob};

/// How often CloudWatch is asked for lines after the end, at most: the last lines come some seconds later.
const LAST: usize = 6;

/// What happens to a job.
#[derive(Debug)]
pub enum News<'a> {
    /// Its state changed; the first one is the state at the beginning.
    State(&'a TrainingJob),
    /// It printed a line.
    Line(&'a LogLine),
}

/// Tells `show` a job's states and lines, asking every `look`, until the job's end or until `stop` is set. Returns the job as
/// it was last.
///
/// # Errors
/// [`SageMakerError::NoSuchJob`]: there is none, or it vanished. [`SageMakerError::Follow`]: the job continues, and cannot be
/// followed, such as by expired credentials.
pub fn follow(
    client: &Client,
    name: &str,
    look: Duration,
    stop: &AtomicBool,
    show: &mut dyn FnMut(News<'_>),
) -> Result<TrainingJob, SageMakerError> {
    let mut position = LogPosition::default();
    let mut said = String::new();
    let mut state = |client: &Client, show: &mut dyn FnMut(News<'_>)| {
        let job = client.describe(name)?;
        // The same state may come again: Interrupted, Starting, ..
        let now = format!(
            "{} {}",
            job.secondary_status,
            job.secondary_status_transitions.len()
        );
        if now != said {
            show(News::State(&job));
            said = now;
        }
        Ok(job)
    };
    let followed = |error| match error {
        error @ SageMakerError::NoSuchJob { .. } => error,
        error => SageMakerError::Follow {
            name: name.to_owned(),
            region: client.region().to_owned(),
            source: Box::new(error),
        },
    };
    let mut job = state(client, show).map_err(followed)?;
    loop {
        // The state is older than the lines, so that the last lines are not missed.
        let read = lines(client, name, &mut position, show);
        if job.training_job_status.is_final() {
            if let Err(error) = read {
                missing(name, &error);
                return Ok(job);
            }
            break;
        }
        read.map_err(followed)?;
        if !wait(look, stop) {
            return Ok(job);
        }
        job = state(client, show).map_err(followed)?;
    }
    for _ in 0..LAST {
        if !wait(look, stop) {
            break;
        }
        match lines(client, name, &mut position, show) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                missing(name, &error);
                break;
            }
        }
    }
    Ok(job)
}

/// A job that has ended has ended, whatever became of its last lines.
fn missing(name: &str, error: &SageMakerError) {
    tracing::warn!(name, %error, "its last lines may be missing");
}

/// Shows all lines that are there; whether there were any.
fn lines(
    client: &Client,
    name: &str,
    position: &mut LogPosition,
    show: &mut dyn FnMut(News<'_>),
) -> Result<bool, SageMakerError> {
    let mut any = false;
    loop {
        let lines = client.lines(name, position)?;
        if lines.is_empty() {
            return Ok(any);
        }
        any = true;
        for line in &lines {
            show(News::Line(line));
        }
    }
}

/// Waits; `false` if it was told to stop.
fn wait(time: Duration, stop: &AtomicBool) -> bool {
    let began = Instant::now();
    while began.elapsed() < time {
        if stop.load(Ordering::SeqCst) {
            return false;
        }
        thread::sleep(Duration::from_millis(50).min(time - began.elapsed().min(time)));
    }
    !stop.load(Ordering::SeqCst)
}
