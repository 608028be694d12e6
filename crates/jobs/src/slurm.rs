//! Slurm, by its own commands: `sbatch`, `squeue` and `scancel`. It need not have accounting.
//!
//! ```text
//!  login node                     a node of the cluster
//!  Store::submit ──► sbatch ──►   stokehold job runner NAME ──► run, as on any machine
//!       │                              │ several instances on several nodes: one srun each
//!       └────── the job's folder, on a file system that all nodes have ──────┘
//! ```
//!
//! The job's state and its lines are files, as they are for a job of one machine. Slurm is only asked where no runner holds the
//! job's lock: whether the job still waits, or has ended without a word. Where Slurm does not answer, nothing is concluded.

use std::io::{ErrorKind, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::JobError;

/// How long Slurm's commands may take. Its controller answers in milliseconds, and a busy one in seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// The most bytes that are read of what Slurm's commands print: a line for each of a hundred thousand tasks.
const LONGEST: u64 = 16 << 20;

/// A script of Slurm that runs the command it is given.
pub const SCRIPT: &str = "#!/bin/sh\nexec \"$@\"\n";

/// A job's number at Slurm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Submitted {
    /// The number that `squeue` shows.
    pub id: u64,
    /// The cluster, where sbatch was asked for another one than its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// What Slurm said last: its name of the state, and the reason why a job waits. `None` if it was not asked.
    pub state: Option<String>,
}

/// Where a job is, by Slurm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It is to run, with the reason why it does not yet; or it runs.
    Alive(String),
    /// It has ended, and Slurm's name for how: `COMPLETED`, `FAILED`, `NODE_FAIL`, ..
    Ended(String),
    /// Slurm no longer knows it: it forgets jobs some minutes after their end.
    Forgotten,
}

/// The states of jobs that do not come back.
const ENDED: [&str; 10] = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
];

impl Submitted {
    /// Hands a script with arguments to `sbatch`. Of options that are given twice, the last one counts.
    ///
    /// # Errors
    /// [`JobError::Input`] if there is no `sbatch`; [`JobError::Slurm`] with what it said.
    pub fn new(options: &[String], script: &Path, command: &[String]) -> Result<Self, JobError> {
        let mut sbatch = Command::new("sbatch");
        sbatch.arg("--parsable").args(options).arg(script).args(command);
        let said = answer(sbatch)?;
        // The number, and where there are several clusters, `;` and the cluster's name.
        let (id, cluster) = match said.trim().split_once(';') {
            Some((id, cluster)) => (id, Some(cluster.to_owned())),
            None => (said.trim(), None),
        };
        match id.parse() {
            Ok(id) => Ok(Self {
                id,
                cluster,
                state: None,
            }),
            Err(_) => Err(JobError::Slurm(format!(
                "sbatch gave no number of a job: {:?}",
                said.trim()
            ))),
        }
    }

    /// A command of Slurm about a job of its cluster.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        command.args(self.cluster.iter().map(|cluster| format!("--clusters={cluster}")));
        command
    }

    /// Asks Slurm where the job is. Of an array, the tasks that are alive count first.
    ///
    /// # Errors
    /// [`JobError::Slurm`] if Slurm does not answer; then nothing is known of the job.
    pub fn look(&self) -> Result<State, JobError> {
        let mut squeue = self.command("squeue");
        squeue.args(["--noheader", "--states=all", "--format=%T|%r", "--jobs"]);
        squeue.arg(self.id.to_string());
        match answer(squeue) {
            Ok(lines) => Ok(in_lines(&lines).unwrap_or_else(|| self.ask_accounting())),
            Err(JobError::Slurm(said)) if said.contains("Invalid job id") => Ok(self.ask_accounting()),
            Err(error) => Err(error),
        }
    }

    /// How a job ended that Slurm's controller has forgotten, where Slurm has accounting.
    fn ask_accounting(&self) -> State {
        let mut sacct = self.command("sacct");
        sacct.args([
            "--noheader",
            "--allocations",
            "--parsable2",
            "--format=State",
            "--jobs",
        ]);
        sacct.arg(self.id.to_string());
        let said = answer(sacct).unwrap_or_default();
        in_lines(&said).unwrap_or(State::Forgotten)
    }

    /// Takes the job from the queue, or ends it.
    ///
    /// # Errors
    /// [`JobError::Slurm`] with what `scancel` said.
    pub fn cancel(&self) -> Result<(), JobError> {
        let mut scancel = self.command("scancel");
        scancel.arg(self.id.to_string());
        answer(scancel).map(drop)
    }
}

