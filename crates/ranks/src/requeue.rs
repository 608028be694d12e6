//! A job of Slurm that asks for more time.

use std::env;
use std::process::Command;

/// Why a job is not back in the queue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RequeueError {
    /// Slurm has not started this process.
    #[error("this is no job of Slurm (SLURM_JOB_ID is not set)")]
    NoJob,
    /// Slurm's command did not start.
    #[error("scontrol: {0}")]
    NoSlurm(std::io::Error),
    /// Slurm's command failed.
    #[error("scontrol requeue {job}: {said}")]
    Refused {
        /// The job's number.
        job: String,
        /// What the command said.
        said: String,
    },
}

/// Puts the job of Slurm that this process is part of back into the queue; returns its number. Slurm ends the job and starts it
/// again, on any machines.
///
/// # Errors
/// There is no such job, or Slurm refuses.
pub fn requeue() -> Result<String, RequeueError> {
    let job = env::var("SLURM_JOB_ID").map_err(|_| RequeueError::NoJob)?;
    let requeued = Command::new("scontrol").args(["requeue", &job]).output();
    let requeued = requeued.map_err(RequeueError::NoSlurm)?;
    if !requeued.status.success() {
        let said = String::from_utf8_lossy(&requeued.stderr).trim().to_owned();
        return Err(RequeueError::Refused { job, said });
    }
    Ok(job)
}
