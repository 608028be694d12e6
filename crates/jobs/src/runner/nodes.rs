//! Instances on the nodes of a Slurm job: a step each.
//!
//! ```text
//!  the first node: the runner ──► srun ──► a node: stokehold job instance, which makes the room and becomes the script
//!                             ──► scancel --signal=TERM JOB.STEP ──► the processes of that step
//! ```
//!
//! `srun` itself would end its step without mercy at SIGTERM.

use std::convert::Infallible;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::contract::host;
use crate::runner::room::{self, Room};
use crate::slurm::{self, State, Submitted};
use crate::{Distribution, Job, JobError, Mode};

/// The file that has this machine's name.
const NAME: &str = "/proc/sys/kernel/hostname";

/// The nodes of the Slurm job that this process runs in; the first one is this machine.
#[derive(Debug, Clone)]
pub(crate) struct Nodes {
    /// This program, by a path that is valid on all nodes.
    program: PathBuf,
    /// The name of the first node, by which the others find it.
    pub address: String,
    /// The network interface between them.
    pub interface: String,
}

impl Nodes {
    /// The nodes for the instances of a job; `None` if they all run on this machine.
    ///
    /// # Errors
    /// There are fewer nodes than instances, or the job needs what only one machine has.
    pub fn of(job: &Job) -> Result<Option<Self>, JobError> {
        let nodes = std::env::var("SLURM_JOB_NUM_NODES").ok();
        let nodes: usize = nodes.and_then(|nodes| nodes.parse().ok()).unwrap_or(1);
        if nodes == 1 || job.instances == 1 {
            return Ok(None);
        }
        if nodes < job.instances {
            return Err(JobError::Input(format!(
                "instances: {} of them, and the Slurm job has {nodes} nodes; ask for one node each, or for one node for all",
                job.instances
            )));
        }
        Self::check(job)?;
        let program = std::env::current_exe().map_err(JobError::io(Path::new("this program")))?;
        let name = fs::read_to_string(NAME).map_err(JobError::io(Path::new(NAME)))?;
        Ok(Some(Self {
            program,
            address: name.trim().to_owned(),
            interface: interface(),
        }))
    }

    /// What a job cannot have on several nodes.
    pub fn check(job: &Job) -> Result<(), JobError> {
        for (name, channel) in &job.channels {
            if let mode @ (Mode::FastFile | Mode::Cache | Mode::Pipe) = channel.mode() {
                return Err(JobError::Input(format!(
                    "channel {name}: mode {mode:?} is for one machine; on several nodes take File or Dir, or one node for all \
                     instances"
                )));
            }
        }
        if job.distribution == Distribution::Mpi {
            return Err(JobError::Input(
                "distribution mpi: on several nodes srun starts the ranks of an MPI program itself (srun --mpi=pmix ..); or take \
                 one node for all instances"
                    .to_owned(),
            ));
        }
        if job.spot.as_ref().is_some_and(|spot| spot.simulate.is_some()) {
            return Err(JobError::Input(
                "spot.simulate is for instances on one machine".to_owned(),
            ));
        }
        Ok(())
    }

    /// The command that runs an instance's command on its node.
    pub fn command(
        &self,
        rank: usize,
        room: Option<&Room>,
        words: &[String],
    ) -> Result<Vec<String>, JobError> {
        let mut all: Vec<String> = [
            "srun",
            // Next to the runner, which has the job's cores already.
            "--overlap",
            "--nodes=1",
            "--ntasks=1",
            "--mem=0",
            "--input=none",
            "--unbuffered",
            "--quiet",
        ]
        .map(str::to_owned)
        .into();
        all.push(format!("--relative={rank}"));
        all.push(format!("--job-name={}", host(rank)));
        all.push(self.program.display().to_string());
        all.extend(["job", "instance"].map(str::to_owned));
        if let Some(room) = room {
            let room = serde_json::to_string(room).map_err(|error| JobError::Input(error.to_string()))?;
            all.extend(["--room".to_owned(), room]);
        }
        all.push("--".to_owned());
        all.extend_from_slice(words);
        Ok(all)
    }
}

/// Sends a signal to the step of an instance.
///
/// # Errors
/// [`JobError::Slurm`] if Slurm does not answer, or there is no such step.
pub(super) fn signal(rank: usize, how: Signal) -> Result<(), JobError> {
    let id = std::env::var("SLURM_JOB_ID").unwrap_or_default();
    let mut squeue = Command::new("squeue");
    squeue.args(["--noheader", "--steps", "--format=%i|%j", "--jobs", &id]);
    let steps = slurm::answer(squeue)?;
    let name = host(rank);
    let mut of_instance = steps.lines().filter_map(|line| line.trim().split_once('|'));
    let Some((step, _)) = of_instance.find(|(_, of)| *of == name) else {
        return Err(JobError::Slurm(format!("squeue: no step {name} of job {id}")));
    };
    let mut scancel = Command::new("scancel");
    scancel.arg(format!(
        "--signal={}",
        if how == Signal::KILL { "KILL" } else { "TERM" }
    ));
    scancel.arg(step);
    match slurm::answer(scancel) {
        // The step has ended meanwhile.
        Err(JobError::Slurm(said)) if said.contains("Invalid job id") => Ok(()),
        answer => answer.map(drop),
    }
}

/// Whether Slurm is ending the job that this process runs in: it was cancelled, or its time is over.
pub(super) fn is_ending() -> bool {
    let id = std::env::var("SLURM_JOB_ID").ok().and_then(|id| id.parse().ok());
    let look = id.map(|id| {
        let own = Submitted {
            id,
            cluster: None,
            state: None,
        };
        own.look()
    });
    matches!(look, Some(Ok(State::Ended(_)))) || matches!(look, Some(Ok(State::Alive(at))) if at != "RUNNING")
}

/// The interface of this machine's default route, or else the one to itself.
fn interface() -> String {
    let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let default = routes.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let interface = fields.next()?;
        (fields.next()? == "00000000").then(|| interface.to_owned())
    });
    default.unwrap_or_else(|| "lo".to_owned())
}

/// Becomes an instance's command, on the node that this process was started on. `room` is what the runner has said of its
/// room.
///
/// # Errors
/// The room cannot be made, or the command cannot be started. It does not return otherwise.
pub fn on_node(room: Option<&str>, words: &[String]) -> Result<Infallible, JobError> {
    let Some((program, arguments)) = words.split_first() else {
        return Err(JobError::Input("no command".to_owned()));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    without_slurm(&mut command);
    let error = match room {
        Some(room) => {
            let mut room: Room =
                serde_json::from_str(room).map_err(|error| JobError::Input(format!("--room: {error}")))?;
            room.read_only = room::system();
            command.current_dir(std::env::current_dir().map_err(JobError::io(Path::new(".")))?);
            room.exec(command)
        }
        None => command.exec(),
    };
    Err(JobError::io(Path::new(program))(error))
}

/// Hides from a script that Slurm started it: frameworks would take one rank of Slurm for all of their ranks.
pub(super) fn without_slurm(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let is_slurms = name.to_str().is_some_and(|name| {
            ["SLURM_", "SRUN_", "PMI_", "PMIX_"]
                .iter()
                .any(|of| name.starts_with(of))
        });
        if is_slurms && name != "SLURM_JOB_ID" {
            command.env_remove(name);
        }
    }
}
