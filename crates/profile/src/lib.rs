//! See why the accelerator waits, and what fixing it gains.
//!
//! A run is recorded into files, read back as a [`Recording`], judged by rules, and turned into advice and a report:
//!
//! ```text
//!  /proc, cgroup, NVML ──► sampler ──► system/*.json    ┐                ┌─► rules ──► findings ┐
//!  trainer, loader, any                                 ├─► Recording ───┤                      ├─► report, top
//!  process ──► timeline ────────────► framework/*.json  ┘                └─► advice: what would ┘
//!                                                                            each change gain
//! ```
//!
//! The files are those of SageMaker Debugger, so its readers open our recordings, and `stokehold report` opens its.
//! A run's folder holds
//!
//! ```text
//! profiler-output/recording.json                                         about the run ([`About`])
//! profiler-output/system/incremental/YYYYMMDDHH/<minute>.algo-1.json     samples of the machine, JSON lines
//! profiler-output/framework/pevents/YYYYMMDDHH/<end>_<pid>-algo-1_pythontimeline.json    spans, Chrome trace
//! rule-output/ProfilerReport-<time>/profiler-output/                     the report and its JSON files
//! ```
//!
//! Two recorders run beside the training loop, both cheap enough to leave on, and both on unix seconds, so that what they
//! left can be laid over each other:
//!
//! - [`Recorder`] takes a tick every interval, in a thread of its own ([`Sampler`]): the busy share and I/O wait of every core that it may run on,
//!   memory, disks, network, pressure, the quota of the cgroup, the process tree, and the GPUs where NVML is there.
//!   The kernel counts CPU time in steps of 10 ms, so a tick of 100 ms resolves 10 points of a core; the percentiles
//!   over a run are what to read. A running recording is changed by [`Change`]. Where there is no `/proc`, opening it
//!   is [`ProfileError::NotSupported`] and nothing is invented.
//! - [`Timeline`] takes the spans of steps, waits, phases and loader workers, from any thread in less than 200 ns, and from
//!   any process as lines (docs/timeline.md). Its totals count every span; details of images thin out in long runs.
//!
//! [`percentile`] is the one definition of a percentile that reports use.
//!
//! ```
//! use stokehold_profile::percentile;
//! assert_eq!(percentile(&[4.0, 1.0, 3.0, 2.0], 50.0), Some(2.5));
//! ```

pub mod advice;
mod clock;
mod contention;
mod control;
mod error;
pub mod events;
mod kernel;
mod lengths;
mod machine;
mod open;
mod percentile;
mod probe;
mod recording;
pub mod report;
pub mod rules;
mod sampler;
pub mod simulate;
pub mod system;
pub mod timeline;

pub use contention::Contention;
pub use control::{Change, check_free, check_interval};
pub use error::ProfileError;
pub use machine::{Machine, peak_rss};
pub use open::FOLDER;
pub use percentile::{Percentiles, percentile};
pub use probe::Tree;
pub use recording::{About, CoreUse, Node, Recording, Series, Span, dimension, span, totals};
pub use sampler::{Ending, Recorder, Sampler, Settings, Sources, SystemSummary};
pub use timeline::Timeline;
