//! Training jobs as SageMaker runs them, on this machine, without Docker and without an account.
//!
//! A script that was written for SageMaker finds what it expects: folders, files, variables, arguments ([`contract`]), data
//! in its channels, a model folder that becomes `model.tar.gz`, and somebody who reads its metrics.
//!
//! ```text
//!  job.toml ──► Job ──► Store::create ──► Store::claim ──► run ──► Record
//!                        a folder, with    the lock of      Starting, Downloading, Training, Uploading,
//!                        job.json and      the one runner   Completed | Failed | Stopped
//!                        state.json
//!  list, get, log, stop, wait, remove: any other process, at any time
//! ```
//!
//! No daemon and no database: a job is a folder. Its state is one small file, written aside and renamed by the one process
//! that holds the job's lock, so that every moment leaves it whole. The lock goes with the process that holds it; so a
//! runner that was killed, or a machine that was started anew, leaves a job that says it failed and not one that seems to
//! run for ever. `store.rs` has the details.
//!
//! Instances are local processes that believe to be machines: `algo-1`, `algo-2`, .. with folders, ranks and, as far as there
//! are enough, cores and GPUs of their own. They share this machine's address, disk and memory.
//!
//! # Channels
//! | mode | what happens |
//! |---|---|
//! | [`Mode::File`] | all objects are copied before the start, several at once; what is there already is kept; the disk's room is looked at first |
//! | [`Mode::Dir`] | a folder of this machine: nothing is copied |
//! | [`Mode::FastFile`] | a mounted view of the objects, fetched when they are read, and ahead of who reads on; wants FUSE; `mount.rs` |
//! | [`Mode::Cache`] | the same, and what was read is kept on disk for the next epoch and for all jobs of this machine, within a bound |
//! | [`Mode::Pipe`] | objects stream through named pipes, one an epoch; RecordIO, gzip and another order in each epoch if wanted |
//!
//! A prefix is a folder: `s3://bucket/train` has the objects below `train/`, and not those of `train-2/`.
//!
//! A script can only read its channels ([`Access`]): the folder of a user's data is mounted read-only for it.
//!
//! # Rooms
//! Every instance runs in a mount namespace of its own, in which its folder is `/opt/ml` and the system's folders are
//! read-only, and has a home folder of its own. Where the system does not permit that, [`Store::create`] says so; without
//! [`Job::opt_ml`] there are no rooms. `room.rs` and `home.rs` have the details.
//!
//! # Requirements
//! A `requirements.txt` in the source folder of a Python script is installed into a virtual environment that sees the packages of the
//! job's interpreter. It is made once for the same text and interpreter, and shared by the jobs of a store; `venv.rs` has the
//! details.
//!
//! # Recording
//! The machine is recorded while a job runs, as `stokehold profile` does, and the script finds in `STOKEHOLD_TIMELINE` where to send its
//! steps. Recording and report lie in the job's folder, so that this folder is what `stokehold report` and `top` take; with `output`
//! they are laid out there as SageMaker does.
//!
//! # Checkpoints and interruptions
//! What a script writes to `SM_CHECKPOINT_DIR`, which is `/opt/ml/checkpoints`, stays in the job's folder for
//! [`Store::resume`]. With [`Job::checkpoints`] it is kept alike with a place, file by complete file, and comes from there at
//! every start; with [`Job::spot`] the job's machine may be taken away, or seem to be. `checkpoints.rs` and `spot.rs` say what
//! holds then.
//!
//! # What is not here
//! Under `mpi` one `mpirun` on `algo-1` starts all processes.
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use stokehold_jobs::{EntryPoint, Job, Metric, News, Status, Store, run};
//!
//! let folder = tempfile::tempdir()?;
//! std::fs::write(folder.path().join("train.sh"), "echo loss=0.25; echo weights > $SM_MODEL_DIR/model.txt")?;
//! let mut job = Job::new(EntryPoint::parse("train.sh")?);
//! job.source_dir = Some(folder.path().to_owned());
//! job.metrics.push(Metric::parse("loss=loss=([0-9.]+)")?);
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

mod archive;
mod augmented;
mod channel;
mod checkpoints;
pub mod contract;
mod cut;
mod data;
mod error;
mod home;
mod job;
mod lines;
mod mount;
mod notice;
mod pipe;
mod place;
mod process;
mod profiler;
mod python;
mod room;
mod runner;
mod source;
mod spot;
mod store;
mod venv;

pub use channel::{Access, Channel, Compression, Kind, Mode, Sharing, Wrapper};
pub use checkpoints::Kept;
pub use error::JobError;
pub use job::{Distribution, EntryPoint, Job, Metric, hyperparameter};
pub use lines::Line;
pub use place::Place;
pub use process::Process;
pub use runner::{News, detach, run};
pub use spot::{Bill, Simulation, Spot};
pub use store::{Claim, FinalMetric, METRICS, Record, Secondary, Status, Store, Transition};