/// The state in `STATE|reason` lines, one a task; `None` without any.
fn in_lines(lines: &str) -> Option<State> {
    let mut ended = None;
    // Of another cluster, its name comes first.
    let tasks = lines
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("CLUSTER: "));
    for line in tasks {
        let (state, reason) = line.split_once('|').unwrap_or((line, ""));
        // Accounting says "CANCELLED by 1000".
        let name = state.split_whitespace().next().unwrap_or(state);
        if !ENDED.contains(&name) {
            return Some(State::Alive(match reason {
                "" | "None" => name.to_owned(),
                reason => format!("{name} ({reason})"),
            }));
        }
        // The tasks of an array share their work: it is done if one of them found nothing more to do.
        if ended.is_none() || name == "COMPLETED" {
            ended = Some(name.to_owned());
        }
    }
    ended.map(State::Ended)
}

/// What a command of Slurm prints, which is little.
pub(crate) fn answer(mut command: Command) -> Result<String, JobError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let spawned = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = spawned.map_err(|error| match error.kind() {
        ErrorKind::NotFound => JobError::Input(format!(
            "there is no {name} on PATH: jobs are handed to Slurm on a login node, which has Slurm's commands"
        )),
        _ => JobError::Slurm(format!("{name}: {error}")),
    })?;
    // Read while it runs: a pipe holds 64 KiB.
    let stdout = child
        .stdout
        .take()
        .map(|pipe| std::thread::spawn(move || read(pipe)));
    let stderr = child
        .stderr
        .take()
        .map(|pipe| std::thread::spawn(move || read(pipe)));
    let began = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if began.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(5)),
            Ok(None) => {
                // Neither matters: it is given up.
                let _ = child.kill();
                let _ = child.wait();
                let seconds = PATIENCE.as_secs();
                return Err(JobError::Slurm(format!("{name}: no answer within {seconds} s")));
            }
            Err(error) => return Err(JobError::Slurm(format!("{name}: {error}"))),
        }
    };
    let printed =
        |reader: Option<JoinHandle<String>>| reader.and_then(|reader| reader.join().ok()).unwrap_or_default();
    let (out, err) = (printed(stdout), printed(stderr));
    match status.success() {
        true => Ok(out),
        false => Err(JobError::Slurm(format!("{name}: {}", err.trim()))),
    }
}

/// What comes through a pipe, at most [`LONGEST`] bytes of it. Where it cannot be read, what came before.
fn read(pipe: impl Read) -> String {
    let mut bytes = Vec::new();
    let _ = pipe.take(LONGEST).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The option with which sbatch writes to this file. In names it replaces what follows a `%`, and drops what follows a `\`.
///
/// # Errors
/// [`JobError::Input`] for a path with a backslash.
pub fn output(file: &Path) -> Result<String, JobError> {
    let path = file.display().to_string();
    match path.contains('\\') {
        false => Ok(format!("--output={}", path.replace('%', "%%"))),
        true => Err(JobError::Input(format!(
            "{path}: sbatch cannot write to a path with a backslash; choose another folder"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_where_a_job_is() {
        let alive = |text: &str| Some(State::Alive(text.to_owned()));
        let ended = |text: &str| Some(State::Ended(text.to_owned()));
        assert_eq!(in_lines("PENDING|Resources\n"), alive("PENDING (Resources)"));
        assert_eq!(in_lines("RUNNING|None\n"), alive("RUNNING"));
        assert_eq!(in_lines("COMPLETING|None\n"), alive("COMPLETING"));
        assert_eq!(in_lines("CANCELLED by 1000\n"), ended("CANCELLED"));
        assert_eq!(
            in_lines("NODE_FAIL|None\nCOMPLETED|None\nFAILED|None\n"),
            ended("COMPLETED")
        );
        assert_eq!(in_lines("TIMEOUT|None\nFAILED|None\n"), ended("TIMEOUT"));
        assert_eq!(in_lines("CLUSTER: b\nRUNNING|None\n"), alive("RUNNING"));
        assert_eq!(
            in_lines("FAILED|NonZeroExitCode\nRUNNING|None\n"),
            alive("RUNNING")
        );
        assert_eq!(in_lines("\n"), None);
    }

    #[test]
    fn a_command_that_prints_much_does_not_hang_and_a_path_is_what_it_says() {
        let mut much = Command::new("sh");
        much.args(["-c", "yes | head -c 300000; exit 0"]);
        assert_eq!(answer(much).unwrap().len(), 300_000);
        assert_eq!(output(Path::new("/jobs%j/a b")).unwrap(), "--output=/jobs%%j/a b");
        assert!(output(Path::new("/a\\b")).is_err());
    }
}
