//! Records what the machine and the training loop do, writes it to files, and reads it back.
//!
//! ```text
//!  /proc, cgroup, NVML ──► sampler ──► system/*.json    ┐
//!  trainer, loader, any                                 ├─► Recording ───► stokehold-diagnose: rules, advice, report
//!  process ──► timeline ────────────► framework/*.json  ┘
//! ```
//!
//! The files have SageMaker Debugger's format, so its readers open our recordings, and `stokehold report`
//! opens its recordings.
//! A run's folder holds
//!
//! ```text
//! profiler-output/recording.json                                         about the run ([`About`])
//! profiler-output/system/incremental/YYYYMMDDHH/<minute>.algo-1.json     samples of the machine, JSON lines
//! profiler-output/framework/pevents/YYYYMMDDHH/<end>_<pid>-algo-1_pythontimeline.json    spans, Chrome trace
//! rule-output/ProfilerReport-<time>/profiler-output/                     the report and its JSON files
//! ```
//!
//! Two recorders run next to the training loop. Both are cheap enough to leave on, and both use unix seconds,
//! so that their results can be combined:
//!
//! - [`Recorder`] takes a sample ("tick") every interval, in its own thread ([`Sampler`]): busy share and I/O
//!   wait of every core that it may run on, memory, disks, network, pressure, the cgroup's quota, the process
//!   tree, and the GPUs if NVML is installed. The kernel counts CPU time in steps of 10 ms, so a tick of 100
//!   ms resolves 10 points of a core; read the percentiles over a run instead. [`Change`] changes a running
//!   recording. Without `/proc`, opening a recorder fails with [`ProfileError::NotSupported`]: no values are
//!   invented.
//! - [`Timeline`] takes the spans of steps, waits, phases and loader workers, from any thread in less than
//!   200 ns, and from any process as lines (docs/concepts/timeline.md). Its totals count every span. In long runs the
//!   files keep fewer and fewer of the details of images.
//!
//! A Stokehold training run also leaves a [`Workload`](workload::Workload): how fast its loader and its
//! trainer can be, from which predictions are made. `stokehold-diagnose` interprets recordings.
//!
//! ```no_run
//! use stokehold_profile::{Ending, Recorder, Recording, Settings, Tree, dimension};
//! let settings = Settings::new(Tree::Below(std::process::id()), vec!["train".to_owned()]);
//! let sampler = Recorder::open("run/profiler-output".as_ref(), settings)?.start()?;
//! // .. the program works ..
//! sampler.stop(Ending::default())?;
//! let recording = Recording::open("run".as_ref())?;
//! for core in recording.nodes[0].of(dimension::CPU) {
//!     println!("{}: {} samples", core.name, core.values.len());
//! }
//! # Ok::<(), stokehold_profile::ProfileError>(())
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!("the profiler reads Linux's /proc and control groups: this crate is for Linux");

mod clock;
mod contention;
mod control;
mod error;
pub mod events;
mod kernel;
pub mod lengths;
mod machine;
mod made;
mod open;
mod percentile;
mod probe;
pub mod ranks;
mod recording;
mod sampler;
pub mod system;
pub mod timeline;
pub mod workload;

pub use contention::Contention;
pub use control::{Change, check_free, check_interval};
pub use error::ProfileError;
pub use machine::{Machine, peak_rss};
pub use open::FOLDER;
pub use percentile::Percentiles;
pub use probe::Tree;
pub use recording::{About, CoreUse, Node, Recording, Series, Span, dimension, span, totals};
pub use sampler::{Ending, Recorder, Sampler, Settings, Sources, SystemSummary};
pub use timeline::Timeline;

/// The examples of README.md, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct ReadmeDoctests;
