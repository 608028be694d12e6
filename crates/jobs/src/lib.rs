//! Training jobs as SageMaker runs them, on this machine, without Docker and without an account.
//!
//! A script that was written for SageMaker finds what it expects: folders, files, variables and arguments
//! ([`contract`]), data in its channels, a model folder that becomes `model.tar.gz`, and a parser for the
//! metrics that it prints.
//!
//! ```text
//!  job.toml ──► Job ──► Store::create ──► Store::claim ──► run ──► Record
//!                        a folder, with    the lock of      Starting, Downloading, Training, Uploading,
//!                        job.json and      the one runner   Completed | Failed | Stopped
//!                        state.json
//!  list, get, log, stop, wait, remove: any other process, at any time
//! ```
//!
//! There is no daemon and no database: a job is a folder. Its state is one small file. Only the process that
//! holds the job's lock writes it, to a temporary file that is then renamed, so the state is valid at every
//! moment. The kernel releases the lock when that process ends. So when a runner was killed, or the machine
//! restarted, the job reports that it failed and does not seem to run for ever. `store.rs` has the details.
//!
//! Instances are local processes that see themselves as machines: `algo-1`, `algo-2`, .. with their own
//! folders and ranks, and their own cores and GPUs as far as there are enough. They share this machine's
//! address, disk and memory.
//!
//! # Channels
//! | mode | what happens |
//! |---|---|
//! | [`Mode::File`] | copies all objects before the start, several at a time, after checking the free disk space; keeps copies that exist |
//! | [`Mode::Dir`] | uses a folder on this machine and copies nothing; for [`Kind::Mount`], checks that a file system is mounted there; `mountinfo.rs` |
//! | [`Mode::FastFile`] | mounts a view of the objects, fetches them on read, and reads ahead of sequential readers; needs FUSE; `mount.rs` |
//! | [`Mode::Cache`] | the same, and keeps on disk what was read, for the next epoch and for all jobs of this machine, up to a limit; the script may write to it, `writes.rs` |
//! | [`Mode::Pipe`] | streams objects through named pipes, one pipe an epoch; optionally with RecordIO, gzip, and a new order in each epoch |
//!
//! A prefix is a folder: `s3://bucket/train` has the objects below `train/`, and not those of `train-2/`.
//!
//! By default a script can only read its channels ([`Access`]): the folder of a user's data is mounted
//! read-only for it. With [`Access::Rw`], a folder of this machine is written to itself, and what is written to a
//! channel of [`Mode::Cache`] goes to the bucket. `writes.rs` states the guarantees.
//!
//! # Rooms
//! Every instance runs in its own mount namespace, in which its folder is `/opt/ml` and the system's folders
//! are read-only, and has its own home folder. If the system does not permit that, [`Store::create`] returns
//! an error. Without [`Job::opt_ml`] there are no rooms. `room.rs` and `home.rs` have the details.
//!
//! # Requirements
//! A `requirements.txt` in the source folder of a Python script is installed into a virtual environment on
//! top of the packages of the job's interpreter. The jobs of a store share one environment per text and
//! interpreter. `venv.rs` has the details.
//!
//! # Recording
//! The machine is recorded while a job runs, as `stokehold profile` does. The script finds the address for
//! its steps in `STOKEHOLD_TIMELINE`. Recording and report are in the job's folder, so `stokehold report` and
//! `top` take that folder. With `output` they are also copied there, with SageMaker's layout.
//!
//! # Checkpoints and interruptions
//! Files that a script writes to `SM_CHECKPOINT_DIR`, which is `/opt/ml/checkpoints`, stay in the job's
//! folder for [`Store::resume`]. With [`Job::checkpoints`] that folder is mirrored to a place, one complete
//! file at a time, and filled from there at every start. With [`Job::spot`] the job's machine may be taken
//! away, or its loss may be simulated. `checkpoints.rs` and `spot.rs` state the guarantees.
//!
//! # Slurm
//! [`Store::submit`] hands a job to Slurm. Its runner then works on the first node of the Slurm job, and the instances on one
//! node each, or all on one. [`slurm`] and `runner/nodes.rs` have the details.
//!
//! # The section `[sagemaker]`
//! A job keeps this section of its file as a table, [`Job::sagemaker`], and does not judge it: the crate that sends jobs to
//! SageMaker knows its keys. A program that has that crate reads job files by its functions, so the command line and the studio
//! refuse a wrong section wherever the job is to run.
//!
//! # Measurements
//! [`ways`] measures a channel's modes on the user's own data, each as a job, and says which to choose.
//!
//! # Limits
//! Under `mpi`, one `mpirun` on `algo-1` starts all processes.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use stokehold_jobs::{EntryPoint, Job, Metric, News, Status, Store, run};
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("train.sh"), "echo loss=0.25; echo weights > $SM_MODEL_DIR/model.txt")?;
//! let mut job = Job::new(EntryPoint::parse("train.sh")?);
//! job.source_dir = Some(folder.path().to_owned());
//! job.metrics.push(Metric::parse("loss=loss=([-+.0-9a-zA-Z]+)")?);
//!
//! let store = Store::new(&folder.path().join("jobs"))?;
//! let name = store.create(&job)?;
//! let show = |news: News<'_>| {
//!     if let News::Line(line) = news {
//!         println!("{}", line.text);
//!     }
//! };
//! let record = run(store.claim(&name)?, &AtomicBool::new(false), &show)?;
//! assert_eq!(record.status, Status::Completed);
//! assert_eq!(record.metrics[0].value, 0.25);
//! assert!(record.model.is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!("jobs use Linux's namespaces, FUSE and /proc: this crate is for Linux");

mod checkpoints;
pub mod contract;
mod data;
mod decode;
mod error;
mod job;
mod mirror;
mod model;
mod runner;
pub mod slurm;
mod store;
pub mod ways;
mod writes;

pub use checkpoints::Kept;
pub use data::mountinfo::mounted_at;
pub use decode::{Decoded, decode_hyperparameter};
pub use error::JobError;
pub use job::channel::{Access, Channel, Compression, Kind, Mode, Sharing, Wrapper};
pub use job::profiler::Profiling;
pub use job::spot::{Bill, Simulation, Spot};
pub use job::{Distribution, EntryPoint, Job, Metric, hyperparameter};
pub use model::{Unpacked, unpack};
pub use runner::lines::{Line, MetricsLine};
pub use runner::nodes::on_node;
pub use runner::place::Place;
pub use runner::process::Process;
pub use runner::{News, detach, run};
pub use store::{Claim, FinalMetric, METRICS, RUNNER_READY, Record, Secondary, Status, Store, Transition};
pub use writes::Written;

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
